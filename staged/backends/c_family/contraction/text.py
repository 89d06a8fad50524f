"""Lines of C with indentation: all that the templates of this package need of a writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Text:
    """Collects lines of C; `block` opens a brace and closes it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append(("    " * self._depth + text) if text else "")

    def lines(self, *texts: str) -> None:
        for text in texts:
            self.line(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def otherwise(self, head: str) -> Iterator[None]:
        """A block that goes on from the brace of the one before: `} else if (...) {`."""
        closing = self._lines.pop()
        assert closing.strip() == "}", "no block before this one"
        self._lines.append(f"{closing} else {head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, count: int, head: str) -> Iterator[None]:
        """A loop the compiler must unroll completely, so that small arrays become registers."""
        self.line(f"#pragma GCC unroll {count}")
        with self.block(head):
            yield

    @contextmanager
    def function(self, head: str, parameters: Sequence[str]) -> Iterator[None]:
        """A function definition, its parameters on a second line where one would be too long."""
        together = f"{head}({', '.join(parameters)})"
        if len(together) <= 110:
            with self.block(together):
                yield
            return
        self.line(f"{head}(")
        line = "       "
        for index, parameter in enumerate(parameters):
            piece = parameter + (")" if index + 1 == len(parameters) else ",")
            if len(line) + len(piece) > 108 and line.strip():
                self.line(line)
                line = "       "
            line += " " + piece
        with self.block(line):
            yield

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


def times(factor: int, expression: str) -> str:
    """`factor * expression` in C, without the factor 1 and without a zero product."""
    if factor == 0 or expression == "0":
        return "0"
    return expression if factor == 1 else f"{expression} * {factor}"


def added(*terms: str) -> str:
    """A C sum without zero terms."""
    kept = [term for term in terms if term != "0"]
    return " + ".join(kept) or "0"
