"""Faults planted in the front end."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_COPIES = "tests/frontend/test_copies.py"
_LOOP_NAMES = "tests/frontend/test_names_of_loops.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a copy of a dtype is another object",
        "staged/ir/types.py",
        'return "bool_" if self.kind == "b" else self.name',
        "return DType, (self.name, self.kind, self.size, self.c_name)",
        (_COPIES,),
    ),
    Mutant(
        "a copy of a Variable shares its elements",
        "staged/frontend/variable.py",
        "return Variable(self.value, self._name)\n\n    def __deepcopy__",
        "return self\n\n    def __deepcopy__",
        (_COPIES,),
    ),
    Mutant(
        "a list that only a loop binds cannot be read after it",
        "staged/frontend/targets.py",
        "return not any(dims_of(leaf.type)",
        "return not mutable_nodes(value) and not any(dims_of(leaf.type)",
        (_LOOP_NAMES,),
    ),
    Mutant(
        "a long sum is deeper than Python's limit of recursion",
        "staged/depth.py",
        "sys.setrecursionlimit(max(_before, _limit()))",
        "sys.setrecursionlimit(_before)",
        ("tests/frontend/test_depth.py::test_deep_program_is_traced",),
    ),
    Mutant(
        "the limit of recursion is put back while another thread still stages",
        "staged/depth.py",
        "            _open -= 1\n            if _open == 0:",
        "            _open -= 1\n            if _open >= 0:",
        ("tests/frontend/test_depth.py::test_limit_of_recursion_is_put_back",),
    ),
)
