"""The writer: lines with indentation, and C names made from the user's.

One `Writer` per file of generated text. `Names` keeps identifiers unique within a scope, so the user's `h` stays `h`,
and a second one becomes `h_2`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from staged.code.header_words import WORDS

INDENT = "    "
WIDTH = 116
_CITES = re.compile(r":\d+  ")
"""The end of a position, before its line of Python."""
_TARGET = re.compile(r"st_(?:store|add_to)_\w+\([^,]*, [^,]*,(?= )| [-+*/]?=(?= )")
_BINDING = {
    operator: strength
    for strength, operators in enumerate([",", "? :", "||", "&&", "|", "^", "&", "== !=", "< > <= >=", "+ -", "* /"])
    for operator in operators.split()
}
"""The strength with which each operator binds its operands."""
LONGEST_NAME = 60
"""Characters of a name. C compares the first 63."""
LONGEST = 120
"""Columns of what is left of a line that was broken."""

_RESERVED = WORDS | frozenset(
    # Keywords of C11 and of C++, for what both compilers take; then the words of our own in the text of programs.
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
    asm typeof alignas alignof and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield
    compl concept const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable
    namespace new noexcept not not_eq nullptr operator or or_eq private protected public reinterpret_cast requires
    static_assert static_cast template this thread_local throw try typeid typename using virtual wchar_t xor xor_eq I
    complex imaginary main host arena args begin end thread text message progress_bar threadIdx blockIdx blockDim
    gridDim warpSize""".split()
)

_COMPLEX_MATHS = frozenset(
    f"{name}{suffix}"
    for name in """cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj creal
    csin csinh csqrt ctan ctanh""".split()
    for suffix in ("", "f", "l")
)
"""Functions of complex.h: compilers know them without the header, and warn of another function of the name."""

_HEADER_SHAPE = re.compile(
    # Macros and constants: BUFSIZ, INT64_MAX, SIGINT. A single letter with a number is the user's: W1, B_2.
    r"(?![A-Z][0-9_]*$)[A-Z][A-Z0-9_]+"
    # Types of POSIX, and families that are more on other systems.
    r"|\w+_t|(?:pthread|posix|atomic|sched|sigev)_\w+|(?:cuda|cublas|cudnn|cusolver|nvrtc)\w+|CU[a-z]\w+"
)


def has_header_shape(name: str) -> bool:
    """Return whether a name looks like one that headers define: then a user's name is changed, whether or not any
    header has it.
    """
    return _HEADER_SHAPE.fullmatch(name) is not None


def _shortened(name: str) -> str:
    """A name that is too long without the parts that a later part contains, then without those behind the first.

    `mean_decoder_layers_decoderlayer0_linear1_weight` -> `mean_layers_decoderlayer0_linear1_weight`
    """
    if len(name) <= LONGEST_NAME:
        return name
    first, *parts = name.split("_")
    kept = [part for n, part in enumerate(parts) if len(part) < 4 or not any(part in each for each in parts[n + 1 :])]
    while kept and len(first) + sum(len(part) + 1 for part in kept) > LONGEST_NAME:
        del kept[0]
    return "_".join([first, *kept])[:LONGEST_NAME].rstrip("_")


def c_identifier(hint: str) -> str:
    """A C identifier as close to `hint` as can be: ASCII letters, digits and `_`, never reserved, never ours (`st_`).

    No macro, type or function of the headers that programs include has such a name: those are known by their shape
    (constants in capitals, families of functions), or are in the list that is made from the headers themselves
    (`header_words.py`).
    """
    text = re.sub(r"[^A-Za-z0-9_]+", "_", hint, flags=re.ASCII).strip("_") or "t"
    if text[0].isdigit():
        text = f"t_{text}"
    if text.startswith("st_"):
        text = f"t_{text}"
    text = _shortened(text)
    return f"{text}_" if text in _RESERVED or text in _COMPLEX_MATHS or has_header_shape(text) else text


class Names:
    """Unique names in one scope (a file or a function inside it)."""

    def __init__(self, outer: Names | None = None) -> None:
        self.used: set[str] = set()
        self.outer = outer
        self.numbered: dict[str, str] = {}
        """By name with a number, the hint without it."""
        self.layer: str = outer.layer if outer is not None else ""
        """The prefix that all names leave out: `layer4_bottleneck0_`."""

    def taken(self, name: str) -> bool:
        return name in self.used or (self.outer is not None and self.outer.taken(name))

    def identifier(self, hint: str) -> str:
        """`hint` as an identifier of this scope."""
        if self.layer and not hint.endswith(self.layer):
            hint = (
                hint.replace(self.layer, "", 1)
                if hint.startswith(self.layer)
                else hint.replace(f"_{self.layer}", "_", 1)
            )
        return c_identifier(hint)

    def fresh(self, hint: str, suffix: str = "", others: Iterable[str] = ()) -> str:
        """`hint` as an identifier. If it is taken, one of `others`, else with `_2`, `_3`, ...; `suffix` comes behind
        the number.

        `select_` is followed by `select_2`: two underscores in a row belong to the compilers of C++ and CUDA.
        """
        base = self.identifier(hint)
        if self.taken(base):
            base = next((name for name in map(self.identifier, others) if not self.taken(name)), base)
        names = self.numbers(base, suffix)
        first = next(names)
        name = first if not self.taken(first) else next(name for name in names if not self.taken(name))
        if name != first and not suffix:
            self.numbered[name] = base
        self.used.add(name)
        return name

    @staticmethod
    def numbers(base: str, suffix: str = "") -> Iterator[str]:
        """An identifier, then the same with numbers."""
        stem = base.rstrip("_")
        yield f"{stem}{suffix}" if suffix else base
        yield from (f"{stem}_{count}{suffix}" for count in itertools.count(2))


class Writer:
    """Collects lines of C."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        """One line at the current depth; preprocessor lines start at column 0, but for what is said of the next
        statement.
        """
        is_outside = text.startswith("#") and not text.startswith("#pragma GCC unroll")
        self.lines.append((text if is_outside else INDENT * self.depth + text) if text else "")

    def statement(self, text: str, like: str = "") -> None:
        """A statement, broken after commas where it, or what it is `like`, is long."""
        self.text(wrapped(text, WIDTH - len(INDENT) * self.depth, like))

    def note(self, text: str, first: int) -> None:
        """A comment behind the last line, or above line number `first` if the last line is too long."""
        if text and len(self.lines[-1]) + len(text) + 5 <= LONGEST:
            self.lines[-1] += f"  // {text}"
        elif text:
            self.lines.insert(first, f"{INDENT * self.depth}// {text}")

    def assignment(self, text: str) -> None:
        """`target = value;`, or a call that stores a part of a vector: where it is long, it is broken before the value,
        if no list follows, else after commas.
        """
        room = WIDTH - len(INDENT) * self.depth
        sign = _TARGET.search(text)
        head, value = (text[: sign.end()], text[sign.end() + 1 :]) if sign else ("", text)
        if len(text) <= room:
            self.line(text)
        elif head and '"' not in head and not value.startswith("{") and len(head) <= room:
            self.line(head)
            for line in folded(value, LONGEST - len(INDENT) * self.depth - 8):
                self.line(f"        {line}")
        else:
            self.statement(text)

    def text(self, text: str) -> None:
        """Ready text, line by line, at the current depth."""
        for line in text.rstrip("\n").split("\n"):
            self.line(line)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """An include guard: what stands inside is read once, however often the header is included."""
        self.line(f"#ifndef {name}")
        self.line(f"#define {name}")
        self.line()
        yield
        self.line(f"#endif  // {name}")

    @contextmanager
    def block(self, header: str, tail: str = "") -> Iterator[None]:
        """`header {` ... `}tail`; a long header is broken after commas."""
        self.statement(f"{header} {{" if header else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}" + tail)

    @contextmanager
    def otherwise(self, head: str = "") -> Iterator[None]:
        """A block that goes on from the brace of the one before: `} else if (...) {`, or `} else {`."""
        closing = self.lines.pop()
        assert closing.strip() == "}", "no block before this one"
        self.lines.append(f"{closing} else {f'{head} {{' if head else '{'}")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, count: int, head: str) -> Iterator[None]:
        """A loop that the compiler must unroll completely, so that small arrays become registers."""
        self.line(f"#pragma GCC unroll {count}")
        with self.block(head):
            yield

    @contextmanager
    def function(self, head: str, parameters: Iterable[str]) -> Iterator[None]:
        """A function definition."""
        with self.block(f"{head}({', '.join(parameters)})"):
            yield

    def section(self, title: str) -> None:
        """A stable section marker: hand edits between markers can later survive regeneration."""
        if self.lines and self.lines[-1]:
            self.line()
        self.line(f"// ---- {title} " + "-" * max(4, 96 - len(title) - 8))

    def comment(self, text: str) -> None:
        """A `//` comment; nothing in `text` can end it or continue it on the next line."""
        for part in text.splitlines() or [""]:
            self.line("// " + safe_comment(part, LONGEST - 3 - len(INDENT) * self.depth))

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def safe_comment(text: str, room: int = LONGEST - 3) -> str:
    """Text for a line comment: printable ASCII and Unicode letters kept, no line splice, no trigraph. A line of Python
    is cut if it needs more than `room` columns.
    """
    if not text.isprintable():
        text = "".join(ch if ch.isprintable() else " " for ch in text)
    clean = text.replace("??", "? ?").rstrip()
    if _CITES.search(clean):
        clean = cut(clean, room)
    # A backslash at the end would continue the comment on the next line.
    return clean + " ." if clean.endswith("\\") else clean


def cut(text: str, room: int) -> str:
    """As much of a line as there is room for."""
    return text if len(text) <= room else text[: max(room - 4, 0)].rstrip() + " ..."


def with_comment(line: str, comment: str, depth: int, width: int = 0) -> str:
    """A line of at least this width with as much of a comment as there is room for."""
    width = max(width, len(line))
    room = LONGEST - len(INDENT) * depth - width - len("  // ")
    return f"{line:<{width}}  // {cut(safe_comment(comment), room)}" if comment and room >= len(" ...") else line


def _elements(text: str) -> list[str]:
    """The elements of a list, apart at the commas outside of strings."""
    found: list[str] = []
    in_string = False
    for piece in text.split(", "):
        if in_string:
            found[-1] += f", {piece}"
        else:
            found.append(piece)
        quotes = piece.replace("\\\\", "").replace('\\"', "").count('"')
        in_string ^= quotes % 2 == 1
    return found


def c_string(text: str) -> str:
    """A C string literal of exactly these characters, in UTF-8 with octal escapes outside printable ASCII."""
    out: list[str] = []
    for byte in text.encode("utf-8", "surrogateescape"):
        ch = chr(byte)
        if ch in '"\\':
            out.append("\\" + ch)
        elif ch == "\n":
            out.append("\\n")
        elif ch == "?":
            out.append("\\?")  # no trigraphs
        elif 32 <= byte < 127:
            out.append(ch)
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def folded(value: str, width: int) -> list[str]:
    """An expression in lines of at most `width` columns, broken where the fewest parentheses are open, at what binds
    least: after commas, and before operators.
    """
    if len(value) <= width or '"' in value:
        return [value]
    depth = 0
    breaks: list[tuple[tuple[int, int], int]] = []
    for place, character in enumerate(value):
        depth += (character in "([{") - (character in ")]}")
        if character == " ":
            operator = "," if value[place - 1] == "," else value[place + 1 : value.find(" ", place + 1)]
            if operator in _BINDING:
                breaks.append(((depth, _BINDING[operator]), place))
    if not breaks:
        return [value]
    weakest = min(breaks)[0]
    outermost = [place for binding, place in breaks if binding == weakest]
    lines, first = [], 0
    for place, after in zip(outermost, [*outermost[1:], len(value)], strict=True):
        if after - first > width:
            lines.append(value[first:place])
            first = place + 1
    parts = [*lines, value[first:]]
    if len(parts) == 1:
        return parts
    joined: list[str] = []
    for line in (line for part in parts for line in folded(part, width)):
        if joined and len(joined[-1]) + len(line) < width:
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


def broken(head: str, parts: Sequence[str], tail: str, width: int) -> list[str]:
    """`head part, part, ... tail` in lines of at most `width` columns, where that can be; later ones stand below the
    first part.
    """
    indent = " " * len(head)
    lines, line = [], head
    for number, part in enumerate(parts):
        piece = part + (tail if number == len(parts) - 1 else ", ")
        if number and len(line) + len(piece.rstrip()) > width:
            lines.append(line.rstrip())
            line = indent
        line += piece
    return [*lines, line if parts else line + tail]


def wrapped(signature: str, width: int = WIDTH, like: str = "") -> str:
    """A function head or a call, broken after commas where it is long; not if it is already, or ends with a comment.

    `like`: the same with other names, which is measured instead.
    """
    measured = like or signature
    if len(measured) <= width or "\n" in signature or "  //" in signature:
        return signature
    lines: list[list[str]] = []
    room = 0
    for piece, same in zip(_elements(signature), _elements(measured), strict=True):
        if not lines or room + len(same) + 3 > width:
            room = len(same) + (8 if lines else 0)
            lines.append([piece])
        else:
            room += len(same) + 2
            lines[-1].append(piece)
    return ",\n        ".join(_within(", ".join(pieces), width + LONGEST - WIDTH - 1) for pieces in lines)


def _within(line: str, width: int) -> str:
    """A line with no more commas to break it at: a long one is broken before operators, or behind a parenthesis."""
    if len(line) <= width or '"' in line:
        return line
    lines = folded(line, width - 8)
    if len(lines) == 1 and (place := line.rfind("(") + 1):
        lines = [line[:place], line[place:]]
    return "\n        ".join(lines)
