"""One thing that a trace read from outside, and one reason why no later call can tell whether it is as it was."""

from __future__ import annotations

from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any, Literal

from staged.call.guards.expected import Expected, Object
from staged.errors import article
from staged.source import Position

MISSING = object()


GuardKind = Literal[
    "ambient", "array type", "attribute", "cell", "code", "contents", "elements", "flags", "keys", "method", "name",
    "no attribute", "no name", "no slot", "of class", "own", "type", "unbound cell",
]  # fmt: skip


@dataclass(slots=True, eq=False)  # not frozen: a trace makes hundreds
class Guard:
    """One read: its kind, its owner, the key (such as a name), and the value read (None where the kind implies it)."""

    kind: GuardKind
    owner: Object
    key: Any
    value: Expected | None

    def __str__(self) -> str:
        """A description of the read for messages."""
        owner = self.owner.reference()
        name = (
            f"`{owner.__name__}`"
            if isinstance(owner, type | FunctionType | ModuleType)
            else article(type(owner).__name__)
        )
        match self.kind:
            case "name" | "no name":
                return f"the name `{self.key}`"
            case "cell" | "unbound cell":
                return (
                    f"`{owner.__code__.co_freevars[self.key]}`, which {name} closes over"
                    if owner is not None
                    else "a closure"
                )
            case "code":
                return f"the code of {name}"
            case "type":
                return f"the class of {name}"
            case "ambient":
                return str(self.key)
            case "keys":
                return f"which attributes {name} has"
            case "contents":
                return f"what {name} holds"
            case "array type":
                return "the shape or dtype of an array"
            case "elements":
                return "the elements of an array"
            case "attribute" | "flags" | "method" | "no attribute" | "no slot" | "of class" | "own":
                return f"the attribute `{self.key}` of {name}"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a function is traced at every call, and the user's line."""

    text: str
    where: Position | None

    def __str__(self) -> str:
        place = f" ({self.where.file}:{self.where.line})" if self.where is not None else ""
        return f"{self.text}{place}"
