"""Scenes about places: updates in part, Variables, swaps, early returns, objects, scatters of arrays into themselves, sizes."""

from __future__ import annotations

import random
import textwrap
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.cells.piece import Piece
from tests.fuzz.cells.scenes import Scene, constant, finished

HEADER = """\
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Pair:
    first: object
    second: object


"""


class Places:
    """Statements over arrays of one shape that are bound, updated, swapped and written to Variables."""

    def __init__(self, d: Draw) -> None:
        self.d = d
        self.shape = d.shape(ranks=(1, 1, 2))
        if not self.shape[0]:
            raise NotACell
        self.names: list[str] = []
        self.variables: list[str] = []
        self.effects = True
        self.budget = 7
        self.loops = 0

    # ---- expressions ----

    def number(self) -> str:
        return (
            self.d.pick("0.5", "2.0", "-1.0", "1.0", "0.0", "7.0")
            if self.d.is_float
            else self.d.pick("0", "1", "2", "7", "3")
        )

    def source(self) -> str:
        d = self.d
        known = self.names + ([f"{name}.value" for name in self.variables] if d.likely(40) else [])
        if d.likely(8):
            return constant(d, self.shape)
        return d.chance.choice(known)

    def array(self, depth: int = 1) -> str:
        d = self.d
        if depth <= 0 or d.likely(12):
            return self.source()
        deep = lambda: self.array(depth - 1)  # noqa: E731
        forms = [
            lambda: f"({deep()} {d.pick('+', '-', '*')} {self.number()})",
            lambda: f"({deep()} {d.pick('+', '-')} {deep()})",
            lambda: f"({deep()} * {self.number()} + {self.number()})",
            lambda: f"st.flip({deep()}, axis=0)",
            lambda: f"st.roll({deep()}, 1, axis=0)",
            lambda: f"st.take({deep()}, p, axis=0)",
            lambda: f"st.scatter_add({self.source()}, p, {deep()})",
            lambda: f"st.maximum({deep()}, {deep()})",
            lambda: f"st.where({deep()} > {self.number()}, {deep()}, {deep()})",
        ]
        return d.chance.choice(forms)()

    def place(self) -> str:
        count = self.shape[0]
        options = [str(self.d.chance.randrange(-count, count)), str(self.d.chance.randrange(count)), "k", "p[0]"]
        if self.loops:
            options += [f"i % {count}"]
        return self.d.chance.choice(options)

    # ---- statements ----

    def statements(self, depth: int, count: int) -> list[str]:
        lines: list[str] = []
        for _ in range(count):
            if self.budget <= 0:
                break
            self.budget -= 1
            lines += self.statement(depth)
        return lines or ["pass"]

    def statement(self, depth: int) -> list[str]:
        d = self.d
        name = d.chance.choice(self.names)
        own = [other for other in self.names if other.isidentifier()]
        kinds = ["bind", "bind", "carry", "carry", "item", "item", "scatter", "swap", "part", "alias"]
        if self.variables and self.effects:
            kinds += ["write", "write", "write"]
        if depth > 0:
            kinds += ["for", "for", "if", "if", "while"]
        if self.effects:
            kinds += ["return"]
            kinds += ["turn"] * (depth > 0)
        kind = d.chance.choice(kinds)
        half = max(1, self.shape[0] // 2)
        if kind == "bind":
            return [f"{name} = {self.array(2)}"]
        if kind == "carry":
            return [
                f"{name} = {name} {d.pick('* 0.5 + 1.0', '* 2.0', '+ 1.0', '- 0.5') if d.is_float else d.pick('* 2 + 1', '+ 1', '* 3')}"
            ]
        if kind == "item":
            value = d.pick(self.number(), self.number(), f"{self.source()}[{self.place()}]")
            return [f"{name}[{self.place()}] {d.pick('=', '=', '+=', '*=')} {value}"]
        if kind == "scatter":
            return [
                d.pick(
                    f"{name}[p] = {d.pick(name, self.source())}",
                    f"{name} = st.scatter_add({name}, p, {d.pick(name, self.source())})",
                )
            ]
        if kind == "part":
            return [
                d.pick(
                    f"{name}[:{half}] = {self.source()}[-{half}:]",
                    f"{name}[{half}:] {d.pick('=', '+=')} {self.number()}",
                    f"{name}[::2] = {self.source()}[::2]",
                )
            ]
        if kind == "swap":
            other = d.chance.choice(self.names)
            return [f"{name}, {other} = {other}, {name}"]
        if kind == "alias":
            return [
                f"{d.chance.choice(own or self.names)} = {self.source()} * 1"
                if not d.is_float
                else f"{name} = {d.chance.choice(self.names)}"
            ]
        if kind == "write":
            variable = d.chance.choice(self.variables)
            return [
                f"{variable}.value = {d.pick(d.chance.choice(self.names), d.chance.choice(self.names), self.array(1))}"
            ]
        if kind == "return":
            condition = self.condition()
            return [
                f"if {condition}:",
                f"    return {self.returned(self.d.chance.sample(self.names, len(self.names)))}",
            ]
        if kind == "turn":
            # Arrays that change places in a loop that may be left in the middle.
            one, two = d.chance.sample(self.names, 2)
            left = self.returned(d.pick([one, two], [two, one]))
            lines = [f"for i in st.range({d.pick('k', '2', 'k + 1')}):", f"    {one} = {self.array(1)}"]
            lines += [f"    if {self.condition()}:", f"        return {left}", f"    {one}, {two} = {two}, {one}"]
            return lines
        if kind == "if":
            lines = [f"if {self.condition()}:", *self.block(depth)]
            if d.likely(40):
                lines += ["else:", *self.block(depth)]
            return lines
        if kind == "while":
            counter = f"w{self.budget}"
            lines = [f"{counter} = 0", f"while {counter} < {d.pick('k', '2', 'k + 1')}:", f"    {counter} += 1"]
            return lines + self.block(depth)
        self.loops += 1
        lines = [f"for i in st.range({d.pick('k', '2', '3', '0', 'k + 1')}):", *self.block(depth)]
        self.loops -= 1
        return lines

    def block(self, depth: int) -> list[str]:
        return textwrap.indent("\n".join(self.statements(depth - 1, self.d.chance.randint(1, 3))), "    ").split("\n")

    def condition(self) -> str:
        return self.d.pick("c > 0", "c > 3", "k > 1", "k == 0", f"st.sum({self.names[0]}) > {self.number()}", "c < k")

    def returned(self, names: list[str]) -> str:
        return ", ".join([*names, *(f"{variable}.value" for variable in self.variables)])


def places(chance: random.Random) -> Piece:
    """A function over a few arrays and Variables, returning all of them."""
    d = Draw(
        chance,
        chance.choice(("f32", "f64", "f64", "i32", "u8", "i64")),
        chance.choice(("odd", "odd", "odd", "vector", "one", "block")),
    )
    scene = Places(d)
    count = scene.shape[0]
    lines: list[str] = []
    d.new(scene.shape, values="small", name="x0")
    d.new(scene.shape, values="small", name="x1")
    for name in ("x0", "x1"):
        d.arrays[name] = d.numbers.integers(-3 if d.dtype[0] != "u" else 0, 5, scene.shape).astype(
            d.arrays[name].dtype
        )
    d.arrays["p"] = d.numbers.permutation(count).astype(np.int64)
    d.arrays["k"] = np.asarray(d.pick(0, 1, 2, 3), np.int64)
    d.arrays["c"] = np.asarray(d.pick(0, 1, 5), np.int64)
    form = chance.randrange(4)
    scene.names = ["x0", "x1"]
    first, second = scene.array(1), scene.array(1)
    if form == 0:
        lines.append(f'o = {{"a": {first}, "b": {second}}}')
        made = ['o["a"]', 'o["b"]']
    elif form == 1:
        lines.append(f"o = Pair({first}, {second})")
        made = ["o.first", "o.second"]
    else:
        made = [d.pick("a", "x0"), d.pick("b", "x1")]
        lines += [f"{made[0]} = {first}", f"{made[1]} = {second}"]
    outside: dict[str, Any] = {}
    for number in range(chance.choice((0, 1, 1, 2))):
        name = f"s{number}"
        if d.likely(50):
            # Made outside: it keeps its place between calls.
            name = f"s{d.chance.randrange(10**6)}"
            outside[name] = (d.numbers.integers(0, 4, scene.shape)).astype(d.arrays["x0"].dtype)
            scene.variables.append(name)
            continue
        lines.append(
            f"{name} = st.Variable({d.chance.choice(made)} * 1)"
            if d.likely(60)
            else f"{name} = st.Variable({constant(d, scene.shape)})"
        )
        scene.variables.append(name)
    scene.names = made
    transform = "plain"
    if d.is_float and not scene.variables and form > 1 and d.likely(50):
        transform = d.pick("grad", "jvp", "twice")
        scene.effects = False
    scene.budget = chance.randint(3, 9)
    lines += scene.statements(2, chance.randint(2, 5))
    returned = scene.returned(made) if transform == "plain" else f"{made[0]} * {made[1]} + {made[0]}"
    lines.append(f"return {returned}")
    piece = Piece("", d.arrays, label=f"places {d.dtype}", loose=d.is_float, variables=outside)
    piece.heads = [HEADER] if form == 1 else []
    finished(piece, d, "\n".join(lines) + "\n", transform)
    return piece


def sizes(chance: random.Random) -> Piece:
    """`st.dim`: parts whose size is known when the program runs, of no elements too."""
    d = Draw(chance, chance.choice(("f32", "f64", "f64", "i32")), "odd")
    rows, columns = d.pick(6, 9), d.pick(2, 3)
    x = d.new((rows, columns), values="small")
    y = d.new((columns, 2), values="small")
    groups = d.pick(1, 2, 4)
    starts = np.sort(d.numbers.integers(0, rows + 1, groups + 1))
    d.arrays["starts"] = starts.astype(np.int64)
    axis = d.pick(0, 1)
    floats = d.is_float
    forms = [
        "part * 2",
        "part + part",
        f"part - {x}[0]",
        "st.where(part > 1, part, -part)",
        "st.flip(part, axis=1)",
        "part * part",
    ]
    if floats:
        forms += ["st.tanh(part)", "st.softmax(part, axis=1)", "part / 4.0", f"part - st.mean({x}, axis=0)"]
    lines = [
        f"out = {x} * 1",
        f"totals = st.zeros(({groups}, {columns}), dtype=st.{d.dtype})",
        f"for g in st.range({groups}):",
    ]
    body = [
        "first = starts[g]",
        f'n = st.dim("N", starts[g + 1] - first, max={rows})',
        f"part = {x}[first : first + n]",
    ]
    for _ in range(chance.randint(1, 3)):
        body.append(f"part = {d.chance.choice(forms)}")
    body.append("out[first : first + n] = part")
    whole = ["st.sum(part, axis=0)", f"st.sum(part, axis=0) + st.sum(part) * {d.pick(0, 1)}"]
    if floats:
        whole += [f"st.sum(part @ {y}) + st.sum(part, axis=0)", "st.sum(st.square(part), axis=0)"]
    del axis
    body.append(f"totals[g] = {d.chance.choice(whole)}")
    lines += [f"    {line}" for line in body] + ["return out, totals"]
    transform = "plain"
    if floats and d.likely(40):
        transform = d.pick("grad", "jvp")
        lines[-1] = "return totals + st.sum(out)"
    return finished(Piece("", d.arrays, label=f"sizes {d.dtype}", loose=True), d, "\n".join(lines) + "\n", transform)


PLACES: tuple[Scene, ...] = (places, places, places, sizes)
