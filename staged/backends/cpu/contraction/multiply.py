"""Products of matrices by functions that receive the address of their sizes.

    st_multiply_f32(a, b, c, &c_sizes, scratch, begin, end);

A kernel with an epilogue has its statements in a loop over tiles:

    st_tile_f32 tile = {.item = begin};
    while (st_next_tile_f32(sizes, a, b, NULL, scratch, end, &tile)) {
        ...
    }

If it serves products of several sizes, `sizes` is a parameter. If not, the compiler replaces the sizes by numbers.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd

from staged.backends.cpu.contraction.items import Table, finished, kernel_with_sizes, support_with_sizes
from staged.backends.cpu.contraction.matmul_plan import MatmulPlan, Operand, describe
from staged.backends.cpu.contraction.operands import batch_terms
from staged.backends.cpu.contraction.product_tile import ProductTile
from staged.backends.cpu.contraction.shared_tiles import tiles_function
from staged.backends.cpu.contraction.spec import ContractionKernel
from staged.backends.cpu.contraction.tile import TILE_START, Split
from staged.backends.cpu.contraction.vectors import Vector, snippet_of
from staged.code.expr import Expr, Field, Items, Name, Prefix, Variable, call
from staged.code.tree import Declare, Statement, While
from staged.code.types import word

SHORT = 32
"""Kernels of shorter sums have constant sizes: finding the next tile is a large part of their work."""


def is_multiplied(plan: MatmulPlan) -> bool:
    """Return whether the shared function computes a product."""
    spec = plan.spec
    return spec.stored is None and all(
        len(batch_terms(spec.batch, each.batch)) < 2 for each in (plan.a, plan.b, plan.c) if each.batch
    )


def emit_multiplied(plan: MatmulPlan) -> ContractionKernel:
    """The kernel of a product: its sizes, and the function that receives their address."""
    spec, vector, dtype, split = plan.spec, plan.vector, plan.vector.dtype, plan.tile
    lanes, block, has_result = vector.lanes, plan.k_block, spec.epilogue is None
    tiles = [[ProductTile(vector, rows, vectors) for vectors in split.vectors.sizes] for rows in split.rows.sizes]
    columns = split.vectors.large * lanes
    is_turned = plan.result.needs_transpose()
    left, right = _LEFT.get(plan.pack_a or "", ""), _RIGHT.get(plan.pack_b or "", "")
    copies_last = not right and plan.last_is_partial
    right = "copy_panel" if copies_last else right
    left_row = 0 if not left else -(-plan.left_row // lanes) * lanes
    turn = "transpose_panel" if is_turned else ""
    c = plan.c.transposed() if is_turned else plan.c
    fields: dict[str, object] = {
        "columns": plan.n, "inner": spec.k, "a": _pair(plan.a), "b": _pair(plan.b), "c": has_result and _pair(c),
        "a_matrix": _apart(plan, plan.a), "b_matrix": _apart(plan, plan.b),
        "c_matrix": has_result and _apart(plan, plan.c),
        "tile_rows": split.rows.large, "tile_cols": columns, "row_tiles": _counts(split.rows),
        "col_tiles": _counts(split.vectors),
        "tile": _braces(*(_braces(*(tile.tiles for tile in row)) for row in tiles)),
        "item_tiles": _braces(plan.rows_per_item, plan.cols_per_item),
        "block": block < spec.k and block, "chain": plan.chain,
        "copy_left": left and f"st_{left}_{dtype}", "left_row": left_row != block and left_row,
        "copy_right": right and f"st_{right}_{dtype}", "copies_last": copies_last and "true",
        "turn": turn and f"st_{turn}_{dtype}",
        "right_first": has_result and plan.turned is not spec.right_first and "true",
    }  # fmt: skip
    scratch_items = columns * block if right else 0
    scratch_items += plan.item_rows * left_row
    if not plan.is_direct:
        kept = plan.rows_per_item * plan.cols_per_item if plan.k_blocks > 1 else 1
        scratch_items += kept * split.rows.large * columns
    if is_turned and split.rows.large > 1:
        scratch_items += -(-split.rows.large // lanes) * lanes * columns
    words = words_of(vector)
    snippets = [snippet_of(vector, "product_sizes", SIZES), TILE_START]
    snippets += [each for row in tiles for tile in row for each in (tile.snippet, tiles_function(tile))]
    snippets += [snippet_of(vector, copy, COPIES[copy], words) for copy in dict.fromkeys((left, right, turn)) if copy]
    parts = {"items": ITEMS, "panels": PANELS, "finish_tile": FINISH, "next_tile": NEXT_TILE}
    snippets += [snippet_of(vector, name, text, words) for name, text in parts.items()]
    shapes, *others = describe(plan)[: 1 + plan.turned]
    table = Table(spec.table, f"st_product_{dtype}", shapes, fields)
    if has_result:
        snippets.append(snippet_of(vector, "multiply", MULTIPLY, words))
        lines = [line for line in spec.comments if line != "matmul"]
        comment = [f"{shapes}  {lines[0]}", *others] if len(lines) == 1 else [*lines, shapes, *others]
        return support_with_sizes(
            f"st_multiply_{dtype}",
            spec,
            vector,
            plan.work_items,
            scratch_items,
            replace(table, comment="\n".join(comment)),
            snippets,
        )

    column_step = 1 if is_turned else gcd(lanes, plan.n)

    def body(sizes: Expr, parameters: Mapping[str, Variable]) -> tuple[Statement, ...]:
        tile = Variable("tile", word(f"st_tile_{dtype}"))
        operands = [parameters[name] for name in spec.operand_names]
        operands = operands[::-1] if plan.turned else operands
        passed = sizes, *operands, Name("NULL"), parameters["scratch"], parameters["end"], Prefix("&", tile)
        return (
            Declare(tile, Items((Field("item", parameters["begin"]),)), is_const=False),
            While(
                call(f"st_next_tile_{dtype}", *passed),
                finished(spec, parameters, tile, "batch row col rows cols sums ld".split(), column_step),
            ),
        )

    is_shared = spec.k >= SHORT
    return kernel_with_sizes(
        spec, vector, plan.work_items, scratch_items, table, body, snippets, is_shared, column_step=column_step
    )


def words_of(vector: Vector) -> dict[str, object]:
    """Words in the text of functions on tiles."""
    return {"$V": vector.name, "INLINE": "inline __attribute__((always_inline))"}


def _braces(*values: object) -> str:
    return f"{{{', '.join(map(str, values))}}}"


def _pair(operand: Operand) -> str:
    return _braces(operand.row, operand.col)


def _counts(split: Split) -> str:
    """The number of large pieces, and the number of smaller ones if there are any."""
    return _braces(split.large_count, *([split.small_count] if split.small_count else []))


def _apart(plan: MatmulPlan, operand: Operand) -> int:
    """The distance between the matrices of a batch."""
    axes = zip(operand.batch, plan.spec.batch, strict=bool(operand.batch))
    return next((stride for stride, extent in reversed([*axes]) if extent > 1), 0)


_LEFT = {"rows": "copy_rows", "columns": "copy_columns"}
_RIGHT = {"rows": "copy_panel", "transpose": "transpose_panel", "gather": "gather_panel"}


SIZES = """\
typedef void st_sums_$D(const $T *restrict a, int64_t a_row, int64_t a_step, int64_t a_tile, const $T *restrict b,
        int64_t b_step, int64_t steps, $T *restrict c, int64_t c_row, bool adds, int64_t tiles);
typedef void st_copies_$D(const $T *from, int64_t row, int64_t col, int64_t width, int64_t steps, $T *to,
        int64_t to_row);

// The sizes of a product c = a @ b, and of its tiles: the last ones may have one row or one vector less.
typedef struct {
    int64_t columns, inner;
    int64_t a[2], b[2], c[2];              // strides of rows and columns
    int64_t a_matrix, b_matrix, c_matrix;  // strides of a batch
    int64_t tile_rows, tile_cols;
    int64_t row_tiles[2], col_tiles[2];    // the number of tiles of this size, and of smaller ones
    st_sums_$D *tile[2][2];                // the sums of tiles of each size
    int64_t item_tiles[2], block;          // the tiles and steps that are computed together; 0: all steps
    int64_t below;                         // the most tiles in memory below another one
    int64_t chain;                         // the steps whose sums stay in registers; 0: all of a block
    int64_t left_row;                      // the distance of rows in the copy of `a`; 0: that of a block
    st_copies_$D *copy_left, *copy_right;  // NULL: tiles read the operand itself
    bool copies_last;                      // only a last panel that is not whole is copied
    int64_t before;                        // the columns of the last panel that belong to the panel before
    bool repeats;                          // a tile may have columns of the tile before
    st_copies_$D *turn;                    // not NULL: `c` is the transpose, and each tile is transposed
    bool right_first;                      // `st_multiply_$D` receives `b` before `a`
} st_product_$D;

// A tile of a product: `sums[r * ld + s]` is element (row + r, col + s) of matrix `batch`.
typedef struct {
    int64_t batch, row, col, rows, cols, ld;
    const $T *sums;
    int64_t item, step, steps, row_tile, col_tile;  // the place of the tile
    int64_t first_row_tile, end_row_tile, first_col_tile, end_col_tile;
    const $T *left, *right;
} st_tile_$D;
"""
COPIES = {
    "copy_rows": """\
// Copies rows that lie far apart together.
static void st_copy_rows_$D(const $T *from, int64_t row, int64_t col, int64_t rows, int64_t steps, $T *to,
        int64_t to_row) {
    (void)col;
    for (int64_t r = 0; r < rows; ++r) {
        st_copy_$D(to + r * to_row, from + r * row, steps);
    }
}
""",
    "copy_columns": """\
// Copies the rows of a tile side by side.
static void st_copy_columns_$D(const $T *from, int64_t row, int64_t col, int64_t rows, int64_t steps, $T *to,
        int64_t to_row) {
    (void)row, (void)to_row;
    for (int64_t k = 0; k < steps; ++k) {
        st_copy_$D(to + k * rows, from + k * col, rows);
    }
}
""",
    "copy_panel": """\
// Copies `steps` runs of `width` items together.
static INLINE void st_copy_runs_$D(const $T *from, int64_t row, int64_t width, int64_t steps, $T *panel) {
    for (int64_t k = 0; k < steps; ++k) {
        #pragma GCC unroll 2
        for (int64_t s = 0; s < width; s += $LANES) {
            *($V_u *)(panel + k * width + s) = *(const $V_u *)(from + k * row + s);
        }
    }
}

// Copies `steps` runs of `width` items together, with zeros behind them. Most runs are two vectors.
static INLINE void st_copy_panel_$D(const $T *from, int64_t row, int64_t col, int64_t width, int64_t steps, $T *panel,
        int64_t step) {
    (void)col;
    if (width == step && width == 2 * $LANES) {
        st_copy_runs_$D(from, row, 2 * $LANES, steps, panel);
    } else if (width == step) {
        st_copy_runs_$D(from, row, width, steps, panel);
    } else {
        for (int64_t k = 0; k < steps; ++k) {
            *($V_u *)(panel + (k + 1) * step - $LANES) = ($V){0};
            st_copy_$D(panel + k * step, from + k * row, width);
        }
    }
}
""",
    "transpose_panel": """\
// Transposes `rows` columns, at most a vector of them. The last block of steps ends with the others.
static INLINE void st_transpose_rows_$D(const $T *from, int64_t col, int64_t rows, int64_t steps, $T *panel,
        int64_t step) {
    for (int64_t k = 0; k < steps; k += $LANES) {
        const int64_t first = k < steps - $LANES ? k : steps - $LANES;
        st_transpose_$D(from + first, col, rows, panel + first * step, step);
    }
}

// Transposes `width` columns. Most panels have two vectors.
static INLINE void st_transpose_panel_$D(const $T *from, int64_t row, int64_t col, int64_t width, int64_t steps,
        $T *panel, int64_t step) {
    (void)row;
    for (int64_t s = 0; s < width; s += $LANES) {
        if (width == 2 * $LANES && step == width) {
            st_transpose_rows_$D(from + s * col, col, $LANES, steps, panel + s, 2 * $LANES);
        } else {
            st_transpose_rows_$D(from + s * col, col, width - s, steps, panel + s, step);
        }
    }
}
""",
    "gather_panel": """\
// Copies `width` columns item by item; those behind them repeat the last one.
static void st_gather_panel_$D(const $T *from, int64_t row, int64_t col, int64_t width, int64_t steps, $T *panel,
        int64_t step) {
    for (int64_t k = 0; k < steps; ++k) {
        for (int64_t s = 0; s < step; ++s) {
            panel[k * step + s] = from[k * row + (s < width ? s : width - 1) * col];
        }
    }
}
""",
}
ITEMS = """\
// The steps that are computed together, and the items of a panel of so many steps.
static INLINE int64_t st_block_$D(const st_product_$D *p) {
    return p->block == 0 ? p->inner : p->block;
}

static INLINE int64_t st_panel_items_$D(const st_product_$D *p) {
    return p->copy_right == NULL ? 0 : p->tile_cols * st_block_$D(p);
}

// The distance of rows in the copy of the left operand, and the items of both copies.
static INLINE int64_t st_left_row_$D(const st_product_$D *p) {
    return p->left_row == 0 ? st_block_$D(p) : p->left_row;
}

static INLINE int64_t st_copied_items_$D(const st_product_$D *p) {
    return st_panel_items_$D(p) + (p->copy_left == NULL ? 0 : p->item_tiles[0] * p->tile_rows * st_left_row_$D(p));
}

// The number of blocks of rows (axis 0) or columns (axis 1) of a matrix: each is a work item.
static INLINE int64_t st_blocks_$D(const st_product_$D *p, int64_t tiles, int axis) {
    return tiles <= p->item_tiles[axis] ? tiles > 0 : (tiles + p->item_tiles[axis] - 1) / p->item_tiles[axis];
}

// Begins the next work item, a block of rows and columns of a matrix.
static INLINE void st_begin_item_$D(const st_product_$D *p, st_tile_$D *t) {
    const int64_t row_tiles = p->row_tiles[0] + p->row_tiles[1], col_tiles = p->col_tiles[0] + p->col_tiles[1];
    const int64_t col_blocks = st_blocks_$D(p, col_tiles, 1), blocks = st_blocks_$D(p, row_tiles, 0) * col_blocks;
    const int64_t row_tile = blocks == 1 ? 0 : t->item % blocks / col_blocks * p->item_tiles[0];
    const int64_t col_tile = blocks == 1 ? 0 : t->item % col_blocks * p->item_tiles[1];
    t->batch = blocks == 1 ? t->item : t->item / blocks;
    t->first_row_tile = row_tile;
    t->first_col_tile = col_tile;
    t->end_row_tile = row_tile + p->item_tiles[0] < row_tiles ? row_tile + p->item_tiles[0] : row_tiles;
    t->end_col_tile = col_tile + p->item_tiles[1] < col_tiles ? col_tile + p->item_tiles[1] : col_tiles;
    t->item += 1;
    t->step = 0;
}

// Begins the next steps of a work item: rows of `a` that lie far apart are copied together.
static INLINE void st_begin_steps_$D(const st_product_$D *p, const $T *a, $T *scratch, st_tile_$D *t) {
    const int64_t row = st_tile_start(t->first_row_tile, p->tile_rows, p->row_tiles[0], 1);
    t->left = a + t->batch * p->a_matrix + row * p->a[0] + t->step * p->a[1];
    t->steps = p->inner - t->step < st_block_$D(p) ? p->inner - t->step : st_block_$D(p);
    t->col_tile = t->first_col_tile;
    if (p->copy_left == NULL) {
        return;
    }
    $T *const copy = scratch + st_panel_items_$D(p);
    for (int64_t tile = t->first_row_tile, r = 0; tile < t->end_row_tile; ++tile) {
        const int64_t rows = p->tile_rows - (tile >= p->row_tiles[0]);
        $T *const to = copy + r * st_left_row_$D(p);
        p->copy_left(t->left + r * p->a[0], p->a[0], p->a[1], rows, t->steps, to, st_left_row_$D(p));
        r += rows;
    }
    t->left = copy;
}
"""
PANELS = """\
// The columns of a panel that belong to the panel before.
static INLINE int64_t st_before_$D(const st_product_$D *p, const st_tile_$D *t) {
    return t->col_tile == p->col_tiles[0] + p->col_tiles[1] - 1 ? p->before : 0;
}

// Begins a panel with `narrow` vectors less: the columns of `b` for tiles below one another.
static INLINE void st_begin_panel_$D(const st_product_$D *p, int64_t narrow, const $T *b, $T *scratch, st_tile_$D *t) {
    const int64_t width = p->tile_cols - narrow * $LANES;
    const int64_t col = st_tile_start(t->col_tile, p->tile_cols, p->col_tiles[0], $LANES) - st_before_$D(p, t);
    const $T *const right = b + t->batch * p->b_matrix + t->step * p->b[0] + col * p->b[1];
    t->row_tile = t->first_row_tile;
    t->right = scratch;
    if (p->columns % $LANES != 0 && col + width > p->columns) {
        p->copy_right(right, p->b[0], p->b[1], p->columns - col, t->steps, scratch, width);
    } else if (p->copy_right == NULL || p->copies_last) {
        t->right = right;
    } else {
        p->copy_right(right, p->b[0], p->b[1], width, t->steps, scratch, width);
    }
}

// Computes the sums of a tile, with `low` rows and `narrow` vectors less. Tiles of this size below it are part of it if
// `c` gets them unchanged, or if memory has room. Returns whether `c` got them.
static INLINE bool st_sum_tile_$D(const st_product_$D *p, int64_t low, int64_t narrow, $T *c, $T *scratch,
        st_tile_$D *t) {
    const int64_t width = p->tile_cols - narrow * $LANES, before = st_before_$D(p, t);
    const int64_t first_row = st_tile_start(t->first_row_tile, p->tile_rows, p->row_tiles[0], 1);
    const bool has_blocks = p->block != 0;
    t->row = st_tile_start(t->row_tile, p->tile_rows, p->row_tiles[0], 1);
    t->col = st_tile_start(t->col_tile, p->tile_cols, p->col_tiles[0], $LANES);
    t->rows = p->tile_rows - low;
    t->cols = p->columns - t->col < width ? p->columns - t->col : width;
    t->ld = width;
    // Columns before may belong to another item, and sums over blocks are added to them once.
    const bool is_own = before == 0 || (t->col_tile > t->first_col_tile && !has_blocks);
    const bool is_direct = c != NULL && p->turn == NULL && p->c[1] == 1 && t->cols + before == width && is_own;
    const int64_t end = low == 0 && p->row_tiles[0] < t->end_row_tile ? p->row_tiles[0] : t->end_row_tile;
    const int64_t tiles_left = end - t->row_tile;
    const int64_t tiles = is_direct || tiles_left <= p->below ? tiles_left : 1 + p->below;
    $T *sums;
    if (is_direct) {
        t->ld = p->c[0];
        sums = c + t->batch * p->c_matrix + t->row * p->c[0] + t->col - before;
    } else {
        const int64_t place = (t->col_tile - t->first_col_tile) * p->item_tiles[0] + t->row_tile - t->first_row_tile;
        sums = scratch + st_copied_items_$D(p) + (has_blocks ? place : 0) * p->tile_rows * p->tile_cols;
    }
    int64_t a_row = p->copy_left == NULL ? p->a[0] : st_left_row_$D(p), a_step = p->a[1];
    const $T *const left = t->left + (t->row - first_row) * a_row;
    const int64_t a_tile = t->rows * a_row;
    if (p->copy_left != NULL && a_step != 1) {  // the copy has the rows of a tile side by side
        a_row = 1;
        a_step = t->rows;
    }
    const bool is_copy = p->copy_right != NULL && (!p->copies_last || t->cols < width);
    const int64_t b_step = is_copy ? width : p->b[0], steps = has_blocks ? t->steps : p->inner;
    int64_t step = 0;
    do {
        const int64_t more = p->chain != 0 && p->chain < steps - step ? p->chain : steps - step;
        p->tile[low][narrow](left + step * a_step, a_row, a_step, a_tile, t->right + step * b_step, b_step, more,
                sums, t->ld, step > 0 || (has_blocks && t->step > 0), tiles);
        step += more;
    } while (step < steps);
    t->sums = sums + before;
    t->rows *= tiles;
    t->row_tile += tiles - 1;
    return is_direct;
}
"""
FINISH = """\
// Transposes a tile.
static INLINE void st_turn_tile_$D(const st_product_$D *p, $T *scratch, st_tile_$D *t) {
    const st_tile_$D tile = *t;
    t->row = tile.col;
    t->col = tile.row;
    t->rows = tile.cols;
    t->cols = tile.rows;
    t->ld = 1;
    if (tile.rows > 1) {
        const int64_t kept = p->block != 0 ? p->item_tiles[0] * p->item_tiles[1] : 1 + p->below;
        $T *const turned = scratch + st_copied_items_$D(p) + kept * p->tile_rows * p->tile_cols;
        t->ld = (p->tile_rows * (1 + p->below) + $LANES - 1) / $LANES * $LANES;
        p->turn(tile.sums, 1, tile.ld, tile.rows, tile.ld, turned, t->ld);
        t->sums = turned;
    }
}

// Copies a tile into the result.
static INLINE void st_copy_tile_$D(const st_product_$D *p, $T *c, const st_tile_$D *t) {
    $T *const to = c + t->batch * p->c_matrix + t->row * p->c[0] + t->col * p->c[1];
    for (int64_t r = 0; r < t->rows; ++r) {
        if (p->c[1] == 1) {
            st_copy_$D(to + r * p->c[0], t->sums + r * t->ld, t->cols);
            continue;
        }
        for (int64_t s = 0; s < t->cols; ++s) {
            to[r * p->c[0] + s * p->c[1]] = t->sums[r * t->ld + s];
        }
    }
}
"""
NEXT_TILE = """\
// Computes the next tile of a product, of work items before `end`. Returns whether there was one. If the sizes of the
// product are constants, so are those of a tile in each call.
static INLINE bool st_find_tile_$D(const st_product_$D *p, bool is_constant, const $T *a, const $T *b, $T *c,
        $T *scratch, int64_t end, st_tile_$D *t) {
    bool is_direct;
    do {
        t->row_tile += 1;
        const bool is_panel = t->row_tile >= t->end_row_tile;
        if (is_panel) {
            t->col_tile += 1;
            if (t->col_tile >= t->end_col_tile) {
                t->step += t->steps;
                if (t->steps == 0 || t->step == p->inner) {
                    if (t->item == end) {
                        return false;
                    }
                    st_begin_item_$D(p, t);
                }
                st_begin_steps_$D(p, a, scratch, t);
            }
        }
        const bool is_narrow = p->col_tiles[1] > 0 && t->col_tile >= p->col_tiles[0];
        if (is_panel && is_constant && is_narrow) {
            st_begin_panel_$D(p, 1, b, scratch, t);
        } else if (is_panel) {
            st_begin_panel_$D(p, is_constant ? 0 : is_narrow, b, scratch, t);
        }
        const bool is_low = p->row_tiles[1] > 0 && t->row_tile >= p->row_tiles[0];
        if (!is_constant) {
            is_direct = st_sum_tile_$D(p, is_low, is_narrow, c, scratch, t);
        } else if (is_low && is_narrow) {
            is_direct = st_sum_tile_$D(p, 1, 1, c, scratch, t);
        } else if (is_low) {
            is_direct = st_sum_tile_$D(p, 1, 0, c, scratch, t);
        } else if (is_narrow) {
            is_direct = st_sum_tile_$D(p, 0, 1, c, scratch, t);
        } else {
            is_direct = st_sum_tile_$D(p, 0, 0, c, scratch, t);
        }
    } while (t->step + t->steps < p->inner);
    if (p->repeats && t->col_tile > t->first_col_tile) {
        const int64_t before = st_before_$D(p, t);
        t->col -= before;
        t->cols += before;
        t->sums -= before;
    }
    if (p->turn != NULL) {
        st_turn_tile_$D(p, scratch, t);
    }
    if (c != NULL && !is_direct) {
        st_copy_tile_$D(p, c, t);
    }
    return true;
}

static INLINE bool st_next_tile_$D(const st_product_$D *p, const $T *a, const $T *b, $T *c, $T *scratch, int64_t end,
        st_tile_$D *t) {
    return st_find_tile_$D(p, true, a, b, c, scratch, end, t);
}
"""
MULTIPLY = """\
// Computes work items [begin, end) of a product.
static void st_multiply_$D(const $T *a, const $T *b, $T *c, const st_product_$D *p, $T *scratch, int64_t begin,
        int64_t end) {
    st_tile_$D tile = {.item = begin};
    while (st_find_tile_$D(p, false, p->right_first ? b : a, p->right_first ? a : b, c, scratch, end, &tile)) {
    }
}
"""
