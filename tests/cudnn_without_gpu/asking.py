"""Compile a generated program with the oracle, and let it open the device that a description describes.

The program's text is not changed. The linker gives its calls of the graph interface and of convolutions to `oracle.c`, and its
other calls of CUDA to functions that succeed and do nothing. Descriptors of the legacy interface are cuDNN's own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact
from staged.runtime.compiler import find_compiler
from staged.runtime.cuda import toolkit
from staged.runtime.cuda.building import program_texts
from tests import cuda_wheels

HERE = Path(__file__).parent
_CUDA = re.compile(r"^(cuda|cublas|cudnn|cusolver)")
_REAL = re.compile(
    r"^cudnn(Backend\w*|GetVersion|GetErrorString|GetLastErrorString|"
    r"(Create|Set|Get|Destroy)(Tensor|Filter|Convolution|Activation|Pooling)\w*)$"
)
"""The calls that cuDNN itself answers: they need no device."""
_OPENS = re.compile(r"^static int (open_\w+)\((\w+) \*\w+, st_host \*host\) \{$", re.MULTILINE)


class OracleError(Exception):
    """A program could not be compiled with the oracle, or ended otherwise than it should."""


@dataclass(frozen=True)
class Libraries:
    """The places of NVIDIA's headers and libraries. The driver may be a stand-in."""

    headers: tuple[Path, ...]
    cudnn: Path
    cublas_lt: Path
    folders: tuple[Path, ...]
    """The folders in which the libraries find one another: cuDNN's and NVRTC's."""
    without_driver: bool

    @staticmethod
    @cache
    def of_wheels() -> Libraries:
        """Those of `tests/cuda_wheels.py`, with a stand-in for the driver."""
        nvidia = cuda_wheels.nvidia()
        cuda, cudnn = nvidia / "cu13", nvidia / "cudnn"
        files = cudnn / "lib" / "libcudnn.so.9", cuda / "lib" / "libcublasLt.so.13"
        headers = cuda / "include", cudnn / "include"
        return Libraries(headers, *files, (cudnn / "lib", cuda / "lib"), without_driver=True)

    @staticmethod
    def of_this_machine() -> Libraries:
        """Those that programs use here, with the machine's driver."""
        _, cudnn, cublas_lt, nvrtc = toolkit.load_libraries(("cudnn", "cublasLt", "nvrtc"))
        headers = tuple(toolkit.include_folders(("cudnn", "cublasLt")))
        return Libraries(headers, cudnn, cublas_lt, (cudnn.parent, nvrtc.parent, cublas_lt.parent), without_driver=False)

    def environment(self, folder: Path) -> dict[str, str]:
        """The environment in which the libraries find one another, and the driver or its stand-in."""
        folders = [*([stand_in_driver(folder)] if self.without_driver else []), *self.folders]
        return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(map(str, folders))}


def build(artifact: Artifact, folder: Path, libraries: Libraries) -> Path:
    """The oracle with this program in it, in a folder. Raises OracleError with the compiler's message."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in program_texts(artifact).items():
        (folder / path).write_text(text, encoding="utf-8")
    opens = _OPENS.findall(artifact.source)
    if not opens:
        raise OracleError(f"`{artifact.name}` has no function that opens a device")
    lines = [f'#include "{artifact.name}.cu"', f"const unsigned char {artifact.name}_image[1] = {{0}};"]
    lines += ["int opened(char *message, size_t length) {", "    static st_host host;"]
    for number, (function, device) in enumerate(opens):
        lines += [f"    static {device} device_{number};"]
        lines += [f"    if ({function}(&device_{number}, &host) != ST_OK) {{"]
        lines += ["        memcpy(message, host.message, length < sizeof host.message ? length : sizeof host.message);"]
        lines += ["        return host.error_kind;", "    }"]
    (folder / "program.c").write_text("\n".join([*lines, "    return 0;", "}", ""]), encoding="utf-8")
    command = find_compiler().command
    system = [word for header in libraries.headers for word in ("-isystem", str(header))]
    run_tool([*command, "-std=c11", "-O0", "-w", "-DHOST_ONLY", *system, "-c", "program.c", "-o", "program.o"], folder)
    oracle = HERE / "oracle.c"
    run_tool([*command, "-std=gnu11", "-O1", *system, "-c", str(oracle), "-o", "oracle.o"], folder)
    wrapped = sorted(re.findall(r"__wrap_(\w+)$", run_tool(["nm", "oracle.o"], folder), re.MULTILINE))
    needed = [name for name in re.findall(r" U (\w+)$", run_tool(["nm", "program.o"], folder), re.MULTILINE) if _CUDA.match(name)]
    idle = [name for name in needed if name not in wrapped and not _REAL.match(name)]
    (folder / "idle.c").write_text("".join(f"long {name}(void) {{ return 0; }}\n" for name in sorted(idle)))
    words = [*(f"-Wl,--wrap={name}" for name in wrapped), "-Wl,--allow-shlib-undefined", "-lm", "-ldl", "-pthread"]
    run_tool([*command, "-w", "-o", "asker", "program.o", "oracle.o", "idle.c", str(libraries.cudnn), *words], folder)
    return folder / "asker"


def ask(asker: Path, description: dict[str, Any], libraries: Libraries) -> list[dict[str, Any]]:
    """Ask cuDNN about the graphs of a program for the device of this description. Return the answers in the order of the graphs.

    The last element is the program's own end: {"opened": true}, or false with its message.
    Raises OracleError if the oracle itself fails.
    """
    folder = asker.parent
    path = folder / "device.json"
    path.write_text(json.dumps(description), encoding="utf-8")
    command = [str(asker), str(path), *([] if libraries.without_driver else ["--handle"])]
    done = subprocess.run(command, env=libraries.environment(folder), capture_output=True, text=True)
    if done.returncode not in (0, 4):
        raise OracleError(f"the oracle ended with status {done.returncode}: {done.stderr.strip()[-2000:]}")
    # A program may print notes of its own.
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"graph": ')]
    return [*answers, {"opened": done.returncode == 0, "message": done.stderr.strip() if done.returncode else ""}]


def stand_in_driver(folder: Path) -> Path:
    """A folder with the stand-in for `libcuda.so.1`."""
    place = folder / "driver"
    if not (place / "libcuda.so.1").exists():
        place.mkdir(exist_ok=True)
        command = [*find_compiler().command, "-std=c11", "-O1", "-shared", "-fPIC"]
        run_tool([*command, str(HERE / "driver.c"), "-o", str(place / "libcuda.so.1")], folder)
    return place


def run_tool(command: list[str], folder: Path) -> str:
    """Run a tool and return its output. Raises OracleError with its message."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise OracleError(f"{' '.join(command[:1])} failed: {done.stderr.strip()[-3000:]}")
    return done.stdout
