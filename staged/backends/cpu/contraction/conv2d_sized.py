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

from staged.backends.cpu.contraction.conv2d_plan import WindowPlan
from staged.backends.cpu.contraction.convolve import beside, convolution_support, sizes_of
from staged.backends.cpu.contraction.items import Table, finished, kernel_with_sizes
from staged.backends.cpu.contraction.product_tile import ConvolutionTile, ProductTile
from staged.backends.cpu.contraction.shared_tiles import fixed_function, shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, Images
from staged.backends.cpu.contraction.vectors import snippet_of, vector_of
from staged.code.expr import Expr, Field, Items, Member, Name, Prefix, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Statement, While
from staged.code.types import INDEX, word
from staged.ir.machine import Machine
from staged.kernels.products import MOST_TAPS


def emit_sized(plan: WindowPlan, images: Images, machine: Machine) -> ContractionKernel:
    """The kernel of a convolution."""
    spec, vector, dtype = plan.spec, plan.vector, plan.vector.dtype
    tiles = [_tiles(plan, rows) for rows in plan.channels.sizes]
    functions = [[_tile_function(plan, tile) for tile in row] for row in tiles]

    words = {"$MOST": MOST_TAPS, "$L2": machine.l2, "$CORES": machine.cores}
    support = snippet_of(vector, "sized_convolution", _SIZED, words)

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        sized = Variable("sized", word(f"st_sized_convolution_{dtype}"))
        numbers = [spec.number(extent, parameters) for extent in (images.n, *images.image, *images.out)]
        blocks = call(f"st_size_convolution_{dtype}", sizes, *numbers, Prefix("&", sized))
        made = Prefix("&", Member(sized, "sizes", arrow=False))
        loop = loop_over_blocks(spec, machine, parameters, blocks, f"st_next_convolved_{dtype}", "convolved", (made,))
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
        sizes_of(plan, functions, _places(plan)),
        body,
        [*convolution_support(plan, tiles, functions), support],
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


def _tiles(plan: WindowPlan, rows: int) -> list[ProductTile | ConvolutionTile]:
    kind = ProductTile if plan.taps == 1 else ConvolutionTile
    return [kind(plan.vector, rows, vectors) for vectors in (plan.vectors, plan.vectors - 1) if vectors]


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
    int32_t offsets[$MOST];
} st_sized_convolution_$D;

// Completes the sizes of a convolution of images: results have `rows` and `columns`. `known->offsets` are pairs of the
// plane and the row of a tap. Returns the number of blocks of an image.
static int64_t st_size_convolution_$D(const st_convolution_$D *known, int64_t images, int64_t height, int64_t width,
        int64_t rows, int64_t columns, st_sized_convolution_$D *sized) {
    st_convolution_$D *const s = &sized->sizes;
    *s = *known;
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
    s->window.plane = s->phases * (s->block_rows + halo) * columns;
    s->window.channel = s->window.planes * s->window.plane;
    for (int64_t tap = 0; tap < s->taps && s->taps > 1; ++tap) {
        const int32_t *const place = known->offsets + 2 * tap;
        sized->offsets[tap] = (int32_t)((place[0] * (s->block_rows + halo) + place[1]) * columns);
    }
    s->offsets = sized->offsets;
    return blocks;
}
"""
