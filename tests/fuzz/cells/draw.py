"""Drawing arrays: shapes of each kind, and data with the values where mistakes are made."""

from __future__ import annotations

import math
import random
from typing import Any

import ml_dtypes
import numpy as np

from staged.ops.array import METHOD_NAMES

Shape = tuple[int, ...]

DTYPES = {
    "bool": np.bool_,
    "u8": np.uint8,
    "i8": np.int8,
    "u16": np.uint16,
    "i16": np.int16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "c64": np.complex64,
    "c128": np.complex128,
}
"""The dtypes of the language, by their names."""

FLOATS = ("f16", "bf16", "f32", "f64")
HALVES = ("f16", "bf16")
COMPLEX = ("c64", "c128")
INEXACT = (*FLOATS, *COMPLEX)
"""The dtypes that have derivatives."""

KINDS = ("scalar", "empty", "one", "vector", "odd", "block")
"""The kinds of shape: no axes; no elements; one element; a vector of the machine less one (or one more); odd extents; more elements
than a block of a GPU has threads."""

VECTOR_BYTES = 64


class NotACell(Exception):
    """There is no such shape here, as a matrix is no scalar."""


class Draw:
    """The arguments of one function of a program: named arrays, drawn by a seed, a dtype and a kind of shape."""

    def __init__(self, chance: random.Random, dtype: str, kind: str, smooth: bool = False) -> None:
        self.chance = chance
        self.dtype = dtype
        self.kind = kind
        self.smooth = smooth
        self.both = False
        """Whether derivatives are by two operands: where a second one may be left out, it mostly is not."""
        """Whether values are ones at which derivatives by differences mean something: finite and moderate."""
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.name = ""
        """The name of the function that is called, such as `linalg.det`."""
        self.start = 0
        """The number of the first argument."""
        self.main = ""
        """The array that derivatives and maps are by, unless another one is drawn."""
        self.keywords: set[str] = set()
        """The keywords that were written."""
        self.setup: list[str] = []
        """Statements that come first: what is made once, as a layer is."""
        self.lines: list[str] = []
        """Statements before the call, inside of the function that is transformed."""
        self.numbers = np.random.default_rng(chance.randrange(1 << 32))
        self.exact = True
        """Whether all float values are whole numbers of moderate size, or special: sums and products of them are exact."""

    # ---- choices ----

    def pick(self, *options: Any) -> Any:
        return self.chance.choice(options)

    def likely(self, percent: int) -> bool:
        return self.chance.randrange(100) < percent

    @property
    def is_float(self) -> bool:
        """Whether numbers have fractions."""
        return self.dtype in INEXACT

    # ---- shapes ----

    def extent(self) -> int:
        """One extent of this kind."""
        lanes = VECTOR_BYTES // np.dtype(DTYPES[self.dtype]).itemsize
        if self.kind == "scalar":
            raise NotACell
        return {
            "empty": 0,
            "one": 1,
            "vector": max(self.pick(lanes - 1, lanes - 1, lanes + 1, 2 * lanes - 1), 2),
            "odd": self.pick(3, 5, 7, 9, 13),
            "block": self.pick(1031, 1100, 1027),
        }[self.kind]

    def shape(self, rank: int | None = None, ranks: tuple[int, ...] = (1, 2, 3)) -> Shape:
        """A shape of this kind, of `rank` axes or of one of `ranks`."""
        if self.kind == "scalar":
            if rank is not None or 0 not in ranks:
                raise NotACell
            return ()
        rank = self.chance.choice([r for r in ranks if r]) if rank is None else rank
        if rank == 0:
            raise NotACell
        if self.kind == "one":
            return (1,) * rank
        small = [self.pick(2, 3, 4) for _ in range(rank)]
        if self.kind == "block" and rank > 1:
            return {2: (33, 37), 3: (5, 17, 19), 4: (3, 5, 9, 11)}[rank]
        if self.kind == "odd":
            return tuple(self.pick(3, 5, 7) for _ in range(rank - 1)) + (self.extent(),)
        place = self.chance.randrange(rank) if self.kind == "empty" else rank - 1
        small[place] = self.extent()
        return tuple(small)

    # ---- data ----

    def new(self, shape: Shape, dtype: str | None = None, values: str = "any", name: str | None = None) -> str:
        """The name of a new argument of this shape, with data."""
        dtype = dtype or self.dtype
        name = name or f"x{self.start + len(self.arrays)}"
        self.arrays[name] = self.data(shape, dtype, values)
        if not self.main:
            self.main = name
        return name

    def data(self, shape: Shape, dtype: str, values: str = "any") -> np.ndarray[Any, Any]:
        """Random data: `values` says of which sort."""
        kind = np.dtype(DTYPES[dtype])
        size = math.prod(shape)
        if values.startswith("below "):
            return self.numbers.integers(0, int(values.split()[1]), shape).astype(kind)
        if values.startswith("index "):
            extent = int(values.split()[1])
            return self.numbers.integers(-extent if kind.kind == "i" and not self.smooth else 0, extent, shape).astype(
                kind
            )
        if kind.kind == "b":
            return self.numbers.integers(0, 2, shape).astype(bool)
        if kind.kind in "ui":
            return self._integers(shape, kind, values)
        if dtype in COMPLEX:
            return self._complex(shape, size, values).astype(kind)
        with np.errstate(over="ignore"):
            return self._floats(shape, size, values).astype(kind)

    def _complex(self, shape: Shape, size: int, values: str) -> np.ndarray[Any, Any]:
        """Real and imaginary parts; infinities, NaNs and zeros of both signs are left out (docs/roadmap.md, known gaps)."""
        values = "finite" if values in ("any", "no huge", "saturating") else values
        re, im = self._floats(shape, size, values), self._floats(shape, size, values)
        if values == "positive":
            im = im * self.numbers.choice((-1.0, 1.0), shape)
        return (np.asarray(re) + 0.0) + 1j * (np.asarray(im) + 0.0)

    def _integers(self, shape: Shape, kind: Any, values: str) -> np.ndarray[Any, Any]:
        limits = np.iinfo(kind)
        if values == "nonzero":
            data = self.numbers.integers(1, 9, shape)
            return (data * (self.numbers.choice((-1, 1), shape) if kind.kind == "i" else 1)).astype(kind)
        if values == "bits":
            return self.numbers.integers(0, kind.itemsize * 8, shape).astype(kind)
        if values in ("unit", "prob"):
            return self.numbers.integers(0, 2, shape).astype(kind)
        if values in ("small", "positive") or self.likely(50):
            low = 1 if values == "positive" else 0 if kind.kind == "u" else -5
            return self.numbers.integers(low, 6, shape).astype(kind)
        if self.likely(50):
            return self.numbers.integers(max(limits.min, -1000), min(limits.max, 1000), shape, endpoint=True).astype(
                kind
            )
        data = self.numbers.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
        edges = np.array([limits.min, limits.max, 0, 1, limits.max // 2 + 1], kind)
        return np.asarray(np.where(self.numbers.random(shape) < 0.3, self.numbers.choice(edges, shape), data)).astype(
            kind
        )

    def _floats(self, shape: Shape, size: int, values: str) -> np.ndarray[Any, Any]:
        form = self.chance.randrange(10)
        if values in ("positive", "above 1", "prob", "unit", "nonzero"):
            self.exact = False
            data = self.numbers.uniform(0.1, 0.9, shape)
            if values == "positive":
                data = data * self.pick(1.0, 3.0, 10.0)
            elif values == "above 1":
                data = 1.1 + data * 3.0
            elif values == "unit":
                data = data * self.numbers.choice((-1.0, 1.0), shape)
            elif values == "nonzero":
                data = np.where(self.numbers.random(shape) < 0.5, -1.0, 1.0) * (0.3 + data * 2.0)
                if form < 4:
                    data = np.where(self.numbers.random(shape) < 0.5, -1.0, 1.0) * self.numbers.integers(1, 7, shape)
            return data
        if form < 3:
            self.exact = False
            return self.numbers.normal(size=shape) * (
                1.0 if values == "small" or self.smooth else self.pick(1.0, 1.0, 20.0)
            )
        if form < 6 or (form < 8 and values == "small"):
            data = self.numbers.integers(-4, 5, shape).astype(np.float64)
            return np.where(data == 0.0, self.pick(0.0, -0.0) if not self.smooth else 0.0, data)
        if form == 6:
            return np.full(shape, self.pick(0.0, 0.0, 1.0, -2.0, 3.0))
        if values == "saturating" and form > 6:
            # Where exp(-x) or its square leaves f32.
            return self.numbers.choice(np.array([-120.0, -100.0, -90.0, -89.0, -88.0, -50.0, 0.0, 17.0, 50.0, 89.0, 120.0]), shape)
        if form == 7 or self.smooth or values in ("small", "finite"):
            return self.numbers.integers(-60, 61, shape).astype(np.float64)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5]
        if values != "no huge":
            special += [1e30, -1e30, 1e-30, -3e-39]
        return self.numbers.choice(np.array(special), shape)

    # ---- text ----

    def axis(self, rank: int, name: str = "axis", several: bool = True, none: bool = True) -> str:
        """The text of an axis keyword, or of none."""
        if rank == 0 or (none and self.likely(25)):
            return ""
        self.keywords.add(name)
        if none and self.likely(15):
            return f", {name}=None"
        one = self.chance.randrange(-rank, rank)
        if several and rank > 1 and self.likely(35):
            return f", {name}={tuple(sorted(self.chance.sample(range(rank), self.chance.randint(1, rank))))!r}"
        return f", {name}={one}"

    def keyword(self, name: str, *options: Any, percent: int = 50) -> str:
        """The text of a keyword with one of these values, or of none."""
        if not self.likely(percent):
            return ""
        self.keywords.add(name)
        option = self.chance.choice(options)
        return f", {name}={option}"

    def shape_of(self, name: str) -> Shape:
        return self.arrays[name].shape


def form(d: Draw, name: str, x: str, rest: str = "") -> str:
    """`st.name(x, rest)`, or `x.name(rest)` if there is such a method."""
    if name in METHOD_NAMES and d.likely(30):
        return f"{x}.{name}({rest.removeprefix(', ')})"
    return f"st.{name}({x}{rest})"
