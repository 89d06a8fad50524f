"""The plan of a convolution, or of its gradient of the image.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from staged.backends.cpu.contraction.planes import Window, backward_window, flattened, forward_window
from staged.backends.cpu.contraction.product_tile import SHARED_STEPS
from staged.backends.cpu.contraction.spec import Conv2dSpec
from staged.backends.cpu.contraction.tile import Split, TileChoice, choose_tile, split_evenly
from staged.backends.cpu.contraction.vectors import Vector, vector_of
from staged.ir.machine import Machine
from staged.ir.products import chain_of

MOST_ROWS = 14
"""Rows of a tile: the addresses of more do not fit into registers."""
TWO_SIZES = 0.02
"""The part of the time that tiles of a second size cost."""


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
    most_in_place: int  # bytes of an image that tiles read in place: of larger ones the lines are too far away
    cycles: float

    @property
    def rows(self) -> int:
        return self.blocks.large

    @property
    def taps(self) -> int:
        return self.spec.kh * self.spec.kw

    @property
    def has_known_images(self) -> bool:
        """Return whether height and width of the images are numbers."""
        return self.spec.images is None or self.spec.images.have_one_size

    @property
    def is_short(self) -> bool:
        """Whether sums are so short that a kernel needs constants to be fast."""
        return self.taps > 1 and self.inner * self.taps < SHARED_STEPS

    @property
    def offsets(self) -> list[int]:
        """The places of the taps in the planes of a channel."""
        kh, kw = self.spec.kh, self.spec.kw
        return [self.window.tap_offset(ky, kx, self.rows) for ky in range(kh) for kx in range(kw)]

    @property
    def chain(self) -> int | None:
        """Inner channels whose products a sum in a register accumulates; None: all of them."""
        channels = max(1, chain_of(self.inner * self.taps) // self.taps)
        return channels if channels < self.inner else None

    def panels(self, rows: int) -> Split:
        """The vectors of a block of `rows` result rows, as panels of a tile's width."""
        pixels = rows * self.window.out[1]
        return split_evenly(-(-pixels // self.vector.lanes), self.vectors)

    @property
    def tile_vectors(self) -> tuple[int, ...]:
        """The widths of tiles that occur, the larger one first."""
        for rows in self.blocks.sizes:
            vectors = -(-rows * self.window.out[1] // self.vector.lanes)
            if vectors % self.vectors:
                return (self.vectors, self.vectors - 1)
        return (self.vectors,)

    @property
    def work_items(self) -> int:
        return self.spec.n * self.spec.groups * self.blocks.count

    @property
    def is_in_place(self) -> bool:
        """Whether tiles read the image itself, which is its only plane, and nothing beyond it."""
        window, lanes = self.window, self.vector.lanes
        if window != Window(
            window.image, window.image, (1, 1), (1, 1), (0, 0), window.dilation, (1, 1), window.flipped
        ):
            return False
        if self.inner * prod(window.image) * self.vector.dtype.size > self.most_in_place:
            return False
        pixels = [rows * window.out[1] for rows in self.blocks.sizes]
        return all(each % lanes == 0 and self.is_exact(each // lanes) for each in pixels)

    @property
    def has_equal_panels(self) -> bool:
        """Whether all tiles have as many pixels."""
        full = self.vectors * self.vector.lanes
        return all(rows * self.window.out[1] % full == 0 for rows in self.blocks.sizes)

    def is_exact(self, vectors: int) -> bool:
        """Return whether so many vectors are tiles of `self.vectors` vectors, and of one less."""
        return vectors >= -(-vectors // self.vectors) * (self.vectors - 1)

    @property
    def scratch_items(self) -> int:
        """The planes, and what the last panel reads beyond them."""
        if self.is_in_place:
            return 0
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

    def describe(self) -> str:
        """The shapes of a convolution, for readers."""
        spec = self.spec
        x, weight, y = spec.shapes
        groups = f", {spec.groups} groups" if spec.groups > 1 else ""
        sizes = f"x {x}, weight {weight}, y {y}" if spec.kind == "forward" else f"d_y {y}, weight {weight}, d_x {x}"
        return f"{sizes}, {spec.dtype}{groups}"


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
        choice = choose_tile(
            machine,
            vector,
            outer,
            blocks.large * window.out[1],
            inner * taps,
            aligned=False,
            most_rows=MOST_ROWS,
            two_sizes=TWO_SIZES,
        )
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
    if spec.images is None or spec.images.have_one_size:
        window, rows = flattened(window, rows)
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
        most_in_place=machine.l2 // 8,
        cycles=spec.n * spec.groups * estimate(rows)[0],
    )
    return replace(plan, cycles=plan.cycles * plan.useful_taps())
