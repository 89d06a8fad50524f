"""The differences between languages of kernels, as data: a thread's position, operations of threads together, maths.

Tested by `tests/backends/gpu/test_kernel_text.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from staged.code.dialect import Dialect
from staged.code.expr import Call, Expr, Words
from staged.code.scalars import Need, spell
from staged.ir.types import DType, f32, f64

LAUNCH_WORDS = frozenset("gpu grid block blocks values copied cleared".split())
"""Names in the host functions that start kernels, besides the kernels' parameters, which keep their names there."""

_SAME_IN_C = """acos asin atan atan2 cbrt ceil cos cosh erf erfc exp expm1 floor log log10 log1p log2 pow rsqrt sin sinh
    sqrt tan tanh trunc""".split()
"""Ops whose function C and the languages of kernels call by the op's own name."""
DEVICE_MATHS = {
    **{name: name for name in _SAME_IN_C},
    "abs": "fabs",
    "fma": "fma",
    "round": "rint",
}
"""Functions that languages of kernels have, under C's names: by op."""


DEVICE_PREFIX = "st_device_"
"""The beginning of the names of a device's support functions (names of the user never begin with `st_`)."""


@dataclass(frozen=True)
class GpuDialect(Dialect):
    """A language of kernels. A row that says nothing is for what schedules do not ask of its devices."""

    back_end: str = ""
    """The name that refusals mention."""
    words: Words = field(default_factory=lambda: Words(DEVICE_PREFIX))
    places: Mapping[tuple[str, str], Expr] = field(default_factory=dict)
    """By name ("thread_index", "block_index", "block_size", "grid_size") and axis: where a thread is."""
    function_head: str = "static inline "
    """The head of a function of a device, up to its result's type."""
    overloaded: str = ""
    """The words behind this head where several functions have one name."""
    array_spaces: tuple[str, ...] = ("",)
    """The memories in which arrays of the user's kernels are, where a pointer must say in which."""
    atomics: Mapping[str, str] = field(default_factory=dict)
    """By op ("add", "min", "max"): the function that changes what an address holds, one thread after the other."""
    all_lanes: tuple[Expr, ...] = ()
    """The first arguments of functions that the lanes of a warp call together."""
    shuffles: Mapping[str, str] = field(default_factory=dict)
    """By kind ("idx", "up", "down", "xor"): the function that gives the number of another lane."""
    ballot: str = ""
    """The function that gives a bit for each lane of a warp, whether a condition holds there."""
    lowest_bit: str = ""
    """The function that gives the number of the lowest bit that is set, from 1."""
    maths: Mapping[tuple[str, DType], str] = field(default_factory=dict)
    """The language's own functions, by op and dtype; ops that have none are the support library's."""
    reserved: frozenset[str] = frozenset()
    """Names that mean something in kernels, or in what surrounds them."""
    reserved_by_calls: frozenset[str] = frozenset()
    """More such names, in kernels of the user's."""

    @cached_property
    def own_functions(self) -> Mapping[str, str]:
        """By the name of a support function, `st_exp_f32`: the language's own with the same meaning."""
        return {f"st_{op}_{dtype}": own for (op, dtype), own in self.maths.items() if own.startswith(op)}

    def builtin(self, name: str) -> str:
        """The name of C's `sqrt` or `sqrtf`."""
        return self.maths["sqrt", f32 if name.endswith("f") else f64]

    @property
    def thread(self) -> Expr:
        """The number of a thread in its block."""
        return self.places["thread_index", "x"]

    @property
    def block(self) -> Expr:
        """The number of its block."""
        return self.places["block_index", "x"]

    @property
    def block_size(self) -> Expr:
        """The number of threads of a block."""
        return self.places["block_size", "x"]

    def spell(
        self,
        name: str,
        dtypes: Sequence[DType],
        result: DType,
        operands: Sequence[Expr],
        attrs: Mapping[str, Any],
        need: Need,
    ) -> Expr:
        """An elementwise op on numbers in a kernel."""
        function = self.maths.get((name, dtypes[0] if dtypes else result))
        if function is not None:
            return Call(function, tuple(operands))
        return spell(name, dtypes, result, operands, attrs, need)

    def lanes_where(self, condition: Expr) -> Expr:
        """A bit for each lane of a warp, whether the condition holds there."""
        return Call(self.ballot, (*self.all_lanes, condition))
