"""Trees of code with other parts. Parts that do not change are shared.

Tested by `tests/code/test_scopes.py` and `tests/code/test_sizes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from staged.code.types import CType


def rebuilt(node: Any, part: Callable[[Any], Any]) -> Any:
    """A tuple, statement or expression in which `part` has changed each part. Other objects stay the same."""
    if isinstance(node, tuple):
        items = tuple(map(part, node))
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not is_dataclass(node) or isinstance(node, type | CType):
        return node
    parts = {each.name: getattr(node, each.name) for each in fields(node)}
    changed = {name: new for name, old in parts.items() if (new := part(old)) is not old}
    return replace(node, **changed) if changed else node
