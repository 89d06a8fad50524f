"""The writer: lines with indentation, and C names made from the user's.

One `Writer` per file of generated text. `Names` keeps identifiers unique within a scope, so the user's `h` stays `h`, and
a second one becomes `h_2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

INDENT = "    "
WIDTH = 116

_RESERVED = frozenset(
    # C11 keywords and the macros and functions of the headers that generated programs include; last C++'s own keywords, for what
    # both compilers take, and CUDA's, macros where there is no GPU.
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false
    asm typeof NULL NAN INFINITY EOF stdin stdout stderr errno main abs labs exp log pow sin cos tan sqrt floor ceil round
    trunc tanh erf fabs fmax fmin printf fprintf snprintf malloc calloc realloc free memcpy memset memmove strlen exit
    abort time clock div read write open close remove rename index rand random y0 y1 yn j0 j1 jn gamma signal raise
    remainder select ldexp frexp isnan isinf isfinite signbit exp2 log2 log10 log1p expm1 cbrt hypot fma min max
    asin acos atan atan2 sinh cosh asinh acosh atanh fmod modf exp2 lgamma tgamma erfc rint lrint lround nearbyint fdim nan
    nextafter nexttoward scalbn logb ilogb remquo copysign isnormal isless isgreater ldiv lldiv llabs atof atoi atol qsort
    bsearch system getenv puts putchar getchar gets fputs fgets fread fwrite fopen fclose fflush fseek ftell rewind perror
    scanf sscanf fscanf memchr memcmp strcat strchr strcmp strcpy strtod strtok strtol link unlink access dup fork kill
    pipe pause sleep sync nice wait alarm send recv bind listen accept
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t offsetof assert
    unix linux i386 I complex imaginary host arena args begin end thread text
    alignas alignof and and_eq bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept
    const_cast consteval constexpr constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept
    not not_eq nullptr operator or or_eq private protected public
    reinterpret_cast requires static_assert static_cast template this thread_local throw try typeid typename using
    virtual wchar_t xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize""".split()
)


def c_identifier(hint: str) -> str:
    """A C identifier as close to `hint` as can be: ASCII letters, digits and `_`, never reserved, never ours (`st_`)."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", hint, flags=re.ASCII).strip("_") or "t"
    if text[0].isdigit():
        text = f"t_{text}"
    if text.startswith("st_"):
        text = f"t_{text}"
    elif text in _RESERVED:
        text += "_"
    return text[:48]


class Names:
    """Unique names in one scope (a file or a function inside it)."""

    def __init__(self, outer: Names | None = None) -> None:
        self.used: set[str] = set()
        self.outer = outer

    def taken(self, name: str) -> bool:
        return name in self.used or (self.outer is not None and self.outer.taken(name))

    def fresh(self, hint: str, suffix: str = "") -> str:
        """`hint` as an identifier, with `_2`, `_3`, ... where it is taken; `suffix` comes behind the number."""
        base = c_identifier(hint)
        name, count = base + suffix, 1
        while self.taken(name):
            count += 1
            name = f"{base}_{count}{suffix}"
        self.used.add(name)
        return name


class Writer:
    """Collects lines of C."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        """One line at the current depth; preprocessor lines start at column 0, but for what is said of the next statement."""
        is_outside = text.startswith("#") and not text.startswith("#pragma GCC unroll")
        self.lines.append((text if is_outside else INDENT * self.depth + text) if text else "")

    def statement(self, text: str) -> None:
        """A statement, broken after commas where it is long."""
        self.text(wrapped(text, WIDTH - len(INDENT) * self.depth))

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

    def section(self, title: str) -> None:
        """A stable section marker: hand edits between markers can later survive regeneration."""
        if self.lines and self.lines[-1]:
            self.line()
        self.line(f"// ---- {title} " + "-" * max(4, 96 - len(title) - 8))

    def comment(self, text: str) -> None:
        """A `//` comment; nothing in `text` can end it or continue it on the next line."""
        for part in text.splitlines() or [""]:
            self.line("// " + safe_comment(part))

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


def safe_comment(text: str) -> str:
    """Text for a line comment: printable ASCII and Unicode letters kept, no line splice, no trigraph."""
    clean = "".join(ch if ch.isprintable() else " " for ch in text).replace("??", "? ?")
    clean = clean.rstrip()
    # A backslash at the end would continue the comment on the next line.
    return clean + " ." if clean.endswith("\\") else clean


_NEXT = re.compile(r', (?=(?:[^"\\]|\\.|"(?:[^"\\]|\\.)*")*$)')
"""Where a list goes on, outside of strings."""


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


def wrapped(signature: str, width: int = WIDTH) -> str:
    """A function head or a call, broken after commas where it is long; not if it is already, or ends with a comment."""
    if len(signature) <= width or "\n" in signature or "  //" in signature:
        return signature
    lines, line = [], ""
    for piece in _NEXT.split(signature):
        if line and len(line) + len(piece) + 3 > width:
            lines.append(line + ",")
            line = "        " + piece
        else:
            line = f"{line}, {piece}" if line else piece
    return "\n".join([*lines, line])
