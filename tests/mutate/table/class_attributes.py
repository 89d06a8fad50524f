"""Planted faults of attributes of classes that change while staging."""

from tests.mutate.mutant import Mutant

MUTATION, TESTS = "staged/frontend/values/mutation.py", "tests/frontend/test_class_attributes.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "attributes of classes change in silence",
        MUTATION,
        "    if isinstance(owner, type):\n        held",
        "    if isinstance(owner, type):\n        return\n        held",
        (TESTS,),
    ),
    Mutant(
        "what a function puts into a class for the first time stays there",
        MUTATION,
        "                delattr(owner, name)\n\n        text",
        "                pass\n\n        text",
        (TESTS,),
    ),
)
