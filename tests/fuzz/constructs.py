"""Statements of random programs about one construct each: growable stacks, objects, transforms, slices, `try`.

Each function writes lines into a `Generator` and tells its scope what they bind. Expressions are the generator's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.generator import Generator, Shape

Construct = Callable[["Generator", int], None]


def write_stack(g: Generator, depth: int) -> None:
    """A `Stack` filled by a loop, maybe emptied again, and read in one of the ways there are."""
    shape = g.chance.choice(g.shapes)
    name, result, index = g.fresh("q"), g.fresh("v"), g.fresh("i")
    g.line(f"{name} = st.Stack({g.carried(shape)}, max=12)")
    g.line(f"for {index} in st.range({g.pick('0', '2', 'n', 'n + 1')}):")

    def append() -> None:
        value = f"st.sin({g.float(shape, 1)}) + 0.0 * a0_sum"
        # A number is no array of the elements' shape.
        value += f" + st.zeros({shape}, dtype=st.f64)" if shape else ""
        if g.likely(40):
            g.line(f"if {g.condition(1)}:")
            g.line(f"    {name}.append({value})")
        else:
            g.line(f"{name}.append({value})")

    g.loop(depth, [index], None, first=append)
    if g.likely(25):
        g.line(f"if len({name}) > 1:")
        g.line(f"    {name}.pop()")
    # The check of an index names the length, which may differ between mapped elements: refused.
    form = g.chance.randrange(2 if g.pure else 4)
    if form == 0:
        g.line(f"{result} = 1.0 * st.sum({name}.array()) + 0.0 * a0_sum")
    elif form == 1:
        item = g.fresh("r")
        g.line(f"{result} = 0.0 * a0_sum")
        g.line(f"for {item} in {name}:")
        g.line(f"    {result} = st.sin({result} + st.sum({item}))")
    elif form == 2:
        g.line(f"{result} = (st.sum({name}[-1]) if len({name}) > 0 else 0.5) + 0.0 * a0_sum")
    else:
        g.line(f"{result} = 0.0 * a0_sum")
        g.line(f"if len({name}) > 0:")
        g.line(f"    {name}[0] = {name}[len({name}) - 1] * 0.5")
        g.line(f"    {result} = st.tanh(st.sum({name}[{g.integer(1)} % len({name})]))")
    g.line(f"{g.fresh('k')} = len({name})")
    g.scope.integers.append(f"k{g.count}")
    g.scope.floats.append((result, ()))


def write_object(g: Generator, depth: int) -> None:
    """A dataclass, a list, a dict or a named tuple of floats; the first three are written to like names."""
    shapes = [g.chance.choice(g.shapes) for _ in range(2)]
    name = g.fresh("o")
    values = [g.carried(shape) for shape in shapes]
    form = g.chance.randrange(4)
    if form == 0:
        g.line(f"{name} = Pair({values[0]}, {values[1]})")
        g.scope.floats += [(f"{name}.first", shapes[0]), (f"{name}.second", shapes[1])]
    elif form == 1:
        g.line(f"{name} = [{values[0]}, {values[1]}]")
        g.scope.floats += [(f"{name}[0]", shapes[0]), (f"{name}[1]", shapes[1])]
    elif form == 2:
        g.line(f'{name} = {{"a": {values[0]}, "b": {values[1]}}}')
        # In the other quotes: f-strings use these too.
        g.scope.floats += [(f"{name}['a']", shapes[0]), (f"{name}['b']", shapes[1])]
    else:
        g.line(f"{name} = Couple({values[0]}, {values[1]})")
        g.scope.fixed += [(f"{name}.first", shapes[0]), (f"{name}.second", shapes[1])]
        g.scope.couples.append((name, shapes[0], shapes[1]))


def write_couple(g: Generator, depth: int) -> None:
    """A new named tuple under an old name."""
    if not g.scope.couples:
        return write_object(g, depth)
    name, first, second = g.chance.choice(g.scope.couples)
    one = f"st.sin({g.float(first, 1)} + {name}.first)"
    if g.likely(50):
        g.line(f"{name} = Couple({one}, {name}.second)")
    else:
        g.line(f"{name} = {name}._replace(second=st.sin({g.float(second, 1)} + {name}.second))")
    return None


def write_gradient(g: Generator, depth: int) -> None:
    """A derivative taken inside the program: of a function made on the spot, that reads what is around it."""
    known = [(name, shape) for name, shape in g.scope.floats + g.scope.fixed if 0 not in shape]
    if not known:
        return g.write_bind(depth)
    at, shape = g.chance.choice(known)
    name, parameter, result = g.fresh("e"), g.fresh("x"), g.fresh("v")
    with g.inner_function():
        g.line(f"def {name}({parameter}):")
        g.scope.fixed.append((parameter, shape))
        g.depth += 1
        if depth > 0 and g.likely(50):
            local, index = g.fresh("v"), g.fresh("i")
            g.line(f"{local} = {g.carried(())}")
            g.scope.floats = [(local, ())]
            g.line(f"for {index} in st.range({g.pick('2', 'n', 'n % 3')}):")
            g.scope.counters.append(index)
            g.line(f"    {local} = st.sin({g.scalar(1)} + {local} * st.sum({parameter}))")
            if g.likely(40):
                g.line(f"    if {g.condition(0)}:")
                g.line("        break")
            g.scope.counters.remove(index)
        g.line(f"return st.sum(st.sin({g.float(shape, 2)}) * {parameter}) + {g.scalar(2)}")
        g.depth -= 1
    form = g.chance.randrange(3)
    if form == 0:
        value, slope = g.fresh("v"), g.fresh("g")
        g.line(f"{value}, {slope} = st.value_and_grad({name})({at})")
        g.line(f"{result} = st.sin({at} - 0.1 * {slope}) + 0.0 * {value}")
    elif form == 1:
        g.line(f"{result} = st.sin({at} - 0.1 * st.grad({name})({at}))")
    else:
        tangent = g.float(shape, 1)
        # A tangent is of its primal's type.
        along = f"0.0 * {at} + {tangent}"
        g.line(f"{result} = st.sin(st.jvp({name}, ({at},), ({along},))[1])")
        shape = ()
    g.scope.floats.append((result, shape))
    return None


def write_mapped(g: Generator, depth: int) -> None:
    """`vmap` of a function made on the spot over the rows of an array."""
    known = [(name, shape) for name, shape in g.scope.floats + g.scope.fixed if shape and shape[0] > 0 and 0 not in shape]
    if not known:
        return g.write_bind(depth)
    over, shape = g.chance.choice(known)
    inner = g.chance.choice(g.shapes)
    name, parameter, result = g.fresh("m"), g.fresh("x"), g.fresh("v")
    with g.inner_function():
        g.line(f"def {name}({parameter}):")
        g.scope.fixed.append((parameter, shape[1:]))
        g.depth += 1
        made = g.fresh("v")
        g.line(f"{made} = {g.carried(inner)}")
        g.scope.floats = [(made, inner)]
        g.budget = min(g.budget, 3)
        g.statements(1, min(depth, 1))
        g.line(f"return st.sin({made} * st.sum({parameter}) + {g.float(inner, 1)})")
        g.depth -= 1
    g.line(f"{result} = 1.0 * st.vmap({name})({over}) + 0.0 * a0_sum")
    g.scope.floats.append((result, (shape[0], *inner)))
    return None


def write_slice(g: Generator, depth: int) -> None:
    """A slice of static width from a staged start, read or written."""
    known = [(name, shape) for name, shape in g.scope.floats if shape and shape[0] > 0]
    if not known:
        return g.write_bind(depth)
    name, shape = g.chance.choice(known)
    width = g.chance.randint(1, shape[0])
    start = g.fresh("k")
    g.line(f"{start} = {g.integer(1)} % {shape[0] - width + 1}")
    part = (width, *shape[1:])
    form = g.chance.randrange(3)
    if form == 0:
        g.line(f"{name}[{start}:{start} + {width}] = st.sin({g.float(part, 1)})")
    elif form == 1:
        g.line(f"{name}[{start} : {start} + {width}] += st.sin({g.float(part, 1)})")
    else:
        result = g.fresh("v")
        g.line(f"{result} = 1.0 * {name}[{start} : {start} + {width}] + 0.0 * a0_sum")
        g.scope.floats.append((result, part))
    g.scope.counters.append(start)
    return None


def write_try(g: Generator, depth: int) -> None:
    """`try` with a `finally` that runs whichever way the block is left."""
    loops, stays = g.loops, g.stays
    g.loops, g.stays = [], True
    g.line("try:")
    g.block(depth - 1, 2)
    g.loops, g.stays = loops, stays
    g.line("finally:")
    g.line("    " + ("pass" if not g.scope.integers else f"{g.chance.choice(g.scope.integers)} += 1"))


def write_single(g: Generator, depth: int) -> None:
    """A float array through f32: one rounding, so that every mode rounds alike."""
    shape = g.chance.choice(g.shapes)
    name = g.fresh("v")
    g.line(f"{name} = st.astype(st.astype({g.carried(shape)}, st.f32), st.f64)")
    g.scope.floats.append((name, shape))


CONSTRUCTS: dict[str, tuple[Construct, int]] = {
    "stack": (write_stack, 1),
    "object": (write_object, 0),
    "couple": (write_couple, 0),
    "gradient": (write_gradient, 0),
    "mapped": (write_mapped, 0),
    "slice": (write_slice, 0),
    "try": (write_try, 1),
    "single": (write_single, 0),
}
"""The kinds of statements besides those in `generator.py`, with the least depth of blocks that it needs."""

HEADER = '''\
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class Pair:
    first: object
    second: object


class Couple(NamedTuple):
    first: object
    second: object


'''
"""The first lines of a program that has objects."""


def carried_text(text: str, shape: Shape) -> str:
    """An expression's text made an array of f64 that depends on an input: a carried value keeps its dtype and shape."""
    whole = f"1.0 * {text} + 0.0 * a0_sum"
    return whole if not shape else f"{whole} + st.zeros({shape}, dtype=st.f64)"
