"""Planted faults of long sums: totals that take in too much, pieces that are lost or counted twice."""

from tests.mutate.mutant import Mutant

CASCADE = "staged/ir/cascade.py"
TOTALS = "staged/backends/c_family/cpu_nest/vector_totals.py"
TILE = "staged/backends/c_family/contraction/tile.py"
CONV = "staged/backends/c_family/contraction/conv2d.py"

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
SCHEDULES = ("tests/backends/gpu_family/test_schedule.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a column's total takes in everything",
        CASCADE,
        "LONGEST, PIECE = 32, 16",
        "LONGEST, PIECE = 1 << 30, 16",
        SIZES,
    ),
    Mutant(
        "a row's vector totals take in everything",
        CASCADE,
        "LONGEST_BESIDE, PIECE_BESIDE = 64, 32",
        "LONGEST_BESIDE, PIECE_BESIDE = 1 << 30, 32",
        SIZES,
    ),
    Mutant(
        "f64 totals of pieces are one level, however many there are",
        CASCADE,
        "outer = 1 if pieces <= 8 else 2 if pieces <= 256 else 3 if pieces <= 4096 else 4",
        "outer, pieces = 1, 8",
        SIZES,
    ),
    Mutant(
        "the f32 sums of columns do not begin again after the f64 totals have taken them in",
        CASCADE,
        "                Store(sums, at, _zero(row)),\n",
        "",
        FORMS,
    ),
    Mutant(
        "a level of f64 sums of columns does not begin again",
        CASCADE,
        "                Store(own[row.array], row.index, _zero(row)),\n            ]",
        "            ]",
        FORMS,
    ),
    Mutant(
        "what stands beside a sum in pieces is taken for whole vectors",
        TOTALS,
        "if any(isinstance(s, Tile) and s.axis is axis for s in (outer, *walk(outer.body))):",
        "if axis.extent < 0:",
        FORMS,
    ),
    Mutant(
        "a total of vector totals is taken for a single number",
        TOTALS,
        "                    if value in varying:\n                        varying.add(r.target)\n",
        "                    pass\n",
        FORMS,
    ),
    Mutant(
        "a product's sums in registers take in the whole inner dimension",
        "staged/ir/products.py",
        "LONGEST_CHAIN = 384",
        "LONGEST_CHAIN = 1 << 30",
        ACCURACY,
    ),
    Mutant(
        "what a product had before a chain is overwritten",
        TILE,
        't.line(f"acc[r][{v}] += {vector.load(address)};")',
        't.line(f"acc[r][{v}] = {vector.load(address)};")',
        ACCURACY,
    ),
    Mutant(
        "a convolution's sums take in all channels",
        "staged/kernels/candidates.py",
        "chain = max(1, chain_of(k) // taps)",
        "chain = k",
        ACCURACY,
    ),
    Mutant(
        "the sums of a convolution in a function take in all channels",
        CONV,
        "channels = max(1, chain_of(self.inner * self.taps) // self.taps)",
        "channels = self.inner",
        ("tests/kernels/test_convolution_nests.py",),
    ),
    Mutant(
        "a thread of a team takes in everything",
        "staged/backends/gpu_family/teams.py",
        "if not each or iterations * max(each.values()) <= LONGEST:",
        "if each or iterations * max(each.values()) <= LONGEST:",
        SCHEDULES,
    ),
    Mutant(
        "a thread that is alone takes in everything",
        "staged/backends/gpu_family/schedule.py",
        "    part = with_short_sums(part)\n",
        "",
        SCHEDULES,
    ),
    Mutant(
        "an iteration that threads share takes in everything",
        "staged/backends/gpu_family/schedule.py",
        "shareable = iterations_in_pieces(part)",
        "shareable = part",
        SCHEDULES,
    ),
    Mutant(
        "what a thread passes on is lost in the next piece",
        "staged/backends/gpu_family/nest/teams.py",
        'low.code.add(Assign(total.variable, self.totals.open[reduction].variable, "+"))',
        "low.code.add(Assign(total.variable, self.totals.open[reduction].variable))",
        ON_DEVICE,
    ),
    Mutant(
        "the last piece goes beyond the end of a loop",
        "staged/backends/c_family/nest/loops.py",
        'Conditional(Infix("<", after, stop), after, stop)',
        "after",
        ON_DEVICE,
    ),
    Mutant(
        "the totals of a column lack those of half of its warps",
        "staged/backends/cublas_cudnn/reductions.py",
        "for (unsigned int half = blockDim.x / 2; half >= 32; half /= 2)",
        "for (unsigned int half = blockDim.x / 4; half >= 32; half /= 2)",
        ON_DEVICE,
    ),
    Mutant(
        "the total of a block is that of half of its warps",
        "staged/backends/cublas_cudnn/reductions.py",
        "for (int step = warps / 2; step > 0; step /= 2)",
        "for (int step = warps / 4; step > 0; step /= 2)",
        ON_DEVICE,
    ),
    Mutant(
        "a thread begins in the middle of a vector",
        "staged/kernels/schedule.py",
        "width = lanes if any(loop.axis is outermost for loop in loops) else 1",
        "width = 1",
        ("tests/kernels/test_schedule.py::test_pieces_of_a_loop_over_vectors_are_whole_vectors",),
    ),
)
