"""Planted faults of what goes between programs and files, Python and C: checkpoints, callbacks, functions in C, data."""

from tests.mutate.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a checkpoint replaces the one before although it is cut off",
        "staged/backends/c_family/support/save.py",
        "if (is_saved && rename(beside, path) != 0) {",
        "if (rename(beside, path) != 0) {",
        ("tests/test_checkpoints.py", "-k", "exported"),
    ),
    Mutant(
        "a checkpoint is sorted by name alone",
        "staged/safetensors.py",
        "key=lambda n: (-ORDER.index(found[n][1]), found[n][0].encode())",
        "key=lambda n: found[n][0].encode()",
        ("tests/test_checkpoints.py", "-k", "every_dtype"),
    ),
    Mutant(
        "the numbers of a checkpoint are f32",
        "staged/checkpoints.py",
        "stack([cast(number, dtype) for number in numbers])",
        "stack(numbers)",
        ("tests/test_checkpoints.py", "-k", "as_it_was"),
    ),
    Mutant(
        "what is printed comes after what a callback prints",
        "staged/backends/c_family/support/callback.py",
        "    st_flush(host);  // what has been printed stands before what the function prints\n",
        "",
        ("tests/test_callbacks.py", "-k", "order"),
    ),
    Mutant(
        "a C function's names are taken by the program",
        "staged/backends/c_family/program.py",
        "        self.names.used |= names_in(own)\n",
        "",
        ("tests/test_custom_ops.py", "-k", "not_taken"),
    ),
    Mutant(
        "a C function is called on arrays of the device",
        "staged/custom_ops.py",
        "            builder.device = CPU\n",
        "            builder.device = before\n",
        ("tests/test_custom_ops.py", "-k", "region"),
    ),
    Mutant(
        "a C function may return anything",
        "staged/backends/c_family/effects.py",
        'Infix("!=", status_name, Literal("0"))',
        'Infix("<", status_name, Literal("0"))',
        ("tests/test_custom_ops.py", "-k", "fails"),
    ),
    Mutant(
        "a callback in eager mode is a constant for derivatives",
        "staged/callbacks.py",
        "if any(type.dtype.is_float for type in types) and any(",
        "if False and any(",
        ("tests/test_callbacks.py", "-k", "derivative_through"),
    ),
)
