"""Building small IR programs in tests, with Python functions for blocks and array handles for values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.autodiff.fulfil import fulfil_transforms
from staged.ir.builder import Builder
from staged.ir.nodes import Block, Function, Label, Value, free_values
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
    """What a block function returns to leave early: `Leave("break", loop, (a, b))`, or `Leave("raise")`."""

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

    def vjp(self, f: Callable[..., Any], arguments: Sequence[Any], wrt: Sequence[int]) -> list[Array]:
        """Record `value_and_grad(f)(*arguments)`: the outputs of `f` (the first is the loss), then the cotangents.

        What `f` uses from outside becomes a capture, as the front end does it.
        """
        given = self.values(arguments)
        loose = self.block([v.type for v in given], f, [v.hint for v in given])
        free = free_values(loose)
        types = [*(v.type for v in given), *(v.type for v in free)]
        with self.builder.block(types) as opened:
            from staged.ir.rewrite import Copier

            copier = Copier(self.builder)
            copier.values.update(zip(free, opened.params[len(given) :], strict=True))
            results = copier.inline(loose, opened.params[: len(given)])
            self.builder.end("yield", results)
        (one,) = self.values([self.constant(1.0, results[0].tensor)])
        op = self.builder.op(
            "vjp",
            [*given, *free, one],
            [*(r.type for r in results), *(given[i].type for i in wrt)],
            attrs={"wrt": tuple(wrt), "outputs": len(results), "of": (0,)},
            blocks=[opened.block],
        )
        return self.handles(op.results)


def function(f: Callable[..., Any], *types: TensorType, name: str = "f") -> Function:
    """A Function whose body is `f(program, *handles)`; `f` returns handles."""
    program = Program()
    hints = f.__code__.co_varnames[1 : 1 + len(types)]
    with use_context(program.context):
        with program.builder.block(types, hints) as opened:
            result = f(program, *program.handles(opened.params))
            program.builder.end("return", program.values(result))
    made = Function(name, opened.block)
    verify(made)
    return made


def plain(traced: Function) -> Function:
    """With its transforms fulfilled, verified after each step."""
    normal = normalize_exits(traced)
    verify(normal, "normalize_exits")
    done = fulfil_transforms(normal)
    verify(done, "fulfil_transforms")
    return done


def gradients(f: Callable[..., Any], *arguments: Any, wrt: Sequence[int] | None = None) -> tuple[Function, list[Any]]:
    """value_and_grad of `f(program, *handles)` at `arguments`: the plain function, and [loss, *gradients]."""
    arrays = [np.asarray(a) for a in arguments]
    types = [type_of(a) for a in arrays]
    which = [i for i, t in enumerate(types) if t.dtype.is_float] if wrt is None else list(wrt)
    names = f.__code__.co_varnames[1 : 1 + len(types)]
    program = Program()
    with use_context(program.context):
        with program.builder.block(types, names) as opened:
            results = program.vjp(lambda *given: f(program, *given), program.handles(opened.params), which)
            program.builder.end("return", program.values(results))
    made = Function("f", opened.block)
    verify(made)
    done = plain(made)
    return done, run(done, *arrays)


def type_of(array: np.ndarray[Any, Any]) -> TensorType:
    dtypes = {"float64": f64, "int64": i64, "bool": bool_}
    return TensorType(dtypes[array.dtype.name], array.shape)


def check_gradients(f: Callable[..., Any], *arguments: Any, rtol: float = 1e-6) -> Function:
    """Compare with central differences of the primal, run on its own; returns the differentiated function."""
    arrays = [np.asarray(a) for a in arguments]
    types = [type_of(a) for a in arrays]
    primal = function(f, *types)
    done, (loss, *found) = gradients(f, *arrays)
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
    return done
