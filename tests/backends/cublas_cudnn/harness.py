"""Helpers of the back end's tests: a function is put into a GPU region, and its results are compared with eager mode's."""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import staged as st
from cuda_emulator import INCLUDE, RACES, Emulator, build
from staged import CPU, GPU, with_backend
from staged.runtime import cuda
from staged.runtime.cuda.devices import is_emulated
from staged.testing import compare_trees
from tests.listed_copies import check_copies


def settings(*words: str) -> Iterator[str]:
    """Set the emulated device to each of these in turn, and to its defaults at the end. A GPU has one setting."""
    if not is_emulated():
        yield ""
        return
    for each in words:
        cuda.emulator().configure(each)
        yield each
    cuda.emulator().configure()


def on_gpu(function: Callable[..., Any], **options: Any) -> Any:
    """`function`, staged, inside of a GPU region that names its arguments and has these options."""

    def inside(*args: Any) -> Any:
        with with_backend(GPU, *args, **options):
            result = function(*args)
        return result

    inside.__name__ = function.__name__
    return st.function(target="portable")(inside)


def in_groups(cases: Sequence[Any], size: int) -> list[Any]:
    """Small cases in groups that share a program: each C++ program costs 0.1 s, whatever is in it."""
    return [
        pytest.param(cases[at : at + size], id="-".join(case[0].__name__ for case in cases[at : at + size]))
        for at in range(0, len(cases), size)
    ]


def together(cases: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    """A staged function that calls the functions of some cases, and its argument: the arguments of each.

    Each case begins with a function and its arguments. Arguments and results have the names of the cases as keys, so a
    difference names its case.
    """
    named = {f"{case[0].__name__}_{number}": case[0] for number, case in enumerate(cases)}

    def calls(arguments: Any) -> Any:
        results = {}
        for name, function in named.items():
            results[name] = function(*arguments[name])
        return results

    given = {name: case[1] for name, case in zip(named, cases, strict=True)}
    return st.function(target="portable")(calls), given


def printed_and_copied_as_in_eager(
    staged: Any,
    arguments: Sequence[Any],
    copies: Sequence[int],
    modes: Sequence[str],
    device: Emulator,
    capsys: pytest.CaptureFixture[str],
    tolerance: float,
) -> None:
    """In each mode of the device a staged function gives and prints what eager mode does, and copies so often.

    `copies` are those to devices, to the host, and between devices. Every run draws the same random numbers.
    """
    st.seed(0)
    with st.eager():
        expected = staged(*arguments)
    printed = capsys.readouterr().out
    for number, words in enumerate(modes):
        device.configure(words)
        before = device.counts()
        st.seed(0)
        found = staged(*arguments)
        seen = device.counts() - before
        if number:  # the first call copies what stays
            check_copies(staged.stage(*arguments), seen)
        assert (seen.copies_to_device, seen.copies_to_host, seen.copies_between_devices) == tuple(copies)
        assert capsys.readouterr().out == printed
        compare_trees(found, expected, rtol=tolerance, atol=tolerance)


def nothing_is_left(device: Emulator, before: Any) -> None:
    """The device has no more descriptors, handles and memory than it had before, by its counts."""
    gc.collect()
    left = device.counts() - before
    assert (left.live_descriptors, left.live_handles, left.live_allocations) == (0, 0, 0)


def trains_as_on_the_host(
    train: Callable[[Any], tuple[Any, str]], device: Emulator, rtol: float, atol: float
) -> tuple[str, int]:
    """(the text, how many descriptors two programs made): `train(backend)` gives results, losses first, and its text.

    The results are those of the host in any order of work, the losses fall, and nothing stays alive on the device.
    """
    expected, _ = train(CPU)
    gc.collect()
    before = device.counts()
    for words in ("eager reverse", "lazy shuffled seed=5"):
        device.configure(words)
        found, text = train(GPU)
        compare_trees(found, expected, rtol=rtol, atol=atol)
    assert found[0][-1] < found[0][0]
    made = device.counts() - before
    nothing_is_left(device, before)
    return text, made.descriptors_created


def agrees_and_prints_as_in_eager(
    staged: Any, arguments: Sequence[Any], capsys: pytest.CaptureFixture[str], where: str = "results differ"
) -> None:
    """A staged function gives, and prints, what eager mode does."""
    found = staged(*arguments)
    printed = capsys.readouterr().out
    with st.eager():
        expected = staged(*arguments)
    assert printed == capsys.readouterr().out, where
    compare_trees(found, expected, rtol=2e-5, atol=2e-5, where=where)


def agrees_in_any_order(staged: Any, device: Emulator, tolerance: float, *arguments: Any) -> None:
    """A staged function gives what eager mode gives, with work done at once and with work done late and shuffled."""
    with st.eager():
        expected = staged(*arguments)
    for words in ("eager forward", "lazy shuffled seed=3"):
        device.configure(words)
        compare_trees(staged(*arguments), expected, rtol=tolerance, atol=tolerance)


# ---- races ----------------------------------------------------------------------------------------

DRIVER = """\
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
    static float x[{size}], result[{size}];
    for (int i = 0; i < {size}; ++i) {{
        x[i] = (float)(i % 7) - 3.0f;
    }}
    st_host host;
    memset(&host, 0, sizeof host);
    {name}_args args;
    memset(&args, 0, sizeof args);
    args.x = x;
    args.result = result;
    void *arena = aligned_alloc(64, {NAME}_ARENA_BYTES);
    memset(arena, 0, {NAME}_ARENA_BYTES);
    printf("status %d\\n", {name}(&args, arena, &host));
    {name}_release(arena);
    free(arena);
    return 0;
}}
"""


def run_with_race_detector(staged: Any, x: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a staged function of an f32 array `x`, whose result has as many elements, under the thread sanitizer."""
    library = build(RACES)
    compiler, _ = cuda.find_cxx()
    artifact = staged.stage(x)._artifact
    name = artifact.name
    (folder / f"{name}.cu").write_text(artifact.source)
    (folder / f"{name}.h").write_text(artifact.header)
    (folder / f"{name}_support.h").write_text(artifact.support)
    (folder / "main.cpp").write_text(DRIVER.format(name=name, NAME=name.upper(), size=x.size))
    flags = ["-std=c++17", "-O1", "-g1", "-rdynamic", f"-I{INCLUDE}", f"-I{folder}", "-fsanitize=thread", "-fPIC"]
    sources = ["-x", "c++", str(folder / f"{name}.cu"), str(folder / "main.cpp"), "-x", "none", str(library)]
    command = [*compiler, *flags, "-include", "cuda_runtime.h", *sources, f"-Wl,-rpath,{library.parent}", "-pthread"]
    built = subprocess.run([*command, "-o", str(folder / name)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return subprocess.run([str(folder / name)], capture_output=True, text=True, env=dict(os.environ), timeout=120)
