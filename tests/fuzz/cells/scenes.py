"""Scenes: pieces of several statements, each kind of which is about one part of the compiler.

Whatever a scene draws is tried at once in NumPy (`tests.fuzz.plain`), so that shapes fit, indices are in range and numbers stay
exact: a scene whose text fails there is drawn anew.
"""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz import plain
from tests.fuzz.cells.draw import Draw, NotACell, Shape
from tests.fuzz.cells.piece import Piece, derive, result_of
from tests.fuzz.plain.core import plain as lifted

Scene = Callable[[random.Random], Piece]


def finished(piece: Piece, d: Draw, body: str, transform: str = "plain") -> Piece:
    """The piece with this body, tried in NumPy."""
    piece.arrays = d.arrays
    if transform == "plain":
        piece.text = f"def piece({', '.join(d.arrays)}):\n{textwrap.indent(body, '    ')}"
        result_of(piece.module(piece.text), d.arrays)
    else:
        derive(piece, d, body, transform)
    return piece


class Trial:
    """Statements written one by one, each run in NumPy at once."""

    def __init__(self, d: Draw) -> None:
        self.d = d
        self.names: dict[str, Any] = plain.load("")
        for name, array in d.arrays.items():
            self.names[name] = plain.Plain(array)
        self.lines: list[str] = []

    def given(self, name: str) -> str:
        self.names[name] = plain.Plain(self.d.arrays[name])
        return name

    def value(self, text: str) -> Any:
        """The result of an expression; raises NotACell where it fails."""
        try:
            with np.errstate(all="ignore"):
                return eval(text, self.names)
        except (ValueError, TypeError, IndexError, ArithmeticError, KeyError, AttributeError) as error:
            raise NotACell(str(error)) from error

    def bind(self, name: str, text: str) -> Any:
        value = self.value(text)
        if isinstance(value, plain.Plain) and value.size > 4000:
            raise NotACell
        self.names[name] = value
        self.lines.append(f"{name} = {text}")
        return value


# ---- views of one another -----------------------------------------------------------------------


def fill(d: Draw) -> str:
    if d.dtype == "bool":
        return d.pick("True", "False")
    return d.pick("1.5", "-0.25", "0.0", "7.0", "-2.0") if d.is_float else d.pick("0", "1", "7", "3")


def dtype_text(d: Draw) -> str:
    return "st.bool_" if d.dtype == "bool" else f"st.{d.dtype}"


def constant(d: Draw, shape: Shape) -> str:
    """An array that is known while staging."""
    size = int(np.prod(shape))
    forms = [f"st.zeros({shape!r}, dtype={dtype_text(d)})", f"st.full({shape!r}, {fill(d)}, dtype={dtype_text(d)})"]
    forms.append(f"st.ones({shape!r}, dtype={dtype_text(d)})")
    if d.dtype != "bool" and size < 120:
        forms.append(f"st.reshape(st.arange({size}, dtype={dtype_text(d)}), {shape!r})")
    return d.chance.choice(forms)


def _view(d: Draw, name: str, shape: Shape, others: list[tuple[str, Shape]]) -> str:
    """A view, or a simple mix, of a value."""
    rank = len(shape)
    if not rank:
        return d.pick(f"st.reshape({name}, (1,))", f"st.broadcast_to({name}, (3,))", f"st.expand_dims({name})")
    axis = d.chance.randrange(rank)

    def cut(text: str) -> str:
        return f"{name}[{', '.join(text if number == axis else ':' for number in range(rank))}]"

    widths = [d.pick((0, 0), (1, 0), (0, 2), (1, 1), (3, 0)) for _ in range(rank)]
    padded = (
        f"st.pad({name}, {tuple(widths)!r}, value={fill(d)})"
        if d.likely(50)
        else f"st.pad({name}, {d.pick(1, 1, 2)}, value={fill(d)})"
    )
    order = tuple(d.chance.sample(range(rank), rank))
    size = int(np.prod(shape))
    forms = [padded] * 4 + [
        cut(d.pick("1:", ":-1", "::2", "::-1", "1:-1", "::-2", "0:0", "2:3")),
        cut(d.pick("1:", ":-1", "::-1")),
        f"st.flip({name}, axis={axis})",
        f"st.flip({name})",
        f"st.roll({name}, {d.pick(1, -1, 2, 5)}, axis={axis})",
        f"st.roll({name}, {d.pick(1, -2)})",
        f"st.permute_dims({name}, {order!r})",
        f"st.reshape({name}, ({size},))",
        f"st.expand_dims({name}, {axis})",
        f"st.broadcast_to({name}, {(2, *shape)!r})",
        f"st.concat([{name}, {name}], axis={axis})",
        f"st.concat([{name}, {constant(d, shape)}], axis={axis})",
        f"st.stack([{name}, {constant(d, shape)}], axis={axis})",
        f"st.tile({name}, 2)",
        f"st.repeat({name}, 2, axis={axis})",
    ]
    if shape[axis]:
        index = d.chance.randrange(-shape[axis], shape[axis])
        forms += [
            cut(str(index)),
            f"st.take({name}, st.asarray([{index}, 0, {shape[axis] - 1}]), axis={axis})",
            f"st.set_item({name}, {d.chance.randrange(-shape[0], shape[0]) if shape[0] else 'slice(0, 0)'}, {fill(d)})",
        ]
        if d.dtype != "bool":
            forms += [
                f"st.max({name}, axis={axis}, keepdims=True)",
                f"st.sum({name}, axis={axis}, dtype={dtype_text(d)})",
            ]
    if rank == 2:
        forms += [f"st.tril({name}, {d.pick(0, 1, -1)})", f"{name}.T"]
    alike = [other for other, its in others if its == shape]
    if alike:
        other = d.chance.choice(alike)
        forms += [f"st.where({name} == {other}, {name}, {other})", f"st.concat([{other}, {name}], axis={axis})"]
        if d.dtype != "bool":
            forms += [f"({name} + {other})", f"st.maximum({name}, {other})", f"({name} - {other})"]
    return d.chance.choice(forms)


def views(chance: random.Random) -> Piece:
    """Views of views, with unequal fills."""
    d = Draw(
        chance,
        chance.choice(("f32", "f64", "f32", "f64", "i32", "u8", "i64", "u32", "i8", "u16", "i16", "u64", "bool")),
        chance.choice(("vector", "odd", "one", "odd", "empty", "odd")),
    )
    shape = d.shape(ranks=(1, 2, 1, 2, 3))
    x = d.new(shape, values="small")
    trial = Trial(d)
    known: list[tuple[str, Shape]] = [(x, shape)]
    if d.likely(30):
        trial.bind("c", constant(d, shape))
        known.append(("c", shape))
    for number in range(chance.randint(2, 6)):
        name, its = known[-1] if d.likely(75) else chance.choice(known)
        value = trial.bind(f"v{number}", _view(d, name, its, known))
        known.append((f"v{number}", value.shape))
    last = known[-1][0]
    transform = "plain"
    if d.is_float and d.likely(25):
        transform = d.pick("grad", "jvp")
        result = last
    else:
        mixed = (
            [f"{last}"]
            + ([f"st.sum({last})"] if d.dtype != "bool" else [])
            + ([chance.choice(known)[0]] if d.likely(40) else [])
        )
        result = f"({', '.join(mixed)},)" if len(mixed) > 1 else last
    piece = Piece("", d.arrays, label="views", loose=d.is_float)
    return finished(piece, d, "\n".join([*trial.lines, f"return {result}"]) + "\n", transform)


# ---- integers: ranges, wrapping ------------------------------------------------------------------

BIG = {
    "u8": (255, 128, 200),
    "i8": (127, -128, 100),
    "u16": (65535, 32768, 40000),
    "i16": (32767, -32768, 30000),
    "u64": (2**63 - 1, 2**62, 2**32, 2654435761),
    "i32": (2000000000, 2147483647, -2147483648, 65536),
    "u32": (2654435761, 4294967295, 2147483648, 65536),
    "i64": (2**62, 2**60, 2**63 - 1, -(2**63), 2**32, 2654435761),
}


class Integers:
    """Expressions of integers over names whose dtypes are known."""

    def __init__(self, d: Draw, atoms: list[tuple[str, str]], counters: list[str]) -> None:
        self.d = d
        self.atoms = atoms
        """(name, dtype) of typed values."""
        self.counters = counters
        """Names of loop counters, which are as flexible as Python's numbers."""

    def number(self, dtype: str) -> str:
        if self.d.likely(20):
            return str(self.d.chance.choice(BIG[dtype]))
        low = 0 if dtype[0] == "u" else -3
        return str(self.d.chance.randrange(low, 9))

    def weak(self, depth: int) -> str:
        """An expression of counters and numbers."""
        d, below = self.d, depth - 1
        if depth <= 0:
            return d.chance.choice(self.counters) if d.likely(75) and self.counters else str(d.chance.randrange(-3, 12))
        forms = [
            lambda: f"({self.weak(below)} {d.pick('+', '-', '*')} {self.weak(below)})",
            lambda: f"({self.weak(below)} {d.pick('//', '%')} {d.pick(2, 3, 5, 7, -2, -3, 2**60)})",
            lambda: f"{d.pick('min', 'max')}({self.weak(below)}, {self.weak(below)})",
            lambda: f"{d.pick('min', 'max')}({self.weak(0)}, {d.pick(0, 1, 2, 3, 5, 9)})",
            lambda: f"st.{d.pick('minimum', 'maximum')}({self.weak(below)}, {d.pick(0, 1, 2, 5, 100)})",
            lambda: f"st.clip({self.weak(below)}, {d.pick(0, -1, 2)}, {d.pick(2, 3, 7)})",
            lambda: (
                f"({self.weak(below)} if {self.weak(0)} {d.pick('<', '>=', '==', '!=')} {d.chance.randrange(-1, 6)}"
                f" else {self.weak(below)})"
            ),
            lambda: f"abs({self.weak(below)})",
            lambda: f"(-{self.weak(below)})",
            lambda: f"({self.weak(below)} {d.pick('&', '|', '^')} {d.pick(1, 3, 6, 255)})",
            lambda: f"({self.weak(below)} {d.pick('<<', '>>')} {d.pick(1, 2, 3)})",
            lambda: f"(i * {d.pick(2**62, 2**61, 2000000000, 2654435761, -1)})",
        ]
        return d.chance.choice(forms)()

    def typed(self, dtype: str, depth: int) -> str:
        """An expression of this dtype."""
        d, below = self.d, depth - 1
        same = [name for name, its in self.atoms if its == dtype]
        if depth <= 0:
            if same and d.likely(75):
                return d.chance.choice(same)
            if self.counters and d.likely(80):
                return f"st.astype({self.weak(0)}, st.{dtype})"
            return f"st.astype({self.number(dtype)}, st.{dtype})"
        deep = lambda: self.typed(dtype, below)  # noqa: E731
        forms = [
            lambda: f"({deep()} {d.pick('+', '-', '*')} {deep()})",
            lambda: f"({deep()} {d.pick('+', '-', '*')} {self.number(dtype)})",
            lambda: f"({deep()} {d.pick('//', '%')} {d.pick(2, 3, 7, 16)})",
            lambda: f"st.{d.pick('minimum', 'maximum')}({deep()}, {deep()})",
            lambda: f"st.{d.pick('minimum', 'maximum')}({deep()}, {self.number(dtype)})",
            lambda: f"st.clip({deep()}, {d.pick(0, 1, 2)}, {d.pick(3, 5, 100)})",
            lambda: f"st.where({deep()} {d.pick('<', '>', '==', '>=')} {self.number(dtype)}, {deep()}, {deep()})",
            lambda: f"(-{deep()})",
            lambda: f"(-{deep()} * {self.number(dtype)})",
            lambda: f"(~{deep()})",
            lambda: f"st.abs({deep()})",
            lambda: f"({deep()} {d.pick('<<', '>>')} {d.pick(1, 3, 7)})",
            lambda: f"({deep()} {d.pick('&', '|', '^')} {self.number(dtype)})",
            lambda: f"st.astype({self.typed(d.pick('u8', 'i32', 'u32', 'i64', 'i8', 'u16', 'i16', 'u64'), below)}, st.{dtype})",
        ]
        return d.chance.choice(forms)()


def integer_arrays(chance: random.Random) -> Piece:
    """Expressions over arrays of integers, compared and converted."""
    dtype = chance.choice(("u8", "i32", "u32", "i64", "u32", "i8", "u16", "i16", "u64"))
    d = Draw(chance, dtype, chance.choice(("scalar", "vector", "odd", "one", "block")))
    shape = d.shape(ranks=(0, 1, 2))
    atoms = [(d.new(shape), dtype), (d.new(shape), dtype)]
    other = chance.choice(("u8", "i32", "u32", "i64", "i8", "u16", "i16", "u64"))
    atoms.append((d.new(shape, other), other))
    write = Integers(d, atoms, [])
    results = []
    for _ in range(chance.randint(1, 3)):
        text = write.typed(dtype, chance.randint(1, 3))
        results.append(
            d.pick(
                text,
                f"({text} {d.pick('<', '>', '<=', '==')} {write.number(dtype)})",
                f"st.astype({text}, st.{d.pick('i64', 'u8', 'u32', 'f64', 'i8', 'u16', 'u64')})",
                f"st.sum({text})",
                f"st.max({text})" if 0 not in shape else text,
                f"st.sum({text}, dtype=st.{dtype})",
            )
        )
    return finished(Piece("", d.arrays, label=f"integers {dtype}"), d, f"return {', '.join(results)}\n")


def counters(chance: random.Random) -> Piece:
    """Loops whose counters have known ranges: totals, writes and reads at places that they say."""
    d = Draw(chance, chance.choice(("i64", "f64", "i32", "u32", "f32", "u8")), chance.choice(("odd", "vector", "one")))
    size = d.pick(16, 10, 4, 1)
    d.new((size,), values="small")
    bounds = d.pick("4", "3", "0", "1", "7", "1, 5", "5, 0, -1", "0, 8, 3", "2, 2", "-2, 3", "n", "n, 6")
    if "n" in bounds:
        d.arrays["n"] = np.asarray(d.pick(0, 1, 3, 5), np.int64)
    lines = []
    write = Integers(d, [], ["i"])
    body: list[str] = []
    for number in range(chance.randint(1, 3)):
        name = f"k{number}"
        body.append(f"{name} = {write.weak(chance.randint(1, 3))}")
        write.counters = [*write.counters, name]
    if d.likely(35):
        dtype = d.pick("u32", "i32", "u8")
        body.append(f"typed = st.astype({write.typed(dtype, d.pick(1, 2))}, st.i64)")
        write.counters = [*write.counters, "typed"]
    lines.append("total = 0")
    results = ["total"]
    last = write.counters[-1]
    body.append(
        d.pick(
            f"total += {last}", f"total = total + {last} * 2", f"total += {write.weak(1)}", f"total = total ^ {last}"
        )
    )
    if d.likely(60):
        lines.append("out = x0 * 1" if d.dtype[0] in "ui" else "out = x0 * 1.0")
        results.append("out")
        place = d.pick(
            f"({write.weak(1)}) % {size}",
            write.weak(1),
            f"min({write.weak(1)}, {size - 1})",
            f"max({write.weak(1)}, 0)",
        )
        held = f"st.astype({last}, st.{d.dtype})" if last == "typed" else last  # `out` takes no other dtype
        added = d.pick("x0[0]", "1", "x0[-1]", "i", held, "x0[0] * i")
        body.append(d.pick(f"out[{place}] += {added}", f"out[{place}] = {added}"))
    if d.likely(60):
        lines.append("seen = x0[0] * 0" if d.dtype[0] in "ui" else "seen = x0[0] * 0.0")
        results.append("seen")
        place = d.pick(
            f"{write.weak(1)} % {size}",
            write.weak(1),
            write.weak(2),
            f"min({write.weak(1)}, {size - 1})",
            f"st.minimum({write.weak(1)}, {size - 1})",
        )
        body.append(f"seen = seen + x0[{place}]")
    if d.likely(20):
        body.append(f"if {last} > {d.pick(0, 1, 2)}:\n    {d.pick('break', 'continue')}")
    if d.likely(50) and body[-1].startswith("if"):
        body.append("total += 1")
    lines.append(f"for i in st.range({bounds}):")
    lines.append(textwrap.indent("\n".join(body), "    "))
    lines.append(f"return {', '.join(results)}")
    piece = Piece("", d.arrays, label="counters", loose=True, wraps=True)
    return finished(piece, d, "\n".join(lines) + "\n")


# ---- floats: what IEEE says ----------------------------------------------------------------------


class Floats:
    """Expressions of floats whose last bits and signs of zeros can be compared: exact ones, or with `rounds` those of
    operations that IEEE 754 rounds."""

    def __init__(self, d: Draw, trial: Trial, atoms: list[str], rounds: bool = False) -> None:
        self.d, self.trial, self.atoms, self.rounds = d, trial, atoms, rounds
        self.limit = np.inf if rounds else 2.0**16 if d.dtype == "f32" else 2.0**50
        self.divisor = ""
        """A row, a column or a number that others are divided by."""

    def number(self) -> str:
        return self.d.pick("0.0", "-0.0", "1.0", "-1.0", "2.0", "0.5", "3.0", "49.0", "1", "0", "2")

    def exact(self, depth: int) -> str:
        """An expression whose value is exact."""
        d, below = self.d, depth - 1
        if depth <= 0:
            return d.chance.choice(self.atoms) if d.likely(85) else self.number()
        deep = lambda: self.exact(below)  # noqa: E731
        forms = [
            lambda: f"({deep()} {d.pick('+', '-', '*', '-')} {deep()})",
            lambda: f"({deep()} {d.pick('+', '-', '*')} {self.number()})",
            lambda: f"({self.number()} {d.pick('+', '-', '*', '-')} {deep()})",
            lambda: f"(-{deep()})",
            lambda: f"(-({deep()} - {deep()}))",
            lambda: f"st.abs({deep()})",
            lambda: f"st.square({deep()})",
            lambda: f"({deep()} ** {d.pick('2', '1', '0', '2.0', *([] if self.rounds else ['3']))})",
            lambda: f"st.where({deep()} {d.pick('<', '>', '==', '!=', '<=')} {deep()}, {deep()}, {deep()})",
            lambda: f"st.{d.pick('floor', 'ceil', 'round', 'trunc')}({self.quotient(below)})",
            lambda: f"st.sign({deep()})",
            lambda: f"({deep()} / {d.pick('1.0', '2.0', '0.5', '-1.0')})",
        ]
        text = d.chance.choice(forms)()
        value = lifted(self.trial.value(text)).a
        if np.any(np.abs(value[np.isfinite(value)]) > self.limit):
            raise NotACell
        return text

    def quotient(self, depth: int) -> str:
        """One division of exact values: rounded once."""
        if self.divisor and self.d.likely(50):
            return f"({self.d.chance.choice(self.atoms)} / {self.divisor})"
        return f"({self.exact(depth)} / {self.exact(depth)})"

    def result(self, depth: int) -> str:
        d = self.d
        forms = [
            lambda: self.exact(depth),
            lambda: self.quotient(depth - 1),
            lambda: f"(1.0 / {self.exact(depth)})",
            lambda: f"st.sqrt({self.exact(depth)})",
        ]
        if self.rounds:
            return d.chance.choice(forms)()
        forms += [
            lambda: f"({self.exact(depth)} ** 0.5)",
            lambda: f"st.atan2({self.exact(depth - 1)}, {d.pick('-1.0', '1.0', self.exact(0))})",
            lambda: f"({self.quotient(depth - 1)} {d.pick('<', '==', '>=')} {self.exact(1)})",
            lambda: f"st.astype({self.quotient(depth - 1)} * 255.0, st.f32)",
            lambda: f"({self.exact(depth - 1)} {d.pick('//', '%')} {d.pick('3.0', '2.0', '-3.0', '0.5')})",
        ]
        return d.chance.choice(forms)()


def algebra(chance: random.Random) -> Piece:
    """Arithmetic with the constants that rewrites look for, over whole numbers, zeros of both signs and infinities."""
    d = Draw(chance, chance.choice(("f32", "f64")), chance.choice(("vector", "odd", "one", "block", "scalar", "odd")))
    shape = d.shape(ranks=(0, 1, 2))
    form = chance.randrange(5)
    for _ in range(2):
        name = d.new(shape)
        pool = np.array([0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -4.0, 5.0])
        if form == 0:
            pool = np.array([0.0, -0.0, 1.0, -2.0, np.inf, -np.inf, np.nan])
        if form == 1:
            pool = np.arange(0.0, 60.0)
        if form == 2:
            pool = np.array([0.0, -0.0])
        if form == 4:
            pool = d.numbers.standard_normal(64)
        d.arrays[name] = d.numbers.choice(pool, shape).astype(d.arrays[name].dtype)
        if form == 1 and shape:
            d.arrays[name] = (np.arange(d.arrays[name].size).reshape(shape) * d.pick(1.0, 49.0, 7.0)).astype(
                d.arrays[name].dtype
            )
    atoms = list(d.arrays)
    trial = Trial(d)
    if d.likely(50):
        # A row, a column or a single number, as divisors are.
        small = d.new(
            tuple(1 if d.likely(60) else extent for extent in shape)[d.chance.randrange(len(shape) + 1) :]
            if shape
            else ()
        )
        d.arrays[small] = d.numbers.choice(np.array([49.0, 3.0, 7.0, 10.0, 1.0]), d.arrays[small].shape).astype(
            d.arrays[small].dtype
        )
        atoms.append(trial.given(small))
    if shape and 0 not in shape and d.likely(40):
        whole = d.pick("max", "min") if form == 4 else d.pick("max", "min", "sum")
        axis = d.chance.randrange(len(shape))
        trial.bind(
            "r", f"st.{whole}({atoms[0]}, axis={axis}, keepdims=True)" if d.likely(50) else f"st.{whole}({atoms[0]})"
        )
        atoms.append("r")
    write = Floats(d, trial, atoms, rounds=form == 4)
    write.divisor = atoms[-1] if len(atoms) > 2 else ""
    results = [write.result(chance.randint(1, 3)) for _ in range(chance.randint(1, 3))]
    whole = "".join([*trial.lines, *results])
    # The largest of zeros of both signs is either of them: what it divides is infinite, of either sign.
    if ("st.max" in whole or "st.min" in whole) and ("/" in whole or "atan2" in whole) and not np.all(trial.names["r"].a):
        raise NotACell
    signs = not any(word in whole for word in ("st.max", "st.min", "st.sum", "//", "%", "st.sqrt", "** 0.5", "**"))
    bits = not any(word in whole for word in ("**", "atan2", "//", "%"))
    piece = Piece("", d.arrays, label=f"algebra {d.dtype}", signs=signs, bits=bits)
    return finished(piece, d, "\n".join([*trial.lines, f"return {', '.join(results)}"]) + "\n")


SCENES: tuple[Scene, ...] = (views, integer_arrays, counters, algebra)
"""Scenes of values; `call/memory.py` has those of places."""
