"""The steps of a run: launches, calls of libraries, copies, and loops of these whose length is known while staging.

    for (int64_t l = 0; l < 12; ++l) {
        const float *const w = args->w + l * 64;
        CUDA_CHECK(3, launch_h(gpu, d->x, w, d->h_history + l * 32));
    }

The host runs such a loop while the stream captures, and so the graph has the calls of all its iterations. An address
that depends on the loop's index alone is an argument that stays, in each of these calls.

Tested by `tests/backends/gpu/test_addresses.py` and `tests/backends/cublas_cudnn/test_graphs_of_loops.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from staged.backends.gpu.addresses import bare
from staged.backends.gpu.kernel_text import GpuKernel
from staged.code.expr import Conditional, Expr, Index, Infix, Member, Name
from staged.code.tree import Comment, Declare, ForAny, Statement
from staged.code.uses import with_parts
from staged.ir.nodes import Op
from staged.ir.types import TensorType
from staged.source import Position

LEAST_CALLS = 4
"""A graph replaces its calls by two: the launch of the values that have changed, and its own launch."""
MOST_CALLS = 4000
"""Calls of one graph, which are its nodes. With CUDA 11.2 a node needs 64 KiB of the device's memory
(forums.developer.nvidia.com/t/244901), so these nodes need 256 MiB. The capture needs the time of the launches, a few
milliseconds. 48 layers of a transformer and their gradients are below the limit. A longer loop stays on the host. Its
iterations are graphs, and the host launches the next iteration during the device's work."""
MOST_VALUES = 400
"""Values of one iteration: they are a kernel's arguments, for which CUDA has 4096 bytes."""
UNREADABLE = 1 << 30
"""The number of values of a call whose arguments the host must know."""

Changing = dict[tuple[object, str], int]
"""By C type or use, and C code: the number of values of one iteration."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """A launch, or a call of a library, as a run notes it."""

    op: Op
    inputs: list[Expr]
    outputs: list[Expr]

    @property
    def where(self) -> Position | None:
        return self.op.where


@dataclass(frozen=True, slots=True)
class CopyStep:
    """An array of the device copied there."""

    target: Expr
    source: Expr
    type: TensorType
    where: Position | None


@dataclass(frozen=True, slots=True)
class LoopStep:
    """A loop whose iterations are captured one after the other."""

    loop: ForAny
    """The loop in C; its body declares what its steps read."""
    steps: tuple[Step, ...]
    """The steps of each iteration, which follow the declarations."""
    indices: range
    where: Position | None
    layer: tuple[str, Expr, str] | None = None
    """Of a loop over layers: the number of the present one, and what is before and after it in the layer's name."""
    own: tuple[Statement, ...] = ()
    """The declarations of the captured function: they depend on indices of captured loops alone."""
    before: tuple[Statement, ...] = ()
    """Declarations that depend on nothing in the loop: they are the host's, before the run."""
    variables: frozenset[Expr] = frozenset()
    """The variables of the loop, and of those in it, that the captured function has."""

    @property
    def declared(self) -> set[Expr]:
        """The variables that it declares."""
        return {self.loop.index, *(each.variable for each in self.loop.body if isinstance(each, Declare))}

    @property
    def room(self) -> int:
        """The elements of an array that has one for each index."""
        return max(self.indices) + 1


Step = CallStep | CopyStep | LoopStep


def single_steps(steps: Sequence[Step]) -> Iterator[CallStep | CopyStep]:
    """The steps, with those inside loops once each."""
    for step in steps:
        if isinstance(step, LoopStep):
            yield from single_steps(step.steps)
        else:
            yield step


def count_calls(steps: Sequence[Step]) -> int:
    """The number of calls of steps, in all iterations of their loops."""
    return sum(len(step.indices) * count_calls(step.steps) if isinstance(step, LoopStep) else 1 for step in steps)


def lines_of(steps: Sequence[Step]) -> str:
    """`, mlp.py:14-32`: the user's lines behind steps, those of the file with most of them."""
    known = [step.where for step in single_steps(steps) if step.where is not None]
    if not known:
        return ""
    (file, _), *_ = Counter(os.path.basename(where.file) for where in known).most_common()
    lines = [where.line for where in known if os.path.basename(where.file) == file]
    last = f"-{max(lines)}" if max(lines) > min(lines) else ""
    return f", {file}:{min(lines)}{last}"


# ---- what stays from one launch of a graph to the next -------------------------------------------


def is_fixed(address: Expr, captured: Set[Expr] = frozenset()) -> bool:
    """Return whether an address is the same in every iteration: a fixed place in an array of the device or of the
    caller there. `captured` are variables of captured loops: each of their values is a separate argument.
    """
    match bare(address):
        case Infix("+", base, offset):
            return is_fixed(base, captured) and is_written_out(offset, captured)
        case Member(Name("d" | "args"), arrow=True):
            return True
        case Member(Index(array, layer), arrow=False) | Index(array, layer):
            return is_fixed(array) and is_written_out(layer, captured)
        case Conditional(condition, yes, no):
            return is_written_out(condition, captured) and is_fixed(yes, captured) and is_fixed(no, captured)
        case own:
            return own in captured


def is_written_out(number: Expr, captured: Set[Expr] = frozenset()) -> bool:
    """Return whether a number is a literal, or depends on literals and variables of captured loops alone."""
    return all(
        part in captured if isinstance(part, Name) else not isinstance(part, Member | Index)
        for part in with_parts([number])
    )


def mentions(expr: Expr, captured: Set[Expr]) -> bool:
    """Return whether an expression depends on variables of a loop that is captured."""
    return any(part in captured for part in with_parts([expr]))


def captured_loop(step: LoopStep, captured: Set[Expr] = frozenset(), mixed: Set[Expr] = frozenset()) -> LoopStep:
    """The loop with its declarations sorted for the capture. It is inside of loops with these variables: `captured`
    ones, and `mixed` ones, which differ between launches of the graph, too.
    """
    variables, others = {*captured, step.loop.index}, set(mixed)
    before: list[Statement] = []
    body: list[Statement] = []
    own: list[Statement] = []
    for group in declarations(step.loop.body):
        statement = group[-1]
        assert isinstance(statement, Declare) and statement.value is not None, "such a loop computes nothing else"
        is_known = is_fixed if statement.variable.type.is_pointer else is_written_out
        if is_known(statement.value, variables):
            variables.add(statement.variable)
            add_lines(own, group)
        elif mentions(statement.value, variables | others):
            others.add(statement.variable)
        else:
            add_lines(before, group)
            continue
        add_lines(body, group)
    steps: list[Step] = []
    for each in step.steps:
        if isinstance(each, LoopStep):
            each = captured_loop(each, variables, others)
            add_lines(before, each.before)
            variables |= each.variables
        steps.append(each)
    return LoopStep(
        replace(step.loop, body=tuple(body)),
        tuple(steps),
        step.indices,
        step.where,
        step.layer,
        tuple(own),
        tuple(before),
        frozenset(variables),
    )


def loops_of(argument: Expr | None, loops: tuple[LoopStep, ...]) -> tuple[LoopStep, ...]:
    """The `loops` around an argument, up to the last one that it depends on."""
    while loops and not (argument is not None and mentions(argument, loops[-1].declared)):
        loops = loops[:-1]
    return loops


def declarations(body: Sequence[Statement]) -> Iterator[list[Statement]]:
    """The statements without the comments, each after the comment above it."""
    line: list[Statement] = []
    for statement in body:
        if isinstance(statement, Comment):
            line = [statement]
        else:
            yield [*line, statement]


def add_lines(lines: list[Statement], more: Sequence[Statement]) -> None:
    """Add statements to others, without a comment that the reader has just seen."""
    seen = next((each.text for each in reversed(lines) if isinstance(each, Comment)), "")
    is_seen = bool(more) and isinstance(more[0], Comment) and more[0].text == seen
    lines += more[1:] if is_seen else more


def arguments_of(step: CallStep | CopyStep) -> tuple[Expr, ...]:
    """The addresses and numbers of a call."""
    return (step.source, step.target) if isinstance(step, CopyStep) else (*step.inputs, *step.outputs)


def can_be_graph(calls: int, changing: Changing) -> bool:
    """Return whether calls are not too many for one graph, nor the values of an iteration that they read."""
    return calls <= MOST_CALLS and sum(changing.values()) <= MOST_VALUES


def changing_arguments(
    kernel: GpuKernel, arguments: Sequence[Expr], captured: Set[Expr] = frozenset()
) -> tuple[int, ...]:
    """The positions of a launch's arguments that may differ between iterations, or between calls of the program.

    Exact: an argument counts as changing unless it is a fixed place or written out.
    """
    pairs = zip(kernel.parameters, arguments, strict=True)
    return tuple(
        number
        for number, ((c_type, _), argument) in enumerate(pairs)
        if not (is_fixed(argument, captured) if c_type.endswith("*") else is_written_out(argument, captured))
    )
