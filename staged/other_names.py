"""Names that NumPy, torch, JAX or SciPy have and `staged` spells otherwise, or has not: what an unknown name is answered with."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_NOT_YET = "there is no {name} here yet; "
_BEFORE = "compute it in Python before the call, or write a loop"

EQUIVALENTS: dict[str, str] = {
    # ---- another name ----
    **{
        theirs: f"use `st.{ours}`"
        for theirs, ours in {
            "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arcsin": "asin", "arctan": "atan",
            "arctan2": "atan2", "array": "asarray", "as_tensor": "asarray", "tensor": "asarray", "cat": "concat",
            "concatenate": "concat", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint8": "u8",
            "uint32": "u32", "float": "f32", "double": "f64", "long": "i64", "gather": "take_along_axis",
            "take_along_dim": "take_along_axis", "index_select": "take", "power": "pow", "mul": "multiply", "mm": "matmul",
            "bmm": "matmul", "mv": "matmul", "swish": "silu", "device_put": "to", "Parameter": "Variable",
        }.items()
    },
    "no_grad": "nothing is differentiated outside of `st.grad(f)`; inside it `st.stop_gradient(x)` is a constant",
    "detach": "use `st.stop_gradient(x)`",
    "scan": "write a loop, `for i in st.range(n):`, and collect in an array or `st.Stack`",
    "fori_loop": "write a loop: `for i in st.range(n):`",
    "lax": "write `for`, `while` and `if`: they become the program's",
    "while_loop": "write a `while` loop",
    "cond": "write an `if`, or `st.where(condition, a, b)` for elements",
    "switch": "write `if` and `elif`",
    "jit": "decorate the function with `@st.function`",
    "compile": "decorate the function with `@st.function`",
    "tree_map": "write a loop over the tree: lists, dicts and dataclasses are values",
    "pmap": "a program has the devices of its regions: see docs/regions.md",
    "pi": "use `math.pi`",
    "e": "use `math.e`",
    "inf": "use `math.inf`, or `float('inf')`",
    "nan": "use `math.nan`, or `float('nan')`",
    "newaxis": "use `None` in the index: `x[:, None]`",
    "allclose": "write `st.all(st.abs(a - b) <= atol + rtol * st.abs(b))`; in plain Python `np.allclose(a, b)`",
    "isclose": "write `st.abs(a - b) <= atol + rtol * st.abs(b)`",
    "array_equal": "write `st.all(a == b)`",
    "einsum": "write the products with `@`, `st.tensordot`, `st.permute_dims` and `st.sum`",
    "arcsinh": "write `st.log(x + st.sqrt(x * x + 1.0))`; `math.asinh` takes numbers",
    "arccosh": "write `st.log(x + st.sqrt(x * x - 1.0))`; `math.acosh` takes numbers",
    "arctanh": "write `0.5 * st.log((1.0 + x) / (1.0 - x))`; `math.atanh` takes numbers",
    "asinh": "write `st.log(x + st.sqrt(x * x + 1.0))`; `math.asinh` takes numbers",
    "acosh": "write `st.log(x + st.sqrt(x * x - 1.0))`; `math.acosh` takes numbers",
    "atanh": "write `0.5 * st.log((1.0 + x) / (1.0 - x))`; `math.atanh` takes numbers",
    "inner": "use `st.vecdot`, or `a @ b`",
    "diag": "write `x * st.eye(n)`, or `x[st.arange(n), st.arange(n)]`",
    "diagonal": "write `x[st.arange(n), st.arange(n)]`",
    "trace": "write `st.sum(x[st.arange(n), st.arange(n)])`",
    "nonzero": "the size of its result is known only when the program runs: `st.where(mask, x, 0.0)`, or a loop with `st.Stack`",
    "masked_select": "the size of its result is known only when the program runs: `st.where(mask, x, 0.0)`",
    "masked_fill": "write `st.where(mask, value, x)`",
    "scatter": "write `x[i] = v`",
    "index_put": "write `x[i] = v`",
    "index_add": "write `x[i] += v`, or `st.scatter_add(x, i, v)`",
    "size": "use `x.size` or `x.shape`",
    "numel": "use `x.size`",
    "view": "use `st.reshape`",
    "item": "use `float(x)` in plain Python; inside a staged function a scalar is a number",
    "load": "read the file in Python and pass the arrays as arguments",
    "save": "return the arrays and save them in Python: `np.savez(...)`",
    "rand": "use `st.random.uniform(shape)`",
    "randn": "use `st.random.normal(shape)`",
    "randint": "use `st.random.integers(low, high, shape)`",
    "randperm": "use `st.random.permutation(n)`",
    "manual_seed": "use `st.seed(n)`",
    "set_printoptions": "give the format where you print: `f\"{x:.3f}\"`",
    "cuda_is_available": "use `st.cuda`: see docs/regions.md",
    "device": "use `st.CPU` and `st.GPU`: see docs/regions.md",
    # ---- not here yet ----
    **dict.fromkeys(
        "sort argsort topk unique searchsorted median quantile percentile histogram bincount partition argpartition kthvalue "
        "lexsort interp digitize".split(),
        _NOT_YET + _BEFORE,
    ),
    **dict.fromkeys(
        "inv solve cholesky det slogdet eig eigh eigvals eigvalsh svd qr lstsq pinv matrix_power matrix_rank lu "
        "triangular_solve".split(),
        _NOT_YET + "write it with loops (they are compiled and differentiated), or " + _BEFORE.split(", or")[0],
    ),
    **dict.fromkeys(
        "cumsum cumprod cummax cummin diff convolve correlate fft ifft rfft irfft kron lgamma digamma erfinv hypot logaddexp "
        "multinomial categorical choice nanmean nansum nanmax nanmin".split(),
        _NOT_YET + "write it with the functions there are, and a loop where one is needed",
    ),
    **dict.fromkeys("complex64 complex128 real imag conj angle".split(), "there are no complex numbers here: carry two arrays"),
    **dict.fromkeys(
        "float16 f16 half bfloat16 bf16 int8 i8 int16 i16 uint16 u16 uint64 u64".split(),
        "there is no {name} here: arrays are f32, f64, i32, i64, u8, u32 or bool; cast with NumPy before the call, "
        "`x.astype(np.float32)`",
    ),
}
"""By the name that was asked for: what to write instead."""


def answer_to(name: str, public: Iterable[str]) -> str:
    """What to write instead of an unknown name: an equivalent, or the public name that it is a slip of; else nothing."""
    if name in EQUIVALENTS:
        return ": " + EQUIVALENTS[name].replace("{name}", f"`{name}`")
    near = difflib.get_close_matches(name, list(public), n=1, cutoff=0.75)
    if near and near[0][0].lower() == name[0].lower() and abs(len(near[0]) - len(name)) <= 2:
        return f": did you mean `st.{near[0]}`?"
    return ""
