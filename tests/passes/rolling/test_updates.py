"""`update_in_loops`: updates join the loop that computes the gradients, or scales them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Effect, Function, Label, Value, VariableRef, walk_ops
from staged.ir.structure import FOR, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import COUNT, Integers
from staged.ir.types import SequenceType, TensorType, dtype_of
from staged.ir.verifier import verify
from staged.ir.views import Loop
from staged.passes.rolling.updates import update_in_loops

NUMBER = TensorType(dtype_of("f64"), ())
LAYERS = 4


def family(name: str) -> VariableRef:
    members = tuple([VariableRef(f"{name}.{k}", NUMBER, True) for k in range(LAYERS)])
    return replace(members[0], name=name, members=members)


class Program:
    """A function of a number, `scale`, with loops over layers."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.variables: list[VariableRef] = []

    def made(self) -> Function:
        """The program after the pass."""
        with self.builder.block([NUMBER]) as opened:
            self.scale = opened.params[0]
            self.contents()
            self.builder.end("return", [self.scale], None, None)
        made = update_in_loops(Function("f", opened.block, variables=self.variables))
        verify(made, "update in loops")
        return made

    def contents(self) -> None:
        raise NotImplementedError

    def read(self, variable: VariableRef, *index: Value) -> Value:
        effects = (Effect("read", variable),)
        return self.builder.op(VARIABLE_READ, index, [NUMBER], attrs={"variable": variable}, effects=effects).result

    def write(self, variable: VariableRef, value: Value, *index: Value) -> None:
        attrs, effects = {"variable": variable}, (Effect("write", variable),)
        self.builder.op(VARIABLE_WRITE, [value, *index], [], attrs=attrs, effects=effects)

    def times(self, left: Value, right: Value) -> Value:
        return self.builder.op(prims.MULTIPLY, [left, right], [NUMBER]).result

    def loop(self, bounds: tuple[int, int, int], body, collected: int = 0) -> Value | None:
        """A loop; `body` returns what an iteration collects."""
        numbers = [Integers(self.builder, None).constant(bound) for bound in bounds]
        with self.builder.block([COUNT]) as opened:
            self.builder.end("yield", body(opened.params[0]), None, None)
        types = [SequenceType(NUMBER, LAYERS)] * collected
        attrs = {"label": Label("layer")} | ({"collected": collected} if collected else {})
        op = self.builder.op(FOR, numbers, types, attrs=attrs, blocks=[opened.block])
        return op.results[0] if collected else None

    def scaled(self, bounds: tuple[int, int, int] = (0, LAYERS, 1)) -> Value:
        """The loop that makes gradients."""
        made = self.loop(bounds, lambda _: [self.times(self.scale, self.scale)], collected=1)
        assert made is not None
        return made

    def update(self, weights: VariableRef, gradients: Value, rate: Value) -> None:
        def body(index: Value) -> list[Value]:
            gradient = self.builder.op(SEQUENCE_GET, [gradients, index], [NUMBER]).result
            self.write(weights, self.times(self.read(weights, index), self.times(gradient, rate)), index)
            return []

        self.loop((0, LAYERS, 1), body)


def loops(block: Block) -> list[bool]:
    """Of each loop, whether it updates."""
    found = [op for op in block.ops if op.declared is FOR]
    return [any(inner.declared is VARIABLE_WRITE for inner in walk_ops(Loop(op).body)) for op in found]


@pytest.mark.parametrize(
    ("bounds", "joins"), [((0, LAYERS, 1), True), ((1, LAYERS + 1, 1), False), ((0, 2 * LAYERS, 2), False)]
)
def test_an_update_joins_a_loop_that_counts_its_layers(bounds: tuple[int, int, int], joins: bool) -> None:
    class Scaled(Program):
        def contents(self) -> None:
            weights = family("w")
            self.variables = [weights]
            self.update(weights, self.scaled(bounds), self.scale)

    assert loops(Scaled().made().block) == ([True] if joins else [False, True])


def test_updates_of_two_groups_share_what_comes_early() -> None:
    class Groups(Program):
        def contents(self) -> None:
            first, second, rate = family("w"), family("b"), VariableRef("rate", NUMBER, True)
            self.variables = [first, second, rate]
            gradients = [self.scaled(), self.scaled()]
            read = self.read(rate)
            for weights, given in zip((first, second), gradients, strict=True):
                self.update(weights, given, read)

    block = Groups().made().block
    assert loops(block) == [True, True]
    assert sum(op.declared is VARIABLE_READ for op in block.ops) == 1


def test_a_rate_that_is_written_in_between_is_read_after_that() -> None:
    class Written(Program):
        def contents(self) -> None:
            weights, rate = family("w"), VariableRef("rate", NUMBER, True)
            self.variables = [weights, rate]
            gradients = self.scaled()
            self.write(rate, self.scale)
            self.update(weights, gradients, self.read(rate))

    assert loops(Written().made().block) == [False, True]


def test_a_weight_that_is_read_in_between_is_that_before_the_update() -> None:
    class Read(Program):
        def contents(self) -> None:
            weights, kept = family("w"), VariableRef("kept", NUMBER, True)
            self.variables = [weights, kept]
            gradients = self.scaled()
            self.write(kept, self.read(weights, Integers(self.builder, None).constant(0)))
            self.update(weights, gradients, self.scale)

    assert loops(Read().made().block) == [False, True]


def test_a_second_update_by_the_same_gradients_stays_where_it_is() -> None:
    class Twice(Program):
        def contents(self) -> None:
            first, second = family("w"), family("b")
            self.variables = [first, second]
            gradients = self.scaled()
            self.update(first, gradients, self.scale)
            self.update(second, gradients, self.scale)

    assert loops(Twice().made().block) == [True, True]
