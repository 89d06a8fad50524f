"""The gradient of a convolution with respect to its weights, as C text.

d_weight[o, (c, ky, kx)] is the product of d_y's channel `o` with the image's channel `c` shifted by the tap, summed
over all pixels and samples. Both run along memory by pixels, so a register tile is a few channels of d_y by a few taps,
each a vector of partial sums over pixels; at the end of a block the lanes are added up.

A work item is a block of weights and goes through all samples, so items are independent, and a sum never depends on
which thread computed what.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from staged.backends.cpu.contraction.items import Table, finished, kernel_with_sizes
from staged.backends.cpu.contraction.planes import (
    Window,
    flattened,
    forward_window,
    is_plain,
    planes_support,
    window_value,
)
from staged.backends.cpu.contraction.product_tile import SHARED_STEPS
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec
from staged.backends.cpu.contraction.tile import Split, split_evenly
from staged.backends.cpu.contraction.vectors import Vector, snippet_of, vector_of
from staged.backends.cpu.contraction.weight_tile import (
    MOST_TAPS,
    SHARED_VECTORS,
    SIZED_WEIGHTS,
    WeightTile,
    weights_support,
)
from staged.code.expr import Cast, Expr, Member, Name, Prefix, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Assign, Declare, Do, For, Statement
from staged.code.types import INDEX, word
from staged.ir.machine import Machine

VECTORS_PER_BLOCK = 64  # pixels, in vectors, between two additions of lanes: enough to make these cheap


@dataclass(frozen=True, slots=True)
class TapGroup:
    """Columns of a tile: taps of `channels` consecutive channels, rows ky .. ky + rows, columns kx .. kx + cols of the
    weights.
    """

    channels: int
    ky: int
    rows: int
    kx: int
    cols: int


@dataclass(frozen=True, slots=True)
class WeightPlan:
    """Everything decided about a weight gradient before text is written. Channels are per group."""

    spec: Conv2dSpec
    vector: Vector
    window: Window
    blocks: Split  # result rows of a block
    samples: int  # laid out together, where a block is a whole image
    channels: Split  # image channels of a work item
    outer_blocks: int  # work items that share the channels of d_y, in equal parts
    outer: Split  # those of one item, as rows of tiles
    groups: tuple[TapGroup, ...]  # all taps of one channel, or of several
    leftover: tuple[TapGroup, ...]  # for the channels that remain when groups take several
    room: int = 0  # items of planes and d_y, if the program finds the size of images

    @property
    def rows(self) -> int:
        return self.blocks.large

    @property
    def is_short(self) -> bool:
        """Return whether pixels of planes are used so rarely that a kernel needs constants to fill planes fast."""
        return not self.is_copy and self.spec.oc // self.spec.groups * self.spec.kh < SHARED_STEPS // 2

    @property
    def is_copy(self) -> bool:
        """Return whether the planes are a copy of the image."""
        return is_plain(self.window) and self.rows == self.window.out[0] and not self.room

    @property
    def block_pixels(self) -> int:
        return self.rows * self.window.out[1]

    @property
    def needs_tail(self) -> bool:
        return any(rows * self.window.out[1] % self.vector.lanes for rows in self.blocks.sizes)

    @property
    def padded_pixels(self) -> int:
        return -(-self.block_pixels // self.vector.lanes) * self.vector.lanes

    @property
    def image_items(self) -> int:
        """The planes of one sample."""
        return self.channels.large * self.window.channel_items(self.rows)

    @property
    def outer_channels(self) -> int:
        """Channels of d_y of a work item."""
        return self.spec.oc // self.spec.groups // self.outer_blocks

    @property
    def gradient_items(self) -> int:
        """The copy of one sample's d_y with padded rows, where it is needed."""
        return self.outer_channels * self.padded_pixels if self.needs_tail else 0

    @property
    def layout_items(self) -> int:
        """Planes and d_y of the samples laid out together, and what the last vector reads beyond."""
        items = self.room or self.samples * (self.image_items + self.gradient_items)
        items += self.vector.lanes
        return -(-items // 16) * 16

    @property
    def sum_items(self) -> int:
        """The item's sums, where an epilogue takes them; else they are formed in the result."""
        return self.outer_channels * self.sum_row if self.spec.epilogue is not None else 0

    @property
    def sum_row(self) -> int:
        """Distance of output channels in the sums."""
        channels = self.channels.large if self.spec.epilogue is not None else self.spec.c // self.spec.groups
        return channels * self.spec.kh * self.spec.kw

    def tile_function(self, tile: WeightTile, offsets: Sequence[int]) -> Snippet:
        """The function of a tile; that of a small image has constant sizes."""
        if self.room or self.blocks.count > 1 or self.block_pixels >= SHARED_VECTORS * self.vector.lanes:
            return shared_function(tile)
        window = self.window
        sizes = (self.spec.kh, self.spec.kw), window.out, (window.stride[0], window.dilation[0])
        geometry = "_".join(f"{height}x{width}" for height, width in sizes if (height, width) != (1, 1))
        constants = {"d_y_row": self.padded_pixels, "pixels": self.block_pixels}
        return fixed_function(f"{tile.name}_{geometry}", tile, constants, "offset", offsets[: tile.taps])

    @property
    def work_items(self) -> int:
        return self.spec.groups * self.outer_blocks * self.channels.count


def plan_backward_weight(spec: Conv2dSpec, machine: Machine) -> WeightPlan:
    vector = vector_of(machine, spec.dtype)
    size = spec.dtype.size
    window = forward_window(spec)
    c, oc = spec.c // spec.groups, spec.oc // spec.groups
    height, width = window.out

    rows = height
    if height * width > 2 * VECTORS_PER_BLOCK * vector.lanes:
        wanted = max(1, -(-VECTORS_PER_BLOCK * vector.lanes // width))
        near = {split_evenly(height, r).large for r in range(max(1, wanted // 2), wanted * 2 + 1)}
        rows = min(near, key=lambda r: (_waste(r, height, width, vector), abs(r - wanted), r))
    is_sized = spec.images is not None and not spec.images.have_one_size
    if not is_sized:
        window, rows = flattened(window, rows)
    height, width = window.out
    blocks = split_evenly(height, rows)

    limit = machine.l2 // 2 // size
    block_pixels = min(height * width, 2 * VECTORS_PER_BLOCK * vector.lanes + width) if is_sized else 0
    planes = window.channel_items(rows)
    if is_sized:  # of all blocks that the program may choose
        planes = window.taps[1] * len(window.phases) * (block_pixels + window.halo * width)
    most_channels = max(1, limit // max(1, planes))
    registers = machine.vector_registers - (1 if machine.fma else 2)
    shared = machine.cores > 1 and spec.multiply_adds > 500_000
    if shared:
        most_channels = min(most_channels, max(1, c * spec.groups // (2 * machine.cores)))
    channels = split_evenly(c, most_channels)
    samples = 1
    if rows == height:
        per_sample = channels.large * window.channel_items(rows) + oc * height * width
        # half as many will do here: then planes and d_y of the samples stay in the first-level cache
        wanted = max(1, -(-VECTORS_PER_BLOCK // 2 * vector.lanes // (height * width)))
        samples = max(1, min(spec.n, wanted, limit // per_sample))

    groups, leftover = tap_groups(spec, channels.large, registers)
    columns = max(g.channels * g.rows * g.cols for g in groups)
    most_rows = max(1, registers // (columns + 1))
    outer_blocks = 1
    if shared and spec.groups * channels.count < 2 * machine.cores:
        # an image channel is laid out again for every part of d_y's channels: only where there are too few of them
        parts = min(max(1, oc // most_rows), 2 * machine.cores)
        outer_blocks = max(count for count in range(1, parts + 1) if oc % count == 0)
    outer = split_evenly(oc // outer_blocks, most_rows)
    room = 0
    if is_sized:
        padded = block_pixels + vector.lanes
        room = max(limit, channels.large * planes + oc // outer_blocks * padded)
    return WeightPlan(spec, vector, window, blocks, samples, channels, outer_blocks, outer, groups, leftover, room)


def _waste(rows: int, height: int, width: int, vector: Vector) -> float:
    """Lanes without a pixel, and rows laid out twice, per row of the image."""
    lanes = vector.lanes
    tails = sum(
        count * (-(-r * width // lanes) * lanes - r * width) for r, count in split_evenly(height, rows).counted()
    )
    return tails / (height * width) + 0.2 / rows


def tap_groups(spec: Conv2dSpec, channels: int, registers: int) -> tuple[tuple[TapGroup, ...], tuple[TapGroup, ...]]:
    """The split of the taps into tile columns: all taps of several channels, of one channel, or a row of taps, or a
    part of one.
    """
    taps = spec.kh * spec.kw
    most = MOST_TAPS if registers >= 24 else 4
    if taps * 2 <= min(most, 6) and channels > 2:
        several = min(channels - 1, min(most, 6) // taps)
        # blocks of channels differ by one, so the channels that remain are taken one by one
        return (TapGroup(several, 0, spec.kh, 0, spec.kw),), (TapGroup(1, 0, spec.kh, 0, spec.kw),)
    if taps <= most:
        return (TapGroup(1, 0, spec.kh, 0, spec.kw),), ()
    groups = []
    for ky in range(spec.kh):
        kx = 0
        for cols, count in split_evenly(spec.kw, min(most, 7)).counted():
            for _ in range(count):
                groups.append(TapGroup(1, ky, 1, kx, cols))
                kx += cols
    return tuple(groups), ()


def emit_backward_weight(spec: Conv2dSpec, machine: Machine) -> ContractionKernel:
    """The kernel; the epilogue gets a work item's weights at once: rows are output channels, columns (c, ky, kx)."""
    plan = plan_backward_weight(spec, machine)
    vector = plan.vector
    column_step = gcd(*(size * spec.kh * spec.kw for size in plan.channels.sizes))

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        item, sums = Variable("item", INDEX), Variable("sums", word(f"st_weight_sums_{vector.dtype}"))
        x, d_y, scratch = (parameters[name] for name in (*spec.operand_names, "scratch"))
        result = parameters[spec.result_name] if spec.epilogue is None else Name("NULL")
        declared: tuple[Statement, ...] = ()
        if spec.images is not None:
            here, images = Variable("here", word(f"st_weights_{vector.dtype}")), spec.images
            if plan.room:
                numbers = [spec.number(extent, parameters) for extent in (images.n, *images.image, *images.out)]
                made = call(f"st_size_weights_{vector.dtype}", sizes, *numbers, Name(str(plan.room)), Prefix("&", here))
                declared = Declare(here, is_const=False), Do(made)
            else:
                count = Assign(Member(here, "samples", arrow=False), spec.number(images.n, parameters))
                declared = Declare(here, Prefix("*", sizes), is_const=False), count
            sizes = Prefix("&", here)
        gradient = call(f"st_gradient_of_weights_{vector.dtype}", sizes, item, x, d_y, scratch, result)
        place: list[str | int] = [0, *"row column rows columns sums sums_row".split()]
        finish = finished(spec, parameters, sums, place, column_step)
        inside: tuple[Statement, ...] = (Declare(sums, gradient), *finish) if finish else (Do(Cast("void", gradient)),)
        return (*declared, For(item, parameters["begin"], parameters["end"], inside))

    table, tiles = _sizes(plan)
    support = [snippet for _, snippet in (*planes_support(vector), *weights_support(vector))]
    if plan.room:
        pixels = {"$PIXELS": VECTORS_PER_BLOCK * vector.lanes}
        support.append(snippet_of(vector, "sized_weights", SIZED_WEIGHTS, pixels))
    return kernel_with_sizes(
        spec,
        vector,
        plan.work_items,
        plan.layout_items + plan.sum_items,
        table,
        body,
        [*support, *tiles],
        is_shared=bool(plan.room) or not plan.is_short,
        column_step=column_step,
    )


def _sizes(plan: WeightPlan) -> tuple[Table, list[Snippet]]:
    """The sizes of a kernel, and the functions of its tiles."""
    spec, window, vector, outer = plan.spec, plan.window, plan.vector, plan.outer
    several = plan.groups[0].channels
    taps = [_taps(group) for group in (*plan.groups, *plan.leftover)]
    tiles = [[WeightTile(vector, rows, count) for rows in outer.sizes] for count in sorted({*taps}, reverse=True)]
    run = [count for group, count in zip(plan.groups, taps, strict=False) if group.ky == 0]
    offsets = _tap_offsets(plan)
    functions = [[plan.tile_function(tile, offsets) for tile in row] for row in tiles]
    named = ", ".join(f"{{{', '.join(function.name for function in row)}}}" for row in functions)
    planes = {} if plan.is_copy else {
        "top": -window.padding[0], "halo": window.halo, "phases": len(window.phases),
        "phase_step": window.phase_step, "dilation": window.dilation[0],
    }  # fmt: skip
    x, weight, y = spec.shapes
    table = Table(
        spec.table,
        f"st_weights_{vector.dtype}",
        f"x {x}, d_y {y}, weight {weight}",
        {
            "window": window_value(window, plan.rows, plan.is_copy),
            "is_plain": "true" if plan.is_copy else 0, **planes,
            "samples": spec.n, "together": plan.samples, "groups": spec.groups,
            "channels": plan.channels.extent, "channel_blocks": plan.channels.count,
            "d_y_channels": spec.oc // spec.groups, "rows": plan.outer_channels, "height": window.out[0],
            "row_blocks": plan.blocks.count, "padded": plan.padded_pixels if plan.needs_tail else 0,
            "taps": spec.kh * spec.kw, "row_taps": sum(run) // several, "row_tiles": outer.count,
            "tile_channels": several, "tile_taps": taps[0] // several, "tile": f"{{{named}}}",
            "sums": plan.layout_items if plan.sum_items else 0, "sums_row": plan.sum_row,
        },
    )  # fmt: skip
    inline = [tile.snippet for row in tiles for tile in row]
    return table, [*inline, *(function for row in functions for function in row)]


def _taps(group: TapGroup) -> int:
    return group.channels * group.rows * group.cols


def _tap_offsets(plan: WeightPlan) -> list[int]:
    """Offsets of the taps of a tile's channels in the planes; weights of one row follow one another."""
    window, rows = plan.window, plan.rows
    return [
        channel * window.channel_items(rows) + window.tap_offset(ky, kx, rows)
        for channel in range(plan.groups[0].channels)
        for ky in range(plan.spec.kh)
        for kx in range(plan.spec.kw)
    ]
