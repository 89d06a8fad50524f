"""Planted faults of exported folders: arguments, files, names, the cache."""

from tests.mutate.mutant import Mutant

MAIN = "staged/backends/c_family/standalone/main.py"
NPY = "staged/backends/c_family/standalone/npy.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an exported program passes over a flag that is given twice",
        MAIN,
        "if (flags[k].value != NULL) {",
        "if (flags[k].value != NULL && i < 0) {",
        ("tests/backends/test_export.py",),
    ),
    Mutant(
        "an exported program takes an integer that overflows for the largest one",
        MAIN,
        "if (errno == ERANGE || value < least || value > most) {",
        "if (value < least || value > most) {",
        ("tests/backends/test_export.py",),
    ),
    Mutant(
        "an exported program ends well though its output could not be written",
        MAIN,
        "if (fclose(stdout) != 0 || failed) {",
        "if (fclose(stdout) != 0 && failed) {",
        ("tests/backends/test_export.py",),
    ),
    Mutant(
        "a file takes the place of a closed standard output",
        MAIN,
        "number <= STDERR_FILENO);",
        "number < 0);",
        ("tests/backends/test_export.py",),
    ),
    Mutant(
        "the reader of .npy files looks at the character behind a header",
        NPY,
        "if (text->at == text->end || *text->at != c) {",
        "if (*text->at != c) {",
        ("tests/backends/c_family/test_npy.py",),
    ),
    Mutant(
        "the reader of .npy files passes over what stands behind the dictionary",
        NPY,
        "return text->at == text->end && header->has_descr",
        "return header->has_descr",
        ("tests/backends/c_family/test_npy.py",),
    ),
    Mutant(
        "the reader of .npy files takes numbers that Python does not",
        NPY,
        "return text->at > first && (*first != '0' || text->at == first + 1);",
        "return text->at > first;",
        ("tests/backends/c_family/test_npy.py",),
    ),
    Mutant(
        "a full disk below the cache ends a program that could run",
        "staged/runtime/cache.py",
        "                raise\n            note_unwritten(self.root, shortage_of(error))\n            return",
        "                raise\n            raise CacheError(shortage_of(error))\n            return",
        ("tests/runtime/test_cache.py",),
    ),
    Mutant(
        "a compiler that finds no room on the disk is called a bug in staged",
        "staged/runtime/compiler.py",
        "        if shortage:\n",
        "        if shortage and not words:\n",
        ("tests/runtime/test_cache.py",),
    ),
    Mutant(
        "a transposed view is read in the order of the array behind it",
        "staged/frontend/captured.py",
        "tuple(order.index(axis) for axis in range(array.ndim))",
        "tuple(range(array.ndim))",
        ("tests/frontend/test_captured.py",),
    ),
    Mutant(
        "a part of a longer array is taken for the whole",
        "staged/frontend/captured.py",
        " or owner.size != array.size",
        "",
        ("tests/frontend/test_captured.py",),
    ),
    Mutant(
        "a result takes the name of an input, and its file the input's place",
        "staged/frontend/result_names.py",
        "if name in taken else name)",
        "if name in () else name)",
        ("tests/frontend/test_result_names.py",),
    ),
)
