"""Fulfilling recorded transforms: every `vjp` op becomes its primal's ops, then the reverse's.

    loss, d_w = vjp(w, one) {outputs=1, wrt=(0,), of=(0,)} (w):        y = exp(w)
      y = exp(w)                                                 =>    loss = sum(y)
      yield(sum(y))                                                    d_w = broadcast_to(one) * y

The result holds primitives, control flow and sequences only, so that a `vjp` around it is fulfilled in the same way:
transforms nest, and the innermost goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from staged.autodiff import branches, calls, containers, loops  # noqa: F401  (they enter their rules)
from staged.autodiff.checkpoints import settle
from staged.autodiff.forward import expand_jvp
from staged.autodiff.reverse import differentiate
from staged.autodiff.tangent_types import tangent_types
from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.function_pool import FunctionPool
from staged.ir.functions import map_functions
from staged.ir.nodes import Function, Op, Value
from staged.ir.rewrite import rewrite
from staged.ir.structure import JVP, VJP
from staged.ir.views import Derivative

Expand = Callable[[Op, Builder, FunctionPool], Sequence[Value]]
"""Emits the ops of a transform, whose blocks are plain already, and returns the values of its results.

Functions that it needs of others (`call` ops in its blocks) it makes with the pool: `body`, `fresh`, `add`, `memo`.
"""


def fulfil_transforms(program: Function, others: Mapping[Declaration, Expand] | None = None) -> Function:
    """The program without transforms: each such op, innermost first, replaced by plain IR; functions that are unused
    then are dropped.

    `others` are transforms that this package does not know (`vmap`).
    Needs `normalize_exits` before: differentiated code has no early exits but `raise`.
    Raises: GradientError, with the user's line, where a derivative does not exist.
    """
    table: dict[Declaration, Expand] = {VJP: expand_vjp, JVP: expand_jvp, **(others or {})}

    def fulfil(function: Function) -> Function:
        def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
            expand = table.get(op.declared)
            return None if expand is None else expand(op, builder, pool)

        return rewrite(function, rule)

    pool = FunctionPool(program, fulfil)
    main = fulfil(program)
    for function in program.functions:
        pool.body(function.name, function.where)
    return map_functions(pool.program(main), settle)


def expand_vjp(op: Op, builder: Builder, pool: FunctionPool) -> list[Value]:
    """Emit the primal of a `vjp` op and its reverse; returns the values of its results.

    Exact: the primal's results keep their bits; what does not depend on a capture gives it the cotangent 0.
    """
    vjp = Derivative(op)
    for index in vjp.wrt:
        capture = vjp.captures[index]
        if not tangent_types(pool).has(capture.type):
            name = f"`{capture.hint}`" if capture.hint else "an argument"
            raise GradientError(
                f"cannot differentiate with respect to {name}: it is {capture.type}, not a float",
                where=op.where,
                hint="differentiate with respect to float arrays (`st.astype(x, st.f32)`)",
            )
    seeds = dict(zip(vjp.of, vjp.directions, strict=True))
    primal, gradients = differentiate(pool, vjp.primal, vjp.captures, vjp.wrt, seeds, builder, op)
    return [*primal, *gradients]
