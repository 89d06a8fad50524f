"""From C text to a shared library: find the compiler, choose the flags, compile once, explain a refusal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from staged.base.artifact import Artifact, Site
from staged.errors import CompilerError
from staged.runtime.blas import missing_blas
from staged.runtime.cache import default_cache, digest, write_texts
from staged.runtime.machine import cpu_signature
from staged.runtime.options import CompileOptions, split_variable
from staged.runtime.shortage import ShortageError, shortage_in, shortage_of
from staged.source import Position

# Without contraction `a * b + c` is rounded twice, as in NumPy. Where speed needs fused multiply-adds, the text calls
# `st_fma`. Generated code never reads errno or floating-point exception flags. No flag here changes what NaN and
# infinity mean.
BASE_FLAGS = ("-std=c11", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math")
# gcc 12.2's vectorisers give wrong numbers on plain C, mostly at -O3, where short inner loops are unrolled before they
# run. That of loops sums the wrong elements of `for (i) { for (j < 2) s += x[5*i + j + 3]; for (j < 3) s += x[5*i + j];
# }`, and of loads under a condition, several in a row, all get the mask of the first. That of straight code takes the
# wrong lanes of a vector of ours that scalars read after it was stored. Our vectors are written out: little is lost
# without them.
GCC_FLAGS = ("-fno-tree-vectorize",)
SHARED_FLAGS = ("-fPIC", "-shared", "-pipe")
LIBRARIES = ("-lm", "-pthread")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C compiler: its command, and the first line of its `--version`."""

    command: tuple[str, ...]
    version: str

    @property
    def is_gcc(self) -> bool:
        """Return whether it is GNU's, by any name: `cc (Debian 12.2.0-14) 12.2.0`, and not `clang version 16.0.6`."""
        return re.match(r"\S*cc\S* \(", self.version) is not None

    @property
    def base_flags(self) -> tuple[str, ...]:
        """The flags for every program."""
        return (*BASE_FLAGS, *GCC_FLAGS) if self.is_gcc else BASE_FLAGS


class CompileFailure(Exception):
    """The compiler rejected a text; `words` is its output. Callers that know the Python lines raise a CompilerError."""

    def __init__(self, words: str, command: list[str]) -> None:
        super().__init__(words)
        self.words = words
        self.command = command


def find_compiler() -> Compiler:
    """The C compiler: `$STAGED_CC` (a command, possibly with arguments), else the first of cc, gcc and clang.

    Raises: CompilerError if there is none, or it cannot be run.
    """
    chosen = split_variable("STAGED_CC")
    if chosen:
        path = shutil.which(chosen[0])
        if path is None:
            raise CompilerError(
                f"the C compiler that STAGED_CC names was not found: {chosen[0]}",
                hint="set STAGED_CC to the command of a C compiler, or unset it to use cc, gcc or clang",
            )
        return _compiler((path, *chosen[1:]))
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return _compiler((path,))
    raise CompilerError(
        "no C compiler was found: neither cc, gcc nor clang is on the PATH",
        hint="install one (Debian, Ubuntu: `apt install gcc libc6-dev`; Fedora: `dnf install gcc`; macOS: "
        "`xcode-select --install`; conda: `conda install c-compiler`), or set STAGED_CC to its command",
    )


def compile_shared(
    artifact: Artifact,
    options: CompileOptions | None = None,
    flags: tuple[str, ...] = (),
    link: tuple[str, ...] = (),
) -> Path:
    """The shared library of a program: from the cache, else compiled now, with further `flags` and `link`.

    Raises: CompilerError if there is no compiler or it refuses the text, CacheError if the cache cannot be trusted.
    """
    options = options or CompileOptions()
    try:
        return compile_text(
            artifact.name,
            artifact.source,
            artifact.header,
            (*artifact.flags, *options.flags(), *flags),
            (*artifact.link, *link),
            artifact.support,
        )
    except CompileFailure as failure:
        raise explained(artifact, failure) from None
    except (ShortageError, OSError) as error:
        raise short_of(artifact.name, error) from error


def compile_text(
    name: str,
    source: str,
    header: str | None = None,
    flags: tuple[str, ...] = (),
    link: tuple[str, ...] = (),
    support: str = "",
) -> Path:
    """The shared library of `source`, which may include `header` as "NAME.h" and `support` as "NAME_support.h"."""
    compiler = find_compiler()
    texts = {f"{name}.c": source}
    if header is not None:
        texts[f"{name}.h"] = header
    if support:
        texts[f"{name}_support.h"] = support
    ahead = (*compiler.base_flags, *SHARED_FLAGS, *flags)
    behind = (*link, *LIBRARIES)
    native = cpu_signature() if any(flag.endswith("=native") for flag in ahead) else ""
    key = digest(
        "program 2", name, source, header or "", support,
        *compiler.command, compiler.version, *ahead, "--", *behind, native,
    )  # fmt: skip
    library = f"{name}.so"

    def make(folder: Path) -> None:
        write_texts(folder, texts)
        # Names of the private folder stay out of the library: the compiler works in it.
        run_compiler([*compiler.command, *ahead, "-o", library, f"{name}.c", *behind], folder)

    return default_cache().keep(key, name, library, make)


def run_compiler(command: list[str], folder: Path) -> None:
    """Run a compiler in a folder.

    Raises: CompileFailure with its words; ShortageError, OSError where the machine is short of something.
    """
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", env=_environment())
    if run.returncode != 0:
        words = run.stderr or run.stdout
        shortage = shortage_in(words) or ("it was killed: out of memory?" if run.returncode == -signal.SIGKILL else "")
        if shortage:
            raise ShortageError(shortage)
        raise CompileFailure(words, command)


# ---- the compiler -------------------------------------------------------------------------------


def _environment() -> dict[str, str]:
    """The compiler speaks English to us: its words are searched for line numbers."""
    return {**os.environ, "LC_ALL": "C"}


def _compiler(command: tuple[str, ...]) -> Compiler:
    status = os.stat(command[0])
    return _ask_version(command, (status.st_mtime_ns, status.st_size, status.st_ino))


@cache
def _ask_version(command: tuple[str, ...], identity: tuple[int, ...]) -> Compiler:
    """Run `--version`. The result is cached until `identity` (of the compiler's file) changes."""
    del identity
    try:
        run = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", env=_environment()
        )
        problem = (run.stderr or run.stdout).strip() if run.returncode != 0 else None
    except OSError as error:
        if shortage_of(error):
            raise short_of(os.path.basename(command[0]), error) from error
        problem = str(error)
    if problem is not None:
        raise CompilerError(
            f"the C compiler cannot be run: {shlex.join(command)} --version: {problem}",
            hint="set STAGED_CC to the command of a C compiler that works",
        )
    return Compiler(command, (run.stdout.strip().splitlines() or [""])[0])


# ---- explaining a refusal -----------------------------------------------------------------------

# `NAME.c:12:3: error: ...` is how C compilers say it, `NAME.cu(12): error: ...` is NVIDIA's way.
_WORDS = re.compile(
    r"^(?P<file>[^:(\n]+)(?::(?P<line>\d+):(?:\d+:)?|\((?P<number>\d+)\):) "
    r"(?:(?:fatal|catastrophic) )?error(?: #\S+)?: (?P<message>.*)$",
    re.MULTILINE,
)
_COMMENT = re.compile(r"//.*?(?P<file>[^\s/:]+\.py):(?P<line>\d+)")


def explained(
    artifact: Artifact,
    failure: CompileFailure,
    compiler: str = "C compiler",
    settings: str = "STAGED_CC and STAGED_CFLAGS",
) -> CompilerError:
    """The compiler's words, the generated line they are about, and the Python line behind it.

    `settings` are the environment variables by which the user may have chosen something that does not work; "" if none.
    """
    words = failure.words.strip()
    absent = missing_blas(words)
    if absent is not None:
        return absent
    details: list[str] = []
    where: Position | None = None
    match = _WORDS.search(words)
    if match:
        text = artifact.header if match["file"].endswith(".h") else artifact.source
        lines = text.splitlines()
        number = int(match["line"] or match["number"])
        if match["file"] in (f"{artifact.name}{ending}" for ending in (".c", ".cu", ".h")) and 0 < number <= len(lines):
            details.append(f"generated line {match['file']}:{number}: {lines[number - 1].strip()}")
            where = _python_behind(lines, number, artifact.sites)
    shown = words.splitlines()
    details += ["the compiler said:", *(f"  {line}" for line in shown[:20])]
    if len(shown) > 20:
        details.append(f"  ... and {len(shown) - 20} more lines")
    details.append(f"command: {shlex.join(failure.command)}")
    return CompilerError(
        f"the {compiler} refused the program `{artifact.name}`"
        + (f": {match['message']}" if match else f" ({(words.splitlines() or ['it said nothing'])[0]})"),
        where=where,
        details=details,
        hint=(f"check {settings} if you set them; otherwise this" if settings else "this")
        + " is a bug in staged: please report it with this message",
    )


def short_of(name: str, error: ShortageError | OSError) -> CompilerError:
    """The machine is short of something that compiling needs: not the program's fault, and not ours."""
    why = shortage_of(error) or str(error)
    return CompilerError(
        f"the program `{name}` could not be compiled on this machine now: {why}",
        hint="make room (the compiler works in STAGED_CACHE_DIR and in TMPDIR), close files or programs, and call it "
        "again",
    )


def _python_behind(lines: list[str], number: int, sites: tuple[Site, ...]) -> Position | None:
    """The Python position that the nearest source comment at or above a generated line names."""
    for line in reversed(lines[:number]):
        match = _COMMENT.search(line)
        if match is None:
            continue
        for site in sites:
            if os.path.basename(site.file) == match["file"] and site.line == int(match["line"]):
                return position_of_site(site)
        return Position(match["file"], int(match["line"]), 0, int(match["line"]), 0, "the program")
    return None


def position_of_site(site: Site) -> Position:
    """A site as errors show it."""
    return Position(site.file, site.line, site.column, site.line, site.end_column, site.function)
