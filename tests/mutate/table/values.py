"""Faults planted in what values mean: lists of numbers, indices that conditions guard, labels, classes of arrays."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_LISTS = "tests/ops/test_number_lists.py"
_TABLES = "tests/frontend/test_number_tables.py"
_LABELS = "tests/ops/test_labels.py"
_CLASSES = "tests/frontend/test_array_classes.py"
_INTEGERS = "tests/backends/host/test_integers_in_kernels.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "u64 beside a signed integer is an i64",
        "ops.dtypes:promote_dtypes",
        'raise DTypeError(f"{unsigned} and {signed} have no common integer dtype", where=here(), hint=f"cast one of '
        'them: `st.astype(x, st.i64)` where the numbers are below 2**63, else `st.astype(y, st.{unsigned})` where '
        'none is negative")',
        "return i64\n"
        'raise DTypeError(f"{unsigned} and {signed} have no common integer dtype", where=here(), hint=f"cast one of '
        'them: `st.astype(x, st.i64)` where the numbers are below 2**63, else `st.astype(y, st.{unsigned})` where '
        'none is negative")',
        ("tests/ops/test_promote.py", "-k", "beside_a_signed"),
    ),
    Mutant(
        "the debugger stops inside the library",
        "frontend.constructs.breakpoints:debugger",
        "functools.partial(_stop, frame) if is_pdb else function",
        "functools.partial(call, function)",
        ("tests/eager/test_breakpoints.py",),
    ),
    Mutant(
        "a loop is unrolled without end",
        "frontend.constructs.unrolling:copies",
        "count >= _limit()",
        "count >= 10 * _limit()",
        ("tests/frontend/test_while.py", "-k", "unrolls_warns"),
    ),
    Mutant(
        "the search for a NaN begins with the Variables after it",
        "call.nan_search:first_nan",
        "_restore(before)",
        "pass",
        ("tests/eager/test_nan_search.py", "-k", "begins_with"),
    ),
    Mutant(
        "the last op that is not finite is the first",
        "call.nan_search:NanSearch.note",
        "known[0][1] if known else self.error(node.primitive.name, *wrong)",
        "self.error(node.primitive.name, *wrong)",
        ("tests/eager/test_nan_search.py", "-k", "first_op"),
    ),
    Mutant(
        "an element is of no class of NumPy's",
        "frontend.constructs.builtins_:class_in_python",
        "np.ndarray if value.shape else value.dtype.numpy.type",
        "np.ndarray",
        ("tests/frontend/test_classes.py", "-k", "np or element"),
    ),
    Mutant(
        "a field of `%` keeps its flag of the left",
        "frontend.constructs.percent:_part",
        '"<" if "-" in flags else ">" if width and (is_text or "0" not in flags) else ""',
        '">" if width and (is_text or "0" not in flags) else ""',
        ("tests/frontend/test_percent.py", "-k", "texts_are"),
    ),
    Mutant(
        "a NumPy scalar is as weak as a Python number",
        "ops.promote:is_number",
        "not isinstance(x, np.generic)",
        "True",
        ("tests/ops/test_scalars.py", "-k", "closed_over or derivatives"),
    ),
    Mutant(
        "a NumPy scalar that is an option has a dtype",
        "ops.torch_keywords:takes_torch_keywords.called",
        "type(kwargs[word]) in NUMPY_SCALARS and word in options",
        "False",
        ("tests/ops/test_scalars.py", "-k", "options_that_are"),
    ),
    Mutant(
        "a NumPy scalar as a learning rate has a dtype",
        "optim.optimizer:scalar",
        "number = plain_number(number)",
        "number = number",
        ("tests/ops/test_scalars.py", "-k", "rates_of_another"),
    ),
    Mutant(
        "sums of unsigned integers are i64",
        "ops.reduction:wide",
        'u64 if own.kind == "u" else i64',
        "i64",
        ("tests/ops/test_cumulative.py", "-k", "dtypes_are_those"),
    ),
    Mutant(
        "an index beyond i64 counts from the end",
        "ops.dynamic_slice:as_index",
        'functions.minimum(array, limits(i64)[1]) if array.dtype is u64 else array',
        "array",
        (_INTEGERS, "-k", "index_of_u64"),
    ),
    Mutant(
        "u64 prints as an i64",
        "code.support.printf:printf_format",
        '"llu" if dtype is u64 else "lld" if dtype.is_integer else spec.type',
        '"lld" if dtype.is_integer else spec.type',
        (_INTEGERS, "-k", "u64_beyond"),
    ),
    Mutant(
        "arithmetic of narrow integers stays an int",
        "code.scalars:wrapping",
        "Cast(dtype.c_name, Infix(op, left, y))",
        "Infix(op, left, y)",
        (_INTEGERS, "-k", "own_dtype and host"),
    ),
    Mutant(
        "vectors of floats become narrow integers by way of i32",
        "kernels.schedule:has_vector_form",
        'result.kind == "i" and result.size >= 4',
        'result.kind == "i"',
        (_INTEGERS, "-k", "out_of_range and host"),
    ),
    Mutant(
        "what is inverted stays an int",
        "code.scalars:_integer",
        'if name == "bitwise_invert" and (dtype.is_bool or dtype.size >= 4):\n'
        '    return narrow(Prefix("!" if dtype.is_bool else "~", x), dtype)',
        'if name == "bitwise_invert" and True:\n'
        '    return (lambda x, _: x)(Prefix("!" if dtype.is_bool else "~", x), dtype)',
        (_INTEGERS, "-k", "own_dtype and host"),
    ),
    Mutant(
        "a list beside f64 goes by way of f32",
        "ops.promote:_promoted_handles",
        "filled(array, dtype)",
        "cast(filled(array, array.natural), dtype)",
        (_LISTS,),
    ),
    Mutant(
        "a list with a dtype goes by way of f32",
        "ops.promote:as_array",
        "filled(array, dtype or array.natural)",
        "cast(filled(array, array.natural), dtype or array.natural)",
        (_LISTS,),
    ),
    Mutant(
        "a list of f32 arrays and numbers is f64",
        "ops.promote:_from_list",
        "data.astype(result_dtype(types)[0].numpy)",
        "data + 0",
        (_LISTS,),
    ),
    Mutant(
        "a list that is written goes by way of f32",
        "ops.written:as_written",
        "filled(new, x.dtype)",
        "adopted(filled(new, new.natural), x.dtype)",
        (_LISTS,),
    ),
    Mutant(
        "a loss takes its lists for f32",
        "library.losses.losses:pair_of",
        "handle(prediction), handle(target)",
        "as_array(prediction), as_array(target)",
        (_LISTS,),
    ),
    Mutant(
        "an element of a list at a staged index is f64 beside f32",
        "frontend.values.number_tables:element_of",
        'cast(get_item(as_array(elements, dtype), key), dtype, weak=True)',
        'cast(get_item(as_array(elements, dtype), key), dtype)',
        (_TABLES,),
    ),
    Mutant(
        "an index that a condition guards is refused while staging",
        "frontend.trace.context:TraceContext.is_certain",
        "not self.conditional",
        "True",
        (_TABLES,),
    ),
    Mutant(
        "an index that runs in any case is looked at late",
        "frontend.trace.context:TraceContext.is_certain",
        "not self.conditional",
        "False",
        (_TABLES,),
    ),
    Mutant(
        "an element of an empty array is refused where it is not reached",
        "ops.subscript:_is_of_nothing",
        "any(x.shape[axis] == 0 for axis in plan.staged if axis in plan.dropped)",
        "False",
        (_TABLES,),
    ),
    Mutant(
        "masks and units are dropped",
        "ops.promote:check_class",
        "not isinstance(x, np.ndarray) or type(x) in _PLAIN",
        "True",
        (_CLASSES,),
    ),
    Mutant(
        "a label is checked as an index",
        "kernels.evaluation:Evaluation.eval_gather",
        'op.attrs.get("meaning", "index")',
        '"index"',
        (_LABELS,),
    ),
    Mutant(
        "a mapped label is checked as an index",
        "batching.indexing:gather",
        '_checked(indices, x.shape[axis + 1], op.attrs.get("meaning", "index"))',
        "_checked(indices, x.shape[axis + 1])",
        (_LABELS,),
    ),
    Mutant(
        "a negative label wraps in C",
        "code.support.arithmetic:_check",
        'meaning == "index"',
        "True",
        (_LABELS,),
    ),
    Mutant(
        "a device calls a label an index",
        "backends.gpu.nest.statements:DeviceStatements.check_index",
        "failure_of(s.meaning)",
        "failure_of('index' if s.meaning == 'label' else s.meaning)",
        ("tests/backends/cublas_cudnn/test_kernels.py::test_a_label_that_is_no_class_is_named_as_on_the_cpu",),
    ),
    Mutant(
        "where f64 meets f32, the hint is to round",
        "ops.promote:wider_hint",
        "narrow.size < wanted.size",
        "narrow.size > wanted.size",
        ("tests/errors/test_wrong_programs.py",),
    ),
    Mutant(
        "an array of one Python number is the number again",
        "passes.simplify:Simplifier.as_weak_as",
        "found.type.weak != type.weak",
        "False",
        ("tests/passes/test_simplify.py", "-k", "python_number"),
    ),
    Mutant(
        "what NumPy cannot read as a dtype ends in NumPy's error",
        "ir.types:dtype_of",
        "(TypeError, ValueError, SyntaxError)",
        "TypeError",
        ("tests/ir/test_types.py",),
    ),
    Mutant(
        "the loader's words are looked for after they are lost",
        "runtime.guard:loader",
        "_ = library.dlerror",
        "",
        ("tests/runtime/test_native.py", "-k", "cannot_be_loaded"),
    ),
)
