"""Planted faults of how a call gives its arrays to C."""

from tests.mutate.mutant import Mutant

GUARD = "staged/runtime/guard.py"
OUTER = "tests/guards/test_outer_arrays.py"
PREPARED = "tests/runtime/test_prepared.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "arrays of any dtype are taken as they lie",
        GUARD,
        " ||\n            st_word_at(array, binding->dtype) != wanted->dtype) {{",
        ") {{",
        (PREPARED, "-k", "does_not"),
    ),
    Mutant(
        "strided arrays are taken as they lie",
        GUARD,
        "if ((flags & wanted->flags) != wanted->flags) {{",
        "if ((flags & wanted->flags) > wanted->flags) {{",
        (OUTER, "-k", "long_way"),
    ),
    Mutant(
        "things of any type are taken as arrays",
        GUARD,
        "st_word_at(array, binding->type) != binding->ndarray ||\n            ",
        "",
        (PREPARED, "-k", "slot"),
    ),
    Mutant(
        "an array that does not fit stops the program",
        "staged/runtime/prepared.py",
        '        f"        if status == {UNFIT}:",\n',
        '        "        if False:",\n',
        (OUTER, "-k", "long_way"),
    ),
    Mutant(
        "an array that does not fit takes a slot with it",
        "staged/runtime/prepared.py",
        '        f"        if status == {UNFIT}:",\n        "            idle.append(slot)",\n',
        '        f"        if status == {UNFIT}:",\n',
        (PREPARED, "-k", "slot"),
    ),
    Mutant(
        "the layout of arrays is taken for granted",
        "staged/runtime/layout.py",
        "    return found if _is_so(found) else None",
        "    return found",
        ("tests/runtime/test_layout.py",),
    ),
    Mutant(
        "the flags of arrays are taken from where they may not be",
        "staged/runtime/layout.py",
        '            or ffi.cast("int32_t *", id(array) + at.flags)[0] != array.flags.num\n',
        "",
        ("tests/runtime/test_layout.py",),
    ),
    Mutant(
        "a bound method is made by looking at its function anew",
        "staged/api.py",
        "        if type(function) is FunctionType:\n",
        "        if False:\n",
        ("tests/guards/test_calls.py", "-k", "bound_by_one_copy"),
    ),
)
