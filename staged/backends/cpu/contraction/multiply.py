"""Products of matrices by one function that the kernels of a program share: each kernel passes its sizes in a struct.

The function serves products with a long inner dimension. Next to their tiles, sizes in memory cost nothing.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from staged.backends.cpu.contraction.items import kernel_function
from staged.backends.cpu.contraction.matmul_plan import MatmulPlan, Operand, describe
from staged.backends.cpu.contraction.operands import batch_terms, kernel_parameters
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import shared_function
from staged.backends.cpu.contraction.spec import ContractionKernel
from staged.backends.cpu.contraction.tile import aligned_to, emit_constant
from staged.backends.cpu.contraction.vectors import Vector, support_for
from staged.code.support.library import Snippet
from staged.code.writer import Writer


def is_multiplied(plan: MatmulPlan) -> bool:
    """Return whether the shared function computes a product."""
    spec, tile = plan.spec, plan.tile
    return (
        spec.epilogue is None
        and spec.stored is None
        and not spec.counted
        and plan.c.col == 1
        and len(tile.vectors.sizes) == 1
        and ProductTile(plan.vector, tile.rows.large, tile.vectors.large).is_shared(plan.k_block)
        and plan.pack_b != "gather"
        and (plan.pack_b is not None or not plan.last_is_partial)
        and all(len(batch_terms(spec.batch, each.batch)) < 2 for each in (plan.a, plan.b, plan.c))
    )


def emit_multiplied(plan: MatmulPlan) -> ContractionKernel:
    """The kernel of a product: its sizes, and the call."""
    spec, vector, dtype = plan.spec, plan.vector, plan.vector.dtype
    tiles = [ProductTile(vector, rows, plan.tile.vectors.large) for rows in plan.tile.rows.sizes]
    columns = tiles[0].vectors * vector.lanes
    copies = [_LEFT.get(plan.pack_a or "", ""), _RIGHT.get(plan.pack_b or "", "")]
    lines: list[dict[str, object]] = [
        {"rows": plan.m, "columns": plan.n, "inner": spec.k, "a": _strides(plan.a), "b": _strides(plan.b),
         "c_row": plan.c.row},
        {"a_matrix": _apart(plan, plan.a), "b_matrix": _apart(plan, plan.b), "c_matrix": _apart(plan, plan.c)},
        {"tile": f"{{{', '.join(tile.name for tile in tiles)}}}", "tile_rows": tiles[0].rows, "tile_columns": columns,
         "chain": plan.chain or plan.k_block},
        {"item_tiles": plan.rows_per_item, "item_columns": plan.cols_per_item * columns, "block": plan.k_block,
         "copy_right": copies[1] and f"st_{copies[1]}_{dtype}"},
        {"copy_left": copies[0] and f"st_{copies[0]}_{dtype}", "left_row": plan.left_row if plan.pack_a else 0},
    ]  # fmt: skip
    scratch_items = columns * plan.k_block if plan.pack_b else 0
    scratch_items += plan.item_rows * plan.left_row if plan.pack_a else 0
    parameters = kernel_parameters(spec, scratch_items > 0)
    left, right = spec.operand_names[::-1] if plan.turned else spec.operand_names
    t = Writer()
    with kernel_function(t, spec, parameters, describe(plan)[: 1 + plan.turned]):
        emit_constant(t, f"st_product_{dtype} sizes", lines)
        scratch = "scratch" if scratch_items else "NULL"
        t.statement(f"st_multiply_{dtype}(&sizes, {left}, {right}, {spec.result_name}, {scratch}, begin, end);")
    text = str(t)
    snippets = [_snippet(vector, "product_sizes", _SIZES)]
    snippets += [each for tile in tiles for each in (tile.snippet, shared_function(tile))]
    snippets += [_snippet(vector, copy, _COPIES[copy]) for copy in copies if copy]
    snippets.append(_snippet(vector, "multiply", _MULTIPLY))
    return ContractionKernel(
        spec.name,
        text,
        parameters,
        plan.work_items,
        "",
        scratch_items * spec.dtype.size,
        *support_for(text, vector, [("", snippet) for snippet in snippets]),
    )


def _strides(operand: Operand) -> str:
    return f"{{{operand.row}, {operand.col}}}"


def _apart(plan: MatmulPlan, operand: Operand) -> int:
    """The distance between the matrices of a batch."""
    axes = zip(operand.batch, plan.spec.batch, strict=True)
    return next((stride for stride, extent in reversed([*axes]) if extent > 1), 0)


_LEFT = {"rows": "copy_rows", "columns": "copy_panel"}
_RIGHT = {"rows": "copy_panel", "transpose": "transpose_panel"}


def _snippet(vector: Vector, name: str, text: str) -> Snippet:
    """Support for a vector: `$T` is its scalar, `$D` its dtype, `$V` its type."""
    replaced = {
        "$T": vector.scalar,
        "$D": str(vector.dtype),
        "$LANES": str(vector.lanes),
        "$V": vector.name,
        "$SUMS": str(_SUMS * vector.lanes),
        "$ALIGNED": aligned_to(vector),
    }
    for word, by in replaced.items():
        text = text.replace(word, by)
    return Snippet(f"{name}_{vector.dtype}", text)


_SUMS = 32
"""The number of vectors of sums in a tile is at most this."""
_SIZES = """\
typedef void st_tile_$D(const $T *restrict a, int64_t a_row, int64_t a_step, const $T *restrict b, int64_t b_step,
        int64_t steps, int64_t chain, $T *restrict c, int64_t c_row, bool adds);
typedef void st_panel_$D(const $T *from, int64_t stride, int64_t width, int64_t steps, $T *panel, int64_t step);

// The sizes of a product c = a @ b of matrices of (rows, inner) and (inner, columns) items.
typedef struct {
    int64_t rows, columns, inner;
    int64_t a[2], b[2], c_row;                // strides of rows and columns
    int64_t a_matrix, b_matrix, c_matrix;     // strides of a batch
    st_tile_$D *tile[2];                     // for `tile_rows` rows, and for one row less
    int64_t tile_rows, tile_columns, chain;   // `chain` steps of a sum stay in registers
    int64_t item_tiles, item_columns, block;  // tiles of rows, columns and steps that are computed together
    st_panel_$D *copy_left, *copy_right;     // NULL: tiles read the operand itself
    int64_t left_row;                         // of the copy
} st_product_$D;

// The first row of a tile: the last tiles of a product have one row less than the others.
static inline __attribute__((always_inline)) int64_t st_tile_row_$D(const st_product_$D *p, int64_t tile) {
    const int64_t tiles = (p->rows + p->tile_rows - 1) / p->tile_rows;
    const int64_t large = p->rows - tiles * (p->tile_rows - 1);
    return tile * p->tile_rows - (tile > large ? tile - large : 0);
}
"""
_COPIES = {
    "copy_rows": """\
// Copies rows that lie far apart together.
static void st_copy_rows_$D(const $T *from, int64_t stride, int64_t rows, int64_t steps, $T *copy, int64_t row) {
    for (int64_t r = 0; r < rows; ++r) {
        st_copy_$D(copy + r * row, from + r * stride, steps);
    }
}
""",
    "copy_panel": """\
// Copies `steps` runs of `width` items together, with zeros behind them.
static inline __attribute__((always_inline)) void st_copy_panel_$D(const $T *from, int64_t stride, int64_t width,
        int64_t steps, $T *panel, int64_t step) {
    if (width == step && step % $LANES == 0) {
        for (int64_t k = 0; k < steps; ++k) {
            #pragma GCC unroll 2
            for (int64_t s = 0; s < step; s += $LANES) {
                *($V_u *)(panel + k * step + s) = *(const $V_u *)(from + k * stride + s);
            }
        }
        return;
    }
    for (int64_t k = 0; k < steps; ++k) {
        if (width < step) {
            *($V_u *)(panel + (k + 1) * step - $LANES) = ($V){0};
        }
        st_copy_$D(panel + k * step, from + k * stride, width);
    }
}
""",
    "transpose_panel": """\
// Transposes `width` columns. The last block of steps begins early enough to end with the others.
static void st_transpose_panel_$D(const $T *from, int64_t stride, int64_t width, int64_t steps, $T *panel,
        int64_t step) {
    for (int64_t s = 0; s < width; s += $LANES) {
        for (int64_t k = 0; k < steps; k += $LANES) {
            const int64_t first = k < steps - $LANES ? k : steps - $LANES;
            st_transpose_$D(from + s * stride + first, stride, width - s, panel + first * step + s, step);
        }
    }
}
""",
}
_MULTIPLY = """\
// Computes work items [begin, end) of a product: blocks of rows and columns of a matrix.
static inline __attribute__((always_inline)) void st_multiply_$D(const st_product_$D *p, const $T *a, const $T *b,
        $T *c, $T *scratch, int64_t begin, int64_t end) {
    const int64_t tiles = (p->rows + p->tile_rows - 1) / p->tile_rows;
    const int64_t row_blocks = (tiles + p->item_tiles - 1) / p->item_tiles;
    const int64_t col_blocks = (p->columns + p->item_columns - 1) / p->item_columns;
    const int64_t b_step = p->copy_right == NULL ? p->b[0] : p->tile_columns;
    const bool is_turned = p->copy_left != NULL && p->a[1] != 1;  // the copy has the rows of a tile side by side
    for (int64_t item = begin; item < end; ++item) {
        const int64_t matrix = item / (row_blocks * col_blocks);
        const int64_t first = item / col_blocks % row_blocks * p->item_tiles;
        const int64_t last = first + p->item_tiles < tiles ? first + p->item_tiles : tiles;
        const int64_t first_row = st_tile_row_$D(p, first);
        const int64_t col_begin = item % col_blocks * p->item_columns;
        const int64_t col_end = col_begin + p->item_columns < p->columns ? col_begin + p->item_columns : p->columns;
        for (int64_t k = 0; k < p->inner; k += p->block) {
            const int64_t steps = k + p->block < p->inner ? p->block : p->inner - k;
            const $T *left = a + matrix * p->a_matrix + first_row * p->a[0] + k * p->a[1];
            int64_t left_row = p->a[0];
            if (p->copy_left != NULL) {
                $T *const copy = p->copy_right == NULL ? scratch : scratch + p->tile_columns * p->block;
                for (int64_t tile = first; tile < last; ++tile) {
                    const int64_t row = st_tile_row_$D(p, tile), rows = st_tile_row_$D(p, tile + 1) - row;
                    p->copy_left(left + (row - first_row) * p->a[0], is_turned ? p->a[1] : p->a[0], rows, steps,
                            copy + (row - first_row) * p->left_row, is_turned ? rows : p->left_row);
                }
                left = copy;
                left_row = p->left_row;
            }
            for (int64_t col = col_begin; col < col_end; col += p->tile_columns) {
                const int64_t width = p->columns - col < p->tile_columns ? p->columns - col : p->tile_columns;
                const $T *panel = b + matrix * p->b_matrix + k * p->b[0] + col * p->b[1];
                if (p->copy_right != NULL) {
                    p->copy_right(panel, p->b[1] == 1 ? p->b[0] : p->b[1], width, steps, scratch, p->tile_columns);
                    panel = scratch;
                }
                for (int64_t tile = first; tile < last; ++tile) {
                    const int64_t row = st_tile_row_$D(p, tile), rows = st_tile_row_$D(p, tile + 1) - row;
                    $T *const to = c + matrix * p->c_matrix + row * p->c_row + col;
                    $T sums[$SUMS] $ALIGNED;
                    const bool is_whole = width == p->tile_columns;
                    for (int64_t r = 0; r < rows && !is_whole && k > 0; ++r) {
                        st_copy_$D(sums + r * p->tile_columns, to + r * p->c_row, width);
                    }
                    const $T *const from = left + (row - first_row) * left_row;
                    $T *const into = is_whole ? to : sums;
                    const int64_t a_row = is_turned ? 1 : left_row, c_row = is_whole ? p->c_row : p->tile_columns;
                    if (rows == p->tile_rows) {
                        const int64_t a_step = is_turned ? p->tile_rows : p->a[1];
                        p->tile[0](from, a_row, a_step, panel, b_step, steps, p->chain, into, c_row, k > 0);
                    } else {
                        const int64_t a_step = is_turned ? p->tile_rows - 1 : p->a[1];
                        p->tile[1](from, a_row, a_step, panel, b_step, steps, p->chain, into, c_row, k > 0);
                    }
                    for (int64_t r = 0; r < rows && !is_whole; ++r) {
                        st_copy_$D(to + r * p->c_row, sums + r * p->tile_columns, width);
                    }
                }
            }
        }
    }
}
"""
