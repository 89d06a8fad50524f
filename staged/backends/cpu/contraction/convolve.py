"""Convolutions by one function, which reads the sizes of a convolution in a struct.

    st_convolved_f32 tile = {.item = begin};
    while (st_next_convolved_f32(sizes, x, weight, NULL, scratch, end, &tile)) {
        epilogue(tile.batch, tile.row, tile.col, tile.rows, tile.cols, tile.sums, tile.ld, bias, y);
    }

The function lays out the planes of an image (planes.py) and computes tiles of channels by pixels, one after another.
Kernels that differ only in sizes are one function, to which a program passes the address of the sizes.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd

from staged.backends.cpu.contraction.conv2d_plan import WindowPlan
from staged.backends.cpu.contraction.items import Table, finished, kernel_with_sizes
from staged.backends.cpu.contraction.planes import is_plain, planes_support, window_value
from staged.backends.cpu.contraction.product_tile import ConvolutionTile, ProductTile
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel
from staged.backends.cpu.contraction.tile import TILE_START, aligned_to
from staged.backends.cpu.contraction.vectors import snippet_of
from staged.code.expr import Expr, Field, Items, Name, Prefix, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Statement, While
from staged.code.types import word


def emit_convolved(plan: WindowPlan) -> ContractionKernel:
    """The kernel of a convolution, or of its gradient of the image: the loop over the tiles of the result."""
    spec, vector, dtype = plan.spec, plan.vector, plan.vector.dtype
    kind = ProductTile if plan.taps == 1 else ConvolutionTile
    tiles = [[kind(vector, rows, vectors) for vectors in plan.tile_vectors] for rows in plan.channels.sizes]
    functions = [[_tile_function(plan, tile) for tile in row] for row in tiles]
    column_step = gcd(vector.lanes, *(rows * plan.window.out[1] for rows in plan.blocks.sizes))

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        tile = Variable("tile", word(f"st_convolved_{dtype}"))
        images, weights = (parameters[name] for name in spec.operand_names)
        result = parameters[spec.result_name] if spec.epilogue is None else Name("NULL")
        operands = sizes, images, weights, result, parameters["scratch"], parameters["end"], Prefix("&", tile)
        return (
            Declare(tile, Items((Field("item", parameters["begin"]),)), is_const=False),
            While(
                call(f"st_next_convolved_{dtype}", *operands),
                finished(spec, parameters, tile, _place(plan), column_step),
            ),
        )

    images, items = spec.images, plan.work_items
    kernel = kernel_with_sizes(
        spec,
        vector,
        items,
        plan.scratch_items,
        sizes_of(plan, functions, plan.offsets),
        body,
        convolution_support(plan, tiles, functions),
        is_shared=not plan.is_short,
        column_step=column_step,
    )
    return kernel if images is None else replace(kernel, items_size=images.n * (items // spec.n))


def convolution_support(
    plan: WindowPlan, tiles: Sequence[Sequence[ProductTile | ConvolutionTile]], functions: Sequence[Sequence[Snippet]]
) -> list[Snippet]:
    """The functions that lay out planes and compute tiles."""
    vector, dtype = plan.vector, plan.vector.dtype
    words = {
        "$NEXT": f"st_next_convolved_{dtype}", "$LAY_OUT": f"st_next_planes_{dtype}",
        "$OF": f"const st_convolution_{dtype}", "$GIVEN": "s", "$SIZES": "",
    }  # fmt: skip
    return [
        *(snippet for _, snippet in planes_support(vector)),
        *support_of_tiles(plan, tiles, functions),
        snippet_of(vector, "next_planes", _PLANES),
        snippet_of(vector, "next_convolved", NEXT_TILE, words),
    ]


def support_of_tiles(
    plan: WindowPlan, tiles: Sequence[Sequence[ProductTile | ConvolutionTile]], functions: Sequence[Sequence[Snippet]]
) -> list[Snippet]:
    """The sizes of a convolution, and the functions of tiles."""
    vector = plan.vector
    words = {"$SUMS": _SUMS * vector.lanes, "$ALIGNED": aligned_to(vector)}
    return [
        snippet_of(vector, "convolution_sizes", _SIZES, words),
        *(tile.snippet for row in tiles for tile in row),
        *(function for row in functions for function in row),
        TILE_START,
        snippet_of(vector, "large_parts", _LARGE_PARTS),
    ]


def _place(plan: WindowPlan) -> list[str | int]:
    """The arguments of an epilogue: fields of a tile. Sizes are numbers if the tiles of short sums have one size."""
    width = plan.vectors * plan.vector.lanes
    has_numbers = plan.is_short and plan.has_equal_panels and len(plan.channels.sizes) == 1
    rows, cols, ld = (plan.channels.large, width, width) if has_numbers else ("rows", "cols", "ld")
    return ["batch", "row", "col", rows, cols, "sums", ld]


def sizes_of(
    plan: WindowPlan,
    functions: Sequence[Sequence[Snippet]] = (),
    offsets_of_taps: Sequence[int] = (),
) -> Table:
    """The sizes of a convolution."""
    window, is_point, is_known = plan.window, plan.taps == 1, plan.has_known_images
    is_in_place = is_known and plan.is_in_place
    is_copy = is_known and is_plain(window) and plan.rows == window.out[0] and not is_in_place
    is_plane = is_known and (is_copy or is_in_place)
    planes = {} if is_plane else {
        "top": -window.padding[0], "phases": len(window.phases),
        "phase_step": window.phase_step if len(window.phases) > 1 else 0,
    }  # fmt: skip
    offsets = beside(plan, "offsets")
    places = f"static const int32_t {offsets}[{len(offsets_of_taps)}] = {{{', '.join(map(str, offsets_of_taps))}}};"
    return Table(
        plan.spec.table,
        f"st_convolution_{plan.vector.dtype}",
        plan.describe(),
        {
            "window": window_value(window, plan.rows, is_plane), "inner": plan.inner, "outer": plan.outer,
            "groups": plan.spec.groups, "height": window.out[0], "block_rows": plan.rows, **planes,
            "weight": f"{{{', '.join(map(str, plan.weight_strides))}}}", "taps": plan.taps,
            "offsets": offsets if offsets_of_taps and not is_point else "", "chain": plan.chain or plan.inner,
            "product" if is_point else "tile": named(functions) if functions else "", "tile_rows": plan.channels.large,
            "tile_vectors": plan.vectors, "is_by_pixels": "true" if plan.pixels_outside else "",
            "is_plain": "true" if is_copy else "", "is_in_place": "true" if is_in_place else "",
        },
        places if offsets_of_taps and not is_point else "",
    )  # fmt: skip


def named(functions: Sequence[Sequence[Snippet]]) -> str:
    """A table of functions."""
    rows = (", ".join(function.name for function in row) for row in functions)
    return f"{{{', '.join(f'{{{row}}}' for row in rows)}}}"


def _tile_function(plan: WindowPlan, tile: ProductTile | ConvolutionTile) -> Snippet:
    """The function of a tile: one of these sizes for short sums, in which they are constants."""
    if isinstance(tile, ProductTile) or tile.is_shared(plan.inner * plan.taps):
        return shared_function(tile)
    outer, inner = plan.weight_strides
    constants = {"a_row": outer, "a_channel": inner, "b_channel": plan.window.channel_items(plan.rows),
                 "taps": plan.taps, "channels": plan.inner, "chain": plan.chain or plan.inner}  # fmt: skip
    return fixed_function(beside(plan, f"tile_{tile.shape}"), tile, constants, "offsets", plan.offsets)


def beside(plan: WindowPlan, part: str) -> str:
    """The name of what belongs to a table of sizes."""
    return f"{plan.spec.table.removesuffix('_sizes')}_{part}"


_SUMS = 32
"""The number of vectors of sums in a tile is at most this."""
_SIZES = """\
typedef void st_taps_$D(const $T *restrict a, int64_t a_row, int64_t a_channel, const $T *restrict b,
        int64_t b_channel, const int32_t *offsets, int64_t taps, int64_t channels, int64_t chain, $T *restrict c,
        int64_t c_row);
typedef void st_point_$D(const $T *restrict a, int64_t a_row, int64_t a_step, const $T *restrict b, int64_t b_step,
        int64_t steps, int64_t chain, $T *restrict c, int64_t c_row, bool adds);

// The sizes of a convolution: each image gives results of `height` rows of `window.columns` pixels.
typedef struct {
    st_window window;
    int64_t inner, outer, groups;     // channels of images and of results, in each of the groups
    int64_t height, block_rows;       // rows of a result, and of blocks: the last blocks may have a row less
    int64_t top;                      // an image's row for row 0 of the result and tap 0
    int64_t phases, phase_step;       // planes of rows whose numbers have the same remainder by the stride
    int64_t weight[2], taps;          // strides of the channels of results and of images
    const int32_t *offsets;           // the places of the taps in the planes of a channel
    int64_t chain;                    // so many channels of a sum stay in registers
    st_taps_$D *tile[2][2];          // for `tile_rows` rows and `tile_vectors` vectors, and for one less
    st_point_$D *product[2][2];      // the same for a single tap
    int64_t tile_rows, tile_vectors;
    bool is_by_pixels;                // the order of tiles: all channels of some pixels, or all pixels of some channels
    bool is_plain;                    // the planes are a copy of the image
    bool is_in_place;                 // tiles read the pixels of the image itself
} st_convolution_$D;

// A tile of the result of image `batch`: `sums[r * ld + s]` is pixel `col + s` of channel `row + r`.
typedef struct {
    int64_t batch, row, col, rows, cols, ld;
    const $T *sums;
    int64_t item, group, first_row, pixels;            // the next work item, and the place of this one
    int64_t tiles, large_tiles, panels, large_panels;  // the number of its tiles, and of those of the larger size
    bool is_open;                                      // it has more tiles
    int64_t tile, panel;                               // the next of them
    const $T *planes;
    int64_t channel;                         // the distance of the planes of channels
    $T memory[$SUMS] $ALIGNED;
} st_convolved_$D;
"""
_LARGE_PARTS = """\
// The number of parts that have `large` elements, if the other parts of `size` elements have one less.
static inline int64_t st_large_parts_$D(int64_t size, int64_t large) {
    const int64_t parts = (size + large - 1) / large, count = size - parts * (large - 1);
    return count > 0 ? count : 0;
}
"""
_PLANES = """\
// Goes to the next work item: lays out its planes.
static inline __attribute__((always_inline)) void st_next_planes_$D(const st_convolution_$D *s, const $T *x,
        $T *scratch, st_convolved_$D *p) {
    const st_window *const w = &s->window;
    const int64_t blocks = (s->height + s->block_rows - 1) / s->block_rows;
    const int64_t large_blocks = st_large_parts_$D(s->height, s->block_rows);
    const int64_t block = p->item % blocks, image = p->item / blocks;
    const int64_t first_row = st_tile_start(block, s->block_rows, large_blocks, 1);
    const int64_t rows = st_tile_start(block + 1, s->block_rows, large_blocks, 1) - first_row;
    const $T *const from = x + image * s->inner * w->height * w->width;
    if (s->is_in_place) {
        p->planes = from + first_row * w->columns;
        p->channel = w->height * w->width;
    } else if (s->is_plain) {
        memcpy(scratch, from, (size_t)(s->inner * w->channel) * sizeof *scratch);
    } else {
        const int64_t phase_rows = w->plane / s->phases / w->columns, halo = phase_rows - s->block_rows;
        for (int64_t phase = 0; phase < s->phases; ++phase) {
            const int64_t top = first_row * w->stride[0] + phase * s->phase_step + s->top;
            st_planes_$D(w, from, s->inner, top, rows + halo, scratch + phase * phase_rows * w->columns);
        }
    }
    if (!s->is_in_place) {
        st_zero_$D(scratch + s->inner * w->channel, s->tile_vectors * $LANES);  // read by the last panel, never used
        p->planes = scratch;
        p->channel = w->channel;
    }
    p->batch = image / s->groups;
    p->group = image % s->groups;
    p->first_row = first_row;
    p->pixels = rows * w->columns;
    const int64_t vectors = (p->pixels + $LANES - 1) / $LANES;
    p->tiles = (s->outer + s->tile_rows - 1) / s->tile_rows;
    p->large_tiles = st_large_parts_$D(s->outer, s->tile_rows);
    p->panels = (vectors + s->tile_vectors - 1) / s->tile_vectors;
    p->large_panels = st_large_parts_$D(vectors, s->tile_vectors);
    p->tile = p->panel = 0;
    p->item += 1;
    p->is_open = true;
}
"""
NEXT_TILE = """\
// Computes the next tile of a convolution of images `x`, in the result `c` or, without one, in memory of the tile.
// Returns false after the last one.
static inline __attribute__((always_inline)) bool $NEXT($OF *$GIVEN, const $T *x,
        const $T *weight, $T *c, $T *scratch, int64_t end, st_convolved_$D *p) {
$SIZES    if (!p->is_open) {
        if (p->item == end) {
            return false;
        }
        $LAY_OUT($GIVEN, x, scratch, p);
    }
    const bool has_fewer_rows = p->tile >= p->large_tiles, is_narrower = p->panel >= p->large_panels;
    const int64_t row = st_tile_start(p->tile, s->tile_rows, p->large_tiles, 1), rows = s->tile_rows - has_fewer_rows;
    const int64_t col = st_tile_start(p->panel, s->tile_vectors, p->large_panels, 1) * $LANES;
    const int64_t width = (s->tile_vectors - is_narrower) * $LANES;
    const int64_t cols = p->pixels - col < width ? p->pixels - col : width;
    const int64_t pixels = s->height * s->window.columns;
    p->row = p->group * s->outer + row;
    p->col = p->first_row * s->window.columns + col;
    p->rows = rows;
    p->cols = cols;
    $T *const to = c == NULL ? NULL : c + (p->batch * s->groups * s->outer + p->row) * pixels + p->col;
    const bool is_direct = c != NULL && cols == width;
    $T *const sums = is_direct ? to : p->memory;
    const int64_t ld = is_direct ? pixels : width;
    const $T *const from = weight + p->group * s->outer * s->inner * s->taps + row * s->weight[0];
    if (s->taps == 1) {
        s->product[has_fewer_rows][is_narrower](from, s->weight[0], s->weight[1], p->planes + col, p->channel,
                s->inner, s->chain, sums, ld, false);
    } else {
        s->tile[has_fewer_rows][is_narrower](from, s->weight[0], s->weight[1], p->planes + col, p->channel,
                s->offsets, s->taps, s->inner, s->chain, sums, ld);
    }
    for (int64_t r = 0; r < rows && c != NULL && !is_direct; ++r) {
        st_copy_$D(to + r * pixels, sums + r * ld, cols);
    }
    p->sums = sums;
    p->ld = ld;
    if (s->is_by_pixels && ++p->tile == p->tiles) {
        p->tile = 0;
        p->is_open = ++p->panel < p->panels;
    } else if (!s->is_by_pixels && ++p->panel == p->panels) {
        p->panel = 0;
        p->is_open = ++p->tile < p->tiles;
    }
    return true;
}
"""
