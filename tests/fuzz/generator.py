"""Random programs in the language of staged functions, as Python text.

A program has a function `f(a0, a1, ..., n)` of f64 arrays and an integer that returns `(value, count)`, a float scalar and an
integer, and the helpers that it calls: plain ones and recursive `@st.function`s. Every choice is drawn from a `random.Random`,
so a seed is a program, and so is what Hypothesis draws in its place.

Values stay moderate whatever is combined: factors are bounded, loops are short, what is carried goes through `sin` or `tanh`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.fuzz.constructs import CONSTRUCTS, HEADER, Construct, carried_text

Shape = tuple[int, ...]

SHAPES: tuple[Shape, ...] = ((), (1,), (3,), (4,), (0,), (2, 3), (3, 1), (1, 4), (4, 3), (0, 3), (2, 1, 3))
"""The shapes of arrays: extents of 0 and 1 on purpose."""


@dataclass
class Scope:
    """The names that may be read, and what they hold."""

    floats: list[tuple[str, Shape]] = field(default_factory=list)
    """Float arrays and scalars that may be written."""
    fixed: list[tuple[str, Shape]] = field(default_factory=list)
    """Float values that are only read."""
    integers: list[str] = field(default_factory=list)
    """Integers that may be written."""
    counters: list[str] = field(default_factory=list)
    """Integers that are only read: loop indices, `n`."""
    bools: list[str] = field(default_factory=list)
    variables: list[tuple[str, Shape]] = field(default_factory=list)
    """`st.Variable`s: written through `.value`."""
    functions: list[tuple[str, tuple[Shape, ...], Shape]] = field(default_factory=list)
    """Helpers: name, the shapes of what they take (and an integer at the end), the shape of what they give."""
    couples: list[tuple[str, Shape, Shape]] = field(default_factory=list)
    """Named tuples with two fields."""

    def copy(self) -> Scope:
        return Scope(*(list(getattr(self, name)) for name in self.__dataclass_fields__))


CLOSED_OVER = "SCALAR = np.float64(0.75)\nPOINT = np.array(-1.25)\n\n\n"
"""The scalars that functions close over: one of NumPy, and an array without axes."""


class Lines:
    """The lines of a program that is drawn by chance."""

    chance: random.Random
    lines: list[str]
    depth: int
    count: int

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def pick(self, *options: str) -> str:
        return self.chance.choice(options)


class Generator(Lines):
    """Writes one program."""

    def __init__(self, chance: random.Random, constructs: Mapping[str, tuple[Construct, int]] = CONSTRUCTS) -> None:
        self.chance = chance
        self.constructs = constructs
        """The kinds of statements besides those written here, with the least depth of blocks that it needs."""
        self.in_program = False
        """Whether the statements are those of `f` itself."""
        self.unmapped = {"mapped"}
        """Constructs that mapped code cannot have; all but `mapped` because of their effects."""
        self.headers: list[str] = []
        """The first lines of the program, in this order."""
        self.lines: list[str] = []
        self.depth = 0
        self.count = 0
        self.scope = Scope()
        self.loops: list[str] = []
        """The constructs that may be left here: 'loop' for each loop around, innermost last."""
        self.returns: Callable[[], str] = lambda: "0.0"
        self.shapes = SHAPES
        self.pure = False
        """Whether prints and writes of Variables are left out: in what is mapped."""
        self.stays = False
        """Whether `return` is left out: in functions made on the spot, and in `try` (a documented refusal)."""
        self.printed = False
        self.effects: set[str] = set()
        """The functions that print."""
        self.budget = 0
        """Statements that may still be written."""

    # ---- text ----

    def likely(self, percent: int) -> bool:
        return self.chance.randrange(100) < percent

    def carried(self, shape: Shape) -> str:
        """A float expression that a loop may carry."""
        return carried_text(self.float(shape, 2), shape)

    @contextlib.contextmanager
    def inner_function(self) -> Iterator[None]:
        """Around the text of a function made on the spot, which may be mapped: no exits to outside, no effects."""
        outside, self.scope = self.scope, self.scope.copy()
        before = self.loops, self.returns, self.pure, self.stays, self.budget
        self.scope.fixed += self.scope.floats
        self.scope.counters += self.scope.integers
        self.scope.floats, self.scope.integers, self.scope.bools, self.scope.couples = [], [], [], []
        self.scope.functions = [call for call in self.scope.functions if call[0] not in self.effects]
        self.loops, self.pure, self.stays = [], True, True
        try:
            yield
        finally:
            self.scope = outside
            self.loops, self.returns, self.pure, self.stays, self.budget = before

    # ---- expressions: floats ----

    def number(self) -> str:
        number = self.pick("0.5", "-0.25", "1.5", "0.75", "-1.25", "2.0")
        return self.pick(*[number] * 6, f"np.float64({number})", "SCALAR", "POINT")

    def scalar(self, depth: int) -> str:
        """A float scalar of moderate size."""
        s, below = self.scope, depth - 1
        known = [name for name, shape in s.floats + s.fixed + s.variables if shape == ()]
        vectors = [(name, shape) for name, shape in s.floats + s.fixed if shape and 0 not in shape]
        forms: list[Callable[[], str]] = [self.number]
        if known:
            forms += [lambda: self.chance.choice(known)] * 4
        if vectors:
            forms += [lambda: self.element(*self.chance.choice(vectors))] * 2
        if depth > 0:
            forms += [
                lambda: f"({self.scalar(below)} {self.pick('+', '-', '*')} {self.scalar(below)})",
                lambda: f"st.{self.pick('sin', 'cos', 'tanh', 'sigmoid')}({self.scalar(below)})",
                lambda: f"({self.scalar(below)} / (1.5 + ({self.scalar(below)}) ** 2))",
                lambda: f"st.sqrt(1.0 + ({self.scalar(below)}) ** 2)",
                lambda: f"st.exp(-abs({self.scalar(below)}))",
                lambda: f"{self.pick('max', 'min')}({self.scalar(below)}, {self.scalar(below)})",
                lambda: f"({self.scalar(below)} if {self.condition(below)} else {self.scalar(below)})",
                lambda: f"st.{self.pick('sum', 'mean', 'max')}({self.array(self.shape(True), below)})",
                lambda: f"st.sum({self.array(self.shape(), below)} * {self.scalar(below)})",
                lambda: f"(0.1 * st.astype({self.integer(below)}, st.f64))",
            ]
            calls = [call for call in s.functions if call[2] == ()]
            if calls:
                forms += [lambda: self.call(self.chance.choice(calls), below)] * 2
        return self.chance.choice(forms)()

    def element(self, name: str, shape: Shape) -> str:
        return f"{name}[{', '.join(map(self.place, shape))}]"

    def place(self, extent: int) -> str:
        """An index into an axis, in range."""
        if self.likely(40):
            return f"{self.integer(1)} % {extent}"
        return str(self.chance.randrange(-extent, extent))

    def shape(self, full: bool = False) -> Shape:
        return self.chance.choice([shape for shape in SHAPES if shape and not (full and 0 in shape)])

    def float(self, shape: Shape, depth: int) -> str:
        return self.array(shape, depth) if shape else self.scalar(depth)

    def array(self, shape: Shape, depth: int) -> str:
        """A float array of this shape."""
        s, below = self.scope, depth - 1
        known = [name for name, other in s.floats + s.fixed + s.variables if other == shape]
        forms: list[Callable[[], str]] = [lambda: f"st.full({shape}, {self.scalar(0)}, dtype=st.f64)"]
        if known:
            forms = [lambda: self.chance.choice(known)] * 3
        if depth > 0:
            axis = self.chance.randrange(len(shape))
            wider = (*shape[:axis], shape[axis] + 2, *shape[axis + 1 :])
            cut = ", ".join("1:-1" if number == axis else ":" for number in range(len(shape)))
            order = self.chance.sample(range(len(shape)), len(shape))
            before = tuple(shape[order.index(number)] for number in range(len(shape)))
            size = 1
            for extent in shape:
                size *= extent
            forms += [
                lambda: f"({self.array(shape, below)} {self.pick('+', '-', '*')} {self.array(shape, below)})",
                lambda: f"({self.array(shape, below)} {self.pick('+', '-', '*')} {self.scalar(below)})",
                lambda: f"st.{self.pick('sin', 'tanh', 'relu', 'sigmoid')}({self.array(shape, below)})",
                lambda: f"({self.array(shape, below)} / (1.5 + st.square({self.array(shape, below)})))",
                lambda: f"st.where({self.array(shape, below)} < {self.scalar(below)}, {self.array(shape, below)}, 0.5)",
                lambda: f"{self.array(wider, below)}[{cut}]",
                lambda: f"st.flip({self.array(shape, below)}, axis={axis})",
                lambda: f"st.permute_dims({self.array(before, below)}, {tuple(order)})",
                lambda: f"st.reshape({self.array((size,), below)}, {shape})",
                lambda: f"st.sum({self.array((*shape, 2), below)}, axis=-1)",
                lambda: f"st.roll({self.array(shape, below)}, {self.pick('1', '-2')}, axis={axis})",
                lambda: f"st.clip({self.array(shape, below)}, -0.7, 0.8)",
                lambda: f"st.maximum({self.array(shape, below)}, {self.scalar(below)})",
                lambda: f"st.concat([{self.array((1, *shape[1:]), below)}, {self.array(shape, below)}], axis=0)[1:]",
                lambda: f"st.mean(st.stack([{self.array(shape, below)}, {self.array(shape, below)}], axis={axis}), axis={axis})",
                lambda: f"st.broadcast_to({self.array((*shape[:axis], 1, *shape[axis + 1 :]), below)}, {shape})",
            ]
            if 0 not in shape:
                forms += [
                    lambda: f"st.softmax({self.array(shape, below)}, axis={axis})",
                    lambda: f"st.take({self.array((5, *shape[1:]), below)}, {self.indices(shape[0], 5)}, axis=0)",
                ]
            if len(shape) >= 2:
                inner = self.chance.choice((1, 2, 5))
                forms.append(
                    lambda: f"(({self.array((*shape[:-1], inner), below)} @ {self.array((inner, shape[-1]), below)}) * 0.3)"
                )
            calls = [call for call in s.functions if call[2] == shape]
            if calls:
                forms += [lambda: self.call(self.chance.choice(calls), below)] * 2
        return self.chance.choice(forms)()

    def indices(self, count: int, extent: int) -> str:
        numbers = ", ".join(str(self.chance.randrange(extent)) for _ in range(count))
        return f"(st.asarray([{numbers}]) + {self.integer(1)}) % {extent}"

    def call(self, function: tuple[str, tuple[Shape, ...], Shape], depth: int) -> str:
        name, shapes, _ = function
        arguments = [self.float(shape, min(depth, 1)) for shape in shapes]
        called = f"st.checkpoint({name})" if self.likely(12) else name
        return f"{called}({', '.join([*arguments, self.integer(0) + ' % 3'])})"

    # ---- expressions: integers and bools ----

    def integer(self, depth: int) -> str:
        s, below = self.scope, depth - 1
        known = s.integers + s.counters
        forms: list[Callable[[], str]] = [lambda: str(self.chance.randrange(4))]
        if known:
            forms += [lambda: self.chance.choice(known)] * 4
        if depth > 0:
            forms += [
                lambda: f"({self.integer(below)} {self.pick('+', '-', '*')} {self.integer(below)})",
                lambda: f"({self.integer(below)} {self.pick('//', '%')} {self.pick('2', '3', '5')})",
                lambda: f"({self.integer(below)} {self.pick('&', '|', '^')} {self.integer(below)})",
                lambda: f"({self.integer(below)} {self.pick('<<', '>>')} 1)",
                lambda: f"{self.pick('abs', '~', '-')}({self.integer(below)})",
                lambda: f"({self.integer(below)} if {self.condition(below)} else {self.integer(below)})",
            ]
        return f"({self.chance.choice(forms)()})" if depth > 0 else self.chance.choice(forms)()

    def condition(self, depth: int) -> str:
        s, below = self.scope, depth - 1
        forms: list[Callable[[], str]] = [
            lambda: f"{self.scalar(1)} {self.pick('<', '>', '<=', '>=')} {self.scalar(1)} + 0.1",
            lambda: f"{self.integer(1)} {self.pick('<', '>', '<=', '!=', '==')} {self.integer(1)}",
            lambda: f"{self.integer(1)} % 2 == 0",
        ]
        if s.bools:
            forms += [lambda: self.chance.choice(s.bools)] * 2
        if depth > 0:
            forms += [
                lambda: f"({self.condition(below)} {self.pick('and', 'or')} {self.condition(below)})",
                lambda: f"not ({self.condition(below)})",
                lambda: f"-0.6 < {self.scalar(1)} <= {self.scalar(0)} + 0.3",
                lambda: f"0 <= {self.integer(1)} < 3",
            ]
        return self.chance.choice(forms)()

    # ---- statements ----

    def statements(self, count: int, depth: int) -> None:
        for _ in range(count):
            if self.budget <= 0:
                break
            self.statement(depth)
        self.line("pass")

    def block(self, depth: int, most: int = 3) -> None:
        """An indented block; what it binds is forgotten after it."""
        outside, self.scope = self.scope, self.scope.copy()
        self.depth += 1
        self.statements(self.chance.randint(1, most), depth)
        self.depth -= 1
        self.scope = outside

    def statement(self, depth: int) -> None:
        self.budget -= 1
        kinds = ["bind", "change", "change", "change", "item", "integer", "bool", "swap"]
        if not self.pure:
            kinds += ["write", "print"]
        kinds += [
            name for name, (_, least) in self.constructs.items() if depth >= least and not (self.pure and name in self.unmapped)
        ]
        if depth > 0:
            kinds += ["if", "if", "for", "for", "while", "closure", "comprehension"]
        if self.loops:
            kinds += ["exit", "exit"]
        elif self.depth > 1 and not self.stays:
            kinds += ["return"]
        kind = self.chance.choice(kinds)
        if kind in self.unmapped and kind != "mapped":
            self.printed = True
        if kind in self.constructs:
            self.constructs[kind][0](self, depth)
        else:
            getattr(self, f"write_{kind}")(depth)

    def write_bind(self, depth: int) -> None:
        shape = self.chance.choice(SHAPES)
        text, name = self.float(shape, 2), self.fresh("v")
        # Weak numbers become arrays that depend on an input: a carried value keeps its dtype.
        self.line(f"{name} = 1.0 * {text} + 0.0 * a0_sum")
        self.scope.floats.append((name, shape))

    def write_change(self, depth: int) -> None:
        if not self.scope.floats:
            return self.write_bind(depth)
        name, shape = self.chance.choice(self.scope.floats)
        text = self.float(shape, 2)
        form = self.chance.randrange(4)
        if form == 0:
            self.line(f"{name} = st.sin({text} + 0.5 * {name})")
        elif form == 1:
            self.line(f"{name} += st.tanh({text})")
        elif form == 2:
            self.line(f"{name} *= st.cos({text})")
        else:
            self.line(f"{name} = {name} if {self.condition(1)} else st.sin({text}) + 0.0 * {name}")
        return None

    def write_item(self, depth: int) -> None:
        fitting = [(name, shape) for name, shape in self.scope.floats if shape and 0 not in shape]
        if not fitting:
            return self.write_change(depth)
        name, shape = self.chance.choice(fitting)
        sign = self.pick("=", "+=", "*=")
        if len(shape) == 1 or self.likely(50):
            place = self.place(shape[0])
            self.line(f"{name}[{place}] {sign} st.sin({self.float(shape[1:], 1)})")
        else:
            self.line(f"{self.element(name, shape)} {sign} st.sin({self.scalar(1)})")
        return None

    def write_integer(self, depth: int) -> None:
        if self.scope.integers and self.likely(70):
            name = self.chance.choice(self.scope.integers)
            self.line(f"{name} = ({name} + {self.integer(1)}) % 7" if self.likely(60) else f"{name} += 1")
        else:
            name, text = self.fresh("k"), self.integer(1)
            self.line(f"{name} = n * 0 + {text}")
            self.scope.integers.append(name)

    def write_bool(self, depth: int) -> None:
        text = self.condition(1)
        if self.scope.bools and self.likely(50):
            self.line(f"{self.chance.choice(self.scope.bools)} = {text}")
        else:
            name = self.fresh("b")
            self.line(f"{name} = ({text}) and n > -1")
            self.scope.bools.append(name)

    def write_swap(self, depth: int) -> None:
        names = self.scope.floats
        if len(names) < 2:
            return self.write_bind(depth)
        (first, shape), (second, other) = self.chance.sample(names, 2)
        if shape == other:
            self.line(f"{first}, {second} = {second}, {first}")
        return None

    def write_write(self, depth: int) -> None:
        if not self.scope.variables:
            return self.write_change(depth)
        name, shape = self.chance.choice(self.scope.variables)
        self.line(f"{name}.value = st.sin({self.float(shape, 2)} + 0.3 * {name})")
        return None

    def write_print(self, depth: int) -> None:
        self.printed = True
        self.line(f'print(f"{{{self.integer(1)}}} {{{self.condition(0)}}}")')

    def write_if(self, depth: int) -> None:
        self.line(f"if {self.condition(2)}:")
        self.block(depth - 1)
        if self.likely(25):
            self.line(f"elif {self.condition(1)}:")
            self.block(depth - 1)
        if self.likely(60):
            self.line("else:")
            self.block(depth - 1)

    def write_for(self, depth: int) -> None:
        bound = self.pick("0", "1", "3", "n", "n + 1", "n % 3")
        index = self.fresh("i")
        form = self.chance.randrange(8)
        vectors = [(name, shape) for name, shape in self.scope.floats + self.scope.fixed if shape]
        counters, row = [index], None
        if form <= 2 or not vectors:
            counted = self.pick("st.range", "range") if "n" in bound else "st.range"
            self.line(f"for {index} in {counted}({bound}):")
        elif form == 3:
            start, step = self.pick("0", "1", "n"), self.pick("1", "2", "-1", "-2")
            self.line(f"for {index} in st.range({start}, {self.pick('4', 'n + 2', '-2')}, {step}):")
        elif form == 4:
            self.line(f"for {index} in reversed(st.range({bound})):")
        else:
            name, shape = self.chance.choice(vectors)
            item = self.fresh("r")
            row = (item, shape[1:])
            if form == 5:
                counters = []
                self.line(f"for {item} in {name}:")
            elif form == 6:
                self.line(f"for {index}, {item} in enumerate({name}):")
            else:
                self.line(f"for {index}, {item} in zip(st.range({bound}), {name}):")
        self.loop(depth, counters, row)

    def write_while(self, depth: int) -> None:
        counter = self.fresh("w")
        limit = self.pick("2", "3", "n")
        self.line(f"{counter} = n * 0")
        if self.likely(20):
            self.line("while True:")
            first = f"if {counter} >= {limit}:"
        else:
            extra = self.pick("", f" and ({self.condition(1)})", f" and not ({self.condition(0)})")
            self.line(f"while {counter} < {limit}{extra}:")
            first = ""
        self.line(f"    {counter} += 1")
        if first:
            self.line(f"    {first}")
            self.line("        break")
        self.loop(depth, [counter], None, bool(first))

    def loop(
        self,
        depth: int,
        counters: list[str],
        row: tuple[str, Shape] | None,
        forever: bool = False,
        first: Callable[[], None] | None = None,
    ) -> None:
        """The body of a loop, maybe with an `else`; `first` writes what it begins with."""
        outside, self.scope = self.scope, self.scope.copy()
        self.scope.counters += counters
        if row is not None:
            self.scope.fixed.append(row)
        self.loops.append("loop")
        if first is not None:
            self.depth += 1
            first()
            self.depth -= 1
        self.block(depth - 1)
        self.loops.pop()
        self.scope = outside
        if self.likely(15) and not forever:
            self.line("else:")
            self.block(depth - 1, 2)

    def write_exit(self, depth: int) -> None:
        self.line(f"if {self.condition(1)}:")
        kind = self.chance.choice(("break", "continue") if self.stays else ("break", "continue", "return"))
        self.line("    " + (f"return {self.returns()}" if kind == "return" else kind))

    def write_return(self, depth: int) -> None:
        self.line(f"if {self.condition(1)}:")
        self.line(f"    return {self.returns()}")

    def write_closure(self, depth: int) -> None:
        """A function made on the spot, that reads what is around it."""
        name, parameter = self.fresh("c"), self.fresh("x")
        if self.likely(30):
            outside, self.scope = self.scope, self.scope.copy()
            self.scope.fixed.append((parameter, ()))
            text = self.scalar(2)
            self.scope = outside
            self.line(f"{name} = lambda {parameter}: {text}")
        else:
            self.line(f"def {name}({parameter}, scale=0.5):")
            outside, self.scope = self.scope, self.scope.copy()
            self.scope.fixed += [(parameter, ()), ("scale", ())]
            self.depth += 1
            self.line(f"if {self.condition(1)}:")
            self.line(f"    return st.sin({self.scalar(1)}) + 0.0 * a0_sum")
            self.line(f"return st.tanh({self.scalar(2)}) + 0.0 * a0_sum")
            self.depth -= 1
            self.scope = outside
        result = self.fresh("v")
        self.line(f"{result} = 1.0 * {name}({self.scalar(1)}) + 0.0 * a0_sum")
        self.scope.floats.append((result, ()))

    def write_comprehension(self, depth: int) -> None:
        name, index = self.fresh("v"), self.fresh("j")
        outside, self.scope = self.scope, self.scope.copy()
        self.scope.counters.append(index)
        text = self.scalar(1)
        self.scope = outside
        self.line(f"{name} = sum([{text} for {index} in range({self.pick('1', '2', '3')})]) + 0.0 * a0_sum")
        self.scope.floats.append((name, ()))

    # ---- functions ----

    def helper(self) -> None:
        """A plain function, staged along where it is called, with an early return."""
        shapes = tuple(self.chance.choice(SHAPES) for _ in range(self.chance.randint(1, 2)))
        result = self.chance.choice(SHAPES)
        name = self.fresh("helper")
        self.function(name, shapes, result, None)

    def recursive(self) -> None:
        """A recursive staged function: the integer counts down."""
        shapes = tuple(self.chance.choice(SHAPES[:7]) for _ in range(self.chance.randint(1, 2)))
        self.line("@st.function")
        self.function(self.fresh("rec"), shapes, shapes[0], self.chance.randint(1, 2))

    def mutual(self) -> None:
        """Two staged functions that call each other."""
        shapes = (self.chance.choice(SHAPES[:7]),)
        first, second = self.fresh("even"), self.fresh("odd")
        known = list(self.scope.functions)
        for name, other in ((first, second), (second, first)):
            self.scope.functions = list(known)  # calls of one another only as they count down, or they would never end
            self.line("@st.function")
            self.function(name, shapes, shapes[0], 1, other)
        self.scope.functions = [*known, (first, shapes, shapes[0]), (second, shapes, shapes[0])]
        if self.effects & {first, second}:
            self.effects |= {first, second}

    def function(
        self, name: str, shapes: tuple[Shape, ...], result: Shape, calls: int | None, other: str | None = None
    ) -> None:
        parameters = [self.fresh("p") for _ in shapes]
        self.printed = any(called[0] in self.effects for called in self.scope.functions)
        self.line(f"def {name}({', '.join([*parameters, 'n'])}):")
        outside = self.scope
        self.scope = Scope(fixed=list(zip(parameters, shapes, strict=True)), functions=list(outside.functions))
        self.scope.counters.append("n")
        self.depth += 1
        self.line(f"a0_sum = st.sum({parameters[0]})")

        def value() -> str:
            return f"st.sin({self.float(result, 1)}) + 0.0 * a0_sum"

        def returned() -> str:
            text = value()
            return text if not result else f"{text} + st.zeros({result}, dtype=st.f64)"

        self.returns = returned
        self.budget = 3
        if calls is not None:
            extra = self.pick("", f" or {self.condition(0)}") if self.likely(50) else ""
            self.line(f"if n <= 0{extra}:")
            self.line(f"    return {returned()}")
        for _ in range(calls or 0):
            if self.likely(50):
                self.statement(1)
            arguments = [f"st.sin({self.float(shape, 1)}) + 0.0 * a0_sum" for shape in shapes]
            made = self.fresh("v")
            call = f"{made} = {other or name}({', '.join([*arguments, self.pick('n - 1', 'n - 2')])})"
            if self.likely(20):
                self.line(f"{made} = {carried_text('0.5', result)}")
                self.line(f"for {self.fresh('i')} in st.range({self.pick('2', 'n % 3')}):")
                call = "    " + call
            self.line(call)
            self.scope.floats.append((made, result))
        self.statements(self.chance.randint(0, 2), 2)
        self.line(f"return {returned()}")
        self.depth -= 1
        self.line("")
        self.line("")
        self.scope = outside
        self.scope.functions.append((name, shapes, result))
        if self.printed:
            self.effects.add(name)

    def program(self) -> tuple[str, list[Shape]]:
        """The text, and the shapes of the arrays that `f` takes (the first is never empty)."""
        for kind, percent in ((self.helper, 40), (self.recursive, 40), (self.mutual, 12)):
            if self.likely(percent):
                kind()
        shapes = [self.shape(True)]
        shapes += [self.chance.choice(SHAPES[1:]) for _ in range(self.chance.randint(0, 2))]
        arrays = [f"a{number}" for number in range(len(shapes))]
        self.scope.fixed = list(zip(arrays, shapes, strict=True))
        self.scope.counters = ["n"]
        self.line(f"def f({', '.join([*arrays, 'n'])}):")
        self.depth = 1
        self.in_program = True
        self.line("a0_sum = st.sum(a0)")
        self.returns = lambda: f"({self.total()}, {self.integer(1)} + n * 0)"
        self.budget = 8
        if self.likely(50):
            shape = self.chance.choice(SHAPES)
            self.line(f"s0 = st.Variable(1.0 * {self.float(shape, 1)} + 0.0 * a0_sum)")
            self.scope.variables.append(("s0", shape))
        self.write_bind(0)
        self.write_integer(0)
        self.statements(self.chance.randint(2, 4), 3)
        self.line(f"return {self.returns()}")
        text = "\n".join(self.lines) + "\n"
        if "Pair(" in text or "Couple(" in text:
            self.headers.insert(0, HEADER)
        if "SCALAR" in text or "POINT" in text:
            self.headers.append(CLOSED_OVER)
        return "".join(self.headers) + text, shapes

    def total(self) -> str:
        """A scalar of what is known."""
        names = [name for name, _ in self.scope.floats + self.scope.fixed + self.scope.variables]
        chosen = self.chance.sample(names, min(3, len(names)))
        return " + ".join([f"st.sum(st.sin({name}) * {self.number()})" for name in chosen] + ["0.1 * a0_sum"])
