"""Convolutions by one function that the kernels of a program share: each kernel passes its sizes in a struct.

The function lays out the planes of an image (planes.py) and computes tiles of channels by pixels, one after another. A
kernel with an epilogue passes each tile to that.

Tested by `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from staged.backends.cpu.contraction.conv2d_plan import WindowPlan
from staged.backends.cpu.contraction.items import kernel_function
from staged.backends.cpu.contraction.operands import kernel_parameters
from staged.backends.cpu.contraction.planes import planes_support, window_value
from staged.backends.cpu.contraction.product_tile import ConvolutionTile, ProductTile
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Epilogue
from staged.backends.cpu.contraction.tile import TILE_START, aligned_to, emit_constant
from staged.backends.cpu.contraction.vectors import snippet_of, support_for
from staged.code.support.library import Snippet
from staged.code.writer import Writer


def emit_convolved(plan: WindowPlan) -> ContractionKernel:
    """The kernel of a convolution, or of its gradient of the image: the sizes, and the call."""
    spec, vector, window = plan.spec, plan.vector, plan.window
    dtype, is_point = vector.dtype, plan.taps == 1
    shapes = [[(rows, vectors) for vectors in plan.tile_vectors] for rows in plan.channels.sizes]
    kind = ProductTile if is_point else ConvolutionTile
    tiles = [[kind(vector, *shape) for shape in row] for row in shapes]
    functions = [[_tile_function(plan, tile) for tile in row] for row in tiles]
    names = ", ".join(f"{{{', '.join(function.name for function in row)}}}" for row in functions)
    is_strided = len(window.phases) > 1
    lines: list[dict[str, object]] = [
        {"window": window_value(window, plan.rows)},
        {"inner": plan.inner, "outer": plan.outer, "groups": spec.groups, "height": window.out[0],
         "block_rows": plan.rows, "top": -window.padding[0], "phases": len(window.phases),
         "phase_step": window.phase_step if is_strided else 0},
        {"weight": f"{{{', '.join(map(str, plan.weight_strides))}}}", "taps": plan.taps,
         "offsets": "" if is_point else "offsets", "chain": plan.chain or plan.inner},
        {"product" if is_point else "tile": f"{{{names}}}", "tile_rows": plan.channels.large,
         "tile_vectors": plan.vectors, "is_by_pixels": "true" if plan.pixels_outside else "",
         "is_in_place": "true" if plan.is_in_place else ""},
    ]  # fmt: skip
    parameters = kernel_parameters(spec, plan.scratch_items > 0)
    scratch = "scratch" if plan.scratch_items else "NULL"
    images, weights = spec.operand_names
    t = Writer()
    with kernel_function(t, spec, parameters, [plan.describe()]):
        if not is_point:
            t.statement(f"static const int32_t offsets[{plan.taps}] = {{{', '.join(map(str, plan.offsets))}}};")
        emit_constant(t, f"st_convolution_{dtype} sizes", lines)
        if spec.epilogue is None:
            t.statement(f"st_convolve_{dtype}(&sizes, {images}, {weights}, {spec.result_name}, {scratch}, begin, end);")
        else:
            _emit_tiles(t, plan, spec.epilogue, f"{images}, {weights}, NULL, {scratch}")
    text = str(t)
    snippets = [snippet for _, snippet in planes_support(vector)]
    words = {"$SUMS": _SUMS * vector.lanes, "$ALIGNED": aligned_to(vector)}
    snippets.append(snippet_of(vector, "convolution_sizes", _SIZES, words))
    snippets += [tile.snippet for row in tiles for tile in row]
    snippets += [function for row in functions for function in row]
    snippets += [TILE_START, snippet_of(vector, "next_convolved", _NEXT)]
    snippets += [snippet_of(vector, "convolve", _CONVOLVE)] if spec.epilogue is None else []
    return ContractionKernel(
        spec.name,
        text,
        parameters,
        plan.work_items,
        "",
        plan.scratch_items * dtype.size,
        *support_for(text + _COPY.replace("$D", str(dtype)), vector, [("", snippet) for snippet in snippets]),
    )


def _tile_function(plan: WindowPlan, tile: ProductTile | ConvolutionTile) -> Snippet:
    """The function of a tile: one of this kernel for short sums, in which sizes are constants."""
    if isinstance(tile, ProductTile) or tile.is_shared(plan.inner * plan.taps):
        return shared_function(tile)
    outer, inner = plan.weight_strides
    constants = {"a_row": outer, "a_channel": inner, "b_channel": plan.window.channel_items(plan.rows),
                 "taps": plan.taps, "channels": plan.inner, "chain": plan.chain or plan.inner}  # fmt: skip
    return fixed_function(f"{plan.spec.name}_tile_{tile.shape}", tile, constants, "offsets", plan.offsets)


def _emit_tiles(t: Writer, plan: WindowPlan, epilogue: Epilogue, operands: str) -> None:
    """The loop over the tiles of a result, which go to an epilogue. Sizes that all tiles have are numbers."""
    dtype = plan.vector.dtype
    sizes = {"rows": len(plan.channels.sizes) == 1 and plan.channels.large}
    sizes |= dict.fromkeys(("cols", "ld"), plan.has_equal_panels and plan.vectors * plan.vector.lanes)
    t.line(f"st_convolved_{dtype} tile = {{.item = begin}};")
    with t.block(f"while (st_next_convolved_{dtype}(&sizes, {operands}, end, &tile))"):
        fields = "batch row col rows cols sums ld".split()
        place = ", ".join(str(sizes.get(field) or f"tile.{field}") for field in fields)
        t.statement(f"{epilogue.function}({place}{epilogue.passed});")


_COPY = "st_copy_$D( st_zero_$D("
"""The functions that the shared one calls."""
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
    bool is_in_place;                 // tiles read the pixels of the image itself
} st_convolution_$D;

// A tile of the result of image `batch`: `sums[r * ld + s]` is pixel `col + s` of channel `row + r`.
typedef struct {
    int64_t batch, row, col, rows, cols, ld;
    const $T *sums;
    int64_t item, group, first_row, pixels;  // the next work item, and the place of this one
    bool is_open;                            // it has more tiles
    int64_t tile, panel;                     // the next of them
    const $T *planes;
    int64_t channel;                         // the distance of the planes of channels
    $T memory[$SUMS] $ALIGNED;
} st_convolved_$D;
"""
_NEXT = """\
// The number of parts that have `large` elements, if the other parts of `size` elements have one less.
static inline int64_t st_large_parts_$D(int64_t size, int64_t large) {
    const int64_t parts = (size + large - 1) / large, count = size - parts * (large - 1);
    return count > 0 ? count : 0;
}

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
    } else {
        const int64_t phase_rows = w->plane / s->phases / w->columns, halo = phase_rows - s->block_rows;
        for (int64_t phase = 0; phase < s->phases; ++phase) {
            const int64_t top = first_row * w->stride[0] + phase * s->phase_step + s->top;
            st_planes_$D(w, from, s->inner, top, rows + halo, scratch + phase * phase_rows * w->columns);
        }
        st_zero_$D(scratch + s->inner * w->channel, s->tile_vectors * $LANES);  // read by the last panel, never used
        p->planes = scratch;
        p->channel = w->channel;
    }
    p->batch = image / s->groups;
    p->group = image % s->groups;
    p->first_row = first_row;
    p->pixels = rows * w->columns;
    p->tile = p->panel = 0;
    p->item += 1;
    p->is_open = true;
}

// Computes the next tile of a convolution of images `x`, in the result `c` or, without one, in memory of the tile.
// Returns false after the last one.
static inline __attribute__((always_inline)) bool st_next_convolved_$D(const st_convolution_$D *s, const $T *x,
        const $T *weight, $T *c, $T *scratch, int64_t end, st_convolved_$D *p) {
    if (!p->is_open) {
        if (p->item == end) {
            return false;
        }
        st_next_planes_$D(s, x, scratch, p);
    }
    // Constants, if the sizes are: most convolutions have tiles of one size.
    const int64_t here = s->height % s->block_rows == 0 ? s->block_rows * s->window.columns : p->pixels;
    const int64_t vectors = (here + $LANES - 1) / $LANES, panels = (vectors + s->tile_vectors - 1) / s->tile_vectors;
    const int64_t tiles = (s->outer + s->tile_rows - 1) / s->tile_rows;
    const int64_t large_tiles = st_large_parts_$D(s->outer, s->tile_rows);
    const int64_t large_panels = st_large_parts_$D(vectors, s->tile_vectors);
    const bool has_fewer_rows = large_tiles < tiles && p->tile >= large_tiles;
    const bool is_narrower = large_panels < panels && p->panel >= large_panels;
    const int64_t row = st_tile_start(p->tile, s->tile_rows, large_tiles, 1), rows = s->tile_rows - has_fewer_rows;
    const int64_t col = st_tile_start(p->panel, s->tile_vectors, large_panels, 1) * $LANES;
    const int64_t width = (s->tile_vectors - is_narrower) * $LANES;
    const int64_t cols = here % width == 0 || here - col >= width ? width : here - col;
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
    if (s->is_by_pixels && ++p->tile == tiles) {
        p->tile = 0;
        p->is_open = ++p->panel < panels;
    } else if (!s->is_by_pixels && ++p->panel == panels) {
        p->panel = 0;
        p->is_open = ++p->tile < tiles;
    }
    return true;
}
"""
_CONVOLVE = """\
// Computes the work items from `begin` to `end` of a convolution of images `x`.
static inline __attribute__((always_inline)) void st_convolve_$D(const st_convolution_$D *sizes, const $T *x,
        const $T *weight, $T *c, $T *scratch, int64_t begin, int64_t end) {
    st_convolved_$D tile = {.item = begin};
    while (st_next_convolved_$D(sizes, x, weight, c, scratch, end, &tile)) {
    }
}
"""
