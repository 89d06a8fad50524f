"""Planted faults of words, empty batches and counters: what a user meets at the edges."""

from tests.mutate.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a negative label of CTC wraps around",
        "staged/backends/c_family/loops.py",
        'if s.meaning == "index":',
        'if s.meaning in ("index", "letter"):',
        ("tests/ops/test_ctc.py", "-k", "out_of_range"),
    ),
    Mutant(
        "in a region a length out of range is called an index",
        "staged/backends/cublas_cudnn/statements.py",
        "{failure_of(s.meaning)}",
        "{failure_of('index')}",
        ("tests/backends/cublas_cudnn/test_ctc.py", "-k", "out_of_range"),
    ),
    Mutant(
        "a window from a negative start may reach the end where elements are mapped",
        "staged/batching/indexing.py",
        "logical_and(start >= -extent, start < -width)",
        "logical_and(start >= -extent, start < 0)",
        ("tests/batching/test_ops.py", "-k", "window_out_of_range"),
    ),
    Mutant(
        "where elements are mapped a window is checked as one index",
        "staged/batching/indexing.py",
        "    if not width:\n        return [_checked(start, extent)]",
        "    if True:\n        return [_checked(start, extent)]",
        ("tests/batching/test_ops.py", "-k", "window_out_of_range"),
    ),
    Mutant(
        "an extreme of no elements of a found size is a value",
        "staged/backends/c_family/support/arithmetic.py",
        "if (extent == 0) {",
        "if (extent < 0) {",
        ("tests/frontend/test_dimensions.py", "-k", "extreme_of_no_elements"),
    ),
    Mutant(
        "a handler of ValueError is passed over by an extreme of no elements",
        "staged/frontend/try_.py",
        'if op.name == "index_check" and "of" in op.attrs:',
        'if op.name == "index_check" and "of" in op.name:',
        ("tests/frontend/test_dimensions.py", "-k", "handler_waits_for"),
    ),
    Mutant(
        "groups of channels of no samples have no size",
        "staged/ops/normalization.py",
        "inside // groups if isinstance(inside, int) else -1",
        "-1",
        ("tests/ops/test_no_samples.py",),
    ),
    Mutant(
        "planes of no samples have no size",
        "staged/ops/pooling.py",
        "return flatten(x, 2)",
        "return reshape(x, (*x.shape[:2], -1))",
        ("tests/ops/test_no_samples.py",),
    ),
    Mutant(
        "steps of no features have no size",
        "staged/ops/recurrent.py",
        "return flatten(x, 0, 1)",
        "return reshape(x, (-1, *x.shape[2:]))",
        ("tests/ops/test_no_samples.py",),
    ),
    Mutant(
        "a merged number lends its line to kernels of other lines",
        "staged/backends/c_family/kernel_text.py",
        "(is_made or not _is_number(inner))",
        "(is_made or inner is not None)",
        ("tests/backends/c_family/test_positions.py", "-k", "equal_numbers"),
    ),
    Mutant(
        "a number repeated is cited on the line of another one",
        "staged/backends/c_family/kernel_text.py",
        'if op.name == "broadcast_to":',
        'if op.name == "repeat":',
        ("tests/backends/c_family/test_positions.py", "-k", "equal_numbers"),
    ),
    Mutant(
        "a number bound on two lines is said to be of the first",
        "staged/frontend/locals.py",
        "return lines[0] if len(lines) == 1 else None",
        "return lines[0] if lines else None",
        ("tests/frontend/test_lines_of_bindings.py",),
    ),
    Mutant(
        "a name whose values do not join is said to be unbound",
        "staged/frontend/targets.py",
        "if reason is not None and reason.error is CarriedValueError:",
        "if reason is not None and reason.error is StagingError:",
        ("tests/frontend/test_lines_of_bindings.py",),
    ),
    Mutant(
        "an array that is read as a row and as a column is two inputs",
        "staged/kernels/groups.py",
        'if op.name == "reshape" and squeezed(op.operands[0]) == squeezed(op.results[0]):',
        'if op.name == "reshape" and op.operands[0].type == op.results[0].type:',
        ("tests/kernels/test_fuse.py", "-k", "two_shapes"),
    ),
)
