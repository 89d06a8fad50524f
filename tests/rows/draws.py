"""Draws that several families share: calls of functions of arrays, images, seeds, and parts of calls."""

from __future__ import annotations

from tests.fuzz.cells.draw import COMPLEX, Draw, NotACell, form
from tests.rows.table import Call

OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "matmul": "@",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip


def _values(d: Draw, smooth: str, else_: str = "any") -> str:
    """The range of values: `smooth` for derivatives, and for integers, of which zero may stop the program."""
    return smooth if smooth and (d.smooth or not d.is_float) else else_


def unary(smooth: str = "", else_: str = "any") -> Call:
    """A call with one array. `smooth` is the range where the function is smooth and moderate."""
    return lambda d: form(d, d.name, d.new(d.shape(ranks=(0, 1, 2, 3)), values=_values(d, smooth, else_)))


def second(d: Draw, shape: tuple[int, ...], values: str) -> str:
    """Another operand: an array that broadcasts, or a number."""
    which = d.chance.randrange(6)
    if which == 0 and values != "bits":
        if not d.is_float or d.likely(30):
            return (
                d.pick("2", "3", "1") if values == "nonzero" or d.dtype[0] == "u" else d.pick("2", "-1", "0", "1", "3")
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


def binary(smooth: str = "") -> Call:
    """A call with two operands, by name or by its operator. `smooth` is the range of the second operand."""

    def text(d: Draw) -> str:
        name, shape = d.name, d.shape(ranks=(0, 1, 2, 3))
        right = _values(d, smooth)
        left = "small" if name == "pow" or d.smooth else "any"
        if name in ("bitwise_left_shift", "bitwise_right_shift"):
            right = "bits"
        if name == "pow":
            left, right = (
                ("positive", "nonzero" if d.dtype in COMPLEX else "small") if d.is_float else ("small", "below 4")
            )
            if d.smooth and d.likely(40):
                left, right = "below 3", "below 3"  # 0 to the power 0, for which PyTorch defines a derivative
        x = d.new(shape, values=left)
        y = second(d, shape, right)
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


def noted(of: Call, *keywords: str) -> Call:
    """A call that gives these arguments by place."""

    def text(d: Draw) -> str:
        d.keywords |= set(keywords)
        return of(d)

    return text


SEEDS = (0, 3, 2**40 + 7, -5)


def seeded(d: Draw) -> None:
    d.setup.append(f"st.seed({d.pick(*SEEDS)})")


def generator(d: Draw) -> str:
    """The text of a keyword for numbers of one's own, or of none."""
    if d.likely(70):
        return ""
    if d.likely(50):
        d.setup.append(f"noise = st.random.Generator({d.pick(*SEEDS)})")
        return ", generator=noise"
    return f", generator=st.random.Generator({d.pick(*SEEDS)})"


def dtype_keyword(d: Draw) -> str:
    return f"dtype=st.{'bool_' if d.dtype == 'bool' else d.dtype}"


def large_image(d: Draw, groups: int, rank: int) -> tuple[int, ...]:
    """(N, C, H, W) or (N, C, L), with no batch where it is empty."""
    if d.kind == "scalar":
        raise NotACell
    sizes = {"empty": (5, 6), "one": (1, 1), "vector": (5, 15), "odd": (7, 9), "block": (13, 21)}[d.kind]
    batch = 0 if d.kind == "empty" else 1 if d.kind == "one" else d.pick(1, 2, 3)
    channels = groups if d.kind == "one" else groups * d.pick(1, 2)
    return (batch, channels, *sizes[-rank:])


def image(d: Draw, groups: int = 1, rank: int = 2) -> tuple[int, ...]:
    """(N, C, ..) of one to three axes, small."""
    if rank < 3:
        return tuple(min(extent, 13) for extent in large_image(d, groups, rank))
    batch, channels, *_ = large_image(d, groups, 1)
    sizes = {"empty": (3, 4, 5), "one": (1, 1, 1), "odd": (3, 5, 7), "block": (4, 6, 9)}.get(d.kind, (3, 4, 6))
    return (batch, channels, *sizes)


def number(d: Draw) -> str:
    if d.dtype == "bool":
        return d.pick("True", "False")
    return d.pick("0.0", "1.5", "-0.0", "-2.0") if d.is_float else d.pick("0", "1", "3", "7")


def typed(d: Draw) -> str:
    return f", dtype=st.{'bool_' if d.dtype == 'bool' else d.dtype}"


def integer(d: Draw) -> str:
    return d.pick("i64", "i32", "i64", "u8", "i8", "u16", "i16", "u64")


def rows_of(d: Draw) -> tuple[int, int]:
    if d.kind in ("scalar", "empty"):
        raise NotACell
    return 1 if d.kind == "one" else 33 if d.kind == "block" else d.pick(2, 3), 1 if d.kind == "one" else d.pick(3, 5)


def signs(d: Draw, shape: tuple[int, ...]) -> str:
    return f"(2 * {d.new(shape, 'i64', 'below 2')} - 1)"
