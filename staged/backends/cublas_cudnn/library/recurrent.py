"""Which recurrent layers are calls of cuDNN: a forward alone, or one with its reverse.

What a step keeps for the way back, cuDNN keeps in a reserve space of its own making. So a forward whose reverse is asked for
is taken together with it, where the two stand in one block and nothing else wants what the composite keeps; then the reserve
space is the pair's alone. cuDNN goes through a sequence from its beginning: what goes backwards is turned around before and after.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staged.backends.cublas_cudnn.library.cudnn import MOST_ELEMENTS, MOST_IMAGES
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.options import DeviceOptions
from staged.ir.types import TensorType
from staged.ir.users import Users
from staged.ops.array import Array
from staged.ops.library import FindWay, Way, library_call
from staged.ops.record import RecordContext
from staged.ops.shape import flip
from staged.ops.source import zeros

FORWARD, BACKWARD = "recurrent", "recurrent_backward"


@dataclass(frozen=True, slots=True)
class Layer:
    """What a composite takes and gives besides x, the weights and ys: states, and results that only its reverse reads."""

    states: int
    kept: int


LAYERS = {"lstm": Layer(2, 2), "gru": Layer(1, 2), "rnn": Layer(1, 0)}


class Recurrent:
    """The ways of the recurrent layers of a function, in program order."""

    def __init__(self, function: Function, users: Users, options: DeviceOptions) -> None:
        self.name = re.sub(r"\W", "_", function.name)
        self.users = users
        self.options = options
        self.pairs: dict[Op, Op] = {}
        """The forward of each reverse that is taken."""
        self.made: dict[Op, tuple[str, Value, Value]] = {}
        """For each of these forwards: its reserve space, and the x and ys of the call."""
        self.ways: dict[str, FindWay] = {}
        for name in LAYERS:
            self.ways |= {name: self.forward, f"{name}_backward": self.backward}

    def forward(self, op: Op, block: Block) -> Way | None:
        """(ys, last states, what the reverse would read) of a layer."""
        layer = LAYERS[op.attrs["name"]]
        if not _fits(op, layer):
            return None
        keepers = {user for kept in op.results[1 + layer.states :] for user in self.users.get(kept, ())}
        reverses = {user for user in self.users.get(op.results[0], ()) if user is not None and _is_reverse(user, op, layer)}
        is_pair = len(reverses) == 1 and all(_is_next(op, reverse, block) for reverse in reverses)
        if not keepers <= (reverses if is_pair else set()):
            return None
        reserve = ""
        if is_pair:
            (reverse,) = reverses
            assert reverse is not None
            self.pairs[reverse] = op
            reserve = f"{self.name}_reserve_{len(self.pairs)}"

        def write(context: RecordContext, x: Array, *rest: Array) -> Sequence[Array]:
            x = _in_order(x, op)
            types = [result.tensor for result in op.results[: 1 + layer.states]]
            ys, *states = library_call(FORWARD, [x, *rest], types, **self.attrs(op, reserve))
            if reserve:
                self.made[op] = reserve, context.value_of(x), context.value_of(ys)
            nobody_reads = [zeros(kept.tensor.shape, kept.tensor.dtype) for kept in op.results[1 + layer.states :]]
            return [_in_order(ys, op), *states, *nobody_reads]

        return Way(write)

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangents of x, the states, the weights and the biases."""
        forward = self.pairs.get(op)
        if forward is None:
            return None
        given, states = str(op.attrs["given"]), LAYERS[forward.attrs["name"]].states

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            reserve, *made = self.made[forward]
            x, ys = (context.handle(value) for value in made)
            cts = dict(zip(given, operands, strict=False))
            weights = operands[len(given) + 1 : len(given) + len(forward.operands)]
            d_ys = _in_order(cts["y"], op) if "y" in cts else zeros(ys.shape, ys.dtype)
            of_states = [cts[letter] for letter in "hc"[:states] if letter in cts]
            attrs = self.attrs(forward, reserve)
            arrays = [x, ys, d_ys, *weights, *of_states]
            types = [result.tensor for result in op.results]
            d_x, *rest = library_call(BACKWARD, arrays, types, given=given.replace("y", ""), **attrs)
            return [_in_order(d_x, op), *rest]

        return Way(write)

    def attrs(self, op: Op, reserve: str) -> dict[str, Any]:
        """What the call of a layer must know of it."""
        name = str(op.attrs["name"])
        biases = len(op.operands) - 3 - LAYERS[name].states
        mode = name if name != "rnn" else f"rnn_{op.attrs['nonlinearity']}"
        return {"mode": mode, "biases": biases, "reserve": reserve, "tf32": self.options.tf32}


def _in_order(sequence: Array, op: Op) -> Array:
    """A sequence as a forward layer sees it: turned around if the layer goes backwards."""
    return flip(sequence, 0) if op.attrs["reverse"] else sequence


def _fits(op: Op, layer: Layer) -> bool:
    """Whether cuDNN takes arrays of these sizes: something of everything, and not too much."""
    types: list[TensorType] = [operand.tensor for operand in op.operands]
    steps_batch = types[0].shape[:2]
    sizes = [type.size for type in types]
    wide = types[0].shape[1]
    return (
        all(isinstance(extent, int) for extent in steps_batch)
        and isinstance(wide, int)
        and wide <= MOST_IMAGES
        and min(sizes) > 0
        and 4 * max(*sizes, *(result.tensor.size for result in op.results)) < MOST_ELEMENTS
    )


def _is_reverse(user: Op, forward: Op, layer: Layer) -> bool:
    """Whether an op is the reverse of a layer, of these very operands and results, and of no cotangent but those cuDNN takes."""
    name = forward.attrs["name"]
    if user.name != "composite" or user.attrs["name"] != f"{name}_backward" or user.device != forward.device:
        return False
    given = user.attrs["given"]
    first, kept = len(given), len(given) + len(forward.operands)
    wanted = (forward.results[0], *forward.results[1 + layer.states :])
    return (
        set(given) <= set("yhc")
        and user.operands[first:kept] == forward.operands
        and user.operands[kept:] == wanted
        and user.attrs["reverse"] == forward.attrs["reverse"]
    )


def _is_next(forward: Op, reverse: Op, block: Block) -> bool:
    """Whether the reverse follows in the same block, and no function is called in between that may come by here again."""
    if reverse not in block.ops:
        return False
    between = block.ops[block.ops.index(forward) + 1 : block.ops.index(reverse)]
    return not any(op.name == "call" for op in walk_ops(Block((), between, block.end)))
