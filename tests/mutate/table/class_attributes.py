"""Planted faults of attributes of classes that change while staging."""

from tests.mutate.mutant import Mutant

STORES, TESTS = "staged/frontend/stores.py", "tests/frontend/test_class_attributes.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "attributes of classes change in silence",
        STORES,
        "    if isinstance(owner, type):\n        held",
        "    if isinstance(owner, type):\n        return\n        held",
        (TESTS,),
    ),
    Mutant(
        "what a function puts into a class for the first time stays there",
        STORES,
        "                delattr(owner, name)\n\n        text",
        "                pass\n\n        text",
        (TESTS,),
    ),
)
