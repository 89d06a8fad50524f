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
)
