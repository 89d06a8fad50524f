"""The gradient of a convolution with respect to its weights, as C text.

d_weight[o, (c, ky, kx)] is the product of d_y's channel `o` with the image's channel `c` shifted by the tap, summed
over all pixels and samples. Both run along memory by pixels, so a register tile is a few channels of d_y by a few taps,
each a vector of partial sums over pixels; at the end of a block the lanes are added up.

A work item is a block of weights and goes through all samples, so items are independent, and a sum never depends on
which thread computed what.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from staged.backends.cpu.contraction.items import over_items
from staged.backends.cpu.contraction.planes import Window, emit_planes, emit_sizes, forward_window, planes_support
from staged.backends.cpu.contraction.shared_tiles import TileCalls, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import Split, each, emit_constant, emit_rows_of_block, split_evenly
from staged.backends.cpu.contraction.vectors import (
    Vector,
    copied,
    vector_of,
    zeroed,
)
from staged.backends.cpu.contraction.weight_tile import SHARED_VECTORS, WeightTile, weights_support
from staged.code.writer import Writer
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

    @property
    def rows(self) -> int:
        return self.blocks.large

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
        items = self.samples * (self.image_items + self.gradient_items) + self.vector.lanes
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
    blocks = split_evenly(height, rows)

    limit = machine.l2 // 2 // size
    most_channels = max(1, limit // max(1, window.channel_items(rows)))
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
    return WeightPlan(spec, vector, window, blocks, samples, channels, outer_blocks, outer, groups, leftover)


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
    most = 9 if registers >= 24 else 4
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
    """The C text; the epilogue gets a work item's weights at once: rows are output channels, columns (c, ky, kx)."""
    return _Emitter(plan_backward_weight(spec, machine)).emit()


class _Emitter:
    def __init__(self, plan: WeightPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.vector = plan.vector
        self.text = Writer()
        self.tiles = TileCalls(plan.spec.name)

    def emit(self) -> ContractionKernel:
        plan, spec, t = self.plan, self.spec, self.text
        notes = [
            f"conv2d, gradient of the weight: x ({spec.n}, {spec.c}, {spec.h}, {spec.w}), "
            f"d_y ({spec.n}, {spec.oc}, {spec.out_h}, {spec.out_w}) -> "
            f"({spec.oc}, {spec.c // spec.groups}, {spec.kh}, {spec.kw}), {spec.dtype}"
        ]
        scratch_items = plan.layout_items + plan.sum_items
        support = planes_support(self.vector)
        items = (plan.work_items, scratch_items)
        return over_items(spec, self.vector, t, notes, self.emit_item, *items, more=support, tiles=self.tiles)

    @property
    def columns(self) -> int:
        """Weights per output channel."""
        spec = self.spec
        return spec.c // spec.groups * spec.kh * spec.kw

    def tap_offsets(self, group: TapGroup) -> list[int]:
        """Offsets of the group's taps in the planes, from the first of them; weights of one row follow one another."""
        window, rows = self.plan.window, self.plan.rows
        first = window.tap_offset(group.ky, group.kx, rows)
        return [
            channel * window.channel_items(rows) + window.tap_offset(ky, kx, rows) - first
            for channel in range(group.channels)
            for ky in range(group.ky, group.ky + group.rows)
            for kx in range(group.kx, group.kx + group.cols)
        ]

    def gradient_row(self) -> int:
        """Distance of channels of d_y as a tile reads them."""
        plan = self.plan
        return plan.padded_pixels if plan.needs_tail else plan.window.out[0] * plan.window.out[1]

    def gradient_sample(self) -> int:
        plan, spec = self.plan, self.spec
        return plan.gradient_items if plan.needs_tail else spec.oc * plan.window.out[0] * plan.window.out[1]

    # ---- the items -----------------------------------------------------------------------------

    @property
    def is_shared(self) -> bool:
        """Return whether the tiles are functions that other kernels use, too."""
        return self.plan.block_pixels >= SHARED_VECTORS * self.vector.lanes

    def emit_sizes(self) -> None:
        """The definition of `sizes`, with the shared tiles that compute the weights."""
        t, plan, spec, vector = self.text, self.plan, self.spec, self.vector
        several, outer = plan.groups[0].channels, plan.outer
        taps = [len(self.tap_offsets(group)) for group in (*plan.groups, *plan.leftover)]
        tiles = [[WeightTile(vector, rows, count) for rows in outer.sizes] for count in sorted(set(taps), reverse=True)]
        for tile in (tile for row in tiles for tile in row):
            self.tiles.functions += [("", tile.snippet), ("", shared_function(tile))]
        self.tiles.functions += weights_support(vector)
        run = [count for group, count in zip(plan.groups, taps, strict=False) if group.ky == 0]
        named = ", ".join(f"{{{', '.join(tile.name for tile in row)}}}" for row in tiles)
        every = self.tap_offsets(TapGroup(several, 0, spec.kh, 0, spec.kw))
        t.statement(f"static const int64_t offset[{len(every)}] = {{{', '.join(map(str, every))}}};")
        lines: list[dict[str, object]] = [
            {"offset": "offset", "rows": plan.outer_channels, "taps": spec.kh * spec.kw,
             "row_taps": sum(run) // several, "wide_taps": sum(n for n in run if n == taps[0]) // several},
            {"tile_rows": outer.large, "tile_channels": several, "tile_taps": taps[0] // several,
             "large_rows": outer.large * outer.large_count},
            {"tile": f"{{{named}}}"},
            {"plane_channel": plan.window.channel_items(plan.rows), "plane_sample": plan.image_items,
             "d_y_row": self.gradient_row(), "d_y_sample": self.gradient_sample(), "sums_row": plan.sum_row},
        ]  # fmt: skip
        emit_constant(t, f"st_weights_{vector.dtype} sizes", lines)

    @property
    def offsets(self) -> str:
        """The table of the offsets of a tile's taps; a smaller group of taps has the first of them."""
        every = [self.tap_offsets(group) for group in (*self.plan.groups, *self.plan.leftover)]
        longest = max(every, key=len)
        assert all(offsets == longest[: len(offsets)] for offsets in every), "groups of taps have their own offsets"
        return f"static const int64_t offset[{len(longest)}] = {{{', '.join(map(str, longest))}}};"

    def emit_item(self) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        scalar = self.vector.scalar
        c, oc = spec.c // spec.groups, spec.oc // spec.groups
        inner, blocks = plan.channels.count, plan.outer_blocks
        emit_sizes(t, plan.window, plan.rows)
        if self.is_shared:
            self.emit_sizes()
        group = "0"
        if spec.groups > 1:
            group = "group"
            t.line(f"const int64_t group = {'item' if inner * blocks == 1 else f'item / {inner * blocks}'};")
        first_outer = "0"
        if blocks > 1:
            part = "item" if inner == 1 else f"item / {inner}"
            part = f"({part} % {blocks})" if spec.groups > 1 else f"({part})" if inner > 1 else part
            first_outer = "first_outer"
            t.line(f"const int64_t first_outer = {times(plan.outer_channels, part)};")
        first_channel, channels_here = "0", str(c)
        if inner > 1:
            block = "item"
            if spec.groups * blocks > 1:
                block = "channel_block"
                t.line(f"const int64_t channel_block = item % {inner};")
            first_channel, channels_here = "first_channel", self.emit_channels(plan.channels, block)
        taps = spec.kh * spec.kw
        row = added(times(oc, group), first_outer)
        if spec.epilogue is None:
            place = f"({row})" if "+" in row else row
            first = added(spec.result_name, times(self.columns, place), times(taps, first_channel))
            t.line(f"{scalar} *const sums = {first};")
        else:
            t.line(f"{scalar} *const sums = scratch + {plan.layout_items};")
        row_items = times(taps, channels_here)
        if row_items == str(plan.sum_row):
            t.line(zeroed(self.vector, "sums", plan.outer_channels * plan.sum_row))
        else:
            with each(t, "row", str(plan.outer_channels)) as number:
                t.line(zeroed(self.vector, added("sums", times(plan.sum_row, number)), row_items))
        self.emit_samples(group, first_outer, first_channel, channels_here)
        if spec.epilogue is not None:
            names = spec.epilogue.passed
            shape = f"{plan.outer_channels}, {times(taps, channels_here)}, sums, {plan.sum_row}"
            t.statement(f"{spec.epilogue.function}(0, {row}, {times(taps, first_channel)}, {shape}{names});")

    def emit_samples(self, group: str, first_outer: str, first_channel: str, channels_here: str) -> None:
        """The loops over samples and blocks of rows: lay out, then all tiles."""
        t, plan, spec, window = self.text, self.plan, self.spec, self.plan.window
        step = plan.samples
        onwards = "++sample" if step == 1 else f"sample += {step}"
        with t.block(f"for (int64_t sample = 0; sample < {spec.n}; {onwards})"):
            together = str(step)
            if spec.n % step:
                together = "samples"
                t.line(f"const int64_t samples = sample + {step} < {spec.n} ? {step} : {spec.n} - sample;")
            image = window.image[0] * window.image[1]
            loop = f"for (int64_t block = 0; block < {plan.blocks.count}; ++block)"
            with t.block(loop) if plan.blocks.count > 1 else nullcontext():
                first_row, rows_here = emit_rows_of_block(t, plan.blocks)
                d_y = self.emit_layout(
                    together, group, first_outer, first_channel, channels_here, first_row, rows_here, image
                )
                self.emit_tiles(together, d_y, channels_here, rows_here)

    def emit_channels(self, split: Split, block: str) -> str:
        """Lines that find the first channel of a work item; returns how many they are."""
        t, large = self.text, split.large_count
        late = f" - ({block} > {large} ? {block} - {large} : 0)" if split.small_count else ""
        t.line(f"const int64_t first_channel = {times(split.large, block)}{late};")
        if not split.small_count:
            return str(split.large)
        t.line(f"const int64_t channels = {block} < {large} ? {split.large} : {split.large - 1};")
        return "channels"

    def emit_layout(
        self,
        together: str,
        group: str,
        first_outer: str,
        first_channel: str,
        channels: str,
        first_row: str,
        rows_here: str,
        image: int,
    ) -> str:
        """Lays out x, and d_y where its rows need padding. Returns where the tiles find d_y."""
        t, plan, spec, window = self.text, self.plan, self.spec, self.plan.window
        scalar = self.vector.scalar
        c, oc = spec.c // spec.groups, spec.oc // spec.groups
        out = window.out[0] * window.out[1]
        part = [times(oc * out, group), times(out, first_outer), times(window.out[1], first_row)]

        def place(index: str) -> None:
            x = added(
                spec.operand_names[0],
                times(spec.c * image, index),
                times(c * image, group),
                times(image, first_channel),
            )
            target = added("scratch", times(plan.image_items, "s") if together != "1" else "0")
            emit_planes(t, window, self.vector, plan.rows, channels, x, target, first_row, rows_here)
            if not plan.needs_tail:
                return
            y = added(spec.operand_names[1], times(spec.oc * out, index), *part)
            t.line(f"const {scalar} *const from_y = {y};")
            start = str(plan.samples * plan.image_items)
            base = added("scratch", start, times(plan.gradient_items, "s") if together != "1" else "0")
            t.line(f"{scalar} *const padded = {base};")
            with each(t, "row", str(plan.outer_channels)) as number:
                target_row = added("padded", times(plan.padded_pixels, number))
                source, pixels = added("from_y", times(out, number)), str(plan.block_pixels)
                if rows_here == "rows":
                    pixels = "pixels"
                    t.line(f"const int64_t pixels = rows * {window.out[1]};")
                t.line(copied(self.vector, target_row, source, pixels))
                if rows_here == "rows":
                    t.line(zeroed(self.vector, f"{target_row} + pixels", f"{plan.padded_pixels} - pixels"))
                elif plan.padded_pixels > plan.block_pixels:
                    rest = plan.padded_pixels - plan.block_pixels
                    t.line(zeroed(self.vector, f"{target_row} + {plan.block_pixels}", rest))

        if together == "1":
            place("sample")
        else:
            with t.block(f"for (int64_t s = 0; s < {together}; ++s)"):
                place("(sample + s)")
        slack = plan.samples * (plan.image_items + plan.gradient_items)
        if plan.needs_tail:
            comment = "  // read beyond the last plane, then cleared"
            t.line(zeroed(self.vector, f"scratch + {slack}", self.vector.lanes) + comment)
            return added("scratch", str(plan.samples * plan.image_items))
        return added(spec.operand_names[1], times(spec.oc * out, "sample"), *part)

    def emit_tiles(self, together: str, d_y: str, channels: str, rows_here: str) -> None:
        t, plan = self.text, self.plan
        several = plan.groups[0].channels
        pixels = f"rows * {plan.window.out[1]}" if rows_here == "rows" else str(plan.block_pixels)
        if self.is_shared:
            function = f"st_add_weights_{self.vector.dtype}"
            t.statement(f"{function}(&sizes, scratch, {channels}, {d_y}, {together}, {pixels}, sums);")
            return
        t.line(f"const {self.vector.scalar} *const d_y = {d_y};")
        if several == 1:
            with each(t, "channel", channels) as channel:
                self.emit_groups(channel, together, pixels)
            return
        stop = str(int(channels) - several + 1) if channels.isdigit() else f"{channels} - {several - 1}"
        with t.block(f"for (int64_t step, channel = 0; channel < {channels}; channel += step)"):
            t.line(f"step = channel < {stop} ? {several} : 1;")
            self.emit_groups("channel", together, pixels)

    def emit_groups(self, channel: str, together: str, pixels: str) -> None:
        """The tiles of a channel, or of `step` channels, as functions of this kernel."""
        t, plan, spec, window = self.text, self.plan, self.spec, self.plan.window
        row_apart = window.tap_offset(1, 0, plan.rows) if spec.kh > 1 and window.stride[0] == 1 else 0
        for group in plan.groups:
            if row_apart and group.ky > 0:
                continue  # the loop below goes through all rows of weights
            is_repeated = row_apart > 0 and group.rows < spec.kh
            with each(t, "ky", str(spec.kh)) if is_repeated else nullcontext(str(group.ky)) as ky:
                offset = times(row_apart, ky) if is_repeated else str(window.tap_offset(group.ky, 0, plan.rows))
                column = window.tap_offset(0, group.kx, plan.rows)
                planes = added("scratch", times(window.channel_items(plan.rows), channel), offset, str(column))
                self.emit_rows(group, planes, channel, ky, together, pixels)

    def emit_rows(self, group: TapGroup, planes: str, channel: str, ky: str, together: str, pixels: str) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        smaller = len(self.tap_offsets(plan.leftover[0])) if plan.leftover else 0
        first = 0
        for rows, count in plan.outer.counted():
            with each(t, "row", str(first + rows * count), rows, first) as row:
                place = (times(plan.sum_row, row), times(spec.kh * spec.kw, channel), times(spec.kw, ky), str(group.kx))
                arguments = {
                    "planes": planes, "offset": "offset", "plane_sample": str(plan.image_items),
                    "d_y": added("d_y", times(self.gradient_row(), row)), "d_y_row": str(self.gradient_row()),
                    "d_y_sample": str(self.gradient_sample()), "samples": together, "pixels": pixels,
                    "sums": added("sums", *place), "sums_row": str(plan.sum_row),
                }  # fmt: skip
                tile = WeightTile(self.vector, rows, len(self.tap_offsets(group)))
                low = WeightTile(self.vector, rows, smaller) if smaller else None
                tables = {"offset": self.offsets}
                t.statement(self.tiles.call(tile, False, arguments, tables, low, f"step == {group.channels}"))
            first += rows * count
