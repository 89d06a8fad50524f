"""Random programs with collectives: on several ranks they have the values and derivatives of one rank with all data.

A program calls the collectives of `C`. On ranks they are those of `staged` on local arrays (`OnRanks`). On one rank a local array
is the stack of the arrays of all ranks, and a collective is a sum or a move along the first axis (`Stacked`). All arrays have two
axes of `SIZE` elements, so both forms of a program are one text.

`python -m tests.fuzz --ranks 3 --seeds 100` runs the programs. Each rank compares a part of them.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged.base.launcher import this_job
from staged.ops.context import bind
from staged.ops.ranks import shard_op
from staged.testing import load_snippet
from tests.fuzz.generator import Lines

SIZE = 12
"""The elements of an axis: 2, 3 and 4 ranks divide it."""
TOLERANCE = 1e-9


# ---- the two meanings ---------------------------------------------------------------------------


class OnRanks:
    """Collectives between ranks."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def own(self, stacked: Any) -> Any:
        return bind(shard_op, [stacked], ranks=self.ranks)

    def rank(self) -> Any:
        return st.reshape(st.astype(st.rank(), st.f64), (1, 1))

    def total(self, x: Any) -> Any:
        return st.sum(x, axis=(0, 1), keepdims=True)

    def scalar(self, x: Any, by: str) -> Any:
        """A replicated number of the local numbers `x`."""
        return st.all_reduce(x, by)[0, 0]

    def all_reduce(self, x: Any, by: str) -> Any:
        return st.all_reduce(x, by)

    def all_gather(self, x: Any, axis: int) -> Any:
        return st.all_gather(x, axis)

    def shard(self, x: Any, axis: int) -> Any:
        return st.shard(x, axis)

    def reduce_scatter(self, x: Any, axis: int) -> Any:
        return st.reduce_scatter(x, axis)

    def all_to_all(self, x: Any, split: int, joined: int) -> Any:
        return st.all_to_all(x, split, joined)

    def broadcast(self, x: Any, root: int) -> Any:
        return st.broadcast(x, root)

    def shift(self, x: Any, shift: int, wrap: bool) -> Any:
        return st.shift_ranks(x, shift, wrap)

    def halo(self, x: Any, width: int, axis: int, edge: str) -> Any:
        return st.exchange_halo(x, width, axis, edge)

    def square(self, x: Any) -> Any:
        return st.reshape(x, (SIZE, SIZE))

    def part(self, x: Any, begin: int) -> Any:
        return x[begin : begin + SIZE]

    def repeated(self, x: Any, axis: int) -> Any:
        return st.concat([x] * self.ranks, axis=axis)

    def choose(self, condition: Any, first: Callable[[Any], Any], second: Callable[[Any], Any], x: Any) -> Any:
        if condition[0, 0]:
            y = first(x)
        else:
            y = second(x)
        return y

    def repeat(self, number: Any, step: Callable[[Any], Any], x: Any) -> Any:
        for _ in st.range(st.astype(number[0, 0], st.i64)):
            x = step(x)
        return x

    def rows(self, function: Callable[[Any], Any], x: Any, axis: int) -> Any:
        return st.vmap(function, in_axes=axis)(x)


class Stacked:
    """The same on one rank: local arrays have an axis for the ranks in front."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks

    def own(self, stacked: Any) -> Any:
        return stacked

    def rank(self) -> Any:
        return st.asarray(np.arange(float(self.ranks)).reshape(-1, 1, 1))

    def total(self, x: Any) -> Any:
        return st.sum(x, axis=(1, 2), keepdims=True)

    def scalar(self, x: Any, by: str) -> Any:
        return self.all_reduce(x, by)[0, 0]

    def all_reduce(self, x: Any, by: str) -> Any:
        return {"sum": st.sum, "mean": st.mean, "max": st.max, "min": st.min}[by](x, axis=0)

    def all_gather(self, x: Any, axis: int) -> Any:
        return st.concat([x[rank] for rank in range(self.ranks)], axis)

    def shard(self, x: Any, axis: int) -> Any:
        return st.stack(st.split(x, self.ranks, axis))

    def reduce_scatter(self, x: Any, axis: int) -> Any:
        return self.shard(st.sum(x, axis=0), axis)

    def all_to_all(self, x: Any, split: int, joined: int) -> Any:
        parts = [st.split(x[rank], self.ranks, split) for rank in range(self.ranks)]
        return st.stack([st.concat([row[rank] for row in parts], joined) for rank in range(self.ranks)])

    def broadcast(self, x: Any, root: int) -> Any:
        return x[root]

    def shift(self, x: Any, shift: int, wrap: bool) -> Any:
        places = [rank - shift for rank in range(self.ranks)]
        zero = st.zeros_like(x[0])
        return st.stack([x[place % self.ranks] if wrap or 0 <= place < self.ranks else zero for place in places])

    def halo(self, x: Any, width: int, axis: int, edge: str) -> Any:
        whole, size = self.all_gather(x, axis), x.shape[axis + 1]
        pads = [(0, 0), (0, 0)]
        pads[axis] = (width, width)
        mode = {"zero": "constant", "wrap": "wrap", "nearest": "edge"}[edge]
        padded = st.pad(whole, pads, mode=mode)
        begins = [rank * size for rank in range(self.ranks)]
        if axis == 0:
            return st.stack([padded[begin : begin + size + 2 * width] for begin in begins])
        return st.stack([padded[:, begin : begin + size + 2 * width] for begin in begins])

    def square(self, x: Any) -> Any:
        return st.reshape(x, (self.ranks, SIZE, SIZE))

    def part(self, x: Any, begin: int) -> Any:
        return x[:, begin : begin + SIZE]

    def repeated(self, x: Any, axis: int) -> Any:
        return st.concat([x] * self.ranks, axis=axis + 1)

    def choose(self, condition: Any, first: Callable[[Any], Any], second: Callable[[Any], Any], x: Any) -> Any:
        return st.where(condition, first(x), second(x))

    def repeat(self, number: Any, step: Callable[[Any], Any], x: Any) -> Any:
        for count in range(self.ranks):
            x = st.where(number > count, step(x), x)
        return x

    def rows(self, function: Callable[[Any], Any], x: Any, axis: int) -> Any:
        return st.vmap(function, in_axes=axis + 1, out_axes=1)(x)


# ---- random programs ----------------------------------------------------------------------------


class Writer(Lines):
    """Writes a function `f(x, r, w, n)`: x is local, r and w are replicated, n is an integer."""

    def __init__(self, chance: random.Random, ranks: int) -> None:
        self.chance, self.ranks = chance, ranks
        self.lines: list[str] = []
        self.helpers: list[str] = []
        self.local, self.same = ["x"], ["r", "w"]
        self.count = 0
        self.depth = 1

    def expression(self, names: list[str], depth: int = 2) -> str:
        """An elementwise expression, of moderate size."""
        if depth == 0 or self.chance.random() < 0.2:
            return self.chance.choice(names)
        one, two = (self.expression(names, depth - 1) for _ in range(2))
        return self.pick(
            f"st.sin({one})",
            f"st.tanh({one} + {two})",
            f"({one} * st.cos({two}))",
            f"({one} - 0.5 * {two})",
            f"st.flip({one}, axis=-1)",
            f"st.tanh({one} @ {two} * 0.3)",
            f"st.where({one} > {two}, {one}, 0.3 * {two})",
        )

    def own(self) -> str:
        """A local expression."""
        more = self.expression([*self.local, *self.same])
        return f"({self.chance.choice(self.local)} {self.pick('+', '-', '*')} {more})"

    def all(self) -> str:
        """A replicated expression."""
        return self.expression(self.same)

    def number(self) -> str:
        """A replicated number."""
        return self.pick(
            f"C.scalar(C.total({self.chance.choice(self.local)}), '{self.pick('sum', 'mean', 'max', 'min')}')",
            f"st.sum({self.chance.choice(self.same)})",
        )

    def to_local(self) -> str:
        """A collective with a local result of full size."""
        axis, x = self.chance.randrange(2), self.own()
        width = self.chance.randint(1, 3)
        return self.pick(
            f"C.repeated(C.shard({self.all()}, {axis}), {axis})",
            f"C.repeated(C.reduce_scatter({x}, {axis}), {axis})",
            f"C.square(C.all_to_all({x}, {axis}, {self.chance.randrange(2)}))",
            f"C.shift({x}, {self.chance.randint(-self.ranks, self.ranks)}, {self.chance.random() < 0.6})",
            f"C.part(C.halo({x}, {width}, 0, '{self.pick('zero', 'wrap', 'nearest')}'), {self.chance.randint(0, 2 * width)})",
            f"C.halo({x}, {width}, 1, '{self.pick('zero', 'wrap', 'nearest')}')[..., {width}:-{width}]",
            f"C.own(C.all_gather({x}, 0).reshape(({self.ranks}, {SIZE}, {SIZE})))",
            f"({x} * (C.rank() + 0.5))",
        )

    def to_same(self) -> str:
        """A collective with a replicated result of full size."""
        x = self.own()
        begin = self.chance.randint(0, (self.ranks - 1) * SIZE)
        return self.pick(
            *[f"C.all_reduce({x}, '{self.pick('sum', 'mean', 'max', 'min')}') * 0.5"] * 3,
            f"C.broadcast({x}, {self.chance.randrange(self.ranks)})",
            f"C.all_gather({x}, 0)[{begin}:{begin + SIZE}]",
            f"C.all_gather({x}, 1)[:, {begin}:{begin + SIZE}]",
        )

    def assign(self, changed: bool) -> None:
        """One statement that makes a value, or changes one that an enclosing block carries."""
        if self.chance.random() < 0.6:
            made = self.pick(self.own(), self.to_local(), self.to_local())
            name = self.chance.choice(self.local[1:]) if changed and len(self.local) > 1 else self.fresh("y")
            self.line(f"{name} = st.tanh({made})")
            self.local += [name] if name not in self.local else []
        else:
            made = self.pick(self.all(), self.to_same(), self.to_same())
            name = self.chance.choice(self.same[2:]) if changed and len(self.same) > 2 else self.fresh("s")
            self.line(f"{name} = st.tanh({made})")
            self.same += [name] if name not in self.same else []

    def body(self, count: int) -> None:
        """The statements of a block: what it defines is not seen behind it."""
        self.depth += 1
        local, same = list(self.local), list(self.same)
        for _ in range(count):
            self.statement()
            self.assign(changed=True)
        self.local, self.same = local, same
        self.depth -= 1

    def statement(self) -> None:
        forms: list[Callable[[], None]] = [lambda: self.assign(changed=False)] * 4
        if self.depth < 3:
            forms += [self.loop, self.branch, self.while_loop, self.layers, self.function]
        forms += [self.local_branch, self.local_loop, self.checkpoint, self.rows]
        self.chance.choice(forms)()

    def loop(self) -> None:
        self.line(f"for _ in st.range({self.pick('2', '3', 'n', 'n - 3')}):")
        self.body(1)

    def layers(self) -> None:
        """A Python loop that is unrolled, and rolled again."""
        y, k = self.fresh("y"), self.fresh("k")
        self.line(f"{y} = {self.own()}")
        self.line(f"for {k} in range(5):")
        shift = f"C.shift({y}, 1, True)"
        self.line(f"    {y} = st.tanh({self.pick(y, shift)} @ w + C.all_reduce({y}, 'mean') * (0.1 * {k}))")
        self.local.append(y)

    def branch(self) -> None:
        self.line(f"if {self.number()} > {self.pick('0.0', '1.0', '-2.0')}:")
        self.body(1)
        if self.chance.random() < 0.6:
            self.line("else:")
            self.body(1)

    def while_loop(self) -> None:
        left = self.fresh("i")
        self.line(f"{left} = n")
        self.line(f"while {left} > 1 and {self.number()} < 50.0:")
        self.body(1)
        self.line(f"    {left} = {left} - 1")

    def local_branch(self) -> None:
        y = self.fresh("y")
        first, second = self.expression(["y", *self.local, *self.same]), self.expression(["y", *self.local, *self.same])
        self.line(
            f"{y} = C.choose(C.total({self.own()}) > 0.0, lambda y: {first}, lambda y: {second}, "
            f"{self.own()})"
        )
        self.local.append(y)

    def local_loop(self) -> None:
        y = self.fresh("y")
        step = self.expression(["y", *self.same])
        self.line(f"{y} = C.repeat(C.rank(), lambda y: st.tanh({step} + 0.1 * y), {self.own()})")
        self.local.append(y)

    def checkpoint(self) -> None:
        y, layer = self.fresh("y"), self.fresh("layer")
        self.line("@st.checkpoint")
        self.line(f"def {layer}(y, s):")
        keep = list(self.local), list(self.same)
        self.local, self.same = ["y", *self.local], ["s", *self.same]
        self.depth += 1
        for _ in range(self.chance.randint(1, 2)):
            self.assign(changed=False)
        self.line(f"return {self.own()}")
        self.depth -= 1
        self.local, self.same = keep
        self.line(f"{y} = {layer}({self.own()}, {self.all()})")
        self.local.append(y)

    def rows(self) -> None:
        y = self.fresh("y")
        inner = self.pick(
            "C.all_reduce(a, 'mean') * a",
            "C.all_reduce(a, 'max') + st.tanh(a)",
            f"C.shift(a, {self.pick('1', '-1')}, {self.pick('True', 'False')}) - a",
            f"C.broadcast(st.sin(a), {self.chance.randrange(self.ranks)}) * a",
        )
        self.line(f"{y} = C.rows(lambda a: {inner}, {self.own()}, {self.chance.randrange(2)})")
        self.local.append(y)

    def function(self) -> None:
        """A recursive function of the program."""
        name, y = self.fresh("again"), self.fresh("y")
        inner = self.pick("C.shift(y, 1, True)", "y * C.all_reduce(y, 'mean')", "C.repeated(C.reduce_scatter(y, 0), 0)")
        self.helpers.append(
            f"@st.function\ndef {name}(y, s, n):\n    if n <= 0:\n        return st.tanh(y @ s)\n"
            f"    return {name}(st.tanh({inner} * s), s, n - 1) + 0.5 * y\n\n\n"
        )
        self.line(f"{y} = {name}({self.own()}, {self.all()}, {self.pick('n', 'n - 2')})")
        self.local.append(y)

    def program(self) -> str:
        for _ in range(self.chance.randint(1, 3)):
            self.statement()
        self.line(f"total = C.scalar(C.total({self.local[-1]} * st.cos(C.rank() + x)), 'sum')")
        for name in self.local[1:-1]:
            self.line(f"total = total + C.scalar(C.total(st.sin({name})), 'mean')")
        for name in self.same[1:]:
            self.line(f"total = total + st.sum({name} * r)")
        self.line("return total")
        head = "import staged as st\nfrom tests.fuzz.ranks import MEANING as C\n\n\n"
        return head + "".join(self.helpers) + "def f(x, r, w, n):\n" + "\n".join(self.lines) + "\n"


def text_of(seed: int, ranks: int) -> str:
    """The program of a seed."""
    return Writer(random.Random(seed), ranks).program()


# ---- the comparison -----------------------------------------------------------------------------

MEANING: Any = None
"""The collectives of the program that is loaded next."""


def results(text: str, meaning: Any, seed: int) -> list[np.ndarray[Any, Any]]:
    """The value, the gradients and a derivative in forward mode; of some programs second derivatives too."""
    global MEANING
    MEANING = meaning
    module = load_snippet(text, "fuzz_ranks")
    drawn = np.random.default_rng(seed)
    primals = [drawn.normal(size=size) for size in ((meaning.ranks, SIZE, SIZE), (SIZE, SIZE), (SIZE, SIZE))]
    tangents = [drawn.normal(size=primal.shape) for primal in primals]
    every = (0, 1, 2)

    def value(x: Any, r: Any, w: Any, n: Any) -> Any:
        return module.f(meaning.own(x), r, w, n)

    def slope(x: Any, r: Any, w: Any, n: Any, *directions: Any) -> Any:
        return st.jvp(lambda x, r, w: value(x, r, w, n), (x, r, w), directions)[1]

    @st.function
    def everything(x: Any, r: Any, w: Any, n: Any, *directions: Any) -> Any:
        y, grads = st.value_and_grad(value, argnums=every)(x, r, w, n)
        second = st.grad(slope, argnums=every)(x, r, w, n, *directions) if seed % 8 == 0 else ()
        return [y, *grads, slope(x, r, w, n, *directions), *second]

    return [np.asarray(leaf) for leaf in everything(*primals, 4, *tangents)]


def differences(found: list[np.ndarray[Any, Any]], wanted: list[np.ndarray[Any, Any]]) -> str:
    """The results that differ, in words; empty if none does."""
    names = ("value", "d_x", "d_r", "d_w", "slope", "dd_x", "dd_r", "dd_w")
    words = []
    for name, one, two in zip(names, found, wanted, strict=False):
        off = float(np.max(np.abs(one - two)) / (1.0 + np.max(np.abs(two)))) if one.size else 0.0
        if not off < TOLERANCE:
            words.append(f"{name} is off by {off:.1e}")
    return ", ".join(words)


def main(first: int, count: int) -> int:
    """On each rank: run the programs. A rank compares every R-th one."""
    job = this_job()
    failed = 0
    for seed in range(first, first + count):
        if job.rank == 0:
            print(f"seed {seed}", flush=True)
        text = text_of(seed, job.ranks)
        try:
            found = results(text, OnRanks(job.ranks), seed)
            if seed % job.ranks != job.rank:
                continue
            words = differences(found, results(text, Stacked(job.ranks), seed))
        except Exception:
            words = traceback.format_exc(limit=-1) if seed % job.ranks == job.rank else ""
        if words:
            failed += 1
            print(f"failed {seed}: {words}", flush=True)
    return 1 if failed else 0


def drive(ranks: int, first: int, count: int, limit: float) -> tuple[int, str]:
    """Run the programs of some seeds on a number of ranks: the status, and what failed."""
    from tests.ranks import jobs

    with tempfile.TemporaryDirectory(prefix="staged-fuzz-") as cache:
        changes = {"STAGED_CFLAGS": "-O0", "STAGED_CACHE_DIR": os.environ.get("STAGED_CACHE_DIR", cache)}
        done = jobs.run(Path(__file__), ranks, str(first), str(count), changes=changes, limit=limit)
    lines = done.stdout.splitlines()
    if done.status == 0:
        return 0, ""
    last = [line for line in lines if line.startswith("seed ")][-1:]
    return 1, "\n".join([line for line in lines if not line.startswith("seed ")] + ["last:", *last, done.stderr[-2000:]])


if __name__ == "__main__":
    from tests.fuzz import ranks as module  # programs import it by this name

    sys.exit(module.main(int(sys.argv[1]), int(sys.argv[2])))
