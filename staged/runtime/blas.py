"""The BLAS and LAPACK that `$STAGED_BLAS` names: linker flags, and the words for one that is not there."""

from __future__ import annotations

import os
import re
import shlex

from staged.errors import CompilerError, DependencyError
from staged.ir.machine import Blas

_NAMES = {"mkl": ("-lmkl_rt",), "accelerate": ("-framework", "Accelerate"), "reference": ("-lcblas", "-lblas")}
"""Libraries whose linker flags are others than `-lNAME`."""
_LAPACK = {"reference": ("-llapack",)}
"""Libraries whose LAPACK is another one."""
_MISSING = re.compile(
    r"cannot find (?:-l)?\S+|library '?\S+?'? not found|undefined (?:reference to|symbols?:?) \S*"
    r"(?:gemm|trsm|(?P<lapack>potrf|getrf|geqrf|orgqr|ungqr|syevd|heevd|gesdd))"
    r"|cannot open shared object file"
)


def chosen_blas() -> Blas | None:
    """The library of `$STAGED_BLAS`: a name (`openblas`), the path of a library, or linker flags; None if it is empty.

    `$STAGED_BLAS_SYMBOLS` is the form of the names of its functions, as `scipy_{}`. Raises: DependencyError if there is
    no file of that path, or the form has no `{}`.
    """
    chosen = os.environ.get("STAGED_BLAS", "")
    try:
        words = shlex.split(chosen)
    except ValueError as error:
        raise DependencyError(f"STAGED_BLAS cannot be read as linker flags ({error}): {chosen}") from None
    if not words:
        return None
    symbols = os.environ.get("STAGED_BLAS_SYMBOLS", "") or "{}"
    if not re.fullmatch(r"\w*\{\}\w*", symbols):
        raise DependencyError(
            f"STAGED_BLAS_SYMBOLS is the form of a name, with {{}} in the place of `cblas_sgemm`, got {symbols!r}",
            hint="`STAGED_BLAS_SYMBOLS=scipy_{}` for a library whose function is `scipy_cblas_sgemm`",
        )
    flags, lapack = list[str](), list[str]()
    for word in words:
        if word.startswith("-") or (flags and flags[-1] == "-framework"):
            flags.append(word)
        elif os.sep in word or re.search(r"\.(so|a|dylib)(\.|$)", word):
            path = os.path.abspath(os.path.expanduser(word))
            if not os.path.isfile(path):
                raise DependencyError(
                    f"STAGED_BLAS names a library that is not there: {path}",
                    hint="set it to a name (`openblas`), the path of a library or linker flags, or unset it",
                )
            flags += [path, f"-Wl,-rpath,{os.path.dirname(path)}"]
        else:
            flags += _NAMES.get(word.lower(), (f"-l{word}",))
            lapack += _LAPACK.get(word.lower(), ())
    return Blas(tuple(flags), symbols, tuple(lapack))


def missing_blas(words: str) -> CompilerError | None:
    """The error for a program that is not linked to `$STAGED_BLAS`, or not loaded with it; None for other refusals."""
    chosen, found = os.environ.get("STAGED_BLAS", ""), _MISSING.search(words)
    if not chosen or found is None:
        return None
    if found["lapack"]:
        return CompilerError(
            f"STAGED_BLAS={chosen} has no LAPACK, which this program's `st.linalg` calls: {found[0]}",
            hint="name it as well (`STAGED_BLAS='-lblis -llapack'`), or unset STAGED_BLAS",
        )
    return CompilerError(
        f"the linker does not find the BLAS that STAGED_BLAS={chosen} names: {found[0]}",
        hint="install its files for development (Debian, Ubuntu: `apt install libopenblas-dev`), give the path of the "
        "library or linker flags (`-L/opt/lib -lopenblas`), name its functions (`STAGED_BLAS_SYMBOLS=scipy_{}`), or "
        "unset it",
    )
