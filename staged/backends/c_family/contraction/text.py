"""What the templates of this package need of a writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from staged.backends.c_family.writer import Writer


class Text(Writer):
    """A writer with what loops in registers need besides."""

    @contextmanager
    def otherwise(self, head: str) -> Iterator[None]:
        """A block that goes on from the brace of the one before: `} else if (...) {`."""
        closing = self.lines.pop()
        assert closing.strip() == "}", "no block before this one"
        self.lines.append(f"{closing} else {head} {{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line("}")

    @contextmanager
    def unrolled(self, count: int, head: str) -> Iterator[None]:
        """A loop the compiler must unroll completely, so that small arrays become registers."""
        self.line(f"#pragma GCC unroll {count}")
        with self.block(head):
            yield

    @contextmanager
    def function(self, head: str, parameters: Sequence[str]) -> Iterator[None]:
        """A function definition."""
        with self.block(f"{head}({', '.join(parameters)})"):
            yield


def times(factor: int, expression: str) -> str:
    """`factor * expression` in C, without the factor 1 and without a zero product."""
    if factor == 0 or expression == "0":
        return "0"
    return expression if factor == 1 else f"{expression} * {factor}"


def added(*terms: str) -> str:
    """A C sum without zero terms."""
    kept = [term for term in terms if term != "0"]
    return " + ".join(kept) or "0"
