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
from staged.backends.cpu.contraction.vectors import Vector, index_name, index_type, sum_lanes_function
from staged.code.support.library import Snippet
from staged.code.support.vectors import vector_snippet
from staged.code.writer import Writer

SHARED_VECTORS = 16
"""From so many vectors of pixels on, offsets may be such that the compiler cannot see them."""


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
    def parameters(self) -> list[Parameter]:
        """The parameters of the function."""
        operand = f"const {self.vector.scalar} *restrict "
        return [
            (operand, "planes"), ("const int64_t *", "offset"), ("int64_t ", "plane_sample"),
            (operand, "d_y"), ("int64_t ", "d_y_row"), ("int64_t ", "d_y_sample"),
            ("int64_t ", "samples"), ("int64_t ", "pixels"),
            (f"{self.vector.scalar} *restrict ", "sums"), ("int64_t ", "sums_row"),
        ]  # fmt: skip

    @property
    def snippet(self) -> Snippet:
        """The function."""
        t, vector, rows, taps = Writer(), self.vector, self.rows, self.taps
        scalar, lanes = vector.scalar, vector.lanes
        each_tap = f"for (int64_t tap = 0; tap < {taps}; ++tap)"
        total = -(-rows * taps // lanes) * lanes
        t.line(f"// Gradient of {rows} x {taps} weights, added to `sums`: the sum of d_y[r * d_y_row + i] *")
        t.line("// planes[offset[tap] + i] over all pixels i and samples. A weight is a vector of partial sums.")
        with t.function(f"{INLINE} {self.name}_inline", map(declared, self.parameters)):
            t.line(f"{vector.name} acc[{rows}][{taps}];")
            with each_row(t, rows), t.unrolled(taps, each_tap):
                t.line(f"acc[r][tap] = ({vector.name}){{0}};")
            with t.block("for (int64_t sample = 0; sample < samples; ++sample)"):
                t.line("int64_t i = 0;")
                with t.block(f"for (; i <= pixels - {lanes}; i += {lanes})"):
                    self._emit_step(t, each_tap, is_masked=False)
                with t.block("if (i < pixels)"):
                    numbers = ", ".join(map(str, range(lanes)))
                    count = "pixels - i" if vector.dtype.size == 8 else "(int32_t)(pixels - i)"
                    t.line("// The lanes after the last pixel are other rows, and may be NaN.")
                    t.line(f"const {index_name(vector)} lane = ({index_name(vector)}){{{numbers}}} < {count};")
                    self._emit_step(t, each_tap, is_masked=True)
                t.line("planes += plane_sample;")
                t.line("d_y += d_y_sample;")
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
                t.line(f"sums[r * sums_row + tap] += total[{times(taps, 'r')} + tap];")
        types = (vector_snippet(vector.dtype.name), vector_snippet(index_type(vector)))
        fma = f"st_fma_{vector.name}"
        return Snippet(self.name, str(t), needs=(*types, *([fma] if f"{fma}(" in str(t) else [])))

    def _emit_step(self, t: Writer, each_tap: str, is_masked: bool) -> None:
        """The products of a vector of pixels."""
        vector = self.vector
        x = vector.load("planes + offset[tap] + i")
        if is_masked:
            x = f"({vector.name})(({index_name(vector)}){x} & lane)"
        t.line(f"{vector.name} y[{self.rows}];")
        with each_row(t, self.rows):
            t.line(f"y[r] = {vector.load('d_y + r * d_y_row + i')};")
        with t.unrolled(self.taps, each_tap):
            t.line(f"const {vector.name} x = {x};")
            with each_row(t, self.rows):
                t.line(vector.multiply_add("acc[r][tap]", "x", "y[r]"))


def weights_support(vector: Vector) -> list[tuple[str, Snippet]]:
    """The function that accumulates the gradients of all weights over a block of pixels, and its sizes."""
    text = _WEIGHTS.replace("$T", vector.scalar).replace("$D", str(vector.dtype))
    return [("", Snippet(f"add_weights_{vector.dtype}", text))]


_WEIGHTS = """\
typedef void st_weight_tile_$D(const $T *restrict planes, const int64_t *offset, int64_t plane_sample,
        const $T *restrict d_y, int64_t d_y_row, int64_t d_y_sample, int64_t samples, int64_t pixels,
        $T *restrict sums, int64_t sums_row);

// The sizes of a gradient with respect to the weights of a convolution: a row of sums per channel of d_y.
typedef struct {
    const int64_t *offset;                           // of the taps, in the planes of a channel
    int64_t rows, taps, row_taps;                    // weights per channel, and those that tiles divide alike
    int64_t tile_rows, tile_channels, tile_taps;     // of the largest tile
    int64_t large_rows, wide_taps;                   // the others have tiles with one row or one tap less
    st_weight_tile_$D *tile[2][2];                  // [is_narrow][is_low]; narrow: one channel or fewer taps
    int64_t plane_channel, plane_sample;             // distances of channels and samples
    int64_t d_y_row, d_y_sample, sums_row;
} st_weights_$D;

// Adds the gradients of the weights of `channels` channels, from the pixels of some samples.
static void st_add_weights_$D(const st_weights_$D *w, const $T *planes, int64_t channels, const $T *d_y,
        int64_t samples, int64_t pixels, $T *sums) {
    for (int64_t step, channel = 0; channel < channels; channel += step) {
        step = channel + w->tile_channels <= channels ? w->tile_channels : 1;
        for (int64_t taps, tap = 0; tap < w->taps; tap += taps) {
            const bool is_narrow = step < w->tile_channels || tap % w->row_taps >= w->wide_taps;
            taps = w->tile_channels == 1 && is_narrow ? w->tile_taps - 1 : w->tile_taps;
            const $T *const from = planes + channel * w->plane_channel + w->offset[tap];
            $T *const into = sums + channel * w->taps + tap;
            for (int64_t row = 0; row < w->rows;) {
                const bool is_low = row >= w->large_rows;
                w->tile[is_narrow][is_low](from, w->offset, w->plane_sample, d_y + row * w->d_y_row, w->d_y_row,
                        w->d_y_sample, samples, pixels, into + row * w->sums_row, w->sums_row);
                row += is_low ? w->tile_rows - 1 : w->tile_rows;
            }
        }
    }
}
"""
