"""Fusion: which ops of a block share a kernel.

Greedy, in program order: an op joins the groups of its producers if they can share loops, then groups that read the
same arrays. Two groups may merge if no other step must run between them. Ops that only rename or repeat elements
(`kinds.is_inlined`) belong to no group: every kernel that uses them gets its own copy, so broadcasts and casts of
constants never exist in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.sizes import Dim, Extent
from staged.ir.storage import changed_operands
from staged.ir.types import CPU
from staged.kernels.axes import Analysis, AxisConflict, Structure
from staged.kernels.clone import Clone
from staged.kernels.epilogue import lower_epilogue
from staged.kernels.keys import Key, Keys
from staged.kernels.kinds import is_elementwise, is_inlined, is_scalar, may_fail, shape_of
from staged.kernels.steps import Node, Steps, root_of_contraction
from staged.kernels.tails import reads_totals, tails_of

MAX_OPS = 64
"""Ops in one kernel: more would only make it hard to read."""
SMALL = 1 << 16
"""Elements up to which one thread reduces rows and then their results in one kernel."""

TakesEpilogue = Callable[[Op, Block], bool]
"""True if a back end makes a contraction op (first argument) with this epilogue block as one piece."""


class Groups:
    """The steps of a block, grouped. `sizes` are those of the dimensions that are bound in and around it.

    `takes_epilogue` limits what joins a contraction. `keys` are those of the program: equal groups are judged once.
    """

    def __init__(self, block: Block, sizes: Mapping[Dim, Value], takes_epilogue: TakesEpilogue, keys: Keys) -> None:
        self.block = block
        self.takes_epilogue = takes_epilogue
        self.keys = keys
        self.derived: set[Value] = set()
        """Masks that every group that reads them computes."""
        self.steps = Steps(block, sizes)
        self.tails = tails_of(block, self.steps.users)
        for position, op in enumerate(block.ops):
            if not is_inlined(op):
                self.add_node(op, position)
        self.join_siblings()
        self.derive_masks()
        self.updates_last()

    def add_node(self, op: Op, position: int) -> None:
        node = self.steps.add(op, position)
        if node.kind == "kernel":
            for producer in sorted(self.steps.producers(op), key=lambda n: -n.position):
                current = self.steps.node_of[op]
                if producer is not current and self.steps.nodes[producer.number] is producer:
                    self.try_merge(producer, current)
            if op.device != CPU:
                self.join_contraction(op)
            elif self.steps.node_of[op].kind == "contraction":
                self.join_inputs(self.steps.node_of[op])

    def join_contraction(self, op: Op) -> None:
        """Libraries take an epilogue whole or not at all:
        a group that was too little for them may be all of it by now."""
        feeding = {
            node
            for each in self.steps.node_of[op].ops
            for node in self.steps.producers(each)
            if node.kind == "contraction"
        }
        for producer in sorted(feeding, key=lambda node: -node.position):
            current = self.steps.node_of[op]
            if producer is not current and current.kind == "kernel":
                self.try_merge(producer, current)

    def join_inputs(self, node: Node) -> None:
        """Move elementwise ops that only an epilogue uses into it: their array is then neither written nor read.

        `0.9 * mean + 0.1 * d_w`: the first product joins the epilogue of the product that computes `d_w`.
        Exact: the same ops on the same elements. Not for operands of the product itself, or of a step that must run
        before it.
        """
        root = root_of_contraction(node)
        found = dict.fromkeys(each for op in node.ops for each in self.steps.producers(op) if each.kind == "kernel")
        for feeding in sorted(found, key=lambda each: each.position):
            needed = any(each is feeding or each.before >> feeding.number & 1 for each in self.steps.producers(root))
            if needed or feeding.ops[0].device != root.device or len(node.ops) + len(feeding.ops) > MAX_OPS:
                continue
            ops = self.joined(node, feeding)
            inside = set(ops)
            if any(self.used_outside(result, inside) for op in feeding.ops for result in op.results):
                continue
            if any(may_fail(op) for op in feeding.ops) or not self.steps.may_run_together(node, feeding):
                continue
            if self.is_epilogue(root, ops):
                node.ops = ops
                node.position = max(node.position, feeding.position)
                self.steps.absorb(node, feeding)

    # ---- joining ----

    def try_merge(self, a: Node, b: Node) -> bool:
        """Make one group of `a` and `b` (which may read what `a` makes) if that is possible and good."""
        if self.obstacle(a, b):
            return False
        a.kind = "contraction" if "contraction" in (a.kind, b.kind) else "kernel"
        a.ops = self.joined(a, b)
        a.position = max(a.position, b.position)
        self.steps.absorb(a, b)
        return True

    def joined(self, a: Node, b: Node) -> list[Op]:
        """The ops of both, in the order of the program."""
        return sorted([*a.ops, *b.ops], key=self.steps.positions.__getitem__)

    def obstacle(self, a: Node, b: Node) -> str:
        """Why `a` and `b` are not made one kernel; empty where they can be."""
        kinds = {a.kind, b.kind}
        if a.ops[0].device != b.ops[0].device:
            return "they run on different devices"
        if not kinds <= {"kernel", "contraction"}:
            return "one of them is always a step of its own"
        if kinds == {"contraction"}:
            return "each is a product or a convolution"
        if a.ops[0].device == CPU and (self.is_tail(a, b) or self.is_tail(b, a)):
            return "one computes totals of long rows, and the other little from them"
        if len(a.ops) + len(b.ops) > MAX_OPS:
            return f"together they have more than {MAX_OPS} ops"
        if not self.steps.may_run_together(a, b):
            return "another step runs between them"
        ops = self.joined(a, b)
        if "contraction" in kinds:
            if a.kind != "contraction":
                return "a product or convolution takes along what uses its result, not what makes its operands"
            if not self.is_epilogue(root_of_contraction(a), ops):
                return (
                    "a product or convolution takes along only elementwise ops of its result's shape that can be "
                    "written there"
                )
            return ""
        return self.apart(ops)

    def is_tail(self, node: Node, other: Node) -> bool:
        """Return whether a node only computes a little from several totals of another, such as updates of weights."""
        return self.tails.issuperset(node.ops) and reads_totals(node.ops, other.ops)

    def apart(self, ops: Sequence[Op]) -> str:
        """Why the ops cannot share a kernel; empty if they can."""
        results = self.leaving(ops)
        key, outside = self.key(ops, results)
        apart = self.keys.once(("loops", key), lambda: self.loops_apart(ops, results))
        if not apart and self.feeds_itself(ops, outside):
            return "one reads a slice that begins where the other says"
        return apart

    def key(self, ops: Sequence[Op], results: Sequence[Value]) -> tuple[Key, list[Value]]:
        """The key of a group, and its operands from outside."""
        inside = set(ops)
        return self.keys.group(ops, results, lambda value: self.is_boundary(value, inside))

    def loops_apart(self, ops: Sequence[Op], results: Sequence[Value]) -> str:
        """Why the ops should not share one set of loops; empty if they should. The key of the group decides it."""
        inside = set(ops)
        try:
            analysis = Analysis(results, lambda value: self.is_boundary(value, inside))
            structure = Structure(analysis)
        except AxisConflict:
            return "no one set of loops fits both"
        if structure.finals and structure.size > SMALL:
            return (
                f"rows of more than {SMALL} elements in all, and what is made of their totals, would be one thread's "
                "work"
            )
        if ops[0].device != CPU and _leaves_one_thread(structure, results):
            return "all of it would end in one number, and leave one thread of the device to do it"
        for value in analysis.runs:
            op = value.producer
            if op in inside and op is not None and op.declared.expensive:
                axes = analysis.axes(value)
                if axes and axes != structure.domain and axes != structure.rows:
                    return f"`{op.name}` would be computed again in each iteration of a loop that it does not depend on"
        return ""

    def feeds_itself(self, ops: Sequence[Op], outside: Iterable[Value]) -> bool:
        """Return whether a group takes from outside what is made of its own results: a slice that starts where it says.

        Exact: looks through moves alone; any other op between makes a node that `may_run_together` sees.
        """
        inside = set(ops)
        seen: set[Value] = set()

        def comes_from_inside(value: Value) -> bool:
            if value in seen:
                return False
            seen.add(value)
            producer = value.producer
            if producer is None or producer not in inside and not is_inlined(producer):
                return False
            return producer in inside or any(map(comes_from_inside, producer.operands))

        return any(map(comes_from_inside, outside))

    def is_epilogue(self, root: Op, ops: Sequence[Op]) -> bool:
        """Return whether the ops behind a contraction can be its epilogue.

        Exact: same shape element by element; a symbolic size is the product's own; `lower_epilogue` refuses elements
        of another place.
        """
        if any(
            not is_elementwise(op) or shape_of(op.results[0]) != shape_of(root.results[0])
            for op in ops
            if op is not root
        ):
            return False
        key, _ = self.key(ops, self.leaving(ops))
        return self.keys.once(("epilogue", key), lambda: self.takes_along(root, ops))

    def takes_along(self, root: Op, ops: Sequence[Op]) -> bool:
        """Return whether a back end has these elementwise ops as an epilogue. The key of the group decides it."""
        _, body, _, _ = self.contraction_parts(root, ops)
        if not self.takes_epilogue(root, body):
            return False
        try:
            lower_epilogue(root, body)
        except AxisConflict:
            return False
        return True

    def is_boundary(self, value: Value, inside: set[Op]) -> bool:
        """Return whether a group takes `value` from outside: as a parameter of its kernel."""
        op = value.producer
        if op is None:
            return True
        if op in inside:
            return False
        if not is_inlined(op):
            return True
        if op.declared is prims.CONSTANT:
            return isinstance(op.attrs["value"], tuple)
        if op.declared.is_move and op.device == CPU and next(iter(inside)).device != CPU and not _is_constant(op):
            return True  # the host's: a kernel of a device takes the number that it makes
        if op.declared is prims.RESHAPE and squeezed(op.operands[0]) == squeezed(op.results[0]):
            return False  # the kernel reads what it is of, which it may read as that, too
        return is_view(op) and self.is_boundary(op.operands[0], inside) and not is_scalar(op.operands[0])

    def leaving(self, ops: Sequence[Op]) -> list[Value]:
        """The values of a group that are used outside.

        Exact: a value that may stop the program is computed although unused; other unused values are not.
        """
        inside = set(ops)
        return [
            result
            for op in ops
            for result in op.results
            if (self.used_outside(result, inside) and result not in self.derived)
            or (may_fail(op) and not self.steps.users.get(result))
        ]

    def used_outside(self, value: Value, inside: set[Op]) -> bool:
        for user in self.steps.users.get(value, ()):
            if user is None:
                return True
            if is_inlined(user):
                if any(self.used_outside(result, inside) for result in user.results):
                    return True
            elif user not in inside:
                return True
        return False

    def join_siblings(self) -> None:
        """Kernels that read the same array with the same loops become one: it is read once."""
        readers: dict[Value, list[Node]] = {}
        for node in self.steps.nodes:
            if node is not None and node.kind == "kernel":
                for value in self.key(node.ops, ())[1]:
                    if not is_scalar(value):
                        readers.setdefault(value, []).append(node)
        for value, nodes in readers.items():
            for index, first in enumerate(nodes):
                for second in nodes[index + 1 :]:
                    a, b = self.steps.node_of[first.ops[0]], self.steps.node_of[second.ops[0]]
                    if a is not b and self.same_domain(a, b, value):
                        self.try_merge(a, b)

    def derive_masks(self) -> None:
        """Let every group that reads a mask compute the mask, if the array behind the mask is in memory anyway.

        The gradient of `y = relu(x)` asks for `y <= 0`: then `y` is read, and no array of bools is written.
        Exact: the same op on the same elements. Not for a mask that a step without loops reads.
        """
        for node in self.steps.nodes:
            for op in list(node.ops) if node is not None and node.kind in ("kernel", "contraction") else ():
                assert node is not None
                mask, inside = op.results[0], set(node.ops)
                if not is_elementwise(op) or not mask.tensor.dtype.is_bool or op.declared.expensive or may_fail(op):
                    continue
                sources = self.key([op], ())[1]
                if any(v.producer not in inside or not self.used_outside(v, inside) for v in sources):
                    continue
                users = self.steps.users_through(mask)
                readers = {self.steps.node_of[user] for user in users if user not in inside}
                if readers and not self.ends_block(mask) and all(self.may_compute(reader, op) for reader in readers):
                    self.derived.add(mask)
                    for reader in readers:
                        reader.ops = self.with_op(reader, op)
                    if not inside.intersection(users):
                        node.ops.remove(op)

    def with_op(self, node: Node, op: Op) -> list[Op]:
        """The ops of a group and one more, in the order of the program."""
        return sorted([*node.ops, op], key=self.steps.positions.__getitem__)

    def may_compute(self, reader: Node, op: Op) -> bool:
        """Return whether a group can compute an op of another group again."""
        if reader.kind not in ("kernel", "contraction") or len(reader.ops) == MAX_OPS:
            return False
        ops = self.with_op(reader, op)
        if reader.kind == "contraction":
            return self.is_epilogue(root_of_contraction(reader), ops)
        return not self.apart(ops)

    def ends_block(self, value: Value) -> bool:
        """Return whether the block passes a value on."""
        return any(
            user is None or is_inlined(user) and self.ends_block(user.results[0])
            for user in self.steps.users.get(value, ())
        )

    def updates_last(self) -> None:
        """Order an op that updates an array in part after the readers of the old array, if possible: then it need not
        copy it.

        Exact: order alone: each reader has the old array by its operand, so a reader that cannot come first only costs
        a copy.
        """
        for node in self.steps.nodes:
            if node is None or not node.ops:
                continue
            changing = node.ops[0]
            for number in changed_operands(changing):
                for user in self.steps.users_through(changing.operands[number]):
                    other = self.steps.node_of.get(user)
                    if other is not None and other is not node and not other.before >> node.number & 1:
                        self.steps.order(other, node)

    def same_domain(self, a: Node, b: Node, shared: Value) -> bool:
        """Return whether joining saves a pass over memory: both walk exactly the shared array's elements."""
        return a.largest == shared.tensor.size == b.largest

    def contraction_parts(self, root: Op, ops: Sequence[Op]) -> tuple[Op, Block, list[Value], list[Value]]:
        """The root, the epilogue block (accumulator, inputs), its inputs and the results."""
        inside = set(ops)  # with the root: a view of what it makes comes from no outside
        clone = Clone(lambda value: value is root.results[0] or self.is_boundary(value, inside))
        clone.param(root.results[0])
        results = self.leaving(ops)
        body = clone.block([op for op in ops if op is not root], results)
        return root, body, list(clone.params)[1:], results


def _leaves_one_thread(structure: Structure, results: Sequence[Value]) -> bool:
    """Return whether a kernel with thousands of threads would have work for one: all of it ends in a single number.

    Arrays among the results could have a thread for each element in a kernel of their own.
    """
    rows = prod(axis.extent for axis in structure.rows)
    return bool(structure.finals) or rows == 1 and any(value.tensor.size > 1 for value in results)


def _is_constant(op: Op) -> bool:
    """Return whether an op makes the same of constants wherever it stands."""
    made = (operand.producer for operand in op.operands)
    return is_inlined(op) and all(each is not None and _is_constant(each) for each in made)


def squeezed(value: Value) -> list[Extent]:
    """The extents of an array but those of 1."""
    return [extent for extent in value.tensor.shape if extent != 1]


def is_view(op: Op) -> bool:
    """Return whether an op's result is a piece of its operand's memory, as it lies there.

    Exact: steps of 1, and at most one axis cut that is not whole behind leading axes of one element; no scalar has
    memory to look at.
    """
    if op.declared in (prims.RESHAPE, prims.STOP_GRADIENT):
        return not is_scalar(op.operands[0]) and not is_scalar(op.results[0])
    if op.declared not in (prims.SLICE, prims.DYNAMIC_SLICE) or is_scalar(op.results[0]):
        return False
    before, after = shape_of(op.operands[0]), shape_of(op.results[0])
    if op.declared is prims.SLICE and any(step != 1 for step in op.attrs.get("step", ())):
        return False
    # One element of some leading axes, a range of the next, all of the rest.
    leading = 0
    while leading < len(after) and after[leading] == 1:
        leading += 1
    return after[leading + 1 :] == before[leading + 1 :]
