"""A staged function that calls itself: traced as a closed block, a function of the program.

Calls that match it become `call` ops. Its result is unknown at first, so in the first attempt such calls do not return
and the base cases give the template; attempts repeat until template, captures and state are what was assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType, MethodType
from typing import Any

from staged.errors import GradientError, StagingError, StaticStateError
from staged.frontend.calls.call import call
from staged.frontend.calls.call_arguments import CallArguments, Slots, program_name
from staged.frontend.calls.open_calls import (
    Activation,
    CallsItself,
    Functions,
    KnownSpecialisation,
    OpenCalls,
    Specialisation,
)
from staged.frontend.exits.targets import CarryingTarget, Key
from staged.frontend.syntax.user_code import is_user_code
from staged.frontend.trace.attempts import Attempt, OpenTransform
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.locals import Locals, VariableStates
from staged.frontend.trace.signals import ENDED, Again, BlockEndedError, Body, Signal
from staged.frontend.values import trees
from staged.frontend.values.dimensions import bind_again
from staged.frontend.values.join import Template, materialise, position_of
from staged.frontend.values.mutation import check_body
from staged.frontend.values.objects import Copied
from staged.frontend.values.trees import mutable_nodes
from staged.frontend.values.variable import key_of, read_variable, variables_by_key, write_variable
from staged.ir.builder import Builder
from staged.ir.names import as_name
from staged.ir.nodes import FAIL, Block, EndKind, Function, Op, Value, free_values
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL
from staged.ir.types import TensorType
from staged.ops.array import StagedArray
from staged.source import Position, here, position_of_function

# ---- the function -------------------------------------------------------------------------------


def trace_function(trace: TraceContext, function: Callable[..., Any], given: CallArguments, slots: Slots) -> Any:
    """Trace `function` as a function of the program that serves `slots`, and call it."""
    name = getattr(function, "__name__", type(function).__name__)
    where = here()
    functions = trace.of(Functions)
    special = _fresh(trace, f"{name}#{next(functions.numbers)}", slots, bool(trace.transforms))
    special = _as_expected(trace, function, given, special)
    finished = len(functions.finished)

    def run(attempt: Attempt) -> _FunctionAttempt | None:
        traced = _FunctionAttempt(trace, function, given, special, name, attempt)
        is_settled = False
        try:
            traced.run()
            is_settled = traced.settles()
        finally:
            if not is_settled:
                del functions.finished[finished:]  # they call it as it was assumed to be
        if not is_settled and traced.learned is not None:
            raise Again(attempt, traced.learned)
        if not is_settled:
            attempt.take_back()
        return traced if is_settled else None

    def learn(reason: CallsItself | Specialisation) -> None:
        nonlocal special
        if isinstance(reason, CallsItself):
            special = _fresh(trace, special.name, reason.slots, reason.with_state or special.with_state)
        else:
            special = reason
            _expect(trace, function, given, special)

    traced = trace.until_settled(f"`{name}`", lambda: [*trace.shared], run, learn)
    if traced is None:
        return _never_returns(trace, function, special, where)
    functions.by_name[special.name] = traced.finish()
    if not any(open_.special is not None for open_ in trace.of(OpenCalls).activations):
        functions.finished.clear()
    elif _is_of_module(function) and not any(value in trace.block_of for value in special.captures):
        functions.finished.append(KnownSpecialisation(function, given.structure, special))
    return emit_call(trace, special, given)


def _fresh(trace: TraceContext, name: str, slots: Slots, with_state: bool) -> Specialisation:
    return Specialisation(name, slots, len(trace.transforms) + with_state, with_state=with_state)


def _expect(trace: TraceContext, function: Callable[..., Any], given: CallArguments, special: Specialisation) -> None:
    """Note what an attempt has found, for the next time that the function is traced: its callers are traced several
    times.
    """
    if _is_of_module(function):
        functions = trace.of(Functions)
        functions.expected = [known for known in functions.expected if not known.is_of(function, given, special)]
        functions.expected.append(KnownSpecialisation(function, given.structure, special))


def _as_expected(
    trace: TraceContext, function: Callable[..., Any], given: CallArguments, special: Specialisation
) -> Specialisation:
    for known in trace.of(Functions).expected:
        if known.is_of(function, given, special):
            visible = [value for value in known.special.captures if value not in trace.block_of]
            return replace(special, result=known.special.result, captures=visible)
    return special


def _is_of_module(function: Callable[..., Any]) -> bool:
    """Return whether a function closes over nothing (but the class around a method)."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    cells = getattr(plain, "__closure__", None) or ()
    return isinstance(plain, FunctionType) and all(isinstance(cell.cell_contents, type) for cell in cells)


def _never_returns(
    trace: TraceContext, function: Callable[..., Any], special: Specialisation, where: Position | None
) -> Any:
    name = special.user_name
    if not special.waits:
        raise StagingError(
            f"`{name}` calls itself on every path: it would never return",
            where=special.unknown_at or position_of_function(function),
            hint="return without a further call on one path (`if n == 0: return ...`)",
        )
    # A function around it calls it and is called by it: that one's base cases come first.
    trace.builder.end("raise", (), None, where)
    raise BlockEndedError


class _FunctionAttempt:
    """One attempt to trace a function under the assumptions of `special`."""

    def __init__(
        self,
        trace: TraceContext,
        function: Callable[..., Any],
        given: CallArguments,
        special: Specialisation,
        name: str,
        attempt: Attempt,
    ) -> None:
        self.trace = trace
        self.function = function
        self.given = given
        self.special = special
        self.name = name
        depths = len(trace.targets), len(trace.conditional)
        self.activation = Activation(function, given, special.slots, *depths, attempt, special)
        self.target: FunctionTarget | None = None
        types = [slot for slot in special.slots if isinstance(slot, TensorType)]
        hints = [
            as_name(path) for path, slot in zip(given.paths, special.slots, strict=True) if isinstance(slot, TensorType)
        ]
        for variable in special.state:
            types.append(variable.type)
            hints.append(variable.name)
        self.arguments = len(types) - len(special.state)
        self.block = trace.open_block(tuple(types), tuple(hints))
        self.states: VariableStates | None = None

    def run(self) -> None:
        trace = self.trace
        handles = [StagedArray(param, trace) for param in self.block.params]
        shared, outer = list(trace.shared), trace.block
        if self.special.with_state:
            state = handles[self.arguments :]
            entries = {key_of(trace, v): handle for v, handle in zip(self.special.state, state, strict=True)}
            self.states = VariableStates(entries)
            shared = [self.states, *shared]
        open_body = OpenBody(f"the recursive function `{self.name}`", len(trace.log), is_loop=False, function=self.name)
        self.target = FunctionTarget(
            "function",
            f"`{self.name}`",
            frozenset({"return"}),
            self.activation.attempt,
            trace,
            scopes=shared,
            entry=[dict(scope.__dict__) for scope in shared],
            carry=self.special.written,
            joins_entry=False,
            has_result=True,
            result=self.special.result,
            states=int(self.states is not None),
            function_name=self.name,
        )
        with trace.inside(self.block, is_closed=True):
            if self.states is not None:
                trace.transforms += (OpenTransform(self.states, outer, "function"),)
                trace.shared += (self.states,)
            trace.put(OpenCalls((*trace.of(OpenCalls).activations, self.activation)))
            trace.conditional += (open_body,)
            trace.bodies += (open_body,)
            trace.targets += (self.target,)
            bind_again(trace)
            self._record(handles[: self.arguments])
            if not self.target.stale and self.special.result is not None:
                check_body(trace, open_body)

    def _record(self, handles: list[StagedArray]) -> None:
        """Run the function on the parameters; every path out of it ends in a return."""
        rest = list(handles)
        leaves = [
            rest.pop(0) if isinstance(slot, TensorType) else leaf
            for slot, leaf in zip(self.special.slots, self.given.leaves, strict=True)
        ]
        args, kwargs = self.given.rebuild(leaves)
        for node in mutable_nodes([args, kwargs]):
            self.trace.of(Copied).arguments[id(node)] = (node, self.name)
        if has_body(self.function):
            self.trace.next_run = self._body
            plain_call(self.function, args, kwargs)
            return
        try:
            value = plain_call(self.function, args, kwargs)
        except BlockEndedError:
            return
        assert self.target is not None
        self.target.leave("return", value)

    def _body(self, scope: Locals, body: Body) -> None:
        assert self.target is not None
        try:
            signal = body()
        except BlockEndedError:
            signal = ENDED
        if signal is not ENDED:
            self.target.leave("return", *((None, None) if signal is None else (signal.value, signal.where)))

    # ---- what the attempt says ----

    def settles(self) -> bool:
        """Return whether what was assumed held; else `learned` is what to assume next (None: nothing is known of its
        result).
        """
        special, target = self.special, self.target
        assert target is not None
        self.learned: Specialisation | None = None
        if target.result is None or not target.exits:
            return False
        read = list(self.states.entries) if self.states is not None else []
        by_key = variables_by_key(self.trace)
        state = [by_key[key] for key in read]
        is_same_state = list(map(id, state)) == list(map(id, special.state))
        captures = dict.fromkeys(special.captures)
        if not target.stale:
            captures.update(dict.fromkeys(free_values(self.block.block)))
        known = special.result is not None or not special.calls_unknown
        if known and not target.stale and is_same_state and list(captures) == special.captures:
            special.result = target.result
            return True
        self.learned = replace(
            special,
            result=target.result,
            state=state,
            written=target.next_carry(),
            captures=list(captures),
            calls_unknown=False,
            waits=False,
        )
        return False

    def finish(self) -> Function:
        """The function, closed: what it uses from outside comes by parameters."""
        target, special = self.target, self.special
        assert target is not None and target.result is not None
        block = _closed(self.block.block, special.captures)
        paths = [
            path for path, slot in zip(self.given.paths, special.slots, strict=True) if isinstance(slot, TensorType)
        ]
        results = trees.paths(target.result.spec, "result")
        return Function(
            program_name(self.function),
            block,
            param_paths=[*paths, *(v.name for v in special.state), *(value.hint for value in special.captures)],
            result_paths=[
                *(p for p, leaf in zip(results, target.result.leaves, strict=True) if isinstance(leaf, TensorType)),
                *(key[1] for key in special.written),
            ],
            where=position_of_function(self.function),
        )


@dataclass
class FunctionTarget(CarryingTarget):
    """A function of the program: its exits return a value, and what Variables passed as state hold by then."""

    states: int = 0
    """The number of scopes, from the first, that are Variables; names of others cannot change."""
    function_name: str = ""

    def exit(self, signal: Signal) -> None:
        self.leave("return", signal.value, signal.where)

    def operands(self, kind: EndKind, value: Any, where: Position | None) -> list[Value]:
        out = super().operands(kind, value, where)
        if self.stale or self.result is None:
            return out
        count = len(self.result.types)
        return [*out[len(out) - count :], *out[: len(out) - count]]

    def _demand(self, key: Key, before: Any, now: Any) -> None:
        if key[0] < self.states:
            super()._demand(key, before, now)
            return
        leaves = [] if isinstance(now, Template) else trees.flatten(now)[0]
        where = next((place for place in map(position_of, leaves) if place is not None), None)
        raise StaticStateError(
            f"the outer name `{key[1]}` changes inside the recursive function `{self.function_name}`",
            where=where or here(),
            hint=f"return the value, or make `{key[1]}` an `st.Variable` before the call",
        )


def _closed(block: Block, captures: list[Value]) -> Block:
    """The block with a further parameter for each capture."""
    copier = Copier(Builder())
    types = [value.type for value in (*block.params, *captures)]
    hints = [value.hint for value in (*block.params, *captures)]
    with copier.builder.block(types, hints) as opened:
        copier.values.update(zip((*block.params, *captures), opened.params, strict=True))
        copier.contents(block)
        copier.end(block)
    return opened.block


def plain_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return call(function, *args, **kwargs)


def has_body(function: Callable[..., Any]) -> bool:
    """Return whether a call of `function` runs a converted body (not so for partials, callable objects and lambdas
    inside).
    """
    plain = function.__func__ if isinstance(function, MethodType) else function
    if not isinstance(plain, FunctionType):
        return False
    return is_user_code(plain) or (getattr(plain, "__staged_converted__", False) and plain.__name__ != "<lambda>")


# ---- the call -----------------------------------------------------------------------------------


def emit_call(trace: TraceContext, special: Specialisation, given: CallArguments) -> Any:
    """A `call` op for these arguments; its value, in the tree that the function returns."""
    where = here()
    deeper = [state.kind for state in trace.transforms[special.level :]]
    if any(kind == "derivative" for kind in deeper):
        name = special.user_name
        raise GradientError(
            f"a transform inside `{name}` needs `{name}` itself: its order would be known only when the program runs",
            where=where,
            hint=f"take the derivative outside of `{name}`, or make the argument that ends the recursion static",
        )
    if deeper and not special.with_state:
        # A checkpoint inside it holds Variables as state, which it calls itself with.
        called = next(open_ for open_ in trace.of(OpenCalls).activations if open_.special is special)
        raise Again(called.attempt, CallsItself(special.slots, with_state=True))
    if special.result is None:
        _note_unknown(trace, special)
        trace.builder.end("raise", (), None, where)
        raise BlockEndedError
    operands = [
        materialise(trace, leaf, slot)
        for leaf, slot in zip(given.leaves, special.slots, strict=True)
        if isinstance(slot, TensorType)
    ]
    operands += [trace.value_of(read_variable(trace, variable)) for variable in special.state]
    operands += special.captures
    op = Op(
        CALL,
        operands,
        [*special.result.types, *special.written_types],
        attrs={"function": special.name},
        effects=FAIL,  # at least; what else it does is known once all functions are
        where=where,
    )
    handles = list(trace.emit_op(op))
    value = special.result.rebuild(handles)
    by_key = variables_by_key(trace)
    for (_, key), new in zip(special.written, handles, strict=True):
        write_variable(trace, by_key[key], new)
    return value


def _note_unknown(trace: TraceContext, special: Specialisation) -> None:
    special.calls_unknown = True
    special.unknown_at = here()
    inner = False
    for activation in trace.of(OpenCalls).activations:
        if inner and activation.special is not None:
            activation.special.waits = True
        inner = inner or activation.special is special
