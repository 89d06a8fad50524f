"""Convolutions with a single tap, of images whose height or width the program finds: products of the weight and the
pixels of an image.

    st_panel_f32 tile = {.item = begin};
    while (st_next_points_f32(&sizes, H * W, x, weight, y, scratch, stop, &tile)) {
    }

A panel has some vectors of pixels. Tiles read them from the image itself, but those of the last panel from a copy.

Tested by `tests/backends/host/test_contraction_images.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from staged.backends.cpu.contraction.conv2d_sized import kernel_of_blocks, loop_over_blocks
from staged.backends.cpu.contraction.items import Table
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec
from staged.backends.cpu.contraction.tile import TILE_START, aligned_to, choose_tile, members
from staged.backends.cpu.contraction.vectors import snippet_of, vector_of
from staged.code.expr import Expr, Variable, call
from staged.code.support.lanes import part_snippet
from staged.code.support.library import Snippet
from staged.code.tree import Statement
from staged.ir.machine import Machine
from staged.ir.products import chain_of

VECTORS = 3
"""Vectors of a panel, at most."""


def is_pointwise(spec: Conv2dSpec) -> bool:
    """Return whether each result is a sum over the channels of one pixel."""
    return (spec.kh, spec.kw, *spec.stride, *spec.padding) == (1, 1, 1, 1, 0, 0)


def emit_points(spec: Conv2dSpec, machine: Machine) -> ContractionKernel:
    """The kernel of such a convolution, or of its gradient of the image."""
    images, vector, dtype = spec.images, vector_of(machine, spec.dtype), spec.dtype
    assert images is not None, "other convolutions are products of matrices with known sizes"
    c, oc = spec.c // spec.groups, spec.oc // spec.groups
    outer, inner, weight = (oc, c, (c, 1)) if spec.kind == "forward" else (c, oc, (1, c))
    panels_of_weight, support, room = tiles_of_panels(spec, machine, outer, inner, weight)
    fields = {"groups": spec.groups, "outer": outer, "panels": panels_of_weight}
    x, kernel, y = spec.shapes
    sizes = f"x {x}, weight {kernel}, y {y}" if spec.kind == "forward" else f"d_y {y}, weight {kernel}, d_x {x}"

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        pixels = spec.number(images.image[0] * images.image[1], parameters)
        blocks = call(f"st_count_panels_{dtype}", sizes, pixels)
        return loop_over_blocks(spec, machine, parameters, blocks, f"st_next_points_{dtype}", "panel", (sizes, pixels))

    table = Table(spec.table, f"st_points_{dtype}", f"{sizes}, {dtype}", fields)
    walk = snippet_of(vector, "next_points", _NEXT, {"$ALIGNED": aligned_to(vector)})
    return kernel_of_blocks(spec, machine, images, room, table, body, [*support, TILE_START, walk])


def tiles_of_panels(
    spec: Conv2dSpec, machine: Machine, rows: int, inner: int, weight: tuple[int, int]
) -> tuple[str, list[Snippet], int]:
    """The sizes of products of panels and `rows` rows of a weight, their functions, and the items of a panel."""
    vector = vector_of(machine, spec.dtype)
    choice = choose_tile(machine, vector, rows, VECTORS * vector.lanes, inner, aligned=False, most_rows=14)
    widths = range(1, choice.vectors.large + 1)
    tiles = [[ProductTile(vector, rows, vectors) for vectors in widths] for rows in choice.rows.sizes]
    constants = {"a_row": weight[0], "a_step": weight[1], "steps": inner, "chain": chain_of(inner)}
    name = spec.table.removesuffix("_sizes")
    functions = [
        [
            shared_function(tile)
            if tile.is_shared(inner)
            else fixed_function(f"{name}_tile_{tile.shape}", tile, constants)
            for tile in row
        ]
        for row in tiles
    ]
    named = ", ".join(f"{{{', '.join(function.name for function in row)}}}" for row in functions)
    fields = {
        "inner": inner, "weight": f"{{{weight[0]}, {weight[1]}}}", "chain": constants["chain"],
        "tile_rows": choice.rows.large, "tile_vectors": choice.vectors.large, "tile": f"{{{named}}}",
    }  # fmt: skip
    words = {"$VECTORS": VECTORS, "$V": vector.name}
    support = [
        replace(snippet_of(vector, "panel_sizes", _SIZES, words), needs=(part_snippet(vector.name),)),
        *(tile.snippet for row in tiles for tile in row),
        *(function for row in functions for function in row),
    ]
    return f"{{{', '.join(members(fields))}}}", support, inner * choice.vectors.large * vector.lanes


_SIZES = """\
typedef void st_panel_tile_$D(const $T *restrict a, int64_t a_row, int64_t a_step, const $T *restrict b,
        int64_t b_step, int64_t steps, int64_t chain, $T *restrict c, int64_t c_row, bool adds);

// How panels of pixels are multiplied by a weight: its strides, and the rows and vectors of tiles.
typedef struct {
    int64_t inner, weight[2], chain;
    int64_t tile_rows, tile_vectors;
    st_panel_tile_$D *tile[2][$VECTORS];  // [has a row less][vectors - 1]
} st_panels_$D;

// Copies a panel of `width` pixels, of which `count` exist: rows lie `row` apart.
static inline void st_copy_pixels_of_panel_$D(const $T *pixels, int64_t row, int64_t rows, int64_t count, int64_t width,
        $T *panel) {
    for (int64_t k = 0; k < rows; ++k) {
        for (int64_t i = 0; i < width; i += $LANES) {
            *($V *)(panel + k * width + i) = st_load_$V(pixels + k * row + i, count - i);
        }
    }
}
"""
_NEXT = """\
// The sizes of a convolution with a single tap: results have `outer` channels in each group.
typedef struct {
    int64_t groups, outer;
    st_panels_$D panels;
} st_points_$D;

// A tile of the result of image `batch`: `sums[r * ld + s]` is pixel `col + s` of channel `row + r`.
typedef struct {
    int64_t batch, row, col, rows, cols, ld;
    const $T *sums;
    int64_t item, tile;        // the next panel, and the next tile of this one
    int64_t width;             // of the panel
    const $T *panel, *weight;
    int64_t panel_row;         // distance of its rows
    $T memory[32 * $LANES] $ALIGNED;
} st_panel_$D;

// The number of panels of an image.
static inline int64_t st_count_panels_$D(const st_points_$D *s, int64_t pixels) {
    const int64_t most = s->panels.tile_vectors * $LANES;
    return (pixels + most - 1) / most;
}

// Goes to the next panel.
static inline void st_begin_panel_$D(const st_points_$D *s, int64_t pixels, const $T *x, const $T *weight, $T *scratch,
        st_panel_$D *p) {
    const int64_t panels = st_count_panels_$D(s, pixels), vectors = (pixels + $LANES - 1) / $LANES;
    const int64_t large = (vectors + panels - 1) / panels, image = p->item / panels, panel = p->item % panels;
    const int64_t count = vectors - panels * (large - 1), inner = s->panels.inner;
    p->batch = image / s->groups;
    p->row = image % s->groups * s->outer;
    p->col = st_tile_start(panel, large, count, 1) * $LANES;
    p->width = (large - (panel >= count)) * $LANES;
    p->cols = pixels - p->col < p->width ? pixels - p->col : p->width;
    p->weight = weight + p->row * inner;
    p->panel = x + image * inner * pixels + p->col;
    p->panel_row = pixels;
    if (p->cols < p->width) {
        st_copy_pixels_of_panel_$D(p->panel, pixels, inner, p->cols, p->width, scratch);
        p->panel = scratch;
        p->panel_row = p->width;
    }
    p->item += 1;
}

// Computes the next tile of a convolution of images `x`, in the result `c` or, without one, in memory of the tile.
// Returns false after the last one.
static inline __attribute__((always_inline)) bool st_next_points_$D(const st_points_$D *s, int64_t pixels, const $T *x,
        const $T *weight, $T *c, $T *scratch, int64_t end, st_panel_$D *p) {
    const st_panels_$D *const k = &s->panels;
    const int64_t tiles = (s->outer + k->tile_rows - 1) / k->tile_rows, low = tiles * k->tile_rows - s->outer;
    if (p->tile == 0) {
        if (p->item == end) {
            return false;
        }
        st_begin_panel_$D(s, pixels, x, weight, scratch, p);
    } else {
        p->row += p->rows;
    }
    const bool is_low = p->tile >= tiles - low, is_direct = c != NULL && p->cols == p->width;
    $T *const to = c == NULL ? NULL : c + (p->batch * s->groups * s->outer + p->row) * pixels + p->col;
    $T *const sums = is_direct ? to : p->memory;
    p->rows = k->tile_rows - is_low;
    p->ld = is_direct ? pixels : p->width;
    p->sums = sums;
    k->tile[is_low][p->width / $LANES - 1](p->weight, k->weight[0], k->weight[1], p->panel, p->panel_row, k->inner,
            k->chain, sums, p->ld, false);
    for (int64_t r = 0; r < p->rows && c != NULL && !is_direct; ++r) {
        st_copy_$D(to + r * pixels, sums + r * p->ld, p->cols);
    }
    p->weight += p->rows * k->weight[0];
    p->tile = p->tile + 1 < tiles ? p->tile + 1 : 0;
    return true;
}
"""
