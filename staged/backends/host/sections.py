"""The sections and layers that a function's statements belong to.

A training step has the sections of its kernels: initial values, forward, backward and update. Lines of the user's own
function do not have a section. If such a line is a call, its label is the name of the called function.

Tested by `tests/backends/host/test_outlining.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from staged.code.expr import Call, Member
from staged.code.kernel_text import section_of
from staged.code.tree import (
    Assign,
    Comment,
    Do,
    For,
    ForAny,
    ForBits,
    If,
    Jump,
    Label,
    Statement,
    While,
    inner_of,
    walk,
)
from staged.ir.buffers import Buffer
from staged.ir.nodes import Function, Op
from staged.ir.storage import structural_ops
from staged.ir.structure import VARIABLE_WRITE
from staged.source import Position, action_at, called_function

VERBS = {
    "initial values": "initialize",
    "forward": "forward",
    "loss": "compute_loss",
    "backward": "backward",
    "update": "update",
    "evaluation": "evaluate",
    "variables": "write_variables",
    "results": "copy_results",
}
SECTIONS = {"initial values", "forward", "backward", "update", "evaluation"}
TITLES = {
    "initial values": "Initial values",
    "forward": "Forward pass",
    "loss": "Loss",
    "backward": "Backward pass",
    "update": "Update",
    "evaluation": "Evaluation",
}
KERNELS_OF_CALL = 3
"""Kernels of a call from which they leave the name of the called function to a function of the host."""
Labels = list[str | None]
_PREVIOUS, _NEXT, _EITHER = "<", ">", "<>"
"""Labels of statements that go with the one before, with the one behind, or with one of these."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The op that a statement was written for: the section of its kernel, its layer or Variable, and its line."""

    section: str
    path: str
    where: Position | None
    is_write: bool = False
    """True if the op writes a Variable."""


def origin_of(op: Op, places: Iterable[Buffer]) -> Origin:
    """The origin of the statements of an op whose results are in these buffers."""
    section = section_of(op) if op.declared.is_opaque else ""
    phase = op.where.phase if op.where is not None else ""
    written = [place.variable.name for place in places if place.variable is not None]
    path = (op.where.part if op.where is not None else "") or min(written, key=len, default="")
    if section in ("", "forward"):
        section = phase or section
    return Origin(section, path, op.where, op.declared is VARIABLE_WRITE)


def key_of(statement: Statement) -> object:
    """The key of a statement in a table of origins: the counter of a `for`, whose body may be replaced."""
    return statement.index if isinstance(statement, For | ForAny) else statement


class Sections:
    """Labels the statements of one function."""

    def __init__(self, origins: dict[object, Origin], owner: Position | None) -> None:
        self.origins = origins
        self.owner = owner
        """The first line of the user's function."""
        self.trains = any(origin.section == "backward" for origin in origins.values())

    def by_section(self, body: Sequence[Statement]) -> Labels:
        """The section of a training step that each statement belongs to; None: the user's own function."""
        labels = [self.section(statement) for statement in body]
        if body and isinstance(body[-1], Jump) and body[-1].word == "return":
            number = len(body) - 2
            while number >= 0 and isinstance(body[number], Assign | Do) and self.origin(body[number]) is None:
                labels[number] = "results"
                number -= 1
        line = None
        for number, (statement, label) in enumerate(zip(body, labels, strict=True)):
            origin = self.origin(statement)
            if origin is None or origin.where is None:
                continue
            if label != "initial values" and line == (origin.where.file, origin.where.line):
                labels[number] = _PREVIOUS  # zeros that an optimiser begins with, too
            elif label is not None:
                line = (origin.where.file, origin.where.line) if label == "initial values" else None
        labels = _between_backward(_settled(labels))
        if self.trains and "backward" not in labels:
            return ["evaluation" if label == "forward" else label for label in labels]
        return labels

    def section(self, statement: Statement) -> str | None:
        """The section of one statement, or how it goes with its neighbours."""
        if isinstance(statement, Comment):
            return _NEXT
        if escapes(statement):
            return None
        origin = self.origin(statement)
        if origin is None:
            return _PREVIOUS if _is_check(statement) else self.only_section(statement)
        if self.is_own(origin):
            return self.only_section(statement) if isinstance(statement, For | ForAny | While) else self.label(origin)
        if origin.section in ("", "forward") and not self.is_first(origin):
            is_work = origin.section or isinstance(statement, For | ForAny)
            return self.only_section(statement) or ("forward" if is_work else _EITHER)
        return self.label(origin)

    def only_section(self, statement: Statement) -> str | None:
        """The section of all statements inside of one, if it is one."""
        inside = [origin for inner in inner_of(statement) for each in walk(inner) if (origin := self.origin(each))]
        found = {self.label(origin) for origin in inside} - {""}
        return next(iter(found)) if len(found) == 1 else None

    def label(self, origin: Origin) -> str | None:
        """The section of a statement; for a line of the user's own function the function that it calls, if any."""
        if self.is_own(origin):
            called = called_function(origin.where) if origin.where is not None else ""
            return called or ("variables" if origin.is_write else None)
        return "initial values" if self.is_first(origin) else origin.section

    def action(self, run: Sequence[Statement], label: str) -> str:
        """The name of a function for a run with a label: that of its section, or what the user's call does."""
        places = [origin.where for each in walk(run) if (origin := self.origin(each)) and origin.where is not None]
        calls = (action_at(where) for where in places if called_function(where) == label)
        own = self.function_without_gradient(run) if label == "evaluation" else ""
        return own or VERBS.get(label) or next(calls, label)

    def function_without_gradient(self, run: Sequence[Statement]) -> str:
        """The Python function of the first loop of an evaluation, unless training runs this function, too."""
        trained = {
            origin.where.function for origin in self.origins.values() if origin.section == "backward" and origin.where
        }
        loops = (self.origin(each) for each in run if isinstance(each, For | ForAny | While))
        name = next((origin.where.function for origin in loops if origin and origin.where), "<")
        is_own = self.owner is not None and name == self.owner.function
        return "" if is_own or name in trained or name.startswith("<") else name

    def loop(self, statement: Statement) -> str:
        """The name of a function for a loop: the Python function that it is of."""
        origins = (origin for each in walk((statement,)) if (origin := self.origin(each)))
        where = next((origin.where for origin in origins), None)
        if where is None or where.function.startswith("<"):
            return "loop"
        return f"{where.function}_backward" if where.phase == "backward" else where.function

    def is_first(self, origin: Origin) -> bool:
        """Return whether a statement computes first values: it is of a layer's constructor."""
        return origin.where is not None and origin.where.function == "__init__" and not origin.where.phase

    def by_layer(self, body: Sequence[Statement], lines: Sequence[int], verb: str, depth: int) -> Labels:
        """A name for the layer of each statement, from the start of its path; None if most are of one layer."""
        paths = [self.path(each) for each in body]
        sizes: dict[tuple[str, ...], int] = {}
        for count, path in zip(lines, paths, strict=True):
            sizes[path[:depth]] = sizes.get(path[:depth], 0) + count
        if max(sizes.values(), default=0) > 0.8 * sum(sizes.values()):
            return [None] * len(body)
        labels = list[str | None]()
        for statement, path in zip(body, paths, strict=True):
            if isinstance(statement, Comment):
                labels.append(_NEXT)
            elif escapes(statement):
                labels.append(None)
            else:
                labels.append("_".join([verb, *path[:depth]]) if path else _PREVIOUS)
        return _settled(labels)

    def path(self, statement: Statement) -> tuple[str, ...]:
        """The path of the layer of a statement: the start that the paths of all inner statements share."""
        paths = [origin.path for each in walk((statement,)) if (origin := self.origin(each)) and origin.path]
        return tuple(os.path.commonprefix([path.split(".") for path in paths])) if paths else ()

    def part_of_forward(self, run: Sequence[Statement], others: Sequence[Statement]) -> str:
        """The name of a function for a run of the forward pass: that of its layers if `others` belong to it as well."""
        of_run, of_others = self.functions(run), self.functions(others)
        paths = [path for each in run if (path := self.path(each))]
        if not any(map(self.path, others)) and of_run.isdisjoint(of_others):
            return "forward"
        if not paths:
            return "part_of_forward"
        first, last = paths[0], paths[-1]
        common = len(os.path.commonprefix([first, last]))
        ends = (path[common] if len(path) > common else path[-1] for path in (first, last))
        return "_".join(["forward", "_to_".join(dict.fromkeys(ends))])

    def functions(self, body: Sequence[Statement]) -> set[str]:
        """The Python functions that statements are of."""
        origins = (self.origin(each) for each in walk(body))
        return {origin.where.function for origin in origins if origin is not None and origin.where is not None}

    def origin(self, statement: Statement) -> Origin | None:
        """The origin of a statement, if there is one."""
        return self.origins.get(key_of(statement))

    def is_own(self, origin: Origin) -> bool:
        """Return whether a statement is of a line of the function that is divided, and no other section of it."""
        where = origin.where
        return (
            where is not None
            and self.owner is not None
            and not where.part
            and (origin.section in ("", "forward") or (origin.section == "update" and not where.phase))
            and (where.file, where.function) == (self.owner.file, self.owner.function)
        )

    def comment(self, run: Sequence[Statement], section: str) -> str:
        """A comment on a function: its section, and its Python functions or lines."""
        found: dict[str, None] = {}
        for statement in walk(run):
            origin = self.origin(statement)
            if origin is not None and origin.where is not None and not origin.where.function.startswith("<"):
                where, is_own = origin.where, self.owner is not None and origin.where.function == self.owner.function
                place = f"`{where.function}` of {os.path.basename(where.file)}"
                found[f"{where.short}  {where.text}" if is_own else place] = None
        if section not in TITLES:  # `backward_layer1`, `fly_backward`
            inside = {self.label(origin) for each in walk(run) if (origin := self.origin(each))}
            verbs = {VERBS[title]: title for title in TITLES if title in inside}
            section = next((verbs[word] for word in section.split("_") if word in verbs), "")
        is_titled = section and not (section == "evaluation" and self.function_without_gradient(run))
        shown = ", ".join(list(found)[:3])
        return ": ".join(each for each in (TITLES[section] if is_titled else "", shown) if each)


def calls_of_kernels(function: Function) -> set[str]:
    """The functions that the user's function calls and that have several kernels: they may be functions of the host."""
    owner = function.where.function if function.where is not None else ""
    kernels = (op.where for op in structural_ops(function.block) if op.declared.is_opaque and op.where is not None)
    places = Counter(where for where in kernels if where.function == owner and not where.part)
    return {called_function(where) for where, count in places.items() if count >= KERNELS_OF_CALL} - {""}


# ---- questions about labels and statements -------------------------------------------------------


def _settled(labels: Labels) -> Labels:
    """Labels in which statements that go with others have the labels of these."""
    found: Labels = list(labels)
    for number in range(len(found) - 1, -1, -1):
        if found[number] == _NEXT:
            found[number] = found[number + 1] if number + 1 < len(found) else None
    for number, label in enumerate(found):
        before = found[number - 1] if number else None
        if label == _PREVIOUS or (label == _EITHER and before == "forward"):
            found[number] = before
        elif label == _EITHER:
            behind = (each for each in found[number + 1 :] if each not in (_EITHER, _PREVIOUS))
            found[number] = next(behind, before)
    return found


def _between_backward(labels: Labels) -> Labels:
    """Labels in which all statements between two of the backward pass belong to it."""
    found = list(labels)
    last = None
    for number, label in enumerate(found):
        if label == "backward":
            if last is not None:
                found[last:number] = ["backward"] * (number - last)
            last = number
        elif label not in ("forward", "update"):
            last = None
    return found


def _is_check(statement: Statement) -> bool:
    """Return whether a statement only leaves if something went wrong, or belongs to the one before in other ways."""
    match statement:
        case If(_, (Jump(),), ()) | Label():
            return True
    return False


def escapes(statement: Statement) -> bool:
    """Return whether a statement leaves the function with its result, or jumps to another statement of its block."""
    labels = {each.name for each in walk((statement,)) if isinstance(each, Label)}

    def leaves(body: Sequence[Statement], in_loop: bool) -> bool:
        for each in body:
            match each:
                case Jump("return", value=Member() | Call(function="st_interrupted" | "st_fail" | "st_recursion_ends")):
                    pass
                case Jump("break" | "continue"):
                    if not in_loop:
                        return True
                case Jump(text) if text.startswith("goto ") and text.removeprefix("goto ") in labels:
                    pass
                case Jump():
                    return True
                case _:
                    loops = in_loop or isinstance(each, For | ForAny | ForBits | While)
                    if any(leaves(inner, loops) for inner in inner_of(each)):
                        return True
        return False

    return isinstance(statement, Label) or leaves((statement,), False)
