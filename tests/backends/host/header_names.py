"""The names that the headers of generated programs take, as the preprocessor and the compiler themselves say.

python -m tests.backends.host.header_names   rewrite staged/code/header_words.py, from this machine's headers
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import cuda_emulator
from staged.code import header_words
from staged.code.support.library import snippets
from staged.code.writer import has_header_shape
from staged.runtime.cuda import toolkit

C_HEADERS = sorted(
    {line for snippet in snippets().values() for line in snippet.includes if line.startswith("#include")}
    | {f"#include <{name}.h>" for name in ("math", "stdbool", "stddef", "stdint", "string")}
)
"""All that any program in C includes."""
EMULATED = cuda_emulator.INCLUDE


@dataclass(frozen=True)
class Language:
    """A way in which programs are compiled: the compiler's command, and the headers."""

    name: str
    command: tuple[str, ...]
    includes: tuple[str, ...]


def languages() -> list[Language]:
    """Those that this machine has the tools for."""
    in_cpp = tuple(line for line in C_HEADERS if "stdatomic" not in line)
    libraries = ("cuda_runtime", "cublas_v2", "cublasLt", "cudnn", "cusolverDn")
    cuda = tuple(f"#include <{name}.h>" for name in libraries)
    found = [
        Language("C11", ("cc", "-x", "c", "-std=c11"), ("#define _GNU_SOURCE", *C_HEADERS)),
        Language("GNU C", ("cc", "-x", "c", "-std=gnu17"), ("#define _GNU_SOURCE", *C_HEADERS)),
        Language("C++", ("c++", "-x", "c++", "-std=gnu++17"), in_cpp),
        Language("emulated CUDA", ("c++", "-x", "c++", "-std=c++17", f"-I{EMULATED}"), (*cuda, *in_cpp)),
    ]
    folders = _cuda_folders()
    if folders:
        there = [line for line in cuda if any((folder / line[10:-1]).exists() for folder in folders)]
        flags = tuple(f"-I{folder}" for folder in folders)
        found.append(Language("CUDA", ("c++", "-x", "c++", "-std=gnu++17", *flags), (*there, *in_cpp)))
        nvcc = shutil.which("nvcc")
        if nvcc:
            found.append(Language("nvcc", (nvcc, "-x", "cu", *flags), (*there, *in_cpp)))
    return found


def _cuda_folders() -> list[Path]:
    try:
        return [Path(folder) for folder in toolkit.include_folders(())]
    except Exception:
        return []


def run(language: Language, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*language.command, *flags, "-"], input=text, capture_output=True, text=True, errors="replace"
    )


def macros(language: Language) -> set[str]:
    """The names that are defined once all headers are read, and before."""
    head = "\n".join(language.includes) + "\n"
    option = ("-E", "-Xcompiler", "-dM") if language.name == "nvcc" else ("-E", "-dM")
    done = run(language, head, *option)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^#define (\w+)", done.stdout, re.MULTILINE))


def candidates(language: Language) -> set[str]:
    """Every word of the headers as the compiler sees them."""
    done = run(language, "\n".join(language.includes) + "\n", "-E")
    assert done.returncode == 0, done.stderr
    text = re.sub(r'"(?:[^"\\]|\\.)*"|^#.*$', "", done.stdout, flags=re.MULTILINE)
    return set(re.findall(r"\b[A-Za-z]\w*", text))


def refused(language: Language, names: Iterable[str]) -> dict[str, str]:
    """Of these names those that cannot be a variable of the file, with the compiler's words."""
    ordered = sorted(names)
    head = [*language.includes, '#line 1 "names"']
    lines = [f"static int {name};" for name in ordered]
    flags = (
        ("-fsyntax-only", "-fmax-errors=0", "-w")
        if language.name != "nvcc"
        else ("-cuda", "-o", "/dev/null", "-Xcudafe", "--error_limit=100000")
    )
    done = run(language, "\n".join([*head, *lines]) + "\n", *flags)
    found: dict[str, str] = {}
    for line, words in re.findall(r"^names[:(](\d+)[:)](?:\d+:)?:? (?:fatal )?error(.*)$", done.stderr, re.MULTILINE):
        found[ordered[int(line) - 1]] = words
    return found


def taken(language: Language) -> set[str]:
    """The macros, functions, types and variables of the headers that are no name of the implementation (`_x`)."""
    defined = {name for name in macros(language) if not name.startswith("_")}
    return defined | set(refused(language, candidates(language) - defined))


def write() -> None:
    words = set[str]()
    for language in languages():
        words |= taken(language)
    # What other machines' headers have stays: a list is made on one machine after another.
    words |= header_words.WORDS
    kept = sorted(word for word in words if not has_header_shape(word))
    text = textwrap.fill(" ".join(kept), 120, break_long_words=False, break_on_hyphens=False)
    Path(header_words.__file__).write_text(
        '"""Names that headers take and whose shape does not tell. Written by `python -m tests.backends.host.header_names`.\n\n'
        'Tested by `tests/backends/host/test_names.py`.\n"""\n\n'
        f'WORDS = frozenset(\n    """\n{text}\n""".split()\n)\n'
    )
    print(f"{len(kept)} words")


if __name__ == "__main__":
    write()
