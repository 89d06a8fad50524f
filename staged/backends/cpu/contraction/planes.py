"""Images laid out so that a convolution's taps become rows of a matrix.

For every channel and every column offset `kx` of the weights there is one plane, as wide as the result, holding the
image shifted by `kx` (with zeros where the padding is). Pixels of a block of result rows then follow one another
without gaps, and the tap (ky, kx) is the plane of `kx` read `ky` rows further down: the copying grows with kw, not with
kh * kw, and vectors run across rows. With a vertical stride there are `stride` planes per kx, one per remainder of the
row number.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.cpu.contraction.spec import Conv2dSpec
from staged.backends.cpu.contraction.text import added, times
from staged.backends.cpu.contraction.tile import each
from staged.backends.cpu.contraction.vectors import Vector, copied, zeroed
from staged.code.writer import Writer


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window over images: result pixel (y, x), tap (ky, kx) reads image pixel (y * stride + ky * dilation -
    padding, ...).

    `spread` > 1: the image is stored without the zeros between its pixels (the gradient of a strided convolution); the
    window moves over the image with spread - 1 zeros after every pixel. `flipped`: tap (0, 0) is the last of the
    window. Pairs are (vertical, horizontal).
    """

    image: tuple[int, int]  # as stored
    out: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    spread: tuple[int, int] = (1, 1)
    flipped: bool = False

    def window_row(self, ky: int) -> int:
        """The distance of the tap `ky` below the window's first row, in rows of the (spread) image."""
        return (self.taps[0] - 1 - ky if self.flipped else ky) * self.dilation[0]

    def window_col(self, kx: int) -> int:
        return (self.taps[1] - 1 - kx if self.flipped else kx) * self.dilation[1]

    @property
    def phases(self) -> list[int]:
        """The remainders of window rows by the stride that occur."""
        return sorted({self.window_row(ky) % self.stride[0] for ky in range(self.taps[0])})

    @property
    def halo(self) -> int:
        """Rows of a plane beyond those of the result block."""
        return max(self.window_row(ky) // self.stride[0] for ky in range(self.taps[0]))

    def plane_items(self, rows: int) -> int:
        return (rows + self.halo) * self.out[1]

    def channel_items(self, rows: int) -> int:
        """Items of all planes of one channel, for a block of `rows` result rows."""
        return self.taps[1] * len(self.phases) * self.plane_items(rows)

    def tap_offset(self, ky: int, kx: int, rows: int) -> int:
        """The offset in a channel's planes at which the row of the tap starts."""
        row, phase = divmod(self.window_row(ky), self.stride[0])
        plane = kx * len(self.phases) + self.phases.index(phase)
        return plane * self.plane_items(rows) + row * self.out[1]

    def tap_is_inside(self, ky: int, first_row: int, last_row: int) -> bool:
        """Return whether the tap meets the image for any result row in [first_row, last_row]; else it only meets
        padding.
        """
        low = first_row * self.stride[0] + self.window_row(ky) - self.padding[0]
        high = last_row * self.stride[0] + self.window_row(ky) - self.padding[0]
        return high >= 0 and low <= (self.image[0] - 1) * self.spread[0]

    def meets_image(self) -> bool:
        """Return whether any result has a pixel of the image in its window: with enough padding and stride none may."""
        return any(self.columns(kx)[1] for kx in range(self.taps[1]))

    def columns(self, kx: int) -> tuple[int, int, int, int]:
        """(first, count, step, source): of a plane's row, `count` items from `first` on, `step` apart, come from the
        image's row from `source` on, stride[1] apart (spread: one after another); the others are padding.
        """
        shift = self.window_col(kx) - self.padding[1]
        width, out, stride, spread = self.image[1], self.out[1], self.stride[1], self.spread[1]
        if spread == 1:
            first = min(out, max(0, -(shift // stride)))
            stop = max(first, min(out, (width - 1 - shift) // stride + 1))
            return first, stop - first, 1, first * stride + shift
        assert stride == 1, "an image is spread by a stride, so the window moves by one"
        first = max(0, -shift)
        first += -(first + shift) % spread
        source = (first + shift) // spread
        count = max(0, min(width - source, -(-(out - first) // spread)))
        return first, count, spread, source


def forward_window(spec: Conv2dSpec) -> Window:
    return Window(
        (spec.h, spec.w), (spec.out_h, spec.out_w), (spec.kh, spec.kw), spec.stride, spec.padding, spec.dilation
    )


def backward_window(spec: Conv2dSpec) -> Window:
    """The window over d_y that gives d_x: the weights turned by half a turn, d_y spread by the stride."""
    padding = (
        spec.dilation[0] * (spec.kh - 1) - spec.padding[0],
        spec.dilation[1] * (spec.kw - 1) - spec.padding[1],
    )
    return Window(
        (spec.out_h, spec.out_w),
        (spec.h, spec.w),
        (spec.kh, spec.kw),
        (1, 1),
        padding,
        spec.dilation,
        spec.stride,
        True,
    )


def emit_planes(
    t: Writer,
    window: Window,
    vector: Vector,
    rows: int,
    channels: str,
    source: str,
    target: str,
    first_row: str,
    rows_here: str,
) -> None:
    """Text that fills the planes of `channels` channels: `source` points at the first channel of an image.

    `rows` is the largest block of result rows (it fixes the layout), `rows_here` those of this block, `first_row` its
    first.
    """
    height, width = window.image
    out, plane = window.out[1], window.plane_items(rows)
    with each(t, "channel", channels) as channel:
        for index, phase in enumerate(window.phases):
            bound = added(rows_here, str(window.halo)) if not rows_here.isdigit() else str(int(rows_here) + window.halo)
            with t.block(f"for (int64_t r = 0; r < {bound}; ++r)"):
                start = "r" if first_row == "0" else f"({first_row} + r)"
                place, y = shifted(times(window.stride[0], start), phase - window.padding[0]), "r"
                if place != y:
                    y = "y"
                    t.line(f"const int64_t y = {place};")
                base = added(target, times(window.channel_items(rows), channel), str(index * plane), times(out, "r"))
                t.line(f"{vector.scalar} *const row = {base};")
                span = (height - 1) * window.spread[0] + 1
                guards = []
                if phase - window.padding[0] < 0:
                    guards.append(f"{y} < 0")
                if (window.out[0] - 1 + window.halo) * window.stride[0] + phase - window.padding[0] >= span:
                    guards.append(f"{y} >= {span}")
                if window.spread[0] > 1:
                    guards.append(f"{y} % {window.spread[0]} != 0")
                pitch = len(window.phases) * plane
                if guards:
                    with t.block(f"if ({' || '.join(guards)})"):
                        for kx in range(window.taps[1]):
                            t.line(zeroed(vector, added("row", str(kx * pitch)), out))
                        t.line("continue;")
                of_image = y if window.spread[0] == 1 else f"({y} / {window.spread[0]})"
                of_channel = of_image if channel == "0" else f"({channel} * {height} + {of_image})"
                t.line(f"const {vector.scalar} *const from = {source} + {times(width, of_channel)};")
                for kx in range(window.taps[1]):
                    emit_row(t, window, vector, kx, kx * pitch)


def emit_row(t: Writer, window: Window, vector: Vector, kx: int, offset: int) -> None:
    """One row of one plane, from one row of the image."""
    first, count, step, source = window.columns(kx)
    out, stride = window.out[1], window.stride[1]
    if step > 1 or count == 0:
        t.line(zeroed(vector, added("row", str(offset)), out))
        if count:
            with t.block(f"for (int64_t i = 0; i < {count}; ++i)"):
                t.line(f"row[{added(str(offset + first), times(step, 'i'))}] = from[{added(str(source), 'i')}];")
        return
    if first:
        t.line(zeroed(vector, added("row", str(offset)), first))
    if stride == 1:
        t.line(copied(vector, added("row", str(offset + first)), added("from", str(source)), count))
    else:
        with t.block(f"for (int64_t i = 0; i < {count}; ++i)"):
            t.line(f"row[{added(str(offset + first), 'i')}] = from[{added(str(source), times(stride, 'i'))}];")
    if first + count < out:
        t.line(zeroed(vector, added("row", str(offset + first + count)), out - first - count))


def shifted(expression: str, by: int) -> str:
    return expression if by == 0 else f"{expression} {'+' if by > 0 else '-'} {abs(by)}"
