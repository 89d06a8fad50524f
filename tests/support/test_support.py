"""The record of what is supported: it has every function, some of its rows are found again, and the page and the command say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cuda_emulator import Emulator
from docs import make_support
from staged.cli.commands import cli
from staged.cli.support import DTYPES, RECORD, Row, rows, text_of, words_of
from tests import opencl_device
from tests.fuzz.cells.public import public_names
from tests.rows import ROWS
from tests.support.measure import measured

SAMPLE = ("sort", "matmul", "floor_divide", "nn.Conv2d", "argmax", "fft.rfft")


def test_every_function_has_a_row() -> None:
    every = {*public_names(), *ROWS}
    assert every - set(rows()) == set(), "run `python -m tests.support --missing`"
    assert set(rows()) - every == set(), "run `python -m tests.support --missing`"


def test_rows_are_found_again(emulated_device: Emulator) -> None:
    opencl_device.require()
    kept = json.loads(RECORD.read_text())
    found = measured(SAMPLE)
    assert not found.faults
    for name in SAMPLE:
        assert found.rows[name].as_json() == kept[name], f"run `python -m tests.support {name}`"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_more_rows_are_found_again(part: int) -> None:
    names = sorted(rows())[part * 101 :: 37]
    found = measured(names, ["C"]).rows
    for name, row in rows().items():
        if name in names:
            assert {b: found[name].found.get(b, {}) for b in ("eager", "C")} == {b: row.found.get(b, {}) for b in ("eager", "C")}


def test_the_page_is_up_to_date() -> None:
    assert (Path(make_support.__file__).parent / "support.md").read_text() == make_support.page()


def test_a_row_comes_back_from_json() -> None:
    row = Row("f", {"eager": {"value": ["f32", "f64"], "reverse": ["f32", "f64"]}, "C": {"value": ["f32", "f64"]}}, {"vmap": "no"})
    again = Row.of_json("f", json.loads(json.dumps(row.as_json())))
    assert again.why == row.why
    assert [again.dtypes(b, "value") for b in ("eager", "C")] == [["f32", "f64"], ["f32", "f64"]]
    assert again.lacking() == ["C: reverse f32", "CUDA", "OpenCL"]


def test_dtypes_are_named_by_their_groups() -> None:
    every = list(DTYPES)
    assert words_of(every) == "all"
    assert words_of(every[1:]) == "numbers"
    assert words_of(["f64", "f32", "bf16", "f16"]) == "floats"
    assert words_of(dtype for dtype in every if dtype != "bool" and dtype != "u64") == "numbers, not u64"
    assert words_of(["f64"]) == "f64"
    assert words_of([]) == ""


def test_the_command_prints_a_row() -> None:
    found = CliRunner().invoke(cli, ["support", "bitwise_and"])
    assert found.exit_code == 0
    assert found.output.strip() == text_of(rows()["bitwise_and"])
    assert "value    integers" in found.output or "value    bool" in found.output
    wrong = CliRunner().invoke(cli, ["support", "bitwise_nand"])
    assert wrong.exit_code == 2
    assert "bitwise_and" in wrong.output
