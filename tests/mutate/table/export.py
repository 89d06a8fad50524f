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
    Mutant(
        "an array that something else holds too becomes a constant of the exported program",
        "staged/frontend/captured.py",
        "sys.getrefcount(known[key]) - 2 > holders[key]",
        "sys.getrefcount(known[key]) - 9 > holders[key]",
        (
            "tests/backends/native/test_export_interface.py::test_arrays_made_in_the_function_are_constants_and_closed_over_ones_are_inputs_by_name",
        ),
    ),
    Mutant(
        "an exported text lets gcc 12 use its vectorisers",
        "staged/backends/c_family/standalone/library.py",
        '#pragma GCC optimize("no-tree-vectorize", "fp-contract=fast")',
        '#pragma GCC optimize("fp-contract=fast")',
        ("tests/backends/native/test_export_interface.py::test_the_text_itself_keeps_gcc_from_its_vectorisers",),
    ),
    Mutant(
        "an exported text takes -ffinite-math-only",
        "staged/backends/c_family/standalone/library.py",
        "(defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)",
        "defined(__FINITE_MATH_ONLY_NOT__)",
        ("tests/backends/native/test_export_interface.py::test_flags_that_change_numbers_are_refused_with_words",),
    ),
    Mutant(
        "working memory of an exported program is that of one variant, smaller than another needs",
        "staged/backends/c_family/export.py",
        "max(each.arena_bytes for each in (artifact, *wide.values()))",
        "min(each.arena_bytes for each in (artifact, *wide.values()))",
        ("tests/backends/test_export.py::test_working_memory_is_enough_for_every_text_that_may_be_chosen",),
    ),
    Mutant(
        "the arena of an exported library is not aligned",
        "staged/backends/c_family/standalone/library.py",
        "(64 - start % 64) % 64;",
        "(16 - start % 16) % 16;",
        ("tests/backends/native/test_export_interface.py::test_the_shared_library_is_called_from_python",),
    ),
    Mutant(
        "the macro of an array's size counts one axis",
        "staged/backends/c_family/interface.py",
        "{math.prod(extents)}",
        "{sum(extents)}",
        ("tests/backends/native/test_export_interface.py::test_parameters_are_a_struct_and_sizes_are_macros",),
    ),
    Mutant(
        "constants in capitals keep their names",
        "staged/backends/c_family/writer.py",
        'return f"{text}_" if text in _RESERVED or has_header_shape(text) else text',
        'return f"{text}_" if text in _RESERVED else text',
        ("tests/backends/c_family/test_names.py::test_the_shape_of_a_header_s_name_is_enough",),
    ),
    Mutant(
        "an exported program may be called as something in its main",
        "staged/backends/c_family/program.py",
        "if self.name in words_of_main():",
        "if self.name in ():",
        ("tests/backends/c_family/test_names.py::test_a_function_with_a_name_of_the_headers_or_of_main_is_exported",),
    ),
    Mutant(
        "an infinity in a large constant array is written as Python does",
        "staged/backends/c_family/constants.py",
        '"-inf": "-INFINITY"',
        '"-Inf": "-INFINITY"',
        ("tests/backends/c_family/test_constants.py",),
    ),
)
