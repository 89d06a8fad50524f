"""The language C: a program's text becomes a shared library, by the C compiler, and is loaded."""

from __future__ import annotations

from staged.base.artifact import Artifact
from staged.errors import CompilerError
from staged.runtime.compiler import compile_shared
from staged.runtime.native import NativeProgram
from staged.runtime.options import CompileOptions


def load(artifact: Artifact, options: CompileOptions | None = None, *, poison: bool = False) -> NativeProgram:
    """Compile a program, or find it in the cache, and load it.

    With `poison` the arena is filled with NaN patterns before every call, so that a program that reads memory before
    writing it shows; not that of a program which keeps things there between calls.

    Raises: CompilerError, CacheError.
    """
    path = compile_shared(artifact, options)
    try:
        return NativeProgram(artifact, path, poison=poison)
    except CompilerError:
        if path.exists():
            raise
    # Another process cleared the cache in between.
    return NativeProgram(artifact, compile_shared(artifact, options), poison=poison)


def files_beside(artifact: Artifact) -> dict[str, str]:
    """The files that an exported folder needs besides its back end's own: none."""
    return {}
