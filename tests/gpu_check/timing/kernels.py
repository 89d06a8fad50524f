"""Kernels: one operation on arrays that are on the device, in a loop over several inputs that do not fit into the L2 cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from tests.gpu_check.timing.model import Work

DTYPES = {"f32": np.float32, "tf32": np.float32, "bf16": ml_dtypes.bfloat16}
L2 = 100 << 20
"""Bytes that the inputs of consecutive iterations exceed: twice the L2 cache of an H100."""


@dataclass(frozen=True)
class Kernel:
    """`body(st, ...)` and `torch(torch, ...)` compute the same from arrays of `shapes`; `small` for a rehearsal."""

    name: str
    body: Callable[..., Any]
    torch: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    written: Callable[[Any], int] = lambda shapes: int(np.prod(shapes[0]))
    """Elements of the result."""
    flop: Callable[[Any], float] = lambda shapes: 0.0
    precisions: tuple[str, ...] = ("f32",)
    launches: int = field(default=1)

    def shapes_of(self, small: bool) -> tuple[tuple[int, ...], ...]:
        return self.small if small else self.shapes

    def work(self, precision: str, small: bool) -> Work:
        """The least that the operation must do: each element is read or written once."""
        shapes = self.shapes_of(small)
        read = sum(int(np.prod(shape)) for shape in shapes)
        size = np.dtype(DTYPES[precision]).itemsize
        return Work(self.flop(shapes), (read + self.written(shapes)) * size, self.launches)

    def inputs(self, precision: str, small: bool) -> list[np.ndarray[Any, Any]]:
        """For each operand, as many arrays as exceed the L2 cache, two at least, along a new first axis."""
        shapes = self.shapes_of(small)
        size = sum(int(np.prod(shape)) for shape in shapes) * np.dtype(DTYPES[precision]).itemsize
        count = 2 if small else max(2, -(-L2 // size))
        drawn = np.random.default_rng(1).standard_normal(1_000_003, np.float32).astype(DTYPES[precision])
        return [np.resize(drawn[number:], (count, *shape)) for number, shape in enumerate(shapes)]


def _normed(st: Any, x: Any) -> Any:
    return (x - st.mean(x, axis=1, keepdims=True)) / st.sqrt(st.var(x, axis=1, keepdims=True) + 1e-5)


def _attention(st: Any, q: Any, k: Any, v: Any) -> Any:
    return st.scaled_dot_product_attention(q, k, v, is_causal=True)


def _attention_gradient(st: Any, q: Any, k: Any, v: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        return st.sum(_attention(st, q, k, v) * v)

    return sum(st.grad(loss, (0, 1, 2))(q, k, v))


def _attention_of_torch(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _gradient_of_torch(torch: Any, q: Any, k: Any, v: Any) -> Any:
    with torch.enable_grad():
        q, k, v = (part.detach().requires_grad_() for part in (q, k, v))
        y = (_attention_of_torch(torch, q, k, v) * v).sum()
        return sum(torch.autograd.grad(y, (q, k, v)))


def _scores(shapes: Any) -> float:
    """FLOP of causal attention: half of two matmuls."""
    B, H, T, D = shapes[0]
    return 2.0 * B * H * T * T * D


MATRIX, SMALL_MATRIX = ((8192, 4096),), ((24, 16),)
_SHORT, _LONG, _FEW = ((8, 12, 1024, 64),) * 3, ((2, 12, 4096, 64),) * 3, ((1, 2, 16, 8),) * 3
_SQUARE, _SMALL_SQUARE = ((4096, 4096),) * 2, ((16, 16),) * 2
KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("softmax", lambda st, x: st.softmax(x, axis=1), lambda torch, x: x.softmax(1), MATRIX, SMALL_MATRIX),
        Kernel(
            "layer norm", _normed, lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[1:]), MATRIX, SMALL_MATRIX
        ),
        Kernel(
            "row sums", lambda st, x: st.sum(x, axis=1), lambda torch, x: x.sum(1), MATRIX, SMALL_MATRIX,
            written=lambda shapes: shapes[0][0],
        ),
        Kernel(
            "column sums", lambda st, x: st.sum(x, axis=0), lambda torch, x: x.sum(0), MATRIX, SMALL_MATRIX,
            written=lambda shapes: shapes[0][1],
        ),
        Kernel("transpose", lambda st, x: x.T * 1.0001, lambda torch, x: (x.T * 1.0001).contiguous(), MATRIX, SMALL_MATRIX),
        Kernel("sum", lambda st, x: st.sum(x), lambda torch, x: x.sum(), MATRIX, SMALL_MATRIX, written=lambda shapes: 1),
        Kernel(
            "matmul 4096", lambda st, a, b: a @ b, lambda torch, a, b: a @ b, _SQUARE, _SMALL_SQUARE,
            flop=lambda shapes: 2.0 * shapes[0][0] * shapes[0][1] * shapes[1][1], precisions=("f32", "tf32", "bf16"),
        ),
        *(
            kernel
            for length, shapes in (("1024", _SHORT), ("4096", _LONG))
            for kernel in (
                Kernel(
                    f"attention {length}", _attention, _attention_of_torch, shapes, _FEW, flop=_scores,
                    precisions=("f32", "bf16"),
                ),
                Kernel(
                    f"attention {length} with gradients", _attention_gradient, _gradient_of_torch, shapes, _FEW,
                    flop=lambda shapes: 3.5 * _scores(shapes), precisions=("f32", "bf16"), launches=4,
                ),
            )
        ),
    )
}  # fmt: skip


def ours(kernel: Kernel, precision: str, small: bool) -> tuple[Any, tuple[Any, ...]]:
    """(staged function, its arguments but the number of iterations): returns the first elements of the last result.

    Launches are issued one by one: the address of the input changes, which a graph would need a copy for.
    """
    import staged as st
    from staged import GPU, with_backend

    inputs = [st.to(array, GPU) for array in kernel.inputs(precision, small)]
    count = inputs[0].shape[0]

    @st.function(target="portable")
    def repeat(inputs: Any, turns: Any) -> Any:
        with with_backend(GPU, inputs, graphs=False, tf32=precision == "tf32"):
            y = kernel.body(st, *(x[0] for x in inputs))
            for turn in st.range(turns):
                y = kernel.body(st, *(x[turn % count] for x in inputs))
            first = st.reshape(y, (-1,))[:4]
        return st.astype(first, st.f32)

    return repeat, (inputs,)


def torchs(kernel: Kernel, precision: str, small: bool, compiled: Callable[[Any], Any]) -> Callable[[int], Any]:
    """The same in PyTorch: a function of the number of iterations, which returns the first elements."""
    import torch

    where = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    arrays = kernel.inputs(precision, small)
    inputs = [torch.from_numpy(array.astype(np.float32)).to(where, dtype) for array in arrays]
    body = compiled(lambda *operands: kernel.torch(torch, *operands))

    def run(turns: int) -> Any:
        with torch.no_grad():
            y = body(*(x[0] for x in inputs))
            for turn in range(turns):
                y = body(*(x[turn % len(x)] for x in inputs))
            return y.reshape(-1)[:4].float()

    return run


def copy_bandwidth(nbytes: int, seconds: Callable[[Callable[[], object]], float], plan: Any) -> dict[str, Any]:
    """The time of a copy on the device, as the CUDA runtime does it, and the bytes per second, read and written."""
    from staged.runtime.cuda.interface import current_runtime
    from staged.runtime.cuda.resident import DeviceCopy, check_status
    from staged.runtime.guard import ffi
    from tests.gpu_check.timing.clock import time_of

    runtime = current_runtime()
    source, target = DeviceCopy("gpu", nbytes), DeviceCopy("gpu", nbytes)
    copy = runtime.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")

    def run(turns: int) -> None:
        for _ in range(turns):
            check_status(runtime, copy(target.address, source.address, nbytes, 3, ffi.NULL), "cudaMemcpyAsync")

    found = time_of(run, seconds, plan)
    return {**found, "bytes_per_second": 2 * nbytes / found["seconds"] if found["seconds"] > 0.0 else None}
