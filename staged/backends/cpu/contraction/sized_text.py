"""The C functions of products whose sizes the program finds. `sized.py` fills in `$NAME`.

Tested by `tests/backends/host/test_contraction_sized.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet

MATRICES = Snippet(
    "matrices",
    """\
// Matrices (m, k) @ (k, n), which may lie transposed in memory, whether memory gets the product, whether the transpose
// of the product may be computed, and whether tiles may have columns of the tile before.
typedef struct {
    int64_t m, n, k;
    bool turned_a, turned_b, is_stored, may_turn, repeats;
} st_matrices;

// Splits a size into the fewest pieces of at most `most`, `counts[1]` of them one smaller. Returns the larger size.
static inline int64_t st_split(int64_t extent, int64_t most, int64_t *counts) {
    const int64_t count = (extent + most - 1) / most;
    const int64_t large = extent == 0 ? 1 : (extent + count - 1) / count;
    counts[1] = large * count - extent;
    counts[0] = count - counts[1];
    return large;
}
""",
)
SIZED = """\
static INLINE int64_t st_most_vectors_$D(int64_t rows, bool is_wide) {
    if (rows <= $ROWS_OF_FOUR) {
        return rows == 1 ? $WIDEST : 4;
    }
    return !is_wide ? 2 : rows <= $ROWS_OF_THREE ? 3 : $MANY;
}

// Whether the columns of the right operand are read once, in the order of memory: few rows use each element so little
// that reading is all the work.
static INLINE bool st_is_read_once_$D(int64_t rows, int64_t columns, int64_t steps, bool is_deep, bool is_wide) {
    const int64_t bytes = steps * columns * (int64_t)sizeof($T), least = rows == 1 ? 2 * $L1 : $L2 / 2;
    const bool has_dots = rows <= 4 && steps >= $LANES && (is_deep || rows == 1) && (!is_wide || columns == 1);
    return rows > 0 && (has_dots || (is_wide && rows <= 4 && columns >= 4 * $LANES && bytes > least));
}

// The vectors of tiles, as equal as possible: few rows have more, so that additions do not wait for one another. A tile
// of neighbouring columns has no more vectors than there are columns.
static INLINE int64_t st_tile_vectors_$D(int64_t rows, int64_t columns, bool is_wide) {
    const int64_t vectors = (columns + $LANES - 1) / $LANES, most = st_most_vectors_$D(rows, is_wide);
    const int64_t panels = is_wide && vectors <= most && vectors * $LANES > columns ? 2 : (vectors + most - 1) / most;
    return vectors < 2 ? 1 : (vectors + panels - 1) / panels;
}

static INLINE int64_t st_tile_rows_$D(int64_t vectors) {
    return vectors > 3 ? $ROWS_OF_FOUR : vectors > 2 ? $ROWS_OF_THREE : $ROWS;
}

// The estimated time of a product with vectors of columns; `is_wide`: the columns of the right operand are neighbours.
static INLINE double st_cycles_$D(int64_t rows, int64_t columns, int64_t steps, bool is_wide) {
    const int64_t vectors = (columns + $LANES - 1) / $LANES, across = st_tile_vectors_$D(rows, columns, is_wide);
    int64_t row_tiles[2], col_tiles[2];
    const double r = (double)st_split(rows, st_tile_rows_$D(across), row_tiles);
    const double v = (double)st_split(vectors, across, col_tiles), k = (double)steps;
    double step = (r + v) * 0.6 > r * v * 0.5 ? (r + v) * 0.6 : r * v * 0.5;
    step = step > 4.0 ? step : 4.0;
    const double tiles = (double)(row_tiles[0] + row_tiles[1]) * (double)(col_tiles[0] + col_tiles[1]);
    const double padding = columns > $LANES || columns % $LANES == 0 ? 0.0 : k * v * 1.5 + (double)rows * 6.0;
    return tiles * (k * step + 12.0 + r * v) + (is_wide ? 0.0 : 0.35 * k * (double)columns) + padding;
}

// Whether the transpose of a product is computed in less time.
static INLINE bool st_is_turned_$D(st_matrices s) {
    return s.may_turn && st_cycles_$D(s.n, s.m, s.k, s.turned_a) + 0.6 * (double)(s.m * s.n)
            < 0.97 * st_cycles_$D(s.m, s.n, s.k, !s.turned_b);
}

// The sizes of a product and of its tiles, and the copies of operands.
static st_product_$D st_sized_$D(st_matrices s, st_sums_$D *const (*tiles)[$WIDEST + 1]) {
    const int64_t pieces = 1 + s.m * s.n * s.k / $PIECE;  // the most work items of a matrix
    const bool once = st_is_read_once_$D(s.m, s.n, s.k, !s.turned_a, !s.turned_b);
    const bool turned_once = !once && st_is_read_once_$D(s.n, s.m, s.k, s.turned_b, s.turned_a);
    const bool is_turned = turned_once || (!once && st_is_turned_$D(s));
    const int64_t rows = is_turned ? s.n : s.m, columns = is_turned ? s.m : s.n, steps = s.k;
    const bool is_deep = is_turned ? s.turned_b : !s.turned_a;  // the steps of the left operand are neighbours
    const bool is_wide = columns == 1 || (is_turned ? s.turned_a : !s.turned_b);
    const bool turns = is_turned && !(s.is_stored && rows == 1);
    st_product_$D p = {.columns = columns, .inner = steps, .a = {is_deep ? steps : 1, is_deep ? 1 : rows},
        .b = {is_wide ? columns : 1, is_wide ? 1 : steps}, .c = {is_turned && !turns ? 1 : s.n, 1},
        .a_matrix = rows * steps, .b_matrix = steps * columns, .c_matrix = rows * columns,
        .turn = turns ? st_transpose_panel_$D : NULL, .right_first = is_turned, .repeats = s.repeats};
    if (once || turned_once) {
        const bool has_dots = !(is_turned ? s.turned_a : !s.turned_b) || columns == 1;
        if (has_dots) {
            p.b[0] = 1;
            p.b[1] = steps;
        }
        p.tile[0][0] = has_dots ? tiles[0][rows] : tiles[rows][0];
        p.tile_rows = rows;
        p.tile_cols = $STRIP;
        p.row_tiles[0] = 1;
        p.col_tiles[0] = (columns + $STRIP - 1) / $STRIP;
        p.item_tiles[0] = 1;
        p.item_tiles[1] = (p.col_tiles[0] + pieces - 1) / pieces;
        p.item_tiles[1] = p.item_tiles[1] == 0 ? 1 : p.item_tiles[1];
        return p;
    }
    const int64_t vectors = (columns + $LANES - 1) / $LANES, across = st_tile_vectors_$D(rows, columns, is_wide);
    p.tile_rows = st_split(rows, st_tile_rows_$D(across), p.row_tiles);
    const int64_t wide = st_split(vectors, across, p.col_tiles);
    p.tile_cols = wide * $LANES;
    for (int64_t low = 0; low < 2; ++low) {
        for (int64_t narrow = 0; narrow < 2; ++narrow) {
            p.tile[low][narrow] = tiles[p.tile_rows - low][wide - narrow];
        }
    }

    // Long sums are done in blocks of whole vectors, of which the last has a vector at least.
    int64_t block = steps;
    if (steps > $BLOCK) {
        const int64_t blocks = (steps + $BLOCK / 2 - 1) / ($BLOCK / 2);
        block = (steps + blocks * $LANES - 1) / (blocks * $LANES) * $LANES;
        while (steps % block > 0 && steps % block < $LANES) {
            block += $LANES;
        }
        p.block = block;
    }
    const int64_t chains = (block + $CHAIN - 1) / $CHAIN;
    p.chain = chains > 1 ? (block + chains - 1) / chains : 0;

    // A work item reads its rows of the left operand once per panel: they stay in the second-level cache.
    const int64_t row_tiles = p.row_tiles[0] + p.row_tiles[1], col_tiles = p.col_tiles[0] + p.col_tiles[1];
    const int64_t tile_bytes = p.tile_rows * (block > 0 ? block : 1) * (int64_t)sizeof($T);
    const int64_t least = ($LEAST + p.tile_rows - 1) / p.tile_rows, fitting = $L2 * 3 / 4 / tile_bytes;
    const int64_t high = least > fitting ? least : fitting;
    int64_t row_blocks = (row_tiles + high - 1) / high, col_blocks = 1;
    row_blocks = row_blocks < pieces ? row_blocks : pieces;
    const int64_t wanted = pieces < $SHARES ? pieces : $SHARES;
    if (row_blocks > 0 && row_blocks < wanted) {
        col_blocks = wanted / row_blocks < col_tiles ? wanted / row_blocks : col_tiles;
    }
    p.item_tiles[0] = row_tiles == 0 ? 1 : (row_tiles + row_blocks - 1) / row_blocks;
    p.item_tiles[1] = col_tiles == 0 ? 1 : (col_tiles + col_blocks - 1) / col_blocks;
    if (p.block != 0) {
        const int64_t fit = $L2 / 4 / (p.item_tiles[0] * p.tile_rows * p.tile_cols * (int64_t)sizeof($T));
        p.item_tiles[1] = fit < 1 ? 1 : fit < p.item_tiles[1] ? fit : p.item_tiles[1];
    }

    // Copies: of what lies transposed, of panels that many tiles read, of rows whose lines compete for one cache set.
    if (!is_wide) {
        p.copy_right = steps < $LANES ? st_gather_panel_$D : st_transpose_panel_$D;
    } else if (p.item_tiles[0] >= $PACKED && columns > p.tile_cols) {
        p.copy_right = st_copy_panel_$D;
    } else if (columns < p.tile_cols) {
        p.copy_right = st_copy_panel_$D;
        p.copies_last = true;
    }
    if (p.item_tiles[1] >= $PANELS && high * p.tile_rows >= p.item_tiles[0] * p.tile_rows) {
        const bool compete = p.a[is_deep ? 0 : 1] * (int64_t)sizeof($T) % 2048 == 0;
        if (is_deep && compete) {
            p.copy_left = st_copy_rows_$D;
            p.left_row = (block + $LANES - 1) / $LANES * $LANES + $LANES;
        } else if (!is_deep && rows > p.tile_rows && (compete || tile_bytes > $L1 / 2)) {
            p.copy_left = st_copy_columns_$D;
            p.left_row = (block + $LANES - 1) / $LANES * $LANES;
        }
    }

    // A last panel of neighbouring columns that is not whole begins in the panel before. Epilogues of copies are faster
    // if tiles begin with a vector.
    if (is_wide && !p.copies_last && (p.copy_right == NULL || s.is_stored || s.repeats)) {
        p.before = vectors * $LANES - columns;
    }
    p.below = p.block == 0 ? $BELOW : 0;
    return p;
}

// A number of work items of so many matrices: `item`, or all if there are fewer.
static INLINE int64_t st_item_$D(const st_product_$D *p, int64_t matrices, int64_t item) {
    const int64_t row_tiles = p->row_tiles[0] + p->row_tiles[1], col_tiles = p->col_tiles[0] + p->col_tiles[1];
    const int64_t all = matrices * st_blocks_$D(p, row_tiles, 0) * st_blocks_$D(p, col_tiles, 1);
    return item < all ? item : all;
}
"""
DOTS = """\
// Dot products of at most four rows of `a` with so many rows of `b`, each in a vector of partial sums.
static INLINE void st_dots_$D(int rows, int columns, const $T *a, int64_t a_row, const $T *b, int64_t b_row,
        int64_t steps, $T *sums, int64_t ld) {
    $V acc[$SUMS];
    $T found[$SUMS];
    #pragma GCC unroll $SUMS
    for (int i = 0; i < $SUMS; ++i) {
        acc[i] = ($V){0};
    }
    const int64_t whole = steps & -$LANES;
    for (int64_t k = 0; k < whole; k += $LANES) {
        $V x[4];
        #pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            x[r] = *(const $V_u *)(a + r * a_row + k);
        }
        #pragma GCC unroll 8
        for (int s = 0; s < columns; ++s) {
            const $V y = *(const $V_u *)(b + s * b_row + k);
            #pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                acc[r * columns + s] = st_fma_$V(x[r], y, acc[r * columns + s]);
            }
        }
    }
    #pragma GCC unroll $SUMS
    for (int i = 0; i < rows * columns; i += $LANES) {
        st_sum_lanes_$D(acc + i, found + i);
    }
    for (int64_t k = whole; k < steps; ++k) {
        for (int s = 0; s < columns; ++s) {
            for (int r = 0; r < rows; ++r) {
                found[r * columns + s] = st_fma_$D(a[r * a_row + k], b[s * b_row + k], found[r * columns + s]);
            }
        }
    }
    for (int r = 0; r < rows; ++r) {
        for (int s = 0; s < columns; ++s) {
            sums[r * ld + s] = found[r * columns + s];
        }
    }
}

// The sums of a strip of columns for few rows: dot products with rows of `b`.
static INLINE void st_dots_strip_$D(int rows, const $T *a, int64_t a_row, int64_t a_step, const $T *b, int64_t b_row,
        int64_t steps, int64_t columns, $T *sums, int64_t ld) {
    (void)a_step;
    int64_t done = 0;
    const int group = $GROUP / rows < 8 ? $GROUP / rows : 8;
    for (; done <= columns - group; done += group) {
        st_dots_$D(rows, group, a, a_row, b + done * b_row, b_row, steps, sums + done, ld);
    }
    for (int64_t i = 0; i < rows * (columns - done); ++i) {
        const int64_t row = i % rows, column = done + i / rows;
        st_dots_$D(1, 1, a + row * a_row, 0, b + column * b_row, 0, steps, sums + row * ld + column, 0);
    }
}
"""
ROWS = """\
// Adds `steps` rows of `b` to sums, each times an element of every row of `a`.
static INLINE void st_add_rows_$D(int rows, int steps, const $T *a, int64_t a_row, int64_t a_step, const $T *b,
        int64_t b_row, int64_t columns, $T *sums, int64_t ld) {
    $T factor[4][8];
    #pragma GCC unroll 4
    for (int r = 0; r < rows; ++r) {
        #pragma GCC unroll 8
        for (int k = 0; k < steps; ++k) {
            factor[r][k] = a[r * a_row + k * a_step];
        }
    }
    int64_t s = 0;
    for (; s <= columns - $LANES; s += $LANES) {
        $V total[4];
        #pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            total[r] = *($V_u *)(sums + r * ld + s);
        }
        #pragma GCC unroll 8
        for (int k = 0; k < steps; ++k) {
            const $V y = *(const $V_u *)(b + k * b_row + s);
            #pragma GCC unroll 4
            for (int r = 0; r < rows; ++r) {
                total[r] = st_fma_$V(factor[r][k], y, total[r]);
            }
        }
        #pragma GCC unroll 4
        for (int r = 0; r < rows; ++r) {
            *($V_u *)(sums + r * ld + s) = total[r];
        }
    }
    for (; s < columns; ++s) {
        for (int k = 0; k < steps; ++k) {
            for (int r = 0; r < rows; ++r) {
                sums[r * ld + s] = st_fma_$D(factor[r][k], b[k * b_row + s], sums[r * ld + s]);
            }
        }
    }
}

// The sums of a strip of columns for few rows: sums of rows of `b`.
static INLINE void st_rows_strip_$D(int rows, const $T *a, int64_t a_row, int64_t a_step, const $T *b, int64_t b_row,
        int64_t steps, int64_t columns, $T *sums, int64_t ld) {
    const int most = rows > 2 ? 4 : 8;
    int64_t done = 0;
    for (int r = 0; r < rows; ++r) {
        memset(sums + r * ld, 0, (size_t)columns * sizeof *sums);
    }
    for (; done <= steps - most; done += most) {
        st_add_rows_$D(rows, most, a + done * a_step, a_row, a_step, b + done * b_row, b_row, columns, sums, ld);
    }
    for (; done < steps; ++done) {
        st_add_rows_$D(rows, 1, a + done * a_step, a_row, a_step, b + done * b_row, b_row, columns, sums, ld);
    }
}
"""
STRIP_FUNCTION = """\
static void st_$KIND_$D_$COUNT(const $T *restrict a, int64_t a_row, int64_t a_step, int64_t a_tile,
        const $T *restrict b, int64_t b_row, int64_t steps, $T *restrict sums, int64_t ld, bool adds, int64_t columns) {
    (void)a_tile;
    (void)adds;
    st_$KIND_strip_$D($COUNT, a, a_row, a_step, b, b_row, steps, columns, sums, ld);
}
"""
NEXT_STRIP = """\
// Computes the next strip of a product of few rows, of work items before `end`. Returns whether there was one.
static bool st_next_strip_$D(const st_product_$D *p, const $T *a, const $T *b, $T *c, $T *scratch, int64_t end,
        st_tile_$D *t) {
    t->col_tile += 1;
    if (t->col_tile >= t->end_col_tile) {
        if (t->item == end) {
            return false;
        }
        st_begin_item_$D(p, t);
        t->col_tile = t->first_col_tile;
    }
    t->row = 0;
    t->col = t->col_tile * p->tile_cols;
    t->rows = p->tile_rows;
    t->cols = p->columns - t->col < p->tile_cols ? p->columns - t->col : p->tile_cols;
    t->ld = p->tile_cols;
    t->sums = scratch;
    const $T *const left = a + t->batch * p->a_matrix, *const right = b + t->batch * p->b_matrix + t->col * p->b[1];
    const int64_t b_step = p->b[0] == 1 ? p->b[1] : p->b[0];
    p->tile[0][0](left, p->a[0], p->a[1], 0, right, b_step, p->inner, scratch, p->tile_cols, false, t->cols);
    if (p->turn != NULL) {
        st_turn_tile_$D(p, scratch, t);
    }
    if (c != NULL) {
        st_copy_tile_$D(p, c, t);
    }
    return true;
}
"""
NEXT_SIZED = """\
// Computes the next tile or strip of a product whose sizes are not constants.
static bool st_next_sized_tile_$D(const st_product_$D *p, const $T *a, const $T *b, $T *c, $T *scratch, int64_t end,
        st_tile_$D *t) {
    return p->tile_cols == $STRIP ? st_next_strip_$D(p, a, b, c, scratch, end, t)
            : st_find_tile_$D(p, false, a, b, c, scratch, end, t);
}
"""
MULTIPLY = """\
// Computes work items [begin, end) of a product.
static void st_multiply_sized_$D(const $T *a, const $T *b, $T *c, const st_product_$D *p, int64_t matrices, $T *scratch,
        int64_t begin, int64_t end) {
    const int64_t stop = st_item_$D(p, matrices, end);
    st_tile_$D tile = {.item = st_item_$D(p, matrices, begin)};
    while (st_next_sized_tile_$D(p, p->right_first ? b : a, p->right_first ? a : b, c, scratch, stop, &tile)) {
    }
}
"""
