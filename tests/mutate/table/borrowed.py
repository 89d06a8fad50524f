"""Planted faults of arrays of other libraries on a device."""

from tests.mutate.mutant import Mutant


def case(words: str) -> tuple[str, ...]:
    return ("tests/runtime/test_cuda_borrowed.py", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a program does not wait for what another library still writes",
        "runtime.cuda.borrowed:BorrowedPlace.__init__",
        "self.arrival.record(ffi.NULL)",
        "",
        case("still_writes"),
    ),
    Mutant(
        "an interface that names no stream is read at once",
        "frontend.devices.resident:BorrowedArray.__init__",
        'interface.get("stream", _LEGACY_STREAM if is_unnamed else None)',
        'interface.get("stream")',
        ("tests/guards/test_calls_on_device.py", "-k", "names_no_stream"),
    ),
    Mutant(
        "PyTorch's interface without a stream is read before DLPack",
        "frontend.devices.resident:borrowed",
        "read_dlpack(value, what)",
        'getattr(value, "__cuda_array_interface__", None) or read_dlpack(value, what)',
        case("two_interfaces"),
    ),
    Mutant(
        "elements are given back before they are read",
        "frontend.devices.resident:BorrowedArray.__init__",
        'interface.get("lease")',
        "None",
        case("held_while"),
    ),
    Mutant(
        "elements are never given back",
        "runtime.cuda.borrowed:Lease.__init__",
        "if deleter: ...",
        "if False: ...",
        case("read_in_place"),
    ),
    Mutant(
        "a capsule that is taken can be taken again",
        "runtime.cuda.borrowed:device_interface",
        "_set_name(capsule, taken)",
        "",
        case("read_in_place"),
    ),
    Mutant(
        "where the elements begin is not heeded",
        "runtime.cuda.borrowed:_described",
        "(tensor.data or 0) + tensor.byte_offset",
        "tensor.data or 0",
        case("read_in_place"),
    ),
    Mutant(
        "strides of axes of one element are heeded",
        "frontend.devices.resident:_is_contiguous",
        "extent > 1 and stride != step",
        "stride != step",
        case("mean_nothing"),
    ),
    Mutant(
        "strides are not heeded",
        "runtime.cuda.borrowed:_described",
        "tensor.strides[: tensor.ndim] if tensor.strides else None",
        "None",
        case("mean_nothing"),
    ),
    Mutant(
        "groups of numbers are taken for numbers",
        "runtime.cuda.borrowed:_described",
        'dtype is None or dtype.kind == "V" or tensor.lanes != 1 or dtype.itemsize * 8 != tensor.bits',
        'dtype is None or dtype.kind == "V" or dtype.itemsize * 8 != tensor.bits',
        case("refused_and_given_back"),
    ),
    Mutant(
        "a version of DLPack that is not known is read",
        "runtime.cuda.borrowed:device_interface",
        "_NEWEST[0]",
        "9",
        case("refused_and_given_back"),
    ),
    Mutant(
        "elements on the host are taken for a device's",
        "runtime.cuda.borrowed:device_interface",
        "kind != _CUDA",
        "kind is None",
        case("numpys_to_read"),
    ),
    Mutant(
        "libraries from before DLPack's versions are refused",
        "runtime.cuda.borrowed:device_interface",
        "capsule = value.__dlpack__(stream=_LEGACY_STREAM)",
        "raise",
        case("read_in_place"),
    ),
)
