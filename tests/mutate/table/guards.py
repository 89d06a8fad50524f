"""Planted faults of what a call looks at before it runs the program that it ran before."""

from tests.mutate.mutant import Mutant, Text

TABLE = "tests/guards/test_never_stale.py"
CALLS = "tests/guards/test_calls.py"


def stale(words: str) -> tuple[str, ...]:
    """The rows of the table with these words."""
    return (TABLE, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "attributes of a thread's local object are absent",
        "call.guards.held_by:dict_of",
        "isinstance(owner, local)",
        "False",
        ("tests/guards/test_never_stale.py", "-k", "local"),
    ),
    Mutant(
        "0.0 is the same as -0.0",
        "call.guards.expected:same",
        'struct.pack("<d", found) == struct.pack("<d", value)',
        "found == value",
        stale("number"),
    ),
    Mutant(
        "1 is the same as 1.0",
        "call.guards.expected:same",
        "if type(found) is not type(value):\n"
        "    return False",
        "",
        stale("number"),
    ),
    Mutant(
        "a list is what it was while it is the same list",
        "call.guards.check:Writer.expect",
        'self.expect(f"{local}[{index}]", item)',
        "pass",
        stale("list"),
    ),
    Mutant(
        "a dict is what it was while it is the same dict",
        "call.guards.check:Writer.expect",
        'self.expect(f"{local}[{self.constant(key)}]", item)',
        "pass",
        stale("dict"),
    ),
    Mutant(
        "the keys of a dict do not count",
        "call.guards.check:Writer.expect",
        'self.refuse(f"tuple({local}) != {self.constant(keys)}")',
        "pass",
        stale("dict"),
    ),
    Mutant(
        "objects that an array was read from do not count",
        "call.guards.reads:Reads.contents",
        'self._add("elements", self._owner(array), (array.dtype.str, array.shape, array.tobytes()), None)',
        "pass",
        stale("array"),
    ),
    Mutant(
        "a name that was missing may be there",
        "call.guards.check:Writer.guard",
        'self.refuse(f"{self.constant(key)} in {owner}")',
        "pass",
        stale("deleted or builtin"),
    ),
    Mutant(
        "an attribute that was missing may be there",
        "call.guards.check:Writer.guard",
        'self.refuse(f"{self.constant(key)} in {owner}.__dict__")',
        "pass",
        stale("deleted or hasattr or getattr"),
    ),
    Mutant(
        "code of a function may be another",
        "frontend.calls.call:_note_function",
        "trace.reads.function(original, converted.__staged_names__)",
        "pass",
        stale("helper or closure or default"),
    ),
    Mutant(
        "a closure may hold something else",
        "call.guards.reads:Reads.function",
        'self._add("cell", owner, index, self._expected(found))',
        "pass",
        stale("closure"),
    ),
    Mutant(
        "methods of new objects may be others",
        "call.guards.reads:Reads._methods",
        "self.own(cls, name)",
        "if not isinstance(value, FunctionType):\n"
        "    self.own(cls, name)",
        stale("new and objects"),
    ),
    Mutant(
        "an import gives what it gave",
        "frontend.constructs.simple_statements:imported",
        "trace.reads.name(sys.modules, found)",
        "pass",
        stale("import"),
    ),
    Mutant(
        "what a property reads does not count",
        "frontend.constructs.attributes:_of_object",
        "call(found.fget, owner)",
        "getattr(owner, name)",
        stale("property"),
    ),
    Mutant(
        "what operators of a class read does not count",
        "frontend.values.operands:note_operand",
        "trace.reads.consumed(value)",
        "pass",
        stale("__mul__ or __eq__ or __bool__ or computed"),
    ),
    Mutant(
        "what code that is not converted reads does not count",
        "frontend.calls.noted_calls:note_call",
        "reads.consumed(value, name)",
        "pass",
        stale("sorted or NumPy or whole"),
    ),
    Mutant(
        "files are what they were",
        "frontend.calls.noted_calls:_is_outside",
        "name.startswith(OUTSIDE)",
        "False",
        stale("file or getenv"),
    ),
    Mutant(
        "results that a function keeps are what they were",
        "frontend.calls.noted_calls:note_call",
        "isinstance(function, _KEEPS)",
        "False",
        stale("lru_cache"),
    ),
    Mutant(
        "two objects have one program of a method",
        "call.dispatch:entry_for",
        'writer.refuse(f"owner is not {writer.object(held(function.__self__))}")',
        "pass",
        (CALLS, "-k", "methods_are_those"),
    ),
    Mutant(
        "one array twice is one argument",
        "frontend.calls.arguments:passed_arguments",
        'Passed(name, name, f"args[{place}]", value)',
        'Passed(name, name, "args[0]", value)',
        (CALLS, "-k", "one_array_twice"),
    ),
    Mutant(
        "a model that is gone leaves its program",
        "call.dispatch:entry_for.dead",
        "found.die()",
        "pass",
        ("tests/guards/test_lifetimes.py", "-k", "nothing_alive"),
    ),
    Mutant(
        "staged values stay in older objects",
        "frontend.values.changes:settle_changes",
        "mutation.undo()",
        "pass",
        (CALLS, "-k", "do_not_stay"),
    ),
    Mutant(
        "what a function writes it writes once",
        "call.dispatch:Entry.run",
        "setattr(owner.reference(), name, value)",
        "pass",
        (CALLS, "-k", "writes_at_each_call"),
    ),
    Mutant(
        "a counter is read and changed, and replayed",
        "call.guards.reads:Reads.writes_again",
        "read is not None and read.value != wanted",
        "False",
        stale("counter"),
    ),
    Mutant(
        "a call of the short way takes arrays of any shape",
        "runtime.prepared:prepare",
        Text(" or {value}.shape != {shape_of(plan)}"),
        "",
        ("tests/runtime/test_prepared.py",),
    ),
)
