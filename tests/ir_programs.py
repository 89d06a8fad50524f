"""Building small IR programs in tests, with Python functions for blocks and array handles for values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.autodiff.fulfil import fulfil_transforms
from staged.ir.builder import Builder
from staged.ir.functions import callees, with_call_effects
from staged.ir.nodes import IO, Block, Function, Label, Value, free_values
from staged.ir.rewrite import Copier
from staged.ir.types import TensorType, bool_, f64, i64
from staged.ir.verifier import verify
from staged.ops.array import Array
from staged.ops.context import use_context
from staged.ops.record import RecordContext
from staged.passes.normalize_exits import normalize_exits
from tests.ir_interpreter import run

COUNT = TensorType(i64, (), weak=True)
FLAG = TensorType(bool_)


@dataclass
class Leave:
    """The result of a block function that leaves early: `Leave("break", loop, (a, b))`, or `Leave("raise")`."""

    kind: str
    label: Label | None = None
    values: tuple[Any, ...] = ()


class Program:
    """Records control flow; ops are recorded by the functions of `staged.ops` on the handles."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.context = RecordContext(self.builder, locate=lambda: None)

    def values(self, handles: Sequence[Any]) -> list[Value]:
        return [self.context.value_of(h) for h in handles]

    def handles(self, values: Sequence[Value]) -> list[Array]:
        return [self.context.handle(v) for v in values]

    def constant(self, value: Any, type: TensorType | None = None) -> Array:
        type = type or (COUNT if isinstance(value, int) else TensorType(f64, np.shape(value)))
        return self.context.constant(value, type)

    def block(self, types: Sequence[Any], body: Callable[..., Any], hints: Sequence[str] = ()) -> Block:
        with self.builder.block(types, hints) as opened:
            result = body(*self.handles(opened.params))
            if isinstance(result, Leave):
                self.builder.end(result.kind, self.values(result.values), result.label)
            else:
                self.builder.end("yield", self.values(result))
        return opened.block

    def if_(self, condition: Any, then: Callable[[], Any], other: Callable[[], Any]) -> list[Array]:
        blocks = [self.block([], then), self.block([], other)]
        yielding = next((b for b in blocks if b.end.kind == "yield"), None)
        types = [v.type for v in yielding.end.operands] if yielding else []
        op = self.builder.op("if", self.values([condition]), types, blocks=blocks)
        return self.handles(op.results)

    def for_(self, stop: Any, initial: Sequence[Any], body: Callable[..., Any], start: Any = 0, step: Any = 1) -> list[Array]:
        """`body(loop, index, *carried)`; bounds are handles or ints."""
        bounds = [self.constant(b) if isinstance(b, int) else b for b in (start, stop, step)]
        label = Label("i")
        types = [v.type for v in self.values(initial)]
        block = self.block([COUNT, *types], lambda i, *carried: body(label, i, *carried), ["i"])
        op = self.builder.op("for", self.values([*bounds, *initial]), types, attrs={"label": label}, blocks=[block])
        return self.handles(op.results)

    def while_(self, initial: Sequence[Any], condition: Callable[..., Any], body: Callable[..., Any]) -> list[Array]:
        """`condition(*carried)`, `body(loop, *carried)`."""
        label = Label("while")
        types = [v.type for v in self.values(initial)]
        test = self.block(types, lambda *carried: (condition(*carried),))
        block = self.block(types, lambda *carried: body(label, *carried))
        op = self.builder.op("while", self.values(initial), types, attrs={"label": label}, blocks=[test, block])
        return self.handles(op.results)

    def scope(self, body: Callable[[Label], Any], types: Sequence[TensorType]) -> list[Array]:
        label = Label("return")
        block = self.block([], lambda: body(label))
        op = self.builder.op("scope", [], types, attrs={"label": label}, blocks=[block])
        return self.handles(op.results)

    def op(self, name: str, operands: Sequence[Any], types: Sequence[Any] = (), **fields: Any) -> list[Array]:
        return self.handles(self.builder.op(name, self.values(operands), types, **fields).results)

    def print_(self, *values: Any) -> None:
        """Record a `print` of the values, one after another."""
        parts = tuple((number, "", "") for number in range(len(values)))
        self.op("print", values, attrs={"parts": parts, "end": "\n", "file": "stdout"}, effects=IO)

    def closed(self, f: Callable[..., Any], given: Sequence[Value]) -> tuple[Block, list[Value]]:
        """The body of a transform of `f`, and its captures: what `f` uses from outside is passed, as the front end does it."""
        loose = self.block([v.type for v in given], f, [v.hint for v in given])
        free = free_values(loose)
        captures = [*given, *free]
        copier = Copier(self.builder)
        with self.builder.block([v.type for v in captures], [v.hint for v in captures]) as opened:
            copier.values.update(zip(free, opened.params[len(given) :], strict=True))
            self.builder.end("yield", copier.inline(loose, opened.params[: len(given)]))
        return opened.block, captures

    def vjp(self, f: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int]) -> list[Array]:
        """Record `value_and_grad(f)(*arguments)`: the outputs of `f` (the first is the loss), then the cotangents."""
        block, captures = self.closed(f, self.values(arguments))
        outputs = [value.type for value in block.end.operands]
        (one,) = self.values([self.constant(1.0, outputs[0])])  # type: ignore[arg-type]
        types = [*outputs, *(captures[i].type for i in wrt)]
        attrs = {"wrt": tuple(wrt), "outputs": len(outputs), "of": (0,)}
        return self.handles(self.builder.op("vjp", [*captures, one], types, attrs=attrs, blocks=[block]).results)

    def jvp(self, f: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int], tangents: Sequence[Any]) -> list[Array]:
        """Record `jvp(f)` in a direction: the outputs of `f`, then the tangents of the float ones."""
        block, captures = self.closed(f, self.values(arguments))
        outputs = [value.type for value in block.end.operands]
        floats = [type for type in outputs if isinstance(type, TensorType) and type.dtype.is_float]
        attrs = {"wrt": tuple(wrt), "outputs": len(outputs)}
        operands = [*captures, *self.values(tangents)]
        return self.handles(self.builder.op("jvp", operands, [*outputs, *floats], attrs=attrs, blocks=[block]).results)

    def checkpoint(self, f: Callable[..., Any], arguments: Sequence[Any]) -> list[Array]:
        """Record `checkpoint(f)(*arguments)`."""
        block, captures = self.closed(f, self.values(arguments))
        types = [value.type for value in block.end.operands]
        return self.handles(self.builder.op("checkpoint", captures, types, blocks=[block]).results)

    def call(self, name: str, arguments: Sequence[Any], types: Sequence[Any]) -> list[Array]:
        """Call one of the program's functions."""
        return self.handles(self.builder.op("call", self.values(arguments), types, attrs={"function": name}).results)


def function(f: Callable[..., Any], *types: TensorType, name: str = "f") -> Function:
    """A Function whose body is `f(program, *handles)`; `f` returns handles."""
    program = Program()
    hints = f.__code__.co_varnames[1 : 1 + len(types)]
    with use_context(program.context):
        with program.builder.block(types, hints) as opened:
            result = f(program, *program.handles(opened.params))
            program.builder.end("return", program.values(result))
    made = Function(name, opened.block)
    if not callees(made.block):
        verify(made)  # what calls others is verified with its program
    return made


def plain(traced: Function) -> Function:
    """With its transforms fulfilled, verified after each step."""
    normal = normalize_exits(traced)
    verify(normal, "normalize_exits")
    done = fulfil_transforms(normal)
    verify(done, "fulfil_transforms")
    return done


def gradients(
    f: Callable[..., Any], *arguments: Any, wrt: Sequence[int] | None = None, functions: Sequence[Function] = ()
) -> tuple[Function, list[Any]]:
    """value_and_grad of `f(program, *handles)` at `arguments`: the plain function, and [loss, *gradients]."""
    arrays = [np.asarray(a) for a in arguments]
    types = [type_of(a) for a in arrays]
    which = [i for i, t in enumerate(types) if t.dtype.is_float] if wrt is None else list(wrt)
    done = plain(named(f, lambda p, *given: p.vjp(lambda *inner: f(p, *inner), given, which), types, functions))
    return done, run(done, *arrays)


def directional(f: Callable[..., Any], arguments: Sequence[Any], direction: Sequence[Any], **more: Any) -> list[Any]:
    """Forward mode of `f` in a direction (one array per float argument): [*outputs, *tangents]."""
    arrays = [np.asarray(a) for a in arguments]
    types = [type_of(a) for a in arrays]
    wrt = [i for i, t in enumerate(types) if t.dtype.is_float]

    def moved(p: Program, *given: Any) -> Any:
        return p.jvp(lambda *inner: f(p, *inner), given[: len(arrays)], wrt, given[len(arrays) :])

    done = plain(named(f, moved, [*types, *(types[i] for i in wrt)], **more))
    return run(done, *arrays, *direction)


def named(
    f: Callable[..., Any], body: Callable[..., Any], types: Sequence[TensorType], functions: Sequence[Function] = ()
) -> Function:
    """A program with this body whose parameters have the names of those of `f`, calling `functions`."""
    names = f.__code__.co_varnames[1 : f.__code__.co_argcount]
    program = Program()
    with use_context(program.context):
        with program.builder.block(types, names) as opened:
            program.builder.end("return", program.values(body(program, *program.handles(opened.params))))
    made = with_call_effects(Function("main", opened.block, functions=functions))
    verify(made)
    return made


def type_of(array: np.ndarray[Any, Any]) -> TensorType:
    dtypes = {"float64": f64, "int64": i64, "bool": bool_}
    return TensorType(dtypes[array.dtype.name], array.shape)


def check_gradients(
    f: Callable[..., Any], *arguments: Any, rtol: float = 1e-6, functions: Sequence[Function] = ()
) -> Function:
    """Compare reverse mode with central differences of the primal, run on its own, and forward mode with reverse mode.

    Returns the function that reverse mode has made.
    """
    arrays = [np.asarray(a) for a in arguments]
    types = [type_of(a) for a in arrays]
    primal = named(f, f, types, functions)
    done, (loss, *found) = gradients(f, *arrays, functions=functions)
    found = found[len(found) - sum(t.dtype.is_float for t in types) :]
    np.testing.assert_allclose(loss, run(primal, *arrays)[0], rtol=1e-12)
    floats = [i for i, t in enumerate(types) if t.dtype.is_float]
    for which, gradient in zip(floats, found, strict=True):
        expected = np.zeros_like(arrays[which])
        for place in np.ndindex(arrays[which].shape):
            step = 1e-6
            ends = []
            for sign in (1, -1):
                moved = [a.copy() for a in arrays]
                moved[which][place] += sign * step
                ends.append(run(primal, *moved)[0])
            expected[place] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=1e-7)
    random = np.random.default_rng(0)
    direction = [random.normal(size=arrays[which].shape) for which in floats]
    both = directional(f, arrays, direction, functions=functions)
    slope = sum(float(np.sum(t * g)) for t, g in zip(direction, found, strict=True))
    np.testing.assert_allclose(both[0], loss, rtol=1e-12)
    np.testing.assert_allclose(both[len(run(primal, *arrays))], slope, rtol=1e-9, atol=1e-11)
    return done
