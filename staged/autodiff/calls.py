"""Derivatives of calls. Forward: a call of a function that takes and returns tangents too; reverse: a pair of
functions.

    y = f(n, w)         =>   y, frame = f_forward(n, w)          leaves what the reverse needs
                             d_n, d_w = f_backward(frame, w, d_y, d_w)

A function that calls itself, directly or through others, leaves a frame: a record on a last-in-first-out store that
holds the frames of the calls inside it. Any other just returns what is needed: the caller keeps it as any other
residual.

*Shared* parameters are never kept: every caller of the reverse has them at hand. Of recursive functions these are the
invariant ones, which every call among them passes on as they are (weights, the arrays of a tree). The cotangents of
shared parameters may be *running sums*, taken and returned: a weight's gradient is added to where it stands, once per
call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from staged.autodiff.activity import ACTIVE, Activity, has_frames
from staged.autodiff.composites import open_composites
from staged.autodiff.copiers import EXTENDED, PrimalCopier, ReverseCopier, is_loud
from staged.autodiff.cotangents import Cotangents, d_name
from staged.autodiff.forward import FORWARDS, Forward, activity_of, dot_name
from staged.autodiff.recursion import DerivativeRequests, Group, group_of, requests_within
from staged.autodiff.residuals import ExtraResults, Prologue, described
from staged.autodiff.reverse import REVERSES, Reverse
from staged.ir.builder import Builder, OpenBlock
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, FrameRecord, Function, Op, Value
from staged.ir.structure import CALL, CUSTOM_VJP, FRAME_LOAD, FRAME_SAVE
from staged.ir.types import FrameType, Type
from staged.ir.views import Call
from staged.source import in_backward


@dataclass
class Pair:
    """The two functions, and the signature of the second: residuals, shared parameters, cotangents of `seeds`, running
    sums; it returns the cotangents of `plain`, then the sums.
    """

    forward: str
    backward: str
    residuals: list[tuple[Type, str]]
    """Results that forward returns after its own, with hints."""
    shared: tuple[int, ...]
    seeds: tuple[int, ...]
    plain: tuple[int, ...]
    sums: tuple[int, ...]


@ACTIVE.rule(CALL)
def active_call(activity: Activity, op: Op, active: set[Value]) -> None:
    """The results that are active inside of the function."""
    numbers = tuple(number for number, operand in enumerate(op.operands) if operand in active)
    if numbers or (activity.forward and any(has_frames(result) for result in op.results)):
        found = activity.results(op, numbers)
        active.update(result for number, result in enumerate(op.results) if number in found)


@REVERSES.rule(CALL)
def reverse_call(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Write the reverse of a call: takes the cotangents of its results, adds to those of its arguments.

    Exact: of an argument that is passed twice one running sum goes on and the other begins with zeros, which are added
    at the end; a parameter that the function does not read gets its sum back as it was.

    If no result has a cotangent, only the call's frames get (zero) cotangents; other zero cotangents are discarded, so
    that no further value becomes active.
    """
    found = [env.take(result) for result in op.results]
    moves = any(cotangent is not None for cotangent in found)
    pair = pair_for(reverse, op, env, tuple(number for number, ct in enumerate(found) if ct is not None))
    lost = [number for number, ct in enumerate(found) if ct is not None and number not in pair.seeds]
    assert not lost, f"the cotangents of results {lost} of {op} would be lost"
    extra = reverse.residuals.extra(op)
    extra.function = pair.forward
    extra.own = [Value(type, hint) for type, hint in pair.residuals]
    env.made.update(extra.own)

    operands = [*extra.own, *(op.operands[number] for number in pair.shared)]
    operands += [reverse.or_zeros(found[number], op.results[number], op) for number in pair.seeds]
    first_sum = len(operands)
    begun: dict[Value, int] = {}
    for number in pair.sums:
        operand = op.operands[number]
        # An argument that is passed twice has one sum so far, which only one of them goes on with.
        so_far = env.get(operand) if operand in reverse.active and begun.setdefault(operand, number) == number else None
        operands.append(reverse.or_zeros(so_far, operand, op))
    given = [*pair.plain, *pair.sums]
    types = [reverse.tangent_types.type(op.operands[number].type) for number in given]
    in_place = tuple((first_sum + number, len(pair.plain) + number) for number in range(len(pair.sums)))
    attrs = {"function": pair.backward, "in_place": in_place} if in_place else {"function": pair.backward}
    call = reverse.builder.op(CALL, operands, types, attrs=attrs, where=in_backward(op.where))
    results = dict(zip(given, call.results, strict=True))
    params = reverse.pool.body(Call(op).function, op.where).block.params
    for number, result in results.items():
        # An argument without a name (`f(x * 0.5)`) is known by the parameter that it is for.
        result.hint = d_name(op.operands[number]) or d_name(params[number])
    for operand, number in begun.items():
        if operand in reverse.active:
            result = results.pop(number)
            if moves or env.get(operand) is not None:
                env.set(operand, result)
    for number, result in results.items():
        if moves or has_frames(op.operands[number]):
            reverse.accumulate(env, op.operands[number], result)


@EXTENDED.rule(CALL)
def extended_call(copier: PrimalCopier, op: Op, extra: ExtraResults) -> None:
    """A call of the forward function, which returns what the reverse needs."""
    operands = [copier.value(operand) for operand in op.operands]
    copier.extended(op, operands, [*op.results, *extra.own], attrs={**op.attrs, "function": extra.function})


def is_from_outside(value: Value, env: Cotangents) -> bool:
    """Return whether a value is made outside of the block, or is a parameter of the whole code."""
    return value not in env.made or (env.around is None and value.producer is None)


def pair_for(reverse: Reverse, call: Op, env: Cotangents, seeds: tuple[int, ...]) -> Pair:
    """The pair for a function, the arguments that get cotangents and the results that have them: made when first
    needed.
    """
    pool, name = reverse.pool, Call(call).function
    active = tuple(number for number, operand in enumerate(call.operands) if operand in reverse.active)
    quiet = reverse.quiet and is_loud(pool, call)
    asked = reverse.requests
    group = None
    if name not in asked:
        group = group_of(pool, name, call.where)
        asked = (
            {name: (active, seeds)} if group is None else requests_within(reverse.activity, group, call, active, seeds)
        )
    active, seeds = asked[name]
    key = ("vjp", name, active, seeds, quiet)
    if key not in pool.memo:
        group = group_of(pool, name, call.where)
        writer = _Writer(reverse, call, active, seeds, quiet)
        if group is None:
            # A weight from outside of the block is added to in place; what the block makes is used up at once.
            lasting = tuple(number for number in active if is_from_outside(call.operands[number], env))
            pool.memo[key] = writer.finish(lasting)
        else:
            # Entered before it is written: calls inside it refer to it by name.
            writer.reverse.requests = asked
            pool.memo[key] = writer.pair = writer.recursive(group)
            writer.finish(())
    found = pool.memo[key]
    assert isinstance(found, Pair)
    return found


class _Writer:
    """Writes one pair."""

    def __init__(
        self, reverse: Reverse, call: Op, active: tuple[int, ...], seeds: tuple[int, ...], quiet: bool
    ) -> None:
        self.pool = reverse.pool
        self.function = self.pool.body(Call(call).function, call.where)
        self.block = open_composites(self.function.block)
        self.active = active
        self.seeds = seeds
        self.quiet = quiet
        self.call = call
        self.reverse = Reverse(self.pool, self.block, [self.block.params[number] for number in active], quiet)
        self.pair: Pair | None = None

    def recursive(self, group: Group) -> Pair:
        """The pair of a function that calls itself: its whole signature follows from the request."""
        name = self.function.name
        shared = tuple(sorted(group[name]))
        sums = tuple(number for number in self.active if number in shared)
        plain = tuple(number for number in self.active if number not in shared)
        frame = FrameType(self.pool.fresh_frame(f"{name}_frame"))
        forward, backward = self.pool.fresh(f"{name}_forward"), self.pool.fresh(f"{name}_backward")
        return Pair(forward, backward, [(frame, f"{name}_frame")], shared, self.seeds, plain, sums)

    def finish(self, lasting: tuple[int, ...]) -> Pair:
        """Write both functions; where no signature is given, it follows from what the reverse needs."""
        block, reverse, pair, name = self.block, self.reverse, self.pair, self.function.name
        params, returned = block.params, block.end.operands
        types, builder = reverse.tangent_types, reverse.builder
        sums = pair.sums if pair is not None else lasting
        plain = tuple(number for number in self.active if number not in sums)
        # Shared parameters are at hand everywhere; those of a function that does not call itself are shared when they
        # are read.
        reverse.residuals.free.update(params if pair is None else (params[number] for number in pair.shared))
        env = Cotangents({*params, *(result for op in block.ops for result in op.results)})
        d_sums = [Value(types.type(params[number].type), d_name(params[number])) for number in sums]
        d_seeds = [Value(types.type(returned[n].type), d_name(returned[n]) or "d_result") for n in self.seeds]
        with builder.block() as opened:
            for number, value in zip(sums, d_sums, strict=True):
                env.set(params[number], value)
            for number, value in zip(self.seeds, d_seeds, strict=True):
                reverse.accumulate(env, returned[number], value)
            reverse.block(block, env)
            reverse.where, builder.device = in_backward(self.function.where), self.call.device
            given = [reverse.or_zeros(env.get(params[n]), params[n], self.call) for n in (*plain, *sums)]
            builder.end("return", given, None, block.end.where)

        residuals, alias = reverse.residuals, reverse.residuals.alias
        needed = reverse.needed(opened.block)
        shared_values: dict[int, Value] = {}
        if pair is not None:
            shared_values = {number: _copy(params[number]) for number in pair.shared}
            alias.update((params[number], value) for number, value in shared_values.items())
        prologue = Prologue(builder, opened)
        kept = residuals.fetch_from_function(block, env.made, needed, prologue)
        if pair is None:
            shared_values = {params.index(inside): outside for inside, outside in kept if inside in params}
            kept = [(inside, outside) for inside, outside in kept if inside not in params]
            forward = self.pool.fresh(f"{name}_forward") if self.changes(kept) else name
            backward = self.pool.fresh(f"{name}_backward")
            fields = [(outside.type, outside.hint) for _, outside in kept]
            shared = tuple(sorted(shared_values))
            pair = Pair(forward, backward, fields, shared, self.seeds, plain, sums)
            first = [outside for _, outside in kept]
        else:
            first = [self.load(pair, kept, prologue)]
        opened.params = (*first, *(shared_values[number] for number in pair.shared), *d_seeds, *d_sums)
        if pair.forward != name:
            self.forward(pair, [inside for inside, _ in kept])
        self.backward(pair, opened)
        return pair

    def changes(self, kept: list[tuple[Value, Value]]) -> bool:
        """Return whether the forward function differs from the function itself."""
        extras = self.reverse.residuals.extras
        replaced = any(
            op.declared is CUSTOM_VJP or extra.function not in ("", op.attrs.get("function"))
            for op, extra in extras.items()
        )
        return bool(kept) or self.quiet or replaced

    def load(self, pair: Pair, kept: list[tuple[Value, Value]], prologue: Prologue) -> Value:
        """List the fields of the frame, and load them in the prologue of the reverse; returns the parameter for the
        frame.
        """
        ((type, _),) = pair.residuals
        assert isinstance(type, FrameType)
        taken: dict[str, int] = {}
        fields = []
        for inside, _ in kept:
            name = described(inside) or "value"
            taken[name] = taken.get(name, 0) + 1
            fields.append((name if taken[name] == 1 else f"{name}_{taken[name]}", inside.type))
        self.pool.add_frame(FrameRecord(type.name, tuple(fields)))
        frame = Value(type, "frame")
        if kept:
            with prologue.open():
                types = [inside.type for inside, _ in kept]
                load = prologue.builder.op(FRAME_LOAD, [frame], types, where=self.function.where)
                for (inside, outside), result in zip(kept, load.results, strict=True):
                    result.hint = described(inside)
                    self.reverse.residuals.alias[outside] = result
        return frame

    def forward(self, pair: Pair, kept: list[Value]) -> None:
        """The function itself, leaving what its reverse needs."""
        block, builder = self.block, Builder()
        primal_copier = PrimalCopier(builder, self.reverse.residuals, self.pool, self.quiet)
        with builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
            primal_copier.values.update(zip(block.params, opened.params, strict=True))
            primal_copier.contents(block)
            results = [primal_copier.value(operand) for operand in block.end.operands]
            left = [primal_copier.value(value) for value in kept]
            if self.pair is not None:
                ((type, _),) = pair.residuals
                save = builder.op(FRAME_SAVE, left, [type], where=self.function.where)
                save.result.hint = "frame"
                left = [save.result]
            builder.end("return", [*results, *left], None, block.end.where)
        paths = (
            [*self.function.result_paths, *(hint for _, hint in pair.residuals)] if self.function.result_paths else []
        )
        self.enter(pair.forward, opened.block, self.function.param_paths, paths)

    def backward(self, pair: Pair, opened: OpenBlock) -> None:
        """The reverse, closed over its parameters."""
        reverse_copier = ReverseCopier(Builder(), self.reverse.residuals, {}, {})
        made = reverse_copier.block(opened.block)
        self.enter(pair.backward, made, [param.hint for param in made.params], [])

    def enter(self, name: str, block: Block, params: Iterable[str], results: Iterable[str]) -> None:
        function = self.function
        self.pool.add(
            Function(
                name,
                block,
                variables=function.variables,
                param_paths=tuple(params),
                result_paths=tuple(results),
                where=function.where,
            )
        )


def _copy(value: Value) -> Value:
    return Value(value.type, value.hint)


# ---- forward mode -------------------------------------------------------------------------------


@FORWARDS.rule(CALL)
def forward_call(forward: Forward, op: Op) -> None:
    """A call of the function with tangents.

    Exact: an argument that is passed twice has its tangent twice; what a group of functions wants of one is zeros where
    a call has less.
    """
    moved = tuple(number for number, operand in enumerate(op.operands) if operand in forward.tangents)
    if not moved and not any(has_frames(result) and forward.tangent_types.has(result.type) for result in op.results):
        forward.copied(op)
        return
    name, moved, chosen = _jvp_function(forward, op, moved)
    operands = [*map(forward.value, op.operands), *(forward.or_zeros(op.operands[number], op) for number in moved)]
    types = [result.type for result in op.results]
    types += [forward.tangent_types.type(op.results[number].type) for number in chosen]
    attrs = {**op.attrs, "function": name}
    if "in_place" in attrs:
        attrs["in_place"] += tuple(
            (len(op.operands) + moved.index(operand), len(op.results) + chosen.index(result))
            for operand, result in op.attrs["in_place"]
            if operand in moved and result in chosen
        )
    copy = forward.builder.append(op.replace(operands=operands, attrs=attrs, result_types=types))
    forward.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)


def _jvp_function(forward: Forward, call: Op, moved: tuple[int, ...]) -> tuple[str, tuple[int, ...], list[int]]:
    """The function that computes what `call` calls with tangents: its name, of which arguments it takes tangents, and
    of which results it gives them.

    It takes the arguments, then the tangents; it returns the results, then the tangents.
    """
    pool, original = forward.pool, Call(call).function
    activity = activity_of(pool)
    asked = forward.requests
    if original not in asked:
        group = group_of(pool, original, call.where)
        asked = {} if group is None else requests_within(activity, group, call, moved, ())
    if original in asked:
        moved, _ = asked[original]
    key = ("jvp", original, moved)
    if key not in pool.memo:
        chosen = sorted(activity.results(call, moved))
        # Entered before it is written: it may call itself.
        pool.memo[key] = (pool.fresh(f"{original}_jvp"), moved, chosen)
        pool.add(_written(pool, pool.memo[key][0], call, moved, chosen, asked))
    known: tuple[str, tuple[int, ...], list[int]] = pool.memo[key]
    return known


def _written(
    pool: FunctionPool, name: str, call: Op, moved: Sequence[int], chosen: Sequence[int], asked: DerivativeRequests
) -> Function:
    function = pool.body(Call(call).function, call.where)
    block = function.block
    moving = [block.params[number] for number in moved]
    builder = Builder()
    forward = Forward(builder, pool, activity_of(pool).values(block, moving))
    forward.requests = asked
    types = [param.type for param in block.params] + [forward.tangent_types.type(param.type) for param in moving]
    hints = [param.hint for param in block.params] + [dot_name(param) for param in moving]
    with builder.block(types, hints) as opened:
        forward.values.update(zip(block.params, opened.params, strict=False))
        forward.tangents.update(zip(moving, opened.params[len(block.params) :], strict=True))
        forward.contents(block)
        if block.end.kind == "return":
            builder.end("return", forward.yields(block, chosen, call), None, block.end.where)
        else:
            forward.end(block)
    paths = [*function.param_paths, *map(dot_name, moving)]
    return Function(name, opened.block, variables=function.variables, param_paths=paths, where=function.where)
