"""The vectors of the templates, and the functions that they share: copies, square transposes, sums of lanes.

Tested by `tests/backends/host/test_contraction_matmul.py` and `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from staged.code.support.library import Snippet
from staged.code.support.vectors import vector_snippet
from staged.code.writer import Writer, wrapped
from staged.ir.machine import Machine
from staged.ir.types import DType, i8


@dataclass(frozen=True, slots=True)
class Vector:
    """The machine's vector of one dtype: `f32v` in the text, `f32v_u` where memory need not be aligned."""

    dtype: DType
    lanes: int

    @property
    def name(self) -> str:
        return f"{self.dtype}v"

    @property
    def unaligned(self) -> str:
        return f"{self.dtype}v_u"

    @property
    def scalar(self) -> str:
        return self.dtype.c_name

    @property
    def bytes(self) -> int:
        return self.lanes * self.dtype.size

    def load(self, address: str) -> str:
        return f"*(const {self.unaligned} *){grouped(address)}"

    def store(self, address: str) -> str:
        return f"*({self.unaligned} *){grouped(address)}"

    def multiply_add(self, target: str, x: str, y: str) -> str:
        """The statement that adds a product to a vector; a factor may be one number."""
        return added_product(self.name, self.dtype, target, x, y)


def added_product(type: str, dtype: DType, target: str, x: str, y: str) -> str:
    """The statement that adds a product to a number or vector."""
    if not dtype.is_float:
        return f"{target} += {x} * {y};"
    return f"{target} = st_fma_{type}({x}, {y}, {target});"


def grouped(expression: str) -> str:
    """In parentheses, unless it is a single name."""
    return expression if expression.isidentifier() else f"({expression})"


def vector_of(machine: Machine, dtype: DType) -> Vector:
    return Vector(dtype, machine.lanes(dtype.size))


_HEAD = re.compile(r"^(?:static|typedef) [^;{]*[;{]", re.MULTILINE)


def snippet_of(vector: Vector, name: str, text: str, words: Mapping[str, object] | None = None) -> Snippet:
    """Support for a vector: `$T` is its scalar, `$D` its dtype, `$LANES` their number. `words` are further ones.

    Heads of functions that are too long are broken again.
    """
    known = {"$T": vector.scalar, "$D": vector.dtype, "$LANES": vector.lanes}
    for word, by in {**known, **(words or {})}.items():
        text = text.replace(word, str(by))
    text = _HEAD.sub(lambda head: wrapped(head[0].replace(",\n        ", ", ")), text)
    return Snippet(f"{name}_{vector.dtype}", text)


def copy_support(vector: Vector) -> Snippet:
    """`st_copy_T(target, source, count)`: a short run, by vectors."""
    lanes, scalar, dtype = vector.lanes, vector.scalar, vector.dtype
    head = "static inline __attribute__((always_inline)) void"
    t = Writer()
    t.line(
        "// Copies `count` items. For some hundred bytes memcpy costs more than the copy. The last vector may overlap"
    )
    t.line("// the one before it.")
    half = lanes // 2
    with t.block(f"{head} st_copy_{dtype}({scalar} *target, const {scalar} *source, int64_t count)"):
        if half > 1:
            with t.block(f"if (count >= {half} && count < {lanes})"):
                t.line(f"memcpy(target, source, {half} * sizeof *target);")
                end = f"count - {half}"
                t.line(f"memcpy(target + {end}, source + {end}, {half} * sizeof *target);")
                t.line("return;")
        with t.block(f"if (count < {lanes})"):
            t.line("memcpy(target, source, (size_t)count * sizeof *target);")
            t.line("return;")
        with t.block(f"for (int64_t i = 0; i <= count - {lanes}; i += {lanes})"):
            t.line(f"{vector.store('target + i')} = {vector.load('source + i')};")
        with t.block(f"if (count % {lanes} != 0)"):
            t.line(f"{vector.store(f'target + count - {lanes}')} = {vector.load(f'source + count - {lanes}')};")
    return Snippet(f"copy_{dtype}", str(t), needs=(vector_snippet(dtype.name),))


def zero_support(vector: Vector) -> Snippet:
    """`st_zero_T(target, count)`: zeros in a short run, by vectors."""
    lanes, scalar, dtype = vector.lanes, vector.scalar, vector.dtype
    t = Writer()
    with t.block(f"static inline __attribute__((always_inline)) void st_zero_{dtype}({scalar} *target, int64_t count)"):
        with t.block(f"if (count < {lanes})"):
            t.line("memset(target, 0, (size_t)count * sizeof *target);")
            t.line("return;")
        with t.block(f"for (int64_t i = 0; i <= count - {lanes}; i += {lanes})"):
            t.line(f"{vector.store('target + i')} = ({vector.name}){{0}};")
        with t.block(f"if (count % {lanes} != 0)"):
            t.line(f"{vector.store(f'target + count - {lanes}')} = ({vector.name}){{0}};")
    return Snippet(f"zero_{dtype}", str(t), needs=(vector_snippet(dtype.name),))


def copied(vector: Vector, target: str, source: str, count: int | str) -> str:
    """The statement that copies `count` items."""
    return f"st_copy_{vector.dtype}({target}, {source}, {count});"


def zeroed(vector: Vector, target: str, count: int | str) -> str:
    return f"st_zero_{vector.dtype}({target}, {count});"


def index_type(vector: Vector) -> str:
    """The dtype of the integer vector of the same lanes: shuffle indices and lane masks."""
    return "i32" if vector.dtype.size == 4 else "i64"


def index_name(vector: Vector) -> str:
    return f"{index_type(vector)}v"


SHUFFLE = Snippet(
    "shuffle",
    """\
// Lanes of `x` followed by lanes of `y`, picked by constant indices.
#if defined(__clang__)
#define ST_SHUFFLE(index_type, x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define ST_SHUFFLE(index_type, x, y, ...) __builtin_shuffle(x, y, (index_type){__VA_ARGS__})
#endif
""",
)


def transpose_function(vector: Vector) -> str:
    return f"st_transpose_{vector.dtype}"


def transpose_stages(vector: Vector) -> list[tuple[int, list[int], list[int]]]:
    """The steps of a square transpose in registers: (distance, lanes of the lower result, lanes of the upper one).

    Each step combines registers i and i + distance. Within 128 bits the lanes interleave, which every x86 and Arm
    vector unit does in one instruction; beyond, whole 128-bit groups change places.
    """
    lanes = vector.lanes
    group = max(1, 16 // vector.dtype.size)
    stages = []
    distance = 1
    while distance < lanes:
        low, high = [], []
        for lane in range(lanes):
            if distance < group:
                # interleave runs of `distance` lanes inside each group: (a0 b0 a1 b1), then (a0 a1 b0 b1) of the next
                # size
                base, inside = lane - lane % group, lane % group
                run, offset = divmod(inside, distance)
                source = lanes if run % 2 else 0
                low.append(source + base + (run // 2) * distance + offset)
                high.append(source + base + (run // 2) * distance + offset + group // 2)
            else:
                upper = (lane & distance) != 0
                low.append(lanes + lane - distance if upper else lane)
                high.append(lanes + lane if upper else lane + distance)
        stages.append((distance, low, high))
        distance *= 2
    return stages


def transpose_order(vector: Vector) -> list[int]:
    """After all stages register `i` holds column `order[i]`: found by running the stages on indices."""
    lanes = vector.lanes
    registers = [[(row, lane) for lane in range(lanes)] for row in range(lanes)]
    for distance, low, high in transpose_stages(vector):
        for i in range(lanes):
            if not i & distance:
                both = registers[i] + registers[i + distance]
                registers[i], registers[i + distance] = [both[s] for s in low], [both[s] for s in high]
    order = []
    for register in registers:
        column = register[0][1]
        assert register == [(row, column) for row in range(lanes)], "the stages do not transpose"
        order.append(column)
    return order


def transpose_support(vector: Vector) -> Snippet:
    """`st_transpose_T(source, stride, rows, target, target_stride)`: a square block, through registers."""
    lanes = vector.lanes
    t = Writer()
    t.line(
        f"// target[j][i] = source[i][j] for a block of {lanes} x {lanes}. Only the first `rows` rows of the source "
        "are read;"
    )
    t.line("// the lanes of missing rows repeat the last one.")
    emit_transpose(t, transpose_function(vector), vector, vector.scalar, lambda x, at: f"{x} = {vector.load(at)};")
    return Snippet(
        f"transpose_{vector.dtype}",
        str(t),
        needs=("shuffle", vector_snippet(vector.dtype.name), vector_snippet(index_type(vector))),
    )


def group_transpose_function() -> str:
    return "st_transpose_groups"


def group_transpose_support(vector: Vector) -> Snippet:
    """`st_transpose_groups(source, stride, rows, target, target_stride)`: a square of groups of four bytes, at any
    address; strides are in bytes, `vector` is that of u32.
    """
    lanes = vector.lanes
    t = Writer()
    t.line(f"// target[j][i] = source[i][j] for {lanes} x {lanes} groups of four bytes. Only the first `rows` rows of")
    t.line("// the source are read; the lanes of missing rows repeat the last one.")
    stored = Vector(i8, 4 * lanes)

    def load(x: str, at: str) -> str:
        return f"{x} = ({vector.name}){stored.load(at)};"

    emit_transpose(t, group_transpose_function(), vector, stored.scalar, load, stored)
    return Snippet(
        "transpose_groups",
        str(t),
        needs=("shuffle", *(vector_snippet(dtype) for dtype in ("i8", "i32", "u32"))),
    )


def emit_transpose(
    t: Writer,
    function: str,
    vector: Vector,
    source: str,
    load: Callable[[str, str], str],
    target: Vector | None = None,
) -> None:
    """The function that transposes a square of a vector's lanes: `load(x, address)` is the statement that reads a
    vector from a pointer to `source`, and memory then has them as items of `target`.
    """
    lanes, name, into = vector.lanes, vector.name, target or vector
    indices = index_name(vector)
    back = "" if into == vector else f"({into.name})"
    with t.block(
        f"static inline __attribute__((always_inline)) void {function}(const {source} *source, "
        "int64_t stride,\n"
        f"        int64_t rows, {into.scalar} *target, int64_t target_stride)"
    ):
        t.line(f"{name} x[{lanes}], y[{lanes}];")
        with t.unrolled(lanes, f"for (int64_t i = 0; i < {lanes}; ++i)"):
            t.line(load("x[i]", "source + (i < rows ? i : rows - 1) * stride"))
        current, other = "x", "y"
        for distance, low, high in transpose_stages(vector):
            with t.unrolled(lanes, f"for (int64_t i = 0; i < {lanes}; ++i)"), t.block(f"if ((i & {distance}) == 0)"):
                pair = f"{current}[i], {current}[i + {distance}]"
                for made, picks in ((f"{other}[i]", low), (f"{other}[i + {distance}]", high)):
                    t.line(f"{made} = ST_SHUFFLE({indices}, {pair}, {', '.join(map(str, picks))});")
            current, other = other, current
        order = transpose_order(vector)
        for register, column in enumerate(order):
            t.line(f"{into.store(f'target + {column} * target_stride')} = {back}{current}[{register}];")


def sum_lanes_function(vector: Vector) -> str:
    return f"st_sum_lanes_{vector.dtype}"


def sum_lanes_support(vector: Vector) -> Snippet:
    """`st_sum_lanes_T(x, sums)`: the sum of the lanes of each of as many vectors as a vector has lanes."""
    lanes, name, scalar = vector.lanes, vector.name, vector.scalar
    indices = index_name(vector)
    t = Writer()
    t.line("// sums[i] = the sum of the lanes of x[i]. Halves are exchanged as in a transpose and added, so that")
    t.line("// every addition is one of whole vectors.")
    with t.block(
        f"static inline __attribute__((always_inline)) void {sum_lanes_function(vector)}(const {name} *x, {scalar} "
        "*sums)"
    ):
        t.line(f"{name} y[{lanes}];")
        source = "x"
        for distance, low, high in transpose_stages(vector):
            # after each step half of the vectors are left: those whose number is a multiple of 2 * distance
            with t.unrolled(lanes, f"for (int64_t i = 0; i < {lanes}; i += {2 * distance})"):
                pair = f"{source}[i], {source}[i + {distance}]"
                picks = [f"ST_SHUFFLE({indices}, {pair}, {', '.join(map(str, lane))})" for lane in (low, high)]
                t.line(f"y[i] = {picks[0]}")
                t.line(f"    + {picks[1]};")
            source = "y"
        order = sum_lanes_order(vector)
        assert order == list(range(lanes)), "the sums come out in another order"
        t.line(f"{vector.store('sums')} = y[0];")
    return Snippet(
        f"sum_lanes_{vector.dtype}",
        str(t),
        needs=("shuffle", vector_snippet(vector.dtype.name), vector_snippet(index_type(vector))),
    )


def sum_lanes_order(vector: Vector) -> list[int]:
    """For each lane, the vector whose sum ends there: found by running the steps on sets of (vector, lane)."""
    lanes = vector.lanes
    registers = {row: [{(row, lane)} for lane in range(lanes)] for row in range(lanes)}
    for distance, low, high in transpose_stages(vector):
        for i in range(0, lanes, 2 * distance):
            both = registers[i] + registers[i + distance]
            registers[i] = [both[a] | both[b] for a, b in zip(low, high, strict=True)]
    order = []
    for content in registers[0]:
        rows = {row for row, _ in content}
        assert len(rows) == 1 and len(content) == lanes, "the steps do not add up whole vectors"
        order.append(rows.pop())
    return order


def support_for(
    text: str, vector: Vector, more: Sequence[tuple[str, Snippet]] = ()
) -> tuple[frozenset[str], tuple[Snippet, ...]]:
    """The snippets of the registry that a kernel uses, and the other shared text, in the order in which it must
    appear. `more` are functions beside those of all templates, each with how a call of it begins.
    """
    text = "\n".join((text, *(support.text for call, support in more if call in text)))
    found: list[Snippet] = []
    for function, support in (
        (f"st_copy_{vector.dtype}(", copy_support(vector)),
        (f"st_zero_{vector.dtype}(", zero_support(vector)),
        (transpose_function(vector) + "(", transpose_support(vector)),
        (sum_lanes_function(vector) + "(", sum_lanes_support(vector)),
        (group_transpose_function() + "(", group_transpose_support(vector)),
        *more,
    ):
        if function in text and support not in found:
            found.append(support)
    shuffles = any("shuffle" in support.needs for support in found)
    types = {vector_snippet(vector.dtype.name)}
    types |= {need for _, support in more if support in found for need in support.needs}
    if shuffles or index_name(vector) in text:
        types.add(vector_snippet(index_type(vector)))
    types |= {name for name in (f"st_fma_{vector.name}", f"st_fma_{vector.dtype}") if f"{name}(" in text}
    return frozenset(types), (*([SHUFFLE] if shuffles else []), *found)
