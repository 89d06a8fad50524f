"""Planted faults of long sums: totals that take in too much, pieces that are lost or counted twice."""

from tests.mutate.mutant import Mutant, Text

TESTS = "tests/kernels/test_cascade.py"
FORMS = tuple(
    f"{TESTS}::test_sums_of_every_form_are_exact_to_a_few_roundings[{dtype}-x86-64-v4]" for dtype in ("f32", "f64")
)
SIZES = (
    f"{TESTS}::test_short_sums_are_one_total",
    f"{TESTS}::test_one_number_more_is_a_level_more",
    f"{TESTS}::test_a_total_takes_in_few_numbers_whatever_the_size",
)
ACCURACY = ("tests/ops/test_accuracy.py::test_errors_are_at_most_twice_those_of_torch[small-host]",)
ON_DEVICE = ("tests/ops/test_accuracy.py::test_errors_are_at_most_twice_those_of_torch[small-region]",)
SCHEDULES = ("tests/backends/gpu/test_schedule.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a column's total takes in everything",
        "ir.cascade:",
        "LONGEST, PIECE = 32, 16",
        "LONGEST, PIECE = 1 << 30, 16",
        SIZES,
    ),
    Mutant(
        "a row's vector totals take in everything",
        "ir.cascade:",
        "LONGEST_BESIDE, PIECE_BESIDE = 64, 32",
        "LONGEST_BESIDE, PIECE_BESIDE = 1 << 30, 32",
        SIZES,
    ),
    Mutant(
        "f64 totals of pieces are one level, however many there are",
        "ir.cascade:levels",
        "outer = 1 if pieces <= 8 else 2 if pieces <= 256 else 3 if pieces <= 4096 else 4",
        "outer, pieces = 1, 8",
        SIZES,
    ),
    Mutant(
        "the f32 sums of columns do not begin again after the f64 totals have taken them in",
        "ir.cascade:_Cascade.widened_columns",
        '[Load(before, totals, at), Load(sum_, sums, at), Compute(widened, prims.CAST, (sum_,), {}), Compute(after, '
        'prims.ADD, (before, widened), {}), Store(totals, at, after), Store(sums, at, _zero(row))]',
        '[Load(before, totals, at), Load(sum_, sums, at), Compute(widened, prims.CAST, (sum_,), {}), Compute(after, '
        'prims.ADD, (before, widened), {}), Store(totals, at, after)]',
        FORMS,
    ),
    Mutant(
        "a level of f64 sums of columns does not begin again",
        "ir.cascade:_Cascade.joins",
        '[Load(before, into[row.array], row.index), Load(partial, own[row.array], row.index), Compute(after, prims.ADD, '
        '(before, partial), {}), Store(into[row.array], row.index, after), Store(own[row.array], row.index, '
        '_zero(row))]',
        '[Load(before, into[row.array], row.index), Load(partial, own[row.array], row.index), Compute(after, prims.ADD, '
        '(before, partial), {}), Store(into[row.array], row.index, after)]',
        FORMS,
    ),
    Mutant(
        "what stands beside a sum in pieces is taken for whole vectors",
        "backends.cpu.nest.vector_totals:VectorTotals.is_whole",
        "any(isinstance(s, Tile) and s.axis is axis for s in (outer, *walk(outer.body)))",
        "axis.extent < 0",
        FORMS,
    ),
    Mutant(
        "a total of vector totals is taken for a single number",
        "backends.cpu.nest.vector_totals:VectorTotals.varies_inside",
        "if value in varying:\n"
        "    varying.add(r.target)",
        "pass",
        FORMS,
    ),
    Mutant(
        "a product's sums in registers take in the whole inner dimension",
        "ir.products:LONGEST_CHAIN",
        "LONGEST_CHAIN = 384",
        "LONGEST_CHAIN = 1 << 30",
        ACCURACY,
    ),
    Mutant(
        "what a convolution had before a chain is overwritten",
        "backends.cpu.contraction.product_tile:ConvolutionTile.snippet",
        '"acc[r][v] += sum[r][v];"',
        '"acc[r][v] = sum[r][v];"',
        ACCURACY,
    ),
    Mutant(
        "the sums of a convolution take in all channels",
        "backends.cpu.contraction.conv2d_plan:WindowPlan.chain",
        "max(1, chain_of(self.inner * self.taps) // self.taps)",
        "self.inner",
        ("tests/kernels/test_convolution_nests.py",),
    ),
    Mutant(
        "a thread of a team takes in everything",
        "backends.gpu.teams:_piece",
        "not each or iterations * max(each.values()) <= LONGEST",
        "each or iterations * max(each.values()) <= LONGEST",
        SCHEDULES,
    ),
    Mutant(
        "a thread that is alone takes in everything",
        "backends.gpu.schedule:schedule_part",
        "part = with_short_sums(part)",
        "",
        SCHEDULES,
    ),
    Mutant(
        "an iteration that threads share takes in everything",
        "backends.gpu.schedule:schedule_part",
        "iterations_in_pieces(part)",
        "part",
        SCHEDULES,
    ),
    Mutant(
        "what a thread passes on is lost in the next piece",
        "backends.gpu.nest.teams:TeamStatements.share",
        'Assign(total.variable, self.totals.open[reduction].variable, "+")',
        "Assign(total.variable, self.totals.open[reduction].variable)",
        ON_DEVICE,
    ),
    Mutant(
        "the last piece goes beyond the end of a loop",
        "code.nest.loops:pieces",
        'Conditional(Infix("<", after, stop), after, stop)',
        "after",
        ON_DEVICE,
    ),
    Mutant(
        "the totals of a column lack those of half of its warps",
        "backends.cublas_cudnn.reductions:_HALVES",
        Text("for (unsigned int half = blockDim.x / 2; half >= 32; half /= 2)"),
        "for (unsigned int half = blockDim.x / 4; half >= 32; half /= 2)",
        ON_DEVICE,
    ),
    Mutant(
        "the total of a block is that of half of its warps",
        "backends.cublas_cudnn.reductions:_STEPS_OF_WARPS",
        '"for (int step = warps / 2; step > 0; step /= 2) {\\n"',
        '"for (int step = warps / 4; step > 0; step /= 2) {\\n"',
        ON_DEVICE,
    ),
    Mutant(
        "a thread begins in the middle of a vector",
        "kernels.schedule:schedule",
        "lanes if any(loop.axis is outermost for loop in loops) else 1",
        "1",
        ("tests/kernels/test_schedule.py::test_pieces_of_a_loop_over_vectors_are_whole_vectors",),
    ),
)
