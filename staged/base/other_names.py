"""Hints for names of NumPy, torch, JAX or SciPy that `staged` spells differently or lacks.

`EQUIVALENTS` has those of `st` itself, which serve arrays too; `OF_ARRAYS`, `OF_MODULES`, `OF_OPTIMIZERS`, `IN_NN` and
`IN_OPTIM` have those of one place alone.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_NOT_YET = "there is no {name} here yet; "

_OTHER_SPELLINGS = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arcsin": "asin", "arctan": "atan",
    "arctan2": "atan2", "array": "asarray", "as_tensor": "asarray", "tensor": "asarray", "cat": "concat",
    "concatenate": "concat", "short": "i16", "float": "f32", "double": "f64", "long": "i64", "half": "f16",
    "gather": "take_along_axis",
    "take_along_dim": "take_along_axis", "clamp": "clip", "Tensor": "Array", "ndarray": "Array", "row_stack": "vstack",
    "vectorize": "vmap", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "radians": "deg2rad",
    "degrees": "rad2deg", "trapz": "trapezoid", "addmv": "addmm", "baddbmm": "addmm",
    "apply_along_axis": "vmap", "power": "pow", "mul": "multiply", "mm": "matmul",
    "bmm": "matmul", "swish": "silu", "device_put": "to", "Parameter": "Variable",
    "gammaln": "lgamma", "psi": "digamma", "expit": "sigmoid", "multigammaln": "mvlgamma",
    **{name: f"special.{name}" for name in "betaln entr erfcx i0e i1 i1e log_ndtr ndtr ndtri xlog1py".split()},
    **{name: f"linalg.{name}" for name in (
        "cholesky det eigh eigvalsh expm inv lstsq lu lu_factor matrix_exp matrix_norm matrix_power matrix_rank "
        "multi_dot pinv qr slogdet solve solve_triangular svd svdvals vector_norm"
    ).split()},
}  # fmt: skip
"""Names with an exact equivalent in `st`."""

EQUIVALENTS: dict[str, str] = {
    # ---- another name ----
    **{theirs: f"use `st.{ours}`" for theirs, ours in _OTHER_SPELLINGS.items()},
    "triangular_solve": "use `st.linalg.solve_triangular`",
    "no_grad": "nothing is differentiated outside of `st.grad(f)`; inside it `st.stop_gradient(x)` is a constant",
    **dict.fromkeys(
        ["inference_mode", "set_grad_enabled", "enable_grad"],
        "nothing is differentiated outside of `st.grad(f)`; leave it out",
    ),
    "autograd": "use `st.grad(f)`, or `st.value_and_grad(f, wrt=model)`",
    "is_tensor": "write `isinstance(x, st.Array)`",
    "from_numpy": "NumPy's arrays are taken as they are; `st.asarray(x)` makes one of ours",
    "functional": "its functions are in `staged` itself: `st.relu(x)`, `st.cross_entropy(logits, labels)`",
    "utils": "gradients are clipped by `optim.clip_grad_norm(grads, max_norm)`, "
    "batches are `st.batches(x, y, size=32)`",
    "amp": "write `with st.autocast(st.bf16):`; losses are scaled by `optim.GradScaler`",
    "GradScaler": "write `optim.GradScaler`",
    **dict.fromkeys(
        ["tril_indices", "triu_indices", "ix_", "indices"],
        "make them with NumPy: `np.{bare}(...)` is known while staging",
    ),
    **dict.fromkeys("ifft rfft irfft fft2 ifft2 fftn ifftn".split(), "use `st.fft.{bare}`"),
    "detach": "use `st.stop_gradient(x)`",
    "scan": "write a loop, `for i in st.range(n):`, and collect in an array or `st.Stack`",
    "fori_loop": "write a loop: `for i in st.range(n):`",
    "jacobian": "use `st.jacrev(f)(x)`, or `st.jacfwd(f)(x)` if the result is larger than `x`",
    "lax": "write `for`, `while` and `if`: they become the program's",
    "while_loop": "write a `while` loop",
    "cond": "write an `if`, or `st.where(condition, a, b)` for elements",
    "switch": "write `if` and `elif`",
    "jit": "decorate the function with `@st.function`",
    "compile": "decorate the function with `@st.function`",
    "tree_map": "write a loop over the tree: lists, dicts and dataclasses are values",
    "pmap": "a program has the devices of its regions: see docs/regions.md",
    "argwhere": "use `st.nonzero(x, size=n)`: a vector of indices for each axis",
    "masked_fill": "write `st.where(mask, value, x)`",
    "scatter": "write `x[i] = v`",
    "index_put": "write `x[i] = v`",
    "size": "use `x.size` or `x.shape`",
    "numel": "use `x.size`",
    "view": "use `st.reshape`",
    "item": "use `float(x)` in plain Python; inside a staged function a scalar is a number",
    "rand": "use `st.random.uniform(shape)`",
    "randn": "use `st.random.normal(shape)`",
    "randn_like": "use `st.random.normal(x.shape, dtype=x.dtype)`",
    "rand_like": "use `st.random.uniform(x.shape, dtype=x.dtype)`",
    "normal": "use `st.random.normal(shape, mean=..., std=...)`",
    "bernoulli": "use `st.random.bernoulli(p, shape)`",
    "randint": "use `st.random.integers(low, high, shape)`",
    "multinomial": "use `st.random.categorical(st.log(weights), (n,))` or `st.random.choice(n, p=weights)`",
    **dict.fromkeys(
        ("categorical", "choice", "exponential", "gumbel", "laplace", "logistic", "truncated_normal"),
        "use `st.random.{bare}`",
    ),
    "randperm": "use `st.random.permutation(n)`",
    "manual_seed": "use `st.seed(n)`",
    **dict.fromkeys(("Generator", "default_rng"), "use `st.random.Generator(seed)`"),
    **dict.fromkeys(
        ("get_rng_state", "set_rng_state"), "use `st.random.default_generator()`, which has a `state_dict`"
    ),
    "set_printoptions": 'give the format where you print: `f"{x:.3f}"`',
    "cuda_is_available": "use `st.cuda`: see docs/regions.md",
    "device": "use `st.CPU` and `st.GPU`: see docs/regions.md",
    # ---- not here yet ----
    "partition": "`st.sort(x)` has all in order, `st.topk(x, k)` the k largest, `st.kthvalue(x, k)` the k-th smallest",
    "argpartition": "`st.argsort(x)` has all in order, `st.topk(x, k)` the places of the k largest too",
    **dict.fromkeys(
        "eig eigvals".split(),
        _NOT_YET
        + "write it with loops (they are compiled and differentiated), or compute it in Python before the call",
    ),
    "ravel": "write `x.reshape(-1)`",
    "identity": "use `st.eye(n)`",
    "tri": "write `st.tril(st.ones((n, m)))`",
    "vander": "write `x[:, None] ** st.arange(n)`",
    "polyfit": "write `st.linalg.lstsq(x[:, None] ** st.arange(degree + 1), y)[0]`",
    "polyval": "write Horner's rule: `for c in coefficients: y = y * x + c`",
    "unravel_index": "write `row, column = i // n, i % n`",
    "piecewise": "nest `st.where(condition, a, b)`",
    "gradient": "a derivative is `st.grad(f)`; write `(x[2:] - x[:-2]) / 2` for the inner elements, and "
    "`x[1:2] - x[:1]`, `x[-1:] - x[-2:-1]` at the ends",
    "pdist": "write `st.cdist(x, x)[np.triu_indices(len(x), 1)]`",
    "repeat_interleave": "use `st.repeat(x, count, axis)`",
    "put_along_axis": 'write `st.scatter_reduce(x, axis, indices, values, "sum", include_self=False)`',
    "masked_scatter": "write `x[mask] = v`",
    **dict.fromkeys(
        ["pad_sequence", "pack_sequence", "pack_padded_sequence", "pad_packed_sequence"], "use `nn.utils.rnn.{bare}`"
    ),
    **dict.fromkeys(
        ["unpad_sequence", "unpack_sequence"],
        "the program alone knows the lengths: write `[x[:n, i] for i, n in enumerate(lengths)]` in plain Python",
    ),
    "invert_permutation": "use `st.argsort(permutation)`",
    "parameters_to_vector": "write `st.concat([st.reshape(p.value, (-1,)) for p in model.parameters()])`",
    "vector_to_parameters": "write `p.value = st.reshape(vector[start : start + p.size], p.shape)` for each parameter",
    "weight_norm": "keep `g` and `v` as parameters, and write `g * v / st.norm(v, axis=1, keepdims=True)` in `forward`",
    "spectral_norm": "write `w / st.linalg.matrix_norm(w, ord=2)` in `forward`",
    "histc": "use `st.histogram(x, bins, (low, high))[0]`",
    "unique_consecutive": "write `x[np.concatenate([[True], x[1:] != x[:-1]])]` in plain Python: the program alone "
    "knows the number of elements",
    "confusion_matrix": "write `st.reshape(st.bincount(labels * n + predictions, length=n * n), (n, n))`",
    "copy": "arrays are values: use `x`, or `x.copy()`",
    "ascontiguousarray": "every array is contiguous: use `x`",
    "unwrap": "write `x - 2 * np.pi * st.concat([st.zeros(1), st.cumsum(st.round(st.diff(x) / (2 * np.pi)))])`",
    # ---- special functions ----
    "gamma": "write `st.exp(st.lgamma(x))` for x above 0",
    **dict.fromkeys(
        "gammainc gammaincc betainc jn jv yv kv iv j0 j1 y0 y1 k0 k1 yn kn exp1 expn expi zeta hyp2f1 airy".split(),
        _NOT_YET + "compute it with SciPy before the call, or call SciPy from the program by `st.callback`",
    ),
    # ---- of matrices ----
    "cho_solve": "write `y = st.linalg.solve_triangular(low, b, upper=False)`, then "
    "`st.linalg.solve_triangular(low.mT, y, upper=True)`",
    "cho_factor": "use `st.linalg.cholesky`",
    "lu_solve": "use `st.linalg.solve(a, b)`",
    "solve_banded": "write `st.linalg.solve(st.diagflat(main) + st.diagflat(upper, 1) + st.diagflat(lower, -1), b)`",
    "sqrtm": "of a symmetric matrix write `w, v = st.linalg.eigh(a)`, then `(v * st.sqrt(w)) @ v.mT`",
    "logm": "of a symmetric matrix write `w, v = st.linalg.eigh(a)`, then `(v * st.log(w)) @ v.mT`",
    # ---- of whole functions ----
    "custom_jvp": "use `st.custom_vjp`: it gives the derivative for reverse mode",
    **dict.fromkeys(
        ("root", "fsolve"),
        "write Newton's method: `x = x - st.linalg.solve(st.jacfwd(f)(x), f(x))` in a loop, or minimise "
        "`st.sum(f(x) ** 2)`",
    ),
    **dict.fromkeys(
        ("brentq", "bisect", "root_scalar"),
        "write a bisection: `middle = (low + high) / 2`, then `low, high = (middle, high) if f(middle) < 0 else (low, "
        "middle)` in a loop",
    ),
    "minimize_scalar": "use `st.optimize.minimize` of an array of one element",
    "curve_fit": "use `st.optimize.minimize(lambda p: st.sum((f(x, p) - y) ** 2), start)`",
    "odeint": "it is `st.integrate.odeint(func, y0, t)`",
    "solve_ivp": "use `st.integrate.odeint(lambda y, t: f(t, y), y, times)`; for events and dense output give more "
    "times",
    "quad": "write `st.trapezoid(f(x), x)` on a grid",
    "simpson": "use `st.trapezoid`",
    **dict.fromkeys(
        ("CubicSpline", "interp1d", "splrep", "splev"),
        "use `st.interp(x, places, values)`, which is linear; or compute the spline with SciPy before the call",
    ),
}
"""By unknown name: the hint."""


_VALUES = "gradients are values: `loss, grads = st.value_and_grad(f, wrt=model)()`"
_SOME = "a part of the parameters is trained by naming it: `st.value_and_grad(f, wrt=list(model.head.parameters()))`"
_DEVICE = "where code runs is said by `with st.with_backend(st.GPU, x):`"
_IN_PLACE = "arrays are values: assign the result to a name; a Variable is written by `v.value = ...`"

OF_ARRAYS: dict[str, str] = {
    **dict.fromkeys(["requires_grad", "requires_grad_"], _SOME),
    **dict.fromkeys(["grad", "backward", "retain_grad", "register_hook", "grad_fn"], _VALUES),
    **dict.fromkeys(["cuda", "is_cuda", "pin_memory"], _DEVICE),
    "sort": "arrays are values: `x = st.sort(x)`; torch's pair of values and indices is `st.sort(x, dim=-1)`",
    "data": "an array is its own data; that of a Variable is `v.value`",
    "numpy": "values exist when the program runs: `print(x)`, or return it",
    **dict.fromkeys(
        ["ctypes", "flags", "base", "setflags"],
        "an array is a value without an address; NumPy's array of a result has one",
    ),
    **{f"new_{name}": f"use `st.{name}(shape, dtype=x.dtype)`" for name in ("zeros", "ones", "full", "empty")},
    "new_tensor": "use `st.asarray(values, dtype=x.dtype)`",
    "H": "use `x.mT`",
    "is_leaf": _VALUES,
    "is_contiguous": "every array is contiguous",
    "unfold": "write `st.stack([x[i : i + size] for i in range(0, x.shape[0] - size + 1, step)])`",
    "fill": _IN_PLACE,
    "put": "write `x[i] = v`",
    "itemset": "write `x[i] = v`",
    "resize": "use `x.reshape(shape)`",
    "scatter_add": 'write `st.scatter_reduce(x, dim, index, src, "sum")`',
    "scatter": 'write `st.scatter_reduce(x, dim, index, src, "sum", include_self=False)`, or `x[i] = v`',
}
"""Methods and properties of other libraries' arrays."""

OF_MODULES: dict[str, str] = {
    **dict.fromkeys(["to", "cuda", "cpu"], _DEVICE + "; the dtype is the layers': `nn.Linear(2, 3, dtype=st.f64)`"),
    "type": "write `model.half()`, `bfloat16()`, `float()` or `double()`, or give layers a `dtype`",
    "requires_grad_": _SOME,
    "zero_grad": "gradients are values, nothing is added up behind your back: leave it out",
    **dict.fromkeys(
        ["register_forward_hook", "register_forward_pre_hook", "register_backward_hook", "register_full_backward_hook"],
        "call what you need in `forward`",
    ),
    "compile": "decorate the function that calls it with `@st.function`",
    **{f"get_{what}": f"write `dict(model.named_{what}s())[path]`" for what in ("parameter", "buffer")},
    "get_submodule": "write `dict(model.named_modules())[path]`",
    "share_memory": "leave it out",
    "fit": "write the loop of training: see the guide",
}
"""Methods of torch's modules."""

OF_OPTIMIZERS: dict[str, str] = {
    "zero_grad": "gradients are values, nothing is added up behind your back: leave it out",
    **dict.fromkeys(
        ["param_groups", "add_param_group", "defaults"],
        "the numbers are attributes, read at every step: `opt.lr = rate`; those of a group of parameters are in "
        "`opt.groups`",
    ),
    "param": "the parameters are `opt.params`",
}
"""Methods and attributes of torch's optimisers."""


IN_NN: dict[str, str] = {
    "functional": EQUIVALENTS["functional"],
    "parameter": "use `nn.Parameter`",
    "Buffer": "use `self.register_buffer(name, array)`",
    **dict.fromkeys(["DataParallel", "parallel"], "a program has the devices of its regions: see docs/regions.md"),
    **dict.fromkeys(
        """LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d
        LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
        UninitializedParameter UninitializedBuffer""".split(),
        "sizes are known when a layer is made: name the number of inputs, `nn.Linear(x.shape[-1], 10)`",
    ),
    "NLLLoss2d": "use `nn.NLLLoss`",
    "Container": "use `nn.Module`",
    "CrossMapLRN2d": "use `nn.LocalResponseNorm`",
    **dict.fromkeys(["RNNBase", "RNNCellBase"], "use `nn.RNN`, `nn.LSTM`, `nn.GRU` or their cells"),
    **dict.fromkeys(
        ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"], "use `nn.Linear` and `nn.CrossEntropyLoss`"
    ),
}
"""Names in `torch.nn`."""

IN_OPTIM: dict[str, str] = {
    "clip_grad_norm_": "use `optim.clip_grad_norm(grads, max_norm)`, which returns (gradients, norm)",
    "clip_grad_value_": "use `optim.clip_grad_value(grads, value)`, which returns gradients",
    "SparseAdam": "there are no sparse gradients here: use `optim.Adam`",
}
"""Names in `torch.optim`."""


def unknown_names(module: str, public: Iterable[str]) -> Callable[[str], Any]:
    """`__getattr__` of a module: an AttributeError with the hint for a name of SciPy's, NumPy's or torch's."""

    def unknown(name: str) -> Any:
        answer = answer_from((EQUIVALENTS, IN_OPTIM), name) or slip_of(name, public, f"{module}.")
        raise no_attribute(f"module 'staged.{module}' has", name, answer)

    return unknown


def answer_to(name: str, public: Iterable[str]) -> str:
    """The hint for an unknown name of `st`: an equivalent, or the public name that it misspells; else empty."""
    return answer_from((EQUIVALENTS,), name) or slip_of(name, public, "st.")


def answer_from(tables: Iterable[Mapping[str, str]], name: str) -> str:
    """The hint of the first table that has the name; else empty."""
    for table in tables:
        if name in table:
            return ": " + table[name].replace("{name}", f"`{name}`").replace("{bare}", name)
    return ""


def slip_of(name: str, public: Iterable[str], place: str) -> str:
    """The public name that `name` misspells, as a question; else empty."""
    if name.startswith("_"):  # a question of a tool, such as `hasattr(st, "__wrapped__")`: comparing takes milliseconds
        return ""
    near = difflib.get_close_matches(name, list(public), n=1, cutoff=0.75)
    if near and near[0][0].lower() == name[0].lower() and abs(len(near[0]) - len(name)) <= 2:
        return f": did you mean `{place}{near[0]}`?"
    return ""


def unknown_array_name(name: str) -> str:
    """The hint for a method or property that arrays lack; NumPy's own come first."""
    plain = name.removesuffix("_")
    found = answer_from((OF_ARRAYS, EQUIVALENTS), name)
    if not found and plain != name:
        return answer_from((OF_ARRAYS, EQUIVALENTS), plain) or f": {_IN_PLACE}"
    return found


def no_attribute(subject: str, name: str, answer: str) -> AttributeError:
    """The AttributeError for an unknown name; with an answer, Python's own suggestion is left out."""
    error = AttributeError(f"{subject} no attribute {name!r}{answer}")
    if answer:
        error.name, error.obj = name, None
    return error
