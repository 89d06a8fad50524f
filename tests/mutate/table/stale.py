"""Planted faults of what a trace notes of objects, classes and arrays, and of what a program keeps alive."""

from tests.mutate.mutant import Mutant, Text

READS, CHECK, EXPECTED = "staged/call/guards/reads.py", "staged/call/guards/check.py", "staged/call/guards/expected.py"
ATTRIBUTES, STORES = "staged/frontend/constructs/attributes.py", "staged/frontend/constructs/stores.py"
CALLS, NOTED = "staged/frontend/calls/call.py", "staged/frontend/calls/noted_calls.py"
PROMOTE, OPERANDS = "staged/ops/promote.py", "staged/frontend/values/operands.py"
ARGUMENTS = ("tests/guards/test_arguments.py", "-m", "not live")
BUILTINS = ("tests/frontend/test_builtins.py", "-k", "frame or method_orders")


def stale(words: str) -> tuple[str, ...]:
    """The rows of the table of reads with these words."""
    return ("tests/guards/test_never_stale.py", "-k", words)


def lifetimes(words: str) -> tuple[str, ...]:
    """The tests of what is kept alive with these words."""
    return ("tests/guards/test_lifetimes.py", "-m", "not slow", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a key of a class of strings is the string",
        "call.guards.check:Writer.expect",
        'self.refuse(f"set(map(type, {local})) != {self.constant(_OF_STRINGS)}")',
        "pass",
        ("tests/guards/test_never_stale.py::test_no_call_is_stale[dict keys of a class of strings]",),
    ),
    Mutant(
        "attributes of a class that operators read do not count",
        "call.guards.reads:Reads._methods",
        "self.own(cls, name)",
        "",
        stale("dunder"),
    ),
    Mutant(
        "the bases of a class may change",
        "call.guards.reads:Reads.bases",
        'self.attribute(cls, "__mro__", cls.__mro__)',
        "pass",
        stale("bases"),
    ),
    Mutant(
        "classes may be registered with abstract ones",
        "call.guards.reads:Reads.is_instance",
        'self.ambient("which classes are registered with abstract ones", abc.get_cache_token)',
        "pass",
        stale("abc"),
    ),
    Mutant(
        "a metaclass may answer otherwise what is an instance",
        "call.guards.reads:Reads.is_instance",
        "if not is_library(type(each).__module__):\n"
        "    self.methods(each)",
        "",
        stale("instancecheck"),
    ),
    Mutant(
        "a container of another class is not looked into",
        "call.guards.reads:Reads._contents",
        "is_known(container)",
        'type(container).__module__ in ("builtins", "collections")',
        stale("counter"),
    ),
    Mutant(
        "defaults of a key function do not count",
        "call.guards.reads:Reads._mentioned",
        "for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):\n"
        "    self._used(function, value)",
        "",
        stale("itertools"),
    ),
    Mutant(
        "attributes of a key function do not count",
        "call.guards.reads:Reads._mentioned",
        "self.attribute(function, name, value)\n"
        "self._used(function, value)",
        "pass",
        stale("itertools"),
    ),
    Mutant(
        "a wrapper of a library has nothing of the user's",
        "call.guards.reads:Reads._mentioned",
        "function.__closure__ is None",
        "True",
        stale("singledispatch"),
    ),
    Mutant(
        "how NumPy prints may change",
        "call.guards.reads:Reads.printed",
        'self.ambient("how NumPy prints", _print_options)',
        "pass",
        stale("print or percent"),
    ),
    Mutant(
        "the context of decimal numbers may change",
        "call.guards.reads:Reads.all_of",
        'self.ambient("the context of decimal numbers", _decimal_context)',
        "pass",
        stale("decimal"),
    ),
    Mutant(
        "flags of an array may change",
        "call.guards.reads:Reads.flags",
        'self._add("flags", self._owner(array), None, Same(array.flags.num))',
        "pass",
        stale("flags"),
    ),
    Mutant(
        "the base of an array is one of the trace's",
        "call.guards.reads:Reads.base",
        "self._met(array.base)",
        "pass",
        stale("base"),
    ),
    Mutant(
        "a view of a view is the trace's",
        "call.guards.reads:Reads.older",
        "whole if is_shared else None",
        "None",
        stale("view"),
    ),
    Mutant(
        "slices hold only numbers",
        "call.guards.held_by:_REFERENCES",
        'operator.attrgetter("start", "stop", "step")',
        "lambda _: ()",
        stale("slice"),
    ),
    Mutant(
        "arguments of a partial may change",
        "frontend.calls.call:call",
        "trace.reads.attribute(function, name, getattr(function, name))",
        "pass",
        stale("partial"),
    ),
    Mutant(
        "a descriptor's methods may change",
        "frontend.constructs.attributes:_of_object",
        "_note_descriptor(trace, found, getter)",
        "",
        stale("descriptor"),
    ),
    Mutant(
        "an attribute may come before a descriptor",
        "frontend.constructs.attributes:_of_object",
        "if not is_data and (not is_made):\n"
        "    reads.no_attribute(owner, name)",
        "",
        stale("descriptor"),
    ),
    Mutant(
        "a class may get `__getattribute__`",
        "frontend.constructs.attributes:_of_object",
        'reads.attribute(cls, "__getattribute__", cls.__getattribute__)',
        "pass",
        ("tests/guards/test_never_stale.py::test_no_call_is_stale[a class gets __getattribute__ in the end]",),
    ),
    Mutant(
        "the class of an object with a property may change",
        "frontend.constructs.attributes:_of_object",
        "if not is_made and (not isinstance(found, FunctionType)):\n"
        "    reads.type_of(owner)",
        "",
        stale("subclass"),
    ),
    Mutant(
        "`__getattr__` may come later",
        "frontend.constructs.attributes:_missing",
        'trace.reads.of_class(cls, "__getattr__", getter)',
        "",
        stale("hasattr or missing"),
    ),
    Mutant(
        "an attribute that a class lacked may be there",
        "frontend.constructs.attributes:_of_class",
        "trace.reads.of_class(cls, each, lookup(cls, each))",
        "pass",
        stale("hasattr or missing"),
    ),
    Mutant(
        "an attribute that a module lacked may be there",
        "frontend.constructs.attributes:_of_module",
        "trace.reads.no_attribute(owner, each)",
        "pass",
        stale("hasattr"),
    ),
    Mutant(
        "the name of a Variable may change",
        "frontend.constructs.attributes:attribute",
        "trace.reads.attribute(owner, name, value)",
        "pass",
        stale("Variable"),
    ),
    Mutant(
        "an array without axes is a constant",
        "ops.promote:_from_numpy",
        "context.read_now(original)\n"
        "return context.constant(data.item(), TensorType(dtype, ()))",
        "return context.constant(data.item(), TensorType(dtype, ()))",
        stale("zero"),
    ),
    Mutant(
        "arrays in a list are constants",
        "ops.promote:_from_numpy",
        'if isinstance(original, np.ndarray) or hasattr(type(original), "__staged_by_reference__"): ...\n'
        "context.read_now(original)",
        'if isinstance(original, np.ndarray) or hasattr(type(original), "__staged_by_reference__"): ...',
        stale("list and arrays"),
    ),
    Mutant(
        "a shape in an array may change",
        "frontend.calls.noted_calls:note_unlifted",
        "trace.reads.contents(part)",
        "pass",
        stale("shape or tile or roll"),
    ),
    Mutant(
        "bounds of a slice of the program may change",
        "frontend.constructs.stores:get_item",
        "note_bounds(key)",
        "pass",
        stale("slice"),
    ),
    Mutant(
        "an object is asked for what only our own have",
        "frontend.constructs.attributes:_of_object",
        'hasattr(type(found), "__staged_inline__")',
        'hasattr(found, "__staged_inline__")',
        stale("everything"),
    ),
    Mutant(
        "builtins look at the frames of the front end",
        "frontend.calls.call:_call_builtin",
        "_refuse_frames(function, args, kwargs)",
        "",
        BUILTINS,
    ),
    Mutant(
        "a method as a key is a plain function",
        "frontend.calls.call:as_converted",
        "isinstance(function, MethodType)",
        "False",
        BUILTINS,
    ),
    Mutant(
        "the order of the keys of an argument does not count",
        "call.guards.arguments:_write_node",
        'writer.refuse(f"tuple({text}) != {keys}")',
        "",
        ARGUMENTS,
    ),
    Mutant(
        "keys of an argument that are equal are the same",
        "call.guards.arguments:_write_node",
        'writer.refuse(f"not all_same({text}, {keys})")',
        "pass",
        ARGUMENTS,
    ),
    Mutant(
        "an array that goes into the program may have another shape",
        "frontend.trace.context:TraceContext._hidden",
        "self.reads.array_type(array)",
        "",
        stale("lifted or shape"),
    ),
    Mutant(
        "an array of which a view is taken may have another shape",
        "frontend.values.operands:note_view",
        "trace.reads.array_type(array)",
        "pass",
        stale("view"),
    ),
    Mutant(
        "hooks of attributes are replayed",
        "frontend.constructs.stores:_note_hooks",
        "trace.reads.reason",
        "str",
        ("tests/guards/test_effects.py", "-k", "hook"),
    ),
    Mutant(
        "a class may get hooks of attributes",
        "frontend.constructs.stores:_note_hooks",
        'trace.reads.of_class(cls, "__setattr__", hook)\n'
        "trace.reads.of_class(cls, name, described)",
        "",
        stale("init"),
    ),
    # ---- what is kept alive ----
    Mutant(
        "None is an object that has died",
        "call.guards.check:Writer.object",
        'f"({name} := w{self._names}()) is None"',
        'f"({name} := w{self._names}()) is w{self._names}"',
        lifetimes("dies"),
    ),
    Mutant(
        "classes and functions of the user's stay",
        "call.guards.expected:held",
        "not _STRONG.isdisjoint(type(value).__mro__) or _stays(value)",
        "isinstance(value, (*_STRONG, FunctionType, type))",
        lifetimes("alive"),
    ),
    Mutant(
        "a view holds its array",
        "call.guards.arguments:write_captured",
        Text('f"{writer.constant(partial(_view, weakref.ref(base), view))}()"'),
        "writer.constant(array)",
        lifetimes("alive"),
    ),
    Mutant(
        "programs are never unloaded",
        "call.dispatch:Programs.keep",
        "self._forget_all_but(key)",
        "",
        lifetimes("unloaded"),
    ),
    Mutant(
        "a prepared call holds itself",
        "runtime.prepared:prepare",
        'names.pop("call")',
        'names["call"]',
        lifetimes("soon"),
    ),
    Mutant(
        "a program holds its short way, which holds the program",
        "call.program:Program._short",
        "partial(_by_the_long_way, weakref.WeakMethod(self._sorted_out), count)",
        "lambda *values: self._sorted_out(*values[:count])",
        lifetimes("soon"),
    ),
)
