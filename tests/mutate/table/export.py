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
)
