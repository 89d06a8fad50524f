"""The C statements that print a message."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from staged.backends.host.messages import Message, Printed, message, put_message
from staged.code.expr import Name
from staged.code.printer import print_body
from staged.code.support.library import render
from staged.code.tree import CodeBuilder
from staged.ir.types import bool_, f32, f64, i32, u64
from staged.ops.formatting import format_value, parse_spec
from tests.formatting.c_driver import build

VALUES = [
    Printed(Name("epoch"), i32),
    Printed(Name("loss"), f32),
    Printed(Name("w"), f64, (2, 2)),
    Printed(Name("done"), bool_),
    Printed(Name("count"), u64),
]
PARTS = ["epoch ", "", (0, "3d", ""), ': loss "', (1, ".4f", ""), '"? ', (1, "", ""), " ", (3, "", ""), "\n"]
PARTS += [(2, "", ""), "\n", (1, ">12", "r"), "é", (3, "d", ""), (0, parse_spec("+", "i"), ""), (4, "", ""), "\n"]


def lines_of(made: Message) -> list[str]:
    code = CodeBuilder(list(made.declared))
    for function, arguments in made.pieces:
        code.do(function, "t", *arguments)
    return [line.removeprefix("    ") for line in print_body(code.body)]


def test_text_and_scalars_are_one_format() -> None:
    made = message([*PARTS[:5], " % ", (3, "", ""), (4, "d", "")], VALUES)
    assert [str(argument) for argument in made.format] == [
        '"epoch %3lld: loss \\"%.4f %% %s%llu"',
        "(long long)epoch",
        "loss",
        'done ? "True" : "False"',
        "(unsigned long long)count",
    ]
    assert not made.declared and not made.needs


def test_values_that_c_does_not_print_as_python_does_are_text() -> None:
    assert lines_of(message([(1, "", "r"), "\n"], VALUES)) == [
        "char text[ST_FORMATTED];",
        'st_put_format(t, "%s\\n", st_f32_text(text, loss, st_plain));',
    ]
    made = message([(0, "d", ""), " ", (1, ".1f", ""), " ", (4, "x", "")], VALUES, takes_floats=False)
    assert " ".join(map(str.strip, lines_of(made))) == (
        'char text[2][ST_FORMATTED]; st_put_format(t, "%lld %s %s", (long long)epoch, '
        "st_f32_text(text[0], loss, (st_spec){.precision = 1, .type = 'f'}), "
        "st_u64_text(text[1], count, (st_spec){.precision = -1, .type = 'x'}));"
    )
    assert list(made.needs) == ["format_float", "format_integer"]


def test_characters_and_arrays_and_text_with_a_zero_byte_are_pieces_of_their_own() -> None:
    assert lines_of(message([(0, "c", "")], VALUES)) == [
        "char text[ST_FORMATTED];",
        "st_put(t, text, st_format_integer(text, epoch, (st_spec){.precision = -1, .type = 'c'}));",
    ]
    assert lines_of(message(["w\0", (2, "", ""), "; ", (0, "", "")], VALUES)) == [
        'st_put(t, "w\\000", 2);',
        "st_put_array(t, w, st_element_f64, 2, (const int64_t[]){2, 2}, st_plain);",
        'st_put_format(t, "; %lld", (long long)epoch);',
    ]


def test_a_compiled_program_prints_what_python_prints(tmp_path: Path) -> None:
    code = CodeBuilder()
    made = message(PARTS, VALUES)
    put_message(code, made, "st_text_begin", "host")
    top, text = render(("put_format", *made.needs))
    lines = "\n".join(print_body(code.body))
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
    const uint64_t count = 18446744073709551615u;
{lines}
    st_text_end(&message);
    return 0;
}}
"""
    )
    program = build(tmp_path, source, "program", flags=())
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    w = np.array([[1.0, 2.5], [-1e-7, 1e30]])
    assert printed == (
        f'epoch {7:3d}: loss "{0.1:.4f}"? 0.1 True\n{format_value(w)}\n{"0.1":>12}é1+718446744073709551615\n'
    )  # fmt: skip


def test_a_message_without_a_host_keeps_what_fits(tmp_path: Path) -> None:
    top, text = render(["put_format"])
    source = (
        "\n".join(top)
        + f"""
{text}
int main(void) {{
    st_text message;
    st_text_begin(&message, NULL);
    for (int64_t i = 0; i < 1000; ++i) {{
        st_put_format(&message, "%lld,", (long long)i);
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
