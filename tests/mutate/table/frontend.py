"""Faults planted in the front end."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

_ATTEMPTS = "tests/frontend/test_attempts.py"
_COPIES = "tests/frontend/test_copies.py"
_DYNAMIC = "tests/frontend/test_dynamic_attributes.py"
_EFFECTS = "tests/frontend/test_effects.py"
_LOOP_NAMES = "tests/frontend/test_names_of_loops.py"
_OBJECTS = "tests/frontend/test_objects.py"
_SOURCES = "tests/frontend/test_sources.py"
_TRACEBACKS = "tests/errors/test_tracebacks.py"
_TRY = "tests/frontend/test_try.py"
_ENDS = "tests/frontend/test_math.py::test_values_at_the_ends_of_the_numbers"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a staged number is a key of its own",
        "ops.array:StagedArray.__hash__",
        'self._refuse("hash", HASH_HINT)',
        "return id(self)",
        ("tests/frontend/test_boolean.py",),
    ),
    Mutant(
        "two equal lists of a function are one",
        "frontend.values.join:is_one",
        "same_tree(a, b) and all(x is y for x, y in zip(trees.mutable_nodes(a), trees.mutable_nodes(b), strict=True))",
        "same_tree(a, b)",
        (_OBJECTS,),
    ),
    Mutant(
        "a copy of a dtype is another object",
        "ir.types:DType.__reduce__",
        '"bool_" if self.kind == "b" else self.name',
        "DType, (self.name, self.kind, self.size, self.c_name)",
        (_COPIES,),
    ),
    Mutant(
        "a copy of a Variable shares its elements",
        "frontend.values.variable:Variable.__copy__",
        "type(self)(self.value, name=self._name)",
        "self",
        (_COPIES,),
    ),
    Mutant(
        "a list that only a loop binds cannot be read after it",
        "frontend.exits.targets:_can_be_late",
        "not any(dims_of(leaf.type) for leaf in leaves if isinstance(leaf, StagedArray))",
        "not mutable_nodes(value) and not any(dims_of(leaf.type) for leaf in leaves if isinstance(leaf, StagedArray))",
        (_LOOP_NAMES,),
    ),
    Mutant(
        "a long sum is deeper than Python's limit of recursion",
        "depth:_enter",
        "max(_before, _limit())",
        "_before",
        ("tests/frontend/test_depth.py::test_deep_program_is_traced",),
    ),
    Mutant(
        "the limit of recursion is put back while another thread still stages",
        "depth:_leave",
        "_open == 0",
        "_open >= 0",
        ("tests/frontend/test_depth.py::test_limit_of_recursion_is_put_back",),
    ),
    Mutant(
        "a call with effects runs once, while staging",
        "frontend.calls.foreign:check_call",
        "hint is not _MISSING",
        "False",
        (_EFFECTS,),
    ),
    Mutant(
        "an unknown call in a loop of the program runs once, while staging",
        "frontend.calls.foreign:check_call",
        "if trace.is_staged_control: ...",
        "if False: ...",
        (_EFFECTS,),
    ),
    Mutant(
        "a deque, or an array changed by NumPy, is not logged",
        "frontend.calls.call:_check_foreign",
        "changed is not None",
        "changed is not None and isinstance(changed, list | dict | set)",
        (_EFFECTS,),
    ),
    Mutant(
        "what a context manager of the user's prints is printed while staging",
        "frontend.constructs.with_:context",
        "_Converted(manager)",
        "manager",
        (_EFFECTS,),
    ),
    Mutant(
        "a division of floats is not refused under a handler of ZeroDivisionError",
        "frontend.constructs.try_:_raises",
        "() if second else (ZeroDivisionError,)",
        "()",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "`math.log(-1.0)` is not refused under a handler of ValueError",
        "frontend.constructs.math_:note_raiser",
        "trace.of(Handlers).depth",
        "not trace.try_depth",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "`except Exception` takes a refusal for what the program does",
        "frontend.constructs.try_:passes_on",
        "all(kind in (Exception, BaseException) for kind in kinds if isinstance(error, kind))",
        "False",
        ("tests/frontend/test_try.py",),
    ),
    Mutant(
        "a traceback shows the frames between the caller and the user's line",
        "tracebacks:_users_part",
        "not after_ours",
        "True",
        (_TRACEBACKS,),
    ),
    Mutant(
        "a traceback shows the names of generated functions",
        "frontend.calls.convert:_named_as_by_user",
        "code.replace(co_consts=tuple(map(named, code.co_consts)), co_name=name, co_qualname=qualname)",
        "code.replace(co_consts=tuple(map(named, code.co_consts)), co_name=name)",
        (_TRACEBACKS,),
    ),
    Mutant(
        "an error cites the file of a notebook's cell",
        "source:display_path",
        "cell is not None",
        "False",
        (_TRACEBACKS,),
    ),
    Mutant(
        "the frames of a fault of ours are cut out",
        "tracebacks:_is_of_user",
        "not _last_file(error.__traceback__).startswith(_INNER)",
        "True",
        (_TRACEBACKS,),
    ),
    Mutant(
        "a file that was saved anew is staged as it is now",
        "frontend.syntax.sources:text_of",
        "next((text for text in reversed(texts) if _made(text, code)), texts[0])",
        "texts[-1]",
        (_SOURCES,),
    ),
    Mutant(
        "packages of `pip install --target` are converted as the user's functions",
        "source:_library_folders",
        'folder and glob.glob(os.path.join(folder, "*.dist-info"))',
        "False",
        ("tests/frontend/test_sources.py", "-k", "pip_target"),
    ),
    Mutant(
        "the text of a recursive program has its caller's line",
        "source:here",
        "kind == _MAY_BE_ROOT and id(code) in _roots",
        "False",
        (f"{_SOURCES}::test_text_of_a_recursive_program_does_not_depend_on_who_stages_it",),
    ),
    Mutant(
        "a hint names no argument",
        "ops.array:static_hint",
        "found in arguments",
        "False",
        ("tests/errors/test_hints.py",),
    ),
    Mutant(
        "a `return` is cited by the line of its function",
        "frontend.exits.statements:returned",
        'Signal("return", value, _here())',
        'Signal("return", value)',
        ("tests/backends/c_family/test_positions.py",),
    ),
    Mutant(
        "`np.asarray` of an array is a copy of it",
        "frontend.constructs.builtins_:asarray_",
        "np.asarray(value, dtype, *args, **options)",
        "np.array(value, dtype, *args, **options)",
        ("tests/frontend/test_builtins.py::test_asarray_of_an_array_of_numpy_is_that_array",),
    ),
    Mutant(
        "an endless recursion of the user's kills the process",
        "depth:_limit",
        "max(1000, min(_MOST, size // _BYTES_PER_CALL))",
        "size // 400",
        ("tests/frontend/test_depth.py::test_endless_recursion_through_c_ends_before_the_stack_does",),
    ),
    Mutant(
        "a rule of a derivative raises what a handler around it waits for",
        "frontend.constructs.try_:unheard",
        "_waits.set(())",
        "_waits.set(_waits.get())",
        (_TRY,),
    ),
    Mutant(
        "eager mode raises for a handler of another error",
        "frontend.constructs.try_:is_waited_for",
        "any(issubclass(error, guard.kinds()) for guard in _waits.get() for error in errors)",
        "bool(_waits.get())",
        (_TRY,),
    ),
    Mutant(
        "a power that Python refuses is an infinity in eager mode, in a `try` that waits for the error",
        "eager_mode:_raised_by_python",
        "primitive is not prims.POW or not np.isinf(result)",
        "True",
        (_TRY,),
    ),
    Mutant(
        "`except Exception` swallows a refusal of eager mode",
        "frontend.constructs.try_:passes_on",
        "context_or_none()",
        "current_trace()",
        (_TRY,),
    ),
    Mutant(
        "`math.asinh` of a large number squares it",
        "frontend.constructs.math_:_LARGE",
        "_LARGE = 1e9",
        "_LARGE = math.inf",
        (_ENDS,),
    ),
    Mutant(
        "`math.hypot` squares large numbers as they are",
        "frontend.constructs.math_:_hypot",
        "(1e150, 1e-140, (-600, 600))",
        "(math.inf, 0.0, (-600, 600))",
        (_ENDS,),
    ),
    Mutant(
        "`math.fsum` adds as `sum` does",
        "frontend.constructs.math_:_fsum",
        "total + lost",
        "total",
        (_ENDS,),
    ),
    Mutant(
        "`math.ldexp` takes a power that is no number of the dtype",
        "frontend.constructs.math_:_ldexp",
        "step = 100 if isinstance(x, Array) and x.dtype == f32 else 1000",
        "step = 100 if isinstance(x, Array) and x.dtype == f32 else 1000\n"
        "step = 10**6",
        (_ENDS,),
    ),
    Mutant(
        "the part of -3.0 behind the point is 0.0",
        "frontend.constructs.math_:_modf",
        "_where(_is_negative(x), -rest, rest)",
        "_where(x < -1e300, -rest, rest)",
        (_ENDS,),
    ),
    Mutant(
        "a logger's adapter is silent where the root logger is",
        "frontend.calls.foreign:_is_silent",
        "logging.Logger | logging.LoggerAdapter",
        "logging.Logger",
        (_EFFECTS,),
    ),
    Mutant(
        "a method written in C is vouched for in vain",
        "frontend.calls.foreign:_identities",
        "(id(owner), function.__name__), id(getattr(type(owner), function.__name__, None))",
        "(id(function),)",
        (_EFFECTS,),
    ),
    Mutant(
        "what a `with` prints at its end is printed while staging, if its class inherits `__enter__`",
        "frontend.constructs.with_:context",
        "any",
        "all",
        (_EFFECTS,),
    ),
    Mutant(
        "the search for an array's name asks objects of the user's for what they hold",
        "frontend.trace.captured:parts",
        "dict.items(value)",
        "value.items()",
        ("tests/frontend/test_captured.py",),
    ),
    Mutant(
        "an object of the user's is asked for what only a Variable has",
        "ops.promote:read",
        'reader = getattr(type(x), "__staged_read__", None)\n'
        "return x if reader is None else reader(x)",
        'reader = getattr(x, "__staged_read__", None)\n'
        "return x if reader is None else reader()",
        (_DYNAMIC,),
    ),
    Mutant(
        "an object that answers to every name is taken for an array",
        "ops.interchange:is_offered",
        'hasattr(cls, "__array__")',
        'hasattr(x, "__array__")',
        (_DYNAMIC,),
    ),
    Mutant(
        "an object that answers to every name is taken for a staged function",
        "frontend.calls.call:call",
        "hasattr(type(function), name)",
        "hasattr(function, name)",
        (_DYNAMIC,),
    ),
    Mutant(
        "what a program prints passes by the file that its caller's `with` redirects it to",
        "frontend.calls.known_calls:KNOWN",
        Text('"contextlib.redirect_stdout contextlib.redirect_stderr contextlib.chdir"'),
        '"contextlib.redirect_stderr contextlib.chdir"',
        (_EFFECTS,),
    ),
    Mutant(
        "a body leaves the path of its loop behind",
        "frontend.trace.attempts:Inside.__exit__",
        "trace.path = self.path",
        "",
        (_ATTEMPTS,),
    ),
    Mutant(
        "what is taken back keeps the state of its constructs",
        "frontend.trace.attempts:Attempt.take_back",
        "trace.of_attempt = self.of_attempt",
        "",
        (_ATTEMPTS,),
    ),
    Mutant(
        "any attempt around is taken back, not the one that was named",
        "frontend.trace.attempts:Attempt.__exit__",
        "type(error) is not Again or error.attempt is not self",
        "type(error) is not Again",
        (_ATTEMPTS,),
    ),
)
