"""Fulfilling recorded transforms: every `vjp` op becomes its primal's ops, then the reverse's.

    loss, d_w = vjp(w, one) {outputs=1, wrt=(0,), of=(0,)} (w):        y = exp(w)
      y = exp(w)                                                 =>    loss = sum(y)
      yield(sum(y))                                                    d_w = broadcast_to(one) * y

The result holds primitives, control flow and sequences only, so that a `vjp` around it is fulfilled in the same way:
transforms nest, and the innermost goes first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from staged.autodiff.activity import Activity
from staged.autodiff.cotangents import Cotangents, d_name
from staged.autodiff.duals import duals
from staged.autodiff.forward import expand_jvp
from staged.autodiff.residuals import Augmenter, Resolver
from staged.autodiff.reverse import Reverse, made_in
from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.library import Library
from staged.ir.nodes import Block, Function, Op, Value
from staged.ir.rewrite import Copier, rewrite
from staged.ops.composite import COMPOSITES

Expand = Callable[[Op, Builder, Library], Sequence[Value]]
"""Emits what stands for a transform op, whose blocks are plain already, and returns the values of its results.

Functions that it needs of others (`call` ops in its blocks) it makes with the library: `body`, `fresh`, `add`, `memo`.
"""


def fulfil_transforms(program: Function, others: Mapping[str, Expand] | None = None) -> Function:
    """The program without transforms: each such op, innermost first, replaced by plain IR; functions that nobody calls any more go.

    `others` are transforms that this package does not know (`vmap`).
    Needs `normalize_exits` before: differentiated code has no early exits but `raise`.
    Raises: GradientError, with the user's line, where a derivative does not exist.
    """
    table: dict[str, Expand] = {"vjp": expand_vjp, "jvp": expand_jvp, **(others or {})}

    def fulfil(function: Function) -> Function:
        def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
            expand = table.get(op.name)
            return None if expand is None else expand(op, builder, library)

        return rewrite(function, rule)

    library = Library(program, fulfil)
    main = fulfil(program)
    for function in program.functions:
        library.body(function.name, function.where)
    return library.program(main)


def expand_vjp(op: Op, builder: Builder, library: Library) -> list[Value]:
    """Emit the primal of a `vjp` op and its reverse; returns what stands for its results."""
    block = _open_composites(op.blocks[0])
    outputs, wrt, of = op.attrs["outputs"], op.attrs["wrt"], op.attrs["of"]
    captures = op.operands[: len(block.params)]
    seeds = op.operands[len(block.params) :]
    for index in wrt:
        if not duals(library).has(captures[index].type):
            name = f"`{captures[index].hint}`" if captures[index].hint else "an argument"
            raise GradientError(
                f"cannot differentiate with respect to {name}: it is {captures[index].type}, not a float",
                where=op.where,
                hint="differentiate with respect to float arrays (`st.astype(x, st.f32)`)",
            )

    reverse = Reverse(Activity(library).values(block, [block.params[index] for index in wrt]), library)
    env = Cotangents(made_in(block))
    scratch = reverse.builder
    scratch.device, reverse.where = op.device, op.where
    with scratch.block() as opened:
        if block.end.kind == "yield":
            for index, seed in zip(of, seeds, strict=True):
                reverse.accumulate(env, block.end.operands[index], seed)
            reverse.block(block, env)
        reverse.where, scratch.device = op.where, op.device
        found = [env.get(block.params[index]) for index in wrt]
        cotangents = [
            reverse.or_zeros(cotangent, block.params[index], op) for index, cotangent in zip(wrt, found, strict=True)
        ]
        scratch.end("yield", cotangents)

    augmenter = Augmenter(builder, reverse.residuals)
    primal = augmenter.inline(block, captures)
    assert len(primal) == outputs, "a vjp block yields the primal's results"
    resolver = Resolver(builder, reverse.residuals, augmenter.values)
    gradients = resolver.inline(opened.block, ())
    for index, gradient in zip(wrt, gradients, strict=True):
        gradient.hint = gradient.hint or d_name(captures[index])
    return [*primal, *gradients]


def _open_composites(block: Block) -> Block:
    """`block` with every composite that has no vjp rule of its own replaced by its body."""

    class Opener(Copier):
        def op(self, op: Op) -> None:
            if op.name == "composite" and COMPOSITES[op.attrs["name"]].vjp is None:
                given = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
                for old, new in zip(op.results, given, strict=True):
                    self.values[old] = new
                    new.hint = new.hint or old.hint
            else:
                super().op(op)

    if not any(op.name == "composite" for op in _all_ops(block)):
        return block
    return Opener(Builder()).block(block)


def _all_ops(block: Block) -> list[Op]:
    found = list(block.ops)
    for op in block.ops:
        for inner in op.blocks:
            found += _all_ops(inner)
    return found
