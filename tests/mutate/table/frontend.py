"""Faults planted in the front end."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_COPIES = "tests/frontend/test_copies.py"
_DYNAMIC = "tests/frontend/test_dynamic_attributes.py"
_EFFECTS = "tests/frontend/test_effects.py"
_LOOP_NAMES = "tests/frontend/test_names_of_loops.py"
_SOURCES = "tests/frontend/test_sources.py"
_TRACEBACKS = "tests/errors/test_tracebacks.py"
_TRY = "tests/frontend/test_try.py"
_ENDS = "tests/frontend/test_math.py::test_values_at_the_ends_of_the_numbers"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a copy of a dtype is another object",
        "staged/ir/types.py",
        'return "bool_" if self.kind == "b" else self.name',
        "return DType, (self.name, self.kind, self.size, self.c_name)",
        (_COPIES,),
    ),
    Mutant(
        "a copy of a Variable shares its elements",
        "staged/frontend/variable.py",
        "return type(self)(self.value, name=self._name)\n\n    def __deepcopy__",
        "return self\n\n    def __deepcopy__",
        (_COPIES,),
    ),
    Mutant(
        "a list that only a loop binds cannot be read after it",
        "staged/frontend/targets.py",
        "return not any(dims_of(leaf.type)",
        "return not mutable_nodes(value) and not any(dims_of(leaf.type)",
        (_LOOP_NAMES,),
    ),
    Mutant(
        "a long sum is deeper than Python's limit of recursion",
        "staged/depth.py",
        "sys.setrecursionlimit(max(_before, _limit()))",
        "sys.setrecursionlimit(_before)",
        ("tests/frontend/test_depth.py::test_deep_program_is_traced",),
    ),
    Mutant(
        "the limit of recursion is put back while another thread still stages",
        "staged/depth.py",
        "            _open -= 1\n            if _open == 0:",
        "            _open -= 1\n            if _open >= 0:",
        ("tests/frontend/test_depth.py::test_limit_of_recursion_is_put_back",),
    ),
    Mutant(
        "a call with effects runs once, while staging",
        "staged/frontend/foreign.py",
        "    if hint is not _MISSING:\n        if shown",
        "    if False:\n        if shown",
        (_EFFECTS,),
    ),
    Mutant(
        "an unknown call in a loop of the program runs once, while staging",
        "staged/frontend/foreign.py",
        "    if trace.is_staged_control:\n        once",
        "    if False:\n        once",
        (_EFFECTS,),
    ),
    Mutant(
        "a deque, or an array changed by NumPy, is not logged",
        "staged/frontend/calls.py",
        "    if changed is not None:\n",
        "    if changed is not None and isinstance(changed, list | dict | set):\n",
        (_EFFECTS,),
    ),
    Mutant(
        "what a context manager of the user's prints is printed while staging",
        "staged/frontend/with_.py",
        "    return _Converted(manager)",
        "    return manager",
        (_EFFECTS,),
    ),
    Mutant(
        "a division of floats is not refused under a handler of ZeroDivisionError",
        "staged/frontend/try_.py",
        "return () if second else (ZeroDivisionError,)",
        "return ()",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "`math.log(-1.0)` is not refused under a handler of ValueError",
        "staged/frontend/math_.py",
        "if errors and trace.try_depth:",
        "if errors and not trace.try_depth:",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "`except Exception` takes a refusal for what the program does",
        "staged/frontend/try_.py",
        "return all(kind in (Exception, BaseException) for kind in kinds if isinstance(error, kind))",
        "return False",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "a traceback shows the frames between the caller and the user's line",
        "staged/tracebacks.py",
        "        if not after_ours:",
        "        if True:",
        (_TRACEBACKS,),
    ),
    Mutant(
        "the frames of a fault of ours are cut out",
        "staged/tracebacks.py",
        "return not _last_file(error.__traceback__).startswith(_INNER)",
        "return True",
        (_TRACEBACKS,),
    ),
    Mutant(
        "a file that was saved anew is staged as it is now",
        "staged/frontend/sources.py",
        "next((text for text in reversed(texts) if _made(text, code)), texts[0])",
        "texts[-1]",
        (_SOURCES,),
    ),
    Mutant(
        "the text of a recursive program has its caller's line",
        "staged/source.py",
        "        if id(frame.f_code) in _roots:",
        "        if False:",
        (f"{_SOURCES}::test_text_of_a_recursive_program_does_not_depend_on_who_stages_it",),
    ),
    Mutant(
        "a hint names no argument",
        "staged/ops/array.py",
        "            if found in arguments:",
        "            if False:",
        ("tests/errors/test_hints.py",),
    ),
    Mutant(
        "a `return` is cited by the line of its function",
        "staged/frontend/exits.py",
        'return Signal("return", value, _here())',
        'return Signal("return", value)',
        ("tests/backends/c_family/test_positions.py",),
    ),
    Mutant(
        "`np.asarray` of an array is a copy of it",
        "staged/frontend/builtins_.py",
        "return np.asarray(value, dtype, *args, **options)",
        "return np.array(value, dtype, *args, **options)",
        ("tests/frontend/test_builtins.py::test_asarray_of_an_array_of_numpy_is_that_array",),
    ),
    Mutant(
        "an endless recursion of the user's kills the process",
        "staged/depth.py",
        "max(1000, min(_MOST, size // _BYTES_PER_CALL))",
        "size // 400",
        ("tests/frontend/test_depth.py::test_endless_recursion_through_c_ends_before_the_stack_does",),
    ),
    Mutant(
        "a rule of a derivative raises what a handler around it waits for",
        "staged/frontend/try_.py",
        "    token = _waits.set(())\n",
        "    token = _waits.set(_waits.get())\n",
        (_TRY,),
    ),
    Mutant(
        "eager mode raises for a handler of another error",
        "staged/frontend/try_.py",
        "any(issubclass(error, guard.kinds()) for guard in _waits.get() for error in errors)",
        "bool(_waits.get())",
        (_TRY,),
    ),
    Mutant(
        "a power that Python refuses is an infinity in eager mode, in a `try` that waits for the error",
        "staged/eager.py",
        'if primitive.name != "pow" or not np.isinf(result):',
        "if True:",
        (_TRY,),
    ),
    Mutant(
        "`except Exception` swallows a refusal of eager mode",
        "staged/frontend/try_.py",
        "if context_or_none() is None or not isinstance(error, StagingError):",
        "if current_trace() is None or not isinstance(error, StagingError):",
        (_TRY,),
    ),
    Mutant(
        "`math.asinh` of a large number squares it",
        "staged/frontend/math_.py",
        "_LARGE = 1e9",
        "_LARGE = math.inf",
        (_ENDS,),
    ),
    Mutant(
        "`math.hypot` squares large numbers as they are",
        "staged/frontend/math_.py",
        "else (1e150, 1e-140, (-600, 600))",
        "else (math.inf, 0.0, (-600, 600))",
        (_ENDS,),
    ),
    Mutant(
        "`math.fsum` adds as `sum` does",
        "staged/frontend/math_.py",
        "total + lost, total)",
        "total, total)",
        (_ENDS,),
    ),
    Mutant(
        "`math.ldexp` takes a power that is no number of the dtype",
        "staged/frontend/math_.py",
        "    for _ in range(3):\n",
        "    step = 10**6\n    for _ in range(3):\n",
        (_ENDS,),
    ),
    Mutant(
        "the part of -3.0 behind the point is 0.0",
        "staged/frontend/math_.py",
        "return _where(_is_negative(x), -rest, rest), METHODS",
        "return _where(x < -1e300, -rest, rest), METHODS",
        (_ENDS,),
    ),
    Mutant(
        "a logger's adapter is silent where the root logger is",
        "staged/frontend/foreign.py",
        "isinstance(owner, logging.Logger | logging.LoggerAdapter)",
        "isinstance(owner, logging.Logger)",
        (_EFFECTS,),
    ),
    Mutant(
        "a method written in C is vouched for in vain",
        "staged/frontend/foreign.py",
        "return (id(owner), function.__name__), id(getattr(type(owner), function.__name__, None))",
        "return (id(function),)",
        (_EFFECTS,),
    ),
    Mutant(
        "what a `with` prints at its end is printed while staging, if its class inherits `__enter__`",
        "staged/frontend/with_.py",
        "if any(isinstance(method, FunctionType)",
        "if all(isinstance(method, FunctionType)",
        (_EFFECTS,),
    ),
    Mutant(
        "the search for an array's name asks objects of the user's for what they hold",
        "staged/frontend/captured.py",
        "return dict.items(value)",
        "return value.items()",
        ("tests/frontend/test_captured.py",),
    ),
    Mutant(
        "an object of the user's is asked for what only a Variable has",
        "staged/ops/promote.py",
        'reader = getattr(type(x), "__staged_read__", None)\n    return x if reader is None else reader(x)',
        'reader = getattr(x, "__staged_read__", None)\n    return x if reader is None else reader()',
        (_DYNAMIC,),
    ),
    Mutant(
        "an object that answers to every name is taken for an array",
        "staged/frontend/arguments.py",
        'hasattr(type(leaf), "__array__")',
        'hasattr(leaf, "__array__")',
        (_DYNAMIC,),
    ),
    Mutant(
        "an object that answers to every name is taken for a staged function",
        "staged/frontend/calls.py",
        'if hasattr(type(function), "__staged_inline__"):',
        'if hasattr(function, "__staged_inline__"):',
        (_DYNAMIC,),
    ),
)
