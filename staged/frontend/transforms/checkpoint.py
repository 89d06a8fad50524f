"""`checkpoint`: a function whose intermediate values the reverse computes again instead of keeping them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from staged.frontend.calls.call import call
from staged.frontend.trace.context import current_trace
from staged.frontend.transforms.leaves import Outputs, name_of, plain
from staged.frontend.transforms.recording import record
from staged.frontend.values import trees
from staged.ir.nodes import Op
from staged.ir.structure import CHECKPOINT
from staged.ops.array import StagedArray
from staged.source import here


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """f, whose reverse keeps only the inputs of f and recomputes the rest: less memory for more time.

    The values and derivatives are those of f. Prints of f, and its writes of Variables, happen once: only its
    arithmetic is repeated. JAX `checkpoint` (`remat`).
    Source: Griewank and Walther, Evaluating Derivatives, chapter 12.
    """

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        trace = current_trace()
        if trace is None:
            return call(f, *args, **kwargs)  # the tape of eager mode keeps everything
        where, name = here(), name_of(f)
        leaves, spec = trees.flatten((args, kwargs))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, StagedArray)]
        made: list[Outputs] = []

        def run(params: list[Any]) -> list[Any]:
            inside = list(leaves)
            for place, param in zip(places, params, strict=True):
                inside[place] = param
            given_args, given_kwargs = trees.unflatten(spec, inside)
            made.append(Outputs(call(f, *given_args, **given_kwargs), staged_only=True))
            return list(made[0].arrays)

        recording = record(
            trace, name, [trace.value_of(leaves[place]) for place in places], run, where, kind="checkpoint"
        )
        block, captures = recording.closed()
        op = Op(
            CHECKPOINT,
            captures,
            [value.type for value in recording.yields],
            blocks=[block],
            device=trace.builder.device,
            where=where,
        )
        for result, value in zip(op.results, recording.yields, strict=True):
            result.hint = value.hint
        results = list(trace.emit_op(op))
        recording.commit(results[recording.returned :])
        return made[0].rebuild(results[: recording.returned])

    return plain(checkpointed)
