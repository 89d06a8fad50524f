"""Exported folders, built under the sanitizers and run with the files that are in them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from staged.backends.host.standalone.arrays import flag_names, is_written
from staged.call.program import Program
from staged.ir.types import DTYPES

SANITIZED = "-std=c11 -O0 -g -Wall -Wextra -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
TIMES = """
#define main once
#include "NAME_example.c"
#undef main
int main(int argc, char **argv) {
    for (int i = 0; i < 100; ++i) {
        const int status = once(argc, argv);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}
"""
"""A program that creates working memory, calls a program and frees all of it, 100 times."""


def compile_c(folder: Path, *words: str, flags: str = SANITIZED) -> None:
    """Compile files in a folder; raises AssertionError with the compiler's messages."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = ["gcc", *flags.split(), *words, "-lm", "-pthread"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def build(name: str, folder: Path, times: bool = True) -> None:
    """Build the program `name` of a folder, and `times`, which calls it 100 times."""
    texts = [file.name for file in folder.glob(f"{name}*.c") if not file.name.endswith("_example.c")]
    (folder / "times.c").write_text(TIMES.replace("NAME", name))
    compile_c(folder, "-c", *texts, "main.c", *(["times.c"] if times else []))
    objects = [text.replace(".c", ".o") for text in texts]
    compile_c(folder, "main.o", *objects, "-o", f"{name}.run")
    if times:
        compile_c(folder, "times.o", *objects, "-o", "times.run")


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program of a folder from another folder, with leak detection."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    environment["ASAN_OPTIONS"] = "detect_leaks=1"
    command = [str(folder / program), *words]
    return subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, env=environment)


def flags_of(program: Program, folder: Path) -> list[str]:
    """The flags with the arguments that a program was staged for; arrays are written to the folder."""
    words = []
    for number, argument in enumerate(program._traced.arguments):
        value = argument.value
        if argument.type.shape:
            np.save(folder / f"argument{number}.npy", value)
            value = folder / f"argument{number}.npy"
        words.append(f"--{argument.path}={value}")
    return words


def run_exported(program: Program, folder: Path) -> Any:
    """Export a program, build it, and run it on the arguments that it was staged for.

    Returns the results in the function's tree; the Variables hold the values that the run has written.
    """
    artifact = program._artifact
    program.export(folder, target="portable")
    build(artifact.name, folder, times=False)
    done = run(folder, f"{artifact.name}.run", *flags_of(program, folder), "--out", str(folder))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    names = flag_names(artifact)

    def written(place: str, dtype: str) -> Any:
        found = np.load(folder / f"{names[place]}.npy")
        return found if found.dtype.kind != "V" else found.view(DTYPES[dtype].numpy)

    outer = [reference.name for reference in program._traced.function.variables if reference.outer]
    variables = dict(zip(outer, program._traced.variables, strict=True))
    outputs = []
    for parameter in filter(is_written, artifact.parameters):
        if parameter.role == "output":
            outputs.append(written(parameter.place, parameter.dtype))
        elif not parameter.part:
            variables[parameter.label].value = written(parameter.place, parameter.dtype)
    return program._traced.rebuild(outputs)
