"""Planted faults of arrays of other libraries on a device."""

from tests.mutate.mutant import Mutant

BORROWED = "staged/runtime/cuda/borrowed.py"
RESIDENT = "staged/frontend/devices/resident.py"


def case(words: str) -> tuple[str, ...]:
    return ("tests/runtime/test_cuda_borrowed.py", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a program does not wait for what another library still writes",
        BORROWED,
        "            self.arrival.record(ffi.NULL)\n",
        "",
        case("still_writes"),
    ),
    Mutant(
        "an interface that names no stream is read at once",
        RESIDENT,
        'interface.get("stream", _LEGACY_STREAM if is_unnamed else None)',
        'interface.get("stream")',
        ("tests/guards/test_calls_on_device.py", "-k", "names_no_stream"),
    ),
    Mutant(
        "PyTorch's interface without a stream is read before DLPack",
        RESIDENT,
        "    interface = _dlpack_reader(value, what)\n",
        '    interface = getattr(value, "__cuda_array_interface__", None) or _dlpack_reader(value, what)\n',
        case("two_interfaces"),
    ),
    Mutant(
        "elements are given back before they are read",
        RESIDENT,
        'self.lease = interface.get("lease")',
        "self.lease = None",
        case("held_while"),
    ),
    Mutant(
        "elements are never given back",
        BORROWED,
        "        if deleter:",
        "        if False:",
        case("read_in_place"),
    ),
    Mutant(
        "a capsule that is taken can be taken again",
        BORROWED,
        "            _set_name(capsule, taken)\n",
        "",
        case("read_in_place"),
    ),
    Mutant(
        "where the elements begin is not heeded",
        BORROWED,
        "(tensor.data or 0) + tensor.byte_offset",
        "(tensor.data or 0)",
        case("read_in_place"),
    ),
    Mutant(
        "strides of axes of one element are heeded",
        RESIDENT,
        "        if extent > 1 and stride != step:",
        "        if stride != step:",
        case("mean_nothing"),
    ),
    Mutant(
        "strides are not heeded",
        BORROWED,
        "    strides = tensor.strides[: tensor.ndim] if tensor.strides else None",
        "    strides = None",
        case("mean_nothing"),
    ),
    Mutant(
        "groups of numbers are taken for numbers",
        BORROWED,
        "or tensor.lanes != 1 or ",
        "or ",
        case("refused_and_given_back"),
    ),
    Mutant(
        "a version of DLPack that is not known is read",
        BORROWED,
        "managed.major > _NEWEST[0]",
        "managed.major > 9",
        case("refused_and_given_back"),
    ),
    Mutant(
        "elements on the host are taken for a device's",
        BORROWED,
        "    if kind != _CUDA:",
        "    if kind is None:",
        case("numpys_to_read"),
    ),
    Mutant(
        "libraries from before DLPack's versions are refused",
        BORROWED,
        "            capsule = value.__dlpack__(stream=_LEGACY_STREAM)\n",
        "            raise\n",
        case("read_in_place"),
    ),
)
