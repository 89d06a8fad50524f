"""Exported C99 on an emulated ARM Cortex-M: `make embedded-check`, and what its tests on the host share with it.

Needs Debian's gcc-arm-none-eabi, libnewlib-arm-none-eabi and qemu-system-arm. Where these are not installed it says so, and
checks nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from benchmarks.call_rows import control_data, control_parameters
from benchmarks.frameworks.calls_ours import control
from examples.mnist.models import CNN
from staged.call.program import Program

FLAGS = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O2", "-fno-tree-vectorize"]
CORTEX_M3 = ["-mcpu=cortex-m3", "-mthumb"]
TOOLS = {"arm-none-eabi-gcc": "gcc-arm-none-eabi, libnewlib-arm-none-eabi", "qemu-system-arm": "qemu-system-arm"}

# The board has 4 MiB at 0, where qemu puts all that is loaded. Semihosting: 4 writes text, 0x18 ends with success.
STARTUP = """\
int main(void);

static void ask(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

void put(const char *text) {
    ask(4, text);
}

void start(void) {
    (void)main();
    ask(0x18, (const void *)0x20026);
    for (;;) {
    }
}

__attribute__((section(".vectors"), used)) const void *const vectors[2] = {(void *)0x00400000, (void *)start};
"""
ON_HOST = """\
#include <stdio.h>

void put(const char *text);
void put(const char *text) {
    fputs(text, stdout);
}
"""


@dataclass(frozen=True)
class Case:
    """A program with f32 results, the values of its parameters by label, and what it gives on the host."""

    program: Program
    values: Mapping[str, Any]
    expected: Any


def inference() -> Case:
    """Scores of a digit by the example's network."""
    model = CNN()
    image = np.random.default_rng(3).standard_normal((1, 1, 28, 28)).astype(np.float32)

    @st.function
    def scores(x: Any) -> Any:
        return model(x)

    values = {name: np.asarray(parameter) for name, parameter in model.named_parameters()}
    return Case(scores.stage(image), {"x": image, **values}, np.asarray(scores(image)))


def controller() -> Case:
    """The cost of a controller's next steps, from the benchmarks."""
    function, calls = control(None, control_data())  # type: ignore[arg-type]
    (state,) = calls[0]
    values = {f"w_{name}": array for name, array in control_parameters().items()}
    return Case(function.stage(state), {"x": state, **values}, np.asarray(function(state)))


CASES = {"inference": inference, "controller": controller}


def write_folder(case: Case, folder: Path, put: str) -> list[str]:
    """The exported program with a `main` that writes the bits of its results by `put`; returns the C files."""
    case.program.export(folder, target="c99")
    name = case.program.name
    lines = [f'#include "{name}.h"', "", "void put(const char *text);", "", f"{name.upper()}_STATIC_ARENA(arena);"]
    lines += ["static st_host host;", f"static {name}_args args;"]
    given, results = [], []
    for number, parameter in enumerate(case.program._artifact.parameters):
        assert parameter.dtype == "f32" and not parameter.scalar
        size = max(1, int(np.prod(parameter.shape)))
        items = "0"
        if parameter.role == "output":
            results.append((f"array_{number}", size))
        else:
            array = case.values[parameter.label].reshape(-1)
            assert array.size == size
            items = ", ".join(float(item).hex() + "f" for item in array)
        lines.append(f"static float array_{number}[{size}] = {{{items}}};")
        given.append(f"    args.{parameter.place} = array_{number};")
    lines += ["", "static void put_bits(const unsigned char *bytes) {", "    int i;", "    char text[10];"]
    lines += ['    for (i = 0; i < 8; ++i) {', '        text[i] = "0123456789abcdef"[bytes[i / 2] >> (i % 2 ? 0 : 4) & 15];']
    lines += ["    }", "    text[8] = '\\n';", "    text[9] = 0;", "    put(text);", "}", ""]
    lines += ["int main(void) {", "    int i;", *given, f"    if ({name}(&args, arena, &host) != ST_OK) {{"]
    lines += ["        put(host.message);", "        return 1;", "    }"]
    for array, size in results:
        lines.append(f"    for (i = 0; i < {size}; ++i) {{")
        lines += [f"        put_bits((const unsigned char *)&{array}[i]);", "    }"]
    lines += ["    return 0;", "}", ""]
    (folder / "main.c").write_text("\n".join(lines))
    (folder / "put.c").write_text(put)
    return ["main.c", *(path.name for path in (folder / f"{name}.c", folder / f"{name}_data.c") if path.exists())]


def numbers(text: str) -> np.ndarray[Any, Any]:
    """The results that such a program has written, on a little-endian machine; emulators write more than these."""
    return np.frombuffer(bytes.fromhex("".join(re.findall("^[0-9a-f]{8}$", text, re.MULTILINE))), "<f4")


def run(*words: str, folder: Path) -> str:
    """The output of a command, its errors included."""
    given = subprocess.DEVNULL
    done = subprocess.run(words, cwd=folder, stdin=given, text=True, capture_output=True, timeout=300, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def build(case: Case, folder: Path, gcc: Sequence[str], put: str, link: Sequence[str] = ()) -> None:
    """Write the folder of a program, and build `program` there."""
    sources = write_folder(case, folder, put)
    run(*gcc, *FLAGS, "-c", *sources, folder=folder)
    run(*gcc, "-O1", "-c", "put.c", folder=folder)  # a board's is no ISO C
    objects = [source.replace(".c", ".o") for source in (*sources, "put.c")]
    run(*gcc, *objects, *link, "-lm", "-o", "program", folder=folder)


def on_host(case: Case, folder: Path) -> np.ndarray[Any, Any]:
    """The results of a program as this machine's compiler builds it."""
    build(case, folder, ["gcc"], ON_HOST)
    return numbers(run("./program", folder=folder))


def on_cortex_m(case: Case, folder: Path) -> np.ndarray[Any, Any]:
    """The results of a program on the emulated board."""
    link = ("--specs=nosys.specs", "-nostartfiles", "-Wl,--section-start=.vectors=0", "-Wl,--entry=start")
    build(case, folder, ["arm-none-eabi-gcc", *CORTEX_M3], STARTUP, link)
    board = ("-M", "mps2-an385", "-nographic", "-semihosting-config", "enable=on,target=native")
    return numbers(run("qemu-system-arm", *board, "-kernel", "program", folder=folder))


def missing() -> list[str]:
    """The packages of tools that are not installed."""
    return [package for tool, package in TOOLS.items() if shutil.which(tool) is None]


def main() -> None:
    if missing():
        print(f"skipped, nothing was checked: not installed: {', '.join(missing())}")
        return
    for name, make in CASES.items():
        case = make()
        with tempfile.TemporaryDirectory() as folder:
            np.testing.assert_allclose(on_cortex_m(case, Path(folder)), case.expected.reshape(-1), rtol=2e-5, atol=1e-6)
        print(f"{name}: the same on an ARM Cortex-M3")


if __name__ == "__main__":
    sys.exit(main())
