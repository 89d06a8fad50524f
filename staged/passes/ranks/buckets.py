"""One message for several reductions over ranks.

Each message costs its latency, so the reductions of a block wait for each other. A reduction, and pure ops that use its
result, move down to the first op with effects or blocks that needs one of them. Reductions that meet there become one
`all_reduce` with several operands. The memory plan puts these next to one another.

Tested by `tests/ranks/test_equal_to_one_rank.py` and `tests/ranks/test_gradients.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import map_functions
from staged.ir.names import DerivedName, LibraryName, first_named
from staged.ir.nodes import COMM, Block, Function, Op, Value, walk_op
from staged.ir.rewrite import Copier
from staged.ir.sizes import Size
from staged.ir.structure import REDUCE_START, REDUCE_WAIT
from staged.ir.types import CPU, TensorType, i64


def bucket_reductions(program: Function, most: int, overlaps: bool = False) -> Function:
    """Join reductions over ranks into buckets of at most `most` bytes.

    With `overlaps` a message starts as soon as its arrays are complete. The program waits for it before the first use
    of a result: in straight-line code, between two other messages.

    Exact: each element is the sum of the same numbers. All ranks run one program, so all have the same buckets.
    """
    return map_functions(program, lambda function: function.with_block(_Buckets(most, overlaps).block(function.block)))


class _Buckets(Copier):
    def __init__(self, most: int, overlaps: bool) -> None:
        super().__init__(Builder())
        self.most = most
        self.overlaps = overlaps
        self.waiting: list[Op] = []
        """The reductions and the pure ops of the open block that wait."""
        self.late: set[Value] = set()
        """Their results."""
        self.started: dict[Op, tuple[Op, int]] = {}
        """By reduction, the `reduce_start` of its message, and the index of its array."""
        self.waits: dict[Op, Op] = {}

    def block(self, block: Block) -> Block:
        waiting, self.waiting = self.waiting, []
        late, self.late = self.late, set()
        made = super().block(block)
        self.waiting, self.late = waiting, late
        return made

    def contents(self, block: Block) -> None:
        complete = self.complete(block) if self.overlaps else {}
        for op in block.ops:
            needs = any(value in self.late for value in _read_by(op))
            is_reduction = _is_reduction(op)
            if is_reduction and needs or not is_reduction and _sends(op):
                self.flush()
                needs = False
            if is_reduction or (needs and not op.effects and not op.blocks):
                self.waiting.append(op)
                self.late.update(op.results)
            else:
                if needs:
                    self.flush(op)
                self.op(op)
            for bucket in complete.get(op, ()):
                self.start(bucket)
        self.flush()

    def complete(self, block: Block) -> dict[Op, list[list[Op]]]:
        """By op, the buckets whose arrays are complete after it."""
        found: dict[Op, list[list[Op]]] = {}
        positions = {op: number for number, op in enumerate(block.ops)}
        begin, earliest = 0, -1
        reduced: set[Value] = set()
        for end, op in enumerate((*block.ops, None)):
            depends = op is not None and any(value in reduced for value in _read_by(op))
            if op is not None and not (depends if _is_reduction(op) else _sends(op)):
                if depends or _is_reduction(op):
                    reduced.update(op.results)
                continue
            # Between two ops that send: the order of messages stays. No sum of a bucket depends on another one.
            between = [each for each in block.ops[begin:end] if _is_reduction(each)]
            last = {each: max(earliest, _position(positions, each.operands[0].producer)) for each in between}
            ready = sorted((each for each in between if last[each] >= begin), key=last.__getitem__)
            for bucket in buckets(ready, self.most, in_order=True):
                found.setdefault(block.ops[last[bucket[-1]]], []).append(bucket)
            begin, earliest, reduced = end + 1, -1, set()
            if op is not None and _is_reduction(op):
                # What it depends on is written before it.
                begin, earliest, reduced = end, end, set(op.results)
        return found

    def flush(self, user: Op | None = None) -> None:
        """Write what waits: the messages, then the pure ops; of messages that have started, those that `user` needs."""
        chosen = self.needed(user) if user is not None and self.overlaps else set(self.waiting)
        waiting = [op for op in self.waiting if op in chosen]
        self.waiting = [op for op in self.waiting if op not in chosen]
        self.late = {result for op in self.waiting for result in op.results}
        reductions = [op for op in waiting if _is_reduction(op)]
        for op in reductions:
            if op in self.started:
                start, place = self.started[op]
                self.finish(op, self.wait(start).results[place])
        for bucket in buckets([op for op in reductions if op not in self.started], self.most):
            self.join(bucket)
        for op in waiting:
            if not _is_reduction(op):
                self.op(op)

    def needed(self, user: Op) -> set[Op]:
        """The ops that wait and that `user` needs, or that have not started: these are sent together."""
        values = set(_read_by(user))
        found: set[Op] = set()
        for op in reversed(self.waiting):
            if any(result in values for result in op.results) or (_is_reduction(op) and op not in self.started):
                found.add(op)
                values.update(op.operands)
        return found

    def join(self, bucket: Sequence[Op]) -> None:
        """One `all_reduce` for a bucket."""
        if len(bucket) == 1:
            self.op(bucket[0])
            return
        arrays = self.arrays(bucket)
        first, types = bucket[0], [x.type for x in arrays]
        joined = Op(first.declared, arrays, types, attrs=first.attrs, effects=COMM, where=bucket[-1].where)
        for op, made in zip(bucket, self.builder.append(joined).results, strict=True):
            self.finish(op, made)

    def start(self, bucket: Sequence[Op]) -> None:
        """Start the message of a bucket."""
        arrays = self.arrays(bucket)
        types = [TensorType(i64), *(x.type for x in arrays)]
        attrs, where = {"by": bucket[0].attrs["by"]}, bucket[-1].where
        start = self.builder.append(Op(REDUCE_START, arrays, types, attrs=attrs, effects=COMM, where=where))
        start.results[0].hint = LibraryName("request")
        for place, (op, sent) in enumerate(zip(bucket, start.results[1:], strict=True)):
            sent.hint = arrays[place].hint
            self.started[op] = start, place

    def wait(self, start: Op) -> Op:
        """Wait for a message, once."""
        if start not in self.waits:
            types = [value.type for value in start.results[1:]]
            wait = self.builder.append(Op(REDUCE_WAIT, start.results, types, effects=COMM, where=start.where))
            for sent, reduced in zip(start.results[1:], wait.results, strict=True):
                reduced.hint = sent.hint
            self.waits[start] = wait
        return self.waits[start]

    def arrays(self, bucket: Sequence[Op]) -> list[Value]:
        """The operands of a bucket, a number as an array."""
        operands = [self.value(op.operands[0]) for op in bucket]
        pairs = zip(operands, bucket, strict=True)
        return [value if value.tensor.shape else self.reshaped(value, (1,), op) for value, op in pairs]

    def finish(self, op: Op, made: Value) -> None:
        """The result of a reduction."""
        self.define([op.result], [made if op.result.tensor.shape else self.reshaped(made, (), op)])

    def reshaped(self, value: Value, shape: tuple[int, ...], op: Op) -> Value:
        type = TensorType(value.tensor.dtype, shape)
        made = self.builder.op(prims.RESHAPE, [value], [type], attrs={"shape": shape}, where=op.where).result
        made.hint = value.hint or DerivedName(first_named(op) or op.name)
        return made


def _position(positions: Mapping[Op, int], op: Op | None) -> int:
    """The number of an op in its block; -1 for one of another block."""
    return -1 if op is None else positions.get(op, -1)


def _read_by(op: Op) -> list[Value]:
    """The values that an op and its blocks use."""
    return [*op.operands, *(value for block in op.blocks for value in block.free)]


def _is_reduction(op: Op) -> bool:
    return op.declared is prims.ALL_REDUCE and op.device == CPU


def _sends(op: Op) -> bool:
    """Return whether an op exchanges arrays with other ranks, itself or in a block."""
    return any(effect in COMM for inner in walk_op(op) for effect in inner.effects)


def buckets(reductions: Sequence[Op], most: int, in_order: bool = False) -> list[list[Op]]:
    """Reductions that are one message: of one dtype, of one kind, and of at most `most` bytes together.

    With `in_order` a bucket has neighbours only.
    """
    found: list[list[Op]] = []
    sizes: list[int] = []
    for op in reductions:
        type = op.result.tensor
        nbytes = most if any(isinstance(size, Size) for size in type.shape) else type.nbytes
        key = type.dtype, op.attrs["by"]
        for place, bucket in list(enumerate(found))[-in_order:]:
            if key == (bucket[0].result.tensor.dtype, bucket[0].attrs["by"]) and sizes[place] + nbytes <= most:
                bucket.append(op)
                sizes[place] += nbytes
                break
        else:
            found.append([op])
            sizes.append(nbytes)
    return found
