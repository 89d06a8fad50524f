"""The register tile of a gradient with respect to weights: one function for each number of channels and taps. All
convolutions of a program share it.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.backends.cpu.contraction.product_tile import INLINE
from staged.backends.cpu.contraction.spec import Parameter
from staged.backends.cpu.contraction.text import times
from staged.backends.cpu.contraction.tile import aligned_to, declared, each_row
from staged.backends.cpu.contraction.vectors import Vector, index_name, index_type, snippet_of, sum_lanes_function
from staged.code.support.library import Snippet
from staged.code.support.vectors import vector_snippet
from staged.code.writer import Writer

SHARED_VECTORS = 16
"""From so many vectors of pixels on, offsets may be such that the compiler cannot see them."""

MOST_TAPS = 9
"""Taps of the largest tile."""


@dataclass(frozen=True, slots=True)
class WeightTile:
    """The function of a tile of `rows` channels of d_y and `taps` runs of pixels of the image."""

    vector: Vector
    rows: int
    taps: int

    @property
    def name(self) -> str:
        return f"st_weight_gradient_{self.vector.dtype}_{self.rows}x{self.taps}"

    @property
    def shape(self) -> str:
        """The sizes of the tile, for names."""
        return f"{self.rows}x{self.taps}"

    @property
    def inline(self) -> str:
        """The name of the inline function."""
        return f"{self.name}_inline"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The inline function is for tiles of this size."""
        return ()

    @property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""
        operand = f"const {self.vector.scalar} *restrict "
        return [
            (operand, "planes"), ("const int64_t *", "offset"), ("int64_t ", "plane_sample"),
            (operand, "d_y"), ("int64_t ", "d_y_row"), ("int64_t ", "d_y_sample"),
            ("int64_t ", "samples"), ("int64_t ", "pixels"),
            (f"{self.vector.scalar} *restrict ", "sums"), ("int64_t ", "sums_row"),
            ("int64_t ", "tiles"),
        ]  # fmt: skip

    @property
    def snippet(self) -> Snippet:
        """The inline function."""
        t, vector, rows, taps = Writer(), self.vector, self.rows, self.taps
        scalar, lanes = vector.scalar, vector.lanes
        each_tap = f"for (int64_t tap = 0; tap < {taps}; ++tap)"
        total = -(-rows * taps // lanes) * lanes
        t.line(f"// Gradient of {rows} x {taps} weights, added to `sums`: the sum of d_y[r * d_y_row + i] *")
        t.line("// planes[offset[tap] + i] over all pixels i and samples. A weight is a vector of partial sums.")
        t.line(f"// The next {rows} rows follow, for as many tiles.")
        with (
            t.function(f"{INLINE} {self.inline}", map(declared, self.parameters)),
            t.block("for (int64_t tile = 0; tile < tiles; ++tile)"),
        ):
            t.line(f"{vector.name} acc[{rows}][{taps}];")
            with each_row(t, rows), t.unrolled(taps, each_tap):
                t.line(f"acc[r][tap] = ({vector.name}){{0}};")
            with t.block("for (int64_t sample = 0; sample < samples; ++sample)"):
                t.line(f"const {scalar} *const x_sample = planes + sample * plane_sample;")
                t.line(f"const {scalar} *const d_y_rows = d_y + tile * {rows} * d_y_row + sample * d_y_sample;")
                t.line("int64_t i = 0;")
                with t.block(f"for (; i <= pixels - {lanes}; i += {lanes})"):
                    self._emit_step(t, each_tap, is_masked=False)
                with t.block("if (i < pixels)"):
                    numbers = ", ".join(map(str, range(lanes)))
                    count = "pixels - i" if vector.dtype.size == 8 else "(int32_t)(pixels - i)"
                    t.line("// The lanes after the last pixel are other rows, and may be NaN.")
                    t.line(f"const {index_name(vector)} lane = ({index_name(vector)}){{{numbers}}} < {count};")
                    self._emit_step(t, each_tap, is_masked=True)
            t.line(f"{scalar} total[{total}] {aligned_to(vector)};")
            t.line(f"{vector.name} lanes[{total}];")
            with each_row(t, rows), t.unrolled(taps, each_tap):
                t.line(f"lanes[{times(taps, 'r')} + tap] = acc[r][tap];")
            if total > rows * taps:
                with t.unrolled(total, f"for (int64_t i = {rows * taps}; i < {total}; ++i)"):
                    t.line(f"lanes[i] = ({vector.name}){{0}};")
            with t.unrolled(total // lanes, f"for (int64_t i = 0; i < {total}; i += {lanes})"):
                t.line(f"{sum_lanes_function(vector)}(lanes + i, total + i);")
            with each_row(t, rows), t.block(each_tap):
                t.line(f"sums[(tile * {rows} + r) * sums_row + tap] += total[{times(taps, 'r')} + tap];")
        types = (vector_snippet(vector.dtype.name), vector_snippet(index_type(vector)))
        fma = f"st_fma_{vector.name}"
        return Snippet(self.name, str(t), needs=(*types, *([fma] if f"{fma}(" in str(t) else [])))

    def _emit_step(self, t: Writer, each_tap: str, is_masked: bool) -> None:
        """The products of a vector of pixels."""
        vector = self.vector
        x = vector.load("x_sample + offset[tap] + i")
        if is_masked:
            x = f"({vector.name})(({index_name(vector)}){x} & lane)"
        t.line(f"{vector.name} y[{self.rows}];")
        with each_row(t, self.rows):
            t.line(f"y[r] = {vector.load('d_y_rows + r * d_y_row + i')};")
        with t.unrolled(self.taps, each_tap):
            t.line(f"const {vector.name} x = {x};")
            with each_row(t, self.rows):
                t.line(vector.multiply_add("acc[r][tap]", "x", "y[r]"))


def weights_support(vector: Vector) -> list[tuple[str, Snippet]]:
    """The functions that accumulate the gradients of the weights of a work item, and their sizes."""
    return [("", Snippet("first_of", _FIRST_OF)), ("", snippet_of(vector, "weights", _WEIGHTS, {"$M": MOST_TAPS}))]


_FIRST_OF = """\
// The first item of piece `k`, if the last ones of `count` pieces may have one item less than the others.
static inline int64_t st_first_of(int64_t k, int64_t items, int64_t count) {
    const int64_t most = (items + count - 1) / count, late = k - (count - (most * count - items));
    return k * most - (late > 0 ? late : 0);
}
"""
_WEIGHTS = """\
typedef void st_weight_tile_$D(const $T *restrict planes, const int64_t *offset, int64_t plane_sample,
        const $T *restrict d_y, int64_t d_y_row, int64_t d_y_sample, int64_t samples, int64_t pixels,
        $T *restrict sums, int64_t sums_row, int64_t tiles);

// The sizes of a gradient with respect to the weights of a convolution. A work item has a block of the image's channels
// and `rows` channels of d_y. Numbers of channels are those of a group.
typedef struct {
    st_window window;
    bool is_plain;                                // a channel of the image is its only plane, and has one tap
    int64_t top, halo, phases, phase_step;        // of the planes: first row, rows beyond a block, planes per column
    int64_t dilation;                             // rows from tap to tap
    int64_t samples, together;                    // samples, and how many are laid out at once
    int64_t groups, channels, channel_blocks;     // channels of the image, in blocks
    int64_t d_y_channels, rows;                   // channels of d_y, and those of a work item
    int64_t height, row_blocks;                   // rows of pixels of d_y, in blocks
    int64_t padded;                               // pixels of a channel of d_y in scratch memory; 0: they stay in d_y
    int64_t taps, row_taps;                       // weights of a channel, and those that tiles divide alike
    int64_t row_tiles, tile_channels, tile_taps;  // tiles below each other; sizes of the largest tile
    st_weight_tile_$D *tile[2][2];               // [is_narrow][is_low]; narrow: one channel or fewer taps
    int64_t sums, sums_row;                       // place of the sums in scratch memory; distance of their rows
} st_weights_$D;

// Gradients of weights: a row for each channel of d_y.
typedef struct {
    int64_t row, column, rows, columns;
    const $T *sums;
    int64_t sums_row;
} st_weight_sums_$D;

// The offset of a tap in the planes. Further taps are those of the next channels.
static inline int64_t st_offset_of_tap_$D(const st_weights_$D *w, int64_t tap) {
    const st_window *const window = &w->window;
    if (w->is_plain) {
        return tap * window->channel;
    }
    const int64_t y = tap % w->taps / window->planes * w->dilation, phase = y % window->stride[0] / w->phase_step;
    return tap / w->taps * window->channel + tap % window->planes * window->plane
           + phase * (window->plane / w->phases) + y / window->stride[0] * window->columns;
}

// Adds the gradients of the weights of `channels` channels, from the pixels of some samples.
static inline __attribute__((always_inline)) void st_add_weights_$D(const st_weights_$D *w, const $T *planes,
        int64_t plane_sample, int64_t channels, const $T *d_y, int64_t d_y_row, int64_t d_y_sample,
        int64_t samples, int64_t pixels, $T *sums) {
    int64_t offset[$M];
    for (int64_t tap = 0; tap < w->tile_channels * w->tile_taps; ++tap) {
        offset[tap] = st_offset_of_tap_$D(w, tap);
    }
    const int64_t tiles = (w->row_taps + w->tile_taps - 1) / w->tile_taps;
    const int64_t narrow_taps = (tiles * w->tile_taps - w->row_taps) * (w->tile_taps - 1);
    const int64_t tile_rows = st_first_of(1, w->rows, w->row_tiles);
    const int64_t low_rows = (tile_rows * w->row_tiles - w->rows) * (tile_rows - 1);
    for (int64_t step, channel = 0; channel < channels; channel += step) {
        step = channel + w->tile_channels <= channels ? w->tile_channels : 1;
        for (int64_t taps, tap = 0; tap < w->taps; tap += taps) {
            const bool is_narrow = step < w->tile_channels || tap % w->row_taps >= w->row_taps - narrow_taps;
            taps = w->tile_channels == 1 && is_narrow ? w->tile_taps - 1 : w->tile_taps;
            const $T *const from = planes + channel * w->window.channel + st_offset_of_tap_$D(w, tap);
            $T *const into = sums + channel * w->taps + tap;
            w->tile[is_narrow][0](from, offset, plane_sample, d_y, d_y_row, d_y_sample, samples, pixels, into,
                    w->sums_row, (w->rows - low_rows) / tile_rows);
            if (low_rows > 0) {
                const int64_t row = w->rows - low_rows;
                w->tile[is_narrow][1](from, offset, plane_sample, d_y + row * d_y_row, d_y_row, d_y_sample, samples,
                        pixels, into + row * w->sums_row, w->sums_row, low_rows / (tile_rows - 1));
            }
        }
    }
}

// The gradients of the weights of a work item, in `result` or, if that is NULL, in scratch memory.
static inline __attribute__((always_inline)) st_weight_sums_$D st_gradient_of_weights_$D(const st_weights_$D *w,
        int64_t item, const $T *x, const $T *d_y, $T *scratch, $T *result) {
    const st_window window = w->window;
    const int64_t row = item / w->channel_blocks * w->rows, group = row / w->d_y_channels;
    const int64_t first = st_first_of(item % w->channel_blocks, w->channels, w->channel_blocks);
    const int64_t channels = st_first_of(item % w->channel_blocks + 1, w->channels, w->channel_blocks) - first;
    const int64_t image = window.height * window.width, columns = window.columns;
    const int64_t d_y_row = w->height * columns, d_y_sample = w->groups * w->d_y_channels * d_y_row;
    const int64_t x_sample = w->groups * w->channels * image;
    const int64_t plane_sample = st_first_of(1, w->channels, w->channel_blocks) * window.channel;
    $T *const padded = scratch + w->together * plane_sample;
    $T *const sums = result == NULL ? scratch + w->sums : result + row * w->sums_row + first * w->taps;
    for (int64_t r = 0; r < w->rows; ++r) {
        st_zero_$D(sums + r * w->sums_row, channels * w->taps);
    }
    x += (group * w->channels + first) * image;
    d_y += row * d_y_row;
    for (int64_t sample = 0; sample < w->samples; sample += w->together) {
        const int64_t samples = sample + w->together < w->samples ? w->together : w->samples - sample;
        for (int64_t block = 0; block < w->row_blocks; ++block) {
            const int64_t y = st_first_of(block, w->height, w->row_blocks);
            const int64_t rows = st_first_of(block + 1, w->height, w->row_blocks) - y, pixels = rows * columns;
            const $T *const from = d_y + sample * d_y_sample + y * columns;
            for (int64_t s = 0; s < samples; ++s) {
                const $T *const from_x = x + (sample + s) * x_sample;
                $T *const planes = scratch + s * plane_sample;
                if (w->is_plain) {
                    memcpy(planes, from_x, (size_t)(channels * image) * sizeof *planes);
                }
                for (int64_t phase = 0; phase < w->phases; ++phase) {
                    st_planes_$D(&window, from_x, channels, w->top + y * window.stride[0] + phase * w->phase_step,
                            rows + w->halo, planes + phase * (window.plane / w->phases));
                }
                for (int64_t r = 0; r < w->rows && w->padded > 0; ++r) {
                    $T *const into = padded + (s * w->rows + r) * w->padded;
                    st_copy_$D(into, from + s * d_y_sample + r * d_y_row, pixels);
                    st_zero_$D(into + pixels, w->padded - pixels);
                }
            }
            const bool has_copy = w->padded > 0;
            st_add_weights_$D(w, scratch, plane_sample, channels, has_copy ? padded : from,
                    has_copy ? w->padded : d_y_row, has_copy ? w->rows * w->padded : d_y_sample, samples, pixels, sums);
        }
    }
    const st_weight_sums_$D all = {row, first * w->taps, w->rows, channels * w->taps, sums, w->sums_row};
    return all;
}
"""
SIZED_WEIGHTS = """\
// Completes the sizes of the gradient of a weight, from `samples` images and d_y of `rows` and `columns`. There is
// `room` for planes and copies of d_y.
static void st_size_weights_$D(const st_weights_$D *known, int64_t samples, int64_t height, int64_t width,
        int64_t rows, int64_t columns, int64_t room, st_weights_$D *w) {
    *w = *known;
    w->samples = samples;
    w->window.height = height;
    w->window.width = width;
    w->window.columns = columns;
    w->height = rows;
    w->together = 1;
    w->row_blocks = 0;
    if (rows * columns == 0) {
        return;
    }
    const int64_t most = rows * columns > 2 * $PIXELS ? ($PIXELS + columns - 1) / columns : rows;
    w->row_blocks = (rows + most - 1) / most;
    const int64_t block = (rows + w->row_blocks - 1) / w->row_blocks, pixels = block * columns;
    const bool is_whole = pixels % $LANES == 0 && (block * w->row_blocks == rows || columns % $LANES == 0);
    w->padded = is_whole ? 0 : (pixels + $LANES - 1) / $LANES * $LANES;
    w->window.plane = w->phases * (block + w->halo) * columns;
    w->window.channel = w->window.planes * w->window.plane;
    const bool is_padded = w->top != 0 || w->window.first != 0;
    if (w->row_blocks == 1 && w->taps == 1 && rows == height && columns == width && !is_padded) {
        w->is_plain = true;
        w->phases = 0;
    }
    if (w->row_blocks == 1) {
        // Half as many pixels do: then planes and d_y of the samples stay in the first-level cache.
        const int64_t wanted = ($PIXELS / 2 + pixels - 1) / pixels;
        const int64_t items = st_first_of(1, w->channels, w->channel_blocks) * w->window.channel + w->rows * w->padded;
        const int64_t together = wanted * items > room ? room / items : wanted;
        w->together = together < 1 ? 1 : together > samples && samples > 0 ? samples : together;
    }
}
"""
