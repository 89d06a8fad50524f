"""The C statements that print a message."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from staged.backends.host.messages import Printed, put_parts
from staged.code.expr import Name
from staged.code.printer import print_body
from staged.code.support.library import render
from staged.ir.types import bool_, f32, f64, i32
from staged.ops.formatting import format_value, parse_spec
from tests.formatting.c_driver import build

VALUES = [
    Printed(Name("epoch"), i32),
    Printed(Name("loss"), f32),
    Printed(Name("w"), f64, (2, 2)),
    Printed(Name("done"), bool_),
]
PARTS = ["epoch ", "", (0, "3d", ""), ': loss "', (1, ".4f", ""), '"? ', (1, "", ""), " ", (3, "", ""), "\n"]
PARTS += [(2, "", ""), "\n", (1, ">12", "r"), "é", (3, "d", ""), (0, parse_spec("+", "i"), ""), "\n"]


def test_statements_read_like_the_print() -> None:
    made = put_parts(PARTS[:5], VALUES)
    assert [line.strip() for line in print_body(made.body)] == [
        'ST_PUT(&text, "epoch ");',
        'st_put_integer(&text, "%3lld", epoch);',
        'ST_PUT(&text, ": loss \\"");',
        'st_put_real(&text, "%.4f", loss);',
    ]
    assert made.needs == ("text", "put_integer", "put_real")


def test_a_compiled_program_prints_what_python_prints(tmp_path: Path) -> None:
    made = put_parts(PARTS, VALUES)
    top, text = render(made.needs)
    lines = "\n".join(print_body(made.body))
    source = (
        "\n".join(top)
        + f"""
{text}
int main(void) {{
    static st_host program;
    st_host *host = &program;
    const int32_t epoch = 7;
    const float loss = 0.1f;
    const double w[] = {{1.0, 2.5, -1e-7, 1e30}};
    const bool done = true;
    st_text text;
    st_text_begin(&text, host);
{lines}
    st_text_end(&text);
    return 0;
}}
"""
    )
    program = build(tmp_path, source, "program", flags=())
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    w = np.array([[1.0, 2.5], [-1e-7, 1e30]])
    assert printed == (
        f'epoch {7:3d}: loss "{0.1:.4f}"? 0.1 True\n{format_value(w)}\n{"0.1":>12}é1+7\n'
    )  # fmt: skip


def test_a_message_without_a_host_keeps_what_fits(tmp_path: Path) -> None:
    top, text = render(["format_integer"])
    source = (
        "\n".join(top)
        + f"""
{text}
int main(void) {{
    st_text message;
    st_text_begin(&message, NULL);
    for (int64_t i = 0; i < 1000; ++i) {{
        st_put_i64(&message, i, st_plain);
        ST_PUT(&message, ",");
    }}
    st_text_end(&message);
    (void)printf("%s", st_text_message(&message));
    return 0;
}}
"""
    )
    program = build(tmp_path, source, "program", flags=())
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    assert printed == "".join(f"{i}," for i in range(1000))[:1023]
