"""Short names of locals (`staged/code/scopes.py`)."""

from __future__ import annotations

from collections.abc import Callable

from staged.code.expr import Infix, Literal, Name, Prefix, Variable, call
from staged.code.printer import print_body
from staged.code.scopes import with_short_names
from staged.code.tree import Assign, Block, CodeBuilder, Declare, Do
from staged.code.types import INDEX, Space, pointer, word
from staged.code.writer import Names

REAL = word("float")


def shortened(make: Callable[[CodeBuilder, Names], list[Variable] | None]) -> tuple[list[str], list[str]]:
    """The lines of a function whose file has a function `h`, and its parameters."""
    file = Names()
    file.fresh("h")
    names, code = Names(file), CodeBuilder()
    parameters = make(code, names) or []
    given, body = with_short_names(parameters, code.body, names)
    return [line.strip() for line in print_body(body)], [each.text for each in given]


def loop(code: CodeBuilder, names: Names, hint: str) -> Variable:
    """A loop that uses its index."""
    index = Variable(names.fresh(hint), INDEX)
    with code.loop(index, Literal("0"), Literal("8")):
        code.add(Do(call("use", index)))
    return index


def test_loops_beside_one_another_have_one_name() -> None:
    def make(code: CodeBuilder, names: Names) -> None:
        loop(code, names, "layer")
        loop(code, names, "layer")

    lines, _ = shortened(make)
    assert lines.count("for (int64_t layer = 0; layer < 8; ++layer) {") == 2 and lines.count("use(layer);") == 2


def test_an_inner_loop_shadows_no_outer_one() -> None:
    def make(code: CodeBuilder, names: Names) -> None:
        loop(code, names, "layer")
        outer = Variable(names.fresh("layer"), INDEX)
        with code.loop(outer, Literal("0"), Literal("8")):
            inner = loop(code, names, "layer")
            code.add(Do(call("use", Infix("+", outer, Literal("1")))))
            assert (outer.text, inner.text) == ("layer_2", "layer_3")

    lines, _ = shortened(make)
    assert lines[3:8] == [
        "for (int64_t layer = 0; layer < 8; ++layer) {",
        "for (int64_t layer_2 = 0; layer_2 < 8; ++layer_2) {",
        "use(layer_2);",
        "}",
        "use(layer + 1);",
    ]


def test_a_variable_that_is_declared_behind_a_block_is_apart_from_those_inside() -> None:
    def make(code: CodeBuilder, names: Names) -> None:
        with code.block():
            names.fresh("x")  # a local that was unused
            code.add(Declare(Variable(names.fresh("x"), REAL), Literal("1.0f"), is_kept=True))
        code.add(Declare(Variable(names.fresh("x"), REAL), Literal("2.0f"), is_kept=True))

    lines, _ = shortened(make)
    assert "const float x = 2.0f;" in lines and "const float x_2 = 1.0f;" in lines


def test_names_of_the_user_and_of_the_file_are_free_of_others() -> None:
    def make(code: CodeBuilder, names: Names) -> None:
        with code.block():
            code.add(Declare(Variable("h_2", REAL), Literal("0.0f"), is_kept=True))  # the user's own name
        names.used.add("h_2")
        code.add(Declare(Variable(names.fresh("h"), REAL), Literal("1.0f"), is_kept=True))
        names.fresh("t")
        code.add(Declare(Variable(names.fresh("t"), REAL), Infix("+", Literal("t * 2.0f"), Name("w")), is_kept=True))

    lines, _ = shortened(make)
    assert "const float h_3 = 1.0f;" in lines  # `h` is a function of the file, `h_2` inside of the function
    assert "const float t_2 = t * 2.0f + w;" in lines  # a text that mentions `t`


def test_a_name_of_two_blocks_and_one_without_a_hint_stay() -> None:
    def make(code: CodeBuilder, names: Names) -> None:
        names.fresh("text"), names.fresh("text")
        for _ in range(2):
            code.add(Block((Declare(Variable("text_2", REAL), Literal("0.0f"), is_kept=True),)))
        code.add(Declare(Variable("progress_1", REAL), Literal("0.0f"), is_kept=True))

    lines, _ = shortened(make)
    assert lines.count("const float text_2 = 0.0f;") == 2 and "const float progress_1 = 0.0f;" in lines


def test_parameters_come_first() -> None:
    def make(code: CodeBuilder, names: Names) -> list[Variable]:
        names.fresh("lr")
        given = Variable(names.fresh("lr"), pointer(REAL, Space.GLOBAL))
        local = Variable(names.fresh("lr"), REAL)
        code.add(Declare(local, Literal("0.5f")))
        code.add(Assign(Prefix("*", given), local))
        code.add(Do(call("use", given)))
        return [given]

    lines, parameters = shortened(make)
    assert parameters == ["lr"] and "const float lr_2 = 0.5f;" in lines and lines[-2:] == ["*lr = lr_2;", "use(lr);"]


def test_a_parameter_has_no_name_of_a_later_one() -> None:
    def make(code: CodeBuilder, names: Names) -> list[Variable]:
        last = Variable(names.fresh("count"), INDEX)
        first = Variable(names.fresh("count"), INDEX)
        code.add(Do(call("use", first, last)))
        return [first, last]

    assert shortened(make) == (["use(count_2, count);"], ["count_2", "count"])


def test_a_local_gives_way_to_a_parameter_with_its_name() -> None:
    def make(code: CodeBuilder, names: Names) -> list[Variable]:
        names.fresh("s")
        local = Variable(names.fresh("s"), INDEX)
        parameter = Variable(names.fresh("s"), INDEX)
        names.outer.used.add("s")
        code.add(Declare(local, Literal("0")))
        code.add(Do(call("use", local, parameter)))
        return [parameter]

    assert shortened(make) == (["const int64_t s_3 = 0;", "use(s_3, s_2);"], ["s_2"])
