"""The call of each public function: a table from its name to the text of a call with drawn arguments.

Families (functions of one or two arrays element by element, reductions) are taken from the declarations; what has a form of
its own has a line here. `missing()` names public functions that neither covers: a new function is not forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

import staged as st
from staged.ops.array import METHOD_NAMES
from staged.ops.primitive import PRIMITIVES
from tests.fuzz.cells.draw import COMPLEX, Draw, NotACell

Call = Callable[[Draw], str]

DOMAINS = {
    "exp": "small",
    "expm1": "small",
    "sinh": "small",
    "cosh": "small",
    "sin": "finite",
    "cos": "finite",
    "tan": "small",
    "log": "positive",
    "log2": "positive",
    "log10": "positive",
    "log1p": "positive",
    "sqrt": "positive",
    "rsqrt": "positive",
    "asin": "unit",
    "acos": "unit",
    "floor_divide": "nonzero",
    "remainder": "nonzero",
    "divide": "nonzero",
    "sigmoid": "saturating",
    "log_sigmoid": "saturating",
    "softplus": "saturating",
    "silu": "saturating",
    "tanh": "saturating",
}
"""The range where a function is smooth and moderate: for derivatives, and for integers where zero stops the program."""

OPERATORS = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "floor_divide": "//",
    "remainder": "%",
    "matmul": "@",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "bitwise_left_shift": "<<",
    "bitwise_right_shift": ">>",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}

CALLS: dict[str, Call] = {}


def call(name: str) -> Callable[[Call], Call]:
    def enter(function: Call) -> Call:
        CALLS[name] = function
        return function

    return enter


def form(d: Draw, name: str, x: str, rest: str = "") -> str:
    """`st.name(x, rest)`, or `x.name(rest)` where there is such a method."""
    if name in METHOD_NAMES and d.likely(30):
        return f"{x}.{name}({rest.removeprefix(', ')})"
    return f"st.{name}({x}{rest})"


# ---- element by element -------------------------------------------------------------------------


def _domain(d: Draw, name: str) -> str:
    if name in DOMAINS and (d.smooth or not d.is_float):
        return DOMAINS[name]
    # Beyond some size the trigonometry of f32 is that of another number.
    return {"sin": "no huge", "cos": "no huge", "tan": "no huge"}.get(name, "any")


def _unary(name: str) -> Call:
    return lambda d: form(d, name, d.new(d.shape(ranks=(0, 1, 2, 3)), values=_domain(d, name)))


def _second(d: Draw, shape: tuple[int, ...], values: str) -> str:
    """Another operand: an array that broadcasts, or a number."""
    which = d.chance.randrange(6)
    if which == 0 and values != "bits":
        if not d.is_float or d.likely(30):
            return (
                d.pick("2", "3", "1")
                if values == "nonzero" or d.dtype[0] == "u"
                else d.pick("2", "-1", "0", "1", "3")
            )
        return (
            d.pick("0.5", "2.0", "-1.5", "3.0")
            if values == "nonzero"
            else d.pick("0.0", "-0.0", "1.0", "0.5", "-2.0", "-1.0", "2")
        )
    other = shape
    if which == 1:
        other = shape[d.chance.randrange(len(shape) + 1) :]
    elif which == 2:
        other = tuple(1 if d.likely(50) else extent for extent in shape)
    return d.new(other, values=values)


def _binary(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2, 3))
        right = _domain(d, name)
        left = "small" if name == "pow" or d.smooth else "any"
        if name in ("bitwise_left_shift", "bitwise_right_shift"):
            right = "bits"
        if name == "pow":
            left, right = ("positive", "nonzero" if d.dtype in COMPLEX else "small") if d.is_float else ("small", "below 4")
            if d.smooth and d.likely(40):
                left, right = "below 3", "below 3"  # 0 to the power 0, where PyTorch says what a derivative is
        x = d.new(shape, values=left)
        y = _second(d, shape, right)
        if name == "pow" and not d.is_float and y.startswith("-"):
            y = "2"
        if name in OPERATORS and d.likely(50):
            if (
                y[0] != "x"
                and name not in ("floor_divide", "remainder", "divide", "bitwise_left_shift")
                and d.likely(40)
            ):
                return f"({y} {OPERATORS[name]} {x})"
            return f"({x} {OPERATORS[name]} {y})"
        if name == "pow" and d.likely(50):
            return f"({x} ** {y})"
        return f"st.{name}({x}, {y})"

    return text


for _name, _op in PRIMITIVES.items():
    if _op.kind == "elementwise" and _name in st.ops.__all__ and _name != "stop_gradient":
        CALLS[_name] = _binary(_name) if len(_op.samples and _op.samples[0].operands or ()) == 2 else _unary(_name)
for _name in ("relu", "sigmoid", "log_sigmoid", "softplus", "silu", "stop_gradient"):
    CALLS[_name] = _unary(_name)


@call("atan2")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    return f"st.atan2({d.new(shape)}, {d.new(shape, values='nonzero' if d.smooth and d.likely(60) else 'any')})"


CALLS["leaky_relu"] = lambda d: (
    f"st.leaky_relu({d.new(d.shape(ranks=(0, 1, 2)), values='finite')}{d.keyword('negative_slope', 0.0, 0.2, 1.0)})"
)
CALLS["elu"] = lambda d: f"st.elu({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('alpha', 0.0, 0.5, 2.0)})"
CALLS["gelu"] = lambda d: (
    f"st.gelu({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('approximate', repr('tanh'), repr('none'))})"
)


@call("where")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2, 3))
    x = d.new(shape)
    condition = d.new(shape, "bool")
    return f"st.where({condition}, {x}, {_second(d, shape, 'any')})"


@call("astype")
def _(d: Draw) -> str:
    wanted = d.pick("bool_", "u8", "i8", "u16", "i16", "i32", "u32", "i64", "u64", "f32", "f64")
    # What does not fit has no single answer.
    values = "positive" if d.is_float and wanted != "bool_" and wanted[0] != "f" else "any"
    x = d.new(d.shape(ranks=(0, 1, 2)), values="small" if d.is_float and wanted in ("i32", "i64") else values)
    return form(d, "astype", x, f", st.{wanted}")


@call("clip")
def _(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)))
    low, high = (("-1.5", "0.0", "-0.0"), ("2.0", "0.5", "1.0")) if d.is_float else (("0", "1"), ("3", "5", "100"))
    form_ = d.chance.randrange(4)
    d.keywords |= {"min", "max"}
    return form(
        d,
        "clip",
        x,
        [
            f", {d.pick(*low)}, {d.pick(*high)}",
            f", min={d.pick(*low)}",
            f", max={d.pick(*high)}",
            f", None, {d.pick(*high)}",
        ][form_],
    )


# ---- reductions and products --------------------------------------------------------------------


def _reduction(name: str) -> Call:
    def text(d: Draw) -> str:
        values = (
            ("finite" if d.is_float else "small")
            if name in ("sum", "mean", "var", "std")
            else "small"
            if name == "prod"
            else "any"
        )
        if name == "prod":
            values = "nonzero"
        shape = d.shape(ranks=(0, 1, 2, 3))
        x = d.new(shape, values=values)
        rest = d.axis(len(shape), several=not name.startswith("arg")) + d.keyword("keepdims", True, False, percent=35)
        if name in ("var", "std"):
            rest += d.keyword("correction", 0, 1, 0.5, percent=30)
        # The derivative of a wide product may be no number of the narrow dtype.
        if name == "sum" or (name == "prod" and not d.smooth):
            rest += d.keyword(
                "dtype",
                *(["st.f64", "st.f32"] if d.is_float else "st.i64 st.i32 st.f64 st.u32 st.u8 st.i8 st.u16 st.u64".split()),
                percent=25,
            )
        return form(d, name, x, rest)

    return text


for _name in ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "var", "std", "count_nonzero"):
    CALLS[_name] = _reduction(_name)


@call("matmul")
def _(d: Draw) -> str:
    m, k, n = _sides(d)
    first = d.pick((m, k), (m, k), (k,), (2, m, k), (1, 2, m, k))
    second = d.pick((k, n), (k, n), (k,), (2, k, n))
    if d.both and d.likely(30):
        first = second = (k,) if d.likely(50) else (k, k)
    a, b = d.new(first, values="small"), d.new(second, values="small")
    wide = "f64" if d.dtype[1:] in ("32", "64") else d.pick("i32", "i64")
    return d.pick(f"({a} @ {b})", f"st.matmul({a}, {b})", f"st.matmul({a}, {b}, dtype=st.{wide})")


def _sides(d: Draw) -> tuple[int, int, int]:
    if d.kind == "block":
        return d.pick((33, 35, 37), (5, 70, 67), (65, 3, 33), (1, 130, 9))
    sides = [d.pick(2, 3, 4) for _ in range(3)]
    if d.kind == "one":
        return (1, 1, 1)
    sides[d.chance.randrange(3)] = d.extent()
    return tuple(sides)  # type: ignore[return-value]


@call("dot")
def _(d: Draw) -> str:
    if d.kind == "scalar":
        return f"st.dot({d.new((), values='small')}, {d.new((), values='small')})"
    m, k, n = _sides(d)
    first, second = d.pick(((k,), (k,)), ((m, k), (k,)), ((m, k), (k, n)), ((k,), (k, n)))
    return f"st.dot({d.new(first, values='small')}, {d.new(second, values='small')})"


CALLS["outer"] = lambda d: (
    f"st.outer({d.new((d.extent() if d.kind != 'block' else 67,), values='small')}, {d.new((5,), values='small')})"
)


@call("vecdot")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    return f"st.vecdot({d.new(shape, values='small')}, {d.new(shape, values='small')}{d.axis(len(shape), several=False, none=False)})"


@call("tensordot")
def _(d: Draw) -> str:
    m, k, n = _sides(d)
    form_ = d.chance.randrange(4)
    d.keywords.add("axes")
    first, second, axes = [
        ((m, k), (k, n), "1"),
        ((m, k), (m, k), "2"),
        ((m, k), (n, k), "([1], [1])"),
        ((2, k, m), (m, 2, n), "([2, 0], [0, 1])"),
    ][form_]
    return f"st.tensordot({d.new(first, values='small')}, {d.new(second, values='small')}, axes={axes})"


# ---- shapes -------------------------------------------------------------------------------------


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for extent in shape:
        size *= extent
    return size


@call("broadcast_to")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    wider = (d.pick(2, 1, 3), *shape) if d.likely(60) or not shape else shape
    x = d.new(tuple(1 if d.likely(30) else extent for extent in shape))
    return form(d, "broadcast_to", x, f", {wider!r}")


CALLS["broadcast_arrays"] = lambda d: (
    f"st.broadcast_arrays({d.new(shape := d.shape(ranks=(1, 2)))}, {d.new(tuple(1 if d.likely(50) else n for n in shape))})"
)


@call("reshape")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2, 3))
    size = _size(shape)
    options = ["(-1,)"] if size else []
    options += [repr((size, 1)), repr((1, size)), repr(shape[::-1])]
    if size % 2 == 0 and size:
        options.append("(2, -1)")
    return form(d, "reshape", d.new(shape), f", {d.pick('', 'shape=')}{d.chance.choice(options)}")


@call("flatten")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    rest = d.keyword("start_dim", 0, len(shape) - 1) + d.keyword("end_dim", -1, len(shape) - 1)
    return form(d, "flatten", d.new(shape), rest)


@call("squeeze")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    place = d.chance.randrange(len(shape) + 1)
    return form(d, "squeeze", d.new((*shape[:place], 1, *shape[place:])), d.keyword("axis", place, f"({place},)"))


CALLS["expand_dims"] = lambda d: (
    f"st.expand_dims({d.new(shape := d.shape(ranks=(0, 1, 2)))}{d.keyword('axis', 0, -1, len(shape))})"
)
CALLS["unsqueeze"] = lambda d: form(
    d, "unsqueeze", d.new(shape := d.shape(ranks=(0, 1, 2))), f", {d.pick(0, -1, len(shape))}"
)


def _permuted(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2, 3))
        order = tuple(d.chance.sample(range(len(shape)), len(shape)))
        if name == "transpose" and d.likely(50):
            return form(d, name, d.new(shape))
        rest = f", {order!r}" if d.likely(60) else "".join(f", {axis}" for axis in order)
        return form(d, name, d.new(shape), rest)

    return text


for _name in ("permute_dims", "permute", "transpose"):
    CALLS[_name] = _permuted(_name)
CALLS["matrix_transpose"] = lambda d: (
    f"st.matrix_transpose({d.new(d.shape(ranks=(2, 3)))})" if d.likely(60) else f"{d.new(d.shape(2))}.T"
)
CALLS["swapaxes"] = lambda d: form(d, "swapaxes", d.new(d.shape(ranks=(2, 3))), f", 0, {d.pick(1, -1)}")
CALLS["moveaxis"] = lambda d: (
    f"st.moveaxis({d.new(d.shape(ranks=(2, 3)))}, {d.pick('0, -1', '-1, 0', '(0, 1), (1, 0)')})"
)
CALLS["flip"] = lambda d: f"st.flip({d.new(shape := d.shape(ranks=(1, 2, 3)))}{d.axis(len(shape))})"
CALLS["roll"] = lambda d: (
    f"st.roll({d.new(shape := d.shape(ranks=(1, 2, 3)))}, {d.pick(1, -1, 3, 0, 40, -17)}{d.axis(len(shape), several=False)})"
)


@call("pad")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    width = d.pick("1", "0", "(2, 1)", "(0, 3)")
    if len(shape) == 2:
        width = d.pick("1", "((1, 0), (0, 2))", "((0, 0), (3, 1))")
    values = (
        ("1.5", "-0.25", "0.0", "-0.0", "2")
        if d.is_float
        else ("True", "False")
        if d.dtype == "bool"
        else ("1", "0", "7")
    )
    return f"st.pad({d.new(shape)}, {width}{d.keyword('value', *values, percent=70)})"


@call("concat")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    other = (*shape[:axis], d.pick(1, 2, 0, shape[axis]), *shape[axis + 1 :])
    if d.likely(20):
        return f"st.concat([{d.new(shape)}, {d.new(other)}], axis=None)"
    return f"st.concat([{d.new(shape)}, {d.new(other)}], axis={d.pick(axis, axis - len(shape))})"


CALLS["stack"] = lambda d: (
    f"st.stack([{d.new(shape := d.shape(ranks=(0, 1, 2)))}, {d.new(shape)}, {d.chance.choice(list(d.arrays))}]"
    f"{d.keyword('axis', 0, -1, len(shape))})"
)


@call("split")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    if d.likely(50):
        shape = (*shape[:axis], shape[axis] * 2, *shape[axis + 1 :])
        return f"st.split({d.new(shape)}, 2, axis={axis})"
    return f"st.split({d.new(shape)}, [{shape[axis] // 2}], axis={axis})"


@call("unstack")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    place = d.chance.randrange(len(shape)) if d.kind != "block" else 0
    return f"st.unstack({d.new((*shape[:place], 3, *shape[place:]))}, axis={place})"


CALLS["tile"] = lambda d: f"st.tile({d.new(d.shape(ranks=(1, 2)))}, {d.pick('2', '(2, 1)', '(1, 3)', '(2, 1, 2)')})"
CALLS["repeat"] = lambda d: (
    f"st.repeat({d.new(shape := d.shape(ranks=(1, 2)))}, {d.pick(1, 2, 3, 0)}{d.axis(len(shape), several=False)})"
)
CALLS["tril"] = lambda d: f"st.tril({d.new(d.shape(ranks=(2, 3)))}{d.keyword('k', 0, 1, -1, 2)})"
CALLS["triu"] = lambda d: f"st.triu({d.new(d.shape(ranks=(2, 3)))}{d.keyword('k', 0, 1, -1, 2)})"
CALLS["meshgrid"] = lambda d: (
    f"st.meshgrid({d.new((d.extent(),))}, {d.new((3,))}{d.keyword('indexing', repr('ij'), repr('xy'))}"
    f"{d.keyword('sparse', True, False)})"
)

# ---- making arrays: an operand is added, so that the result depends on an argument ---------------


def _number(d: Draw) -> str:
    if d.dtype == "bool":
        return d.pick("True", "False")
    return d.pick("0.0", "1.5", "-0.0", "-2.0") if d.is_float else d.pick("0", "1", "3", "7")


def _typed(d: Draw) -> str:
    return f", dtype=st.{'bool_' if d.dtype == 'bool' else d.dtype}"


def _made(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        d.keywords.add("dtype")
        x = d.new(shape)
        value = f", {_number(d)}" if name == "full" else ""
        made = f"st.{name}({shape!r}{value}{_typed(d)})"
        return f"st.where({x} == {x}, {made}, {x})" if d.likely(50) else f"({made}, {x})"

    return text


for _name in ("full", "zeros", "ones", "empty"):
    CALLS[_name] = _made(_name)


def _alike(name: str) -> Call:
    def text(d: Draw) -> str:
        x = d.new(d.shape(ranks=(0, 1, 2)))
        value = f", {_number(d)}" if name == "full_like" else ""
        return f"st.{name}({x}{value}{d.keyword('dtype', 'st.i32', 'st.f64', percent=20) if not value else ''})"

    return text


for _name in ("full_like", "zeros_like", "ones_like", "empty_like"):
    CALLS[_name] = _alike(_name)


@call("asarray")
def _(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)))
    numbers = ", ".join(_number(d) for _ in range(3))
    return d.pick(f"st.asarray({x})", f"st.asarray([{x}, {x}])", f"(st.asarray([{numbers}]{_typed(d)}), {x})")


@call("arange")
def _(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    extent = d.extent()
    # What counts beyond its dtype has no single answer.
    if d.dtype in ("u8", "i8") and extent > 50:
        extent = 50
    d.keywords |= {"step", "dtype"}
    x = d.new((extent,))
    first = d.pick(
        f"{extent}", f"1, {extent + 1}", f"0, {2 * extent}, 2" if d.dtype not in ("u8", "i8") else f"{extent}", f"{extent}, 0, -1"
    )
    return f"(st.arange({first}{_typed(d)}), {x})"


@call("linspace")
def _(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"dtype", "endpoint"}
    extent = d.extent()
    ends = d.pick("0, 1", "-1.0, 2.5", "3, 3")
    return f"(st.linspace({ends}, {extent}{_typed(d)}{d.keyword('endpoint', True, False)}), {d.new((extent,))})"


@call("eye")
def _(d: Draw) -> str:
    extent = min(d.extent(), 40)
    d.keywords |= {"n_cols", "k", "dtype"}
    return f"(st.eye({extent}{d.keyword('n_cols', 3, 1, extent)}{d.keyword('k', 0, 1, -1, -2)}{_typed(d)}), {d.new((extent,))})"


@call("one_hot")
def _(d: Draw) -> str:
    dtype = d.keyword("dtype", "st.f32", "st.i64", "st.bool_", "st.f64")
    return f"st.one_hot({d.new(d.shape(ranks=(0, 1, 2)), values='below 4')}, {d.pick(4, 3, 1)}{dtype})"


# ---- indexing -----------------------------------------------------------------------------------


def _integer(d: Draw) -> str:
    return d.pick("i64", "i32", "i64", "u8", "i8", "u16", "i16", "u64")


@call("take")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape)
    count = d.pick((3,), (2, 2), (), (d.pick(1, 17),))
    if not shape[axis]:
        return f"st.take({x}, {d.new((0,), 'i64', 'below 1')}, axis={axis})"
    limit = min(shape[axis], 200)
    return f"st.take({x}, {d.new(count, _integer(d), f'index {limit}')}, axis={axis})"


@call("take_along_axis")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape)
    count = (*shape[:axis], d.pick(1, 2, 5) if shape[axis] else 0, *shape[axis + 1 :])
    limit = max(1, min(shape[axis], 200))
    return f"st.take_along_axis({x}, {d.new(count, _integer(d), f'index {limit}')}, axis={axis})"


@call("scatter_add")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    x = d.new(shape, values="small")
    if not shape[axis]:
        raise NotACell
    count = d.pick(1, 3, 17, shape[axis])
    limit = min(shape[axis], 200)
    at = d.new((count,), _integer(d), f"index {limit}")
    if count == shape[axis] and d.likely(50):
        return f"st.scatter_add({x}, {at}, {x}, axis={axis})"
    return (
        f"st.scatter_add({x}, {at}, {d.new((*shape[:axis], count, *shape[axis + 1 :]), values='small')}, axis={axis})"
    )


@call("dynamic_slice")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    size = d.pick(0, 1, shape[axis], shape[axis] // 2)
    size = min(size, shape[axis])
    start = d.new((), "i64", f"below {shape[axis] - size + 1}")
    d.main = ""
    return f"st.dynamic_slice({d.new(shape)}, {start}, {size}, axis={axis})"


@call("dynamic_update_slice")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    size = min(d.pick(0, 1, shape[axis], shape[axis] // 2), shape[axis])
    start = d.new((), "i64", f"below {shape[axis] - size + 1}")
    d.main = ""
    part = (*shape[:axis], size, *shape[axis + 1 :])
    return f"st.dynamic_update_slice({d.new(shape)}, {d.new(part)}, {start}, axis={axis})"


def _written(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2, 3))
        x = d.new(shape, values="small" if name == "add_item" else "any")
        if not shape[0]:
            return f"st.{name}({x}, slice(0, 0), {_number(d)})"
        value = _number(d) if d.likely(40) or d.dtype == "bool" else d.new(shape[1:], values="small")
        limit = min(shape[0], 200)
        key = d.pick(
            str(d.chance.randrange(-shape[0], shape[0])),
            "slice(1, None)",
            "slice(None, None, 2)",
            d.new((), _integer(d), f"index {limit}"),
        )
        if d.likely(20):
            return f"st.{name}({x}, {d.new((4,), 'i64', f'index {limit}')}, {_number(d)})"
        if name == "set_item" and d.likely(15):
            return f"st.{name}({x}, {d.new(shape, 'bool')}, {_number(d)})"
        return f"st.{name}({x}, {key}, {value})"

    return text


for _name in ("set_item", "add_item"):
    CALLS[_name] = _written(_name)
