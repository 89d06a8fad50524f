"""Planted faults of attributes of classes that change while staging."""

from tests.mutate.mutant import Mutant

MUTATION, TESTS = "staged/frontend/values/mutation.py", "tests/frontend/test_class_attributes.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "attributes of classes change in silence",
        "frontend.values.mutation:record_attribute",
        "held = vars(owner).get(name, _ABSENT)",
        "return\n"
        "held = vars(owner).get(name, _ABSENT)",
        (TESTS,),
    ),
    Mutant(
        "what a function puts into a class for the first time stays there",
        "frontend.values.mutation:record_attribute.undo_of_class",
        "delattr(owner, name)",
        "pass",
        (TESTS,),
    ),
)
