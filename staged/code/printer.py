"""A function of the tree as text, in a dialect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from staged.code.dialect import C, Dialect
from staged.code.expr import PLAIN, Call, Cast, Expr, Infix, Items, Part, Variable, parts_of, print_expr
from staged.code.tree import (
    Assign,
    Barrier,
    Blank,
    Block,
    Comment,
    Constants,
    Declare,
    DeclareStruct,
    DeclareTable,
    Do,
    For,
    ForAny,
    ForBits,
    Function,
    If,
    Jump,
    Label,
    Parameter,
    Statement,
    Unused,
    While,
)
from staged.code.types import VOID, CType
from staged.code.writer import INDENT, WIDTH, Writer, broken, with_comment, wrapped


def print_function(function: Function, dialect: Dialect = C) -> str:
    """The text of a function, with its comments."""
    printer = Printer(dialect, function.breaks_lines)
    w = printer.w
    for comment in function.comments:
        w.comment(comment)
    head = f"{printer.head(function)} {function.name}({printer.parameters(function.parameters)})"
    if function.threads and not function.breaks_lines:
        w.text(wrapped(head) + " {")
        w.depth += 1
        printer.body(function.body)
        w.depth -= 1
        w.line("}")
    else:
        with w.block(head):
            printer.body(function.body)
    return str(w)


def print_body(body: Sequence[Statement], dialect: Dialect = C, above: str = "") -> list[str]:
    """The lines of a function's statements; `above` is the comment above the function."""
    printer = Printer(dialect)
    printer.above = above
    printer.w.depth = 1
    printer.body(body)
    return printer.w.lines


class Printer:
    """Writes statements, line by line."""

    def __init__(self, dialect: Dialect, breaks_lines: bool = False) -> None:
        self.dialect = dialect
        self.w = Writer()
        self.above = ""
        """The last comment, if it is on what follows as well: it is not repeated."""
        self.like: Printer | None = None
        """The printer whose line breaks are used, so that lines break as with the host's names."""
        if breaks_lines:
            self.like = self if dialect.words is PLAIN else Printer(replace(dialect, words=PLAIN))
        self.open_branch: Callable[[str], None] = self.w.line if breaks_lines else self.w.statement
        self.statements: dict[type[Statement], Callable[[Any], None]] = {
            Declare: self.simple,
            Constants: self.constants,
            DeclareStruct: self.struct,
            DeclareTable: self.table,
            Assign: self.simple,
            Do: self.simple,
            For: self.loop,
            ForAny: self.loop_with_head,
            ForBits: self.loop_over_bits,
            While: self.loop_on_condition,
            If: self.branch,
            Block: self.block,
            Jump: self.jump,
            Label: lambda s: self.w.line(f"{s.name}:;"),
            Barrier: self.barrier,
            Comment: self.comment,
            Blank: lambda s: self.w.line(),
            Unused: self.unused,
        }

    # ---- functions ----

    def head(self, function: Function) -> str:
        """The text before the name of a function."""
        if function.threads:
            return self.dialect.kernel_head.format(function.threads, *(function.block or (function.threads, 1, 1)))
        if function.is_apart:
            return self.dialect.apart_head
        return self.dialect.inline_head if function.is_inline else self.dialect.head

    def parameters(self, parameters: Iterable[Parameter]) -> str:
        restrict = f"{self.dialect.restrict} "
        return ", ".join(
            f"{self.before_name(p.variable.type)}{restrict * p.is_alone}{self.expr(p.variable)}" for p in parameters
        )

    # ---- statements ----

    def before_name(self, type: CType) -> str:
        """The text in front of what is declared."""
        text = self.dialect.words.type(type)
        return text if type.is_pointer else f"{text} "

    def expr(self, expr: Expr) -> str:
        return print_expr(expr, 0, self.dialect.words)

    def body(self, body: Sequence[Statement]) -> None:
        above = self.above
        for statement in body:
            self.statements[type(statement)](statement)
        if self.above != above:
            self.above = ""

    def comment(self, s: Comment) -> None:
        if not self.above.endswith(s.text):
            self.w.comment(s.text)
            self.above = s.text

    def simple(self, s: Declare | Assign | Do) -> None:
        """A statement without others in it."""
        if isinstance(s, Do):
            first = len(self.w.lines)
            self.w.statement(self.text(s), "" if self.like is None else self.like.text(s))
            self.w.note(s.note, first)
        elif self.like is not None:
            self.w.statement(self.text(s), self.like.text(s))
        else:
            self.w.assignment(self.text(s))

    def text(self, s: Declare | Assign | Do) -> str:
        match s:
            case Declare():
                return f"{self.declared(s)};{_note(s.note)}"
            case Assign():
                return f"{self.assigned(s)};"
            case Do(expr):
                return f"{self.expr(expr)};"

    def assigned(self, s: Assign) -> str:
        if isinstance(part := s.target, Part):
            is_sum = s.op == "+" and _is_vector(s.value)
            value = s.value if is_sum or not s.op else Infix(s.op, part, s.value)
            function = f"st_{'add_to' if is_sum else 'store'}_{part.type}"
            return self.expr(Call(function, (part.address, part.count, value)))
        return f"{self.expr(s.target)} {s.op}= {self.expr(s.value)}"

    def struct(self, s: DeclareStruct) -> None:
        declared = f"{self.before_name(s.variable.type)}{self.expr(s.variable)} = "
        heads = {"constant": f"const {declared}", "variable": declared, "returned": f"return ({s.variable.type.text})"}
        self.w.line(heads[s.use] + "{")
        self.w.depth += 1
        lines = [f".{name} = {self.expr(value)}," for name, value in s.fields]
        notes = s.notes or [""] * len(lines)
        width = max((len(line) for line, note in zip(lines, notes, strict=True) if note), default=0)
        for line, note in zip(lines, notes, strict=True):
            self.w.line(with_comment(line, note, self.w.depth, width))
        self.w.depth -= 1
        self.w.line("};")

    def constants(self, s: Constants) -> None:
        self.w.statement(f"enum {{ {', '.join([f'{name} = {size}' for name, size in s.sizes])} }};")

    def table(self, s: DeclareTable) -> None:
        if s.is_flat:
            head = f"const {self.before_name(s.variable.type)}{self.expr(s.variable)}[] ="
            rows = [self.expr(row) for row in s.rows]
            room = WIDTH - len(INDENT) * self.w.depth
            whole = f"{head} {{{', '.join(rows)}}};"
            if len(whole) <= room:
                return self.w.line(whole)
            with self.w.block(head, ";"):
                for line in broken("", rows, ",", room):
                    self.w.line(line)
            return None
        size = str(s.size or "")
        head = f"{'const ' * (not s.size)}{self.before_name(s.variable.type)}{self.expr(s.variable)}[{size}]"
        with self.w.block(f"{head} =", ";"):
            for row in s.rows:
                text = f"{self.expr(row)},"
                # A long string is in lines already.
                self.w.text(text) if "\n" in text else self.w.statement(text)

    def declared(self, s: Declare) -> str:
        type, sizes = s.variable.type, "".join([f"[{self.expr(size)}]" for size in s.sizes])
        name = f"{self.expr(s.variable)}{sizes}"
        if type.is_pointer and not s.sizes:
            head = f"{self.before_name(type)}{'const ' * s.is_const}{name}"
        else:
            word = self.dialect.storage.get(type.space, "") if s.sizes else ""
            word = self.dialect.aligned.format(s.alignment) * bool(s.alignment) + word
            head = f"{word}{'const ' * s.is_const}{self.before_name(type)}{name}"
        if s.value is None:
            return head
        cast = ""
        if self.dialect.needs_casts and isinstance(s.value, Cast) and s.value.type == VOID:
            cast = f"({self.dialect.words.type(type)})"
        more = "".join([f", {self.expr(variable)} = {self.expr(value)}" for variable, value in s.also])
        return f"{head} = {cast}{self.expr(s.value)}{more}"

    def loop(self, s: For) -> None:
        i, step = self.expr(s.index), "" if s.step is None else self.expr(s.step)
        if s.unroll == 1 and self.dialect.rolled:
            self.w.line(self.dialect.rolled)
        elif s.unroll and self.dialect.unroll:
            self.w.line(self.dialect.unroll.format(s.unroll))
        onwards = {"": f"++{i}", "-1": f"--{i}"}.get(step, f"{i} += {step}")
        runs = self.expr(Infix(">" if s.is_down else "<", s.index, s.stop))
        begin = f"{self.before_name(s.index.type)}{i} = {self.expr(s.start)}"
        with self.w.block(f"for ({begin}; {runs}; {onwards})"):
            self.body(s.body)

    def loop_with_head(self, s: ForAny) -> None:
        onwards = self.assigned(s.onwards) if isinstance(s.onwards, Assign) else self.expr(s.onwards.expr)
        begin = f"{self.before_name(s.index.type)}{self.expr(s.index)} = {self.expr(s.start)}"
        with self.w.block(f"for ({begin}; {self.expr(s.condition)}; {onwards})"):
            self.body(s.body)

    def loop_over_bits(self, s: ForBits) -> None:
        rest = self.expr(s.rest)
        head = f"{self.before_name(s.rest.type)}{rest} = {self.expr(s.mask)}; {rest} != 0; {rest} &= {rest} - 1"
        with self.w.block(f"for ({head})"):
            self.body(s.body)

    def loop_on_condition(self, s: While) -> None:
        with self.w.block("for (;;)" if s.condition is None else f"while ({self.expr(s.condition)})"):
            self.body(s.body)

    def branch(self, s: If) -> None:
        w = self.w
        self.open_branch(f"{self.opened(s)} {{")
        w.depth += 1
        self.body(s.then)
        if s.other:
            w.lines.append(f"{INDENT * (w.depth - 1)}}} else {{")
            self.body(s.other)
        w.depth -= 1
        w.line("}")

    def opened(self, s: If) -> str:
        """The head of a branch; all but its last line are written."""
        if s.aligns and isinstance(s.condition, Infix) and isinstance(s.condition.left, Call):
            call, tail = s.condition.left, f") {s.condition.op} {self.expr(s.condition.right)})"
            arguments = [self.expr(each) for each in call.arguments]
            room = WIDTH - len(INDENT) * self.w.depth
            *lines, last = broken(f"if ({call.function}(", arguments, tail, room)
            for line in lines:
                self.w.line(line)
            return last
        return f"if ({self.expr(s.condition)})"

    def block(self, s: Block) -> None:
        with self.w.block(""):
            self.body(s.body)

    def jump(self, s: Jump) -> None:
        value = "" if s.value is None else f" {self.expr(s.value)}"
        self.w.statement(f"{s.word}{value};{_note(s.note)}")

    def barrier(self, s: Barrier) -> None:
        word = self.dialect.warp_barrier if s.is_warp else self.dialect.block_barrier
        self.w.line(f"{word};{_note(s.note)}")

    def unused(self, s: Unused) -> None:
        self.w.line(f"{', '.join([f'(void){self.expr(name)}' for name in s.names])};{_note(s.note)}")


def _is_vector(expr: Expr) -> bool:
    """Return whether an expression has vectors in it. A function of vectors does not accept a number alone."""
    is_variable = isinstance(expr, Variable) and not expr.type.is_pointer and expr.type.lanes > 1
    is_memory = isinstance(expr, Cast) and str(getattr(expr.type, "text", expr.type)).endswith("_u *")
    return is_variable or is_memory or isinstance(expr, Part | Items) or any(map(_is_vector, parts_of(expr)))


def _note(note: str) -> str:
    return f"  // {note}" if note else ""
