"""The bar that a program draws: the layout of the Python one, nothing where the output is a file."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from staged.backends.host.progress import emit_progress
from staged.call.progress_bar import WIDTH, progress_line
from staged.code.expr import Cast, Infix, Literal, Name, Variable
from staged.code.printer import print_body
from staged.code.support.library import render
from staged.code.tree import CodeBuilder, Declare
from staged.code.types import INDEX, scalar
from staged.code.writer import c_string
from staged.ir.nodes import IO, Op, Value
from staged.ir.types import TensorType, f32, i64
from tests.formatting.c_driver import build

CASES = [
    ("", 0, 10, 0.0, ""),
    ("epoch 1", 3, 7, 12.5, "loss 0.25"),
    ("epoch 1", 7, 7, 3723.9, ""),
    ("é", 420, 1000, 61.0, "loss 1e-05"),
    ("no total", 12345, None, 599.999, ""),
    ("empty", 0, 0, 0.25, ""),
    ("fast", 999_999, 1_000_000, 0.5, ""),
    ("slow", 1, 3, 100.0, ""),
]


def run(tmp_path: Path, body: str) -> str:
    top, text = render(["progress", "print"])
    source = "\n".join(top) + f"\n{text}\nint main(void) {{\n{body}\n    return 0;\n}}\n"
    program = build(tmp_path, source, "program", flags=())
    return subprocess.run([str(program)], capture_output=True, check=True, timeout=300).stdout.decode()


def test_layout_is_the_same_in_c_and_python(tmp_path: Path) -> None:
    body = "    st_host host = {0};\n    st_text text;\n    st_text_begin(&text, &host);\n"
    for label, done, total, seconds, values in CASES:
        body += f"""    {{
        const st_progress bar = {{.label = {c_string(label)}, .values = {c_string(values)}, .done = {done},
                                 .total = {-1 if total is None else total}}};
        st_put_progress(&text, &bar, {seconds!r});
        st_put(&text, "\\n", 1);
    }}
"""
    assert run(tmp_path, body + "    st_text_end(&text);\n").splitlines() == [progress_line(*case) for case in CASES]


def emitted(live: int, *, leave: bool, turns: int = 3, prints: bool = False) -> str:
    """A loop with a bar, through the emitter."""
    total, done, loss, epoch = (
        Value(TensorType(i64)),
        Value(TensorType(i64)),
        Value(TensorType(f32)),
        Value(TensorType(i64)),
    )
    names = {total: Name("total"), done: Name("done"), loss: Name("loss"), epoch: Name("epoch")}
    text = SimpleNamespace(operand=names.__getitem__, extent=str)
    code = CodeBuilder()
    parts = {"id": 1, "parts": ("epoch ", (0, "", ""))}
    needs = emit_progress(code, Op("progress_start", [total, epoch], [], attrs=parts, effects=IO), text)
    assert "progress" in needs
    with code.loop(Variable("done", INDEX), Literal("1"), Infix("+", Name("total"), Literal("1"))):
        code.add(Declare(Variable("loss", scalar(f32)), Infix("*", Literal("0.5f"), Cast("float", Name("done")))))
        if prints:
            code.do("st_print", "host", Literal(c_string("hello\n")))
        shown = {"id": 1, "parts": ("loss ", (0, ".3f", ""))}
        emit_progress(code, Op("progress_update", [done, loss], [], attrs=shown, effects=IO), text)
    emit_progress(code, Op("progress_end", [], [], attrs={"id": 1, "leave": leave}, effects=IO), text)
    written = "\n".join(print_body(code.body))
    return f"""
    static st_host program;
    st_host *host = &program;
    host->live = {live};
    const int64_t total = {turns}, epoch = 4;
{written}
"""


def screen(text: str) -> list[str]:
    """The text that a terminal shows."""
    lines = []
    for line in text.split("\n"):
        cells: list[str] = []
        for piece in line.split("\r"):
            cells[: len(piece)] = piece
        lines.append("".join(cells).rstrip())
    return lines


def test_quiet_where_the_output_is_a_file(tmp_path: Path) -> None:
    assert run(tmp_path, emitted(0, leave=True)) == ""


def test_bar_goes_when_the_loop_ends(tmp_path: Path) -> None:
    text = run(tmp_path, emitted(1, leave=False))
    assert "epoch 4   0% [....................] 0/3" in text and "epoch 4 100%" in text
    assert screen(text) == [""]


def test_bar_stays_when_asked(tmp_path: Path) -> None:
    first, *rest = screen(run(tmp_path, emitted(1, leave=True)))
    assert first.startswith("epoch 4 100% [####################] 3/3 0:00<0:00 ") and first.endswith("/s loss 1.500")
    assert rest == [""] and len(first) <= WIDTH


def test_prints_push_the_bar_away(tmp_path: Path) -> None:
    text = run(tmp_path, emitted(1, leave=False, prints=True))
    assert screen(text) == ["hello", "hello", "hello", ""]


def test_drawn_rarely(tmp_path: Path) -> None:
    text = run(tmp_path, emitted(1, leave=False, turns=100_000))
    assert 2 <= text.count("epoch 4") < 20


@pytest.mark.parametrize("label", ["x" * 200, "é" * 100])
def test_long_labels_are_cut(tmp_path: Path, label: str) -> None:
    body = f"""
    st_host host = {{.live = 1}};
    st_progress bar = {{0}};
    st_progress_start(&host, &bar, 10, "%s", {c_string(label)});
"""
    shown = run(tmp_path, body)
    assert len(shown) == 1 + WIDTH and shown[1:].startswith(label[:30])
