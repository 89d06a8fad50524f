"""The gradient of a convolution with respect to the image in two steps, as C text.

First a plain product: columns[(c, ky, kx), pixel of y] = sum over o of weight[o, c, ky, kx] * d_y[o, pixel]. Then each
pixel of d_x adds up the columns of the taps that met it. No product with padding or with the gaps of a stride is ever
computed, so this is the better form for strides, and for images that are small beside the weights; conv2d.py weighs the
two against each other.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from staged.backends.cpu.contraction.items import over_items
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import TileCalls
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import (
    TileChoice,
    choose_tile,
    each_piece,
)
from staged.backends.cpu.contraction.vectors import Vector, copied, index_name, vector_of, zeroed
from staged.code.writer import Writer
from staged.ir.machine import Machine
from staged.ir.products import chain_of

MOST_SUMS = 12  # vectors of one row of d_x that are added up side by side


@dataclass(frozen=True, slots=True)
class Piece:
    """One vector of a row of d_x: pixels `phase + stride * j` for j from `first` on."""

    phase: int
    first: int
    count: int  # of its lanes that are pixels


@dataclass(frozen=True, slots=True)
class ColumnsPlan:
    """Everything decided about the two steps before text is written. Channels are per group."""

    spec: Conv2dSpec
    vector: Vector
    channels: int  # of a work item
    tile: TileChoice
    cycles: float

    @property
    def taps(self) -> int:
        return self.spec.kh * self.spec.kw

    @property
    def pixels(self) -> int:
        return self.spec.out_h * self.spec.out_w

    @property
    def padded_pixels(self) -> int:
        """Length of a row of columns: whole vectors."""
        return -(-self.pixels // self.vector.lanes) * self.vector.lanes

    @property
    def blocks(self) -> int:
        return self.spec.c // self.spec.groups // self.channels

    @property
    def margin(self) -> int:
        """Items before and after the columns that vectors at the edges of rows may read, and whose lanes are then
        cleared.
        """
        reach = max(abs(self.shift(kx, phase)) for phase in range(self.spec.stride[1]) for kx in self.taps_of(phase))
        reach = max(reach, self.spec.w + self.vector.lanes)
        return -(-(reach + self.vector.lanes) // 16) * 16

    @property
    def gradient_items(self) -> int:
        """The copy of d_y with rows of whole vectors, where they are not."""
        return self.spec.oc // self.spec.groups * self.padded_pixels if self.padded_pixels != self.pixels else 0

    @property
    def column_items(self) -> int:
        return self.channels * self.taps * self.padded_pixels

    @property
    def plane_items(self) -> int:
        """A channel of d_x; vectors may be stored a little beyond its last row."""
        return -(-(self.spec.h * self.spec.w + self.vector.lanes) // 16) * 16

    @property
    def scratch_items(self) -> int:
        return self.plane_items + 2 * self.margin + self.column_items + self.gradient_items

    def taps_of(self, phase: int) -> list[int]:
        """The columns kx of the weights that meet pixels of the given remainder by the horizontal stride."""
        spec = self.spec
        return [kx for kx in range(spec.kw) if (phase + spec.padding[1] - kx * spec.dilation[1]) % spec.stride[1] == 0]

    def shift(self, kx: int, phase: int) -> int:
        """Column of y that meets pixel number 0 of the phase through tap kx."""
        spec = self.spec
        return (phase + spec.padding[1] - kx * spec.dilation[1]) // spec.stride[1]

    def pieces(self) -> list[Piece]:
        found = []
        for phase in range(min(self.spec.stride[1], self.spec.w)):
            width = -(-(self.spec.w - phase) // self.spec.stride[1])
            for first in range(0, width, self.vector.lanes):
                found.append(Piece(phase, first, min(self.vector.lanes, width - first)))
        return found

    def lanes_inside(self, piece: Piece, kx: int) -> list[bool]:
        """For each lane of a piece, whether it meets a pixel of y through tap kx."""
        start = piece.first + self.shift(kx, piece.phase)
        return [0 <= start + lane < self.spec.out_w and lane < piece.count for lane in range(self.vector.lanes)]


def plan_columns(spec: Conv2dSpec, machine: Machine) -> ColumnsPlan | None:
    """A plan with its estimated cycles for all samples; None where rows are too long for this form."""
    vector = vector_of(machine, spec.dtype)
    size = spec.dtype.size
    c, oc = spec.c // spec.groups, spec.oc // spec.groups
    taps, pixels = spec.kh * spec.kw, spec.out_h * spec.out_w
    limit = max(1, machine.l2 // 3 // (taps * pixels * size))
    if machine.cores > 1 and spec.n * spec.groups < 4 * machine.cores and spec.multiply_adds > 500_000:
        limit = min(limit, max(1, c * spec.n * spec.groups // (4 * machine.cores)))
    channels = max(divisor for divisor in range(1, c + 1) if c % divisor == 0 and divisor <= limit)
    tile = choose_tile(
        machine, vector, channels * taps, pixels, oc, aligned=gcd(pixels * size, vector.bytes) == vector.bytes
    )
    plan = ColumnsPlan(spec, vector, channels, tile, 0.0)
    pieces = plan.pieces()
    if len(pieces) > MOST_SUMS:
        return None
    adds = sum(any(plan.lanes_inside(piece, kx)) for piece in pieces for kx in plan.taps_of(piece.phase))
    rows = spec.out_h * spec.kh  # pairs of a row of d_x and a ky that meet
    gather = c * (rows * (adds * 2.0 + 6) + spec.h * (8.0 + 4 * len(pieces)))
    if spec.stride[1] > 1:
        gather += c * spec.h * spec.w * 1.5
    per_sample = tile.cycles * plan.blocks + gather + 500
    return ColumnsPlan(spec, vector, channels, tile, spec.n * spec.groups * per_sample)


def emit_columns(plan: ColumnsPlan) -> ContractionKernel:
    """The C text of the two steps. Numerics: each pixel adds up to kh * kw sums over the channels of y, in ascending
    order of taps.
    """
    return _Emitter(plan).emit()


def names_of_sums(count: int) -> list[str]:
    """The vectors of sums of a row of the image: an array, if they are several."""
    return ["total"] if count == 1 else [f"total[{index}]" for index in range(count)]


class _Emitter:
    def __init__(self, plan: ColumnsPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.vector = plan.vector
        self.text = Writer()
        self.tiles = TileCalls(plan.spec.name)

    def emit(self) -> ContractionKernel:
        plan, spec, t = self.plan, self.spec, self.text
        self.emit_add_up()
        notes = [
            f"conv2d, gradient of x: d_y ({spec.n}, {spec.oc}, {spec.out_h}, {spec.out_w}), "
            f"weight ({spec.oc}, {spec.c // spec.groups}, {spec.kh}, {spec.kw}) -> "
            f"({spec.n}, {spec.c}, {spec.h}, {spec.w}), {spec.dtype}",
            f"a work item is {plan.channels} channels of a sample: first the products with d_y, then what meets in "
            "a pixel is added up",
        ]
        items = spec.n * spec.groups * plan.blocks
        made = over_items(
            spec,
            self.vector,
            t,
            notes,
            self.emit_item,
            items,
            plan.scratch_items,
            tiles=self.tiles,
        )
        size = 0 if spec.images is None else spec.images.n * (items // spec.n)
        return replace(made, column_step=spec.h * spec.w, items_size=size)

    # ---- adding up -----------------------------------------------------------------------------

    def emit_add_up(self) -> None:
        t, plan, vector, spec = self.text, self.plan, self.vector, self.spec
        scalar, integers = vector.scalar, index_name(vector)
        pieces = plan.pieces()
        sums = names_of_sums(len(pieces))
        t.line("// one channel of d_x: to each pixel come the columns of the taps that met it")
        with t.function(
            f"static __attribute__((noinline)) void {spec.name}_add_up",
            [f"const {scalar} *restrict columns", f"{scalar} *restrict plane"],
        ):
            masks: dict[tuple[bool, ...], str] = {}
            for piece in pieces:
                for kx in plan.taps_of(piece.phase):
                    lanes = tuple(plan.lanes_inside(piece, kx))
                    if any(lanes) and not all(lanes[: piece.count]) and lanes not in masks:
                        masks[lanes] = f"inside_{len(masks)}"
                        values = ", ".join("-1" if inside else "0" for inside in lanes)
                        t.line(f"const {integers} {masks[lanes]} = {{{values}}};")
            with t.block(f"for (int64_t y = 0; y < {spec.h}; ++y)"):
                if len(pieces) == 1:
                    t.line(f"{vector.name} total = {{0}};")
                else:
                    t.line(f"{vector.name} total[{len(pieces)}];")
                    with t.unrolled(len(pieces), f"for (int64_t i = 0; i < {len(pieces)}; ++i)"):
                        t.line(f"total[i] = ({vector.name}){{0}};")
                with t.block(f"for (int64_t ky = 0; ky < {spec.kh}; ++ky)"):
                    below = added("y", str(spec.padding[0])) if spec.padding[0] else "y"
                    t.line(f"const int64_t meets = {below} - {times(spec.dilation[0], 'ky')};")
                    sy = spec.stride[0]
                    guard = f"meets < 0 || meets >= {spec.out_h * sy}" + (f" || meets % {sy} != 0" if sy > 1 else "")
                    with t.block(f"if ({guard})"):
                        t.line("continue;")
                    row = "meets" if sy == 1 else f"(meets / {sy})"
                    start = added("columns", times(spec.kw * plan.padded_pixels, "ky"), times(spec.out_w, row))
                    t.line(f"const {scalar} *const from = {start};")
                    for index, piece in enumerate(pieces):
                        for kx in plan.taps_of(piece.phase):
                            lanes = tuple(plan.lanes_inside(piece, kx))
                            if not any(lanes):
                                continue
                            offset = kx * plan.padded_pixels + piece.first + plan.shift(kx, piece.phase)
                            load = vector.load(
                                "from" if offset == 0 else f"from {'+' if offset > 0 else '-'} {abs(offset)}"
                            )
                            if lanes in masks:
                                load = f"({vector.name})(({integers}){load} & {masks[lanes]})"
                            t.line(f"{sums[index]} += {load};")
                self.emit_row(pieces)
        t.line()

    def emit_row(self, pieces: list[Piece]) -> None:
        """Stores a finished row; a vector may overrun it, and the next row is stored after it."""
        t, vector, spec = self.text, self.vector, self.spec
        sums = names_of_sums(len(pieces))
        if spec.stride[1] == 1:
            for index, piece in enumerate(pieces):
                address = added("plane", times(spec.w, "y"), str(piece.first))
                t.line(f"{vector.store(address)} = {sums[index]};")
            return
        t.line(f"{vector.scalar} lanes[{len(pieces) * vector.lanes}] __attribute__((aligned({vector.bytes})));")
        for index in range(len(pieces)):
            t.line(f"{vector.store(f'lanes + {index * vector.lanes}')} = {sums[index]};")
        for index, piece in enumerate(pieces):
            start = piece.phase + piece.first * spec.stride[1]
            with t.block(f"for (int64_t j = 0; j < {piece.count}; ++j)"):
                place = added(times(spec.w, "y"), str(start), times(spec.stride[1], "j"))
                t.line(f"plane[{place}] = lanes[{added(str(index * vector.lanes), 'j')}];")

    # ---- the items -----------------------------------------------------------------------------

    def emit_item(self) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        scalar, blocks, groups = self.vector.scalar, plan.blocks, spec.groups
        oc, image = spec.oc // groups, spec.h * spec.w
        per_sample = blocks * groups
        t.line(f"const int64_t batch = {'item' if per_sample == 1 else f'item / {per_sample}'};")
        # the first channel of the item, counted over all groups
        first = "0" if per_sample == 1 else "first"
        if per_sample > 1:
            t.line(f"const int64_t first = {times(plan.channels, f'(item % {per_sample})')};")
        gradient, weights = spec.operand_names
        gradient = added(gradient, times(spec.oc * plan.pixels, "batch"))
        if groups > 1:
            t.line(f"const int64_t group = {'item' if blocks == 1 else f'item / {blocks}'} % {groups};")
            c = spec.c // groups
            weights = added(weights, times((oc - 1) * c * plan.taps, "group"), times(plan.taps, first))
            gradient = added(gradient, times(oc * plan.pixels, "group"))
        else:
            weights = added(weights, times(plan.taps, first))
        t.line(f"const {scalar} *const weights = {weights};")
        t.line(f"{scalar} *const plane = scratch;")
        t.line(f"{scalar} *const columns = scratch + {plan.plane_items + plan.margin};")
        if plan.gradient_items:
            t.line(f"{scalar} *const d_y = scratch + {plan.plane_items + 2 * plan.margin + plan.column_items};")
            with t.block(f"for (int64_t k = 0; k < {oc}; ++k)"):
                rest = plan.padded_pixels - plan.pixels
                padded, source = f"d_y + k * {plan.padded_pixels}", f"{gradient} + {times(plan.pixels, 'k')}"
                t.line(copied(self.vector, padded, source, plan.pixels))
                t.line(zeroed(self.vector, f"{padded} + {plan.pixels}", rest))
        else:
            t.line(f"const {scalar} *const d_y = {gradient};")
        sizes = plan.tile.rows.sizes
        with each_piece(t, "row", plan.tile.rows) as rows:
            pixel = 0
            for vectors, count in plan.tile.vectors.counted():
                full = vectors * self.vector.lanes
                with t.block(f"for (int64_t pixel = {pixel}; pixel < {pixel + full * count}; pixel += {full})"):
                    target = added("columns", times(plan.padded_pixels, "row"), "pixel")
                    large, *smaller = (ProductTile(self.vector, size, vectors) for size in sizes)
                    arguments = {
                        "a": "weights + row", "a_row": "1", "a_step": str(spec.c // groups * plan.taps),
                        "b": "d_y + pixel", "b_step": str(plan.padded_pixels), "steps": str(oc),
                        "chain": str(chain_of(oc)), "c": target, "c_row": str(plan.padded_pixels),
                        "adds": "false",
                    }  # fmt: skip
                    is_shared, is_large = large.is_shared(oc), f"{rows} == {large.rows}"
                    t.statement(
                        self.tiles.call(
                            large, is_shared, arguments, smaller=next(iter(smaller), None), is_large=is_large
                        )
                    )
                pixel += full * count
        with t.block(f"for (int64_t channel = 0; channel < {plan.channels}; ++channel)"):
            t.line(f"{spec.name}_add_up(columns + {times(plan.taps * plan.padded_pixels, 'channel')}, plane);")
            channel = added(first, "channel")
            if spec.epilogue is not None:
                names = spec.epilogue.passed
                t.statement(f"{spec.epilogue.function}(batch, {channel}, 0, 1, {image}, plane, {image}{names});")
            else:
                place = f"({channel})" if "+" in channel else channel
                target = added(spec.result_name, times(spec.c * image, "batch"), times(image, place))
                t.line(copied(self.vector, target, "plane", image))
