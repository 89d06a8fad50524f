"""The steps of a block: its ops, and groups of them on their way to kernels, in an order that keeps what they mean.

A step runs after those whose results it needs, and after those whose effects it must not pass: effects keep their
order; Variables are read before they are written. What joins what is decided in `groups.py`.

Tested by `tests/kernels/test_groups.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Literal

from staged.ir.nodes import FAIL, Block, EffectKind, Op, Value, free_values, walk_ops
from staged.ir.sizes import Dim
from staged.ir.storage import is_tensor, root_of
from staged.ir.types import TensorType, dims_of
from staged.kernels.kinds import extents, is_elementwise, is_inlined, is_scalar
from staged.kernels.lower_alone import has_own_kernel

NodeKind = Literal["plain", "kernel", "alone", "contraction"]


class Node:
    """A step of one block: a plain op, or a group of ops on its way to a kernel."""

    __slots__ = ("number", "kind", "ops", "before", "direct", "next", "position", "_largest")

    def __init__(self, number: int, kind: NodeKind, op: Op, position: int) -> None:
        self.number = number
        self.kind: NodeKind = kind
        self.ops = [op]
        self.before = 0  # bit set of the nodes that must run earlier
        self.direct = 0  # of those, at least the ones with no other node between
        self.next = 0  # the nodes of which this one is `direct`
        self.position = position
        self._largest = 0  # 0: to be found

    @property
    def largest(self) -> int:
        """The elements of the largest array that its ops work on, found once: siblings that join are as large as one
        another.
        """
        if not self._largest:
            values = [value for op in self.ops for value in (*op.operands, *op.results)]
            self._largest = max(prod(extents(value)) for value in values)
        return self._largest


def kind_of(op: Op) -> NodeKind:
    """The kind of the node that an op begins as."""
    if op.declared.kind == "contraction":
        return "contraction"
    if has_own_kernel(op):
        return "alone"
    if any(not isinstance(value.type, TensorType) for value in (*op.operands, *op.results)):
        return "plain"
    if op.declared.kind == "reduction" and not is_scalar(op.operands[0]) or op.declared.elements == "gathered":
        return "kernel"
    if is_elementwise(op) and not is_scalar(op.results[0]):
        return "kernel"
    return "plain"


class Steps:
    """The steps of a block, ordered. `sizes` are those of the dimensions that are bound in and around it."""

    def __init__(self, block: Block, sizes: Mapping[Dim, Value]) -> None:
        self.block = block
        self.sizes = sizes
        self.nodes: list[Node | None] = []
        self.node_of: dict[Op, Node] = {}
        self.users: dict[Value, list[Op | None]] = {}
        self.positions = {op: number for number, op in enumerate(block.ops)}
        self.effects: dict[tuple[object, ...], list[Op]] = {}
        """The ops that what comes next may have to wait for, by what they do."""
        self.reads: dict[object, list[Value]] = {}
        """The values read of each Variable."""
        self.find_users()

    def add(self, op: Op, position: int) -> Node:
        """A step of its own for an op, after all that it must not pass."""
        node = Node(len(self.nodes), kind_of(op), op, position)
        self.nodes.append(node)
        self.node_of[op] = node
        for producer in self.producers(op):
            self.order(producer, node)
        self.order_effects(op, node)
        return node

    def in_order(self) -> list[Node]:
        """The steps, each after all that must run earlier, else as in the program."""
        ordered: list[Node] = []
        begun = 0

        def visit(node: Node) -> None:
            nonlocal begun
            if begun >> node.number & 1:
                return
            begun |= 1 << node.number
            for earlier in sorted(self.bits(node.before & ~begun), key=lambda n: n.position):
                visit(earlier)
            ordered.append(node)

        for node in sorted((node for node in self.nodes if node is not None), key=lambda node: node.position):
            visit(node)
        return ordered

    def find_users(self) -> None:
        for op in self.block.ops:
            for operand in inputs_of(op):
                self.users.setdefault(operand, []).append(op)
        for operand in self.block.end.operands:
            self.users.setdefault(operand, []).append(None)

    def producers(self, op: Op) -> list[Node]:
        """The nodes of this block whose results `op` needs, seen through ops that belong to no group."""
        found: dict[Node, None] = {}
        seen: set[Value] = set()

        def visit(value: Value) -> None:
            if value in seen:
                return
            seen.add(value)
            for dim in dims_of(value.type):
                if dim in self.sizes:
                    visit(self.sizes[dim])
            producer = value.producer
            if producer is None:
                return
            if producer in self.node_of:
                found[self.node_of[producer]] = None
            elif is_inlined(producer):
                for operand in producer.operands:
                    visit(operand)

        for operand in (*inputs_of(op), *op.results):
            visit(operand)
        if self.sizes:
            for result in (result for block in op.blocks for inner in walk_ops(block) for result in inner.results):
                for dim in dims_of(result.type):
                    if dim in self.sizes:
                        visit(self.sizes[dim])
        return [node for node in found if op not in node.ops]

    def order(self, first: Node, second: Node) -> None:
        """`first` runs before `second`."""
        if first is second or second.before >> first.number & 1:
            return
        earlier = first.before | 1 << first.number
        second.before |= earlier
        second.direct |= 1 << first.number
        first.next |= 1 << second.number
        self.run_after(second.next, earlier)

    def run_after(self, begin: int, earlier: int, without: int = 0) -> None:
        """The nodes of the bit set `begin`, and those that must run after them, run after `earlier`; `without` is no
        node any more.

        What runs after a node has all that the node has: where nothing changes the walk ends.
        """
        todo = begin
        while todo:
            low = todo & -todo
            todo ^= low
            node = self.nodes[low.bit_length() - 1]
            assert node is not None, "`absorb` leaves no node that it took away in `next`"
            before = node.before & ~without | earlier
            if before != node.before:
                node.before = before
                todo |= node.next

    def bits(self, mask: int) -> Iterable[Node]:
        while mask:
            low = mask & -mask
            node = self.nodes[low.bit_length() - 1]
            if node is not None:
                yield node
            mask ^= low

    def order_effects(self, op: Op, node: Node) -> None:
        effects = list(op.effects)
        for inner in op.blocks:
            effects += [effect for nested in walk_ops(inner) for effect in nested.effects]
            if _leaves(inner):
                effects += list(FAIL)
        for effect in effects:
            if effect.is_ordered or effect.kind == "write":
                for earlier in self.effectful("stop"):
                    self.order(earlier, node)
                self.remember("stop", node, replace=True)
            if effect.kind == "read":
                for earlier in self.effectful(effect.target, "write"):
                    self.order(earlier, node)
                self.remember(effect.target, node, "read")
                for result in op.results:
                    self.reads.setdefault(effect.target, []).append(result)
            if effect.kind == "write":
                for earlier in (*self.effectful(effect.target, "write"), *self.effectful(effect.target, "read")):
                    self.order(earlier, node)
                # What uses the old value runs first: else the read would have to copy.
                for value in self.reads.get(effect.target, ()):
                    for user in self.users_through(value):
                        if user in self.node_of and user is not op:
                            self.order(self.node_of[user], node)
                self.remember(effect.target, node, "write")

    def effectful(self, *key: object) -> list[Node]:
        return [self.node_of[op] for op in self.effects.get(key, ())]

    def remember(self, target: object, node: Node, kind: EffectKind | None = None, replace: bool = False) -> None:
        key = (target,) if kind is None else (target, kind)
        known = [] if replace else self.effects.get(key, [])
        self.effects[key] = [*known, node.ops[0]]

    def users_through(self, value: Value) -> list[Op]:
        found: list[Op] = []
        for user in self.users.get(value, ()):
            if user is not None:
                found += self.users_through(user.results[0]) if is_inlined(user) else [user]
        return found

    def read_before_replaced(self, replaced: Iterable[tuple[Value, Value]]) -> None:
        """Let all that uses a value run before the step that computes the next one, if that does not feed it: a loop
        would otherwise copy the next one. `replaced` are the pairs (value, next value) of a loop's body.
        """
        for value, following in replaced:
            maker = self.node_of.get(root_of(following).producer)  # type: ignore[arg-type]
            if maker is None or not is_tensor(value) or None in self.users.get(value, ()):
                continue
            for user in self.users_through(value):
                node = self.node_of.get(user)
                if node is not None and not node.before >> maker.number & 1:
                    self.order(node, maker)

    def may_run_together(self, a: Node, b: Node) -> bool:
        """Return whether no other node must run between the two.

        Exact: whatever other step needs one of the two and is needed by the other stands between them; `absorb` keeps
        that order.
        """
        return not any(
            between is not first and between.before >> first.number & 1
            for first, second in ((a, b), (b, a))
            if second.before >> first.number & 1
            for between in self.bits(second.direct)
        )

    def absorb(self, a: Node, b: Node) -> None:
        bit_a, bit_b = 1 << a.number, 1 << b.number
        for op in b.ops:
            self.node_of[op] = a
        self.nodes[b.number] = None
        before = (a.before | b.before) & ~(bit_a | bit_b)
        a.direct = (a.direct | b.direct) & ~(bit_a | bit_b)
        a.next = (a.next | b.next) & ~(bit_a | bit_b)
        for node in self.bits(a.direct):
            node.next = node.next & ~bit_b | bit_a
        for node in self.bits(b.next & ~bit_a):
            node.direct = node.direct & ~bit_b | bit_a
        self.run_after(a.next, before | bit_a, without=bit_b)
        a.before = before


def root_of_contraction(node: Node) -> Op:
    """The product or convolution of a group: what its epilogue reads may stand before it in the program."""
    return next(op for op in node.ops if op.declared.kind == "contraction")


def inputs_of(op: Op) -> list[Value]:
    """Operands, and what the op's blocks use from outside."""
    found = list(op.operands)
    for inner in op.blocks:
        found += [value for value in free_values(inner) if value not in found]
    return found


def _leaves(block: Block) -> bool:
    if block.end.is_of_loop or block.end.is_of_function:
        return True
    return any(_leaves(inner) for op in block.ops for inner in op.blocks)
