"""What every op declares of itself, so that passes, kernels and back ends ask the op and keep no lists of names.

    op.declared.expensive                         # whether an element costs more to compute again than to read back
    op.declared.is_move                           # whether it only moves elements
    DECLARED["tanh"].kind                         # 'elementwise'

Each op is declared once, and the declaration enters itself into `DECLARED`: `ops.primitive.Primitive` adds to a
`Declaration` the type rule, the meaning, the derivatives and the samples of an op.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeVar

Kind = Literal[
    "elementwise",  # same shapes in and out
    "broadcast",
    "reduction",
    "view",  # moves or renames elements: reshape, permute, slice
    "index",  # gather, scatter, updates
    "contraction",
    "pooling",
    "random",  # each element is drawn by its position
    "shuffle",
    "source",  # elements made from nothing: constants, iota
    "size",  # the extent of a symbolic dimension
    "launch",  # a kernel of the user's
    "composite",  # a function of primitives that is one op until fusion
    "structured",  # not a primitive: control flow, calls, frames, sequences, effects
]

Elements = Literal["computed", "viewed", "moved", "gathered", "updated"]
"""Where the elements of the first result come from.

- computed: from the elements of the operands, or from none;
- viewed: they are elements of the first operand, whose memory can be looked at in place;
- moved: they are elements of the first operand at other places, maybe repeated, maybe with a number around them;
- gathered: they are elements of the first operand, at indices that the second one holds;
- updated: they are the first operand's, but for a part that the op changes: in place if the operand is unused elsewhere.
"""

VectorForm = Literal["any", "floats", "never"]
"""Of which dtypes a loop over vectors may compute the op."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Declaration:
    """One op of the language: its name and its traits. A trait that is left out is the safe answer."""

    name: str
    kind: Kind
    elements: Elements = "computed"
    expensive: bool = False
    """Whether an element costs more to compute again than to read back from memory."""
    harmless: bool = False
    """Whether it may run on zeros where its branch was not taken.

    Such an op cannot fail, and neither it nor its derivatives make an infinity or NaN of finite operands.
    """
    vector: VectorForm = "any"
    combine: str = ""
    """Of a reduction: the elementwise op that makes one result of two partial ones."""
    named_after_operand: bool = False
    """Whether generated text calls an unnamed result after the first operand, of which it is a part or another form."""

    @property
    def is_view(self) -> bool:
        return self.elements == "viewed"

    @property
    def is_move(self) -> bool:
        """Whether each element of the result is one of the first operand, at a place that no data decides."""
        return self.elements in ("viewed", "moved")

    @property
    def changes_first(self) -> bool:
        return self.elements == "updated"


DECLARED: dict[str, Declaration] = {}
"""Every op by name, in order of declaration."""

D = TypeVar("D", bound=Declaration)


def declare(declaration: D) -> D:
    """Enter a declaration into `DECLARED`."""
    assert declaration.name not in DECLARED, f"op {declaration.name} is declared twice"
    DECLARED[declaration.name] = declaration
    return declaration


UNDECLARED = Declaration(name="", kind="structured")
"""The traits of an op that no declaration names: the safe answers."""
