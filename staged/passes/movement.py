"""Rules of `simplify` for ops that move elements: shapes, slices, pads, indices. They are entered in `algebra.RULES`.

Elements are copied, bit by bit; the line of a docstring that begins with `Exact:` says which ones.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.types import TensorType, i64
from staged.passes.algebra import Emitter, number_of, rule

# ---- shapes -------------------------------------------------------------------------------------


@rule(prims.BROADCAST_TO)
def broadcast_of_broadcast(op: Op, emit: Emitter) -> Value | None:
    """broadcast(x) to its own shape  ->  x;  broadcast(broadcast(x))  ->  broadcast(x), past added extents of one

    Exact: elements are repeated; the axes compose.
    """
    (x,) = op.operands
    shape, axes = op.attrs["shape"], op.attrs["axes"]
    if x.tensor.shape == shape and tuple(axes) == tuple(range(len(shape))):
        return x
    if inner := x.made_by(prims.BROADCAST_TO):
        composed = tuple(axes[axis] for axis in inner.attrs["axes"])
        return emit.emit(prims.BROADCAST_TO, [inner.operands[0]], shape=shape, axes=composed)
    if inner := x.made_by(prims.RESHAPE):
        source = inner.operands[0]
        kept = [axis for axis, extent in enumerate(x.tensor.shape) if extent != 1]
        if tuple(x.tensor.shape[axis] for axis in kept) == source.tensor.shape:
            return emit.emit(prims.BROADCAST_TO, [source], shape=shape, axes=tuple(axes[axis] for axis in kept))
    return None


@rule(prims.RESHAPE)
def reshape_of_reshape(op: Op, emit: Emitter) -> Value | None:
    """reshape(x) to its own shape  ->  x;  reshape(reshape(x))  ->  reshape(x);  of one number  ->  that number

    Exact: elements keep their order in memory.
    """
    (x,) = op.operands
    if x.tensor.shape == op.attrs["shape"]:
        return x
    if inner := x.made_by(prims.RESHAPE):
        return emit.emit(prims.RESHAPE, [inner.operands[0]], shape=op.attrs["shape"])
    return _of_number(op, emit)


@rule(prims.PERMUTE)
def permute_of_permute(op: Op, emit: Emitter) -> Value | None:
    """permute in order  ->  x;  permute(permute(x))  ->  permute(x);  moving only extents of one  ->  reshape

    Exact: elements are moved; extents of one take no part in their order.
    """
    (x,) = op.operands
    axes = tuple(op.attrs["axes"])
    if axes == tuple(range(len(axes))):
        return x
    if inner := x.made_by(prims.PERMUTE):
        composed = tuple(inner.attrs["axes"][axis] for axis in axes)
        return emit.emit(prims.PERMUTE, [inner.operands[0]], axes=composed)
    found = _of_number(op, emit)
    if found is not None:
        return found
    moved = [axis for axis in axes if x.tensor.shape[axis] != 1]
    if moved == sorted(moved):
        return emit.emit(prims.RESHAPE, [x], shape=op.result.tensor.shape)
    return None


@rule(prims.SLICE)
def slice_of_all(op: Op, emit: Emitter) -> Value | None:
    """x[:]  ->  x;  a slice of one number  ->  that number

    Exact: as many elements in steps of 1 are all of them, in order (a reverse has steps of -1).
    """
    (x,) = op.operands
    if x.tensor.shape == op.result.tensor.shape and all(step == 1 for step in op.attrs["step"]):
        return x
    return _of_number(op, emit)


@rule(prims.PAD)
def pad_by_nothing(op: Op, emit: Emitter) -> Value | None:
    """pad by zero elements  ->  x

    Exact: widths are never below 0, so that an equal shape means that all of them are 0.
    """
    return op.operands[0] if op.operands[0].tensor.shape == op.result.tensor.shape else None


@rule(prims.PAD)
def pad_of_one_element(op: Op, emit: Emitter) -> Value | None:
    """pad(u) of a single element  ->  dynamic_update(full, u, place)

    Why: the cotangent of `x[0]` is one number in an array of zeros: it is written once, not tested for at every
    element.
    Exact: elements are copied; all others are the same number.
    """
    (piece,) = op.operands
    if not piece.tensor.is_static or piece.tensor.size != 1 or not op.attrs["low"]:
        return None
    if not op.result.tensor.is_static or op.result.tensor.size < 2:
        return None
    start = [emit.full(TensorType(i64), low) for low in op.attrs["low"]]
    return emit.emit(prims.DYNAMIC_UPDATE, [emit.full(op.result.tensor, op.attrs["value"]), piece, *start])


@rule(prims.CONCAT)
def concat_of_one(op: Op, emit: Emitter) -> Value | None:
    """concat of one array  ->  it

    Exact: elements are copied.
    """
    return op.operands[0] if len(op.operands) == 1 else None


@rule(prims.CONCAT)
def concat_of_concats(op: Op, emit: Emitter) -> Value | None:
    """concat(concat(x, y), z) along one axis  ->  concat(x, y, z)

    Exact: elements are copied, in the same order; along another axis the inner one stays.
    """
    inner = [x.made_by(prims.CONCAT) for x in op.operands]
    if not any(made is not None and made.attrs["axis"] == op.attrs["axis"] for made in inner):
        return None
    pieces: list[Value] = []
    for x, made in zip(op.operands, inner, strict=True):
        pieces += made.operands if made is not None and made.attrs["axis"] == op.attrs["axis"] else (x,)
    return emit.emit(prims.CONCAT, pieces, axis=op.attrs["axis"])


def _of_number(op: Op, emit: Emitter) -> Value | None:
    number = number_of(op.operands[0])
    return None if number is None else emit.full(op.result.tensor, number)


@rule(prims.MATMUL)
def fold_transpose_into_matmul(op: Op, emit: Emitter) -> Value | None:
    """matmul(transpose(a), b)  ->  matmul(a, b, transpose_a=True);  of cast(transpose(a))  ->  of cast(a)

    Why: a matrix product takes a transpose as a flag; making one reads and writes the whole matrix.
    Exact: the same products; the order of their sum is the back end's either way.
    """
    operands, attrs = list(op.operands), dict(op.attrs)
    changed = False
    for number, flag in enumerate(("transpose_a", "transpose_b")):
        cast = operands[number].made_by(prims.CAST)
        transpose = (operands[number] if cast is None else cast.operands[0]).made_by(prims.PERMUTE)
        if transpose is not None:
            axes = tuple(transpose.attrs["axes"])
            rank = len(axes)
            if axes == (*range(rank - 2), rank - 1, rank - 2):
                (source,) = transpose.operands
                operands[number] = source if cast is None else emit.emit(prims.CAST, [source], **cast.attrs)
                attrs[flag] = not attrs.get(flag, False)
                changed = True
    return emit.emit(prims.MATMUL, operands, **attrs) if changed else None


def part_of_complex(op: Op) -> Value | None:
    """real_part(from_parts(a, b))  ->  a;  imag_part(from_parts(a, b))  ->  b

    Why: arithmetic takes its operands apart and joins its result; between two of them both are in vain, and what stays
    is differentiated as real numbers are.
    Exact: the same numbers.
    """
    if op.declared not in (prims.REAL_PART, prims.IMAG_PART):
        return None
    made = op.operands[0].made_by(prims.FROM_PARTS)
    return None if made is None else made.operands[op.declared is prims.IMAG_PART]


# ---- indices ------------------------------------------------------------------------------------


@rule(prims.DYNAMIC_SLICE, prims.DYNAMIC_UPDATE)
def start_of_whole_axis(op: Op, emit: Emitter) -> Value | None:
    """A slice of a whole axis  ->  one that starts at 0

    Exact: starts are in range (an `index_check` that would stop the program stays), and 0 is the only one in range.
    """
    sizes = op.attrs["sizes"] if op.declared is prims.DYNAMIC_SLICE else op.operands[1].tensor.shape
    given = op.operands[1:] if op.declared is prims.DYNAMIC_SLICE else op.operands[2:]
    extents = op.operands[0].tensor.shape
    starts = [
        emit.full(start.tensor, 0) if size == extent and number_of(start) is None else start
        for start, size, extent in zip(given, sizes, extents, strict=True)
    ]
    if all(new is old for new, old in zip(starts, given, strict=True)):
        return None
    return emit.emit(op.declared, [*op.operands[: -len(starts)], *starts], **op.attrs)


@rule(prims.INDEX_CHECK)
def index_known_to_fit(op: Op, emit: Emitter) -> Value | None:
    """An index whose range is within the extent, with room for the window behind it  ->  the index without a check

    Exact: ranges are those of integers that do not wrap around; an index below 0 would be counted from the end, and
    stays.
    """
    (index,) = op.operands
    extent = op.attrs["extent"]
    found = emit.ranges.of(index)
    width = op.attrs.get("width", 1)
    if (
        found is None
        or not isinstance(extent, int)
        or not isinstance(width, int)
        or not 0 <= found[0] <= found[1] <= extent - width
    ):
        return None
    return index if index.type == op.result.type else None


@rule(prims.DYNAMIC_SLICE)
def read_what_was_written(op: Op, emit: Emitter) -> Value | None:
    """dynamic_slice(dynamic_update(x, u, start), start)  ->  u, where all of u is read

    Exact: elements are copied; both starts are the same values.
    """
    x, *start = op.operands
    update = x.made_by(prims.DYNAMIC_UPDATE)
    if update is None or list(update.operands[2:]) != start or update.operands[1].type != op.result.type:
        return None
    return update.operands[1]


@rule(prims.STOP_GRADIENT, prims.QUANTIZED_LAYER)
def forget_stop_gradient(op: Op, emit: Emitter) -> Value | None:
    """stop_gradient(x), quantized_layer(x)  ->  x, where no transform is left that would ask

    Exact: it is x; only derivatives see a difference.
    """
    return None if emit.transforms else op.operands[0]
