"""The things that a trace keeps of earlier ones: signatures, positions, keys of programs, tables."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

KEYS, COSTS = "tests/ir/test_keys.py", "tests/frontend/test_costs_of_tracing.py"
CALLS = "tests/guards/test_calls.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "A kept signature does not know how many parameters have defaults",
        "staged/frontend/calls/signatures.py",
        "key = id(code), len(function.__defaults__ or ()), keywords",
        "key = id(code), 0, keywords",
        ("tests/frontend/test_signatures.py",),
    ),
    Mutant(
        "A kept signature gives placeholders for defaults",
        "staged/frontend/calls/signatures.py",
        "                bound.arguments[name] = own[name]",
        "                bound.arguments[name] = value",
        ("tests/frontend/test_signatures.py",),
    ),
    Mutant(
        "Programs of two lines have one key",
        "staged/ir/fingerprint.py",
        " and self._places == other._places",
        "",
        (KEYS,),
    ),
    Mutant(
        "The key of a program takes 0.0 for -0.0",
        "staged/ir/fingerprint.py",
        "repr(value) if is_plain else",
        "value if is_plain else",
        (KEYS,),
    ),
    Mutant(
        "The key of a program leaves the names of values out",
        "staged/ir/fingerprint.py",
        "kind.dtype.name, kind.shape, kind.weak, value.hint",
        "kind.dtype.name, kind.shape, kind.weak",
        (KEYS,),
    ),
    Mutant(
        "The key of a program leaves the names of results out",
        "staged/ir/fingerprint.py",
        "            function.result_paths,\n",
        "",
        (KEYS,),
    ),
    Mutant(
        "Columns stay those of lines that were not known",
        "staged/source.py",
        "        _tables.clear()  # columns were counted in other lines\n",
        "",
        (COSTS,),
    ),
    Mutant(
        "A method's staged form is that of the class",
        "staged/api.py",
        'fields["__wrapped__"], fields["_owner"] = MethodType(function, instance), instance',
        'fields["__wrapped__"] = MethodType(function, instance)',
        (COSTS,),
    ),
    Mutant(
        "The table of dtypes leaves out which operand is a Python number",
        "staged/ops/dtypes.py",
        "key = one.dtype.name, one.weak, other.dtype.name, other.weak",
        "key = one.dtype.name, False, other.dtype.name, False",
        ("tests/ops/test_promote.py",),
    ),
    Mutant(
        "A file that was imported anew is not looked at again",
        "staged/frontend/syntax/sources.py",
        "    if lines and _lines.get(file) is lines:",
        "    if lines and file in _lines:",
        ("tests/frontend/test_sources.py",),
    ),
    Mutant(
        "What a class that is made while staging inherits is not looked at",
        "staged/frontend/calls/definitions.py",
        "            trace.reads.methods(base)\n",
        "            pass\n",
        ("tests/guards/test_never_stale.py",),
    ),
    Mutant(
        "A trace says of the first thing that it read that it has changed",
        "staged/guards/check.py",
        "str(self.labels[line - _HEAD_LINES - 1])",
        "str(self.labels[0])",
        (CALLS, "-k", "says_what_had_changed"),
    ),
    Mutant(
        "A check does not know which read it was that raised",
        "staged/guards/check.py",
        "return error.__traceback__.tb_lineno\\n",
        "return 3\\n",
        (CALLS, "-k", "says_what_had_changed"),
    ),
    Mutant(
        "A trace to a known program gets the form of results of another",
        "staged/runnable.py",
        "            and form == traced.result.spec\n",
        "",
        (CALLS, "-k", "form_of_results"),
    ),
    Mutant(
        "A trace to a known program gets the static results of another",
        "staged/runnable.py",
        "            and all(isinstance(leaf, TensorType) for leaf in self.result.leaves)\n",
        "",
        (CALLS, "-k", "form_of_results"),
    ),
    Mutant(
        "The search for the user's line begins above it",
        "staged/frontend/trace/context.py",
        "self.fixed_position or here(2)))",
        "self.fixed_position or here(12)))",
        (COSTS, "-k", "composite"),
    ),
    Mutant(
        "The key of a program takes True for 1",
        "staged/ir/fingerprint.py",
        "_INTEGERS = frozenset((int,))",
        "_INTEGERS = frozenset((int, bool))",
        (KEYS,),
    ),
    Mutant(
        "A pullback gives its body away each time that it is called",
        "staged/frontend/transforms/vjp.py",
        "quiet.closed()",
        "quiet.closed(moves=True)",
        ("tests/frontend/test_transforms_recorded.py", "-k", "pullback"),
    ),
    Mutant(
        "Code that is not converted is not looked at below lists",
        "staged/guards/reads.py",
        "            elif cls is list or cls is tuple:\n                waiting += each\n",
        "            elif cls is list or cls is tuple:\n                pass\n",
        ("tests/guards/test_never_stale.py",),
    ),
)
