"""The gradient of a strided convolution with respect to images whose height or width the program finds.

The pixels of an image whose row and column leave the same remainders, divided by the strides, are a phase. Each phase
is a convolution of d_y by every so many taps of the weight, so that no tap meets the zeros between pixels of d_y.

Tested by `tests/backends/host/test_contraction_images.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from staged.backends.cpu.contraction.conv2d_plan import WindowPlan
from staged.backends.cpu.contraction.conv2d_sized import pieces_of, sized_support
from staged.backends.cpu.contraction.convolve import sizes_of
from staged.backends.cpu.contraction.items import kernel_with_sizes
from staged.backends.cpu.contraction.product_tile import ConvolutionTile, ProductTile
from staged.backends.cpu.contraction.shared_tiles import shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel, Images
from staged.backends.cpu.contraction.vectors import snippet_of
from staged.code.expr import Expr, Items, Name, Variable, call
from staged.code.support.library import Snippet
from staged.code.tree import Do, Statement
from staged.ir.machine import Machine
from staged.kernels.products import MOST_TAPS


def emit_phases(plan: WindowPlan, images: Images, machine: Machine) -> ContractionKernel:
    """The kernel. It does not have an epilogue."""
    spec, vector, dtype = plan.spec, plan.vector, plan.vector.dtype
    assert spec.epilogue is None, "the pixels of a phase do not follow one another"
    pieces, taps = pieces_of(machine), (spec.kh, spec.kw)
    every = [stride // gcd(stride, dilation) for stride, dilation in zip(spec.stride, spec.dilation, strict=True)]
    most = [-(-count // each) for count, each in zip(taps, every, strict=True)]
    sizes = plan.channels.sizes
    widths = [vectors for vectors in (plan.vectors, plan.vectors - 1) if vectors]
    kinds = [
        [[kind(vector, rows, vectors) for vectors in widths] for rows in sizes]
        for kind in (ConvolutionTile, ProductTile)
    ]
    tiles, points = ([[shared_function(tile) for tile in row] for row in kind] for kind in kinds)
    packed = -(-spec.groups * plan.inner * plan.outer * most[0] * most[1] // 16) * 16
    pairs = taps, spec.stride, spec.padding, spec.dilation
    strides = Items(tuple(Items(tuple(Name(str(each)) for each in pair)) for pair in pairs), "st_strides")

    def body(table: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        numbers = [spec.number(extent, parameters) for extent in (images.n, *images.out, *images.image)]
        d_y, weight = (parameters[name] for name in spec.operand_names)
        given = parameters[spec.result_name], parameters["scratch"], parameters["begin"], parameters["end"]
        room = Name(str(packed)), Name(str(pieces))
        return (Do(call(f"st_spread_phases_{dtype}", table, strides, *numbers, d_y, weight, *room, *given)),)

    columns, reach = -(-spec.w // spec.stride[1]), (most[0] - 1) * every[0] * spec.dilation[0] // spec.stride[0]
    channel = plan.inner * most[1] * columns
    planes = max(machine.l2 // 2 // dtype.size, channel * (1 + reach))
    is_point = plan.taps == 1
    both = ([*kinds[1]], points) if is_point else ([*kinds[0], *kinds[1]], [*tiles, *points])
    kernel = kernel_with_sizes(
        spec,
        vector,
        spec.n * spec.groups * pieces,
        packed + planes + plan.vectors * vector.lanes,
        sizes_of(plan, points) if is_point else sizes_of(plan, tiles, points=points),
        body,
        [
            *sized_support(plan, machine, *both),
            _STRIDES,
            snippet_of(vector, "spread_phases", _PHASES, {"$MOST": MOST_TAPS}),
        ],
    )
    return replace(kernel, items_size=images.n * spec.groups * pieces)


_STRIDES = Snippet(
    "strides",
    """\
// Rows and columns of a weight, and how they lie in an image.
typedef struct {
    int64_t taps[2], stride[2], padding[2], dilation[2];
} st_strides;
""",
)
_PHASES = """\
// The taps of a phase, by rows and columns: `count` from `first` on, of which tap 0 meets row or column `start` of d_y
// and the next one `step` less.
typedef struct {
    int64_t count[2], first[2], every[2], start[2], step[2];
} st_phase_$D;

static st_phase_$D st_taps_of_phase_$D(const st_strides *k, const int64_t *rest) {
    st_phase_$D p;
    for (int64_t side = 0; side < 2; ++side) {
        const int64_t stride = k->stride[side], dilation = k->dilation[side], taps = k->taps[side];
        const int64_t place = rest[side] + k->padding[side];
        p.first[side] = 0;
        while (p.first[side] < taps && (place - p.first[side] * dilation) % stride != 0) {
            p.first[side] += 1;
        }
        p.every[side] = 1;
        while (p.every[side] * dilation % stride != 0) {
            p.every[side] += 1;
        }
        p.count[side] = (taps - p.first[side] + p.every[side] - 1) / p.every[side];
        p.start[side] = p.count[side] == 0 ? 0 : (place - p.first[side] * dilation) / stride;
        p.step[side] = p.every[side] * dilation / stride;
    }
    return p;
}

// Copies the weights of a phase: its taps follow one another.
static void st_pack_phase_$D(const st_convolution_$D *known, const st_strides *k, const st_phase_$D *p,
        const $T *weight, $T *packed) {
    for (int64_t group = 0; group < known->groups; ++group) {
        const $T *const from = weight + group * known->outer * known->inner * k->taps[0] * k->taps[1];
        for (int64_t outer = 0; outer < known->outer; ++outer) {
            for (int64_t inner = 0; inner < known->inner; ++inner) {
                const $T *const taps = from + outer * known->weight[0] + inner * known->weight[1];
                for (int64_t y = 0; y < p->count[0]; ++y) {
                    for (int64_t x = 0; x < p->count[1]; ++x) {
                        const int64_t row = p->first[0] + y * p->every[0], column = p->first[1] + x * p->every[1];
                        *packed++ = taps[row * k->taps[1] + column];
                    }
                }
            }
        }
    }
}

// Spreads d_y of so many images to d_x, phase by phase, for work items `begin` to `end`.
static void st_spread_phases_$D(const st_convolution_$D *known, st_strides k, int64_t images, int64_t height,
        int64_t width, int64_t rows, int64_t columns, const $T *d_y, const $T *weight, int64_t room, int64_t pieces,
        $T *d_x, $T *scratch, int64_t begin, int64_t end) {
    for (int64_t phase = 0; phase < k.stride[0] * k.stride[1]; ++phase) {
        const int64_t rest[2] = {phase / k.stride[1], phase % k.stride[1]};
        const int64_t high = (rows - rest[0] + k.stride[0] - 1) / k.stride[0];
        const int64_t wide = (columns - rest[1] + k.stride[1] - 1) / k.stride[1];
        const st_phase_$D p = st_taps_of_phase_$D(&k, rest);
        const int64_t taps = p.count[0] * p.count[1], row = k.stride[0] * columns;
        $T *const first = d_x + rest[0] * columns + rest[1];
        if (taps == 0 || height * width == 0) {
            for (int64_t item = begin; item < end; ++item) {
                const int64_t piece = item % pieces;
                for (int64_t channel = 0; channel < known->outer; ++channel) {
                    $T *const plane = first + (item / pieces * known->outer + channel) * rows * columns;
                    for (int64_t y = high * piece / pieces; y < high * (piece + 1) / pieces; ++y) {
                        for (int64_t x = 0; x < wide; ++x) {
                            plane[y * row + x * k.stride[1]] = 0;
                        }
                    }
                }
            }
            continue;
        }
        int32_t places[2 * $MOST];
        for (int64_t tap = 0; tap < taps; ++tap) {
            places[2 * tap] = (int32_t)(tap % p.count[1]);
            places[2 * tap + 1] = (int32_t)((p.count[0] - 1 - tap / p.count[1]) * p.step[0]);
        }
        st_convolution_$D part = *known;
        part.window.planes = p.count[1];
        part.window.first = p.start[1];
        part.window.step = -p.step[1];
        part.window.stride[0] = part.window.stride[1] = part.window.spread[0] = part.window.spread[1] = 1;
        part.top = p.start[0] - (p.count[0] - 1) * p.step[0];
        part.phases = 1;
        part.phase_step = 0;
        part.taps = taps;
        part.weight[0] = known->inner * taps;
        part.weight[1] = taps;
        part.offsets = places;
        st_sized_convolution_$D sized;
        const int64_t blocks = st_size_convolution_$D(&part, images, height, width, high, wide, &sized);
        st_pack_phase_$D(known, &k, &p, weight, scratch);
        st_convolved_$D tile = {.item = st_block_of(begin, pieces, blocks)};
        const int64_t stop = st_block_of(end, pieces, blocks);
        while (st_next_convolved_$D(&sized.sizes, d_y, scratch, NULL, scratch + room, stop, &tile)) {
            for (int64_t r = 0; r < tile.rows; ++r) {
                const $T *const sums = tile.sums + r * tile.ld;
                $T *const plane = first + (tile.batch * known->groups * known->outer + tile.row + r) * rows * columns;
                int64_t y = tile.col / wide, x = tile.col % wide;
                for (int64_t s = 0; s < tile.cols; ++y, x = 0) {
                    for (; x < wide && s < tile.cols; ++x, ++s) {
                        plane[y * row + x * k.stride[1]] = sums[s];
                    }
                }
            }
        }
    }
}
"""
