"""Images laid out so that a convolution's taps become rows of a matrix.

For every channel and every column offset `kx` of the weights there is one plane, as wide as the result, holding the
image shifted by `kx` (with zeros where the padding is). Pixels of a block of result rows then follow one another
without gaps, and the tap (ky, kx) is the plane of `kx` read `ky` rows further down: the copying grows with kw, not with
kh * kw, and vectors run across rows. With a vertical stride there are `stride` planes per kx, one per remainder of the
row number.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from staged.backends.cpu.contraction.spec import Conv2dSpec
from staged.backends.cpu.contraction.tile import members
from staged.backends.cpu.contraction.vectors import Vector, snippet_of
from staged.code.support.library import Snippet


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
        """The remainders of window rows by the stride, up to the largest that occurs."""
        largest = max(self.window_row(ky) % self.stride[0] for ky in range(self.taps[0]))
        return [*range(0, largest + 1, self.phase_step)]

    @property
    def phase_step(self) -> int:
        """Distance of these remainders."""
        return gcd(self.stride[0], self.dilation[0])

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
        assert self.spread == (1, 1), "the pixels of the image follow one another"
        firsts = (self.window_col(kx) - self.padding[1] for kx in range(self.taps[1]))
        return any(any(0 <= first + x * self.stride[1] < self.image[1] for x in range(self.out[1])) for first in firsts)


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


def window_value(window: Window, rows: int, is_plane: bool = False) -> str:
    """The value of these sizes as a member of a struct; fewer ones if the only plane is the image itself."""
    fields = _fields(window, rows)
    if is_plane:
        fields = {name: fields[name] for name in ("height", "width", "columns", "channel")}
    return f"{{{', '.join(members(fields))}}}"


def _fields(window: Window, rows: int) -> dict[str, object]:
    first = window.window_col(0)
    step = window.window_col(1) - first if window.taps[1] > 1 else 0
    return {
        "height": window.image[0], "width": window.image[1], "planes": window.taps[1], "columns": window.out[1],
        "plane": len(window.phases) * window.plane_items(rows), "channel": window.channel_items(rows),
        "stride": _pair(window.stride), "spread": _pair(window.spread), "first": first - window.padding[1],
        "step": step,
    }  # fmt: skip


def is_plain(window: Window) -> bool:
    """Return whether the only plane of a channel, for all rows, is the channel itself."""
    plain = Window(window.image, window.image, (1, 1), (1, 1), (0, 0), window.dilation, (1, 1), window.flipped)
    return window == plain


def flattened(window: Window, rows: int) -> tuple[Window, int]:
    """A window of one pixel over whole images, as a window over images of one row."""
    if not is_plain(window) or rows != window.out[0]:
        return window, rows
    flat = (1, window.image[0] * window.image[1])
    return replace(window, image=flat, out=flat), 1


def _pair(sizes: tuple[int, int]) -> str:
    return f"{{{sizes[0]}, {sizes[1]}}}"


def planes_support(vector: Vector) -> list[tuple[str, Snippet]]:
    """The functions that fill planes."""
    return [*pixels_support(vector), ("", snippet_of(vector, "planes", _PLANES))]


def pixels_support(vector: Vector) -> list[tuple[str, Snippet]]:
    """The functions that copy pixels of rows into columns of planes."""
    return [("", Snippet("window", _WINDOW)), ("", snippet_of(vector, "pixels", _PIXELS, {"$V": vector.unaligned}))]


_WINDOW = """\
// How an image becomes planes: each pixel of a plane is one that the window's taps of a column meet.
typedef struct {
    int64_t height, width;     // of the image
    int64_t planes, columns;   // planes of a channel, and columns of a plane
    int64_t plane, channel;    // distances of planes, and of the planes of channels
    int64_t stride[2];         // of the window: rows and columns
    int64_t spread[2];         // distances of the image's pixels, with zeros between them
    int64_t first, step;       // plane k begins at column `first + k * step` of the image
} st_window;
"""
_PIXELS = """\
// Copies rows of `count` items. Vectors may go beyond a row that is not one of the last: the next row is copied later.
static inline __attribute__((always_inline)) void st_copy_pixels_$D($T *target, int64_t target_row, const $T *source,
        int64_t source_row, int64_t rows, int64_t count) {
    const int64_t beyond = (count + $LANES - 1) / $LANES * $LANES - count;
    const int64_t row = target_row < source_row ? target_row : source_row;
    const int64_t fast = beyond == 0 ? rows : rows - (beyond + row - 1) / row;
    int64_t r = 0;
    if (count <= $LANES) {
        for (; r < fast; ++r) {
            *($V *)(target + r * target_row) = *(const $V *)(source + r * source_row);
        }
    }
    for (; r < fast; ++r) {
        for (int64_t i = 0; i < count; i += $LANES) {
            *($V *)(target + r * target_row + i) = *(const $V *)(source + r * source_row + i);
        }
    }
    for (; r < rows; ++r) {
        st_copy_$D(target + r * target_row, source + r * source_row, count);
    }
}

// Fills columns `begin` to `end` of some rows with zeros.
static inline __attribute__((always_inline)) void st_zero_columns_$D($T *plane, int64_t columns, int64_t rows,
        int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        for (int64_t r = 0; r < rows; ++r) {
            plane[r * columns + i] = 0;
        }
    }
}
"""
_PLANES = """\
// Fills `rows` rows of the planes of an image's channels. Row r has the pixels of row `top + r * stride[0]`, or zeros.
static inline __attribute__((always_inline)) void st_planes_$D(const st_window *w, const $T *image, int64_t channels,
        int64_t top, int64_t rows, $T *planes) {
    const int64_t stride = w->stride[1], spread = w->spread[1], row_stride = w->stride[0], row_spread = w->spread[0];
    // The first row with pixels, and the first one after the last of these.
    const int64_t above = top < 0 ? (row_stride - 1 - top) / row_stride : 0;
    const int64_t bottom = (w->height * row_spread - top + row_stride - 1) / row_stride;
    const int64_t below = bottom > rows ? rows : bottom;
    for (int64_t k = 0; k < w->planes; ++k) {
        const int64_t x = w->first + k * w->step;
        const int64_t begin = x < 0 ? (stride - 1 - x) / stride : (spread - x % spread) % spread;
        const int64_t source = (begin * stride + x) / spread;
        const int64_t pixels = (w->width - source + stride - 1) / stride;
        const int64_t places = (w->columns - begin + spread - 1) / spread;
        const int64_t count = pixels < places ? pixels : places, end = begin + count;
        for (int64_t channel = 0; channel < channels; ++channel) {
            const $T *const from = image + channel * w->height * w->width + source;
            $T *const plane = planes + channel * w->channel + k * w->plane;
            if (above >= below || count <= 0) {
                st_zero_$D(plane, rows * w->columns);
                continue;
            }
            if (spread > 1 || row_spread > 1) {
                st_zero_$D(plane, rows * w->columns);
                for (int64_t r = above; r < below; ++r) {
                    const int64_t y = top + r * row_stride;
                    for (int64_t i = 0; i < count && y % row_spread == 0; ++i) {
                        plane[r * w->columns + begin + i * spread] = from[y / row_spread * w->width + i * stride];
                    }
                }
                continue;
            }
            const int64_t here = below - above, source_row = row_stride * w->width;
            const $T *const pixel = from + (top + above * row_stride) * w->width;
            $T *const first = plane + above * w->columns;
            st_zero_$D(plane, above * w->columns);
            if (stride > 1) {
                for (int64_t r = 0; r < here; ++r) {
                    #pragma GCC unroll 8
                    for (int64_t i = 0; i < count; ++i) {
                        first[r * w->columns + begin + i] = pixel[r * source_row + i * stride];
                    }
                }
            } else if (source_row == w->columns) {
                st_copy_$D(first + begin, pixel, (here - 1) * w->columns + count);  // one run, with pixels between rows
            } else {
                st_copy_pixels_$D(first + begin, w->columns, pixel, source_row, here, count);
            }
            st_zero_columns_$D(first, w->columns, here, 0, begin);
            st_zero_columns_$D(first, w->columns, here, end, w->columns);
            st_zero_$D(plane + below * w->columns, (rows - below) * w->columns);
        }
    }
}
"""
