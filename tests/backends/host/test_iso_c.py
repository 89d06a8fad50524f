"""A nest without vectors is ISO C: nothing in the text of its kernel is an extension of a compiler's."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

import staged.library as ops
from staged.backends.cpu.nest.kernel import emit_kernel
from staged.code.support.library import snippets
from staged.ir.machine import X86_64_V4
from staged.ir.schedule import Schedule
from staged.ir.types import TensorType, f32, i64
from tests.kernels.harness import fused, kernels

FLAGS = "-std=c99 -pedantic -Wall -Wextra -Werror -Wno-unused-function -fsyntax-only".split()
ROWS, PLACES = TensorType(f32, (5, 70)), TensorType(i64, (9,))
EXTENSIONS = ("__attribute__", "__builtin", "#pragma", "vector")


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x: x * 2.0 + 1.0, (ROWS,)),
        (lambda x: ops.sum(x, axis=1), (ROWS,)),
        (lambda x: ops.sum(x, axis=0), (ROWS,)),
        (lambda x: ops.max(x * x, axis=1), (ROWS,)),
        (lambda x: ops.argmax(x, axis=1), (ROWS,)),
        (lambda x: ops.transpose(x), (ROWS,)),
        (lambda x, y: ops.where(x < y, x, 0.0), (ROWS, ROWS)),
    ],
)
def test_kernels_without_vectors_are_iso_c(function: Callable[..., Any], types: tuple[TensorType, ...]) -> None:
    texts = []
    for op in kernels(fused(function, *types)):
        op = op.replace(attrs={**op.attrs, "schedule": Schedule()})
        made = emit_kernel(op, "made", X86_64_V4, lambda where: 0)
        assert not any(word in made.text for word in EXTENSIONS), made.text
        assert not made.snippets & {name for name in snippets() if name.startswith(("vector", "select"))}
        texts.append(made.text)
    assert texts
    source = "#include <math.h>\n#include <stdbool.h>\n#include <stdint.h>\n" + "\n".join(texts)
    done = subprocess.run(["gcc", *FLAGS, "-xc", "-"], input=source, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr + source
