"""C functions of the user's, called from Python: compiled from their source, or found in a library.

Tested by `tests/test_custom_ops.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import CompilerError
from staged.runtime.compiler import CompileFailure, compile_text
from staged.runtime.guard import PLAIN_MODE, ffi, loader
from staged.source import here

HEAD = "#include <stdbool.h>\n#include <stddef.h>\n#include <stdint.h>\n"
Call = Callable[[Sequence[Any], Sequence[np.ndarray[Any, Any]]], int]


class ForeignFunction:
    """A C function with these parameters that returns an int."""

    def __init__(self, name: str, parameters: str, source: str, library: str) -> None:
        self.name, self.parameters, self.source, self.library = name, parameters, source, library
        self._loaded: Call | None = None

    def load(self) -> Call:
        """The function on arrays (an address and the size of each axis) and numbers, then results.

        Raises: CompilerError where the source does not define it, or the library has no such function.
        """
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> Call:
        symbol = symbol_in(self.library or self._compiled(), self.name, self.name)
        function = ffi.cast(f"int (*)({self.parameters or 'void'})", symbol)

        def call(arguments: Sequence[Any], results: Sequence[np.ndarray[Any, Any]]) -> int:
            given: list[Any] = []
            for argument in arguments:
                if np.ndim(argument):
                    given += [_address(argument), *argument.shape]
                else:
                    given.append(np.asarray(argument).item())
            status: int = function(*given, *map(_address, results))
            return status

        return call

    def _compiled(self) -> str:
        text = f"{HEAD}int {self.name}({self.parameters or 'void'});\n{self.source}\n"
        try:
            return str(compile_text(f"custom_{self.name}", text, flags=("-O2", "-Wall", "-Wextra")))
        except CompileFailure as failure:
            raise CompilerError(
                f"the source of `{self.name}` does not compile:\n{failure}",
                where=here(),
                hint=f"it is to define `int {self.name}({self.parameters})`",
            ) from None


def symbol_in(path: str, function: str, name: str) -> Any:
    """The address of a function in a library of the custom op `name`.

    Raises: CompilerError where the library cannot be loaded, or has no such function.
    """
    dl = loader()
    handle = dl.dlopen(os.fsencode(path), PLAIN_MODE)
    if handle == ffi.NULL:
        words = ffi.string(dl.dlerror()).decode(errors="replace")
        raise CompilerError(f"the library of `{name}` cannot be loaded: {words}", where=here())
    symbol = dl.dlsym(handle, function.encode())
    if symbol == ffi.NULL:
        raise CompilerError(f"{path} has no function `{function}`", where=here())
    return symbol


def _address(array: np.ndarray[Any, Any]) -> Any:
    return ffi.cast("void *", array.ctypes.data)
