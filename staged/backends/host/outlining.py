"""Division of long functions of the host: a run of statements moves to a separate function, named after its work.

    float loss = 0.0f;
    if (forward(args, m, host, &loss) != ST_OK) {
        return host->error_kind;
    }
    backward(m, host);
    update(args, m, host);

The first runs are the sections of a training step. If a function is still long, runs of the same layer follow, then
two parts of equal size. The lines of the user's own function do not move.

Tested by `tests/backends/host/test_outlining.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from staged.backends.host.body import ERROR_KIND, NOTHING, OK, SEQUENCE
from staged.backends.host.buffer_structs import write_fields
from staged.backends.host.sections import SECTIONS, VERBS, Labels, Origin, Sections, escapes
from staged.code.expr import Call, Expr, Index, Infix, Items, Literal, Member, Name, Prefix, Variable, call
from staged.code.printer import print_body
from staged.code.rebuild import rebuilt
from staged.code.scopes import with_short_names
from staged.code.tree import (
    Assign,
    Block,
    Comment,
    Declare,
    DeclareStruct,
    DeclareTable,
    Do,
    For,
    ForAny,
    ForBits,
    If,
    Jump,
    Statement,
    While,
    inner_of,
    walk,
    with_inner,
)
from staged.code.types import CType, Space, pointer, word
from staged.code.unused import names_used
from staged.code.uses import root_names, with_parts, written_names
from staged.code.writer import Names, Writer
from staged.source import Position

MOST = 120
"""Lines of a function that stays whole."""
LEAST = 15
"""Lines of a run of one layer that becomes a function: a shorter one makes the program longer."""
LEAST_OF_SECTION = 8
"""Lines of a section of a training step that becomes a function."""
LONG_LOOP = 40
"""Lines of a loop that becomes a function if another loop is as long."""
MOST_PARAMETERS = 16
"""Parameters of a function that is not a section of a training step."""
DEEPEST = 6
"""Layers inside one another by which a long function is divided."""
Scope = dict[str, Variable]


@dataclass(frozen=True, slots=True)
class Outlined:
    """A function that was part of another one; it returns an error's kind if it `can_fail`, else its `result`."""

    name: str
    comment: str
    parameters: tuple[Variable, ...]
    body: tuple[Statement, ...]
    can_fail: bool
    result: Variable | None
    action: str = ""
    """Its name without a number."""
    section: str = ""
    """The label of its statements."""
    struct: str = ""
    """The type of a struct of arguments."""
    fields: tuple[Variable, ...] = ()

    def write(self, w: Writer, names: Names) -> None:
        """Write the function; `names` are those of its locals."""
        parameters, body = with_short_names(self.parameters, self.unwrapped(), names)
        if self.struct:
            with w.block("typedef struct", f" {self.struct};"):
                write_fields(w, sorted((each.type.before_name, each.text) for each in self.fields))
            w.line()
        if self.comment:
            w.comment(self.comment)
        type = "int " if self.can_fail else self.result.type.before_name if self.result is not None else "void "
        taken = [f"{each.type.before_name}{each}" for each in parameters]
        with w.function(f"static {type}{self.name}", taken or ["void"]):
            w.lines += print_body(body, above=self.comment)

    def unwrapped(self) -> tuple[Statement, ...]:
        """The body without what it repeats: the function's comment, and braces around all of the body."""
        repeats = self.body[:1] and isinstance(self.body[0], Comment) and self.body[0].text == self.comment
        match self.body[1:] if repeats else self.body:
            case (Block(inner), *rest) if all(isinstance(each, Jump) for each in rest):
                return (*inner, *rest)
            case body:
                return body


class Outliner:
    """Divides the functions of a program."""

    def __init__(self, origins: dict[object, Origin], owner: Position | None, fresh: Callable[..., str]) -> None:
        self.origins = origins
        self.sections = Sections(origins, owner)
        self.fresh = fresh
        """Returns a new name like a hint."""
        self.made: list[Outlined] = []
        """The new functions, each behind those that it calls."""
        self.wishes: set[str] = set()
        """The names of functions, some without their numbers."""
        self.sizes: dict[Statement, int] = {}
        self.elsewhere: set[str] = set()
        """Locals that other functions of the program change, through addresses in its state."""
        self.passed: set[str] = set()
        """Variables that a function changes, perhaps on some of its ways alone."""
        self.constants: set[str] = set()
        """Locals that never change: they are passed by value even if their addresses are used."""

    # ---- the division ----

    def by_section(self, body: Sequence[Statement], parameters: Iterable[Variable]) -> tuple[Statement, ...]:
        """The statements of the user's function, in which calls stand for its sections."""
        body = tuple(body)
        if self.lines(body) <= MOST:
            return body
        self.elsewhere = _placed_elsewhere(body)
        self.constants = _constants(body)
        return self.divided(body, _scope(parameters), self.sections.by_section, "", 0)

    def divide_sections(self) -> None:
        """Divide the functions of long sections."""
        sections, self.made = self.made, []
        for each in sections:
            body = self.shortened(each.body, each.parameters, each.action, each.action, 0)
            self.made.append(replace(each, body=body))

    def shortened(
        self, body: Sequence[Statement], parameters: Iterable[Variable], verb: str, name: str, depth: int
    ) -> tuple[Statement, ...]:
        """The statements of a function, in which calls stand for its long runs.

        A `verb` begins the names of its parts; `name` is the function's own one.
        """
        scope = _scope(parameters)
        body = tuple(body)
        if self.lines(body) <= MOST:
            return body
        for level in range(depth + 1, DEEPEST):
            body = self.divided(body, scope, partial(self.by_layer, verb=verb, depth=level), verb, level)
            if self.lines(body) <= MOST:
                return body
        body = self.divided(body, scope, self.by_loop, verb, DEEPEST)
        return self.divided(body, scope, partial(self.by_half, name=name), verb, DEEPEST)

    def divided(
        self,
        body: Sequence[Statement],
        scope: Scope,
        label: Callable[[Sequence[Statement]], Labels],
        verb: str,
        depth: int,
    ) -> tuple[Statement, ...]:
        """Statements in which a call stands for each long run with one label."""
        scope, labels, kept = dict(scope), label(body), list[Statement]()
        begin = 0
        while begin < len(body):
            end, run_label = begin + 1, labels[begin]
            while end < len(body) and labels[end] == run_label:
                end += 1
            calls = None
            while end > begin + 1 and _is_apart(body[end - 1], body[begin:end]):
                end -= 1  # what only others need
            run = body[begin:end]
            least = LEAST_OF_SECTION if run_label in VERBS else LEAST
            is_whole = begin == 0 and all(isinstance(each, Jump) for each in body[end:])
            if run_label is not None and self.lines(run) >= least and not (verb and is_whole):
                calls = self.outlined(run, body[end:], scope, run_label, verb, depth)
            for statement in calls or run:
                kept.append(statement if calls else self.inside(statement, scope, label, verb, depth))
                scope |= _scope(declared_here((statement,)))
            begin = end
        return tuple(kept)

    def inside(self, statement: Statement, scope: Scope, *how: Any) -> Statement:
        """A statement whose inner statements are divided."""
        if isinstance(statement, For | ForAny | ForBits):
            index = statement.rest if isinstance(statement, ForBits) else statement.index
            scope = {**scope, index.text: index}
        return with_inner(statement, lambda inner: self.divided(inner, scope, *how))

    def by_layer(self, body: Sequence[Statement], verb: str, depth: int) -> Labels:
        """The names of the layers that statements belong to."""
        return self.sections.by_layer(body, [self.lines((each,)) for each in body], verb, depth)

    def by_loop(self, body: Sequence[Statement]) -> Labels:
        """The Python functions of long loops, each with the variables that it begins with; None for one loop."""
        sizes = [self.lines((each,)) for each in body]
        loops = [isinstance(each, For | ForAny | While) and not escapes(each) for each in body]
        long = [is_loop and size >= LONG_LOOP for is_loop, size in zip(loops, sizes, strict=True)]
        if sum(sizes) <= MOST or sum(long) < 2:
            return [None] * len(body)
        labels, loop = list[str | None](), ""
        for statement, is_long in zip(body[::-1], long[::-1], strict=True):
            if is_long:
                loop = f"{self.sections.loop(statement)}{'_' * len(labels)}"  # each run has its label
            elif not (isinstance(statement, Assign | Do | Comment) or _is_changed(statement)):
                loop = ""
            labels.append(loop or None)
        return labels[::-1]

    def by_half(self, body: Sequence[Statement], name: str) -> Labels:
        """A label for each of two parts of about equal size, between which few values pass; None if short."""
        total, before, best = self.lines(body), 0, (len(body), 0)
        if total <= MOST or any(self.lines((each,)) > MOST for each in body):
            return [None] * len(body)
        for number, statement in enumerate(body):
            if total <= 3 * before <= 2 * total and not isinstance(statement, Declare):
                here = {each.text for each in declared_here(body[:number])}
                best = min(best, (len(here & names_used(body[number:])), number))
            before += self.lines((statement,))
        place = best[1]
        if not place:
            return [None] * len(body)
        parts = f"begin_{name}", f"finish_{name}"
        return [None if escapes(each) else parts[number >= place] for number, each in enumerate(body)]

    def with_first_values(self, body: Sequence[Statement]) -> tuple[Statement, ...]:
        """Statements in which each variable that a function changes has a first value: compilers ask for one."""
        return tuple(
            replace(each, value=_zero(each.variable.type))
            if isinstance(each, Declare) and each.value is None and not each.sizes and each.variable.text in self.passed
            else with_inner(each, self.with_first_values)
            for each in body
        )

    # ---- a run becomes a function ----

    def outlined(
        self,
        run: Sequence[Statement],
        rest: Sequence[Statement],
        scope: Scope,
        label: str,
        verb: str,
        depth: int,
        name: str = "",
    ) -> list[Statement] | None:
        """Move a run to a function, with a new `name` unless it has one; returns the call."""
        label = label.rstrip("_")
        later, written = names_used(rest), (written_names(run) | self.elsewhere) - self.constants
        declared = {each.variable.text: each for each in run if isinstance(each, Declare)}
        again = self.made_again(declared, later, written)
        run = _without_unused(run, again)
        used = names_used(run)
        inputs = [variable for name, variable in scope.items() if name in used]
        given = [each for each in inputs if each.text not in written]
        changed = [each for each in inputs if each.text in written]
        if any(variable.type.text == "" for variable in inputs):
            return None
        results = [each.variable for name, each in declared.items() if name in later and name not in again]
        if len(declared_here(run)) != len(declared) and any(
            each.text in later and each.text not in declared for each in declared_here(run)
        ):
            return None
        can_fail = any(isinstance(each, Jump) and each.word == "return" for each in walk(run))
        order = {name: number for number, name in enumerate(("args", "m", "host"))}
        given.sort(key=lambda each: order.get(each.text, len(order)))
        returned = results[0] if len(results) == 1 and not can_fail else None
        places = [*changed, *(each for each in results if each is not returned)]
        pointers = {each.text: Variable(each.text, pointer(each.type, Space.GLOBAL)) for each in places}
        parameters = (*given, *pointers.values())
        if len(parameters) > MOST_PARAMETERS and label not in SECTIONS:
            return None
        body = _through_pointers(run, pointers, {each.text for each in results} & pointers.keys(), self.origins)
        self.passed |= {each.text for each in changed}
        self.constants -= pointers.keys()  # results are variables of the caller
        hint = self.sections.action(run, label)
        is_loop = any(isinstance(each, For | ForAny) for each in run)
        wish = f"{hint}_loop" if is_loop and hint in self.wishes else hint
        self.wishes.add(hint)
        second = f"re{wish}" if wish.startswith("initialize") else f"finish_{wish}"
        name = name or self.fresh(wish, others=[second])
        if can_fail:
            body.append(Jump("return", value=OK))
        elif returned is not None:
            body.append(Jump("return", value=returned))
        body = [*self.shortened(body, parameters, verb, hint, depth)] if verb else body
        comment = self.sections.comment(run, label)
        self.made.append(Outlined(name, comment, parameters, tuple(body), can_fail, returned, hint, label))
        done = call(name, *(Name(each.text) for each in given), *(Prefix("&", Name(each.text)) for each in places))
        before: list[Statement] = [
            Declare(each, _zero(each.type) if can_fail else None, is_const=False)
            for each in results
            if each is not returned
        ]
        if can_fail:
            before.append(If(Infix("!=", done, OK), (Jump("return", value=ERROR_KIND),), aligns=True))
        elif returned is not None:
            before.append(replace(declared[returned.text], value=done, has_effects=True))
        else:
            before.append(Do(done))
        return [*before, *(declared[name] for name in declared if name in again)]

    def made_again(self, declared: Mapping[str, Declare], later: set[str], written: set[str]) -> set[str]:
        """The addresses that a run declares and that are used behind it: the caller declares them as well."""
        found: set[str] = set()
        for name, each in reversed(list(declared.items())):
            if name not in later and name not in found:
                continue
            if self.is_address(each) and not _names_of(each.value) & written:
                inner = _names_of(each.value) & declared.keys()
                if all(
                    self.is_address(declared[other])
                    and not _names_of(declared[other].value) & (declared.keys() | written)
                    for other in inner
                ):
                    found |= {name, *inner}
        return found

    def is_address(self, each: Declare) -> bool:
        """Return whether a constant is an address, or depends on constants alone, so that it can be computed twice."""
        if not each.is_const or each.value is None or each.has_effects:
            return False
        parts = list(with_parts([each.value]))
        if any(isinstance(part, Call | Index) for part in parts):
            return False
        return each.variable.type.is_pointer or not any(isinstance(part, Member | Prefix) for part in parts)

    def lines(self, body: Sequence[Statement]) -> int:
        """The lines of statements, about."""
        total = 0
        for statement in body:
            inner = inner_of(statement)
            if inner:
                total += 1 + sum(1 + self.lines(each) for each in inner if each)
                continue
            if statement not in self.sizes:
                self.sizes[statement] = len(print_body([statement]))
            total += self.sizes[statement]
        return total


def move_origins(origins: dict[object, Origin], old: Sequence[Statement], new: Sequence[Statement]) -> None:
    """Give statements the origins of those that they are made from."""
    for before, after in zip(walk(old), walk(new), strict=True):
        if before is not after and before in origins:
            origins[after] = origins[before]


# ---- questions about statements ---------------------------------------------------------------


def _scope(variables: Iterable[Variable]) -> Scope:
    return {each.text: each for each in variables}


def _without_unused(run: Sequence[Statement], again: set[str]) -> tuple[Statement, ...]:
    """A run without the constants that only statements behind it use, which are computed `again` there."""
    kept, used = list[Statement](), set[str]()
    for statement in reversed(run):
        if isinstance(statement, Declare) and statement.variable.text in again - used:
            continue
        kept.append(statement)
        used |= names_used((statement,))
    return tuple(reversed(kept))


def _is_changed(statement: Statement) -> bool:
    """Return whether a statement declares a variable, not a constant."""
    return isinstance(statement, Declare) and not statement.is_const


def _is_apart(statement: Statement, run: Sequence[Statement]) -> bool:
    """Return whether a run's last statement is a constant that does not depend on the run."""
    declared = {each.text for each in declared_here(run)}
    return isinstance(statement, Declare) and not _names_of(statement.value) & declared


def declared_here(body: Sequence[Statement]) -> list[Variable]:
    """The variables that statements declare for those behind them; arrays are not passed on."""
    found = []
    for statement in body:
        match statement:
            case Declare(variable, sizes=sizes):
                found.append(Variable(variable.text, word("")) if sizes else variable)
            case DeclareStruct(variable) | DeclareTable(variable):
                found.append(Variable(variable.text, word("")))
    return found


def _constants(body: Sequence[Statement]) -> set[str]:
    """The names of which each declaration is a constant."""
    declared = [each for each in walk(body) if isinstance(each, Declare)]
    return {each.variable.text for each in declared} - {each.variable.text for each in declared if not each.is_const}


def _names_of(value: Expr | None) -> set[str]:
    """The variables that an expression reads."""
    return {part.text for part in with_parts([] if value is None else [value]) if isinstance(part, Name)}


def _placed_elsewhere(body: Sequence[Statement]) -> set[str]:
    """The locals whose addresses are stored."""
    stored: list[Expr] = []
    for statement in body:
        match statement:
            case DeclareStruct(_, fields):
                stored += [value for _, value in fields]
            case Assign(Member(), value):
                stored.append(value)
    return set().union(*(root_names(each.operand) for each in stored if isinstance(each, Prefix) and each.op == "&"))


def _through_pointers(
    body: Sequence[Statement], pointers: Mapping[str, Variable], results: set[str], origins: dict[object, Origin]
) -> list[Statement]:
    """Statements that use variables through pointers; the declarations of `results` become assignments."""

    def changed(tree: Any) -> Any:
        match tree:
            case Prefix("&", Name(text)) if text in pointers:
                return pointers[text]
            case Member(Name(text), field, False) if text in pointers:
                return Member(pointers[text], field)
            case Name(text) if text in pointers:
                return Prefix("*", pointers[text])
            case Declare(variable, value) if variable.text in results:
                assert value is not None
                value = replace(value, type=variable.type.text) if isinstance(value, Items) else value
                return Assign(Prefix("*", pointers[variable.text]), changed(value))
        return tree if isinstance(tree, Variable) else rebuilt(tree, changed)

    def moved(old: Statement) -> Statement:
        new: Statement = changed(old)
        move_origins(origins, (old,), (new,))
        return new

    begun = {each.variable.text for each in body if isinstance(each, Declare) and each.value is None} & results
    return [moved(each) for each in body if not (isinstance(each, Declare) and each.variable.text in begun)]


def _zero(type: CType) -> Expr | None:
    """A first value for a variable that a function writes, since compilers do not see that it does."""
    if type.is_pointer:
        return Name("NULL")
    if type == SEQUENCE:
        return NOTHING
    return {"float": Literal("0.0f"), "double": Literal("0.0"), "bool": Name("false")}.get(
        type.text, Literal("0") if type.dtype is not None or type.text == "int64_t" else None
    )
