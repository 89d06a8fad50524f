"""Arrays of other libraries on a device that offer DLPack alone: read in place, kept as long as they are read, and no longer."""

from __future__ import annotations

import ctypes
import gc
import struct
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.runtime.cuda.resident import TO_DEVICE, DeviceCopy
from staged.runtime.guard import ffi

pytestmark = pytest.mark.usefixtures("device")
X = np.random.default_rng(2).normal(size=(8, 4)).astype(np.float32)

Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
capsule_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class Tensor:
    """Stands for an array on a device of a library that knows DLPack's versions: `changes` are of what it says of itself."""

    def __init__(self, array: Any, device: str = "gpu", offset: int = 0, **changes: Any) -> None:
        self.place = DeviceCopy(device, array.nbytes + offset)
        self.place.update(np.frombuffer(bytes(offset) + array.tobytes(), np.uint8))
        self.number = int(device[4:-1] or 0)
        steps = tuple(step // array.itemsize for step in np.empty(array.shape, array.dtype).strides)
        self.said = {
            "shape": array.shape, "strides": steps, "code": CODES[array.dtype.kind], "bits": 8 * array.itemsize,
            "lanes": 1, "offset": offset, "type": 2, "major": 1, "error": None, **changes,
        }  # fmt: skip
        self.streams: list[Any] = []
        self.capsules: list[Any] = []
        self.alive: set[int] = set()
        self.deleter = Deleter(self.alive.remove)
        self.memory: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.said["type"], self.number

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        assert max_version[0] >= 1
        return self.capsule(stream, versioned=True)

    def capsule(self, stream: Any, versioned: bool) -> Any:
        said = self.said
        if said["error"]:
            raise said["error"]
        self.streams.append(stream)
        arrays = [
            None if extents is None else (ctypes.c_int64 * len(extents))(*extents)
            for extents in (said["shape"], said["strides"])
        ]
        shape, strides = (0 if array is None else ctypes.addressof(array) for array in arrays)
        tensor = struct.pack(
            "=QiiiBBHQQQ", int(ffi.cast("uintptr_t", self.place.address)), said["type"], self.number, len(said["shape"]),
            said["code"], said["bits"], said["lanes"], shape, strides, said["offset"],
        )  # fmt: skip
        deleter = ctypes.cast(self.deleter, ctypes.c_void_p).value
        if versioned:
            managed = struct.pack("=IIQQQ", said["major"], 1, 0, deleter, 0) + tensor
        else:
            managed = tensor + struct.pack("=QQ", 0, deleter)
        buffer = ctypes.create_string_buffer(managed, len(managed))
        self.memory += [arrays, buffer]
        self.alive.add(ctypes.addressof(buffer))
        made = new_capsule(ctypes.addressof(buffer), b"dltensor_versioned" if versioned else b"dltensor", None)
        self.capsules.append(made)
        return made


class TwoInterfaces(Tensor):
    """As PyTorch's tensors: DLPack, and a `__cuda_array_interface__` of version 2, which names no stream."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")


class OldTensor(Tensor):
    """Of a library from before the versions."""

    def __dlpack__(self, *, stream: Any = None) -> Any:  # type: ignore[override]
        return self.capsule(stream, versioned=False)


@pytest.mark.parametrize("kind", [Tensor, OldTensor])
def test_what_dlpack_offers_on_a_device_is_read_in_place(kind: type[Tensor], device: Emulator) -> None:
    double = st.function(lambda x, y: x * 2.0 + y)
    with with_backend(GPU):
        for number in range(4):
            tensor = kind(X + np.float32(number), offset=(0, 16, 64, 4)[number])
            before = device.counts()
            found = double(tensor, 1.0)
            seen = device.counts() - before
            np.testing.assert_allclose(found, (X + number) * 2 + 1, rtol=1e-6)
            if number:
                assert (seen.bytes_to_device, seen.bytes_to_host, seen.allocations) == (0, 0, number == 1)
                assert seen.synchronisations == 1  # the other library may write to the array when the call has returned
            # Each was asked for on the null stream, taken, and is given back when the call is over.
            assert set(tensor.streams) == {1}
            taken = b"used_dltensor" if kind is OldTensor else b"used_dltensor_versioned"
            assert {capsule_name(capsule) for capsule in tensor.capsules} == {taken}
        assert [program.calls for program in double.programs] == [4]
        for other in (kind(X[:3]), kind(X[:1]), kind(X[:, :1]), kind(X[:0])):
            array = np.asarray(X[:3] if other.said["shape"] == (3, 4) else X).copy()
            array = array[tuple(slice(extent) for extent in other.said["shape"])]
            np.testing.assert_allclose(double(other, 1.0), array * 2 + 1, rtol=1e-6)
    gc.collect()
    assert not tensor.alive and len(tensor.streams) == len(tensor.memory) / 2


def test_strides_may_be_missing_and_those_of_one_element_mean_nothing() -> None:
    double = st.function(lambda x: x * 2.0)
    with with_backend(GPU):
        for shape, strides in [((8, 4), None), ((8, 4), (4, 1)), ((1, 8, 1, 4), (1, 4, 1, 1)), ((32, 1), (1, 1))]:
            tensor = Tensor(X.reshape(shape), strides=strides)
            np.testing.assert_allclose(double(tensor), X.reshape(shape) * 2, rtol=1e-6)
        with pytest.raises(st.DTypeError, match=r"`x` is a Tensor on gpu whose elements are not one after another"):
            double(Tensor(X, strides=(1, 8)))


def test_dtypes_are_dlpacks() -> None:
    arrays = [np.arange(6).astype(dtype) for dtype in (np.int32, np.int64, np.uint8, np.uint32, np.float64, np.bool_)]
    same = st.function(lambda *given: [x + x if x.dtype != st.bool_ else ~x for x in given])
    with with_backend(GPU):
        found = same(*map(Tensor, arrays))
    for array, result in zip(arrays, found, strict=True):
        np.testing.assert_array_equal(result, ~array if array.dtype == bool else array + array)
        assert result.dtype == array.dtype


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": 4, "bits": 16}, "`x` is a Tensor on a device of elements of bfloat16, which have no staged type"),
        ({"code": 0, "bits": 4}, "elements of int4"),
        ({"code": 17, "bits": 8}, "elements of other8"),
        ({"lanes": 4}, "elements of float32 in groups of 4"),
        ({"major": 2}, "in DLPack's version 2"),
        ({"error": BufferError("it requires gradients")}, "that its library does not give: it requires gradients"),
    ],
)
def test_what_no_program_reads_is_refused_and_given_back(changes: Any, words: str) -> None:
    tensor = Tensor(X, **changes)
    with with_backend(GPU), pytest.raises(st.DTypeError, match=words):
        st.function(lambda x: x * 2.0)(tensor)
    gc.collect()
    assert not tensor.alive


def test_a_capsule_of_something_else_is_refused() -> None:
    tensor = Tensor(X)
    tensor.capsule = lambda stream, versioned: object()  # type: ignore[method-assign]
    with with_backend(GPU), pytest.raises(st.DTypeError, match="whose capsule is none of DLPack's"):
        st.function(lambda x: x * 2.0)(tensor)


def test_elements_of_the_host_are_numpys_to_read() -> None:
    class OnHost:
        def __dlpack_device__(self) -> Any:
            return X.__dlpack_device__()

        def __dlpack__(self, **words: Any) -> Any:
            return X.__dlpack__(**words)

    with with_backend(GPU):
        np.testing.assert_allclose(st.function(lambda x: x * 2.0)(OnHost()), X * 2, rtol=1e-6)


def test_dlpack_is_read_where_there_are_two_interfaces() -> None:
    """It alone lets the library order its pending writes, on whichever stream they are."""
    tensor = TwoInterfaces(X)
    with with_backend(GPU):
        np.testing.assert_allclose(st.function(lambda x: x * 2.0)(tensor), X * 2, rtol=1e-6)
    assert set(tensor.streams) == {1}


def test_a_program_waits_for_what_the_library_still_writes(device: Emulator) -> None:
    """The library's work is on the null stream by the time that it gives the capsule."""
    place = ffi.new("void **")
    assert device.function("cudaMallocHost", "int (*)(void **, size_t)")(place, X.nbytes) == 0
    ffi.memmove(place[0], X.tobytes(), X.nbytes)
    copy = device.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")

    class Computed(Tensor):
        def capsule(self, stream: Any, versioned: bool) -> Any:
            assert copy(self.place.address, place[0], X.nbytes, TO_DEVICE, ffi.NULL) == 0
            return super().capsule(stream, versioned)

    double = st.function(lambda x: x * 2.0)
    with with_backend(GPU):
        double(Tensor(X))
        for seed in range(8):
            tensor = Computed(np.zeros_like(X))
            device.configure(f"lazy seed={seed}")
            np.testing.assert_allclose(double(tensor), X * 2, rtol=1e-6)
    device.configure("")
    assert device.function("cudaFreeHost", "int (*)(void *)")(place[0]) == 0


def test_each_device_has_its_own(device: Emulator) -> None:
    device.configure("devices=2 lazy seed=4")
    double = st.function(lambda x: x * 2.0)
    for name, region in (("gpu", GPU), ("gpu(1)", GPU(1)), ("gpu", GPU)):
        with with_backend(region):
            np.testing.assert_allclose(double(Tensor(X, name)), X * 2, rtol=1e-6)
    with st.eager(), pytest.raises(st.StagedError, match=r"a Tensor on gpu\(1\) is read on the host"):
        double(Tensor(X, "gpu(1)"))


def test_the_elements_are_held_while_a_program_reads_them() -> None:
    held: list[int] = []

    class Out:
        """Is written to while the program runs."""

        def write(self, text: str) -> int:
            held.append(len(tensor.alive))
            return len(text)

        def flush(self) -> None:
            pass

    @st.function
    def shown(x: Any) -> Any:
        print(st.sum(x))
        return x * 2.0

    with with_backend(GPU):
        for _ in range(2):  # traced, and guarded
            tensor = Tensor(X)
            with redirect_stdout(Out()):  # type: ignore[type-var]
                shown(tensor)
            assert held and min(held) >= 1
            held.clear()
