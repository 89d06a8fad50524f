"""A function with many arguments and several calls receives them in a struct whose fields the calls name."""

from __future__ import annotations

from staged.backends.host.argument_structs import MOST, with_argument_structs
from staged.backends.host.outlining import Outlined
from staged.code.expr import Call, Literal, Name, Variable, call
from staged.code.printer import print_body
from staged.code.tree import Do
from staged.code.types import INDEX, CType
from staged.code.writer import Names, Writer

M = Variable("m", CType("const Buffers *", is_pointer=True))
POINTER = CType("float *", is_pointer=True)


def scaled(count: int) -> tuple[Outlined, Names]:
    names = Names()
    parameters = [M, Variable(names.fresh("x"), POINTER), *(Variable(names.fresh("size"), INDEX) for _ in range(count - 2))]
    body = Do(Call("scale", tuple(parameters))), Do(call("clear", parameters[1]))
    return Outlined("scale_layer", "", tuple(parameters), body, False, None), names


def program(count: int, calls: int) -> tuple[str, list[str]]:
    function, names = scaled(count)
    numbers = tuple(Literal(str(number)) for number in range(count - 2))
    rest = tuple(Do(Call("scale_layer", (M, Name(f"m->x{number}"), *numbers))) for number in range(calls))
    (made,), rest = with_argument_structs([function], rest, Names().fresh, names)
    w = Writer()
    made.write(w, names)
    return str(w), print_body(rest)


def test_calls_name_the_arguments() -> None:
    text, (first, *_) = program(MOST + 1, 2)
    head, _, function = text.partition("static void scale_layer(const Buffers *m, const ScaleLayer *p) {")
    assert head.startswith("typedef struct {\n    float *x;\n    int64_t size, size_10, ") and "} ScaleLayer;" in head
    assert "scale(m, p->x, p->size, p->size_2, " in function and "clear(p->x);" in function
    assert first.strip().startswith("scale_layer(m, &(ScaleLayer){.x = m->x0, .size = 0, .size_2 = 1, ")


def test_few_arguments_and_single_calls_have_no_struct() -> None:
    for count, calls in ((MOST, 2), (MOST + 1, 1)):
        text, (first, *_) = program(count, calls)
        assert "struct" not in text and first.strip().startswith("scale_layer(m, m->x0, 0, 1, ")
