"""Every primitive can be written by every back end: where a row is missing, the failure names the file to write it in."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import staged as st
from staged.ir.declaration import DECLARED
from staged.ops.context import bind_all
from staged.ops.declare_elementwise import elementwise
from staged.ops.primitive import PRIMITIVES, Primitive, Sample, primitive
from tests.ops.cases import operands_of

BACK_ENDS = ("native", "cublas_cudnn", "opencl")
REFUSING = ("opencl",)
"""Back ends that refuse some ops for what a device lacks, with other words than a row that is missing."""


def written(one: Primitive, back_end: str) -> list[str]:
    """The refusals of a back end for the samples of a primitive that it cannot write: one of each dtype, and each with one."""
    region = nullcontext() if back_end == "native" else st.with_backend(st.GPU, using=back_end)
    refused = {}
    for number, sample in enumerate(one.samples):
        for dtype in sample.dtypes if number == 0 and sample.operands else sample.dtypes[:1]:

            @st.function
            def program(operands, attrs=sample.attrs):
                with region:
                    return bind_all(one, operands, **attrs)

            try:
                assert program.stage(tuple(operands_of(sample, dtype))).source
            except st.UnsupportedError as error:
                refused[f"{error.message}: {error.hint}"] = None
    return list(refused)


@pytest.mark.parametrize("back_end", BACK_ENDS)
@pytest.mark.parametrize("name", [name for name in PRIMITIVES if name != "constant"])
def test_every_back_end_can_write_every_primitive(name: str, back_end: str) -> None:
    missing = written(PRIMITIVES[name], back_end)
    if back_end in REFUSING:
        missing = [words for words in missing if " row " in words]
    assert not missing, f"back end {back_end}, `{name}`: {'; '.join(missing)}"


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_a_primitive_without_a_row_is_told_where_to_write_it(back_end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staged.ops.primitive.PRIMITIVES", dict(PRIMITIVES))
    one = primitive(
        name="cube_root_for_test",
        kind="elementwise",
        infer=elementwise("cube_root_for_test", ("f",)),
        reference=np.cbrt,
        samples=[Sample(((2, 3),)), Sample(((),))],
    )
    try:
        (f32, f64) = written(one, back_end)
    finally:
        del DECLARED[one.name]
    assert "has a way to write `cube_root_for_test` of f32: add a row" in f32
    assert "of f64" in f64 and "scalars.py" in f32 and "support/math.py" in f32
