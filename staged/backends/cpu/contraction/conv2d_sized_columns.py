"""The gradient of a convolution with respect to images whose height or width the program finds, in two steps.

First products: column (channel, ky, kx) is the sum over o of weight[o, channel, ky, kx] * d_y[o], for all pixels of
some rows of d_y. Then each pixel of d_x accumulates the columns of the taps that met it. Pixels whose row and column
leave the same remainders by the strides meet the same taps: they are a phase. Its rows are vectors, four at a time, and
masks leave out lanes beside a row of d_y.

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
from staged.backends.cpu.contraction.vectors import index_name, snippet_of, vector_of
from staged.code.expr import Expr, Prefix, Variable, call
from staged.code.support.lanes import part_snippet
from staged.code.support.library import Snippet
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
    pairs = {"size": (spec.kh, spec.kw), "stride": spec.stride, "dilation": spec.dilation}
    met, taps_of_phases = _met_taps(spec), f"{spec.table.removesuffix('_sizes')}_taps"
    table = Table(
        spec.table,
        f"st_columns_{dtype}",
        f"d_y {y}, weight {weight}, d_x {x}, {dtype}",
        {
            "outer": outer, "groups": spec.groups, "channels": channels,
            **{field: f"{{{pair[0]}, {pair[1]}}}" for field, pair in pairs.items()},
            "taps": taps_of_phases, "panels": panels,
        },
        f"static const st_met_tap {taps_of_phases}[{len(met)}] = {{{', '.join(met)}}};",
    )  # fmt: skip

    # Room for the largest block: as many rows as have columns in the cache, but one of a phase at least.
    above = (spec.kh - 1) * spec.dilation[0] // spec.stride[0] + 1
    beside = ((spec.kw - 1) * spec.dilation[1] + spec.padding[1]) // spec.stride[1] + 1
    widest, limit = max(spec.out_w, -(-spec.w // spec.stride[1])), machine.l2 // 3 // dtype.size
    fitting = max(limit // (channels * taps), (1 + above) * widest)
    rooms = {
        "edge": panel,
        "phases": (spec.kw + 4 * spec.stride[1]) * (widest + vector.lanes),
        "columns": channels * taps * (fitting + vector.lanes + 16) + 2 * (beside + 16) + 4 * (widest + vector.lanes),
        "plane": spec.stride[0] * spec.stride[1] * fitting if spec.epilogue is not None else 0,
    }

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        here = Variable("here", word(f"st_columns_{dtype}"))
        numbers = [spec.number(extent, parameters) for extent in (images.n, *images.out, *images.image)]
        blocks, made = call(f"st_size_columns_{dtype}", sizes, *numbers, Prefix("&", here)), Prefix("&", here)
        loop = loop_over_blocks(spec, machine, parameters, blocks, f"st_next_columns_{dtype}", "added_columns", (made,))
        return Declare(here, is_const=False), *loop

    lanes = vector.lanes
    pairs_of_lanes = [str(lane) for pair in zip(range(lanes), range(lanes, 2 * lanes), strict=True) for lane in pair]
    words = {
        "$LOW": ", ".join(pairs_of_lanes[:lanes]), "$HIGH": ", ".join(pairs_of_lanes[lanes:]),
        "$MOST": MOST_TAPS, "$LIMIT": limit, "$CORES": machine.cores, "$V": vector.name, "$I": index_name(vector),
        "$NUMBERS": ", ".join(map(str, range(vector.lanes))), "$N": "int32_t" if dtype.size == 4 else "int64_t",
    }  # fmt: skip
    walk = replace(snippet_of(vector, "next_columns", _NEXT, words), needs=(part_snippet(vector.name), "shuffle"))
    return kernel_of_blocks(spec, machine, images, sum(rooms.values()), table, body, [*support, TAPS, walk])


def _met_taps(spec: Conv2dSpec) -> list[str]:
    """The taps of rows, then those of columns, in the order of the phases that they meet."""
    met = []
    for size, stride, padding, dilation in zip(
        (spec.kh, spec.kw), spec.stride, spec.padding, spec.dilation, strict=True
    ):
        places = sorted((divmod(tap * dilation - padding, stride)[::-1], tap) for tap in range(size))
        met += [f"{{{tap}, {phase}, {-row}}}" for (phase, row), tap in places]
    return met


TAPS = Snippet(
    "met_tap",
    """\
// A tap of a weight in its row or column: pixel k of a phase meets pixel `k + shift` of d_y.
typedef struct {
    int32_t tap, phase, shift;
} st_met_tap;

// The place of the columns of a tap, and of the mask of the lanes that they meet.
typedef struct {
    int64_t column, mask;
} st_place;
""",
)
_NEXT = """\
// The sizes of the gradient of images. Pairs are rows and columns.
typedef struct {
    int64_t outer, groups;                                // channels of d_x in each of the groups
    int64_t channels;                                     // channels of d_x whose columns are there at once
    int64_t size[2], stride[2], dilation[2];              // of the weight
    const st_met_tap *taps;                               // by phase: `size[0]` of rows, `size[1]` of columns
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
    int64_t low, y_first, y_last;    // the first row of columns, and those with rows of d_y
    int64_t distance;                // of columns
    int64_t vectors;                 // of the pixels of a phase in a row
    $T *columns, *edge, *phases, *masks, *plane;
    bool is_open;                    // the block has more channels
    st_place places[$MOST];          // by phase of columns
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

// Computes the columns of the next channels from the rows `y_first` to `y_last` of d_y.
static inline void st_fill_columns_$D(const st_columns_$D *s, const $T *d_y, const $T *weight, st_added_columns_$D *p) {
    const st_panels_$D *const w = &s->panels;
    const int64_t taps = s->size[0] * s->size[1], rows = s->channels * taps, image = s->d_y[0] * s->d_y[1];
    const int64_t pixels = (p->y_last - p->y_first) * s->d_y[1], vectors = (pixels + $LANES - 1) / $LANES;
    const $T *const from = d_y + (p->batch * s->groups + p->group) * w->inner * image + p->y_first * s->d_y[1];
    const $T *const a = weight + (p->group * w->inner * s->outer + p->channel) * taps;
    $T *const columns = p->columns + (p->y_first - p->low) * s->d_y[1];
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
                    is_edge ? width : image, w->inner, w->chain, columns + row * p->distance + done * $LANES,
                    p->distance, false);
            row += w->tile_rows - is_low;
        }
    }
    for (int64_t row = 0; row < rows && pixels % $LANES != 0; ++row) {
        *($V_u *)(columns + row * p->distance + pixels) = ($V){0};
    }
}

// Joins the phases of a row of `columns` pixels.
static inline void st_join_phases_$D(const $T *restrict phases, int64_t distance, int64_t stride, int64_t columns,
        $T *restrict row) {
    if (stride == 2) {
        for (int64_t i = 0; 2 * i < columns; i += $LANES) {
            const $V x = *(const $V_u *)(phases + i), y = *(const $V_u *)(phases + distance + i);
            const $V low = ST_SHUFFLE($I, x, y,
                    $LOW);
            const $V high = ST_SHUFFLE($I, x, y,
                    $HIGH);
            st_store_$V(row + 2 * i, columns - 2 * i, low);
            if (columns - 2 * i > $LANES) {
                st_store_$V(row + 2 * i + $LANES, columns - 2 * i - $LANES, high);
            }
        }
        return;
    }
    for (int64_t x = 0; x < stride; ++x) {
        for (int64_t j = 0; j * stride + x < columns; ++j) {
            row[j * stride + x] = phases[x * distance + j];
        }
    }
}

// Finds the places of the columns that taps accumulate, and the lanes of vectors of a phase that are in rows of d_y.
static inline void st_find_places_$D(const st_columns_$D *s, st_added_columns_$D *p) {
    const st_met_tap *const down = s->taps, *const across = s->taps + s->size[0];
    const int64_t room = p->vectors * $LANES;
    const $I lane = {$NUMBERS};
    st_place *to = p->places;
    for (int64_t first = 0, end; first < s->size[1]; first = end) {
        for (end = first; end < s->size[1] && across[end].phase == across[first].phase; ++end) {
            for (int64_t v = 0; v < room; v += $LANES) {
                const $I column = lane + ($N)(v + across[end].shift);
                *($I_u *)(p->masks + end * room + v) = (column >= 0) & (column < ($N)s->d_y[1]);
            }
        }
        for (int64_t y = 0; y < s->size[0]; ++y) {
            for (int64_t x = first; x < end; ++x, ++to) {
                to->column = (down[y].tap * s->size[1] + across[x].tap) * p->distance
                           + (p->first - p->low + down[y].shift) * s->d_y[1] + across[x].shift;
                to->mask = x * room;
            }
        }
    }
}

// Accumulates the columns of a channel in rows of its pixels at `plane`.
static __attribute__((noinline)) void st_add_columns_$D(const st_columns_$D *s, const st_added_columns_$D *p,
        const $T *columns, $T *plane) {
    const st_met_tap *const down = s->taps, *const across = s->taps + s->size[0];
    const int64_t width = s->d_y[1], room = p->vectors * $LANES;
    for (int64_t y = 0, tap = 0, met; y < s->stride[0]; ++y, tap += met) {
        for (met = 0; tap + met < s->size[0] && down[tap + met].phase == y; ++met) {
        }
        const int64_t all = (s->d_x[0] - y + s->stride[0] - 1) / s->stride[0];
        const int64_t rows = (all < p->last ? all : p->last) - p->first;
        for (int64_t r = 0; r < rows; r += 4) {
            // The taps that meet a row of d_y.
            int64_t first = tap, end = tap + met;
            for (; first < end && p->first + r + down[first].shift >= s->d_y[0]; ++first) {
            }
            for (; first < end && p->first + r + 3 + down[end - 1].shift < 0; --end) {
            }
            for (int64_t x = 0, k = 0, taps; x < s->stride[1]; ++x, k += taps) {
                for (taps = 0; k + taps < s->size[1] && across[k + taps].phase == x; ++taps) {
                }
                const st_place *const places = p->places + s->size[0] * k + first * taps;
                for (int64_t v = 0; v < room; v += $LANES) {
                    const $T *const from = columns + r * width + v;
                    $V sum[4] = {{0}};
                    for (int64_t t = 0; t < (end - first) * taps; ++t) {
                        const $I inside = *(const $I_u *)(p->masks + places[t].mask + v);
                        if (r + 1 == rows) {
                            sum[0] += ($V)(*(const $I_u *)(from + places[t].column) & inside);
                            continue;
                        }
                        #pragma GCC unroll 4
                        for (int i = 0; i < 4; ++i) {
                            sum[i] += ($V)(*(const $I_u *)(from + places[t].column + i * width) & inside);
                        }
                    }
                    #pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) {
                        if (s->stride[1] > 1) {
                            *($V_u *)(p->phases + (i * s->stride[1] + x) * room + v) = sum[i];
                        } else if (r + i < rows) {
                            st_store_$V(plane + ((r + i) * s->stride[0] + y) * s->d_x[1] + v, s->d_x[1] - v, sum[i]);
                        }
                    }
                }
            }
            for (int64_t i = 0; s->stride[1] > 1 && i < 4 && r + i < rows; ++i) {
                st_join_phases_$D(p->phases + i * s->stride[1] * room, room, s->stride[1], s->d_x[1],
                        plane + ((r + i) * s->stride[0] + y) * s->d_x[1]);
            }
        }
    }
}

// Finds the rows of d_y that a block meets, and divides the scratch memory. Rows beyond the image are zeros.
static inline void st_find_rows_$D(const st_columns_$D *s, $T *scratch, st_added_columns_$D *p) {
    int64_t least[2] = {0}, most[2] = {0};
    for (int64_t k = 0; k < s->size[0] + s->size[1]; ++k) {
        const int64_t side = k >= s->size[0], shift = s->taps[k].shift;
        least[side] = k == side * s->size[0] || shift < least[side] ? shift : least[side];
        most[side] = k == side * s->size[0] || shift > most[side] ? shift : most[side];
    }
    const int64_t low = p->first + least[0], high = p->last + most[0], width = s->d_y[1];
    p->low = low;
    p->y_first = low < 0 ? 0 : low;
    p->y_last = high < s->d_y[0] ? high : s->d_y[0];
    p->y_last = p->y_last < p->y_first ? p->y_first : p->y_last;
    p->distance = ((high - low) * width + $LANES + 15) / 16 * 16;
    p->vectors = ((s->d_x[1] + s->stride[1] - 1) / s->stride[1] + $LANES - 1) / $LANES;
    p->edge = scratch;
    p->masks = p->edge + s->panels.inner * s->panels.tile_vectors * $LANES;
    p->phases = p->masks + s->size[1] * p->vectors * $LANES;
    p->columns = p->phases + 4 * s->stride[1] * p->vectors * $LANES + (least[1] < 0 ? (15 - least[1]) / 16 * 16 : 0);
    const int64_t columns = s->channels * s->size[0] * s->size[1];
    p->plane = p->columns + columns * p->distance;
    // Vectors may go beyond these rows: products overwrite the next ones, and the last row has room behind it.
    for (int64_t k = 0; k < columns; ++k) {
        $T *const column = p->columns + k * p->distance;
        for (int64_t i = 0; i < (p->y_first - low) * width; i += $LANES) {
            *($V_u *)(column + i) = ($V){0};
        }
        for (int64_t i = (p->y_last - low) * width; i < (high - low) * width; i += $LANES) {
            *($V_u *)(column + i) = ($V){0};
        }
    }
    st_find_places_$D(s, p);
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
        if (p->columns == NULL || blocks > 1) {
            st_find_rows_$D(s, scratch, p);
        }
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
