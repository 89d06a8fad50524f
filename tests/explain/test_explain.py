"""`program.explain()`: every stage of a program's way is there, and why kernels are apart is said of the right kernels."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^## (.*)\n\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def explained(function: Callable[..., Any], *args: Any) -> dict[str, str]:
    return sections(st.function(function, target="portable").stage(*args).explain())


def test_every_stage_is_there_in_order() -> None:
    def step(x: Any, w: Any) -> Any:
        return st.value_and_grad(lambda w: st.mean(st.tanh(x @ w) ** 2))(w)

    found = explained(step, floats(64, 20), floats(20, 10))
    names = list(found)
    assert names[:2] == ["`step`", "Traced"]
    assert names[-4:] == ["Passes that changed nothing", "Kernels", "Buffers", "Transfers"]
    assert "By the back end native, for portable." in found["`step`"]
    assert "vjp(" in found["Traced"] and "vjp(" not in found["After `fulfil transforms`"]
    assert "contraction(" in found["After `fuse`"] and "nest=" not in found["After `fuse`"]
    assert "place" in found["Passes that changed nothing"] and "After `place`" not in names
    assert "vectorise" in found["Kernels"] and "for row < 64:" in found["Kernels"]
    assert "memory of `step`" in found["Buffers"] and found["Transfers"] == "none: all of it runs on the host\n"


def test_a_region_lists_its_copies_and_how_its_kernels_are_launched() -> None:
    def step(x: Any) -> Any:
        with st.with_backend(st.GPU, x):
            y = st.sum(st.exp(x), axis=1)
        return y

    found = explained(step, floats(64, 20))
    assert "By the back end cublas_cudnn" in found["`step`"]
    assert "launched on gpu: 64 items" in found["Kernels"]
    assert re.search(r"x: cpu -> gpu, 5,120 bytes, input", found["Transfers"])


REASONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], str]] = {
    "two products": (lambda x: (x @ x) @ x, (32, 32), "each is a product or a convolution"),
    "a reduction behind a product": (lambda x: st.sum(x @ x, axis=0), (32, 32), "takes along only elementwise ops"),
    "work before a product": (lambda x: st.exp(x) @ x, (32, 32), "takes along what uses its result"),
    "another order of the elements": (lambda x: st.sum(st.exp(x) + x, axis=0) + st.sum(st.exp(x), axis=1), (32, 32), "loops"),
    "in a branch": (lambda x: st.exp(y) if st.sum(y := st.exp(x)) > 0 else y, (300,), "different blocks"),
}


@pytest.mark.parametrize("case", REASONS)
def test_why_two_kernels_are_apart(case: str) -> None:
    function, shape, words = REASONS[case]

    def program(x: Any) -> Any:
        return function(x)

    apart = re.findall(r"^apart from .*$", explained(program, floats(*shape))["Kernels"], flags=re.MULTILINE)
    assert any(words in line for line in apart), apart


def test_what_could_be_one_kernel_is_one() -> None:
    found = explained(lambda x: st.sum(st.exp(x) * 2.0 + x, axis=1), floats(32, 32))
    assert "apart from" not in found["Kernels"] and found["Kernels"].count("###") == 1
