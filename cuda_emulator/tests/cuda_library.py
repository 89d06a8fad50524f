"""Calling the emulated libraries from Python: what their headers declare, on arrays that lie on the emulated device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cffi
import numpy as np
import numpy.typing as npt

from cuda_emulator import build, declarations, device

Array = npt.NDArray[Any]


class Buffer:
    """An array on the device."""

    def __init__(self, library: Library, array: Array) -> None:
        self._library = library
        self.shape, self.dtype, self.bytes = array.shape, array.dtype, array.nbytes
        address = library.ffi.new("void **")
        assert library.lib.cudaMalloc(address, array.nbytes) == 0
        self.pointer = address[0]
        contiguous = np.ascontiguousarray(array)
        data = library.ffi.cast("void *", contiguous.ctypes.data)
        assert library.lib.cudaMemcpy(self.pointer, data, array.nbytes, library.lib.cudaMemcpyHostToDevice) == 0

    def read(self) -> Array:
        """The present contents of the device's memory there."""
        array = np.empty(self.shape, self.dtype)
        data = self._library.ffi.cast("void *", array.ctypes.data)
        lib = self._library.lib
        assert lib.cudaMemcpy(data, self.pointer, self.bytes, lib.cudaMemcpyDeviceToHost) == 0
        return array

    def free(self) -> None:
        assert self._library.lib.cudaFree(self.pointer) == 0


class Library:
    """One of the emulated libraries, loaded: a key of `LIBRARIES` and its header."""

    def __init__(self, name: str, header: str) -> None:
        self.emulator = device()
        self.ffi = cffi.FFI()
        self.ffi.cdef(declarations(header))
        self.lib: Any = self.ffi.dlopen(str(build(name)))
        self._buffers: list[Buffer] = []
        self._refused = 0

    def status(self, function: str, *arguments: Any) -> int:
        """Calls it: a word is an enumerator, a Buffer its address, a tuple a C array of integers on the host."""
        return int(getattr(self.lib, function)(*map(self._argument, arguments)))

    def do(self, function: str, *arguments: Any) -> None:
        """Calls it and expects success."""
        status = self.status(function, *arguments)
        assert status == 0, f"{function}: status {status}, {self.emulator.last_violation()}"

    def made(self, function: str, type: str, *arguments: Any) -> Any:
        """Calls `function(TYPE *out, arguments...)`, which makes something; the thing."""
        out = self.ffi.new(f"{type} *")
        self.do(function, out, *arguments)
        return out[0]

    def asked(self, function: str, type: str, *arguments: Any) -> Any:
        """Calls `function(arguments..., TYPE *out)`; what it told."""
        out = self.ffi.new(f"{type} *")
        self.do(function, *arguments, out)
        return out[0]

    def put(self, array: Array) -> Buffer:
        """A copy of an array on the device, until `clean`."""
        self._buffers.append(Buffer(self, array))
        return self._buffers[-1]

    def room(self, *shape: int, dtype: npt.DTypeLike = np.float32) -> Buffer:
        """Memory for an array on the device: all NaN, as whatever was not written is."""
        return self.put(np.full(shape, np.nan, dtype))

    def scalar(self, value: float, dtype: npt.DTypeLike = np.float32) -> Any:
        """A number on the host, by its address."""
        return self.ffi.new("float *" if np.dtype(dtype) == np.float32 else "double *", value)

    def refused(self, words: str, function: str, *arguments: Any) -> None:
        """Calls it and expects that it is refused as misuse, in these words."""
        before = self.emulator.counts().violations
        assert self.status(function, *arguments) != 0
        assert self.emulator.counts().violations == before + 1
        assert words in self.emulator.last_violation()
        self._refused += 1

    def expect_violation(self) -> None:
        """One more violation is right, of work that was found wrong only when it ran; the device, lost by it, is set up anew."""
        self._refused += 1
        self.emulator.configure("")

    @contextmanager
    def clean(self) -> Iterator[None]:
        """Expects that what was made inside is given back, and no violation but those that `refused` saw."""
        before, self._refused = self.emulator.counts(), 0
        yield
        while self._buffers:
            self._buffers.pop().free()
        seen = self.emulator.counts() - before
        assert seen.violations == self._refused, self.emulator.last_violation()
        assert (seen.live_handles, seen.live_descriptors, seen.live_allocations) == (0, 0, 0), self.emulator.objects()

    def _argument(self, argument: Any) -> Any:
        match argument:
            case str():
                return getattr(self.lib, argument)
            case Buffer():
                return argument.pointer
            case tuple():
                return self.ffi.new("int[]", argument)
            case None:
                return self.ffi.NULL
        return argument
