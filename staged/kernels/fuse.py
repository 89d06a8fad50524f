"""Fusion: in every block, tensor ops are grouped into `kernel` ops (one set of loops) and `contraction` ops (a product
or convolution with its epilogue). `groups.py` decides which ops share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from staged.errors import located
from staged.ir.cascade import cascade_sums
from staged.ir.declaration import Declaration, prims
from staged.ir.loops import Local, Nest, dims_in
from staged.ir.machine import Machine
from staged.ir.nodes import PURE, Block, End, Function, Op, Value, free_values
from staged.ir.schedule import Schedule
from staged.ir.sizes import Dim
from staged.ir.structure import CONTRACTION, KERNEL, LIBRARY
from staged.ir.types import CPU, dims_of, i64
from staged.ir.views import Loop
from staged.ir.zeros import is_zeros
from staged.kernels.axes import AxisConflict
from staged.kernels.clone import Clone
from staged.kernels.dimensions import resolve_extents
from staged.kernels.epilogue import lower_epilogue
from staged.kernels.fusion_log import FusionLog
from staged.kernels.groups import Groups, TakesEpilogue, is_view
from staged.kernels.keys import Key, Keys
from staged.kernels.kinds import is_inlined, is_scalar, shape_of
from staged.kernels.lower import lower
from staged.kernels.lower_alone import has_own_kernel
from staged.kernels.naming import Naming
from staged.kernels.products import (
    is_nest,
    may_have_epilogue,
    product_block,
    product_kernel,
    scheduled_product,
    tiles_of,
)
from staged.kernels.schedule import schedule
from staged.kernels.split import split_long_reductions
from staged.kernels.steps import Node, kind_of, root_of_contraction
from staged.kernels.tile import tile_transposes
from staged.ops.primitive import Primitive
from staged.ops.thread_kernel import LAUNCH

T = TypeVar("T")
_ROOM = 85
"""The columns for the names of ops in a comment."""


def fuse(
    function: Function,
    machine: Machine,
    takes_epilogue: TakesEpilogue = lambda op, body: True,
    log: FusionLog | None = None,
) -> Function:
    """`function` with its tensor ops in kernels and contractions, each with its loop nest and schedule.

    `takes_epilogue` limits what joins a contraction: libraries support few epilogues, and other ops fuse into the next
    kernel instead. By default every op of the contraction's shape joins. `log` records the decisions.
    """

    def joins(op: Op, body: Block) -> bool:
        return may_have_epilogue(op, machine) and takes_epilogue(op, body)

    split = resolve_extents(split_long_reductions(function))
    return split.with_block(_BlockFuser(split.block, machine, joins, Keys(), {}, {}, Naming(split), log=log).run())


class _BlockFuser:
    """Writes a block anew, with kernels."""

    def __init__(
        self,
        block: Block,
        machine: Machine,
        takes_epilogue: TakesEpilogue,
        keys: Keys,
        outer: dict[Value, Value],
        sizes: dict[Dim, Value],
        naming: Naming,
        wanted: dict[Block, list[Value]] | None = None,
        log: FusionLog | None = None,
        replaced: Iterable[tuple[Value, Value]] = (),
    ) -> None:
        self.block = block
        self.machine = machine
        self.takes_epilogue = takes_epilogue
        self.values: dict[Value, Value] = dict(outer)
        self.sizes = sizes | {op.attrs["dim"]: op.result for op in block.ops if op.declared is prims.DIM}
        """The sizes of dimensions, here and in the blocks around."""
        self.groups = Groups(block, self.sizes, takes_epilogue, keys)
        self.groups.steps.read_before_replaced(replaced)
        self.keys = keys
        self.naming = naming
        self.log = log
        self.wanted = {} if wanted is None else wanted
        """`_wanted_in_memory` of blocks."""
        self.out: list[Op] = []

    def run(self) -> Block:
        for node in self.groups.steps.in_order():
            self.emit(node)
        end = self.block.end
        operands = [self.value(operand) for operand in end.operands]
        return Block(self.block.params, self.out, End(end.kind, tuple(operands), end.target, end.where))

    def emit(self, node: Node) -> None:
        if node.kind == "plain":
            self.emit_plain(node.ops[0])
        elif node.kind == "contraction":
            self.emit_contraction(node)
        else:
            results = self.groups.leaving(node.ops)
            if results or any(op.effects for op in node.ops):
                self.emit_kernel(node.ops, results or [r for op in node.ops for r in op.results][-1:])

    def emit_plain(self, op: Op) -> None:
        operands = [self.value(_as_kept(operand) if op.declared is LAUNCH else operand) for operand in op.operands]
        for inner in op.blocks:
            for value in free_values(inner):
                if not (value.producer is not None and is_inlined(value.producer)):
                    self.value(value)
            for value in _wanted_in_memory(inner, self.wanted):
                self.value(value)
        blocks = [
            _BlockFuser(
                inner,
                self.machine,
                self.takes_epilogue,
                self.keys,
                self.values,
                self.sizes,
                self.naming,
                self.wanted,
                self.log,
                _replaced(op, inner),
            ).run()
            for inner in op.blocks
        ]
        attrs = op.attrs
        if op.declared is LIBRARY and (dims := _dims_of(op)):
            operands += [self.value(self.sizes[dim]) for dim in dims]
            attrs = {**attrs, "dims": dims}
        copy = op.replace(operands=operands, blocks=blocks, attrs=attrs)
        self.append(op, copy)

    def append(self, op: Op, copy: Op) -> None:
        self.out.append(copy)
        self.values.update(zip(op.results, copy.results, strict=True))

    def value(self, value: Value) -> Value:
        """The new value of `value`; it is recomputed here if it belongs to no group."""
        if value in self.values:
            return self.values[value]
        op = value.producer
        if op is None or not is_inlined(op):
            return value
        if (kept := _kept_alike(value)) is not None:
            return self.value(kept)
        if is_scalar(value) or op.declared is prims.CONSTANT and isinstance(op.attrs["value"], tuple) or is_view(op):
            if is_scalar(value) and op.declared is prims.RESHAPE and op.device != CPU:
                raise AssertionError(
                    "the host does not read a number of a device: kernels read the element that holds it"
                )
            self.append(op, op.replace(operands=[self.value(operand) for operand in op.operands]))
        else:
            self.emit_kernel([op], [value])
        return self.values[value]

    def emit_kernel(self, ops: Sequence[Op], results: Sequence[Value]) -> None:
        self.naming.name(ops, results)
        try:
            body, operands, nest, scheduled = self.lowered(ops, results, lambda value: False)
        except AxisConflict:
            if len(ops) > 1:
                for op in ops:
                    self.emit_kernel([op], self.groups.leaving([op]) or list(op.results))
                return
            # What moves elements around in ways that share no loops with the op is made before it; what a frame is put
            # around, too. A number of a device stays there: the kernel reads the element that holds it.
            direct = {_as_kept(operand) for op in ops for operand in op.operands}
            moves = ops[0].declared.is_move
            body, operands, nest, scheduled = self.lowered(
                ops, results, lambda value: value in direct and (moves or not _is_source(value))
            )
        effects = tuple(dict.fromkeys(effect for op in ops for effect in op.effects))
        attrs = self.attributes(ops, results) | {"nest": nest, "schedule": scheduled}
        op = Op(
            KERNEL,
            operands,
            [value.type for value in results],
            attrs=attrs,
            blocks=[body],
            effects=effects,
            device=ops[-1].device,
            where=self.naming.where(ops),
        )
        self.finish(op, ops[0], results)

    def lowered(
        self, ops: Sequence[Op], results: Sequence[Value], is_cut: Callable[[Value], bool]
    ) -> tuple[Block, list[Value], Nest, Schedule]:
        """The block of a group, its operands, loop nest and schedule. `is_cut` names more values to take ready made."""
        inside = set(ops)
        # An op with a loop nest of its own takes everything ready made, numbers too; zeros that it changes it makes
        # itself.
        alone = has_own_kernel(ops[0])

        def is_boundary(value: Value) -> bool:
            if alone:
                return all(value not in _zeros_made_by(op) and value is not _number_put_by(op) for op in ops)
            return self.groups.is_boundary(value, inside) or (value.producer not in inside and is_cut(value))

        clone = Clone(is_boundary)
        body = clone.block(ops, results)
        name = self.naming.name(ops, results)

        def find() -> tuple[Nest, Schedule]:
            draft = Op(
                KERNEL, list(clone.params), [value.type for value in results], attrs={"name": name}, blocks=[body]
            )
            with located(ops[0].where):  # parameters of the block have no position
                nest = tile_transposes(lower(draft))
            nest = self.with_sizes(nest, list(clone.params))
            scheduled = schedule(nest, self.machine)
            return cascade_sums(nest, scheduled) if ops[-1].device == CPU else (nest, scheduled)

        key, _ = self.keys.group(ops, results, is_boundary)
        nest, scheduled = self.once("kernel", key, clone.params, body.ops, find)
        if nest.counts:
            # The sizes that its loops ask for are further inputs of the kernel.
            for dim in nest.counts:
                clone.param(self.sizes[dim])
            body = Block(tuple(clone.params.values()), body.ops, body.end)
        return body, [self.value(value) for value in clone.params], replace(nest, name=name), scheduled

    def once(self, question: str, key: Key, params: Iterable[Value], ops: Sequence[Op], find: Callable[[], T]) -> T:
        """The result of `find` for a group with this key. Equal groups of the host share it, with the names in it.

        A nest has the sizes of dimensions and the lines of errors, which are not in the key.
        """
        if ops[-1].device != CPU:
            return find()  # kernels of devices are joined, and one kernel needs each array once
        sizes = [(place, dim) for place, value in enumerate(params) for dim in self.sizes if self.sizes[dim] is value]
        lines = [op.where for op in ops if _may_stop_at_its_line(op)]
        return self.keys.once((question, key, tuple(sizes), tuple(lines)), find)

    def with_sizes(self, nest: Nest, params: list[Value]) -> Nest:
        """The nest with the sizes that its loops ask for as inputs: those among its parameters, then further ones."""
        counts: dict[Dim, Local] = {}
        inputs = list(nest.inputs)
        for dim in dims_in(nest.body):
            if self.sizes[dim] not in params:
                params.append(self.sizes[dim])
                inputs.append(Local(self.sizes[dim].hint or dim.name, i64))
            held = inputs[params.index(self.sizes[dim])]
            assert isinstance(held, Local)
            counts[dim] = held
        return replace(nest, inputs=tuple(inputs), counts=counts) if counts else nest

    def attributes(self, ops: Sequence[Op], results: Sequence[Value]) -> dict[str, object]:
        """The attributes of a kernel that are for people."""
        return {
            "name": self.naming.name(ops, results),
            "fused": _fused(ops),
            "phases": self.naming.phases(ops, results),
        }

    def finish(self, op: Op, first: Op, results: Sequence[Value]) -> None:
        self.out.append(op)
        if self.log is not None:
            self.log.enter(op, self.groups, first)
        for old, new in zip(results, op.results, strict=True):
            new.hint = old.hint
            self.values[old] = new

    def emit_contraction(self, node: Node) -> None:
        root = root_of_contraction(node)
        self.naming.name(node.ops, self.groups.leaving(node.ops))
        _, body, inputs, results = self.groups.contraction_parts(root, node.ops)
        if not results:
            return
        dims = _dims_of(root)
        if {dim for value in inputs for dim in dims_of(value.type)} - set(dims):
            dims = tuple(dict.fromkeys((*dims, *dims_in(lower_epilogue(root, body).body))))
        for value in (*root.operands, *root.results):
            shape_of(value)
        sizes = [self.sizes[dim] for dim in dims]
        operands = [self.value(value) for value in (*root.operands, *inputs, *sizes)]
        attrs = self.attributes(node.ops, results)

        def find() -> tuple[Declaration, Nest | None, Schedule | None]:
            epilogue = lower_epilogue(root, body) if len(node.ops) > 1 else None
            if is_nest(root, epilogue, self.machine):
                return KERNEL, *scheduled_product(product_kernel(root, inputs, epilogue), self.machine)
            if epilogue is None:
                return CONTRACTION, None, None
            if dims:
                counts = {dim: Local(dim.name, i64) for dim in dims}
                epilogue = replace(epilogue, inputs=(*epilogue.inputs, *counts.values()), counts=counts)
            return CONTRACTION, epilogue, schedule(epilogue, self.machine)

        key, _ = self.groups.key(node.ops, results)
        declared, nest, way = self.once("contraction", key, operands, node.ops, find)
        if declared is CONTRACTION:
            attrs |= {**root.attrs, "kind": root.name}
            if dims:
                attrs["dims"] = dims
        else:
            body = product_block(root, node.ops, inputs, results, sizes)
        if nest is not None:
            attrs |= {"nest": replace(nest), "schedule": way}
            if declared is KERNEL and (tiles := tiles_of(root, nest)):
                attrs["tiles"] = tiles
        types = [value.type for value in results]
        where = self.naming.where(node.ops)
        op = Op(declared, operands, types, attrs=attrs, blocks=[body], device=root.device, where=where)
        self.finish(op, node.ops[0], results)


def _dims_of(op: Op) -> tuple[Dim, ...]:
    """The dimensions in the sizes of an op's operands and results, each once."""
    return tuple(dict.fromkeys(dim for value in (*op.operands, *op.results) for dim in dims_of(value.type)))


def _may_stop_at_its_line(op: Op) -> bool:
    """Return whether an op may stop the program, or was one that may, before it was known that it does not."""
    if not isinstance(op.declared, Primitive) or op.declared.effects is PURE:
        return False
    return bool(op.declared.effects_on([operand.type for operand in op.operands], op.attrs))


def _zeros_made_by(op: Op) -> tuple[Value, ...]:
    """The zeros that an op changes, which its kernel makes: the operand itself, and what that repeats."""
    if not op.declared.changes_first or not is_zeros(op.operands[0]):
        return ()
    found = [op.operands[0]]
    while (producer := found[-1].producer) is not None and producer.operands:
        found.append(producer.operands[0])
    return () if any(operand in found for operand in op.operands[1:]) else tuple(found)  # a 0 that is a place, too


def _replaced(op: Op, block: Block) -> list[tuple[Value, Value]]:
    """The values that the body of a loop carries, each with the next one; none for another block."""
    if not op.declared.is_loop or block is not Loop(op).body or block.end.kind != "yield":
        return []
    return list(zip(Loop(op).carried, block.end.operands, strict=False))


def _wanted_in_memory(block: Block, known: dict[Block, list[Value]]) -> list[Value]:
    """Values of no group, made outside of `block`, that ops in it read from memory: made once, before the block runs.

    Kernels are not among the readers: they have copies in their loops. `known`: what has been found for other blocks.
    """
    if block in known:
        return known[block]
    inside = set(block.ops)
    found: dict[Value, None] = {}
    for op in block.ops:
        read = op.operands if kind_of(op) in ("alone", "contraction") or op.declared in (LIBRARY, LAUNCH) else ()
        zeros = _zeros_made_by(op)
        for value in read:
            if value in zeros:
                continue
            while (producer := value.producer) is not None and is_view(producer):
                value = producer.operands[0]
            if producer is not None and producer not in inside and is_inlined(producer) and not is_scalar(value):
                found[value] = None
        for inner in op.blocks:
            found.update((value, None) for value in _wanted_in_memory(inner, known) if value.producer not in inside)
    known[block] = list(found)
    return known[block]


def _as_kept(value: Value) -> Value:
    """A number of a device as the array of one element that holds it there."""
    made = value.made_by(prims.RESHAPE)
    if made is None or made.device == CPU or not is_scalar(value):
        return value
    return made.operands[0]


def _kept_alike(value: Value) -> Value | None:
    """The array that was reshaped to a number and back: on a device numbers are arrays of one element."""
    back = value.made_by(prims.RESHAPE)
    number = None if back is None else back.operands[0].made_by(prims.RESHAPE)
    if number is None or not is_scalar(number.result) or number.operands[0].type != value.type:
        return None
    return number.operands[0]


def _number_put_by(op: Op) -> Value | None:
    """The array of one element that an op puts into another, where it is made of a number."""
    if op.declared is not prims.DYNAMIC_UPDATE or op.device != CPU:
        return None
    update, made = op.operands[1], op.operands[1].made_by(prims.RESHAPE, prims.BROADCAST_TO)
    if made is None or update.tensor.size != 1:
        return None
    return update if is_scalar(made.operands[0]) else None


def _is_source(value: Value) -> bool:
    return value.producer is None or value.producer.declared.kind == "source"


def _fused(ops: Sequence[Op]) -> str:
    """The names of ops, as many as a line of a comment has room for."""
    names: list[str] = []
    for op in ops:
        if not names or names[-1] != op.name:
            names.append(op.name)
    ends = [len(", ".join(names[: count + 1])) for count in range(len(names))]
    if not names or ends[-1] <= _ROOM:
        return ", ".join(names)
    count = sum(end <= _ROOM - len(", and 10 more") for end in ends)
    return ", ".join([*names[:count], f"and {len(names) - count} more"])
