"""Running a program's text in NumPy: the namespace `st`, and Python's item assignment made a new value.

Arrays are values in the language: `x[i] = v` binds `x` anew. The text is rewritten so before Python runs it.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

import tests.rows  # noqa: F401  (enters the readings)
from tests.fuzz.plain import chance
from tests.fuzz.plain.core import FUNCTIONS, HALVES, Plain, Precision, Variable, bare, plain, strong

MISSING = frozenset({"grad", "value_and_grad", "jvp", "vjp", "hessian", "jacfwd", "jacrev"})
"""Functions that have no reading: derivatives have their own oracles."""


def _range(*bounds: Any) -> Iterator[Plain]:
    for index in builtins.range(*(int(bare(bound)) for bound in bounds)):
        yield Plain(np.asarray(index), weak=True)


def _vmap(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple | list) else (in_axes,) * len(args)
        count = next(plain(x).shape[axis] for x, axis in zip(args, axes, strict=True) if axis is not None)
        rows = [
            function(
                *(
                    x if axis is None else Plain(np.take(plain(x).a, k, axis))
                    for x, axis in zip(args, axes, strict=True)
                )
            )
            for k in builtins.range(count)
        ]
        return _stacked(rows, out_axes)

    return mapped


def _stacked(rows: list[Any], axis: int) -> Any:
    if isinstance(rows[0], tuple | list):
        return type(rows[0])(_stacked(list(part), axis) for part in zip(*rows, strict=True))
    return Plain(np.stack([strong(plain(row)).a for row in rows], axis))


def _set(container: Any, key: Any, value: Any) -> Any:
    """The contents of `container` after `container[key] = value`."""
    if isinstance(container, dict | list):
        container[bare(key) if isinstance(key, Plain) else key] = value
        return container
    return FUNCTIONS["set_item"](container, key, value)


class _Values(ast.NodeTransformer):
    """`x[k] = v` becomes `x = _set(x, k, v)`, and `x[k] += v` becomes `x = _set(x, k, x[k] + v)`."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        (target, *others) = node.targets
        if others or not isinstance(target, ast.Subscript):
            return node
        return self._write(target, node.value, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        if not isinstance(node.target, ast.Subscript):
            return node
        # Loading what is stored: the same place, read.
        read = ast.Subscript(_loaded(node.target.value), node.target.slice, ast.Load())
        return self._write(node.target, ast.BinOp(read, node.op, node.value), node)

    def _write(self, target: ast.Subscript, value: ast.expr, node: ast.stmt) -> ast.stmt:
        key = (
            ast.Call(ast.Name("_key", ast.Load()), [target.slice], [])
            if isinstance(target.slice, ast.Slice)
            else target.slice
        )
        if isinstance(target.slice, ast.Slice):
            parts = [part or ast.Constant(None) for part in (target.slice.lower, target.slice.upper, target.slice.step)]
            key = ast.Call(ast.Name("slice", ast.Load()), parts, [])
        elif isinstance(target.slice, ast.Tuple):
            key = ast.Tuple([self._part(part) for part in target.slice.elts], ast.Load())
        call = ast.Call(ast.Name("_set", ast.Load()), [_loaded(target.value), key, value], [])
        stored = _stored(target.value)
        return ast.copy_location(ast.Assign([stored], call), node)

    def _part(self, part: ast.expr) -> ast.expr:
        if not isinstance(part, ast.Slice):
            return part
        bounds = [bound or ast.Constant(None) for bound in (part.lower, part.upper, part.step)]
        return ast.Call(ast.Name("slice", ast.Load()), bounds, [])


def _loaded(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


def _stored(node: ast.expr) -> ast.expr:
    target = ast.parse(f"{ast.unparse(node)} = 0").body[0]
    assert isinstance(target, ast.Assign)
    return target.targets[0]


def _extreme(name: str) -> Callable[..., Any]:
    usual = getattr(builtins, name)

    def found(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) < 2 or not any(isinstance(arg, Plain) for arg in args):
            return usual(*args, **kwargs)
        result = args[0]
        for other in args[1:]:
            result = FUNCTIONS["minimum" if name == "min" else "maximum"](result, other)
        return result

    return found


@cache
def _modules() -> dict[str, SimpleNamespace]:
    """The readings by the module of `st` that has the function: `linalg`, `nn.init`; '' is `st` itself."""
    modules: dict[str, dict[str, Any]] = {}
    for name, reading in FUNCTIONS.items():
        module, _, last = name.rpartition(".")
        is_drawn = module == "random" or name == "dropout"
        modules.setdefault(module, {})[last] = chance.from_generator(reading) if is_drawn else reading
    modules["random"]["Generator"] = chance.Generator
    modules["nn"]["init"] = SimpleNamespace(**modules.pop("nn.init"))
    return {module: SimpleNamespace(**readings) for module, readings in modules.items()}


def namespace() -> SimpleNamespace:
    """The stand-in for `st` in a program that NumPy runs."""
    modules = dict(_modules())
    return SimpleNamespace(
        **vars(modules.pop("")),
        **modules,
        f16=HALVES[0],
        bf16=HALVES[1],
        c64=np.dtype(np.complex64),
        c128=np.dtype(np.complex128),
        f32=np.dtype(np.float32),
        f64=np.dtype(np.float64),
        i32=np.dtype(np.int32),
        i64=np.dtype(np.int64),
        i8=np.dtype(np.int8),
        i16=np.dtype(np.int16),
        u8=np.dtype(np.uint8),
        u16=np.dtype(np.uint16),
        u64=np.dtype(np.uint64),
        u32=np.dtype(np.uint32),
        bool_=np.dtype(np.bool_),
        range=_range,
        Variable=Variable,
        seed=chance.seed,
        checkpoint=lambda function: function,
        vmap=_vmap,
        function=lambda function: function,
        dim=lambda name, value, max=None: int(bare(value)),
        GPU="gpu",
        with_backend=lambda *args: contextlib.nullcontext(),
    )


def load(text: str) -> dict[str, Any]:
    """The names that a program's text binds, with `st` read in NumPy."""
    tree = ast.fix_missing_locations(_Values().visit(ast.parse(text)))
    names: dict[str, Any] = {
        "st": namespace(),
        "np": np,
        "_set": _set,
        "min": _extreme("min"),
        "max": _extreme("max"),
        "__name__": __name__,
    }
    exec(compile(tree, "plain", "exec"), names)
    return names


def results(function: Callable[..., Any], arrays: Iterable[Any]) -> Any:
    """The results of a reading for these arrays, as arrays.

    Halves are read in f32, with f64 in the place of f32, and what comes of them is rounded once, at the end.
    """
    given = list(arrays)
    half = next((array.dtype for array in given if array.dtype in HALVES), None)
    if half is None:
        return arrays_of(function(*map(Plain, given)))
    before = Precision.single, Precision.is_wide, Precision.half
    Precision.single, Precision.is_wide, Precision.half = np.dtype(np.float64), True, half
    back = {"float32": half, "float64": np.dtype(np.float32), "complex128": np.dtype(np.complex64)}
    try:
        found = function(*(Plain(array.astype(np.float32) if array.dtype == half else array) for array in given))
        return arrays_of(found, lambda array: array.astype(back.get(array.dtype.name, array.dtype)))
    finally:
        Precision.single, Precision.is_wide, Precision.half = before


def arrays_of(tree: Any, change: Callable[[Any], Any] = np.asarray) -> Any:
    """A tree of `Plain`s as arrays."""
    if isinstance(tree, dict):
        return {key: arrays_of(value, change) for key, value in tree.items()}
    if isinstance(tree, tuple | list):
        several = [arrays_of(item, change) for item in tree]
        return type(tree)(several) if type(tree) in (tuple, list) else type(tree)(*several)
    return change(np.asarray(tree.a if isinstance(tree, Plain) else tree))


@contextlib.contextmanager
def wide(is_single: bool = True) -> Iterator[None]:
    """Inside, f32 is computed in f64: for differences. `is_single`: the program is one of f32."""
    before = Precision.single, Precision.is_wide
    Precision.single, Precision.is_wide = np.dtype(np.float64), is_single
    try:
        yield
    finally:
        Precision.single, Precision.is_wide = before


@contextlib.contextmanager
def noting_equalities() -> Iterator[list[Any]]:
    """Inside, what each `==` and `!=` of floats comes to is put into the list."""
    Precision.equalities = found = []
    try:
        yield found
    finally:
        Precision.equalities = None
