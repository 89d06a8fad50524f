"""Convolution, and its gradient with respect to the image, as C text.

Both are a matrix product: (channels out, channels in * taps) @ (channels in * taps, pixels), the right operand read
from shifted planes of the image (planes.py). A work item is a block of rows of one sample (and one group of channels):
it lays out the planes in its scratch memory and runs register tiles of channels by pixels over them.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from staged.backends.cpu.contraction.conv2d_columns import emit_columns, plan_columns
from staged.backends.cpu.contraction.conv2d_weight import emit_backward_weight
from staged.backends.cpu.contraction.items import no_items, over_items
from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.planes import (
    Window,
    backward_window,
    emit_planes,
    emit_sizes,
    forward_window,
    planes_support,
)
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, MatmulSpec, Parameter
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import (
    Result,
    Split,
    TileChoice,
    choose_tile,
    declared,
    emit_accumulators,
    emit_finish,
    emit_in_chains,
    emit_rows_of_block,
    emit_step,
    split_evenly,
)
from staged.backends.cpu.contraction.vectors import Vector, vector_of, zeroed
from staged.code.writer import Writer
from staged.ir.machine import Machine
from staged.ir.products import chain_of
from staged.ir.types import row_major


def emit_conv2d(spec: Conv2dSpec, machine: Machine) -> ContractionKernel:
    """The C text of one product of a convolution for one machine.

    Numerics: each result of "forward" and "backward_input" is a sum in ascending order of channel, row and column of
    the weights, in chains of bounded length that are then added up; "backward_weight" adds partial sums in an order
    that depends on the spec and the machine alone.
    """
    results = {
        "forward": spec.n * spec.oc * spec.out_h * spec.out_w,
        "backward_input": spec.n * spec.c * spec.h * spec.w,
        "backward_weight": spec.oc * spec.c * spec.kh * spec.kw,
    }
    assert spec.dtype.is_float, f"conv2d {spec.name}: no kernel for {spec.dtype}"
    if results[spec.kind] == 0:
        return no_items(spec)
    assert spec.multiply_adds and forward_window(spec).meets_image(), "convolutions of nothing are simplified to zeros"
    if spec.kind == "backward_weight":
        return emit_backward_weight(spec, machine)
    product = pointwise_product(spec)
    if product is not None:
        return emit_matmul(product, machine)
    plan = plan_conv2d(spec, machine)
    if spec.kind == "backward_input":
        columns = plan_columns(spec, machine)
        if columns is not None and columns.cycles < plan.cycles:
            return emit_columns(columns)
    return emit_window(plan)


def emit_window(plan: WindowPlan) -> ContractionKernel:
    """The text of a planned product over shifted planes."""
    return _Emitter(plan).emit()


def pointwise_product(spec: Conv2dSpec) -> MatmulSpec | None:
    """A 1 x 1 convolution as the batched product that it is, (outer, inner) @ (inner, pixels); None for any other."""
    if (spec.kh, spec.kw, *spec.stride, *spec.padding) != (1, 1, 1, 1, 0, 0) or (
        spec.groups > 1 and spec.epilogue is not None
    ):
        return None
    c, oc, pixels = spec.c // spec.groups, spec.oc // spec.groups, spec.h * spec.w
    outer, inner, weight = (oc, c, (c, 1)) if spec.kind == "forward" else (c, oc, (1, c))
    return MatmulSpec(
        spec.name,
        outer,
        pixels,
        inner,
        spec.dtype,
        batch=(spec.n, spec.groups),
        a_strides=(0, oc * c, *weight),
        b_strides=row_major(spec.n, spec.groups, inner, pixels),
        c_strides=row_major(spec.n, spec.groups, outer, pixels),
        epilogue=spec.epilogue,
        operand_names=spec.operand_names[::-1],
        right_first=True,
        result_name=spec.result_name,
        comments=spec.comments,
    )


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Everything decided about a convolution before text is written. `inner` and `outer` are channels per group."""

    spec: Conv2dSpec
    vector: Vector
    window: Window
    inner: int
    outer: int
    weight_strides: tuple[int, int]  # per outer and inner channel
    blocks: Split  # result rows of a work item
    channels: Split  # outer channels of a tile
    vectors: int  # of a full tile
    pixels_outside: bool  # loop order: pixels, then channels
    cycles: float

    @property
    def rows(self) -> int:
        return self.blocks.large

    @property
    def taps(self) -> int:
        return self.spec.kh * self.spec.kw

    @property
    def chain(self) -> int | None:
        """Inner channels whose products a sum in a register takes in at a time; None: all of them."""
        channels = max(1, chain_of(self.inner * self.taps) // self.taps)
        return channels if channels < self.inner else None

    def panels(self, rows: int) -> Split:
        """The vectors of a block of `rows` result rows, as panels of a tile's width."""
        pixels = rows * self.window.out[1]
        return split_evenly(-(-pixels // self.vector.lanes), self.vectors)

    def widths(self) -> dict[int, tuple[int, ...]]:
        """For each tile width in vectors: the numbers of real pixels it can meet."""
        found: dict[int, set[int]] = {}
        for rows in self.blocks.sizes:
            panels = self.panels(rows)
            left = rows * self.window.out[1]
            for vectors, count in panels.counted():
                full = vectors * self.vector.lanes
                whole = min(count, left // full)
                if whole:
                    found.setdefault(vectors, set()).add(full)
                left -= whole * full
                if whole < count:
                    found.setdefault(vectors, set()).add(left)
                    left = 0
        return {vectors: tuple(sorted(widths, reverse=True)) for vectors, widths in found.items()}

    @property
    def work_items(self) -> int:
        return self.spec.n * self.spec.groups * self.blocks.count

    @property
    def scratch_items(self) -> int:
        """The planes, and what the last panel reads beyond them."""
        return self.inner * self.window.channel_items(self.rows) + self.vectors * self.vector.lanes

    def block_rows(self, block: int) -> tuple[int, int]:
        """(first result row, rows) of a block."""
        first = block * self.blocks.large - max(0, block - self.blocks.large_count)
        return first, self.blocks.large if block < self.blocks.large_count else self.blocks.large - 1

    def useful_taps(self) -> float:
        """The share of the taps that is left when those that only meet padding are skipped."""
        ranges = self.tap_ranges()
        return 1.0 if ranges is None else sum(high - low for low, high in ranges) / (len(ranges) * self.taps)

    def tap_ranges(self) -> list[tuple[int, int]] | None:
        """Per panel of every block: the range of taps that meet d_y at all; None if skipping would save little.

        Always None for "forward": infinity in the weight times the padding's zeros is NaN, on every machine.
        """
        if self.spec.kind == "forward":
            return None
        ranges, kept, total = [], 0, 0
        for block in range(self.blocks.count):
            first, rows = self.block_rows(block)
            pixel = 0
            for vectors, count in self.panels(rows).counted():
                for _ in range(count):
                    last = min(pixel + vectors * self.vector.lanes, rows * self.window.out[1]) - 1
                    top, bottom = first + pixel // self.window.out[1], first + last // self.window.out[1]
                    inside = [ky for ky in range(self.spec.kh) if self.window.tap_is_inside(ky, top, bottom)]
                    low, high = (inside[0], inside[-1] + 1) if inside else (0, 0)
                    ranges.append((low * self.spec.kw, high * self.spec.kw))
                    kept += (high - low) * vectors
                    total += self.spec.kh * vectors
                    pixel = last + 1
        return ranges if kept < 0.95 * total and len(ranges) <= 256 else None


def plan_conv2d(spec: Conv2dSpec, machine: Machine) -> WindowPlan:
    vector = vector_of(machine, spec.dtype)
    size = spec.dtype.size
    taps = spec.kh * spec.kw
    c, oc = spec.c // spec.groups, spec.oc // spec.groups
    if spec.kind == "forward":
        window, inner, outer, strides = forward_window(spec), c, oc, (c * taps, taps)
    else:
        assert spec.kind == "backward_input", f"no windows of kind {spec.kind}"
        window, inner, outer, strides = backward_window(spec), oc, c, (taps, c * taps)

    def estimate(rows: int) -> tuple[float, TileChoice]:
        """Cycles of a sample in blocks of `rows` rows: tiles, and the planes with their halo."""
        blocks = split_evenly(window.out[0], rows)
        choice = choose_tile(machine, vector, outer, blocks.large * window.out[1], inner * taps, aligned=False)
        planes = inner * window.channel_items(blocks.large)
        cycles = choice.cycles + planes * 2.5 / vector.lanes + 200
        if planes * size > machine.l2 // 2:
            cycles *= 1 + 0.25 * min(4.0, planes * size / (machine.l2 // 2) - 1)
        return cycles * blocks.count, choice

    most = window.out[0]
    if machine.cores > 1 and spec.multiply_adds > 500_000 and spec.n * spec.groups < 4 * machine.cores:
        most = max(1, -(-most // -(-4 * machine.cores // (spec.n * spec.groups))))
    candidates = sorted({split_evenly(window.out[0], rows).large for rows in range(1, most + 1)})
    rows = min(candidates, key=lambda r: (estimate(r)[0], r))
    choice = estimate(rows)[1]
    panel_bytes = inner * taps * choice.vectors.large * vector.bytes
    plan = WindowPlan(
        spec,
        vector,
        window,
        inner,
        outer,
        strides,
        split_evenly(window.out[0], rows),
        choice.rows,
        choice.vectors.large,
        pixels_outside=panel_bytes <= machine.l1 // 2,
        cycles=spec.n * spec.groups * estimate(rows)[0],
    )
    return replace(plan, cycles=plan.cycles * plan.useful_taps())


class _Emitter:
    def __init__(self, plan: WindowPlan) -> None:
        self.plan = plan
        self.spec = plan.spec
        self.vector = plan.vector
        self.text = Writer()
        self.ranges = plan.tap_ranges()
        pixels = plan.window.out[0] * plan.window.out[1]
        self.result = Result(plan.spec.epilogue, pixels, 1)

    def emit(self) -> ContractionKernel:
        plan, spec, t = self.plan, self.spec, self.text
        self.emit_tables()
        for vectors, widths in plan.widths().items():
            for rows in plan.channels.sizes:
                self.emit_tile(rows, vectors, widths)
        support = planes_support(self.vector)
        items = (plan.work_items, plan.scratch_items)
        return over_items(spec, self.vector, t, self.describe(), self.emit_item, *items, more=support)

    def describe(self) -> list[str]:
        spec, plan = self.spec, self.plan
        kind = "" if spec.kind == "forward" else ", gradient of x"
        groups = f", {spec.groups} groups" if spec.groups > 1 else ""
        return [
            f"conv2d{kind}: x ({spec.n}, {spec.c}, {spec.h}, {spec.w}), "
            f"weight ({spec.oc}, {spec.c // spec.groups}, {spec.kh}, {spec.kw}), "
            f"y ({spec.n}, {spec.oc}, {spec.out_h}, {spec.out_w}), {spec.dtype}{groups}",
            f"a work item is {plan.rows} rows of a sample; its image is laid out once per column of the weights, so "
            "that",
            "each tap is a run of consecutive pixels",
        ]

    def emit_tables(self) -> None:
        plan, spec, t = self.plan, self.spec, self.text
        offsets = [plan.window.tap_offset(ky, kx, plan.rows) for ky in range(spec.kh) for kx in range(spec.kw)]
        t.line("// where each tap of the weights starts in a channel's planes")
        t.statement(f"static const int32_t {spec.name}_offset[{plan.taps}] = {{{', '.join(map(str, offsets))}}};")
        if self.ranges is not None:
            pairs = ", ".join(f"{{{low}, {high}}}" for low, high in self.ranges)
            t.line("// the taps that meet d_y, for each panel of pixels: the others only read zeros")
            t.line(f"static const int16_t {spec.name}_taps[{len(self.ranges)}][2] = {{{pairs}}};")
        t.line()

    def emit_tile(self, rows: int, vectors: int, widths: tuple[int, ...]) -> None:
        t, plan, vector = self.text, self.plan, self.vector
        scalar = vector.scalar
        parameters: list[Parameter] = [
            (f"const {scalar} *restrict ", "factors"),
            (f"const {scalar} *restrict ", "planes"),
        ]
        if self.ranges is not None:
            parameters.append(("const int16_t *", "taps"))
        if len(widths) > 1:
            parameters.append(("int64_t ", "width"))
        parameters += self.result.parameters(vector)
        t.line(
            f"// {rows} channels x {vectors} vectors of {vector.lanes} pixels, in registers over "
            + ("all channels and taps" if plan.chain is None else f"{plan.chain} channels at a time and all taps")
        )
        head = f"static __attribute__((noinline)) void {self.tile_name(rows, vectors)}"
        with t.function(head, map(declared, parameters)):
            emit_accumulators(t, vector, rows, vectors)
            emit_in_chains(
                t, vector, rows, vectors, str(plan.inner), plan.chain, partial(self.emit_channels, rows, vectors)
            )
            emit_finish(t, vector, self.result, rows, vectors, widths)
        t.line()

    def emit_channels(self, rows: int, vectors: int, begin: str, end: str) -> None:
        """The steps of a tile over some inner channels."""
        t, plan = self.text, self.plan
        outer, inner = plan.weight_strides
        first, last = ("taps[0]", "taps[1]") if self.ranges is not None else ("0", str(plan.taps))
        with t.block(f"for (int64_t channel = {begin}; channel < {end}; ++channel)"):
            with t.block(f"for (int64_t tap = {first}; tap < {last}; ++tap)"):
                t.line(f"const {self.vector.scalar} *const pixels = planes + {self.spec.name}_offset[tap];")
                left = f"factors[{added(times(outer, 'r'), 'tap')}]"
                emit_step(t, self.vector, rows, vectors, left, "pixels")
            t.line(f"factors += {inner};")
            t.line(f"planes += {plan.window.channel_items(plan.rows)};")

    def tile_name(self, rows: int, vectors: int) -> str:
        return f"{self.spec.name}_tile_{rows}x{vectors}"

    def emit_item(self) -> None:
        t, plan, spec, window = self.text, self.plan, self.spec, self.plan.window
        scalar, blocks, groups = self.vector.scalar, plan.blocks, spec.groups
        per_sample = blocks.count * groups
        emit_sizes(t, window, plan.rows)
        t.line(f"const int64_t batch = {'item' if per_sample == 1 else f'item / {per_sample}'};")
        if groups > 1:
            t.line(f"const int64_t group = {'item' if blocks.count == 1 else f'item / {blocks.count}'} % {groups};")
        if blocks.count > 1:
            t.line(f"const int64_t block = item % {blocks.count};")
        first_row, rows_here = emit_rows_of_block(t, blocks)
        pixels, weights = spec.operand_names
        images = "batch" if groups == 1 else f"(batch * {groups} + group)"
        image_items = plan.inner * window.image[0] * window.image[1]
        t.line(f"const {scalar} *const image = {pixels} + {times(image_items, images)};")
        if groups > 1:
            weights += f" + {times(spec.c // groups * plan.taps * (spec.oc // groups), 'group')}"
        t.line(f"const {scalar} *const weights = {weights};")
        if spec.epilogue is None:
            result = added(times(plan.outer * self.result.row_stride, images), times(window.out[1], first_row))
            t.line(f"{scalar} *const result = {added(spec.result_name, result)};")
        emit_planes(t, window, self.vector, plan.rows, str(plan.inner), "image", "scratch", first_row, rows_here)
        if any(full not in widths or len(widths) > 1 for full, widths in self.full_widths()):
            slack = plan.vectors * self.vector.lanes
            used = plan.scratch_items - slack
            t.line(zeroed(self.vector, f"scratch + {used}", slack) + "  // read by the last panel, never used")
        if blocks.small_count:
            with t.block("if (rows == " + str(blocks.large) + ")"):
                self.emit_block(plan.rows)
            with t.block("else"):
                self.emit_block(plan.rows - 1)
        else:
            self.emit_block(plan.rows)

    def full_widths(self) -> list[tuple[int, tuple[int, ...]]]:
        """For each tile width: its pixels, and how many of them can be real."""
        return [(vectors * self.vector.lanes, widths) for vectors, widths in self.plan.widths().items()]

    def emit_block(self, rows: int) -> None:
        """All tiles of one block of result rows."""
        t, plan = self.text, self.plan
        panels = plan.panels(rows)
        pixels = rows * plan.window.out[1]
        lanes = self.vector.lanes
        start, panel = 0, 0
        for vectors, count in panels.counted():
            full = vectors * lanes
            loop = f"for (int64_t pixel = {start}; pixel < {start + full * count}; pixel += {full})"
            channel = 0
            for size, tiles in plan.channels.counted():
                channel_loop = (
                    f"for (int64_t channel = {channel}; channel < {channel + size * tiles}; channel += {size})"
                )
                outer, inner = (loop, channel_loop) if plan.pixels_outside else (channel_loop, loop)
                with t.block(outer), t.block(inner):
                    self.emit_call(rows, size, vectors, count, start, panel, pixels)
                channel += size * tiles
            start += full * count
            panel += count

    def emit_call(
        self, rows: int, channels: int, vectors: int, count: int, start: int, panel: int, pixels: int
    ) -> None:
        t, plan, spec = self.text, self.plan, self.spec
        full = vectors * self.vector.lanes
        outer, _ = plan.weight_strides
        arguments = [added("weights", times(outer, "channel")), "scratch + pixel"]
        if self.ranges is not None:
            # panels before this one: those of earlier blocks, and of this block
            number = f"(pixel - {start}) / {full}" if start else f"pixel / {full}"
            before = self.panels_before(rows)
            arguments.append(f"{spec.name}_taps[{added(before, str(panel), number)}]")
        if len(plan.widths()[vectors]) > 1:
            last = start + full * (count - 1)
            real = min(full, pixels - last)
            arguments.append(str(real) if count == 1 or real == full else f"pixel == {last} ? {real} : {full}")
        row = "channel"
        if spec.groups > 1 and spec.epilogue is not None:
            row = f"group * {plan.outer} + channel"
        col = "pixel"
        if plan.blocks.count > 1 and spec.epilogue is not None:
            col = f"first_row * {plan.window.out[1]} + pixel"
        arguments += self.result.arguments("batch", row, col, "result")
        t.statement(f"{self.tile_name(channels, vectors)}({', '.join(arguments)});")

    def panels_before(self, rows: int) -> str:
        plan = self.plan
        if plan.blocks.count == 1:
            return "0"
        large = plan.panels(plan.rows).count
        if rows == plan.rows:
            return times(large, "block")
        small = plan.panels(plan.rows - 1).count
        return f"{plan.blocks.large_count * large} + {times(small, f'(block - {plan.blocks.large_count})')}"
