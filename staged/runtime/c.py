"""The language C: a program's text becomes a shared library, by the C compiler, and is loaded."""

from __future__ import annotations

from staged.base.artifact import Artifact
from staged.base.launcher import this_job
from staged.errors import CompilerError
from staged.runtime.compiler import compile_shared
from staged.runtime.guard import ffi
from staged.runtime.mpi import begin, begun, find_mpi
from staged.runtime.native import NativeProgram
from staged.runtime.options import CompileOptions
from staged.runtime.rank_checks import CheckedProgram, calls_between_checks


def load(artifact: Artifact, options: CompileOptions | None = None, *, poison: bool = False) -> NativeProgram:
    """Compile a program, or find it in the cache, and load it.

    With `poison` the arena is filled with NaN patterns before every call, so that a program that reads memory before
    writing it shows; not that of a program which keeps things there between calls.

    Raises: CompilerError, CacheError.
    """
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    has_ranks = artifact.has_ranks and this_job().ranks > 1
    if has_ranks:
        begin()
        flags, link = (found := find_mpi()).flags, found.link
    kind = CheckedProgram if has_ranks and calls_between_checks() else NativeProgram
    program = _loaded(kind, artifact, options, flags, link, poison)
    if has_ranks:
        place = program.library.symbol("st_collectives")
        ffi.cast("int64_t ***", place)[0] = begun()
    return program


def _loaded(
    kind: type[NativeProgram],
    artifact: Artifact,
    options: CompileOptions | None,
    flags: tuple[str, ...],
    link: tuple[str, ...],
    poison: bool,
) -> NativeProgram:
    path = compile_shared(artifact, options, flags, link)
    try:
        return kind(artifact, path, poison=poison)
    except CompilerError:
        if path.exists():
            raise
    # Another process cleared the cache in between.
    return kind(artifact, compile_shared(artifact, options, flags, link), poison=poison)


def files_beside(artifact: Artifact) -> dict[str, str]:
    """The files that an exported folder needs besides its back end's own: none."""
    return {}
