"""Writes docs/accuracy.md: how far sums, means, norms, products and convolutions are from the exact answer.

python -m docs.make_accuracy           measure this library, NumPy and PyTorch; rewrite the page and docs/accuracy.json
python -m docs.make_accuracy --only columns

docs/accuracy.json keeps PyTorch's errors, so that tests/ops/test_accuracy.py does not need it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import staged as st

PAGE = Path(__file__).parent / "accuracy.md"
RECORD = Path(__file__).parent / "accuracy.json"
TRIALS = 12
"""Arrays that are drawn where there are few results."""
ENOUGH = 64
"""Results from which on one array will do."""

KINDS = {
    "ones": "all ones",
    "normal": "standard normal",
    "uniform": "uniform in [0, 1)",
    "cancelling": "standard normal numbers and their negatives, in any order: the sum is 0",
    "large": "uniform in [0, 1), and one 1e8",
}
SUMS = tuple(KINDS)
RANDOM = ("normal", "uniform")

Arrays = Sequence[Any]


@dataclass(frozen=True)
class Case:
    """One function and the sizes that it is measured at.

    `axis`: of the first array, along which it is summed (None: over all of it). `exact` is computed in f64, or what is wider.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    exact: Callable[..., Any]
    numpy: Callable[..., Any] | None = None
    kinds: tuple[str, ...] = RANDOM
    axis: int | None = None
    dtype: str = "f32"
    linear: bool = True
    """In each operand: then an error is measured against the result of the operands' magnitudes."""
    slow: bool = False
    library: bool = False
    """In a region a call of cuBLAS or cuDNN."""

    @property
    def size(self) -> str:
        return " and ".join("x".join(map(str, shape)) for shape in self.shapes)

    @property
    def label(self) -> str:
        return f"{self.name} {self.size} {self.dtype}"


def drawn(case: Case, kind: str, trial: int) -> list[np.ndarray[Any, Any]]:
    """The arrays of one trial."""
    rng = np.random.default_rng([trial, *map(ord, case.label + kind)])
    dtype = {"f32": np.float32, "f64": np.float64}[case.dtype]
    arrays = []
    for number, shape in enumerate(case.shapes):
        if kind == "ones":
            x = np.ones(shape)
        elif kind == "normal" or number and kind == "cancelling":
            x = rng.standard_normal(shape)
        elif kind == "cancelling":
            x = rng.standard_normal(shape).astype(dtype)
            flat = x.reshape(-1) if case.axis is None else np.moveaxis(x, case.axis, 0)
            half = len(flat) // 2
            flat[half : 2 * half] = -flat[:half]
            flat[2 * half :] = 0
            rng.shuffle(flat, axis=0)
        else:
            x = rng.random(shape)
            if kind == "large" and number == 0:
                flat = x.reshape(-1) if case.axis is None else np.moveaxis(x, case.axis, 0)
                flat[int(rng.integers(len(flat)))] = 1e8
        arrays.append(x.astype(dtype))
    return arrays


def trials_of(results: int) -> int:
    """Arrays to draw, so that an error is the mean of many."""
    return 1 if results >= ENOUGH else min(TRIALS, -(-ENOUGH // results))


@dataclass
class Exact:
    """The exact values for the arrays of each trial, which errors are measured against."""

    arrays: list[list[np.ndarray[Any, Any]]]
    values: list[np.ndarray[Any, Any]]
    scale: float

    @staticmethod
    def of(case: Case, kind: str) -> Exact:
        wide = np.float64 if case.dtype == "f32" else np.longdouble
        first = drawn(case, kind, 0)
        value = np.asarray(case.exact(*(x.astype(wide) for x in first)))
        arrays, values = [first], [value]
        if kind != "ones":
            for trial in range(1, trials_of(value.size)):
                arrays.append(drawn(case, kind, trial))
                values.append(np.asarray(case.exact(*(x.astype(wide) for x in arrays[-1]))))
        magnitudes = (
            [np.asarray(case.exact(*(abs(x.astype(wide)) for x in each))) for each in arrays[:1]]
            if case.linear
            else values
        )
        return Exact(arrays, values, root_mean_square(magnitudes))

    def error(self, case: Case, results: Sequence[Any]) -> float:
        """The root mean square of errors, in roundings (a half of the distance between two numbers near 1) of the scale."""
        wide = self.values[0].dtype
        rounding = float(np.finfo({"f32": np.float32, "f64": np.float64}[case.dtype]).eps) / 2
        wrong = [np.asarray(got).astype(wide) - value for got, value in zip(results, self.values, strict=True)]
        return root_mean_square(wrong) / (self.scale * rounding)

    def floor(self, case: Case) -> float:
        """The error of a result that is exact but for its own, last rounding."""
        return root_mean_square(self.values) / self.scale


def root_mean_square(values: Sequence[Any]) -> float:
    squares = [np.mean(np.square(np.asarray(x, np.longdouble))) for x in values]
    return float(np.sqrt(np.mean(squares)))


# ---- the cases ----------------------------------------------------------------------------------


def _logsumexp(x: Any) -> Any:
    top = x.max(axis=1, keepdims=True)
    return np.log(np.exp(x - top).sum(axis=1)) + top[:, 0]


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _normalized(x: Any, axes: Any) -> Any:
    return (x - x.mean(axis=axes, keepdims=True)) / np.sqrt(x.var(axis=axes, keepdims=True) + 1e-5)


def _conv(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w, optimize=True)


def _conv_weight(x: Any, d_y: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, d_y.shape[2:], axis=(2, 3))
    return np.einsum("ncijhw,nohw->ocij", windows, d_y, optimize=True)


def _conv_image(d_y: Any, w: Any) -> Any:
    padded = np.pad(d_y, ((0, 0), (0, 0), (w.shape[2] - 1,) * 2, (w.shape[3] - 1,) * 2))
    return _conv(padded, np.flip(w, (2, 3)).swapaxes(0, 1))


def _torch_gradient(f: Callable[..., Any], number: int = 0) -> Callable[..., Any]:
    """The gradient of a sum of torch's: of f(torch, arrays...) by one of them."""

    def gradient(torch: ModuleType, *arrays: Any) -> Any:
        arrays = tuple(a.clone().requires_grad_(n == number) for n, a in enumerate(arrays))
        f(torch, *arrays).backward()
        return arrays[number].grad

    return gradient


def _layer_norm_gradient(x: Any, w: Any, d_y: Any) -> Any:
    return (_normalized(x, -1) * d_y).sum(axis=0)


def _batch_norm_gradient(x: Any, w: Any, d_y: Any) -> Any:
    return (_normalized(x, (0, 2, 3)) * d_y).sum(axis=(0, 2, 3))


def _batch_norm(x: Any, w: Any) -> Any:
    mean, variance = st.mean(x, axis=(0, 2, 3), keepdims=True), st.var(x, axis=(0, 2, 3), keepdims=True)
    return (x - mean) * st.rsqrt(variance + 1e-5) * st.reshape(w, (1, -1, 1, 1))


def _sum_of(name: str, shape: tuple[int, ...], axis: Any, **more: Any) -> Case:
    return Case(
        name,
        (shape,),
        lambda x: st.sum(x, axis=axis),
        lambda torch, x: torch.sum(x) if axis is None else torch.sum(x, axis),
        lambda x: np.sum(x, axis=axis),
        lambda x: np.sum(x, axis=axis),
        **{"kinds": SUMS, "axis": axis, **more},
    )


def _mean_of(shape: tuple[int, ...], axis: int) -> Case:
    return Case(
        "mean",
        (shape,),
        lambda x: st.mean(x, axis=axis),
        lambda torch, x: torch.mean(x, axis),
        lambda x: np.mean(x, axis=axis),
        lambda x: np.mean(x, axis=axis),
    )


def _variance_of(shape: tuple[int, ...], axis: int) -> Case:
    return Case(
        "variance",
        (shape,),
        lambda x: st.var(x, axis=axis),
        lambda torch, x: torch.var(x, axis, correction=0),
        lambda x: np.var(x, axis=axis),
        lambda x: np.var(x, axis=axis),
        linear=False,
    )


def _norm_of(order: int) -> Case:
    return Case(
        f"norm of order {order}",
        ((1 << 18,),),
        lambda x: st.norm(x, ord=order),
        lambda torch, x: torch.linalg.vector_norm(x, order),
        lambda x: np.sum(np.abs(x) ** order) ** (1 / order),
        lambda x: np.linalg.vector_norm(x, ord=order),
        linear=False,
    )


def _sums() -> list[Case]:
    large = [
        _sum_of("sum", (1 << 26,), None, kinds=("ones", "uniform"), slow=True),
        _sum_of("sum of columns", (1 << 25, 2), 0, kinds=("ones", "uniform"), slow=True),
        _sum_of("sum", (1000003,), None, slow=True),
        _sum_of("sum of columns", (1 << 20, 2), 0, slow=True),
        _sum_of("sum", (1000003,), None, kinds=RANDOM, dtype="f64", slow=True),
    ]
    rows = ((16, 50257),)
    return [
        _sum_of("sum", (100003,), None),
        _sum_of("sum", (1024, 1024), None),
        *large,
        _sum_of("sum of rows", (64, 50257), 1),
        _sum_of("sum of rows", (256, 1000), 1),
        _sum_of("sum of columns", (65536, 64), 0),
        _sum_of("sum of columns", (1000, 256), 0),
        _sum_of("sum of columns", (100, 7), 0),
        _sum_of("sum of a middle axis", (8, 5000, 16), 1),
        _sum_of("sum of channels", (16, 8, 28, 28), (0, 2, 3), kinds=RANDOM),
        _sum_of("sum of columns", (65536, 16), 0, kinds=RANDOM, dtype="f64"),
        _mean_of((65536, 64), 0),
        _mean_of((64, 50257), 1),
        _variance_of((65536, 64), 0),
        _variance_of((64, 50257), 1),
        *map(_norm_of, (1, 2, 3)),
        Case(
            "logsumexp",
            rows,
            lambda x: st.logsumexp(x, axis=1),
            lambda t, x: t.logsumexp(x, 1),
            _logsumexp,
            linear=False,
        ),
        Case(
            "softmax of columns",
            ((4000, 16),),
            lambda x: st.softmax(x, axis=0),
            lambda t, x: t.softmax(x, 0),
            lambda x: _softmax(x.T).T,
            linear=False,
        ),
        Case("softmax", rows, lambda x: st.softmax(x, axis=1), lambda t, x: t.softmax(x, 1), _softmax, linear=False),
    ]


def _layers() -> list[Case]:
    return [
        Case(
            "layer norm",
            ((64, 4096),),
            lambda x: st.layer_norm(x, (4096,)),
            lambda t, x: t.nn.functional.layer_norm(x, (4096,)),
            lambda x: _normalized(x, -1),
            linear=False,
        ),
        Case(
            "layer norm, gradient of the scale",
            ((16384, 128), (128,), (16384, 128)),
            lambda x, w, d_y: st.grad(lambda w: st.sum(st.layer_norm(x, (128,), w) * d_y))(w),
            _torch_gradient(lambda t, x, w, d_y: (t.nn.functional.layer_norm(x, (128,), w) * d_y).sum(), 1),
            _layer_norm_gradient,
            linear=False,
        ),
        Case(
            "batch norm, gradient of the scale",
            ((16, 8, 28, 28), (8,), (16, 8, 28, 28)),
            lambda x, w, d_y: st.grad(lambda w: st.sum(_batch_norm(x, w) * d_y))(w),
            _torch_gradient(
                lambda t, x, w, d_y: (t.nn.functional.batch_norm(x, None, None, w, training=True) * d_y).sum(), 1
            ),
            _batch_norm_gradient,
            kinds=("normal",),
            linear=False,
        ),
        Case(
            "gradient of a bias",
            ((16384, 64), (64,), (16384, 64)),
            lambda x, b, d_y: st.grad(lambda b: st.sum((x + b) * d_y))(b),
            _torch_gradient(lambda t, x, b, d_y: ((x + b) * d_y).sum(), 1),
            lambda x, b, d_y: d_y.sum(axis=0),
        ),
    ]


def _product(left: tuple[int, ...], right: tuple[int, ...], dtype: str = "f32") -> Case:
    return Case("product", (left, right), _times, _torch_times, _times, _times, dtype=dtype, library=True)


def _times(a: Any, b: Any) -> Any:
    return a @ b


def _torch_times(torch: ModuleType, a: Any, b: Any) -> Any:
    return a @ b


def _products() -> list[Case]:
    sizes = [
        (64, 512, 64),
        (64, 768, 64),
        (64, 1000, 48),
        (64, 4096, 64),
        (50, 16384, 40),
        (1, 8192, 256),
        (256, 8192, 1),
    ]
    return [
        *(_product((m, k), (k, n)) for m, k, n in sizes),
        _product((1, 1 << 18), (1 << 18, 1)),
        _product((4, 32, 4096), (4, 4096, 32)),
        _product((64, 4096), (4096, 64), "f64"),
        Case(
            "product, left transposed",
            ((4096, 64), (4096, 64)),
            lambda a, b: a.T @ b,
            lambda t, a, b: a.T @ b,
            lambda a, b: a.T @ b,
            lambda a, b: a.T @ b,
            library=True,
        ),
        Case(
            "product, right transposed",
            ((64, 4096), (64, 4096)),
            lambda a, b: a @ b.T,
            lambda t, a, b: a @ b.T,
            lambda a, b: a @ b.T,
            lambda a, b: a @ b.T,
            library=True,
        ),
        Case(
            "convolution",
            ((1, 256, 14, 14), (32, 256, 3, 3)),
            lambda x, w: st.conv2d(x, w),
            lambda t, x, w: t.nn.functional.conv2d(x, w),
            _conv,
            library=True,
        ),
        Case(
            "convolution, gradient of the weight",
            ((16, 8, 58, 58), (16, 8, 56, 56)),
            lambda x, d_y: st.grad(lambda w: st.sum(st.conv2d(x, w) * d_y))(st.zeros((8, 8, 3, 3))),
            lambda t, x, d_y: t.nn.grad.conv2d_weight(x, (8, 8, 3, 3), d_y),
            _conv_weight,
            library=True,
        ),
        Case(
            "convolution, gradient of the image",
            ((1, 256, 14, 14), (256, 32, 3, 3)),
            lambda d_y, w: st.grad(lambda x: st.sum(st.conv2d(x, w) * d_y))(st.zeros((1, 32, 16, 16))),
            lambda t, d_y, w: t.nn.grad.conv2d_input((1, 32, 16, 16), w, d_y),
            _conv_image,
            library=True,
        ),
    ]


CASES: tuple[Case, ...] = (*_sums(), *_layers(), *_products())


# ---- measuring ----------------------------------------------------------------------------------


def torch_of(case: Case, torch: ModuleType) -> Callable[..., Any]:
    """The case as a function of NumPy arrays that torch computes."""

    def run(*arrays: np.ndarray[Any, Any]) -> Any:
        return case.torch(torch, *map(torch.from_numpy, arrays)).numpy()

    return run


def in_region(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function in a region of the GPU."""

    def run(*arrays: Any) -> Any:
        with st.with_backend(st.GPU, *arrays):
            return function(*arrays)

    return run


def measured(case: Case, exact: Exact, run: Callable[..., Any]) -> float:
    return exact.error(case, [run(*arrays) for arrays in exact.arrays])


def allowed(torch: float, floor: float) -> float:
    """The error that is: twice torch's, and never less than the rounding of a result to its dtype."""
    return max(2 * torch, floor)


Errors = dict[str, dict[str, dict[str, float | None]]]
"""By case, kind of data, and library."""


def measure(cases: Sequence[Case], torch: ModuleType) -> Errors:
    """The errors of all libraries."""
    found: Errors = {}
    for case in cases:
        ours, there = st.function(case.ours), st.function(in_region(case.ours))
        for kind in case.kinds:
            exact = Exact.of(case, kind)
            row = found.setdefault(case.label, {}).setdefault(kind, {})
            row["staged"] = measured(case, exact, ours)
            row["region"] = None if case.library else measured(case, exact, there)
            row["torch"] = measured(case, exact, torch_of(case, torch))
            row["numpy"] = None if case.numpy is None else measured(case, exact, case.numpy)
            row["floor"] = exact.floor(case)
            worst = max(row["staged"], row["region"] or 0)
            mark = "" if worst <= allowed(row["torch"], row["floor"]) else "  <- more than twice torch's"
            print(f"{case.label:60} {kind:10} {' '.join(map(shown, row.values()))}{mark}", flush=True)
    return found


def shown(error: float | None) -> str:
    return "" if error is None else "0" if error == 0 else f"{error:.2g}" if error < 100 else f"{error:.0f}"


def page(errors: Errors, versions: Mapping[str, str]) -> str:
    """The text of docs/accuracy.md."""
    kinds = "\n".join(f"- *{kind}*: {words}" for kind, words in KINDS.items())
    lines = []
    for case in CASES:
        for kind, row in errors.get(case.label, {}).items():
            cells = [
                case.name,
                case.size,
                case.dtype,
                kind,
                *(shown(row[name]) for name in ("staged", "region", "torch", "numpy")),
            ]
            lines.append("| " + " | ".join(cells) + " |")
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    return HEAD.format(kinds=kinds, names=names) + "\n".join(lines) + "\n"


HEAD = """\
# How exact sums are

<!-- Written by docs/make_accuracy.py: edit that. -->

A sum of n numbers in one f32 total may lose n roundings: 33 million ones come to 16777216. Here no total takes in more than a
few dozen numbers before it is passed on.

| what | how it is added up |
|---|---|
| sums of f32, means, variances, norms, denominators of softmax, gradients of biases | f32 totals of short pieces, then one f64 total |
| the same in f64 | totals of pieces, totals of so many totals, and so on: at most five levels |
| products and convolutions | chains of at most 384 products in registers, added up in f32 or f64 |
| on a GPU: sums that many threads share | f32 totals of 16 numbers, an f64 one of each thread's, then halves to halves |
| on a GPU: products and convolutions | as cuBLAS and cuDNN do |
| `total += loss` in a loop of the program, `scatter_add` | in the order of the program, one by one |
| `cumsum`, `cumprod`, `logcumsumexp`, and the derivatives of these | one by one, in f64 for f32 and f64 |

The pieces follow from sizes and the width of the machine's vectors: the bits are the same for any number of threads.

The table has root mean squares of errors, in *roundings*: halves of the distance between two neighbouring numbers, relative to the
result (of what is linear, to the result of the operands' magnitudes). A right answer that is rounded once has about 0.4 where all
numbers are positive. `tests/ops/test_accuracy.py` holds every row: no error is more than twice torch's, or one rounding where
torch's is less than half of one.

Matmuls, convolutions and reductions compute `a * b + c` in one instruction, which rounds once (a fused multiply-add).
All other arithmetic (`+`, `-`, `*`, `/`, `sqrt`) rounds each operation, so a program has the bits of eager mode, and
`x * y - y * x` is 0. `@st.function(contract=True)` lets compilers use the instruction everywhere. Then loops that are
bound by arithmetic are up to 10 % faster, and such identities need not hold. `STAGED_CONTRACT=1` changes the
default. Exported programs and regions on a GPU follow the same choice.

{kinds}

On x86-64-v4, one thread, and in a region on the emulated device; {names}, both on the CPU.

| function | size | dtype | data | staged | in a region | torch | NumPy |
|---|---|---|---|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="measure the cases with this in their names, and write nothing")
    given = parser.parse_args()
    import torch

    os.environ.setdefault("STAGED_CUDA", "emulate")
    torch.set_num_threads(1)
    errors = measure([case for case in CASES if given.only in case.label], torch)
    if given.only:
        return
    versions = {"torch": torch.__version__.partition("+")[0], "NumPy": np.__version__}
    PAGE.write_text(page(errors, versions), encoding="utf-8")
    recorded = {
        label: {kind: {name: row[name] for name in ("torch", "floor")} for kind, row in kinds.items()}
        for label, kinds in errors.items()
    }
    text = json.dumps({"versions": versions, "errors": recorded}, indent=1, default=float)
    RECORD.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
