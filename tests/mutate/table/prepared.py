"""Planted faults of how a call gives its arrays to C."""

from tests.mutate.mutant import Mutant, Text

OUTER = "tests/guards/test_outer_arrays.py"
PREPARED = "tests/runtime/test_prepared.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "arrays of any dtype are taken as they lie",
        "runtime.guard:_SOURCE",
        Text(" || st_word_at(array, binding->dtype) != wanted->dtype"),
        "",
        (PREPARED, "-k", "does_not"),
    ),
    Mutant(
        "strided arrays are taken as they lie",
        "runtime.guard:_SOURCE",
        Text("if ((flags & wanted->flags) != wanted->flags) {{"),
        "if ((flags & wanted->flags) > wanted->flags) {{",
        (OUTER, "-k", "long_way"),
    ),
    Mutant(
        "things of any type are taken as arrays",
        "runtime.guard:_SOURCE",
        Text("st_word_at(array, binding->type) != binding->ndarray || "),
        "",
        (PREPARED, "-k", "slot"),
    ),
    Mutant(
        "an array that does not fit stops the program",
        "runtime.prepared:prepare",
        'f"        if status == {UNFIT}:"',
        '"        if False:"',
        (OUTER, "-k", "long_way"),
    ),
    Mutant(
        "an array that does not fit takes a slot with it",
        "runtime.prepared:prepare",
        '["    if status:", f"        if status == {UNFIT}:", "            idle.append(slot)", f"            '
        '{away}", "        stopped(slot, status)", "    idle.append(slot)", f"    return {given_back}"]',
        '["    if status:", f"        if status == {UNFIT}:", f"            {away}", "        stopped(slot, '
        'status)", "    idle.append(slot)", f"    return {given_back}"]',
        (PREPARED, "-k", "slot"),
    ),
    Mutant(
        "the layout of arrays is taken for granted",
        "runtime.layout:layout",
        "found if _is_so(found) else None",
        "found",
        ("tests/runtime/test_layout.py",),
    ),
    Mutant(
        "the flags of arrays are taken from where they may not be",
        "runtime.layout:_is_so",
        'ffi.cast("int32_t *", id(array) + at.flags)[0] != array.flags.num',
        "False",
        ("tests/runtime/test_layout.py",),
    ),
    Mutant(
        "a bound method is made by looking at its function anew",
        "call.api:StagedFunction.__get__",
        "type(function) is FunctionType",
        "False",
        ("tests/guards/test_calls.py", "-k", "bound_by_one_copy"),
    ),
)
