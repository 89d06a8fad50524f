"""Planted faults of what a call looks at before it runs the program that it ran before."""

from tests.mutate.mutant import Mutant

GUARDS = "staged/guards/"
FRONTEND = "staged/frontend/"
TABLE = "tests/guards/test_never_stale.py"
CALLS = "tests/guards/test_calls.py"


def stale(words: str) -> tuple[str, ...]:
    """The rows of the table with these words."""
    return (TABLE, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "0.0 is the same as -0.0",
        f"{GUARDS}expected.py",
        'return struct.pack("<d", found) == struct.pack("<d", value)',
        "return found == value",
        stale("number"),
    ),
    Mutant(
        "1 is the same as 1.0",
        f"{GUARDS}expected.py",
        "    if type(found) is not type(value):\n        return False\n",
        "",
        stale("number"),
    ),
    Mutant(
        "a list is what it was while it is the same list",
        f"{GUARDS}check.py",
        'self.expect(f"{local}[{index}]", item)',
        "pass",
        stale("list"),
    ),
    Mutant(
        "a dict is what it was while it is the same dict",
        f"{GUARDS}check.py",
        'self.expect(f"{local}[{self.constant(key)}]", item)',
        "pass",
        stale("dict"),
    ),
    Mutant(
        "the keys of a dict do not count",
        f"{GUARDS}check.py",
        'self.refuse(f"tuple({local}) != {self.constant(keys)}")',
        "pass",
        stale("dict"),
    ),
    Mutant(
        "objects that an array was read from do not count",
        f"{GUARDS}reads.py",
        'self._add("elements", self._owner(array), (array.dtype.str, array.shape, array.tobytes()), None)',
        "pass",
        stale("array"),
    ),
    Mutant(
        "a name that was missing may be there",
        f"{GUARDS}check.py",
        'self.refuse(f"{self.constant(key)} in {owner}")',
        "pass",
        stale("deleted or builtin"),
    ),
    Mutant(
        "an attribute that was missing may be there",
        f"{GUARDS}check.py",
        'self.refuse(f"{self.constant(key)} in {owner}.__dict__")',
        "pass",
        stale("deleted or hasattr or getattr"),
    ),
    Mutant(
        "code of a function may be another",
        f"{FRONTEND}calls/call.py",
        "        trace.reads.function(original, converted.__staged_names__)\n",
        "        pass\n",
        stale("helper or closure or default"),
    ),
    Mutant(
        "a closure may hold something else",
        f"{GUARDS}reads.py",
        'self._add("cell", owner, index, self._expected(found))',
        "pass",
        stale("closure"),
    ),
    Mutant(
        "methods of new objects may be others",
        f"{GUARDS}reads.py",
        "            self.own(cls, name)\n            if isinstance(value, property)",
        "            if not isinstance(value, FunctionType):\n                self.own(cls, name)\n"
        "            if isinstance(value, property)",
        stale("new and objects"),
    ),
    Mutant(
        "an import gives what it gave",
        f"{FRONTEND}constructs/simple_statements.py",
        "    trace.reads.name(sys.modules, found)\n",
        "    pass\n",
        stale("import"),
    ),
    Mutant(
        "what a property reads does not count",
        f"{FRONTEND}constructs/attributes.py",
        "            return call(found.fget, owner)\n",
        "            return getattr(owner, name)\n",
        stale("property"),
    ),
    Mutant(
        "what operators of a class read does not count",
        f"{FRONTEND}values/operands.py",
        "        trace.reads.consumed(value)\n",
        "        pass\n",
        stale("__mul__ or __eq__ or __bool__ or computed"),
    ),
    Mutant(
        "what code that is not converted reads does not count",
        f"{FRONTEND}calls/noted_calls.py",
        "        reads.consumed(value, name)\n",
        "        pass\n",
        stale("sorted or NumPy or whole"),
    ),
    Mutant(
        "files are what they were",
        f"{FRONTEND}calls/noted_calls.py",
        "    return name.startswith(OUTSIDE)\n",
        "    return False\n",
        stale("file or getenv"),
    ),
    Mutant(
        "results that a function keeps are what they were",
        f"{FRONTEND}calls/noted_calls.py",
        "    if isinstance(function, _KEEPS):\n",
        "    if False:\n",
        stale("lru_cache"),
    ),
    Mutant(
        "two objects have one program of a method",
        "staged/dispatch.py",
        'writer.refuse(f"owner is not {writer.object(held(function.__self__))}")',
        "pass",
        (CALLS, "-k", "methods_are_those"),
    ),
    Mutant(
        "one array twice is one argument",
        "staged/dispatch.py",
        'yield name, f"args[{taken}]", value',
        'yield name, "args[0]", value',
        (CALLS, "-k", "one_array_twice"),
    ),
    Mutant(
        "a model that is gone leaves its program",
        "staged/dispatch.py",
        "            found.die()",
        "            pass",
        ("tests/guards/test_lifetimes.py", "-k", "nothing_alive"),
    ),
    Mutant(
        "staged values stay in older objects",
        f"{FRONTEND}values/changes.py",
        "            mutation.undo()\n",
        "            pass\n",
        (CALLS, "-k", "do_not_stay"),
    ),
    Mutant(
        "what a function writes it writes once",
        "staged/dispatch.py",
        "            setattr(owner.reference(), name, value)",
        "            pass",
        (CALLS, "-k", "writes_at_each_call"),
    ),
    Mutant(
        "a counter is read and changed, and replayed",
        f"{GUARDS}reads.py",
        "if read is not None and read.value != wanted:",
        "if False:",
        stale("counter"),
    ),
    Mutant(
        "a call of the short way takes arrays of any shape",
        "staged/runtime/prepared.py",
        " or {value}.shape != {plan.shape!r}",
        "",
        ("tests/runtime/test_prepared.py",),
    ),
)
