"""A program's whole way as text: traced IR, the IR after each pass that changed it, kernels, buffers, transfers.

It shows why the generated text is as it is. Use `program.explain()`, `staged explain FILE:FUNCTION ...`, or `python -m
staged.explain FILE:FUNCTION ...`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from staged.backends.contract import Kernel
from staged.call.memory import MemoryReport
from staged.ir.functions import every_function
from staged.ir.machine import Machine
from staged.ir.nest_printer import print_nest
from staged.ir.nodes import COMM, Function, Op, Value, walk_ops
from staged.ir.printer import print_function
from staged.ir.types import CPU, TensorType
from staged.ir.views import work_of
from staged.kernels.fusion_log import FusionLog
from staged.passes.ranks.vary import local_values
from staged.pipeline import Watch, build

SHOWN_APART = ("nest", "schedule")
"""Attributes of kernels that have a section of their own, and are left out of the printed IR."""


def explain(function: Function, machine: Machine, check_nan: bool = False) -> str:
    """The stages of a traced function's way to text, for one machine, as a document with headings."""
    watch = _Watch(function)
    built = build(function, machine, check_nan, watch)
    emitted = built.emitted
    sections = [
        (
            f"`{function.name}`",
            [f"By the back end {built.back_end.name}, for {machine.name}. {emitted.kernels} kernels."],
        ),
        ("Traced", [watch.traced]),
        *watch.changed,
        ("Passes that changed nothing", [", ".join(watch.unchanged) or "none"]),
        ("Kernels", list(_kernels(emitted.kernel_of, watch.log)) or ["none"]),
        ("Buffers", [str(MemoryReport.of(emitted.plan, function.name))]),
        *([("Messages between ranks", ["\n".join(_messages(built.lowered))])] if machine.ranks != 1 else []),
        ("Transfers", ["\n".join(map(str, built.transfers)) or "none: all of it runs on the host"]),
    ]
    return (
        "\n\n".join("\n\n".join([f"## {title}", *(text.rstrip("\n") for text in texts)]) for title, texts in sections)
        + "\n"
    )


def _messages(program: Function) -> Iterator[str]:
    """A line for each message: its bytes on this rank, its arrays, and its Python line. Loops repeat their messages."""
    found = [
        op for each in every_function(program) for op in walk_ops(each.block) if COMM[0] in op.effects and op.results
    ]
    for op in found:
        arrays = [value.tensor for value in op.operands if isinstance(value.type, TensorType)]
        nbytes = sum(type.nbytes for type in arrays)
        where = f"   {op.where.short}  {op.where.text}" if op.where else ""
        yield f"{op.name}: {nbytes:,} bytes, {len(arrays)} {'array' if len(arrays) == 1 else 'arrays'}{where}"
    if not found:
        yield "none"


class _Watch(Watch):
    """Keeps the text of the IR after each pass that changed it."""

    def __init__(self, traced: Function) -> None:
        super().__init__(FusionLog())
        self.traced = self.last = print_function(traced, without=SHOWN_APART, local=local_values(traced))
        self.changed: list[tuple[str, list[str]]] = []
        self.unchanged: list[str] = []

    def after(self, name: str, function: Function) -> None:
        text = print_function(function, without=SHOWN_APART, local=local_values(function))
        if text == self.last:
            self.unchanged.append(name)
        else:
            self.changed.append((f"After `{name}`", [text]))
            self.last = text


# ---- kernels ----


def _kernels(texts: Mapping[Op, Kernel], log: FusionLog) -> Iterator[str]:
    makers = {result: op for op in texts for result in op.results}
    for op in texts:
        yield "\n".join(_kernel(op, texts, log, makers))


def _kernel(op: Op, texts: Mapping[Op, Kernel], log: FusionLog, makers: Mapping[Value, Op]) -> Iterator[str]:
    """One kernel: its work, its schedule, and why the kernels that feed it were not fused into it."""
    kernel = texts[op]
    yield f"### {kernel.name}" + (f"   {op.where.short}  {op.where.text}" if op.where else "")
    yield ""
    if work := work_of(op):
        yield work
    for other in dict.fromkeys(makers[value] for value in op.operands if value in makers):
        yield f"apart from {texts[other].name}: {log.apart(other, op)}"
    if op.device != CPU:
        yield f"launched on {op.device}: {kernel.how or 'by a library'}"
    elif schedule := str(op.attrs.get("schedule") or ""):
        yield from _indented("schedule:", schedule.splitlines())
    if nest := op.attrs.get("nest"):
        yield from _indented("loops:", print_nest(nest).splitlines())


def _indented(head: str, lines: Iterable[str]) -> Iterator[str]:
    yield head
    yield from (f"  {line}" for line in lines)
