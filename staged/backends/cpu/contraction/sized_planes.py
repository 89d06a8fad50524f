"""The planes of images whose height or width the program finds: the columns with pixels are found once for each call.

Tested by `tests/backends/host/test_contraction_images.py`.
"""

from __future__ import annotations

from dataclasses import replace

from staged.backends.cpu.contraction.planes import pixels_support
from staged.backends.cpu.contraction.vectors import Vector, index_name, snippet_of
from staged.code.support.library import Snippet
from staged.kernels.products import MOST_TAPS


def sized_planes_support(vector: Vector) -> list[Snippet]:
    """The functions that fill planes."""
    words = {
        "$V": vector.name,
        "$I": index_name(vector),
        "$EVEN": ", ".join(str(2 * lane) for lane in range(vector.lanes)),
    }
    return [
        *(snippet for _, snippet in pixels_support(vector)),
        Snippet("pixel_columns", _COLUMNS.replace("$MOST", str(MOST_TAPS))),
        replace(snippet_of(vector, "fill_planes", _FILL, words), needs=("shuffle",)),
    ]


_COLUMNS = """\
// The columns of each plane that have pixels: the first one, and their number.
typedef struct {
    int64_t begin[$MOST], count[$MOST];
} st_pixel_columns;

// Finds the columns of planes that have pixels.
static inline void st_find_columns(const st_window *w, st_pixel_columns *found) {
    const int64_t stride = w->stride[1];
    for (int64_t k = 0; k < w->planes; ++k) {
        const int64_t x = w->first + k * w->step, begin = x < 0 ? (stride - 1 - x) / stride : 0;
        const int64_t source = begin * stride + x, places = w->columns - begin;
        const int64_t pixels = source < w->width ? (w->width - source + stride - 1) / stride : 0;
        found->begin[k] = places > 0 ? begin : w->columns;
        found->count[k] = places < 0 ? 0 : pixels < places ? pixels : places;
    }
}
"""
_FILL = """\
// Copies every second pixel of `rows` rows. Vectors may go beyond a row that is not one of the last.
static inline void st_copy_even_pixels_$D($T *target, int64_t columns, const $T *source, int64_t source_row,
        int64_t rows, int64_t count, const $T *end) {
    for (int64_t r = 0; r < rows; ++r, target += columns, source += source_row) {
        int64_t i = 0;
        const int64_t room = (rows - r - 1) * columns, given = (end - source) / 2;
        const int64_t most = room < given ? room : given;
        for (; i < count && i + $LANES <= most; i += $LANES) {
            const $V x = *(const $V_u *)(source + 2 * i), y = *(const $V_u *)(source + 2 * i + $LANES);
            *($V_u *)(target + i) = ST_SHUFFLE($I, x, y, $EVEN);
        }
        for (; i < count; ++i) {
            target[i] = source[2 * i];
        }
    }
}

// Fills `rows` rows of planes of an image's channels. Row r has the pixels of row `top + r * stride[0]`, or zeros.
static __attribute__((noinline)) void st_fill_planes_$D(const st_window *w, const st_pixel_columns *columns,
        const $T *image, int64_t channels, int64_t top, int64_t rows, $T *planes) {
    const int64_t pixels = w->height * w->width, stride = w->stride[1], row = w->stride[0] * w->width;
    int64_t first = 0, after = rows;  // the rows with pixels
    for (; first < after && top + first * w->stride[0] < 0; ++first) {
    }
    for (; first < after && top + (after - 1) * w->stride[0] >= w->height; --after) {
    }
    const int64_t y = (top + first * w->stride[0]) * w->width;
    for (int64_t k = 0; k < w->planes; ++k) {
        const int64_t begin = columns->begin[k], count = columns->count[k], here = count > 0 ? after - first : 0;
        const int64_t source = y + begin * stride + w->first + k * w->step;
        for (int64_t channel = 0; channel < channels; ++channel) {
            $T *const plane = planes + channel * w->channel + k * w->plane;
            $T *const to = plane + first * w->columns;
            if (here == 0) {
                st_zero_$D(plane, rows * w->columns);
                continue;
            }
            const $T *const from = image + channel * pixels + source;
            if (first > 0) {
                st_zero_$D(plane, first * w->columns);
            }
            if (stride == 2) {
                st_copy_even_pixels_$D(to + begin, w->columns, from, row, here, count, image + channels * pixels);
            } else if (stride > 2) {
                for (int64_t r = 0; r < here; ++r) {
                    for (int64_t i = 0; i < count; ++i) {
                        to[r * w->columns + begin + i] = from[r * row + i * stride];
                    }
                }
            } else if (row == w->columns) {
                st_copy_$D(to + begin, from, (here - 1) * row + count);  // one run, with pixels between rows
            } else {
                st_copy_pixels_$D(to + begin, w->columns, from, row, here, count);
            }
            st_zero_columns_$D(to, w->columns, here, 0, begin);
            st_zero_columns_$D(to, w->columns, here, begin + count, w->columns);
            if (after < rows) {
                st_zero_$D(plane + after * w->columns, (rows - after) * w->columns);
            }
        }
    }
}
"""
