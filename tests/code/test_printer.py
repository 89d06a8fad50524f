"""Trees of code as text: each statement once, in each dialect that writes it differently."""

from __future__ import annotations

from dataclasses import replace

import pytest

from staged.code.dialect import C_AND_CPP, C, Dialect
from staged.code.expr import (
    Call,
    Cast,
    Expr,
    Field,
    Index,
    Infix,
    Items,
    Literal,
    Name,
    Prefix,
    Sizeof,
    Variable,
    Words,
)
from staged.code.printer import print_body, print_function
from staged.code.tree import (
    Assign,
    Barrier,
    Blank,
    Block,
    Comment,
    Constants,
    Declare,
    DeclareStruct,
    Do,
    For,
    ForAny,
    ForBits,
    Function,
    If,
    Jump,
    Label,
    Parameter,
    Statement,
    Unused,
    While,
)
from staged.code.types import INDEX, SHORT_INDEX, VOID, CType, Space, lanes, pointer, scalar, word
from staged.ir.types import f32

I = Variable("i", INDEX)  # noqa: E741
X = Variable("x", pointer(scalar(f32), Space.GLOBAL, is_const=True))
Y = Variable("y", pointer(scalar(f32), Space.GLOBAL))
A = Variable("a", scalar(f32))
TABLE = Variable("table", CType("float", f32, space=Space.SHARED))
ONE, TEN = Literal("1"), Literal("10")


class _Device(Words):
    def function(self, text: str) -> str:
        return text.replace("st_", "device_")


DEVICE = Dialect(
    words=_Device(),
    unroll="UNROLLED",
    needs_casts=True,
    restrict="__restrict__",
    kernel_head="__global__ void __launch_bounds__({})",
    storage={Space.SHARED: "__shared__ "},
    block_barrier="__syncthreads()",
    warp_barrier="__syncwarp()",
)


def printed(*body: Statement, dialect: Dialect = C) -> list[str]:
    """The lines of a function's body."""
    first, *lines, last = print_function(Function("f", (), body), dialect).splitlines()
    assert (first, last) == (f"{dialect.head} f() {{", "}")
    return [line.removeprefix("    ") for line in lines]


BYTES = Variable("bytes", pointer(word("unsigned char"), Space.GLOBAL))
STEP: tuple[Statement, ...] = (Assign(A, ONE, "+"),)


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        (Declare(A, Index(X, I)), "const float a = x[i];"),
        (Declare(A, is_const=False), "float a;"),
        (Declare(A, is_const=False, sizes=(TEN,), alignment=16), "_Alignas(16) float a[10];"),
        (Constants((("ROWS", 8), ("TILE", 32))), "enum { ROWS = 8, TILE = 32 };"),
        (Declare(A, ONE, also=((I, TEN),)), "const float a = 1, i = 10;"),
        (Declare(A, Items((ONE, TEN)), False, (Literal("2"),)), "float a[2] = {1, 10};"),
        (Declare(Variable("v", lanes(f32, 4, "f32v")), Items((ONE,), "f32v")), "const f32v v = (f32v){1};"),
        (Declare(Y, Cast(VOID, Infix("+", BYTES, TEN))), "float *const y = (void *)(bytes + 10);"),
        (Assign(Index(Y, I), A), "y[i] = a;"),
        (Assign(A, ONE, "+"), "a += 1;"),
        (Do(Call("st_f", (A,))), "st_f(a);"),
        (For(I, ONE, TEN, STEP), "for (int64_t i = 1; i < 10; ++i) {\n    a += 1;\n}"),
        (For(I, ONE, TEN, STEP, TEN), "for (int64_t i = 1; i < 10; i += 10) {\n    a += 1;\n}"),
        (
            For(Variable("u", SHORT_INDEX), ONE, TEN, STEP, unroll=9),
            "#pragma GCC unroll 9\nfor (int u = 1; u < 10; ++u) {\n    a += 1;\n}",
        ),
        (
            For(I, TEN, ONE, STEP, Literal("-1"), is_down=True),
            "for (int64_t i = 10; i > 1; --i) {\n    a += 1;\n}",
        ),
        (
            ForBits(Variable("rest", word("unsigned int")), A, STEP),
            "for (unsigned int rest = a; rest != 0; rest &= rest - 1) {\n    a += 1;\n}",
        ),
        (While(Infix("<", A, TEN), STEP), "while (a < 10) {\n    a += 1;\n}"),
        (If(Infix("<", A, TEN), STEP), "if (a < 10) {\n    a += 1;\n}"),
        (If(A, STEP, (Jump("break"),)), "if (a) {\n    a += 1;\n} else {\n    break;\n}"),
        (Block(STEP), "{\n    a += 1;\n}"),
        (Jump("return", "all of a warp"), "return;  // all of a warp"),
        (Comment("two\nlines"), "// two\n// lines"),
        (Unused((A, I), "one piece"), "(void)a, (void)i;  // one piece"),
        (Declare(A, is_const=False, note="the sum"), "float a;  // the sum"),
        (
            DeclareStruct(Variable("b", word("Buffers")), (("h", A), ("w", ONE))),
            "const Buffers b = {\n    .h = a,\n    .w = 1,\n};",
        ),
        (Do(Call("st_f", (A,)), "on its way"), "st_f(a);  // on its way"),
        (
            ForAny(I, TEN, Infix(">", I, A), Assign(I, ONE, "-"), STEP),
            "for (int64_t i = 10; i > a; i -= 1) {\n    a += 1;\n}",
        ),
        (
            ForAny(I, TEN, Infix(">", I, A), Do(Prefix("--", I)), STEP),
            "for (int64_t i = 10; i > a; --i) {\n    a += 1;\n}",
        ),
        (While(None, STEP), "for (;;) {\n    a += 1;\n}"),
        (Jump("goto end"), "goto end;"),
        (Jump("return", value=A), "return a;"),
        (Label("end"), "end:;"),
        (Blank(), "\n"),
        (
            Do(Call("st_f", (Prefix("&", Items((Field("x", A), Field("size", Sizeof("float"))), "args")),))),
            "st_f(&(args){.x = a, .size = sizeof(float)});",
        ),
    ],
)
def test_statements_in_c(statement: Statement, lines: str) -> None:
    assert printed(statement) == lines.splitlines()


@pytest.mark.parametrize(
    ("statement", "lines"),
    [
        (Do(Call("st_f", (A,))), "device_f(a);"),
        (For(I, ONE, TEN, (), unroll=9), "UNROLLED\nfor (int64_t i = 1; i < 10; ++i) {\n}"),
        (Declare(TABLE, None, False, (TEN, ONE)), "__shared__ float table[10][1];"),
        (Declare(Y, Cast(VOID, BYTES)), "float *const y = (float *)(void *)bytes;"),
        (Barrier(), "__syncthreads();"),
        (Barrier(is_warp=True, note="why"), "__syncwarp();  // why"),
    ],
)
def test_statements_of_a_device(statement: Statement, lines: str) -> None:
    assert printed(statement, dialect=DEVICE) == lines.splitlines()


class _Spaces(Words):
    def type(self, type: CType) -> str:
        spaces = {Space.GLOBAL: "__global ", Space.SHARED: "__local ", Space.PRIVATE: ""}
        return f"{spaces[type.space] * type.is_pointer}{type.text}"


def test_a_language_says_at_each_pointer_into_which_memory_it_points() -> None:
    words = Dialect(words=_Spaces(), kernel_head="__kernel void", storage={Space.SHARED: "__local "}, needs_casts=True)
    row = Variable("row", pointer(scalar(f32), Space.SHARED))
    body = (
        Declare(TABLE, None, False, (TEN,)),
        Declare(row, Infix("+", TABLE, ONE)),
        Declare(Variable("own", pointer(scalar(f32), Space.GLOBAL)), Cast(VOID, BYTES)),
    )
    assert print_function(Function("f", (Parameter(X, is_alone=True), Parameter(A)), body, threads=32), words) == (
        "__kernel void f(__global const float *restrict x, float a) {\n"
        "    __local float table[10];\n"
        "    __local float *const row = table + 1;\n"
        "    __global float *const own = (__global float *)(__global void *)bytes;\n"
        "}\n"
    )


def test_other_pointers_are_cast_where_both_languages_are_meant() -> None:
    place: Expr = Cast(VOID, BYTES)
    assert printed(Declare(Y, place), dialect=C_AND_CPP) == ["float *const y = (float *)(void *)bytes;"]


def test_heads_name_parameters_with_what_is_known_of_them() -> None:
    code = Function("f", (Parameter(X, is_alone=True), Parameter(Y), Parameter(A)), (), ("a comment\\",))
    assert print_function(code) == "// a comment\\ .\nstatic void f(const float *restrict x, float *y, float a) {\n}\n"
    kernel = replace(code, threads=256, comments=())
    head = "__global__ void __launch_bounds__(256) f(const float *__restrict__ x, float *y, float a) {"
    assert print_function(kernel, DEVICE).splitlines()[0] == head


def test_long_statements_break_behind_their_sign_or_after_commas() -> None:
    call = Call("f", tuple(Name("a" * 30) for _ in range(5)))
    assert [len(line) for line in printed(Do(call))] == [97, 72]
    y = Variable("y", scalar(f32))
    product = Infix("*", Name("a" * 60), Name("b" * 40))
    assert printed(Declare(y, product)) == ["const float y =", f"        {'a' * 60} * {'b' * 40};"]
    assert printed(Assign(Index(y, Name("i" * 30)), Call("f", (product,))))[0] == f"y[{'i' * 30}] ="
    assert printed(Declare(y, Items(tuple(Name("a" * 30) for _ in range(5)))))[0].startswith("const float y = {a")
    call = Do(call)
    lines = print_function(Function("f", (), (call,), breaks_lines=True)).splitlines()
    assert len(lines) == 4 and all(len(line) <= 120 for line in lines)


def test_a_long_condition_breaks_below_its_first_argument() -> None:
    call = Call("f", tuple(Name("a" * 30) for _ in range(5)))
    head, *lines = printed(If(Infix("!=", call, Name("ST_OK")), (Jump("break"),), aligns=True))
    assert head.startswith("if (f(a") and all(line.startswith("      a") for line in lines[:-2])
    assert lines[-3].endswith(") != ST_OK) {") and lines[-2:] == ["    break;", "}"]


@pytest.mark.parametrize("length", [20, 90, 105, 130])
def test_comments_of_fields_are_cut_where_lines_end(length: int) -> None:
    fields = (("x" * length, A), ("y", ONE))
    struct = DeclareStruct(Variable("b", word("Buffers")), fields, ("(3, 4)  variable" * 9, "z"))
    _, first, second, _ = print_body([struct])
    code, _, comment = first.partition("//")
    assert code.strip() == f".{'x' * length} = a," and len(first) <= max(120, len(code))
    assert bool(comment) is bool(second.partition("//")[2]) is (length < 105)
