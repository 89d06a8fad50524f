"""The things that a trace keeps of earlier ones: signatures, positions, keys of programs, tables."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

KEYS, COSTS = "tests/ir/test_keys.py", "tests/frontend/test_costs_of_tracing.py"
CALLS = "tests/guards/test_calls.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "A kept signature does not know how many parameters have defaults",
        "frontend.calls.signatures:_of_code",
        "len(function.__defaults__ or ())",
        "0",
        ("tests/frontend/test_signatures.py",),
    ),
    Mutant(
        "A kept signature gives placeholders for defaults",
        "frontend.calls.signatures:bound_arguments",
        "bound.arguments[name] = own[name]",
        "bound.arguments[name] = value",
        ("tests/frontend/test_signatures.py",),
    ),
    Mutant(
        "Programs of two lines have one key",
        "ir.fingerprint:ProgramKey.__eq__",
        "isinstance(other, ProgramKey) and self._parts == other._parts and self._places == other._places",
        "isinstance(other, ProgramKey) and self._parts == other._parts",
        (KEYS,),
    ),
    Mutant(
        "The key of a program takes 0.0 for -0.0",
        "ir.fingerprint:_Parts.block",
        "repr(value)",
        "value",
        (KEYS,),
    ),
    Mutant(
        "The key of a program leaves the names of values out",
        "ir.fingerprint:_Parts.made",
        "kind.dtype.name, kind.shape, kind.weak, value.hint",
        "kind.dtype.name, kind.shape, kind.weak",
        (KEYS,),
    ),
    Mutant(
        "The key of a program leaves the names of results out",
        "ir.fingerprint:_Parts.function",
        "(function.name, tuple([(v.name, str(v.type), v.outer, str(v.device), v.local) for v in function.variables]), "
        "function.param_paths, function.result_paths, tuple(map(str, function.param_devices)), function.local_params)",
        "(function.name, tuple([(v.name, str(v.type), v.outer, str(v.device), v.local) for v in function.variables]), "
        "function.param_paths, tuple(map(str, function.param_devices)), function.local_params)",
        (KEYS,),
    ),
    Mutant(
        "Columns stay those of lines that were not known",
        "source:keep_lines",
        "_tables.clear()",
        "",
        (COSTS,),
    ),
    Mutant(
        "A method's staged form is that of the class",
        "call.api:StagedFunction.__get__",
        'fields["__wrapped__"], fields["_owner"] = MethodType(function, instance), instance',
        'fields["__wrapped__"] = MethodType(function, instance)',
        (COSTS,),
    ),
    Mutant(
        "The table of dtypes leaves out which operand is a Python number",
        "ops.dtypes:result_dtype",
        "one.dtype.name, one.weak, other.dtype.name, other.weak",
        "one.dtype.name, False, other.dtype.name, False",
        ("tests/ops/test_promote.py",),
    ),
    Mutant(
        "A file that was imported anew is not looked at again",
        "frontend.syntax.sources:_look",
        "_lines.get(file) is lines",
        "file in _lines",
        ("tests/frontend/test_sources.py",),
    ),
    Mutant(
        "What a class that is made while staging inherits is not looked at",
        "frontend.calls.definitions:made_class",
        "trace.reads.methods(base)",
        "pass",
        ("tests/guards/test_never_stale.py",),
    ),
    Mutant(
        "A trace says of the first thing that it read that it has changed",
        "call.guards.check:Writer.difference",
        "line - _HEAD_LINES - 1",
        "0",
        (CALLS, "-k", "says_what_had_changed"),
    ),
    Mutant(
        "A check does not know which read it was that raised",
        "call.guards.check:_TAIL",
        Text("return error.__traceback__.tb_lineno\\n"),
        "return 3\\n",
        (CALLS, "-k", "says_what_had_changed"),
    ),
    Mutant(
        "A trace to a known program gets the form of results of another",
        "call.runnable:Runnable.serves",
        "form == traced.result.spec",
        "True",
        (CALLS, "-k", "form_of_results"),
    ),
    Mutant(
        "A trace to a known program gets the static results of another",
        "call.runnable:Runnable.serves",
        "all(isinstance(leaf, TensorType) for leaf in self.result.leaves)",
        "True",
        (CALLS, "-k", "form_of_results"),
    ),
    Mutant(
        "The search for the user's line begins above it",
        "frontend.trace.context:TraceContext.bind",
        "self.fixed_position or here(2)",
        "self.fixed_position or here(12)",
        (COSTS, "-k", "composite"),
    ),
    Mutant(
        "The key of a program takes True for 1",
        "ir.fingerprint:_INTEGERS",
        "frozenset((int,))",
        "frozenset((int, bool))",
        (KEYS,),
    ),
    Mutant(
        "A pullback gives its body away each time that it is called",
        "frontend.transforms.vjp:_pullback.pullback",
        "quiet.closed()",
        "quiet.closed(moves=True)",
        ("tests/frontend/test_transforms_recorded.py", "-k", "pullback"),
    ),
    Mutant(
        "Code that is not converted is not looked at below lists",
        "call.guards.reads:Reads.all_of",
        "waiting += each",
        "pass",
        ("tests/guards/test_never_stale.py",),
    ),
)
