"""Loops of a program whose iterations threads share: the loop becomes a function of a range of iterations.

    static void each_head(const Buffers *given, int64_t rows, int64_t begin, int64_t end) {
        const int thread = st_thread_index;
        Buffers own = *given;  // with arrays of this thread alone
        own.scores += thread * 46080;
        const Buffers *const m = &own;
        for (int64_t head = begin; head < end; ++head) {

The plan says which loops these are, and which arrays each thread has for itself (`passes/memory/shared_loops.py`).

Tested by `tests/backends/native/test_shared_loops.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from staged.backends.host.body import BodyEmitter
from staged.backends.host.product_sizes import with_sizes_first
from staged.code.expr import Infix, Literal, Member, Name, Prefix, Variable
from staged.code.kernel_text import KernelText
from staged.code.printer import print_body
from staged.code.scopes import with_short_names
from staged.code.support.team import Shared
from staged.code.tree import (
    Assign,
    Declare,
    DeclareStruct,
    DeclareTable,
    For,
    ForAny,
    ForBits,
    Statement,
    walk,
)
from staged.code.types import INDEX, SHORT_INDEX, CType, word
from staged.code.unused import drop_unused_locals, names_used
from staged.code.uses import mentioned
from staged.code.writer import Writer
from staged.ir.buffers import SharedLoop, Sharing
from staged.ir.declaration import prims
from staged.ir.machine import Machine
from staged.ir.nodes import Op, Value
from staged.ir.storage import structural_ops
from staged.ir.structure import CONTRACTION, FOR
from staged.ir.trips import static_trip_count
from staged.ir.types import bound
from staged.ir.views import Loop

BUFFERS = word("Buffers")
MUCH = 1 << 16
"""Elements whose computation takes several times as long as the team takes to begin and to end."""


def sharing_of(machine: Machine, kernels: Mapping[Op, KernelText], check_nan: bool) -> Sharing:
    """The threads of a program, and its loops that are worth a team.

    These have kernels of which one is worth a team by itself, or which are much work together. None stops the program
    or calls a library, which may have threads as well.
    """

    def is_worth(op: Op) -> bool:
        inside = [kernels[each] for each in structural_ops(Loop(op).body) if each in kernels]
        if check_nan or any(kernel.can_fail or kernel.link for kernel in inside):
            return False
        return any(kernel.is_shared for kernel in inside) or _work(op) >= MUCH

    return Sharing(1 if machine.is_iso_c else machine.cores, is_worth)


def _work(op: Op) -> int:
    """The elements that a loop computes, about; a loop whose trip count is not known counts as one iteration."""
    inside = 0
    for each in Loop(op).body.ops:
        if each.declared is FOR:
            inside += _work(each)
        elif each.blocks:
            inside += max(map(_elements, each.blocks[0].ops), default=0)
        if each.declared is CONTRACTION and each.attrs["kind"] == "matmul":
            inside += _terms(each, each.blocks[0].params[0])
    trips = static_trip_count(op)
    return inside * (1 if trips is None else trips)


def _elements(op: Op) -> int:
    """The elements that an op computes, about: eight terms of a product's sum take as long as one of another op."""
    made = op.operands[1] if op.declared is prims.DYNAMIC_UPDATE else op.result
    return made.tensor.size + (_terms(op, op.result) if op.declared is prims.MATMUL else 0)


def _terms(op: Op, product: Value) -> int:
    """The terms of all sums of a product of the first two operands, in eights."""
    rows, columns = product.tensor.shape[-2:]
    terms = op.operands[0].tensor.size * op.operands[1].tensor.size // max(1, bound(rows) * bound(columns))
    return product.tensor.size * math.isqrt(terms) // 8


def parameter_types(declared: Iterable[tuple[str, str]]) -> dict[str, CType]:
    """The types of C parameters, by name, from how they are declared."""
    return {name: CType(text, is_pointer=True) if text.endswith("*") else word(text.strip()) for text, name in declared}


class PartNames:
    """Names shared by all parts of a function: parameters and initial values."""

    def __init__(self, body: BodyEmitter) -> None:
        # No name of the user's is one of these.
        self.begin, self.end = Variable("begin", INDEX), Variable("end", INDEX)
        self.thread = Variable("thread", SHORT_INDEX)
        self.given, self.own = body.name("given"), Variable(body.name("own"), BUFFERS)


@dataclass(frozen=True, slots=True)
class PartText:
    """A written one: what stands before the functions of the program."""

    comments: tuple[str, ...]
    name: str
    parameters: tuple[Variable, ...]
    names: PartNames
    body: tuple[Statement, ...]

    @property
    def shared(self) -> Shared:
        """Its name and types, for a team."""
        return Shared(self.name, tuple(each.type.before_name.strip() for each in self.parameters))

    def write(self, w: Writer) -> None:
        """Write the function, and the line by which a team calls it."""
        for comment in self.comments:
            w.comment(comment)
        taken = [f"{each.type.before_name}{each}" for each in (*self.parameters, self.names.begin, self.names.end)]
        with w.function(f"static void {self.name}", taken):
            w.lines += print_body(self.body, above=self.comments[0])
        w.text(self.shared.line)


def finish_part(
    body: BodyEmitter, op: Op, names: PartNames, shared: SharedLoop, loop: For
) -> tuple[str, tuple[Variable, ...]]:
    """Write the function of a loop; returns its name, and what it is called with."""
    phase = "_backward" if op.where is not None and op.where.phase == "backward" else ""
    index = re.sub(r"_[0-9]+$", "", str(loop.index))
    function = body.file_name(f"each_{index}{phase}")
    (kept,) = drop_unused_locals([loop])
    known = {**{variable.text: variable.type for variable in _from_outside([kept])}, **body.parameters}
    here = {names.begin.text, names.end.text, names.thread.text}
    taken = {name: known[name] for name in sorted(names_used([kept]) - _declared([kept]) - here) if name in known}
    statements: list[Statement] = []
    if "m" in taken and shared.own:
        given = Prefix("*", Name(names.given))
        statements.append(Declare(names.own, given, is_const=False, note="with arrays of this thread alone"))
        for buffer in sorted(shared.own, key=lambda buffer: body.fields[buffer]):
            step = Literal(str(shared.stride // buffer.type.dtype.size))
            place = Member(names.own, body.fields[buffer], arrow=False)
            statements.append(Assign(place, Infix("*", names.thread, step), "+"))
        statements.append(Declare(Variable("m", taken["m"]), Prefix("&", names.own)))
    parameters = [Variable(names.given if name == "m" and statements else name, type) for name, type in taken.items()]
    if names.thread.text in names_used([*statements, kept]):
        statements.insert(0, Declare(names.thread, Name("st_thread_index")))
    where = () if op.where is None else (f"{op.where.short}  {op.where.text}",)
    about = f"iterations of `{index}`, which threads share: none touches what another one writes"
    own, text = with_short_names(parameters, (*statements, *with_sizes_first(kept)), body.local_names)
    body.text.parts.append(PartText((*where, about), function, own, names, text))
    return function, tuple(Variable(name, type) for name, type in taken.items())


def _from_outside(body: Sequence[Statement]) -> list[Variable]:
    """The variables that statements mention and do not declare."""
    declared = _declared(body)
    return sorted((each for each in mentioned(body) if each.text not in declared), key=lambda each: each.text)


def _declared(body: Sequence[Statement]) -> set[str]:
    """The names that statements declare."""
    found: set[str] = set()
    for statement in walk(body):
        match statement:
            case Declare(variable, also=also):
                found |= {variable.text, *(other.text for other, _ in also)}
            case DeclareStruct(variable) | DeclareTable(variable):
                found.add(variable.text)
            case For(index) | ForAny(index) | ForBits(index):
                found.add(index.text)
    return found
