"""The words of NVIDIA's compiler and of the C compiler on a program with kernels, without a GPU.

Every such program that a test runs on the emulated device goes through `check_for_gpus` first (see `plugin.py`): NVRTC
compiles its kernels for two kinds of GPU, with nothing to say and without spills, and the C compiler its host part. NVIDIA's cuDNN
has plans for its graphs.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from functools import cache

from cuda_emulator import INCLUDE, source_texts
from staged.base.artifact import Artifact
from staged.errors import DependencyError
from staged.runtime.compiler import CompileFailure, find_compiler
from staged.runtime.cuda import nvrtc
from staged.runtime.cuda.building import build, program_texts
from tests.sampling import is_sampled

CAPABILITIES = ((9, 0), (8, 0))
"""Kinds of GPUs. For those after the first, some programs are compiled, by their digest; `make test-full` compiles all."""
ONE_IN = 4
HOST_WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


@cache
def why_no_nvrtc() -> str:
    """Why there is no NVRTC; empty where there is one."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        return "could not import 'cuda.bindings': the extra `cuda-check` has it"
    try:
        nvrtc._nvrtc()
    except DependencyError as error:
        return "; ".join(error.details)
    return ""


def check_for_gpus(artifact: Artifact, full: bool) -> None:
    """Fails unless the kernels and the host part of a program compile without messages; `full`: for all `CAPABILITIES`."""
    check_host_part(artifact)
    if not why_no_nvrtc():
        check_kernels(artifact, CAPABILITIES if full or is_sampled(artifact.source, ONE_IN) else CAPABILITIES[:1])
    check_graphs(artifact)


FEW = 40
"""Bytes of registers that the compiler may spill: it does so with most of a block's registers free, to have one more block
on a multiprocessor. A kernel with too many values at a time spills hundreds."""


def check_kernels(artifact: Artifact, capabilities: Sequence[nvrtc.Capability] = CAPABILITIES) -> None:
    """Fails unless NVRTC compiles the kernels without messages and with (almost) no spilled registers."""
    for capability in capabilities:
        kernels = nvrtc.compile_kernels(artifact, capability)
        assert not kernels.messages, f"NVRTC said of `{artifact.name}` for {kernels.architecture}:\n{kernels.messages}"
        spilling = [
            f"{use.name} ({use.spilled} bytes)"
            for use in kernels.uses
            if use.spilled > FEW + bytes_of_arrays(artifact.source, use.name)
        ]
        assert not spilling, (
            f"registers of `{artifact.name}` are spilled on {kernels.architecture}: {', '.join(spilling)}"
        )
        # A kernel of the user's text is declared before it, too.
        named = re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(', artifact.source)
        assert {use.name for use in kernels.uses} == set(named)


def bytes_of_arrays(source: str, kernel: str) -> int:
    """Bytes of the arrays that each thread of a kernel has. Unrolled loops make them registers, which may be spilled."""
    text = source.partition(f" {kernel}(")[2].partition("\n}\n")[0]
    sizes = re.findall(r"^    (float|double|int|long long) \w+\[(\d+)\];", text, re.MULTILINE)
    return sum(int(count) * (8 if type in ("double", "long long") else 4) for type, count in sizes)


def check_graphs(artifact: Artifact) -> None:
    """Fails unless NVIDIA's cuDNN has plans for the graphs of a program, or the program uses its alternative.

    Graphs in the report of `cudnn_without_gpu` are asked by a test there; the others are asked now.
    """
    from tests.cudnn_without_gpu import questions, report

    report.check_program(artifact, questions.questions_of(artifact.source))


def check_host_part(artifact: Artifact) -> None:
    """Fails unless the C compiler takes the host part as C11, without warnings."""
    compiler = find_compiler()
    flags = ("-std=c11", "-O0", *HOST_WARNINGS, "-DHOST_ONLY", "-c")
    headers = [text for path, text in sorted(source_texts().items()) if path.endswith(".h")]
    name = artifact.name
    try:
        build(
            name,
            f"{name}.o",
            program_texts(artifact),
            (*compiler.command, *flags, "-isystem", str(INCLUDE)),
            ("-x", "c", f"{name}.cu"),
            (*compiler.command, compiler.version, *flags, *headers),
        )
    except CompileFailure as failure:
        raise AssertionError(f"the host part of `{name}` is not C11 without warnings:\n{failure.words}") from None
