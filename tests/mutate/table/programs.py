"""Planted faults that programs of users met: numbers of optimisers, options known while staging, words, weights, names."""

from tests.mutate.mutant import Mutant

MUTANTS = (
    Mutant(
        "a rate of another precision makes a parameter's update that precision",
        "staged/optim/optimizer.py",
        "return number if is_weak else st.astype(number, dtype)",
        "return number",
        ("tests/optim/test_options.py::test_numbers_of_another_precision_leave_a_parameter_its_own",),
    ),
    Mutant(
        "the scale of a clipped gradient has the precision of the norm that was asked for",
        "staged/optim/clipping.py",
        "leaf * st.astype(scale, leaf.dtype)",
        "leaf * scale",
        ("tests/optim/test_optimizers.py::test_gradients_in_a_tree_are_clipped_by_their_joint_norm",),
    ),
    Mutant(
        "a staged number becomes an attribute of a composite",
        "staged/ops/composite.py",
        "            check_known(self.name, name, value)\n",
        "            pass\n",
        ("tests/ops/test_arguments.py::test_what_must_be_known_while_staging_is_named_with_the_argument",),
    ),
    Mutant(
        "dropout scales in the precision of its probability",
        "staged/ops/composites.py",
        "cast(1.0 / (1.0 - p), array.dtype) if isinstance(p, Array) else 1.0 / (1.0 - p)",
        "1.0 / (1.0 - p)",
        ("tests/ops/test_arguments.py::test_a_probability_of_another_precision_leaves_the_array_its_own",),
    ),
    Mutant(
        "names that arrays have not are answered nowhere",
        "staged/ops/array.py",
        "more or unknown_array_name(name)",
        "more",
        ("tests/errors/test_hints.py::test_names_of_arrays_are_answered_in_a_program_and_in_plain_python",),
    ),
    Mutant(
        "Python adds its own guess to an answer",
        "staged/other_names.py",
        "        error.name, error.obj = name, None\n",
        "        pass\n",
        ("tests/errors/test_hints.py::test_every_name_of_a_table_is_unknown_there_and_answered",),
    ),
    Mutant(
        "a method of NumPy's that writes in place is called on what is not the caller's",
        "staged/ops/numpy_map.py",
        "if name in _ADDRESSES or name in _IN_PLACE or isinstance",
        "if name in _ADDRESSES or isinstance",
        ("tests/errors/test_hints.py::test_names_of_arrays_are_answered_in_a_program_and_in_plain_python",),
    ),
    Mutant(
        "a refused function of NumPy's is answered alike, whatever it is",
        "staged/ops/numpy_map.py",
        "return known or ",
        "return ",
        ("tests/errors/test_hints.py::test_functions_of_numpys_are_answered_by_what_does_it_here",),
    ),
    Mutant(
        "the copy of a parameter is a Variable",
        "staged/frontend/variable.py",
        "return type(self)(self.value, name=self._name)",
        "return Variable(self.value, name=self._name)",
        ("tests/frontend/test_copies.py::test_copy_of_a_parameter_is_a_parameter",),
    ),
    Mutant(
        "a rate that a staged function has left behind is saved as it is",
        "staged/optim/optimizer.py",
        "isinstance(number, st.Array) and is_plain() else number",
        "isinstance(number, st.Array) and False else number",
        ("tests/optim/test_state.py::test_a_rate_that_a_staged_function_has_left_behind_is_not_saved",),
    ),
    Mutant(
        "what a staged function has left behind is pickled",
        "staged/ops/array.py",
        '        self._refuse("pickle"',
        '        return str, (repr(self),)\n        self._refuse("pickle"',
        ("tests/frontend/test_copies.py::test_a_value_that_a_program_has_left_behind_is_nowhere_taken_for_a_number",),
    ),
    Mutant(
        "a parameter is frozen in silence",
        "staged/nn/parameters.py",
        "        if value is not True:\n            raise",
        "        if value is None:\n            raise",
        ("tests/nn/test_module.py::test_a_parameter_by_torchs_name_is_a_variable",),
    ),
    Mutant(
        "one static name is taken for its letters",
        "staged/api.py",
        "    static = (static,) if isinstance(static, str) else static\n",
        "",
        ("tests/frontend/test_trace.py::test_one_static_name_may_stand_alone",),
    ),
    Mutant(
        "collections of other lengths are told alike",
        "staged/frontend/join.py",
        'return f"{describe(value)} of {len(value)}" if type(value) in _COLLECTIONS else describe(value)',
        "return describe(value)",
        ("tests/errors/test_hints.py::test_trees_that_change_are_told_by_their_lengths",),
    ),
)
