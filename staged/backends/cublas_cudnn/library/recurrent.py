"""The choice of recurrent layers that are calls of cuDNN: a forward alone, with its reverse, or a reverse with its own
forward.

What a step keeps for the way back, cuDNN keeps in a reserve space of its own making. So a forward whose reverse is
asked for is taken together with it, where the two stand in one block and nothing else wants what the composite keeps;
then the reserve space is the pair's alone. Where the reverse stands elsewhere (in the reverse of a loop around the
forward), it goes through the sequence once more: that is less than a kernel and a product for every step, and the loop
keeps nothing of the steps.

cuDNN goes through a sequence from its beginning: what goes backwards is turned around before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staged.backends.cublas_cudnn.library.cudnn import MOST_ELEMENTS, MOST_IMAGES
from staged.backends.cublas_cudnn.library.reverses import Kept, nobody_else_reads, reverses_of
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.options import DeviceOptions
from staged.ir.structure import CALL, COMPOSITE
from staged.ir.types import TensorType
from staged.ir.users import Users
from staged.ops.array import Array
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.record import RecordContext
from staged.ops.shape import flip
from staged.ops.source import zeros

FORWARD, BACKWARD = "recurrent", "recurrent_backward"


@dataclass(frozen=True, slots=True)
class Layer:
    """The operands and results of a composite besides x, the weights and ys: states, and residuals."""

    states: int
    kept: int


LAYERS = {"lstm": Layer(2, 2), "gru": Layer(1, 2), "rnn": Layer(1, 0)}
REVERSES = frozenset(f"{name}_backward" for name in LAYERS)
COTANGENTS = "yhc"
"""Of a layer's results, those whose cotangents cuDNN takes."""


class Recurrent:
    """The ways of the recurrent layers of a function, in program order."""

    def __init__(self, function: Function, users: Users, options: DeviceOptions) -> None:
        self.name = re.sub(r"\W", "_", function.name)
        self.users = users
        self.options = options
        self.kept = reverses_of(function.block, _kept_by)
        self.pairs: dict[Op, Op] = {}
        """The forward of each reverse that is taken with it."""
        self.made: dict[Op, tuple[str, Value, Value]] = {}
        """For each of these forwards: its reserve space, and the x and ys of the call."""
        self.alone: set[Op] = set()
        """The reverses that go through the sequence once more."""
        self.reserves = 0
        self.ways: dict[str, FindWay] = {}
        for name in LAYERS:
            self.ways |= {name: self.forward, f"{name}_backward": self.backward}

    def forward(self, op: Op, block: Block) -> Way | None:
        """(ys, last states, what the reverse would read) of a layer."""
        layer = LAYERS[op.attrs["name"]]
        if _has_relu(op) or not _fits(op.operands, op.results):
            return None
        kept = op.results[1 + layer.states :]
        keepers = {user for value in kept for user in self.users.get(value, ())}
        reverses = {
            user for user in self.users.get(op.results[0], ()) if user is not None and _is_reverse(user, op, layer)
        }
        is_pair = len(reverses) == 1 and all(_is_next(op, reverse, block) for reverse in reverses)
        reserve = ""
        if is_pair and keepers <= reverses:
            (reverse,) = reverses
            self.pairs[reverse] = op
            reserve = self.reserve()
        elif keepers:
            elsewhere = self.kept.get(op, Kept())
            if not nobody_else_reads(kept, elsewhere, self.users) or any(
                reverse.device != op.device for reverse in elsewhere.reverses
            ):
                return None
            self.alone.update(elsewhere.reverses)

        def write(context: RecordContext, x: Array, *rest: Array) -> Sequence[Array]:
            x = _in_order(x, op)
            types = [result.tensor for result in op.results[: 1 + layer.states]]
            ys, *states = library_call(
                FORWARD, [x, *rest], types, **self.attrs(op, len(rest) - 2 - layer.states, reserve)
            )
            if reserve:
                self.made[op] = reserve, context.value_of(x), context.value_of(ys)
            nobody_reads = [zeros(kept.tensor.shape, kept.tensor.dtype) for kept in op.results[1 + layer.states :]]
            return [_in_order(ys, op), *states, *nobody_reads]

        return Way(write)

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangents of x, the states, the weights and the biases."""
        if _has_relu(op):
            return None
        name, given, biases = _layer_of(op), str(op.attrs["given"]), int(op.attrs["biases"])
        layer, forward = LAYERS[name], self.pairs.get(op)
        first = len(given)
        taken = op.operands[first : first + 3 + layer.states + biases]
        if forward is None and op not in self.alone and not self.stands_alone(op, taken):
            return None

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            x, rest = operands[first], operands[first + 1 : first + len(taken)]
            cts = dict(zip(given, operands, strict=False))
            ys: Array
            if forward is not None:
                reserve, *values = self.made[forward]
                x, ys = (context.handle(value) for value in values)
            else:
                x, reserve = _in_order(x, op), self.reserve()
                types = [
                    op.operands[first + len(taken)].tensor,
                    *(state.tensor for state in taken[1 : 1 + layer.states]),
                ]
                ys, *_ = library_call(FORWARD, [x, *rest], types, **self.attrs(op, biases, reserve))
            d_ys = _in_order(cts["y"], op) if "y" in cts else zeros(ys.shape, ys.dtype)
            of_states = [cts[letter] for letter in "hc"[: layer.states] if letter in cts]
            types = [result.tensor for result in op.results]
            d_x, *others = library_call(
                BACKWARD,
                [x, ys, d_ys, *rest, *of_states],
                types,
                given=given.replace("y", ""),
                **self.attrs(op, biases, reserve),
            )
            return [_in_order(d_x, op), *others]

        return Way(write)

    def stands_alone(self, op: Op, taken: Sequence[Value]) -> bool:
        """Return whether a reverse reads nothing that a forward has kept for it but the sequence, as a plain layer's
        does not.
        """
        layer = LAYERS[_layer_of(op)]
        ys = op.operands[len(op.attrs["given"]) + len(taken)]
        return not layer.kept and set(op.attrs["given"]) <= set(COTANGENTS) and _fits(taken, (ys,))

    def reserve(self) -> str:
        """The name of a further reserve space."""
        self.reserves += 1
        return f"{self.name}_reserve_{self.reserves}"

    def attrs(self, op: Op, biases: int, reserve: str) -> dict[str, Any]:
        """The attributes of a layer's call, from the layer or its reverse."""
        name = _layer_of(op)
        return {"mode": name, "biases": biases, "reserve": reserve, "tf32": self.options.tf32}


def _layer_of(op: Op) -> str:
    """The layer that an op is, or is the reverse of."""
    return str(op.attrs["name"]).removesuffix("_backward")


def _has_relu(op: Op) -> bool:
    """Return whether a layer, or its reverse, has relu. cuDNN's relu is a maximum, which loses NaN."""
    return bool(op.attrs.get("nonlinearity") == "relu")


def _kept_by(op: Op) -> Sequence[Value]:
    """The residuals of a layer that an op reads, if it is a reverse with only those cotangents that cuDNN takes."""
    is_reverse = op.declared is COMPOSITE and op.attrs["name"] in REVERSES and set(op.attrs["given"]) <= set(COTANGENTS)
    return op.operands[len(op.operands) - LAYERS[_layer_of(op)].kept :] if is_reverse else ()


def _in_order(sequence: Array, op: Op) -> Array:
    """A sequence as a forward layer sees it: turned around if the layer goes backwards."""
    return flip(sequence, 0) if op.attrs["reverse"] else sequence


def _fits(operands: Sequence[Value], results: Sequence[Value]) -> bool:
    """Return whether cuDNN takes arrays of these sizes: something of everything, and not too much."""
    types: list[TensorType] = [operand.tensor for operand in operands]
    steps_batch = types[0].shape[:2]
    sizes = [type.size for type in types]
    wide = types[0].shape[1]
    return (
        all(isinstance(extent, int) for extent in steps_batch)
        and isinstance(wide, int)
        and wide <= MOST_IMAGES
        and min(sizes) > 0
        and 4 * max(*sizes, *(result.tensor.size for result in results)) < MOST_ELEMENTS
    )


def _is_reverse(user: Op, forward: Op, layer: Layer) -> bool:
    """Return whether an op is the reverse of a layer, of these very operands and results, and of no cotangent but those
    cuDNN takes.
    """
    name = forward.attrs["name"]
    if user.declared is not COMPOSITE or user.attrs["name"] != f"{name}_backward" or user.device != forward.device:
        return False
    given = user.attrs["given"]
    first, kept = len(given), len(given) + len(forward.operands)
    wanted = (forward.results[0], *forward.results[1 + layer.states :])
    return (
        set(given) <= set(COTANGENTS)
        and user.operands[first:kept] == forward.operands
        and user.operands[kept:] == wanted
        and user.attrs["reverse"] == forward.attrs["reverse"]
    )


def _is_next(forward: Op, reverse: Op, block: Block) -> bool:
    """Return whether the reverse follows in the same block, and no function is called in between that may come by here
    again.
    """
    if reverse not in block.ops:
        return False
    between = block.ops[block.ops.index(forward) + 1 : block.ops.index(reverse)]
    return not any(op.declared is CALL for op in walk_ops(Block((), between, block.end)))
