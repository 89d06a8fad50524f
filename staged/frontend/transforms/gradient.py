"""`grad`, `value_and_grad` and `stop_gradient`: gradients of scalar functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staged.errors import GradientError, article
from staged.frontend.calls.call import call
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.transforms.leaves import Outputs, is_array, name_of, plain, split_aux
from staged.frontend.transforms.plain_runs import counted
from staged.frontend.transforms.recording import name_results, record
from staged.frontend.values import trees
from staged.frontend.values.variable import Variable
from staged.ir.nodes import Op
from staged.ir.structure import VJP
from staged.ops import choice
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.ops.promote import as_array
from staged.source import here


def grad(
    f: Callable[..., Any], argnums: int | Sequence[int] | None = None, wrt: Any = None, has_aux: bool = False
) -> Callable[..., Any]:
    """The gradient of a scalar function: `value_and_grad` without the value (with `has_aux`: gradient and aux)."""
    both = value_and_grad(f, argnums, wrt, has_aux)

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return plain(gradient)


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] | None = None, wrt: Any = None, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns `f(*args)` and its gradient.

    With `argnums` (an int or several; default 0) the gradient is by positional arguments, in their tree. With `wrt` (a
    Variable, a Module, or any tree of these) it is by those, in the same tree (for a Module a dict from name to array).
    An input that is named twice has its gradient twice. f returns a float scalar; with `has_aux`, a pair of it and
    anything else. Variables that f writes are written once, and its prints happen once.

    Raises: GradientError for a value that is not a float scalar, for integer inputs, and if both `argnums` and `wrt`
    are given.
    """
    if argnums is not None and wrt is not None:
        raise GradientError("`argnums` and `wrt` exclude each other", where=here(), hint="use one of them")

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        target = _Target(f, argnums, wrt, has_aux, args, kwargs)
        trace = current_trace()
        if trace is not None:
            return _record(trace, target)
        with counted(target.where, f"the gradient of `{target.name}`"):
            return _run_eagerly(target)

    return plain(value_and_gradient)


def stop_gradient(x: Any) -> Any:
    """`x` itself, through which no gradient passes."""
    return choice.stop_gradient(x)


class _Target:
    """The dependences of one differentiated call: the arrays to differentiate by, and how to call f with others."""

    def __init__(
        self,
        f: Callable[..., Any],
        argnums: int | Sequence[int] | None,
        wrt: Any,
        has_aux: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.f = f
        self.name = name_of(f)
        self.has_aux = has_aux
        self.args = args
        self.kwargs = kwargs
        self.where = here()
        self.variables: list[Variable] = []
        self.asked: list[int] = []
        """By what the gradient is, in the user's order: places among the arguments or Variables that are
        differentiated.
        """
        self.primals: list[Array] = []
        self.labels: list[str] = []
        if wrt is None:
            self._by_arguments(argnums)
        else:
            self._by_variables(wrt)
        for label, primal in zip(self.labels, self.primals, strict=True):
            if not primal.dtype.is_inexact:
                raise GradientError(
                    f"the gradient of `{self.name}` by {label}, {primal.type}, does not exist: it is not a float",
                    where=self.where,
                    hint="differentiate by float arrays, or cast with `st.astype(x, st.f32)` before the call",
                )
        if not self.primals:
            raise GradientError(f"the gradient of `{self.name}` is by nothing", where=self.where)

    def _by_arguments(self, argnums: int | Sequence[int] | None) -> None:
        self.is_single = argnums is None or isinstance(argnums, int)
        asked = [argnums or 0] if isinstance(argnums, int | None) else list(argnums)
        for number in asked:
            if not -len(self.args) <= number < len(self.args):
                raise GradientError(
                    f"`{self.name}` got {len(self.args)} positional arguments, the gradient is by number {number}",
                    where=self.where,
                    hint="arguments count from 0; `wrt=...` differentiates by Variables and models",
                )
        asked = [number % len(self.args) for number in asked]
        # An argument that is named twice is differentiated once, and its gradient given twice.
        self.chosen = list(dict.fromkeys(asked))
        self.asked = [self.chosen.index(number) for number in asked]
        leaves, self.spec = trees.flatten([self.args[number] for number in self.chosen])
        for leaf in leaves:
            if not is_array(leaf):
                raise GradientError(
                    f"the gradient of `{self.name}` by {article(type(leaf).__name__)} does not exist",
                    where=self.where,
                    hint="name the module whose parameters have gradients: `st.grad(loss, wrt=model)`"
                    if hasattr(leaf, "state_dict")
                    else "choose arguments that are float arrays with `argnums`",
                )
            self.primals.append(as_array(leaf))
        self.labels = [f"argument {number}" for number in self.chosen]
        self.labels += ["an argument"] * (len(self.primals) - len(self.labels))
        self.labels = self.labels[: len(self.primals)]

    def _by_variables(self, wrt: Any) -> None:
        self.is_single = True
        self.chosen = []
        found: list[Variable] = []
        self.specs: list[Any] = []
        leaves, self.spec = trees.flatten(dict(wrt) if isinstance(wrt, Mapping) else wrt)
        for leaf in leaves:
            named = getattr(leaf, "named_parameters", None)
            inside, spec = trees.flatten(leaf if named is None else dict(named()))
            self.specs.append(spec)
            for variable in inside:
                if not isinstance(variable, Variable):
                    raise GradientError(
                        f"`wrt` holds {article(type(variable).__name__)}, it takes Variables and Modules, in any tree",
                        where=self.where,
                        hint="pass arrays as arguments and name them with `argnums`",
                    )
                found.append(variable)
        # A Variable that is there twice is differentiated once, and its gradient given twice.
        self.variables = list({id(variable): variable for variable in found}.values())
        places = {id(variable): place for place, variable in enumerate(self.variables)}
        self.asked = [places[id(variable)] for variable in found]
        self.labels = [f"the Variable `{variable.name}`" for variable in self.variables]
        self.primals = [variable.value for variable in self.variables]

    def run(self, primals: Sequence[Array]) -> tuple[Array, Any]:
        """Call f with other arrays in place of the primals: the scalar and the aux."""
        args = list(self.args)
        if not self.variables:
            given = trees.unflatten(self.spec, list(primals))
            for number, value in zip(self.chosen, given, strict=True):
                args[number] = value
        made = call(self.f, *args, **self.kwargs)
        value, aux = split_aux(self.name, made, self.has_aux, self.where)
        if isinstance(value, Variable):
            value = value.value
        if not is_array(value):
            raise GradientError(
                f"the gradient of `{self.name}` needs a float scalar, it returns {article(type(value).__name__)}",
                where=self.where,
                hint="return the loss; pass other results along with `has_aux=True`",
            )
        loss = as_array(value)
        if loss.shape:
            raise GradientError(
                f"the gradient of `{self.name}` needs a scalar, it returns {loss.type}",
                where=self.where,
                hint="reduce it: `st.sum(...)` or `st.mean(...)`",
            )
        if loss.dtype.is_complex:
            raise GradientError(
                f"the gradient of `{self.name}` needs a real number, it returns {loss.type}",
                where=self.where,
                hint="return `st.abs(z)` or `st.real(z)`; the derivative of a complex result is `st.vjp` or `st.jvp`",
            )
        if not loss.dtype.is_float:
            raise GradientError(
                f"the gradient of `{self.name}` needs a float, it returns {loss.type}",
                where=self.where,
                hint="integers and bools have no gradient; cast inputs with `st.astype(x, st.f32)`",
            )
        return loss, aux

    def result(self, loss: Any, aux: Any, gradients: Sequence[Any]) -> Any:
        """The user's result."""
        if self.variables:
            leaves = iter([gradients[place] for place in self.asked])
            parts = [trees.unflatten(spec, [next(leaves) for _ in range(spec.num_leaves)]) for spec in self.specs]
            tree = trees.unflatten(self.spec, parts)
        else:
            by_argument = trees.unflatten(self.spec, list(gradients))
            each = [by_argument[place] for place in self.asked]
            tree = each[0] if self.is_single else tuple(each)
        return ((loss, aux) if self.has_aux else loss), tree


def _run_eagerly(target: _Target) -> Any:
    """By the tape of eager mode."""
    context = current_context()
    held: list[Any] = []

    def outputs(*primals: Array) -> list[Array]:
        before = [variable._held for variable in target.variables]
        for variable, primal in zip(target.variables, primals, strict=False):
            variable._held = primal
        loss, aux = target.run(primals)
        for variable, primal, kept in zip(target.variables, primals, before, strict=False):
            if variable._held is primal:
                variable._held = kept
        held.append(aux)
        return [loss]

    (loss,), pullback = context.vjp(outputs, target.primals)  # type: ignore[attr-defined]
    gradients = pullback([context.constant(1.0, loss.type)])
    return target.result(loss, held[0], gradients)


def _record(trace: TraceContext, target: _Target) -> Any:
    """As one `vjp` op."""
    primals = [trace.value_of(primal) for primal in target.primals]
    aux: list[Outputs] = []

    def run(params: list[Any]) -> list[Any]:
        loss, rest = target.run(params)
        aux.append(Outputs(rest, staged_only=True))
        return [loss, *aux[0].arrays]

    recording = record(trace, target.name, primals, run, target.where, target.variables)
    block, captures = recording.closed(moves=True)
    yields = recording.yields
    one = trace.value_of(trace.constant(1.0, yields[0].tensor))
    op = Op(
        VJP,
        [*captures, one],
        [*(value.type for value in yields), *(primal.type for primal in primals)],
        attrs={"wrt": tuple(range(len(primals))), "outputs": len(yields), "of": (0,)},
        blocks=[block],
        device=trace.builder.device,
        where=target.where,
    )
    name_results(op, yields, primals)
    results = list(trace.emit_op(op))
    recording.commit(results[recording.returned : len(yields)])
    return target.result(results[0], aux[0].rebuild(results[1 : recording.returned]), results[len(yields) :])
