"""The nodes of the tensor IR: values, ops, blocks with explicit ends, functions.

Single assignment: a `Value` is made once, by an op (one of its results) or by a block (a parameter). A nested block may
use every value of the blocks around it; a value made inside a block is not visible outside. Control flow is
structured: `ir/structure.py` declares the operands, blocks, results, attributes and effects of every op that is no
primitive.

A block ends with exactly one `End`:

- `yield`: give values to the op around the block (next carried values of a loop, then the collected ones);
- `break` / `continue`: leave, or go on with, the loop or scope whose `Label` it names, with its carried values;
- `return`: leave the function; `raise`: stop the program (an op before it has said why).

A loop's or scope's `Label` is in `attrs["label"]`. Ops, blocks and values are immutable once built; only names may be
set later (a value's `hint`, a Variable's `name`), and nothing but names in the printed text depends on these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from staged.ir.declaration import Declaration, declaration_of
from staged.ir.options import DEFAULT_OPTIONS, DeviceOptions
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, Type
from staged.source import Position


class Value:
    """One value of the program: a type, who makes it, and the user's name for it."""

    __slots__ = ("type", "producer", "index", "hint")

    def __init__(self, type: Type, hint: str = "", producer: Op | None = None, index: int = 0) -> None:
        self.type: Final = type
        self.hint = hint
        self.producer: Final = producer
        """The op this is a result of; None for a block parameter."""
        self.index: Final = index
        """The number of the result; 0 for a block parameter."""

    @property
    def tensor(self) -> TensorType:
        """The type, where it must be a tensor."""
        assert isinstance(self.type, TensorType), f"expected a tensor, got {self.type}"
        return self.type

    def made_by(self, *declared: Declaration) -> Op | None:
        """The op that makes it, if it is one of these."""
        producer = self.producer
        return producer if producer is not None and producer.declared in declared else None

    def behind(self, *declared: Declaration) -> Value:
        """The value that such ops, one after another, make this one of: the first operand of the first of them."""
        value = self
        while (producer := value.made_by(*declared)) is not None:
            value = producer.operands[0]
        return value

    def __repr__(self) -> str:
        return f"<Value {self.hint or '?'}: {self.type}>"


@dataclass(frozen=True, slots=True, eq=False)
class Label:
    """The identity of a loop or scope that `break` and `continue` name."""

    name: str


@dataclass(slots=True, eq=False)
class VariableRef:
    """An `st.Variable` as the program sees it: a buffer that ops read and write in order.

    `outer` variables keep their buffer between calls and are passed in by the caller; the others live in the program.
    A *family* stands for several: ops read and write its member number `index`.
    """

    name: str
    """For people: set anew where the user names it later, or where another Variable has the same name."""
    type: Final[TensorType]
    outer: Final[bool]
    device: Final[Device] = CPU
    identity: Final[object] = None
    """The Python-side Variable; None for one made by a transform."""
    where: Final[Position | None] = None
    """The user's line that makes it; None for one from outside."""
    purpose: Final[str] = "variable"
    """Its purpose, for people."""
    part: Final[str] = ""
    """Of a generator of random numbers: 'seed' or 'counter', which stay on the host."""
    is_complex: Final[bool] = False
    """True if its floats, along a last axis of 2, are the parts of complex numbers outside of the program."""
    local: Final[bool] = False
    """True if its value may differ between ranks."""
    members: Final[tuple[VariableRef, ...]] = ()
    """Of a family: its Variables, one for each layer of a rolled loop. `type` is then that of each of them."""

    @property
    def sequence(self) -> SequenceType:
        """The type of a read of a whole family."""
        return SequenceType(self.type, len(self.members))


EffectKind = Literal["read", "write", "io", "fail", "comm"]
"""'read' and 'write' of `target`; 'io' (print, files, clocks), 'fail' (may stop the program) and 'comm' (messages
between ranks) are kept in order."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect of an op, besides its results."""

    kind: EffectKind
    target: VariableRef | None = None

    @property
    def is_ordered(self) -> bool:
        """Return whether the op is kept, in order with other such ops."""
        return self.kind in ("io", "fail", "comm")


PURE: tuple[Effect, ...] = ()
IO = (Effect("io"),)
FAIL = (Effect("fail"),)
COMM = (Effect("comm"),)

Attrs = Mapping[str, Any]
_NO_ATTRS: Attrs = MappingProxyType({})


class Op:
    """One operation: declared, typed, placed on a device, with the position of the Python that it comes from.

    Its declaration may be given by name, which must be that of an op.
    """

    __slots__ = ("declared", "name", "operands", "attrs", "blocks", "results", "effects", "device", "where")
    __match_args__ = ("declared", "operands")

    def __init__(
        self,
        declared: Declaration | str,
        operands: Sequence[Value],
        result_types: Sequence[Type],
        *,
        attrs: Attrs | None = None,
        blocks: Sequence[Block] = (),
        effects: tuple[Effect, ...] = PURE,
        device: Device = CPU,
        where: Position | None = None,
    ) -> None:
        # Tracing counts its calls: `isinstance`, which the type checker would understand, is one more for each op.
        found = declaration_of(declared) if type(declared) is str else declared
        self.declared: Final[Declaration] = found  # type: ignore[assignment]
        """The declaration, with everything known about ops of this kind."""
        self.name: Final = self.declared.name
        """For people, and for tables by name; to be compared with nothing (see `ir/declaration.py`)."""
        self.operands: Final = tuple(operands)
        # Those of another op are shared.
        self.attrs: Final[Attrs] = (
            attrs if type(attrs) is MappingProxyType else MappingProxyType(dict(attrs)) if attrs else _NO_ATTRS
        )
        self.blocks: Final = tuple(blocks)
        self.effects: Final = effects
        self.device: Final = device
        self.where: Final = where
        self.results: Final[tuple[Value, ...]] = (
            (Value(result_types[0], "", self),)
            if len(result_types) == 1
            else tuple([Value(type, "", self, index) for index, type in enumerate(result_types)])
        )

    @property
    def result(self) -> Value:
        """The only result."""
        assert len(self.results) == 1, f"{self.name} has {len(self.results)} results"
        return self.results[0]

    def replace(self, **changes: Any) -> Op:
        """A new op with some fields changed. Its results are new values of the same types and hints; with
        `result_types`, without hints.
        """
        fields: dict[str, Any] = {
            "attrs": self.attrs,
            "blocks": self.blocks,
            "effects": self.effects,
            "device": self.device,
            "where": self.where,
        }
        declared = changes.pop("declared", self.declared)
        operands = changes.pop("operands", self.operands)
        types = changes.pop("result_types", None)
        if types is not None:
            return Op(declared, operands, types, **{**fields, **changes})
        op = Op(declared, operands, [result.type for result in self.results], **{**fields, **changes})
        for old, new in zip(self.results, op.results, strict=True):
            new.hint = old.hint
        return op

    def __repr__(self) -> str:
        return f"<Op {self.name} -> {', '.join(str(result.type) for result in self.results)}>"


EndKind = Literal["yield", "break", "continue", "return", "raise"]


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """The end of a block, with the values it passes on."""

    kind: EndKind
    operands: tuple[Value, ...] = ()
    target: Label | None = None
    where: Position | None = None

    @property
    def is_of_loop(self) -> bool:
        """Return whether it ends the body of the loop `target`."""
        return self.kind == "break" or self.kind == "continue"

    @property
    def is_of_function(self) -> bool:
        """Return whether it leaves the whole function."""
        return self.kind == "return" or self.kind == "raise"


class Block:
    """Parameters, ops in order, and one end."""

    __slots__ = ("params", "ops", "end", "_free")

    def __init__(self, params: Sequence[Value], ops: Sequence[Op], end: End) -> None:
        self.params: Final = tuple(params)
        self.ops: Final = tuple(ops)
        self.end: Final = end
        self._free: tuple[Value, ...] | None = None
        """`free_values`, cached: an `elif` chain nests as deep as it is long, and each level needs those below it."""

    @property
    def free(self) -> tuple[Value, ...]:
        """`free_values`."""
        if self._free is None:
            made = set(self.params)
            found: dict[Value, None] = {}
            for op in self.ops:
                for value in op.operands:
                    if value not in made:
                        found[value] = None
                for inner in op.blocks:
                    found.update(dict.fromkeys([value for value in inner.free if value not in made]))
                made.update(op.results)
            found.update(dict.fromkeys([value for value in self.end.operands if value not in made]))
            self._free = tuple(found)
        return self._free


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """The fields of a frame: (name for people, type) each, and their devices; empty if all are on the host."""

    name: str
    fields: tuple[tuple[str, Type], ...]
    devices: tuple[Device, ...] = ()

    def device(self, number: int) -> Device:
        """The device of a field."""
        return self.devices[number] if self.devices else CPU

    @property
    def type(self) -> FrameType:
        return FrameType(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """The facts of a program that is written to a folder."""

    keys: Mapping[VariableRef, str]
    """The names of Variables in the `state_dict` of their modules."""
    result_order: tuple[int, ...]
    """The numbers of the results in the order of their fields: those of a dict in its order."""
    relations: tuple[str, ...] = ()
    """The relations of sizes that the program checks."""
    has_ranks: bool = False
    """True if the program may run on several MPI ranks."""
    ranks: tuple[int, Position | None] | None = None
    """The number of ranks on which sizes depend, and the line that depends on it; None if the program is for any."""


class Function:
    """A staged function: parameters, body, and the Variables it touches, in order of first use.

    `param_paths` and `result_paths` name each leaf for people (`model.0.weight`, `x`, `result[1]`). The program itself
    lists the `functions` that it calls, which list none, and the records of their `frames`. `param_devices` are the
    devices of the arguments; empty if all are on the host. `param_data` has the arrays of parameters that are constants
    of the program (None for the others); empty if there are none. `options` are those of its regions. `complex_edges`
    are the arguments ("input", number) and results ("output", number) whose floats, along a last axis of 2, are the
    parts of complex numbers for the caller. `result_devices` are the devices of the results, set by placement; empty if
    all are on the host. `exported` has what only an exported folder needs; None in a program that Python calls.
    `local_params` are the numbers of parameters that are declared local: they may differ between ranks.
    """

    __slots__ = (
        "name", "block", "variables", "param_paths", "result_paths", "where", "functions", "frames", "param_devices",
        "param_data", "options", "complex_edges", "result_devices", "exported", "local_params",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        block: Block,
        *,
        variables: Sequence[VariableRef] = (),
        param_paths: Sequence[str] = (),
        result_paths: Sequence[str] = (),
        where: Position | None = None,
        functions: Sequence[Function] = (),
        frames: Sequence[FrameRecord] = (),
        param_devices: Sequence[Device] = (),
        param_data: Sequence[Any] = (),
        options: DeviceOptions = DEFAULT_OPTIONS,
        complex_edges: frozenset[tuple[str, int]] = frozenset(),
        result_devices: Sequence[Device] = (),
        exported: Exported | None = None,
        local_params: Sequence[int] = (),
    ) -> None:
        self.name: Final = name
        self.block: Final = block
        self.variables: Final = tuple(variables)
        self.param_paths: Final = tuple(param_paths)
        self.result_paths: Final = tuple(result_paths)
        self.where: Final = where
        self.functions: Final = tuple(functions)
        self.frames: Final = tuple(frames)
        self.param_devices: Final = tuple(param_devices)
        self.param_data: Final = tuple(param_data)
        self.options: Final = options
        self.complex_edges: Final = complex_edges
        self.result_devices: Final = tuple(result_devices)
        self.exported: Final = exported
        self.local_params: Final = tuple(local_params)

    @property
    def params(self) -> tuple[Value, ...]:
        return self.block.params

    def replace(self, **changes: Any) -> Function:
        """The function with some fields changed."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name not in ("name", "block")}
        name, block = changes.pop("name", self.name), changes.pop("block", self.block)
        return Function(name, block, **{**fields, **changes})

    def with_block(self, block: Block) -> Function:
        return self.replace(block=block)


# ---- walking ------------------------------------------------------------------------------------


def walk_ops(block: Block, into_opaque: bool = True) -> Iterator[Op]:
    """Every op of `block` and of the blocks inside it, in program order (an op before its blocks).

    Without `into_opaque` the blocks of opaque ops are left out. Without recursion: an `elif` chain nests as deep as it
    is long, and each level of generators would cost every op below it.
    """
    open_blocks = [iter(block.ops)]
    while open_blocks:
        for op in open_blocks[-1]:
            yield op
            if op.blocks and (into_opaque or not op.declared.is_opaque):
                open_blocks += [iter(inner.ops) for inner in reversed(op.blocks)]
                break
        else:
            open_blocks.pop()


def walk_op(op: Op) -> Iterator[Op]:
    """An op, then every op of its blocks."""
    yield op
    for block in op.blocks:
        yield from walk_ops(block)


def walk_blocks(block: Block, into_opaque: bool = True) -> Iterator[Block]:
    """`block` and every block inside it, a block before those of its ops; without `into_opaque` those of opaque ops are
    left out.
    """
    waiting = [block]
    while waiting:
        block = waiting.pop()
        yield block
        for op in reversed(block.ops):
            if op.blocks and (into_opaque or not op.declared.is_opaque):
                waiting += reversed(op.blocks)


def free_values(block: Block) -> tuple[Value, ...]:
    """The values that `block` uses and does not make, in order of first use."""
    return block.free
