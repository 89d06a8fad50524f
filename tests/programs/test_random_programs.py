"""Seeded random programs: values and gradients of the compiled program against eager mode's tape, in f64."""

from __future__ import annotations

import random

import numpy as np
import pytest

from staged.testing import assert_backends_agree, load_snippet

SHAPES = ((), (1,), (3,), (4,), (2, 3), (3, 4), (4, 1), (1, 3), (2, 3, 4), (3, 1, 2), (12,), (17,), (3, 17))


class Generator:
    """Writes a function of a few arrays and a number, with loops, branches, exits, Variables and indexing."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names: list[tuple[str, tuple[int, ...]]] = []
        self.fixed: list[tuple[str, tuple[int, ...]]] = []
        self.counters: list[str] = []
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # ---- expressions ----

    def leaf(self, shape: tuple[int, ...]) -> str:
        known = [name for name, other in self.names + self.fixed if other == shape]
        if known and self.random.random() < 0.9:
            return self.random.choice(known)
        number = self.random.choice((0.5, -0.25, 1.5, 2.0))
        return f"st.full({shape}, {number}, dtype=st.f64)"

    def place(self, extent: int) -> str:
        if self.counters and self.random.random() < 0.7:
            return f"({self.random.choice(self.counters)} * {self.random.randint(1, 3)} + 1) % {extent}"
        return str(self.random.randrange(-extent, extent))

    def array(self, shape: tuple[int, ...], depth: int) -> str:
        """An expression of this shape, of moderate size whatever its parts are."""
        pick, below = self.random.randrange, depth - 1
        forms = [lambda: self.leaf(shape)]
        if depth > 0:
            forms += [
                lambda: f"({self.array(shape, below)} {self.random.choice('+-*')} {self.array(shape, below)})",
                lambda: f"st.{self.random.choice(('sin', 'tanh', 'relu', 'abs'))}({self.array(shape, below)} * 0.5)",
                lambda: f"({self.array(shape, below)} / (1.0 + st.abs({self.array(shape, below)})))",
                lambda: (
                    f"st.where({self.array(shape, below)} < {self.array((), below)}, {self.array(shape, below)}, 0.5)"
                ),
                lambda: self.reduction(shape, below),
                lambda: self.element(shape, below),
            ]
        if depth > 0 and shape:
            axis = pick(len(shape))
            wider = (*shape[:axis], shape[axis] + 2, *shape[axis + 1 :])
            cut = ", ".join("1:-1" if number == axis else ":" for number in range(len(shape)))
            order = self.random.sample(range(len(shape)), len(shape))
            before = tuple(shape[order.index(number)] for number in range(len(shape)))
            forms += [
                lambda: f"{self.array(wider, below)}[{cut}]",
                lambda: f"st.flip({self.array(shape, below)}, axis={axis})",
                lambda: f"st.permute_dims({self.array(before, below)}, {tuple(order)})",
                lambda: f"st.softmax({self.array(shape, below)}, axis={axis})",
                lambda: (
                    f"st.set_item({self.array(shape, below)}, {self.place(shape[0])}, {self.array(shape[1:], below)})"
                ),
                lambda: (
                    f"st.add_item({self.array(shape, below)}, {self.place(shape[0])}, {self.array(shape[1:], below)})"
                ),
                lambda: f"st.reshape({self.array((int(np.prod(shape)),), below)}, {shape})",
            ]
        if depth > 0 and len(shape) >= 2:
            inner = self.random.choice((1, 2, 5))
            forms.append(
                lambda: f"({self.array((*shape[:-1], inner), below)} @ {self.array((inner, shape[-1]), below)})"
            )
        return self.random.choice(forms)()

    def reduction(self, shape: tuple[int, ...], depth: int) -> str:
        axis = self.random.randrange(len(shape) + 1)
        whole = (*shape[:axis], self.random.choice((1, 2, 3, 5)), *shape[axis:])
        name = self.random.choice(("sum", "mean", "max", "min", "logsumexp"))
        return f"st.{name}({self.array(whole, depth)}, axis={axis})"

    def element(self, shape: tuple[int, ...], depth: int) -> str:
        axis, extent = self.random.randrange(len(shape) + 1), self.random.choice((1, 2, 3, 4))
        whole = (*shape[:axis], extent, *shape[axis:])
        cut = [":"] * len(whole)
        cut[axis] = self.place(extent)
        return f"({self.array(whole, depth)})[{', '.join(cut)}]"

    # ---- statements ----

    def bind(self) -> None:
        shape = self.random.choice(SHAPES)
        name, text = self.fresh("v"), self.array(shape, 3)
        self.line(f"{name} = 1.0 * {text} + 0.0 * a0.sum()")
        self.names.append((name, shape))

    def statement(self, depth: int) -> None:
        kind = self.random.choice(("bind", "change", "change", "swap", "write", "if", "for", "while", "exit"))
        condition = f"{self.array((), 1)} < {self.array((), 1)} + 0.1 * a0.sum()"
        if kind == "change" and self.names:
            name, shape = self.random.choice(self.names)
            self.line(f"{name} {self.random.choice(('=', '+=', '*='))} st.sin({self.array(shape, 2)})")
        elif kind == "swap" and len(self.names) > 1:
            (first, shape), (second, other) = self.random.sample(self.names, 2)
            if shape == other:
                self.line(f"{first}, {second} = {second}, {first}")
        elif kind == "write" and self.fixed:
            name, shape = self.random.choice(self.fixed)
            if name.startswith("V"):
                self.line(f"{name}.value = 0.7 * st.cos({self.array(shape, 2)})")
        elif kind == "if" and depth:
            self.line(f"if {condition}:")
            self.block(depth - 1)
            if self.random.random() < 0.6:
                self.line("else:")
                self.block(depth - 1)
        elif kind == "for" and depth:
            self.loop(f"for {{}} in st.range({self.random.choice(('0', '1', '3', 'n', 'n + 1'))}):", depth, "")
        elif kind == "while" and depth:
            self.loop(f"while {{}} < {self.random.choice(('2', 'n'))} and ({condition}):", depth, " += 1")
        elif kind == "exit" and self.counters:
            self.line(f"if {condition}:")
            self.line("    " + self.random.choice(("break", "continue", f"return {self.result()}")))
        else:
            self.bind()

    def loop(self, head: str, depth: int, step: str) -> None:
        counter = self.fresh("i")
        if step:
            self.line(f"{counter} = 0")
        self.line(head.format(counter))
        if step:
            self.line(f"    {counter}{step}")
        self.counters.append(counter)
        self.block(depth - 1)
        self.counters.pop()

    def block(self, depth: int) -> None:
        self.depth += 1
        outside = list(self.names)
        for _ in range(self.random.randint(1, 4)):
            self.statement(depth)
        self.line("pass")
        self.names = outside
        self.depth -= 1

    def result(self) -> str:
        first, second = (self.random.choice(self.names + self.fixed)[0] for _ in range(2))
        return f"({first} * {first}).sum() + st.sin({second}).sum() + a0.sum()"

    def module(self) -> tuple[str, list[tuple[int, ...]]]:
        """The text: `f`, and `g`, its value and gradients; and the shapes of the arrays they take."""
        shapes = [self.random.choice(SHAPES[1:]) for _ in range(self.random.randint(1, 3))]
        arrays = ", ".join(f"a{number}" for number in range(len(shapes)))
        self.fixed = [(f"a{number}", shape) for number, shape in enumerate(shapes)]
        shape = self.random.choice(SHAPES[1:])
        self.line(f"V0 = st.Variable(1.0 * {self.array(shape, 2)})")
        self.fixed.append(("V0", shape))
        self.bind()
        self.bind()
        for _ in range(self.random.randint(3, 7)):
            self.statement(3)
        self.line(f"return {self.result()}")
        numbers = tuple(range(len(shapes)))
        head = f"def f({arrays}, n):\n" + "\n".join(self.lines)
        tail = f"def g({arrays}, n):\n    return st.value_and_grad(f, argnums={numbers})({arrays}, n)\n"
        return f"{head}\n\n\n{tail}", shapes


@pytest.mark.parametrize("seed", range(24))
def test_random_program(seed: int) -> None:
    text, shapes = Generator(seed).module()
    module = load_snippet(text)
    data = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        arrays = [data.normal(size=shape) for shape in shapes]
        assert_backends_agree(module.g, *arrays, 3, levels=("0",), rtol=1e-9, atol=1e-9)
