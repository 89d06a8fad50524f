"""The proof that a generated program keeps its promises: it is exported, built, and run under a counting allocator."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

STRICT = "-std=c11 -O2 -ffp-contract=off -Wall -Wextra -Wconversion -Werror"

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static long calls;
void *malloc(size_t n) {
    static void *(*real)(size_t);
    if (!real) real = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    ++calls;
    return real(n);
}
void *realloc(void *p, size_t n) {
    static void *(*real)(void *, size_t);
    if (!real) real = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    ++calls;
    return real(p, n);
}
void *aligned_alloc(size_t a, size_t n) {
    static void *(*real)(size_t, size_t);
    if (!real) real = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "aligned_alloc");
    ++calls;
    return real(a, n);
}
__attribute__((destructor)) static void report(void) {
    char text[64];
    int length = snprintf(text, sizeof text, "allocations %ld\n", calls);
    (void)!write(2, text, (size_t)length);
}
"""


@dataclass(frozen=True)
class Run:
    """The output of a run, its number of allocations, and its largest resident memory in bytes."""

    output: str
    allocations: int
    resident: int


def build(folder: Path, flags: str = STRICT) -> None:
    """Compile an exported program with `flags`, and the allocator that counts."""
    subprocess.run(["make", "-s", "-B", "CC=gcc", f"CFLAGS={flags}"], cwd=folder, check=True)
    (folder / "count.c").write_text(COUNTER)
    subprocess.run(["gcc", "-shared", "-fPIC", "count.c", "-o", "count.so", "-ldl"], cwd=folder, check=True)


def command(folder: Path, name: str, arrays: Mapping[str, np.ndarray], words: Sequence[str]) -> list[str]:
    """The words that run the program `name` in its folder, on arrays that are put there and on further options."""
    out = [f"./{name}", *words]
    for key, array in arrays.items():
        np.save(folder / f"{key}.npy", array)
        out += [f"--{key}", f"{key}.npy"]
    return out


def run(folder: Path, name: str, arrays: Mapping[str, np.ndarray], words: Sequence[str]) -> Run:
    """Run the built program `name` on arrays and further options, counting."""
    line = command(folder, name, arrays, words)
    with (folder / "stdout").open("w+") as out, (folder / "stderr").open("w+") as err:
        environment = {**os.environ, "LD_PRELOAD": str(folder / "count.so")}
        process = subprocess.Popen(line, cwd=folder, stdout=out, stderr=err, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        printed, complained = out.read(), err.read()
    assert process.returncode == 0, complained
    found = re.search(r"allocations (\d+)", complained)
    assert found is not None, complained
    return Run(printed, int(found[1]), usage.ru_maxrss * 1024)
