"""Faults planted in what values mean: lists of numbers, indices that conditions guard, labels, classes of arrays."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_LISTS = "tests/ops/test_number_lists.py"
_TABLES = "tests/frontend/test_number_tables.py"
_LABELS = "tests/ops/test_labels.py"
_CLASSES = "tests/frontend/test_array_classes.py"
_INTEGERS = "tests/backends/c_family/test_integers_in_kernels.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "u64 beside a signed integer is an i64",
        "staged/ops/dtypes.py",
        "    if unsigned.size == 8:\n        raise DTypeError(",
        "    if unsigned.size == 8:\n        return i64\n        raise DTypeError(",
        ("tests/ops/test_promote.py", "-k", "beside_a_signed"),
    ),
    Mutant(
        "sums of unsigned integers are i64",
        "staged/ops/reduction.py",
        'u64 if own.kind == "u" else i64',
        "i64",
        ("tests/ops/test_cumulative.py", "-k", "dtypes_are_those"),
    ),
    Mutant(
        "an index beyond i64 counts from the end",
        "staged/ops/index.py",
        'METHODS["minimum"](array, limits(i64)[1]) if array.dtype is u64 else array',
        "array",
        (_INTEGERS, "-k", "index_of_u64"),
    ),
    Mutant(
        "u64 prints as an i64",
        "staged/backends/c_family/messages.py",
        "    if dtype is u64:",
        "    if dtype.is_float:",
        (_INTEGERS, "-k", "u64_beyond"),
    ),
    Mutant(
        "arithmetic of narrow integers stays an int",
        "staged/backends/c_family/scalars.py",
        "        return Cast(dtype.c_name, Infix(op, left, y))",
        "        return Infix(op, left, y)",
        (_INTEGERS, "-k", "own_dtype and host"),
    ),
    Mutant(
        "vectors of floats become narrow integers by way of i32",
        "staged/kernels/schedule.py",
        'result.kind == "i" and result.size >= 4',
        'result.kind == "i"',
        (_INTEGERS, "-k", "out_of_range and host"),
    ),
    Mutant(
        "what is inverted stays an int",
        "staged/backends/c_family/scalars.py",
        "(dtype.is_bool or dtype.size >= 4):\n        return narrow(",
        "True:\n        return (lambda x, _: x)(",
        (_INTEGERS, "-k", "own_dtype and host"),
    ),
    Mutant(
        "a list beside f64 goes by way of f32",
        "staged/ops/promote.py",
        "filled(array, dtype) if is_list",
        "cast(filled(array, array.natural), dtype) if is_list",
        (_LISTS,),
    ),
    Mutant(
        "a list with a dtype goes by way of f32",
        "staged/ops/promote.py",
        "return filled(array, dtype or array.natural)",
        "return cast(filled(array, array.natural), dtype or array.natural)",
        (_LISTS,),
    ),
    Mutant(
        "a list of f32 arrays and numbers is f64",
        "staged/ops/promote.py",
        "data = data.astype(result_dtype(types)[0].numpy)",
        "data = data + 0",
        (_LISTS,),
    ),
    Mutant(
        "a list that is written goes by way of f32",
        "staged/ops/written.py",
        "return filled(new, x.dtype)",
        "return cast(filled(new, new.natural), x.dtype)",
        (_LISTS,),
    ),
    Mutant(
        "a loss takes its lists for f32",
        "staged/ops/losses.py",
        "first, second = handle(prediction), handle(target)",
        "first, second = as_array(prediction), as_array(target)",
        (_LISTS,),
    ),
    Mutant(
        "an element of a list at a staged index is f64 beside f32",
        "staged/frontend/values/number_tables.py",
        "key), dtype, weak=True)",
        "key), dtype)",
        (_TABLES,),
    ),
    Mutant(
        "an index that a condition guards is refused while staging",
        "staged/frontend/trace/context.py",
        "        return not self.conditional",
        "        return True",
        (_TABLES,),
    ),
    Mutant(
        "an index that runs in any case is looked at late",
        "staged/frontend/trace/context.py",
        "        return not self.conditional",
        "        return False",
        (_TABLES,),
    ),
    Mutant(
        "an element of an empty array is refused where it is not reached",
        "staged/ops/subscript.py",
        "return any(x.shape[axis] == 0 for axis in plan.staged if axis in plan.dropped)",
        "return False",
        (_TABLES,),
    ),
    Mutant(
        "masks and units are dropped",
        "staged/ops/promote.py",
        "if not isinstance(x, np.ndarray) or type(x) in _PLAIN:",
        "if True:",
        (_CLASSES,),
    ),
    Mutant(
        "a label is checked as an index",
        "staged/kernels/evaluation.py",
        'op.attrs.get("meaning", "index"))\n        checking',
        '"index")\n        checking',
        (_LABELS,),
    ),
    Mutant(
        "a mapped label is checked as an index",
        "staged/batching/indexing.py",
        '_checked(indices, x.shape[axis + 1], op.attrs.get("meaning", "index"))',
        "_checked(indices, x.shape[axis + 1])",
        (_LABELS,),
    ),
    Mutant(
        "a negative label wraps in C",
        "staged/backends/c_family/nest/statements.py",
        'if s.meaning == "index":',
        "if True:",
        (_LABELS,),
    ),
    Mutant(
        "a device calls a label an index",
        "staged/backends/gpu_family/nest/statements.py",
        "failure_of(s.meaning)",
        "failure_of('index' if s.meaning == 'label' else s.meaning)",
        ("tests/backends/cublas_cudnn/test_kernels.py::test_a_label_that_is_no_class_is_named_as_on_the_cpu",),
    ),
    Mutant(
        "where f64 meets f32, the hint is to round",
        "staged/ops/promote.py",
        "narrow.size < wanted.size",
        "narrow.size > wanted.size",
        ("tests/errors/test_wrong_programs.py",),
    ),
    Mutant(
        "an array of one Python number is the number again",
        "staged/passes/simplify.py",
        "found.type.weak != type.weak:",
        "False:",
        ("tests/passes/test_simplify.py", "-k", "python_number"),
    ),
    Mutant(
        "what NumPy cannot read as a dtype ends in NumPy's error",
        "staged/ir/types.py",
        "except (TypeError, ValueError, SyntaxError):",
        "except TypeError:",
        ("tests/ir/test_types.py",),
    ),
    Mutant(
        "the loader's words are looked for after they are lost",
        "staged/runtime/guard.py",
        "    _ = library.dlerror  # found",
        "    # found",
        ("tests/runtime/test_native.py", "-k", "cannot_be_loaded"),
    ),
)
