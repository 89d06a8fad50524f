"""Declarations: properties of every op, which passes, kernels and back ends query instead of keeping lists of names.

    op.declared is CALL                           # one op
    op.declared in (prims.ADD, prims.SUBTRACT)  # one of several
    op.declared.is_loop                           # a trait
    op.declared.expensive                         # whether an element costs more to compute again than to read back
    case Op(prims.PERMUTE, (Value(producer=Op(prims.PERMUTE, (x,))),)): ...

Each op is declared once: a `Structured` of `ir/structure.py` (control flow, calls, transforms, frames, effects, what
passes make) or a `Primitive` of `ops/`, which adds the type rule, the meaning, the derivatives and the samples. An `Op`
carries its declaration, by which it is known.

An op's name is for people, and for tables in which a name is looked up. It is never compared with a string: a misspelt
string is a comparison that is always false, a misspelt declaration is an AttributeError. Structured ops are constants
of `ir/structure.py`, which the type checker knows. Primitives are attributes of `prims` below, where each appears as it
is declared: so the IR can speak of primitives without importing them, and a new op is entered in no second list.
`tests/ir/test_structure.py` looks up every `prims.<NAME>` of the source, and counts comparisons of names with strings.

Why an op carries its declaration, and not a name to be looked up: identity is the fastest comparison, a query is one
attribute, and tracing makes an op from the declaration that it holds already. An op may be made by name
(`builder.op("add", ...)`); the name is looked up there, and a name that no op has is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Kind = Literal[
    "elementwise",  # same shapes in and out
    "broadcast",
    "reduction",
    "scan",  # each element from those up to it along an axis
    "sort",  # elements in the order of their size
    "view",  # moves or renames elements: reshape, permute, slice
    "index",  # gather, scatter, updates
    "contraction",
    "pooling",
    "random",  # each element is drawn by its position
    "shuffle",
    "source",  # elements made from nothing: constants, iota
    "size",  # the extent of a symbolic dimension
    "launch",  # a kernel of the user's
    "collective",  # exchanged between ranks, or numbered by them
    "composite",  # a function of primitives that is one op until fusion
    "structured",  # not a primitive: control flow, calls, frames, sequences, effects
]

Elements = Literal["computed", "viewed", "moved", "gathered", "updated"]
"""The origin of the elements of the first result.

- computed: from the elements of the operands, or from none;
- viewed: they are elements of the first operand, whose memory can be looked at in place;
- moved: they are elements of the first operand at other places, maybe repeated, maybe with a number around them;
- gathered: they are elements of the first operand, at indices that the second one holds;
- updated: they are the first operand's, but for a part that the op changes: in place if the operand is unused
  elsewhere.
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
    """True if an element costs more to compute again than to read back from memory."""
    harmless: bool = False
    """True if it may run on zeros where its branch was not taken.

    Such an op cannot fail, and neither it nor its derivatives make an infinity or NaN of finite operands.
    """
    by_parts: bool = False
    """True if it takes complex operands: what it does to their real and to their imaginary parts, apart."""
    takes_complex: bool = False
    """Of a composite: True if its body and its rules are right for complex operands, too."""
    vector: VectorForm = "any"
    combine: Declaration | None = None
    """Of a reduction: the elementwise op that combines two elements or two partial results."""
    identity: int | Literal["lowest", "highest"] | None = None
    """Of a reduction: its initial value, a number or the lowest or highest value of the dtype."""
    order: Literal["any", "first of ties"] = "any"
    """Of a reduction: "first of ties" if its result is the position of the first element that `combine` selects."""
    noun: str = ""
    """Of a reduction: the noun for its result in comments of generated text, by default its name."""
    takes_halves: bool = False
    """True if it converts or chooses, so that operands may be f16 and bf16, as they may of ops that move elements."""
    takes_host_numbers: bool = False
    """True if the host knows the numbers among its operands, on a device too: places of a piece, or what the host
    passes by value.
    """
    is_control: bool = False
    """True if its blocks run as part of the block around it, some number of times: `if`, `for`, `while`, `scope`."""
    is_loop: bool = False
    is_transform: bool = False
    """True if autodiff or batching replaces it: its block is the code to transform."""
    is_closed: bool = False
    """True if its blocks use only their parameters and values made inside."""
    is_opaque: bool = False
    """True if the memory plan and emitters see it as one step: a block is its description and no part of the order."""
    is_carrier: bool = False
    """True if it passes values on as they are, without computing with them."""
    is_of_frames: bool = False
    is_of_sequences: bool = False
    named_after_operand: bool = False
    """True if generated text calls an unnamed result after the first operand, of which it is a part or another form."""

    @property
    def is_view(self) -> bool:
        return self.elements == "viewed"

    @property
    def is_move(self) -> bool:
        """Return whether each element of the result is one of the first operand, at a place that no data decides."""
        return self.elements in ("viewed", "moved")

    @property
    def is_of_storage(self) -> bool:
        """Return whether it takes f16 and bf16 as they are. Other primitives compute with their f32 values."""
        return self.takes_halves or self.is_move or self.elements == "gathered"

    @property
    def changes_first(self) -> bool:
        return self.elements == "updated"

    @property
    def is_position(self) -> bool:
        """Return whether the result of a reduction is the position of an element."""
        return self.order == "first of ties"

    @property
    def is_extreme(self) -> bool:
        """Return whether a reduction selects one of its elements, so it requires one and may read it repeatedly."""
        return isinstance(self.identity, str)


DECLARED: dict[str, Declaration] = {}
"""Every op that may be made by its name, in order of declaration."""

D = TypeVar("D", bound=Declaration)


def declare(declaration: D) -> D:
    """Enter a declaration into `DECLARED`."""
    assert declaration.name not in DECLARED, f"op {declaration.name} is declared twice"
    DECLARED[declaration.name] = declaration
    return declaration


def declaration_of(name: str) -> Declaration:
    """The declaration of the op called `name`."""
    assert name in DECLARED, f"no op is called {name!r}"
    return DECLARED[name]


def reductions() -> list[Declaration]:
    """The reductions whose partial results can be combined."""
    return [each for each in DECLARED.values() if each.combine is not None and not each.is_position]


def reduction_by(combine: Declaration) -> Declaration | None:
    """The reduction that combines all elements by the op `combine`, as `sum` does by `add`; None if there is none."""
    return next((each for each in reductions() if each.combine is combine), None)


class _Primitives:
    """`prims.MATMUL` is the declaration of the primitive `matmul`; an AttributeError if none has the name.

    Type checkers read it as Any, since `Primitive` is a class of `ops/`.
    """

    def __getattr__(self, name: str) -> Any:
        found = DECLARED.get(name.lower()) if name == name.upper() else None
        if found is None or found.kind == "structured":
            raise AttributeError(f"no primitive is declared as {name.lower()!r}, for `prims.{name}`")
        setattr(self, name, found)
        return found


prims = _Primitives()
