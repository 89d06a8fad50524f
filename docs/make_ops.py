"""Write what follows from the declarations in staged/ops and staged/library.

docs/ops.md is their reference, staged/library/__init__.py has their names, and staged/ops/array_methods.pyi has the methods
of arrays for editors and type checkers.

python -m docs.make_ops           rewrite them
python -m docs.make_ops --check   say whether they are up to date
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged import library, ops
from staged.ir.types import ALL_DTYPES, COMPLEX_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, NUMBER_DTYPES, TensorType
from staged.ops.array import METHOD_NAMES, METHODS, PUBLIC, Array
from staged.ops.primitive import PRIMITIVES, Primitive, Sample
from staged.ops.torch_words import METHOD_WORDS

PAGE = Path(__file__).parent / "ops.md"

HEAD = """\
# Array functions

<!-- Written by docs/make_ops.py from the declarations in staged/ops and staged/library: edit those. -->

`st` itself is the namespace, with the names of the Array API and NumPy, and of PyTorch for what networks need. Functions
marked *m* are methods of arrays too: `st.sum(x)` is `x.sum()`. They take arrays, numbers and nested lists. Dtypes promote
as in the Array API, an integer with a float gives the float's dtype, and Python numbers are weak: they take the dtype of
the array they meet. `np.exp(x)` and the like on a staged `x` are the functions here, where there is one.

Arguments have torch's names beside these: `dim` for `axis`, `keepdim` for `keepdims`, `input` for the first, and the like; the
[guide](guide.md#names-of-torch) says where torch means something else. More methods of arrays by torch's names: {words}.

**Dtypes** are those that the operands may have: *floats* are f32 and f64, *integers* i8, i16, i32, i64, u8, u16, u32 and u64,
*numbers* are both, *any* has bool too, *complex* are c64 and c128. Where a function computes in floats, others become
f32 first, and complex numbers stay so; f16 and bf16 become f32 in every function, and its results are rounded to them.

**Gradient** says whether one passes through to the operands. Where none does (a comparison, a position, a draw), asking
for it is an error that says so.
"""

# Modules of staged/ops and staged/library in the order of the page, and what their functions do.
SECTIONS = {
    "elementwise": "Element by element",
    "reduction": "Reductions",
    "shape": "Shapes",
    "source": "Making arrays",
    "index": "Indexing",
    "sorting": "Sorting and quantiles",
    "contraction": "Products",
    "linalg": "Linear algebra",
    "fourier": "Fourier transforms",
    "convolution": "Convolution",
    "pooling": "Pooling",
    "images": "Images at other sizes and places",
    "activations": "Activations, softmax and dropout",
    "normalization": "Normalisation and norms",
    "recurrent": "Recurrent layers",
    "attention": "Attention",
    "losses": "Losses",
    "ctc": "Alignment of sequences",
    "random": "Random numbers",
    "ranks": "Ranks of an MPI program",
}
ELSEWHERE = {"choice": "elementwise", "gradient": "elementwise", "joining": "shape"}
ELSEWHERE |= {"dynamic_slice": "index", "subscript": "index"}
ELSEWHERE |= {"elementary": "elementwise", "statistics": "reduction", "diagonals": "shape", "einsum": "contraction"}
LINEAR_ALGEBRA = ("triangular", "lu", "qr", "spectral", "least_squares", "exponential", "compositions")
ELSEWHERE |= dict.fromkeys(LINEAR_ALGEBRA, "linalg")
ELSEWHERE |= {"cumulative": "reduction", "products": "reduction", "signals": "contraction"}
ELSEWHERE |= {"counting": "index", "scatter_reduce": "index", "embedding": "index", "quantiles": "sorting", "distinct": "sorting"}
ELSEWHERE |= {"complex_numbers": "elementwise", "comparisons": "elementwise"}
ELSEWHERE["positions"] = "attention"
ELSEWHERE["exchange"] = "ranks"
ELSEWHERE |= {"padding": "shape", "patches": "shape", "channels": "activations", "margins": "losses"}
ELSEWHERE |= {"adaptive_pooling": "pooling", "interpolation": "images"}
DTYPE_SETS = {
    word: {dtype.name for dtype in dtypes}
    for word, dtypes in zip(
        ("any", "numbers", "floats", "integers", "complex"),
        (ALL_DTYPES, NUMBER_DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, COMPLEX_DTYPES),
        strict=True,
    )
}
ELSEWHERE |= dict.fromkeys(("gamma_functions", "error_functions", "bessel", "number_theory"), "elementwise")
ELSEWHERE |= {"distributions": "random", "rejection": "random"}

# How to call a function on a 2 x 2 array `x`, where `f(x)` or `f(x, x)` is not a call of it.
_LABELS = np.zeros(2, np.int32)
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "where": lambda f, x: f(np.ones((2, 2), bool), x, x),
    "convolve": lambda f, x: f(x[0], x[1]),
    "correlate": lambda f, x: f(x[0], x[1]),
    "astype": lambda f, x: f(x, x.dtype),
    "broadcast_to": lambda f, x: f(x, (3, 2, 2)),
    "broadcast_arrays": lambda f, x: f(x, x)[0],
    "reshape": lambda f, x: f(x, (4,)),
    "unsqueeze": lambda f, x: f(x, 0),
    "permute_dims": lambda f, x: f(x, (1, 0)),
    "permute": lambda f, x: f(x, (1, 0)),
    "swapaxes": lambda f, x: f(x, 0, 1),
    "moveaxis": lambda f, x: f(x, 0, 1),
    "roll": lambda f, x: f(x, 1),
    "pad": lambda f, x: f(x, 1),
    "concat": lambda f, x: f([x, x]),
    "stack": lambda f, x: f([x, x]),
    "split": lambda f, x: f(x, 2)[0],
    "unstack": lambda f, x: f(x)[0],
    "searchsorted": lambda f, x: f(x[0], x),
    "bucketize": lambda f, x: f(x, x[0]),
    "digitize": lambda f, x: f(x, x[0]),
    "bincount": lambda f, x: f(x[0], length=3),
    "histogram": lambda f, x: f(x)[0],
    "nonzero": lambda f, x: f(x, size=2)[0],
    "flatnonzero": lambda f, x: f(x, size=2),
    "interp": lambda f, x: f(x, x[0], x[0]),
    "index_copy": lambda f, x: f(x, 0, _LABELS, x),
    "index_fill": lambda f, x: f(x, 0, _LABELS, 2),
    "masked_select": lambda f, x: f(x, x == x, size=2),
    "tensor_split": lambda f, x: f(x, 2)[0],
    "addbmm": lambda f, x: f(x, x[None], x[None]),
    "index_select": lambda f, x: f(x, 0, _LABELS),
    "index_add": lambda f, x: f(x, 0, _LABELS, x),
    "embedding_bag": lambda f, x: f(_LABELS[None], x),
    "scatter_reduce": lambda f, x: f(x, 0, np.zeros((2, 2), np.int64), x, "amax"),
    "index_reduce": lambda f, x: f(x, 0, _LABELS, x, "amax"),
    **dict.fromkeys([f"segment_{name}" for name in ("sum", "prod", "max", "min", "mean")], lambda f, x: f(x, _LABELS, 2)),
    "cumulative_sum": lambda f, x: f(x, axis=0),
    "cumulative_prod": lambda f, x: f(x, axis=0),
    "cummax": lambda f, x: f(x)[0],
    "cummin": lambda f, x: f(x)[0],
    "topk": lambda f, x: f(x, 1)[0],
    "kthvalue": lambda f, x: f(x, 1)[0],
    "mode": lambda f, x: f(x)[0],
    **dict.fromkeys(("quantile", "nanquantile", "percentile", "nanpercentile"), lambda f, x: f(x, 0.5)),
    **dict.fromkeys(("unique", "unique_values"), lambda f, x: f(x, size=2)),
    **dict.fromkeys(("unique_counts", "unique_inverse", "unique_all"), lambda f, x: f(x, size=2)[0]),
    "tile": lambda f, x: f(x, (2, 2)),
    "repeat": lambda f, x: f(x, 2),
    "one_hot": lambda f, x: f(x, 3),
    "meshgrid": lambda f, x: f(x[0], x[1])[0],
    "take": lambda f, x: f(x, _LABELS, 0),
    "take_along_axis": lambda f, x: f(x, np.zeros((2, 2), np.int64)),
    "scatter_add": lambda f, x: f(x, _LABELS, x),
    "dynamic_slice": lambda f, x: f(x, 0, 1),
    "dynamic_update_slice": lambda f, x: f(x, x, 0),
    "set_item": lambda f, x: f(x, 0, x[1]),
    "add_item": lambda f, x: f(x, 0, x[1]),
    "is_complex": lambda f, x: st.where(f(x), x, x),
    "outer": lambda f, x: f(x[0], x[1]),
    "tensordot": lambda f, x: f(x, x, 1),
    "conv2d": lambda f, x: f(x[None, None], x[None, None]),
    "conv1d": lambda f, x: f(x[None], x[None]),
    "conv_transpose2d": lambda f, x: f(x[None, None], x[None, None]),
    "max_pool2d": lambda f, x: f(x[None, None], 2),
    "avg_pool2d": lambda f, x: f(x[None, None], 2),
    "adaptive_max_pool2d": lambda f, x: f(x[None, None], 1),
    "adaptive_avg_pool2d": lambda f, x: f(x[None, None], 1),
    "max_pool1d": lambda f, x: f(x[None], 2),
    "avg_pool1d": lambda f, x: f(x[None], 2),
    "batch_norm": lambda f, x: f(x, x[0], x[0]),
    "batch_norm_training": lambda f, x: f(x)[0],
    "group_norm": lambda f, x: f(x[None], 1),
    "instance_norm": lambda f, x: f(x[None]),
    "rnn": lambda f, x: f(x[None], None, x, x)[0],
    "lstm": lambda f, x: f(x[None], None, st.concat([x] * 4), st.concat([x] * 4))[0],
    "gru": lambda f, x: f(x[None], None, st.concat([x] * 3), st.concat([x] * 3))[0],
    "alibi": lambda f, x: f(2, 2, 2, x.dtype),
    "scaled_dot_product_attention": lambda f, x: f(x, x, x),
    "ctc_loss": lambda f, x: f(x, np.ones(1, np.int32), 2, 1),
    "cross_entropy": lambda f, x: f(x, _LABELS),
    "nll_loss": lambda f, x: f(x, _LABELS),
}
CALLS |= {
    "polygamma": lambda f, x: f(1, x),
    "mvlgamma": lambda f, x: f(x, 2),
    "cross": lambda f, x: f(st.stack([x, x, x]), st.stack([x, x, x]), 0),
    "block_diag": lambda f, x: f(x, x),
    "einsum": lambda f, x: f("ij,jk", x, x),
    "mv": lambda f, x: f(x, x[0]),
    "addr": lambda f, x: f(x, x[0], x[1]),
    "threshold": lambda f, x: f(x, 0, 1),
    **dict.fromkeys(("hstack", "vstack", "dstack", "column_stack"), lambda f, x: f([x, x])),
    **dict.fromkeys(("aminmax", "var_mean", "std_mean"), lambda f, x: f(x)[0]),
}
_ONES = np.zeros((1, 1, 1), np.int32)
CALLS |= {
    "pixel_shuffle": lambda f, x: f(st.stack([x] * 4), 2),
    "pixel_unshuffle": lambda f, x: f(x[None], 2),
    "channel_shuffle": lambda f, x: f(x[None], 2),
    "unflatten": lambda f, x: f(x, 0, (2, 1)),
    "unfold": lambda f, x: f(x[None], 2),
    "fold": lambda f, x: f(x, (1, 3), (1, 2)),
    "interpolate": lambda f, x: f(x[None, None], 3),
    "grid_sample": lambda f, x: f(x[None, None], x[None, None]),
    "affine_grid": lambda f, x: f(st.concat([x, x[:, :1]], 1)[None], (1, 1, 2, 2)),
    "local_response_norm": lambda f, x: f(x[None], 2),
    "prelu": lambda f, x: f(x, x[0]),
    "bilinear": lambda f, x: f(x, x, st.stack([x, x])),
    **dict.fromkeys(("dropout1d", "feature_alpha_dropout"), lambda f, x: f(x, training=False)),
    **dict.fromkeys(("dropout2d", "dropout3d"), lambda f, x: f(x[None, None], training=False)),
    "conv_transpose1d": lambda f, x: f(x[None], x[:, None]),
    **dict.fromkeys(("conv3d", "conv_transpose3d"), lambda f, x: f(x[None, None, None], x[None, None, None])),
    **dict.fromkeys(("max_pool3d", "avg_pool3d"), lambda f, x: f(x[None, None], (1, 2, 2))),
    **dict.fromkeys(("adaptive_max_pool1d", "adaptive_avg_pool1d"), lambda f, x: f(x, 1)),
    **dict.fromkeys(("adaptive_max_pool3d", "adaptive_avg_pool3d"), lambda f, x: f(x[None, None], 1)),
    "lp_pool1d": lambda f, x: f(x, 2, 2),
    "lp_pool2d": lambda f, x: f(x[None], 2, 2),
    "lp_pool3d": lambda f, x: f(x[None, None], 2, (1, 2, 2)),
    "fractional_max_pool2d": lambda f, x: f(x[None], 1, 1),
    "fractional_max_pool3d": lambda f, x: f(x[None, None], 1, 1),
    "max_unpool1d": lambda f, x: f(x[:1, :1], _ONES[0], 2),
    "max_unpool2d": lambda f, x: f(x[None, :1, :1], _ONES, 2),
    "max_unpool3d": lambda f, x: f(x[None, None, :1, :1], _ONES[None], 2),
    "hinge_embedding_loss": lambda f, x: f(x, 1),
    "margin_ranking_loss": lambda f, x: f(x, x, 1),
    "cosine_embedding_loss": lambda f, x: f(x, x, np.ones(2)),
    "multi_margin_loss": lambda f, x: f(x, _LABELS),
    "multilabel_margin_loss": lambda f, x: f(x, np.zeros((2, 2), np.int32)),
    "gaussian_nll_loss": lambda f, x: f(x, x, 1.0),
}
# Positive definite and triangular, in any dtype.
CALLS |= {
    **dict.fromkeys(("linalg.cholesky", "linalg.inv", "linalg.det"), lambda f, x: f(st.tril(st.triu(x)))),
    **dict.fromkeys(("linalg.lu", "linalg.slogdet"), lambda f, x: f(st.tril(st.triu(x)))[1]),
    **dict.fromkeys(("linalg.eigh", "linalg.svd", "linalg.qr"), lambda f, x: f(st.tril(st.triu(x)))[1]),
    "linalg.pinv": lambda f, x: f(st.tril(st.triu(x))),
    "linalg.lstsq": lambda f, x: f(st.tril(st.triu(x)), x)[0],
    "linalg.lu_factor": lambda f, x: f(st.tril(st.triu(x)))[0],
    "linalg.solve": lambda f, x: f(st.tril(st.triu(x)), x),
    "linalg.matrix_power": lambda f, x: f(x, 2),
    "linalg.multi_dot": lambda f, x: f([x, x]),
    "linalg.outer": lambda f, x: f(x[0], x[0]),
    "linalg.solve_triangular": lambda f, x: f(x, x, upper=True),
}
# Functions that make an array of sizes and numbers.
MAKERS = {
    "full",
    "zeros",
    "ones",
    "empty",
    "full_like",
    "zeros_like",
    "ones_like",
    "asarray",
    "arange",
    "linspace",
    "logspace",
    "geomspace",
    "eye",
    "fft.fftfreq",
    "fft.rfftfreq",
}


def page() -> str:
    """The text of docs/ops.md."""
    named = sorted(word for word in {**METHOD_WORDS, **METHOD_NAMES} if word not in METHODS)
    parts = [HEAD.replace("{words}", " ".join(f"`{word}`" for word in named))]
    shown = functions()
    for module, title in SECTIONS.items():
        rows = [row_of(name, function) for name, function in shown.items() if module_of(function) == module]
        parts.append(f"## {title}\n\n" + table(("function", "", "what it gives", "dtypes", "gradient"), rows))
    left = {module_of(function) for function in shown.values()} - set(SECTIONS)
    assert not left, f"no section for functions of {sorted(left)}"
    parts.append(
        "## Primitives\n\nWhat the functions are made of, and all that a back end must know.\n\n"
        + table(("op", "kind", "what it gives", "dtypes", "gradient"), [primitive_row(p) for p in PRIMITIVES.values()])
    )
    return "\n".join(parts)


def functions() -> dict[str, Callable[..., Any]]:
    """The public array functions by the name that stands behind `st.`, in order of declaration."""
    order = {function: number for number, function in enumerate(METHODS.values())}
    found = {name: METHODS[name] for name in PUBLIC if "." not in name} | {"stop_gradient": st.stop_gradient}
    found |= {
        name: function for name, function in METHODS.items() if name.startswith(("random.", "linalg.", "special.", "fft."))
    }
    return dict(sorted(found.items(), key=lambda item: (order.get(item[1], len(order)), item[0])))


def home_of(function: Callable[..., Any]) -> str:
    """The module that declares a function, as `exp: Unary = unary(...)` or with `def`."""
    modules = {name: vars(module) for name, module in sys.modules.items() if name.startswith("staged.ops.")}
    for module, names in modules.items():
        if any(names[name] is function for name in names.get("__annotations__", ())):
            return module
    return str(function.__module__)


def module_of(function: Callable[..., Any]) -> str:
    """The last word of the function's module, or the section that this module's functions stand in."""
    module = home_of(function).rpartition(".")[2]
    return ELSEWHERE.get(module, module)


# ---- rows -----------------------------------------------------------------------------------------


def row_of(name: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """One row about a function."""
    method = "*m*" if hasattr(_ARRAY, name) else ""
    return f"`{name}{signature_of(function)}`", method, first_paragraph(function.__doc__), *probed(name, function)


def probed(name: str, function: Callable[..., Any]) -> tuple[str, str]:
    """The dtypes that the function accepts, and whether a gradient passes: found out by calling it."""
    if name in MAKERS:
        return "", ""
    if name.startswith("random."):
        return "", "no"
    parameters = inspect.signature(function).parameters.values()
    required = [p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL]
    call = CALLS.get(name, lambda f, x: f(*[x] * len(required)))
    taken = [dtype.name for dtype in (*ALL_DTYPES, *COMPLEX_DTYPES) if accepts(function, call, dtype)]
    assert taken, f"CALLS needs a way to call {name}"
    try:
        x = np.ones((2, 2), np.float64 if st.f64.name in taken else np.complex128)
        st.grad(lambda x: st.sum(st.real(call(function, x))))(x)
    except st.StagedError:
        return words_for(taken), "no"
    return words_for(taken), "none, on purpose" if name == "stop_gradient" else "yes"


def accepts(function: Callable[..., Any], call: Callable[[Any, Any], Any], dtype: Any) -> bool:
    """Whether the function takes an array of this dtype."""
    try:
        call(function, st.asarray(np.ones((2, 2), dtype.numpy)))
    except st.StagedError:
        return False
    return True


def primitive_row(primitive: Primitive) -> tuple[str, ...]:
    """One row about a primitive."""
    gradient = "yes" if primitive.vjp else f"no: {primitive.why_not_differentiable}"
    return f"`{primitive.name}`", primitive.kind, first_paragraph(primitive.doc), dtypes_of(primitive), gradient


def dtypes_of(primitive: Primitive) -> str:
    """The dtypes that its type rule takes for those operands of its samples that are shapes alone."""
    taken = set()
    for sample in primitive.samples:
        if primitive.kind != "random" and any(isinstance(operand, tuple) for operand in sample.operands):
            taken |= {dtype.name for dtype in ALL_DTYPES if fits(primitive, sample, dtype)}
    return words_for(taken)


def fits(primitive: Primitive, sample: Sample, dtype: Any) -> bool:
    """Whether the type rule takes the sample's shapes with this dtype; ready arrays keep their own."""
    types = []
    for operand in sample.operands:
        if isinstance(operand, tuple):
            types.append(TensorType(dtype, operand))
        else:
            array = np.asarray(operand)
            types.append(TensorType(st.dtype_of(array.dtype), array.shape))
    try:
        primitive.result_types(types, sample.attrs)
    except st.StagedError:
        return False
    return True


# ---- text -----------------------------------------------------------------------------------------


def words_for(names: Iterable[str]) -> str:
    """`floats` for f32 and f64, and so on; what has no word is listed."""
    rest, words = set(names), []
    for word, members in DTYPE_SETS.items():
        if members <= rest:
            words.append(word)
            rest -= members
    return ", ".join([*words, *sorted(rest)])


def signature_of(function: Callable[..., Any]) -> str:
    """The arguments without annotations."""
    signature = inspect.signature(function)
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    assert " at 0x" not in text, f"a default of {function} has no text of its own"
    return text


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring on one line, for a table."""
    return " ".join((text or "").strip().split("\n\n")[0].split()).replace("|", r"\|")


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table in Markdown."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


_ARRAY: Array = st.asarray(1.0)


# ---- names ----------------------------------------------------------------------------------------

NAMES = Path(library.__file__)
STUB = Path(ops.__file__).with_name("array_methods.pyi")
NAMES_HEAD = '''\
"""The library: functions written with the ops of the language. Importing this package declares them all.

`__all__` lists the array functions that `staged` exports: those that `public.public` has entered, in `staged/ops` or
here. `python -m docs.make_ops` writes this file, so that editors and type checkers see them. Functions of `st.random`,
`st.linalg`, `st.fft` and `st.special` are in `array.METHODS` as `random.uniform`, `linalg.cholesky`, `fft.rfft`, ...
"""

'''
DECLARES = "from staged.library.elementwise import complex_functions  # noqa: F401  (declares its functions)\n"


def names() -> str:
    """The text of staged/library/__init__.py, with its imports in ruff's order."""
    for module in sorted(NAMES.parent.glob("*/[!_]*.py")):
        importlib.import_module(f"staged.library.{module.parent.name}.{module.stem}")
    exported = sorted(name for name in PUBLIC if "." not in name)
    taken: dict[str, list[tuple[str, str]]] = {}
    for name in exported:
        module = home_of(METHODS[name])
        held = vars(sys.modules[module])
        taken.setdefault(module, []).append((next(own for own in held if held[own] is METHODS[name]), name))
    parts = []
    for module, pairs in sorted(taken.items()):
        lines = [[f"{own} as {name}"] for own, name in pairs if own != name]
        lines.append(sorted((name for own, name in pairs if own == name), key=in_ruffs_order))
        for line in sorted(filter(None, lines), key=lambda line: in_ruffs_order(line[0])):
            text = f"from {module} import {', '.join(line)}\n"
            if len(text) > 120 or any(" as " in part for part in line):
                text = f"from {module} import (\n" + "".join(f"    {part},\n" for part in line) + ")\n"
            parts.append(text)
    parts.append(DECLARES)
    imports = "".join(sorted(parts, key=lambda text: text.split()[1]))
    return NAMES_HEAD + imports + f"\n__all__ = [\n{lines_of(exported)}\n]  # fmt: skip\n"


def lines_of(listed: list[str]) -> str:
    """The names as strings, in lines of at most 120 columns."""
    text = ", ".join(f'"{name}"' for name in listed)
    return textwrap.fill(text, 120, initial_indent="    ", subsequent_indent="    ")


STUB_HEAD = '''\
"""The methods of arrays, for editors and type checkers. `python -m docs.make_ops` writes this file."""

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

from staged.ir.sizes import Extent
from staged.ops.array import Array
from staged.ops.sorting import Sorted

class ArrayMethods:
    """Methods with the names of NumPy, the Array API and torch."""

    def __bool__(self) -> builtins.bool: ...
    def __complex__(self) -> complex: ...
    def __contains__(self, value: Any) -> builtins.bool: ...
    def __float__(self) -> builtins.float: ...
    def __index__(self) -> builtins.int: ...
    def __int__(self) -> builtins.int: ...
    def __iter__(self) -> Iterator[Array]: ...
    def __round__(self, digits: builtins.int = ...) -> Any: ...
    def __setitem__(self, index: Any, value: Any) -> None: ...
'''


def stub() -> str:
    """The text of staged/ops/array_methods.pyi."""
    names = sorted({*METHOD_NAMES, *METHOD_WORDS}.difference(vars(Array)))
    return STUB_HEAD + "".join(map(method_declaration, names))


def method_declaration(name: str) -> str:
    """A method in the stub, as ruff lays it out: its function with the array as `self`, without values of defaults."""
    signature = inspect.signature(METHODS[METHOD_NAMES[name]] if name in METHOD_NAMES else METHOD_WORDS[name])
    shown = ["self"]
    for each in list(signature.parameters.values())[1:]:
        if each.kind is each.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        default = "" if each.default is each.empty else " = ..."
        shown.append(f"{star}{each.name}: {'Any' if each.annotation is each.empty else each.annotation}{default}")
    returned = "Any" if signature.return_annotation is signature.empty else signature.return_annotation
    # Methods called `int`, `float` and `bool` hide the types of Python in the class.
    listed, returned = (re.sub(r"\b(int|float|bool)\b", r"builtins.\1", text) for text in (", ".join(shown), returned))
    listed = re.sub(r"\bOption\b", "Any", listed)
    line = f"    def {name}({listed}) -> {returned}: ...\n"
    return line if len(line) <= 121 else f"    def {name}(\n        {listed}\n    ) -> {returned}: ...\n"


def in_ruffs_order(name: str) -> list[str | int]:
    """The key by which ruff sorts imported names: numbers in them by their size."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def main() -> None:
    """The command line."""
    written = {PAGE: page(), NAMES: names(), STUB: stub()}
    stale = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    if "--check" in sys.argv[1:]:
        sys.exit(f"{stale[0]} is out of date: python -m docs.make_ops" if stale else 0)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
