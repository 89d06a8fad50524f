"""The differences between the languages that code is printed in, as data.

Tested by `tests/code/test_printer.py` and `tests/backends/host/test_iso_c.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.code.expr import PLAIN, Words
from staged.code.types import Space


@dataclass(frozen=True)
class Dialect:
    """A language of the C family."""

    words: Words = PLAIN
    """The names of functions and types of the support library in the language."""
    unroll: str = "#pragma GCC unroll {}"
    """The text before a loop that is unrolled a given number of times; empty if compilers decide that."""
    rolled: str = ""
    """The text before a loop that is not to be unrolled; empty if compilers decide that."""
    needs_casts: bool = False
    """True if a `void *` becomes another pointer by a cast alone, as in C++."""
    restrict: str = "restrict"
    head: str = "static void"
    inline_head: str = "static inline __attribute__((always_inline)) void"
    apart_head: str = "static __attribute__((noinline)) void"
    """The head of a function that compilers do not inline. Without such an attribute it is `head`."""
    kernel_head: str = ""
    """The head of a kernel in blocks of so many threads, and of such sides, up to its name."""
    storage: dict[Space, str] = field(default_factory=dict)
    """The word before arrays that are not a thread's own."""
    aligned: str = "alignas({}) "
    """The words before what is declared at a multiple of so many bytes."""
    block_barrier: str = ""
    warp_barrier: str = ""


C = Dialect(aligned="_Alignas({}) ")
C99 = Dialect(unroll="", inline_head="static inline void", apart_head="static void")
"""C without extensions of a compiler's."""
C_AND_CPP = Dialect(aligned="__attribute__((aligned({}))) ", needs_casts=True, restrict="__restrict")
"""The dialect that compilers of C11 and of C++17 accept."""
