"""Convolutions of images whose height or width the program finds: kernels complete the table of their sizes when they
are called.

    st_sized_convolution_f32 sized;
    const int64_t blocks = st_size_convolution_f32(sizes, N, H, W, H, W, &sized);

The tiles are those of the largest images. Blocks of rows, planes and offsets of taps follow from height and width when
the program runs. A work item is a part of the blocks of an image.

Tested by `tests/backends/host/test_contraction_images.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from staged.backends.cpu.contraction.conv2d_plan import MOST_ROWS, WindowPlan
from staged.backends.cpu.contraction.convolve import NEXT_TILE, beside, named, sizes_of, support_of_tiles
from staged.backends.cpu.contraction.items import Table, finished, kernel_with_sizes
from staged.backends.cpu.contraction.product_tile import MOST_VECTORS, ConvolutionTile, ProductTile
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.sized_planes import sized_planes_support
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, Images
from staged.backends.cpu.contraction.tile import choose_tile, members
from staged.backends.cpu.contraction.vectors import snippet_of, vector_of
from staged.code.expr import Expr, Field, Items, Name, Prefix, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Statement, While
from staged.code.types import INDEX, word
from staged.ir.machine import Machine
from staged.kernels.products import MOST_TAPS

VECTORS = 12
"""Vectors of pixels for which tiles are chosen: many numbers divide this one."""


def emit_sized(plan: WindowPlan, images: Images, machine: Machine) -> ContractionKernel:
    """The kernel of a convolution."""
    spec, vector, dtype = plan.spec, plan.vector, plan.vector.dtype
    plan = _with_panels(plan, machine)
    kind = ProductTile if plan.taps == 1 else ConvolutionTile
    widths = range(1, plan.vectors + 1)
    tiles = [[kind(vector, rows, vectors) for vectors in widths] for rows in plan.channels.sizes]
    functions = [[_tile_function(plan, tile) for tile in row] for row in tiles]

    words = {
        "$MOST": MOST_TAPS, "$VECTORS": MOST_VECTORS, "$L2": machine.l2, "$CORES": machine.cores,
        "$NEXT": f"st_next_of_images_{dtype}", "$LAY_OUT": f"st_lay_out_planes_{dtype}",
        "$OF": f"const st_sized_convolution_{dtype}", "$GIVEN": "z",
        "$SIZES": f"    const st_convolution_{dtype} *const s = &z->sizes;\n",
    }  # fmt: skip
    support = [
        *sized_planes_support(vector),
        *support_of_tiles(plan, tiles, functions),
        snippet_of(vector, "sized_convolution", _SIZED, words),
        snippet_of(vector, "next_of_images", NEXT_TILE, words),
    ]

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        sized = Variable("sized", word(f"st_sized_convolution_{dtype}"))
        given, made = (images.image, images.out) if spec.kind == "forward" else (images.out, images.image)
        numbers = [spec.number(extent, parameters) for extent in (images.n, *given, *made)]
        blocks = call(f"st_size_convolution_{dtype}", sizes, *numbers, Prefix("&", sized))
        found = (Prefix("&", sized),)
        loop = loop_over_blocks(spec, machine, parameters, blocks, f"st_next_of_images_{dtype}", "convolved", found)
        return Declare(sized, is_const=False), *loop

    window = plan.window
    channel = plan.inner * window.taps[1] * len(window.phases) * window.out[1]
    room = machine.l2 // 2 // vector.dtype.size
    scratch = min(max(room, channel * (1 + window.halo)), channel * (window.out[0] + window.halo))
    return kernel_of_blocks(
        spec,
        machine,
        images,
        scratch + plan.vectors * vector.lanes,
        _sizes_of(plan, functions),
        body,
        support,
    )


def kernel_of_blocks(
    spec: Conv2dSpec,
    machine: Machine,
    images: Images,
    room: int,
    table: Table,
    body: Callable[[Expr, Mapping[str, Variable]], tuple[Statement, ...]],
    support: Sequence[Snippet],
) -> ContractionKernel:
    """A kernel whose work items are pieces of the blocks of an image, with `room` items of scratch memory."""
    pieces, vector = pieces_of(machine), vector_of(machine, spec.dtype)
    made = kernel_with_sizes(spec, vector, spec.n * spec.groups * pieces, room, table, body, [*support, BLOCK_OF])
    return replace(made, items_size=images.n * spec.groups * pieces)


def loop_over_blocks(
    spec: Conv2dSpec,
    machine: Machine,
    parameters: Mapping[str, Variable],
    blocks: Expr,
    function: str,
    tile: str,
    sizes: Sequence[Expr],
) -> tuple[Statement, ...]:
    """The loop of such a kernel over the tiles of its `blocks` per image: `function` computes the next one."""
    count, stop = Variable("blocks", INDEX), Variable("stop", INDEX)
    found = Variable("tile", word(f"st_{tile}_{spec.dtype}"))
    pieces = Name(str(pieces_of(machine)))
    begin, end = (call("st_block_of", parameters[each], pieces, count) for each in ("begin", "end"))
    result = parameters[spec.result_name] if spec.epilogue is None else Name("NULL")
    arrays = *(parameters[name] for name in spec.operand_names), result, parameters["scratch"]
    return (
        Declare(count, blocks),
        Declare(found, Items((Field("item", begin),)), is_const=False),
        Declare(stop, end),
        While(
            call(function, *sizes, *arrays, stop, Prefix("&", found)),
            finished(spec, parameters, found, "batch row col rows cols sums ld".split(), 1),
        ),
    )


def pieces_of(machine: Machine) -> int:
    """The work items of an image."""
    return 1 if machine.cores == 1 else 4 * machine.cores


def _with_panels(plan: WindowPlan, machine: Machine) -> WindowPlan:
    """The plan with tiles for panels of few pixels, too."""
    vector, steps = plan.vector, plan.inner * plan.taps
    pixels = VECTORS * vector.lanes
    choice = choose_tile(machine, vector, plan.outer, pixels, steps, aligned=False, most_rows=MOST_ROWS)
    vectors = choice.vectors.large
    is_by_pixels = steps * vectors * vector.bytes <= machine.l1 // 2
    return replace(plan, channels=choice.rows, vectors=vectors, pixels_outside=is_by_pixels)


def _sizes_of(plan: WindowPlan, functions: Sequence[Sequence[Snippet]]) -> Table:
    """The sizes of a convolution, with the plane and the row of each tap."""
    known = sizes_of(plan)
    fields = {
        "sizes": f"{{{', '.join(members(known.fields))}}}",
        "products" if plan.taps == 1 else "tiles": named(functions),
        "offsets": f"{{{', '.join(map(str, _places(plan)))}}}" if plan.taps > 1 else "",
    }
    return replace(known, type=f"st_sized_convolution_{plan.vector.dtype}", fields=fields)


def _tile_function(plan: WindowPlan, tile: ProductTile | ConvolutionTile) -> Snippet:
    """The function of a tile: for short sums one in which the sizes of the weight are constants."""
    if isinstance(tile, ProductTile) or tile.is_shared(plan.inner * plan.taps):
        return shared_function(tile)
    outer, inner = plan.weight_strides
    constants = {"a_row": outer, "a_channel": inner, "taps": plan.taps, "channels": plan.inner,
                 "chain": plan.chain or plan.inner}  # fmt: skip
    return fixed_function(beside(plan, f"tile_{tile.shape}"), tile, constants)


def _places(plan: WindowPlan) -> list[int]:
    """The plane and the row of each tap."""
    window, found = plan.window, []
    for ky in range(plan.spec.kh):
        row, phase = divmod(window.window_row(ky), window.stride[0])
        for kx in range(plan.spec.kw):
            found += [kx * len(window.phases) + window.phases.index(phase), row]
    return found


BLOCK_OF = Snippet(
    "block_of",
    """\
// The first block of a work item; an image has so many `pieces`.
static inline int64_t st_block_of(int64_t item, int64_t pieces, int64_t blocks) {
    return item / pieces * blocks + item % pieces * blocks / pieces;
}
""",
)
_SIZED = """\
// The sizes of a convolution of images whose height and width the program finds.
typedef struct {
    st_convolution_$D sizes;
    st_taps_$D *tiles[2][$VECTORS];      // [has a row less][vectors - 1]
    st_point_$D *products[2][$VECTORS];  // the same for a single tap
    int32_t offsets[2 * $MOST];           // of taps; known are pairs of the plane and the row of a tap
    int64_t blocks, rows;                 // blocks of an image, and rows of a plane
    st_pixel_columns columns;
} st_sized_convolution_$D;

// Completes the sizes of a convolution of images: results have `rows` and `columns`. Returns the number of blocks of
// an image.
static int64_t st_size_convolution_$D(const st_sized_convolution_$D *known, int64_t images, int64_t height,
        int64_t width, int64_t rows, int64_t columns, st_sized_convolution_$D *sized) {
    st_convolution_$D *const s = &sized->sizes;
    *s = known->sizes;
    s->window.height = height;
    s->window.width = width;
    s->window.columns = columns;
    s->height = rows;
    if (rows * columns == 0) {
        return 0;
    }
    int64_t halo = 0;
    for (int64_t tap = 0; tap < s->taps && s->taps > 1; ++tap) {
        halo = known->offsets[2 * tap + 1] > halo ? known->offsets[2 * tap + 1] : halo;
    }

    // Blocks of as many rows as have planes in half of the second-level cache, and enough blocks for all threads.
    const int64_t row = s->inner * s->window.planes * s->phases * columns;
    const int64_t fitting = $L2 / 2 / (row * (int64_t)sizeof($T)) - halo;
    int64_t blocks = fitting < 1 ? rows : (rows + fitting - 1) / fitting;
    const int64_t items = images * s->groups;
    if ($CORES > 1 && items < 4 * $CORES && items * s->inner * s->outer * s->taps * rows * columns > 500000) {
        const int64_t wanted = (4 * $CORES + items - 1) / items;
        blocks = blocks > wanted ? blocks : wanted < rows ? wanted : rows;
    }
    s->block_rows = (rows + blocks - 1) / blocks;
    blocks = (rows + s->block_rows - 1) / s->block_rows;
    sized->blocks = blocks;
    sized->rows = s->block_rows + halo;
    s->window.plane = s->phases * sized->rows * columns;
    s->window.channel = s->window.planes * s->window.plane;
    st_find_columns(&s->window, &sized->columns);
    for (int64_t tap = 0; tap < s->taps && s->taps > 1; ++tap) {
        const int32_t *const place = known->offsets + 2 * tap;
        sized->offsets[tap] = (int32_t)((place[0] * sized->rows + place[1]) * columns);
    }
    s->offsets = sized->offsets;

    // Panels of as many vectors as others, or of one less.
    const int64_t vectors = (s->block_rows * columns + $LANES - 1) / $LANES;
    const int64_t panels = (vectors + s->tile_vectors - 1) / s->tile_vectors;
    s->tile_vectors = (vectors + panels - 1) / panels;
    for (int64_t less = 0; less < 2; ++less) {
        for (int64_t narrow = 0; narrow < 2 && narrow < s->tile_vectors; ++narrow) {
            s->tile[less][narrow] = known->tiles[less][s->tile_vectors - narrow - 1];
            s->product[less][narrow] = known->products[less][s->tile_vectors - narrow - 1];
        }
    }
    return blocks;
}

// Goes to the next block: lays out its planes.
static inline void st_lay_out_planes_$D(const st_sized_convolution_$D *z, const $T *x, $T *scratch,
        st_convolved_$D *p) {
    const st_convolution_$D *const s = &z->sizes;
    const st_window *const w = &s->window;
    if (p->tiles == 0) {
        p->batch = p->item / z->blocks / s->groups;
        p->group = p->item / z->blocks % s->groups;
        p->first_row = p->item % z->blocks * s->block_rows;
        p->tiles = (s->outer + s->tile_rows - 1) / s->tile_rows;
        p->large_tiles = st_large_parts_$D(s->outer, s->tile_rows);
    } else if ((p->first_row += s->block_rows) >= s->height) {
        p->first_row = 0;
        p->group = p->group + 1 < s->groups ? p->group + 1 : 0;
        p->batch += p->group == 0;
    }
    const int64_t left = s->height - p->first_row, rows = left < s->block_rows ? left : s->block_rows;
    const $T *const from = x + (p->batch * s->groups + p->group) * s->inner * w->height * w->width;
    for (int64_t phase = 0; phase < s->phases; ++phase) {
        const int64_t top = p->first_row * w->stride[0] + phase * s->phase_step + s->top;
        st_fill_planes_$D(w, &z->columns, from, s->inner, top, rows + z->rows - s->block_rows,
                scratch + phase * z->rows * w->columns);
    }
    st_zero_$D(scratch + s->inner * w->channel, s->tile_vectors * $LANES);  // read by the last panel, never used
    p->planes = scratch;
    p->channel = w->channel;
    p->pixels = rows * w->columns;
    const int64_t vectors = (p->pixels + $LANES - 1) / $LANES;
    p->panels = (vectors + s->tile_vectors - 1) / s->tile_vectors;
    p->large_panels = st_large_parts_$D(vectors, s->tile_vectors);
    p->tile = p->panel = 0;
    p->item += 1;
    p->is_open = true;
}
"""
