"""A piece: one small function of a program, with its arguments and what is known about it for the oracles."""

from __future__ import annotations

import random
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from staged.errors import StagedError
from tests.fuzz import plain
from tests.fuzz.cells.draw import DTYPES, INEXACT, KINDS, Draw, NotACell
from tests.fuzz.cells.public import public_names
from tests.rows import ROWS

Cell = tuple[str, str, str, str]
"""(function, dtype, kind of shape, transform)."""

OF_FLOATS = ("grad", "jvp", "twice", "grads", "jvps", "shared")
"""Derivatives: reverse mode, forward mode, forward over reverse; the first two by two operands at once; by an array that is two
operands."""
OF_TWO = ("grads", "jvps", "shared")
TRANSFORMS = ("plain", "checkpoint", "vmap", *OF_FLOATS)


@dataclass
class Piece:
    """One function of a program: `def NAME(arguments): ...`."""

    text: str
    """Its definition, under the name `piece`."""
    arrays: dict[str, np.ndarray[Any, Any]]
    cell: Cell | None = None
    label: str = ""
    loose: bool = False
    """Whether floats are compared by the size of the largest: rounding of sums and products. Else each by itself."""
    signs: bool = False
    """Whether the sign of zero is compared."""
    bits: bool = False
    """Whether floats are compared to the last bit: each result is rounded once at most."""
    read: bool = True
    """Whether NumPy reads it."""
    other: str = ""
    """Another way to a number that the results give: `def piece(arguments)` in eager mode, for derivatives."""
    agree: Callable[[Any, Any], bool] | None = None
    value: str = ""
    """For derivatives: the scalar function, `def piece(arguments)`, which NumPy reads for differences."""
    main: str = ""
    by: tuple[str, ...] = ()
    """The operands that a derivative is by; their tangents are `t` and `s`."""
    transform: str = "plain"
    mapped: str = ""
    """The text of the map of `inner`."""
    heads: list[str] = field(default_factory=list)
    """The first lines of the module."""
    variables: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    """Variables of the module, with what they hold before a call."""
    wraps: bool = False
    """Whether Python's integers of eager mode may leave 64 bits, so that what is right is what NumPy reads."""
    keywords: set[str] = field(default_factory=set)

    def module(self, text: str) -> str:
        """A module with a definition of this piece's."""
        return module_of([self], text)

    def renamed(self, name: str) -> str:
        """The definition under another name."""
        return self.text.replace("def piece(", f"def {name}(", 1)


EXACT = frozenset(
    "negative abs sign floor ceil trunc round add subtract multiply divide sqrt square where astype relu stop_gradient "
    "broadcast_to reshape flatten squeeze expand_dims unsqueeze permute_dims permute transpose matrix_transpose swapaxes moveaxis "
    "flip roll pad concat stack split unstack tile repeat full zeros ones empty full_like zeros_like ones_like tril triu meshgrid "
    "take take_along_axis dynamic_slice dynamic_update_slice set_item broadcast_arrays sin tan asin atan sinh tanh expm1 log1p".split()
)
"""Functions whose zeros have a sign that IEEE or the mathematics fixes."""

ELEMENTWISE = EXACT | frozenset(
    "exp log log2 log10 rsqrt cos acos cosh erf erfc maximum minimum atan2 floor_divide remainder pow sigmoid log_sigmoid "
    "softplus silu elu leaky_relu clip max min any all argmax argmin count_nonzero".split()
)
"""Functions that are compared element by element."""


def cells() -> list[Cell]:
    """All cells that the declarations might have: those that are refused are found by asking."""
    return [
        (name, dtype, kind, transform)
        for name in sorted({*public_names(), *ROWS})
        for dtype in DTYPES
        for kind in KINDS
        for transform in TRANSFORMS
        if transform not in OF_FLOATS or dtype in INEXACT
    ]


def piece_of(cell: Cell, chance: random.Random, start: int = 0) -> Piece:
    """A random call for this cell. Raises NotACell where there is none."""
    name, dtype, kind, transform = cell
    if name not in ROWS:
        raise NotACell(f"{name} has no row")
    d = Draw(chance, dtype, kind, smooth=transform in OF_FLOATS)
    d.name, d.start, d.both = name, start, transform in OF_TWO
    call = ROWS[name].draw(d)
    main = d.main
    if not main:
        main = next(iter(d.arrays))
    loose = name not in ELEMENTWISE or transform in OF_FLOATS
    piece = Piece("", d.arrays, cell, " ".join(cell), loose, name in EXACT and not loose, keywords=d.keywords)
    piece.main, piece.transform = main, transform
    if d.likely(25):
        call = _wrapped(call, d)
    if transform in OF_FLOATS:
        _derivative(piece, d, call, transform)
        return piece
    if transform == "vmap":
        _several(piece, d)
    body = "".join(f"{line}\n" for line in (*d.lines, f"return {call}"))
    if transform != "plain":
        mapped = piece.mapped if transform == "vmap" else "st.checkpoint(inner)"
        inner = textwrap.indent(body, "    ")
        body = f"def inner({main}):\n{inner}\nreturn {mapped}({main})\n"
    piece.text = f"{opening(d)}{textwrap.indent(body, '    ')}"
    return piece


def opening(d: Draw) -> str:
    """The beginning of a piece's text."""
    return f"def piece({', '.join(d.arrays)}):\n" + "".join(f"    {line}\n" for line in d.setup)


def _wrapped(call: str, d: Draw) -> str:
    """The call on a view of an operand, of the operand's own shape: only where the operand stands by itself."""
    several = [name for name, array in d.arrays.items() if array.ndim and f"{name}," not in call + "," or array.ndim]
    if not several:
        return call
    name = d.chance.choice(several)
    array = d.arrays[name]
    if not array.ndim:
        return call
    axis = d.chance.randrange(array.ndim)
    cut = ", ".join("1:-2" if number == axis else ":" for number in range(array.ndim))
    widths = tuple((1, 2) if number == axis else (0, 0) for number in range(array.ndim))
    order = tuple(d.chance.sample(range(array.ndim), array.ndim))
    back = tuple(order.index(number) for number in range(array.ndim))
    views = [
        f"st.flip(st.flip({name}, axis={axis}), axis={axis})",
        f"st.pad({name}, {widths!r})[{cut}]",
        f"st.permute_dims(st.permute_dims({name}, {order!r}), {back!r})",
        f"st.roll(st.roll({name}, 2, axis={axis}), -2, axis={axis})",
        f"st.concat([{name}, {name}], axis=0)[{array.shape[0]}:]",
        f"st.broadcast_to({name}, {(2, *array.shape)!r})[1]",
        f"st.where({name} == {name}, {name}, {name})",
    ]
    return re.sub(rf"\b{name}\b(?!\.)", d.chance.choice(views).replace("\\", ""), call)


def _several(piece: Piece, d: Draw) -> None:
    """The main operand several times along a new axis, for a map."""
    main = piece.main
    data = d.arrays[main]
    axis = d.chance.choice((0, 0, 0, data.ndim))
    count = d.pick(1, 3, 2)
    several = np.stack(
        [data] + [d.numbers.permutation(data.reshape(-1)).reshape(data.shape) for _ in range(count - 1)], axis
    )
    d.arrays[main] = several
    piece.mapped = f"st.vmap(inner, in_axes={axis})" if axis else "st.vmap(inner)"


def _derivative(piece: Piece, d: Draw, call: str, transform: str) -> None:
    """The derivative of a call by one of its float operands, or by two."""
    body = "".join(f"{line}\n" for line in (*d.lines, f"return {call}"))
    found = result_of(f"{opening(d)}{textwrap.indent(body, '    ')}", d.arrays)
    if isinstance(found, tuple | list) and found:
        body = body.removesuffix("\n") + f"[{d.chance.randrange(len(found))}]\n"
    derive(piece, d, body, transform)


def derive(piece: Piece, d: Draw, body: str, transform: str) -> None:
    """Make `piece` a derivative of the function with this body by one of the float arrays, or by two."""
    floats = [name for name, array in d.arrays.items() if plain.kind_of(array.dtype) in "fc"]
    if not floats:
        raise NotACell
    main = piece.main = d.chance.choice([*floats, piece.main if piece.main in floats else floats[0]])
    piece.by = (main,)
    if transform in OF_TWO:
        alike = [
            name
            for name in floats
            if name != main and (transform != "shared" or d.arrays[name].shape == d.arrays[main].shape)
        ]
        if not alike:
            raise NotACell
        second = d.chance.choice(alike)
        if transform == "shared":
            body = f"{second} = {main}\n{body}"
            del d.arrays[second]
        else:
            piece.by = (main, second)
    found = result_of(f"{opening(d)}{textwrap.indent(body, '    ')}", d.arrays)
    if not isinstance(found, np.ndarray | np.generic) or plain.kind_of(found.dtype) not in "fc":
        raise NotACell
    if not np.all(np.isfinite(found)):
        raise NotACell
    numbers = np.random.default_rng(d.chance.randrange(1 << 30))
    by, tangents = piece.by, TANGENTS[: len(piece.by)]
    d.arrays["w"] = _chosen(numbers, (-1.0, 0.5, 1.0, 2.0), found)
    for tangent, name in zip(tangents, by, strict=True):
        d.arrays[tangent] = _chosen(numbers, (-1.0, 0.5, 1.0, 0.25), d.arrays[name])
    names = ", ".join(by)
    head = f"{opening(d)}    def inner({names}):\n{textwrap.indent(body, '        ')}\n"
    inner = "st.checkpoint(inner)" if d.likely(20) else "inner"
    whole = f"lambda {names}: {_product_of(f'{inner}({names})', 'w', found)}"
    piece.value = f"{head}    return {_product_of(f'inner({names})', 'w', found)}\n"
    piece.transform = transform
    forward = f"st.jvp({inner}, ({names},), ({', '.join(tangents)},))"
    several = ", argnums=(0, 1)" if len(by) > 1 else ""
    gradient = d.pick(
        f"st.grad({whole}{several})({names})",
        f"st.value_and_grad({whole}{several})({names})[1]",
        f"st.vjp({inner}, {names})[1](w)",
    )
    along = [d.arrays[tangent] for tangent in tangents]
    if transform in ("grad", "grads", "shared"):
        piece.text = f"{head}    return {gradient}\n"
        piece.other = f"{head}    return {_product_of(f'{forward}[1]', 'w', found)}\n"
        piece.agree = lambda gradient, number: (_product(gradient, along), wide(number))
    elif transform in ("jvp", "jvps"):
        piece.text = f"{head}    return {forward}[1]\n"
        piece.other = f"{head}    slopes = st.grad({whole}{several})({names})\n    return " + (
            " + ".join(
                _product_of(f"slopes[{place}]" if several else "slopes", tangent, d.arrays[tangent])
                for place, tangent in enumerate(tangents)
            )
            + "\n"
        )
        piece.agree = lambda slope, number: (_product(slope, [d.arrays["w"]]), wide(number))
    else:
        piece.text = f"{head}    return st.jvp(st.grad({whole}), ({main},), (t,))[1]\n"
        piece.other = (
            f"{head}    return st.grad(lambda {main}: {_product_of(f'st.jvp(inner, ({main},), (t,))[1]', 'w', found)})({main})\n"
        )
        piece.agree = lambda left, right: (wide(left), wide(right))


TANGENTS = ("t", "s")


def _chosen(numbers: np.random.Generator, values: tuple[float, ...], like: Any) -> Any:
    """An array like another of some of these values, also in its imaginary part."""
    found = np.asarray(numbers.choice(values, like.shape))
    return (found + 1j * numbers.choice(values, like.shape) if like.dtype.kind == "c" else found).astype(like.dtype)


def _product_of(x: str, y: str, like: Any) -> str:
    """The text of the inner product of two arrays, of real and imaginary parts where they are complex."""
    return f"st.sum(st.real({x} * st.conj({y})))" if like.dtype.kind == "c" else f"st.sum({x} * {y})"


def _product(gradients: Any, tangents: list[Any]) -> Any:
    """The inner product of gradients and tangents, of real and imaginary parts where they are complex."""
    found = gradients if isinstance(gradients, tuple | list) else (gradients,)
    return sum(np.sum((wide(gradient) * np.conj(wide(tangent))).real) for gradient, tangent in zip(found, tangents, strict=True))


def module_of(pieces: list[Piece], text: str) -> str:
    """A module with the text of these pieces."""
    heads = list(dict.fromkeys(head for piece in pieces for head in piece.heads))
    made = "".join(
        f"{name} = st.Variable(np.zeros({array.shape!r}, np.{array.dtype.name}))\n"
        for piece in pieces
        for name, array in piece.variables.items()
    )
    imports = "import numpy as np\n\n\n" if "np." in text or made else ""
    return imports + "".join(heads) + made + text


def with_variables(piece: Piece, module: Any, run: Callable[[], Any]) -> Any:
    """The result of a call, and the values of the module's Variables after it."""
    variables = [module[name] if isinstance(module, dict) else getattr(module, name) for name in piece.variables]
    for variable, array in zip(variables, piece.variables.values(), strict=True):
        variable.value = array.copy()
    result = run()
    return (result, *(variable.numpy() for variable in variables)) if variables else result


def wide(x: Any) -> Any:
    """An array in f64, or c128."""
    return np.asarray(x, dtype=np.complex128 if np.asarray(x).dtype.kind == "c" else np.float64)


def result_of(text: str, arrays: dict[str, Any]) -> Any:
    """The result of NumPy for a definition; raises NotACell where it fails."""
    try:
        with np.errstate(all="ignore"):
            return plain.results(plain.load(text)["piece"], arrays.values())
    except (ValueError, TypeError, IndexError, NotImplementedError, ArithmeticError, MemoryError) as error:
        raise NotACell(str(error)) from error


REFUSED = (StagedError, NotACell)
