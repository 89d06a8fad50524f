"""The placement of declarations of a user's kernel: in the innermost body around all uses.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from staged.ir.thread_kernel import Assign, For, Local, Statement, bodies_of, nodes_of, walk_statements


@dataclass
class Uses:
    """The uses of a variable: the paths of its statements (body, statement, body, ...),
    and the number of assignments."""

    paths: list[tuple[int, ...]] = field(default_factory=list)
    assigned: int = 0
    read: bool = False

    @property
    def home(self) -> tuple[int, ...]:
        """The innermost body around all uses, as a path."""
        first, last = min(self.paths), max(self.paths)
        common = 0
        while common < min(len(first), len(last)) and first[common] == last[common]:
            common += 1
        # A body's path has an even length: statement, body, statement, body, ...
        return first[: min(common, len(first) - 1) // 2 * 2]


def variable_uses(body: Sequence[Statement]) -> dict[str, Uses]:
    """The uses of each variable of a kernel, except those that loops declare."""
    counters = {each.target.name for each in walk_statements(tuple(body)) if isinstance(each, For) and each.owns}
    uses: dict[str, Uses] = {}
    _find_uses(body, (), counters, uses)
    return uses


def _find_uses(
    body: Sequence[Statement], path: tuple[int, ...], counters: Collection[str], uses: dict[str, Uses]
) -> None:
    for number, statement in enumerate(body):
        here = (*path, number)
        for node in nodes_of(statement):
            if isinstance(node, Local) and node.name not in counters:
                uses.setdefault(node.name, Uses()).paths.append(here)
        if isinstance(statement, Assign | For) and statement.target.name not in counters:
            uses[statement.target.name].assigned += 1
        for name in _read_in(statement):
            if name not in counters:
                uses[name].read = True
        for inner, inside in enumerate(bodies_of(statement)):
            _find_uses(inside, (*here, inner), counters, uses)


def _read_in(statement: Statement) -> list[str]:
    """The variables that a statement reads, not its bodies."""
    nodes = list(nodes_of(statement))
    if isinstance(statement, Assign | For):
        nodes = nodes[1:]  # the target
    return [node.name for node in nodes if isinstance(node, Local)]
