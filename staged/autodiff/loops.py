"""Derivatives of loops. Forward: the same loop, with the tangents of what it carries and collects.

Reverse: a `for` that counts the primal's iterations down. Its carried values are the cotangents of the primal's carried
values, and the running sums of the cotangents of values from outside. In iteration k it reads what the primal collected
in its iteration k.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staged.autodiff.activity import ACTIVE, Activity
from staged.autodiff.copiers import EXTENDED, PrimalCopier
from staged.autodiff.cotangents import Cotangents, LoopCotangents, d_name
from staged.autodiff.forward import FORWARDS, Forward, dot_name
from staged.autodiff.residuals import ExtraResults, Prologue
from staged.autodiff.reverse import REVERSES, Reverse, made_in
from staged.ir.declaration import prims
from staged.ir.names import LibraryName
from staged.ir.nodes import End, Label, Op, Value, free_values
from staged.ir.structure import FOR, SEQUENCE_GET, WHILE
from staged.ir.trips import COUNT, Integers, constant_of, static_trip_count
from staged.ir.types import SequenceType
from staged.ir.views import Loop
from staged.source import in_backward


@ACTIVE.rule(FOR, WHILE)
def active_loop(activity: Activity, op: Op, active: set[Value]) -> None:
    """Carried values are followed until nothing changes."""
    loop = Loop(op)
    body, carried = loop.body, loop.carried
    activity.mark(carried, loop.initial, active)
    while True:
        activity.visit(body, active)
        if body.end.kind != "yield" or not activity.mark(carried, body.end.operands, active):
            break
    activity.mark(loop.collected, loop.elements, active)
    activity.mark(loop.final, carried, active)


@REVERSES.rule(FOR, WHILE)
def reverse_loop(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Write the reverse of the loop `op`: takes the cotangents of its results, adds to those of what it read.

    Exact: it has as many iterations as the primal had, early exits included; without any the cotangents of the results
    are those of the initial values, and sums stay as they were.
    """
    loop = Loop(op)
    body = loop.body
    cotangents = [env.take(result) for result in op.results]
    if body.end.kind != "yield":
        return  # every iteration stops the program: there is nothing to come back from
    carried, initial = loop.carried, loop.initial
    collected = [
        (yielded, cotangent)
        for yielded, cotangent in zip(loop.elements, cotangents[len(carried) :], strict=True)
        if cotangent is not None
    ]
    seeds = {index for index in range(len(carried)) if cotangents[index] is not None}
    indices = _indices_reached(op, seeds, [yielded for yielded, _ in collected], reverse.active)
    if not indices and not collected and op not in reverse.forced:
        return
    builder, where, device = reverse.builder, in_backward(op.where), op.device
    integers = Integers(builder, where)
    last = _last_iteration(reverse, op, env, integers)
    minus_one = integers.constant(-1)
    start = [reverse.or_zeros(cotangents[index], op.results[index], op) for index in indices]
    inner = LoopCotangents(made_in(body), env, reverse.tangent_types, sequences_read_by_index(op))

    with builder.block(
        [COUNT, *(value.type for value in start)], ["k", *(d_name(carried[index]) for index in indices)]
    ) as opened:
        count, *d_next = opened.params
        for yielded, sequence in collected:
            assert isinstance(sequence.type, SequenceType)
            place = Integers(builder, where).place(op, count)
            element = builder.op(SEQUENCE_GET, [sequence, place], [sequence.type.element], where=where).result
            reverse.accumulate(inner, yielded, element)
        for index, cotangent in zip(indices, d_next, strict=True):
            reverse.accumulate(inner, body.end.operands[index], cotangent)
        reverse.block(body, inner)
        reverse.where, builder.device = where, device
        stray = [param for index, param in enumerate(carried) if param in inner.local and index not in indices]
        assert not stray, f"the cotangent of {stray} would be lost"
        before = [reverse.or_zeros(inner.take(carried[index]), carried[index], op) for index in indices]
        sums = list(inner.sums)
        elements = [inner.local[value] for value in inner.elements.values()]
        after = [*before, *(inner.local.get(value, inner.sums[value]) for value in sums)]
        builder.end("yield", [*after, *elements], where=where)
    if elements and loop.index.hint and constant_of(loop.bounds[0]) == 0:
        count.hint = loop.index.hint  # iteration k of the primal has the index k
    opened.params = (*opened.params, *(inner.sums[value] for value in sums))
    needed = reverse.needed(opened.block)
    kept, handed_down = reverse.residuals.fetch_from_loop(op, inner.made, needed, Prologue(builder, opened), count)
    env.made.update(kept)
    opened.params = (*opened.params, *(down.param for down in handed_down))
    assert opened.ending is not None
    opened.ending = End("yield", (*after, *(down.next for down in handed_down), *elements), None, where)

    start += [reverse.or_zeros(env.get(value), value, op) for value in sums]
    start += [op.results[down.index] for down in handed_down]
    again = builder.op(
        FOR,
        [last, minus_one, minus_one, *start],
        [*(value.type for value in start), *(reverse.tangent_types.type(value.type) for value in inner.elements)],
        attrs={"label": Label(f"{loop.label.name}_reverse"), **_layer(op), **_collecting(op, len(elements))},
        blocks=[opened.block],
        where=where,
    )
    for value, result in zip(inner.elements, again.results[len(start) :], strict=True):
        result.hint = d_name(value)
        reverse.accumulate(env, value, result)
    for value, result in zip(sums, again.results[len(indices) :], strict=False):
        result.hint = d_name(value)
        env.set(value, result)
    for index, result in zip(indices, again.results, strict=False):
        result.hint = d_name(initial[index])
        reverse.accumulate(env, initial[index], result)


def sequences_read_by_index(op: Op) -> set[Value]:
    """The sequences from outside of a `for` of which each iteration reads nothing but the element at its index, if the
    loop has every index of the sequence once.
    """
    if op.declared is not FOR:
        return set()
    body, trips, index = Loop(op).body, static_trip_count(op), Loop(op).index
    start, _, step = map(constant_of, Loop(op).bounds)
    if not trips or (start, step) not in ((0, 1), (trips - 1, -1)):
        return set()
    own = {inner.operands[0] for inner in body.ops if inner.declared is SEQUENCE_GET and inner.operands[1] is index}
    own = {value for value in own if isinstance(value.type, SequenceType) and value.type.bound == trips}
    others = [value for inner in body.ops if inner.declared is not SEQUENCE_GET for value in inner.operands]
    others += [
        value
        for inner in body.ops
        if inner.declared is SEQUENCE_GET and inner.operands[1] is not index
        for value in inner.operands
    ]
    others += [value for inner in body.ops for block in inner.blocks for value in free_values(block)]
    return own.difference(others, body.end.operands, made_in(body))


def _layer(op: Op) -> dict[str, object]:
    """The attribute of a reverse loop over layers: it has the indices of its primal."""
    return {"layer": op.attrs["layer"]} if "layer" in op.attrs else {}


def _collecting(op: Op, count: int) -> dict[str, int | bool]:
    """The attributes of a reverse loop that collects `count` cotangents of elements.

    If the primal counts up, the reverse meets the last element first; if it counts down, the first one.
    """
    if not count:
        return {}
    return {"collected": count, "by_index": True} if constant_of(Loop(op).bounds[0]) == 0 else {"collected": count}


def _indices_reached(op: Op, seeds: set[int], outputs: Iterable[Value], active: set[Value]) -> list[int]:
    """The carried values of a loop that get a cotangent in some iteration, if the results `seeds` have one.

    `outputs` are values of the body that have cotangents of their own (collected ones). A carried value that feeds one
    that has a cotangent has one itself in the iteration before; others are not carried.
    """
    body, carried = Loop(op).body, Loop(op).carried
    indices = set(seeds)
    while True:
        useful = {body.end.operands[index] for index in indices} | set(outputs)
        for inner in reversed(body.ops):
            if any(result in useful for result in inner.results):
                useful.update(inner.operands)
                for block in inner.blocks:
                    useful.update(free_values(block))
        more = {index for index, param in enumerate(carried) if param in useful and param in active} - indices
        if not more:
            return sorted(index for index in indices if carried[index] in active)
        indices |= more


def _last_iteration(reverse: Reverse, op: Op, env: Cotangents, integers: Integers) -> Value:
    """The number of the primal's last iteration, -1 where it has none."""
    if op.declared is WHILE:
        trips = reverse.residuals.trip_count(op, env.made)
    else:
        static = static_trip_count(op)
        if static is not None:
            return integers.constant(static - 1)
        trips = integers.trips(op)
    last = integers.binary(prims.SUBTRACT, trips, integers.constant(1))
    last.hint = LibraryName("last")
    return last


@EXTENDED.rule(FOR, WHILE)
def extended_loop(copier: PrimalCopier, op: Op, extra: ExtraResults) -> None:
    """The loop collects residuals, and carries a count of its iterations where the reverse needs their number."""
    loop, builder = Loop(op), copier.builder
    carried = len(loop.carried)
    count = [] if extra.count is None else [extra.count]
    integers = Integers(builder, op.where)
    operands = [*map(copier.value, op.operands), *(integers.constant(0) for _ in count)]
    label = copier.labels[loop.label] = Label(loop.label.name)
    blocks = []
    for block in op.blocks:
        types = [value.type for value in (*block.params, *count)]
        with builder.block(types, [value.hint for value in (*block.params, *count)]) as opened:
            copier.values.update(zip(block.params, opened.params, strict=False))
            copier.contents(block)
            if block is loop.body and block.end.kind == "yield":
                given = [copier.value(operand) for operand in block.end.operands]
                more = [integers.binary(prims.ADD, opened.params[-1], integers.constant(1)) for _ in count]
                left = [copier.value(inside) for inside, _ in extra.values]
                builder.end("yield", [*given[:carried], *more, *given[carried:], *left], None, block.end.where)
            else:
                copier.end(block)
        blocks.append(opened.block)
    results = [*loop.final, *count, *loop.collected, *(outside for _, outside in extra.values)]
    attrs = loop.attrs_collecting(loop.collecting + len(extra.values)) | {"label": label}
    copier.extended(op, operands, results, blocks=blocks, attrs=attrs)


@FORWARDS.rule(FOR, WHILE)
def forward_loop(forward: Forward, op: Op) -> None:
    """The same loop, which carries and collects tangents too.

    Exact: it has as many iterations as the primal; without any its tangents are those of its initial values.
    """
    loop = Loop(op)
    body, carried, initial = loop.body, loop.carried, loop.initial
    count = len(carried)
    indices = forward.chosen(carried)
    collected = [number for number in forward.chosen(op.results) if number >= count]
    operands = [*map(forward.value, op.operands), *(forward.or_zeros(initial[index], op) for index in indices)]
    types = [forward.tangent_types.type(carried[index].type) for index in indices]
    hints = [dot_name(carried[index]) for index in indices]
    forward.labels[loop.label] = Label(loop.label.name)
    attrs = loop.attrs_collecting(loop.collecting + len(collected)) | {"label": forward.labels[loop.label]}
    blocks = []
    for block in op.blocks:
        param_types = [*(param.type for param in block.params), *types]
        with forward.builder.block(param_types, [*(param.hint for param in block.params), *hints]) as opened:
            forward.values.update(zip(block.params, opened.params, strict=False))
            if block is body:
                tangents = opened.params[len(body.params) :]
                forward.tangents.update(zip((carried[index] for index in indices), tangents, strict=True))
            forward.contents(block)
            if block is body:
                forward.close(block, lambda: _body_yields(forward, op, indices, collected, count))
            else:
                forward.end(block)
        blocks.append(opened.block)
    results = op.results
    new_types = [result.type for result in results[:count]] + types + [result.type for result in results[count:]]
    new_types += [forward.tangent_types.type(results[number].type) for number in collected]
    copy = forward.builder.append(op.replace(operands=operands, blocks=blocks, attrs=attrs, result_types=new_types))
    primal = [*results[:count], *(None for _ in indices), *results[count:], *(None for _ in collected)]
    forward.took(op, copy.results, primal, [*indices, *collected])


def _body_yields(forward: Forward, op: Op, indices: Sequence[int], collected: Sequence[int], count: int) -> list[Value]:
    given = op.blocks[-1].end.operands
    tangents = [forward.or_zeros(given[index], op) for index in indices]
    values = [forward.value(value) for value in given]
    return [*values[:count], *tangents, *values[count:], *(forward.or_zeros(given[number], op) for number in collected)]
