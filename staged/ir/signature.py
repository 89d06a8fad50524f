"""Declarations of structured ops: `structured(...)` makes a `Structured`, whose `faults` the verifier reports.

Operands, parameters and results are written as in Python's signatures: `name`, `name: kind` (a key of `KINDS`) and
`*name` for any number of them. A block is `name(parameters)`. An attribute whose name ends in `?` is optional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from staged.ir.declaration import Declaration, Kind, declare
from staged.ir.nodes import Block, Op
from staged.ir.types import FrameType, SequenceType, TensorType, Type, bool_, i64

PartKind = Literal["tensor", "index", "condition", "sequence", "frame"]
KINDS: dict[PartKind, Callable[[Type], bool]] = {
    "tensor": lambda type: isinstance(type, TensorType),
    "index": lambda type: isinstance(type, TensorType) and not type.shape and type.dtype is i64,
    "condition": lambda type: isinstance(type, TensorType) and not type.shape and type.dtype is bool_,
    "sequence": lambda type: isinstance(type, SequenceType),
    "frame": lambda type: isinstance(type, FrameType),
}
"""Requirements on an operand, a parameter or a result."""


@dataclass(frozen=True)
class Part:
    """One operand, parameter or result of a declaration, or, where it is `many`, any number of them."""

    name: str
    kind: PartKind | None = None
    many: bool = False


@dataclass(frozen=True)
class Parts:
    """A list of parts, as `start: index, *initial`."""

    text: str
    parts: tuple[Part, ...]

    @staticmethod
    def of(text: str) -> Parts:
        parts = []
        for word in filter(None, text.split(", ")):
            name, _, kind = word.partition(": ")
            assert not kind or kind in KINDS, f"`{word}`: nothing is a {kind}"
            parts.append(Part(name.lstrip("*"), kind or None, name.startswith("*")))
        assert all(not part.many for part in parts[:-1]), f"`{text}`: only the last may be any number"
        return Parts(text, tuple(parts))

    def fault(self, types: Sequence[Type]) -> str:
        """The mismatch of these types with the declaration; empty if they fit."""
        fixed = [part for part in self.parts if not part.many]
        if len(types) < len(fixed) or len(types) > len(fixed) and len(fixed) == len(self.parts):
            return f"{len(types)} values for ({self.text})"
        parts = [*fixed, *self.parts[-1:] * (len(types) - len(fixed))]
        for part, type in zip(parts, types, strict=True):
            if part.kind and not KINDS[part.kind](type):
                return f"`{part.name}` is no {part.kind} but {type}"
        return ""


@dataclass(frozen=True)
class BlockPart:
    """A block of a declaration: its name and its parameters."""

    name: str
    params: Parts

    @staticmethod
    def of(text: str) -> BlockPart:
        name, _, params = text.removesuffix(")").partition("(")
        return BlockPart(name, Parts.of(params))


Yields = Callable[[Op, Block], "tuple[Type, ...] | None"]
"""The types that a block of an op must yield; None where the op alone does not say."""


def yield_results(op: Op, block: Block) -> tuple[Type, ...] | None:
    """Of most ops."""
    return tuple(result.type for result in op.results)


def yield_outputs(op: Op, block: Block) -> tuple[Type, ...] | None:
    """For transforms: the results of the transformed code come first."""
    return tuple(result.type for result in op.results[: op.attrs["outputs"]])


def yield_elsewhere(op: Op, block: Block) -> tuple[Type, ...] | None:
    """For loops, whose view knows (`Loop.yields`), and for transforms that change the types of yielded values."""
    return None


@dataclass(frozen=True, eq=False, kw_only=True)
class Structured(Declaration):
    """The declaration of an op that is no primitive."""

    kind: Kind = "structured"
    operands: Parts
    blocks: tuple[BlockPart, ...]
    results: Parts
    attributes: Mapping[str, type | tuple[type, ...]]
    """The type of each attribute; a name that ends in `?` may be missing, and `...` allows any others."""
    effects: frozenset[str]
    """The kinds of effects that it may have."""
    yields: Yields
    doc: str

    def faults(self, op: Op) -> list[str]:
        """The mismatches of `op` with its declaration."""
        found = [
            self.operands.fault([operand.type for operand in op.operands]),
            self.results.fault([result.type for result in op.results]),
            *self._faults_of_blocks(op),
            *self._faults_of_attributes(op),
        ]
        found += [f"its effect `{effect.kind}`" for effect in op.effects if effect.kind not in self.effects]
        return [fault for fault in found if fault]

    def _faults_of_blocks(self, op: Op) -> list[str]:
        if len(op.blocks) != len(self.blocks):
            return [f"{len(op.blocks)} blocks for {len(self.blocks)}"]
        pairs = zip(self.blocks, op.blocks, strict=True)
        return [declared.params.fault([param.type for param in block.params]) for declared, block in pairs]

    def _faults_of_attributes(self, op: Op) -> list[str]:
        found = []
        for key, types in self.attributes.items():
            name = key.removesuffix("?")
            if name in op.attrs:
                if not isinstance(op.attrs[name], types):
                    found.append(f"its attribute `{name}` is {op.attrs[name]!r}")
            elif name == key and key != "...":
                found.append(f"its attribute `{name}` is missing")
        if "..." not in self.attributes:
            known = {key.removesuffix("?") for key in self.attributes}
            found += [f"an attribute `{name}` that it does not have" for name in op.attrs if name not in known]
        return found


STRUCTURED: list[Structured] = []
"""All of them, in the order of `ir/structure.py`."""


def structured(
    name: str,
    *,
    operands: str = "",
    blocks: Sequence[str] = (),
    results: str = "",
    attributes: Mapping[str, type | tuple[type, ...]] | None = None,
    effects: str = "",
    yields: Yields = yield_results,
    doc: str,
    **traits: Any,
) -> Structured:
    """Declare a structured op, and enter it."""
    made = declare(
        Structured(
            name=name,
            operands=Parts.of(operands),
            blocks=tuple(map(BlockPart.of, blocks)),
            results=Parts.of(results),
            attributes=dict(attributes or {}),
            effects=frozenset(effects.split()),
            yields=yields,
            doc=doc,
            **traits,
        )
    )
    STRUCTURED.append(made)
    return made


ANYTHING: dict[str, type | tuple[type, ...]] = {"...": object}
"""Attributes of which an op may have any."""
