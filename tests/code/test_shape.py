"""Functions are one where nothing but their own names and comments differ."""

from __future__ import annotations

from dataclasses import replace

from staged.code.expr import Call, Expr, Index, Infix, Literal, Variable
from staged.code.shape import shape_of
from staged.code.tree import Assign, Comment, Declare, For, Function, Parameter
from staged.code.types import INDEX, CType, Space, pointer, scalar
from staged.ir.types import DType, f32, f64


def scale(
    names: str = "xyinv", dtype: DType = f32, function: str = "st_exp", factor: str = "2", swapped: bool = False
) -> tuple[Function, Expr]:
    """`y[i] = exp(x[i]) * 2` over n elements, and `n`."""
    element = scalar(dtype)
    x, y = (Variable(name, pointer(element, Space.GLOBAL)) for name in names[:2])
    i, n, v = (Variable(name, type) for name, type in zip(names[2:], (INDEX, INDEX, element), strict=True))
    source, target = (y, x) if swapped else (x, y)
    loop = For(
        i,
        Literal("0"),
        n,
        (
            Comment(f"the element of {names}"),
            Declare(v, Index(source, i)),
            Assign(Index(target, i), Infix("*", Call(function, (v,)), Literal(factor))),
        ),
    )
    parameters = (Parameter(x), Parameter(y), Parameter(n))
    return Function(names, parameters, (loop,), (f"about {names}",)), n


def test_own_names_and_comments_do_not_count() -> None:
    assert shape_of(scale()[0])[0] == shape_of(scale("abcde")[0])[0]


def test_a_function_named_like_one_of_its_variables_is_no_other_function() -> None:
    function, _ = scale()
    assert shape_of(replace(function, name="y"))[0] == shape_of(replace(function, name="other"))[0]


def test_what_is_called_and_computed_counts() -> None:
    shapes = {
        shape_of(function)[0]
        for function, _ in (
            scale(),
            scale(dtype=f64),
            scale(function="st_log"),
            scale(factor="3"),
            scale(swapped=True),
        )
    }
    assert len(shapes) == 5


def test_a_variable_is_no_word_of_the_same_name() -> None:
    value = Variable("INFINITY", CType("float"))
    same = Function("f", (), (Declare(Variable("a", CType("float")), value),))
    word = Function("f", (), (Declare(Variable("a", CType("float")), Literal("INFINITY")),))
    assert shape_of(same)[0] != shape_of(word)[0]


def test_expressions_of_the_parameters_are_numbered_alike() -> None:
    (one, n), (other, m) = scale(), scale("abcde")
    assert shape_of(one)[1](Infix("*", n, Literal("4"))) == shape_of(other)[1](Infix("*", m, Literal("4"))) != "n * 4"
