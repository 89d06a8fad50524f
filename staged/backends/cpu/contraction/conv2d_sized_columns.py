"""The gradient of a convolution with respect to images whose height or width the program finds, in two steps.

First products: column (channel, ky, kx) is the sum over o of weight[o, channel, ky, kx] * d_y[o], for all pixels of
some rows of d_y. Then each pixel of d_x accumulates the columns of the taps that met it. Pixels whose row and column
leave the same remainders by the strides meet the same taps: they are a phase, whose sums are those of whole runs.

Numerics: those of `conv2d_columns.py`.

Tested by `tests/backends/host/test_contraction_images.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from staged.backends.cpu.contraction.conv2d_points import tiles_of_panels
from staged.backends.cpu.contraction.conv2d_sized import kernel_of_blocks, loop_over_blocks
from staged.backends.cpu.contraction.items import Table
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec
from staged.backends.cpu.contraction.vectors import snippet_of, vector_of
from staged.code.expr import Expr, Prefix, Variable, call
from staged.code.support.lanes import part_snippet
from staged.code.tree import Declare, Statement
from staged.code.types import word
from staged.ir.machine import Machine
from staged.kernels.products import MOST_TAPS

COLUMNS = 64
"""Columns of a block, as far as a channel does not have more."""


def emit_sized_columns(spec: Conv2dSpec, machine: Machine) -> ContractionKernel:
    """The kernel of the gradient of images of any size."""
    images, vector, dtype = spec.images, vector_of(machine, spec.dtype), spec.dtype
    assert images is not None, "other images have columns of their own"
    outer, inner, taps = spec.c // spec.groups, spec.oc // spec.groups, spec.kh * spec.kw
    channels = max(count for count in range(1, outer + 1) if outer % count == 0 and count * taps <= max(COLUMNS, taps))
    panels, support, panel = tiles_of_panels(spec, machine, channels * taps, inner, (1, outer * taps))
    x, weight, y = spec.shapes
    pairs = {"size": (spec.kh, spec.kw), "stride": spec.stride, "padding": spec.padding, "dilation": spec.dilation}
    table = Table(
        spec.table,
        f"st_columns_{dtype}",
        f"d_y {y}, weight {weight}, d_x {x}, {dtype}",
        {
            "outer": outer, "groups": spec.groups, "channels": channels,
            **{field: f"{{{pair[0]}, {pair[1]}}}" for field, pair in pairs.items()},
            "panels": panels,
        },
    )  # fmt: skip

    # Room for the largest block: as many rows as have columns in the cache, but one of a phase at least.
    above = (spec.kh - 1) * spec.dilation[0] // spec.stride[0] + 1
    beside = ((spec.kw - 1) * spec.dilation[1] + spec.padding[1]) // spec.stride[1] + 1
    widest, limit = max(spec.out_w, -(-spec.w // spec.stride[1])), machine.l2 // 3 // dtype.size
    fitting = max(limit // (channels * taps), (1 + above) * widest)
    margin = beside + 2 * vector.lanes + 16
    rooms = {
        "columns": channels * taps * (fitting + margin) + margin,
        "edge": panel,
        "phases": spec.stride[1] * (fitting + 16),
        "plane": spec.stride[0] * spec.stride[1] * fitting if spec.epilogue is not None else 0,
    }

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        here = Variable("here", word(f"st_columns_{dtype}"))
        numbers = [spec.number(extent, parameters) for extent in (images.n, *images.out, *images.image)]
        blocks, made = call(f"st_size_columns_{dtype}", sizes, *numbers, Prefix("&", here)), Prefix("&", here)
        loop = loop_over_blocks(spec, machine, parameters, blocks, f"st_next_columns_{dtype}", "added_columns", (made,))
        return Declare(here, is_const=False), *loop

    words = {"$MOST": MOST_TAPS, "$LIMIT": limit, "$CORES": machine.cores, "$V": vector.name}
    walk = replace(snippet_of(vector, "next_columns", _NEXT, words), needs=(part_snippet(vector.name),))
    return kernel_of_blocks(spec, machine, images, sum(rooms.values()), table, body, [*support, walk])


_NEXT = """\
// The sizes of the gradient of images. Pairs are rows and columns.
typedef struct {
    int64_t outer, groups;                                // channels of d_x in each of the groups
    int64_t channels;                                     // channels of d_x whose columns are there at once
    int64_t size[2], stride[2], padding[2], dilation[2];  // of the weight
    st_panels_$D panels;                                 // the channels of d_y, and tiles for them
    int64_t d_y[2], d_x[2];                               // rows and columns of pixels
    int64_t block_rows;                                   // rows of a phase in a block
} st_columns_$D;

// A channel of a block: `sums` are its pixels from `col` on.
typedef struct {
    int64_t batch, row, col, rows, cols, ld;
    const $T *sums;
    int64_t item, group, channel;    // the next ones, and the group of this one
    int64_t first, last;             // rows of phases
    int64_t y_first, y_last;         // rows of d_y
    int64_t distance;                // of columns
    $T *columns, *edge, *phases, *plane;
    bool is_open;                    // the block has more channels
} st_added_columns_$D;

// Completes the sizes of the gradient of images. Returns the number of blocks of an image.
static int64_t st_size_columns_$D(const st_columns_$D *known, int64_t images, int64_t height, int64_t width,
        int64_t rows, int64_t columns, st_columns_$D *s) {
    *s = *known;
    s->d_y[0] = height;
    s->d_y[1] = width;
    s->d_x[0] = rows;
    s->d_x[1] = columns;
    const int64_t all = (rows + s->stride[0] - 1) / s->stride[0], wide = (columns + s->stride[1] - 1) / s->stride[1];
    if (all * wide == 0) {
        return 0;
    }
    // Blocks of as many rows as have columns in a third of the second-level cache, and enough blocks for all threads.
    const int64_t taps = s->size[0] * s->size[1];
    const int64_t reach = (s->size[0] - 1) * s->dilation[0] / s->stride[0] + 1;
    const int64_t fitting = $LIMIT / (s->channels * taps) / (width > wide ? width : wide) - reach;
    int64_t blocks = fitting < 1 ? all : (all + fitting - 1) / fitting;
    const int64_t items = images * s->groups, work = s->panels.inner * s->outer * taps * height * width;
    if ($CORES > 1 && items < 4 * $CORES && items * work > 500000) {
        const int64_t wanted = (4 * $CORES + items - 1) / items;
        blocks = blocks > wanted ? blocks : wanted < all ? wanted : all;
    }
    s->block_rows = (all + blocks - 1) / blocks;
    return (all + s->block_rows - 1) / s->block_rows;
}

// How many rows or columns of d_y lie before those of a phase for a tap. Returns whether the two meet.
static inline bool st_meets_$D(const st_columns_$D *s, int64_t side, int64_t phase, int64_t tap, int64_t *shift) {
    const int64_t place = phase + s->padding[side] - tap * s->dilation[side];
    *shift = place / s->stride[side];
    return *shift * s->stride[side] == place;
}

// Computes the columns of the next channels from the rows `y_first` to `y_last` of d_y.
static inline void st_fill_columns_$D(const st_columns_$D *s, const $T *d_y, const $T *weight, st_added_columns_$D *p) {
    const st_panels_$D *const w = &s->panels;
    const int64_t taps = s->size[0] * s->size[1], rows = s->channels * taps, image = s->d_y[0] * s->d_y[1];
    const int64_t pixels = (p->y_last - p->y_first) * s->d_y[1], vectors = (pixels + $LANES - 1) / $LANES;
    const $T *const from = d_y + (p->batch * s->groups + p->group) * w->inner * image + p->y_first * s->d_y[1];
    const $T *const a = weight + (p->group * w->inner * s->outer + p->channel) * taps;
    const int64_t panels = (vectors + w->tile_vectors - 1) / w->tile_vectors;
    const int64_t tiles = (rows + w->tile_rows - 1) / w->tile_rows, low = tiles * w->tile_rows - rows;
    for (int64_t panel = 0, done = 0, count; panel < panels; ++panel, done += count) {
        count = (vectors - done + panels - panel - 1) / (panels - panel);
        const int64_t width = count * $LANES, rest = pixels - done * $LANES;
        const bool is_edge = rest < width;
        if (is_edge && p->channel == 0) {
            st_copy_pixels_of_panel_$D(from + done * $LANES, image, w->inner, rest, width, p->edge);
        }
        for (int64_t tile = 0, row = 0; tile < tiles; ++tile) {
            const bool is_low = tile >= tiles - low;
            w->tile[is_low][count - 1](a + row, w->weight[0], w->weight[1], is_edge ? p->edge : from + done * $LANES,
                    is_edge ? width : image, w->inner, w->chain, p->columns + row * p->distance + done * $LANES,
                    p->distance, false);
            row += w->tile_rows - is_low;
        }
    }
}

// Accumulates `count` runs of `length` items. The last vectors of the runs are read as a whole.
static inline void st_add_runs_$D(const $T *const *runs, int64_t count, int64_t length, $T *sums) {
    int64_t i = 0;
    for (; i <= length - 4 * $LANES; i += 4 * $LANES) {
        $V sum[4] = {{0}};
        for (int64_t k = 0; k < count; ++k) {
            #pragma GCC unroll 4
            for (int v = 0; v < 4; ++v) {
                sum[v] += *(const $V_u *)(runs[k] + i + v * $LANES);
            }
        }
        #pragma GCC unroll 4
        for (int v = 0; v < 4; ++v) {
            *($V_u *)(sums + i + v * $LANES) = sum[v];
        }
    }
    for (; i < length; i += $LANES) {
        $V sum = {0};
        for (int64_t k = 0; k < count; ++k) {
            sum += *(const $V_u *)(runs[k] + i);
        }
        st_store_$V(sums + i, length - i, sum);
    }
}

// Joins the phases of a row of `columns` pixels, of which each has `count` at most.
static inline void st_join_phases_$D(const $T *restrict phases, int64_t distance, int64_t count, int64_t stride,
        int64_t columns, $T *restrict row) {
    int64_t done = 0;
    if (stride == 2) {
        done = count < columns / 2 ? count : columns / 2;
        for (int64_t j = 0; j < done; ++j) {
            row[2 * j] = phases[j];
            row[2 * j + 1] = phases[distance + j];
        }
    }
    for (int64_t x = 0; x < stride; ++x) {
        for (int64_t j = done; j < count && j * stride + x < columns; ++j) {
            row[j * stride + x] = phases[x * distance + j];
        }
    }
}

// Accumulates the columns of a channel in rows of its pixels at `plane`.
static inline void st_add_columns_$D(const st_columns_$D *s, const st_added_columns_$D *p, $T *columns, $T *plane) {
    const int64_t width = s->d_y[1], rows = p->y_last - p->y_first, length = p->last - p->first;
    const int64_t room = (length * width + 15) / 16 * 16;
    const int64_t first_row = p->first * s->stride[0], stop = p->last * s->stride[0];
    const int64_t height = (stop < s->d_x[0] ? stop : s->d_x[0]) - first_row, right = width * s->stride[1];
    for (int64_t y = 0; y < height && right < s->d_x[1]; ++y) {
        st_zero_$D(plane + y * s->d_x[1] + right, s->d_x[1] - right);
    }
    int64_t shift[2];
    for (int64_t tap = 0; tap < s->size[0] * s->size[1]; ++tap) {
        $T *const column = columns + tap * p->distance;
        const int64_t above = tap / s->size[1] * s->dilation[0] - s->padding[0] - first_row;
        const int64_t beside = tap % s->size[1] * s->dilation[1] - s->padding[1];
        // Pixels to the right of those that phases have as columns of d_y.
        const int64_t behind = right > beside ? (right - beside + s->stride[1] - 1) / s->stride[1] : 0;
        const int64_t top = p->y_first * s->stride[0] + above;
        const int64_t from = top < 0 ? (s->stride[0] - 1 - top) / s->stride[0] : 0;
        for (int64_t q = behind; q < width && q * s->stride[1] + beside < s->d_x[1]; ++q) {
            $T *const pixels = plane + top * s->d_x[1] + q * s->stride[1] + beside;
            for (int64_t r = from; r < rows && r * s->stride[0] + top < height; ++r) {
                pixels[r * s->stride[0] * s->d_x[1]] += column[r * width + q];
            }
        }
        // Runs reach across the ends of rows, where pixels that no other of the phase meets become zeros.
        const int64_t phase = (beside % s->stride[1] + s->stride[1]) % s->stride[1];
        st_meets_$D(s, 1, phase, tap % s->size[1], shift + 1);
        for (int64_t k = shift[1]; k < 0; ++k) {
            for (int64_t r = -1; r < rows && k >= -width; ++r) {
                column[(r + 1) * width + k] = 0;
            }
        }
        for (int64_t k = 0; k < shift[1] && k < width; ++k) {
            for (int64_t r = 0; r <= rows; ++r) {
                column[r * width + k] = 0;
            }
        }
    }
    for (int64_t y = 0; y < s->stride[0]; ++y) {
        const int64_t high = (s->d_x[0] - y + s->stride[0] - 1) / s->stride[0], end = p->last < high ? p->last : high;
        for (int64_t i = p->first, next; i < end; i = next) {
            next = end;  // up to here the same rows of taps meet
            $T *const to = plane + ((i - p->first) * s->stride[0] + y) * s->d_x[1];
            const bool is_direct = s->stride[0] == 1 && s->stride[1] == 1 && s->d_x[1] == width;
            for (int64_t x = 0; x < s->stride[1]; ++x) {
                const $T *runs[$MOST];
                int64_t count = 0;
                for (int64_t ky = 0; ky < s->size[0]; ++ky) {
                    if (!st_meets_$D(s, 0, y, ky, shift)) {
                        continue;
                    }
                    const int64_t row = i + shift[0], change = row < 0 ? -shift[0] : s->d_y[0] - shift[0];
                    next = row < s->d_y[0] && change < next ? change : next;
                    for (int64_t kx = 0; kx < s->size[1] && row >= 0 && row < s->d_y[0]; ++kx) {
                        if (st_meets_$D(s, 1, x, kx, shift + 1) && shift[1] < width && -shift[1] < width) {
                            runs[count++] = columns + (ky * s->size[1] + kx) * p->distance
                                            + (row - p->y_first) * width + shift[1];
                        }
                    }
                }
                st_add_runs_$D(runs, count, (next - i) * width, is_direct ? to : p->phases + x * room);
            }
            for (int64_t r = 0; r < next - i && !is_direct; ++r) {
                st_join_phases_$D(p->phases + r * width, room, width, s->stride[1], s->d_x[1],
                        to + r * s->stride[0] * s->d_x[1]);
            }
        }
    }
}

// Computes the next channel of a block of images, in the result `c` or, without one, in scratch memory.
// Returns false after the last one.
static bool st_next_columns_$D(const st_columns_$D *s, const $T *d_y, const $T *weight, $T *c, $T *scratch, int64_t end,
        st_added_columns_$D *p) {
    const int64_t taps = s->size[0] * s->size[1], image = s->d_x[0] * s->d_x[1];
    if (!p->is_open) {
        if (p->item == end) {
            return false;
        }
        const int64_t all = (s->d_x[0] + s->stride[0] - 1) / s->stride[0];
        const int64_t blocks = (all + s->block_rows - 1) / s->block_rows, block = p->item % blocks;
        p->batch = p->item / blocks / s->groups;
        p->group = p->item / blocks % s->groups;
        p->channel = 0;
        p->first = block * s->block_rows;
        p->last = p->first + s->block_rows < all ? p->first + s->block_rows : all;
        const int64_t top = p->first * s->stride[0] + s->padding[0] - (s->size[0] - 1) * s->dilation[0];
        const int64_t bottom = p->last * s->stride[0] - 1 + s->padding[0];
        p->y_first = top <= 0 ? 0 : (top + s->stride[0] - 1) / s->stride[0];
        p->y_last = bottom / s->stride[0] + 1 < s->d_y[0] ? bottom / s->stride[0] + 1 : s->d_y[0];
        p->y_last = p->y_last < p->y_first ? p->y_first : p->y_last;
        const int64_t reach = ((s->size[1] - 1) * s->dilation[1] + s->padding[1]) / s->stride[1] + 1;
        const int64_t margin = (reach + $LANES + 15) / 16 * 16, pixels = (p->y_last - p->y_first) * s->d_y[1];
        p->distance = (pixels + $LANES - 1) / $LANES * $LANES + margin;
        p->columns = scratch + margin;
        p->edge = p->columns + s->channels * taps * p->distance;
        p->phases = p->edge + s->panels.inner * s->panels.tile_vectors * $LANES;
        p->plane = p->phases + s->stride[1] * (((p->last - p->first) * s->d_y[1] + 15) / 16 * 16);
        p->item += 1;
        p->is_open = true;
    }
    if (p->channel % s->channels == 0) {
        st_fill_columns_$D(s, d_y, weight, p);
    }
    const int64_t first_row = p->first * s->stride[0], stop = p->last * s->stride[0];
    p->row = p->group * s->outer + p->channel;
    p->col = first_row * s->d_x[1];
    p->rows = 1;
    p->cols = ((stop < s->d_x[0] ? stop : s->d_x[0]) - first_row) * s->d_x[1];
    p->ld = p->cols;
    $T *const to = c == NULL ? p->plane : c + (p->batch * s->groups * s->outer + p->row) * image + p->col;
    p->sums = to;
    st_add_columns_$D(s, p, p->columns + p->channel % s->channels * taps * p->distance, to);
    p->channel += 1;
    p->is_open = p->channel < s->outer;
    return true;
}
"""
