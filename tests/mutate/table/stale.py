"""Planted faults of what a trace notes of objects, classes and arrays, and of what a program keeps alive."""

from tests.mutate.mutant import Mutant

READS, CHECK, EXPECTED = "staged/guards/reads.py", "staged/guards/check.py", "staged/guards/expected.py"
ATTRIBUTES, STORES = "staged/frontend/constructs/attributes.py", "staged/frontend/constructs/stores.py"
CALLS, NOTED = "staged/frontend/calls/call.py", "staged/frontend/calls/noted_calls.py"
PROMOTE, OPERANDS = "staged/ops/promote.py", "staged/frontend/values/operands.py"
DISPATCH = "staged/dispatch.py"
ARGUMENTS = ("tests/guards/test_arguments.py", "-m", "not live")
BUILTINS = ("tests/frontend/test_builtins.py", "-k", "frame or method_orders")


def stale(words: str) -> tuple[str, ...]:
    """The rows of the table of reads with these words."""
    return ("tests/guards/test_never_stale.py", "-m", "not slow", "-k", words)


def lifetimes(words: str) -> tuple[str, ...]:
    """The tests of what is kept alive with these words."""
    return ("tests/guards/test_lifetimes.py", "-m", "not slow", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a key of a class of strings is the string",
        CHECK,
        'self.refuse(f"set(map(type, {local})) != {self.constant(_OF_STRINGS)}")',
        "pass",
        ("tests/guards/test_never_stale.py::test_no_call_is_stale[dict keys of a class of strings]",),
    ),
    Mutant(
        "attributes of a class that operators read do not count",
        READS,
        "            self.own(cls, name)\n            if isinstance(value, property)",
        "            if isinstance(value, property)",
        stale("dunder"),
    ),
    Mutant(
        "the bases of a class may change",
        READS,
        'self.attribute(cls, "__mro__", cls.__mro__)',
        "pass",
        stale("bases"),
    ),
    Mutant(
        "classes may be registered with abstract ones",
        READS,
        'self.ambient("which classes are registered with abstract ones", abc.get_cache_token)',
        "pass",
        stale("abc"),
    ),
    Mutant(
        "a metaclass may answer otherwise what is an instance",
        READS,
        "            if not is_library(type(each).__module__):\n                self.methods(each)\n",
        "",
        stale("instancecheck"),
    ),
    Mutant(
        "a container of another class is not looked into",
        READS,
        "        if is_known(container):\n            return  #",
        '        if type(container).__module__ in ("builtins", "collections"):\n            return  #',
        stale("counter"),
    ),
    Mutant(
        "defaults of a key function do not count",
        READS,
        "        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):\n"
        "            self._used(function, value)\n",
        "",
        stale("itertools"),
    ),
    Mutant(
        "attributes of a key function do not count",
        READS,
        "            self.attribute(function, name, value)\n            self._used(function, value)\n",
        "            pass\n",
        stale("itertools"),
    ),
    Mutant(
        "a wrapper of a library has nothing of the user's",
        READS,
        "            if function.__closure__ is None:\n                return  #",
        "            if True:\n                return  #",
        stale("singledispatch"),
    ),
    Mutant(
        "how NumPy prints may change",
        READS,
        'self.ambient("how NumPy prints", _print_options)',
        "pass",
        stale("print or percent"),
    ),
    Mutant(
        "the context of decimal numbers may change",
        READS,
        'self.ambient("the context of decimal numbers", _decimal_context)',
        "pass",
        stale("decimal"),
    ),
    Mutant(
        "flags of an array may change",
        READS,
        'self._add("flags", self._owner(array), None, Same(array.flags.num))',
        "pass",
        stale("flags"),
    ),
    Mutant(
        "the base of an array is one of the trace's",
        READS,
        "            self._met(array.base)\n",
        "            pass\n",
        stale("base"),
    ),
    Mutant(
        "a view of a view is the trace's",
        READS,
        "return whole if is_shared else None",
        "return None",
        stale("view"),
    ),
    Mutant(
        "slices hold only numbers",
        READS,
        "                waiting += [each.start, each.stop, each.step]\n",
        "                pass\n",
        stale("slice"),
    ),
    Mutant(
        "arguments of a partial may change",
        CALLS,
        "                trace.reads.attribute(function, name, getattr(function, name))\n",
        "                pass\n",
        stale("partial"),
    ),
    Mutant(
        "a descriptor's methods may change",
        ATTRIBUTES,
        "        _note_descriptor(trace, found, getter)\n",
        "",
        stale("descriptor"),
    ),
    Mutant(
        "an attribute may come before a descriptor",
        ATTRIBUTES,
        "        if not is_data and not is_made:\n            reads.no_attribute(owner, name)\n        made",
        "        made",
        stale("descriptor"),
    ),
    Mutant(
        "a class may get `__getattribute__`",
        ATTRIBUTES,
        '        reads.attribute(cls, "__getattribute__", cls.__getattribute__)\n',
        "        pass\n",
        stale("getattribute"),
    ),
    Mutant(
        "the class of an object with a property may change",
        ATTRIBUTES,
        "    if not is_made and not isinstance(found, FunctionType):\n        reads.type_of(owner)\n",
        "",
        stale("subclass"),
    ),
    Mutant(
        "`__getattr__` may come later",
        ATTRIBUTES,
        '    trace.reads.of_class(cls, "__getattr__", getter)\n',
        "",
        stale("hasattr or missing"),
    ),
    Mutant(
        "an attribute that a class lacked may be there",
        ATTRIBUTES,
        "            trace.reads.of_class(cls, each, lookup(cls, each))\n        raise",
        "            pass\n        raise",
        stale("hasattr or missing"),
    ),
    Mutant(
        "an attribute that a module lacked may be there",
        ATTRIBUTES,
        "                trace.reads.no_attribute(owner, each)\n",
        "                pass\n",
        stale("hasattr"),
    ),
    Mutant(
        "the name of a Variable may change",
        ATTRIBUTES,
        "            trace.reads.attribute(owner, name, value)  # the name of a Variable\n",
        "            pass\n",
        stale("Variable"),
    ),
    Mutant(
        "an array without axes is a constant",
        PROMOTE,
        "        context.read_now(original)\n        return context.constant(data.item()",
        "        return context.constant(data.item()",
        stale("zero"),
    ),
    Mutant(
        "arrays in a list are constants",
        PROMOTE,
        "    context.read_now(original)\n    return context.constant(data, TensorType(dtype, data.shape))",
        "    return context.constant(data, TensorType(dtype, data.shape))",
        stale("list and arrays"),
    ),
    Mutant(
        "a shape in an array may change",
        NOTED,
        "                    trace.reads.contents(part)\n",
        "                    pass\n",
        stale("shape or tile or roll"),
    ),
    Mutant(
        "bounds of a slice of the program may change",
        STORES,
        "        note_bounds(key)\n    else:\n",
        "        pass\n    else:\n",
        stale("slice"),
    ),
    Mutant(
        "an object is asked for what only our own have",
        ATTRIBUTES,
        'if hasattr(type(found), "__staged_inline__"):',
        'if hasattr(found, "__staged_inline__"):',
        stale("everything"),
    ),
    Mutant(
        "builtins look at the frames of the front end",
        CALLS,
        "    _refuse_frames(function, args, kwargs)\n",
        "",
        BUILTINS,
    ),
    Mutant(
        "a method as a key is a plain function",
        CALLS,
        "    if isinstance(function, MethodType):\n        inner = function.__func__\n        return MethodType(as_converted",
        "    if False:\n        inner = function.__func__\n        return MethodType(as_converted",
        BUILTINS,
    ),
    Mutant(
        "the order of the keys of an argument does not count",
        DISPATCH,
        '    writer.refuse(f"tuple({text}) != {writer.constant(keys)}")\n',
        "",
        ARGUMENTS,
    ),
    Mutant(
        "keys of an argument that are equal are the same",
        DISPATCH,
        '        writer.refuse(f"not all_same({text}, {writer.constant(keys)})")\n',
        "        pass\n",
        ARGUMENTS,
    ),
    Mutant(
        "an array that goes into the program may have another shape",
        "staged/frontend/trace/context.py",
        "            self.reads.array_type(array)\n",
        "",
        stale("lifted or shape"),
    ),
    Mutant(
        "an array of which a view is taken may have another shape",
        OPERANDS,
        "        trace.reads.array_type(array)\n",
        "        pass\n",
        stale("view"),
    ),
    Mutant(
        "hooks of attributes are replayed",
        STORES,
        '            trace.reads.reason(\n                f"the attribute `{name}` of {article(cls.__name__)} is set by',
        '            str(\n                f"the attribute `{name}` of {article(cls.__name__)} is set by',
        ("tests/guards/test_effects.py", "-k", "hook"),
    ),
    Mutant(
        "a class may get hooks of attributes",
        STORES,
        '    trace.reads.of_class(cls, "__setattr__", hook)\n    trace.reads.of_class(cls, name, described)\n',
        "",
        stale("init"),
    ),
    # ---- what is kept alive ----
    Mutant(
        "None is an object that has died",
        CHECK,
        '            self.refuse(f"({name} := w{self._names}()) is None")\n',
        '            self.refuse(f"({name} := w{self._names}()) is w{self._names}")\n',
        lifetimes("dies"),
    ),
    Mutant(
        "classes and functions of the user's stay",
        EXPECTED,
        "if not _STRONG.isdisjoint(type(value).__mro__) or _stays(value):",
        "if isinstance(value, (*_STRONG, FunctionType, type)):",
        lifetimes("alive"),
    ),
    Mutant(
        "a view holds its array",
        DISPATCH,
        '        return f"{writer.constant(partial(_view, weakref.ref(base), view))}()"\n',
        "        return writer.constant(array)\n",
        lifetimes("alive"),
    ),
    Mutant(
        "programs are never unloaded",
        DISPATCH,
        "        self._forget_all_but(key)\n",
        "",
        lifetimes("unloaded"),
    ),
    Mutant(
        "a prepared call holds itself",
        "staged/runtime/prepared.py",
        'names.pop("call")',
        'names["call"]',
        lifetimes("soon"),
    ),
    Mutant(
        "a program holds its short way, which holds the program",
        "staged/program.py",
        "partial(_by_the_long_way, weakref.WeakMethod(self._sorted_out), count)",
        "lambda *values: self._sorted_out(*values[:count])",
        lifetimes("soon"),
    ),
)
