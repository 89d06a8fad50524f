"""Sequences that travel, of arrays on a device: a second derivative through a loop keeps histories of histories.

The elements of the innermost sequences lie in the store of device memory for gradients (`functions.py`), one piece for
each sequence; what says where they are is the host's, as for its own sequences (`backends/host/frames.py`). Adding is a
kernel.

Tested by `tests/backends/cublas_cudnn/test_second_derivatives.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.backends.cublas_cudnn.functions import FRAMES
from staged.ir.types import DType

THREADS = 256
MOST_BLOCKS = 1024

_STORE = f"""\
// ---- sequences on the device -----------------------------------------------------------------------
// Room for `length` elements.
static int st_device_sequence_make(Device *gpu, st_host *host, int site, int64_t length, size_t bytes,
        st_sequence *made) {{
    if (bytes != 0 && (size_t)length > ((size_t)INT64_MAX - 256) / bytes) {{
        return st_fail(host, ST_MEMORY_ERROR, site, "a loop keeps more for its gradient than can be addressed");
    }}
    const int64_t needed = length > 0 ? (int64_t)((size_t)length * bytes) : 1;
    unsigned char *const data = st_device_push(host, &gpu->{FRAMES}, site, needed, "what loops keep for gradients");
    if (data == NULL) {{
        return host->error_kind;
    }}
    made->data = data;
    made->length = length;
    return ST_OK;
}}
"""

_NESTED = """\
// {comment}
static int st_device_sequence_{name}(Device *gpu, st_host *host, int site, st_frames *frames, st_sequence given,
        int depth,
{indent}size_t bytes, st_sequence *made) {{
    st_sequence own = {{NULL, 0}};
    if (depth == 0) {{
        if (st_device_sequence_make(gpu, host, site, given.length, bytes, &own) != ST_OK) {{
            return host->error_kind;
        }}
        if (given.length > 0 && bytes > 0) {{
            CUDA_CHECK(site, {fill});
        }}
        *made = own;
        return ST_OK;
    }}
    if (st_sequence_make(host, frames, given.length, sizeof(st_sequence), &own) != ST_OK) {{
        return host->error_kind;
    }}
    const st_sequence *const from = (const st_sequence *)given.data;
    st_sequence *const to = (st_sequence *)own.data;
    for (int64_t i = 0; i < given.length; ++i) {{
        if (st_device_sequence_{name}(gpu, host, site, frames, from[i], depth - 1, bytes, &to[i]) != ST_OK) {{
            return host->error_kind;
        }}
    }}
    *made = own;
    return ST_OK;
}}
"""

_TAKE = """\
// Moves what a stack holds from `first` on into the store.
static int st_device_sequence_take(Device *gpu, st_host *host, int site, st_stack *stack, int64_t first, size_t bytes,
                                   st_sequence *made) {
    const int64_t length = stack->length - first;
    if (st_device_sequence_make(gpu, host, site, length, bytes, made) != ST_OK) {
        return host->error_kind;
    }
    if (length > 0 && bytes > 0) {
        CUDA_CHECK(site, cudaMemcpyAsync(made->data, stack->data + (size_t)first * bytes, (size_t)length * bytes,
                                         cudaMemcpyDeviceToDevice, gpu->stream));
    }
    stack->length = first;
    return ST_OK;
}
"""

_ADD_KERNEL = """\
// Adds numbers to those at `to`.
extern "C" __global__ void __launch_bounds__({threads}) {name}({c_type} *to, const {c_type} *from, int64_t count) {{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
        to[i] += from[i];
    }}
}}
"""

_LAUNCH_ADD = """\
// A thread for each number, up to {most} blocks, whose threads then take further ones
static cudaError_t launch_{name}(const Device *gpu, {c_type} *to, const {c_type} *from, int64_t count) {{
    const int64_t blocks = (count + {last}) / {threads};
    if (count == 0) {{
        return cudaSuccess;
    }}
    void *values[] = {{&to, &from, &count}};
    return cudaLaunchKernel(KERNEL({name}), st_dim3(blocks < {most} ? (unsigned int)blocks : {most}),
            st_dim3({threads}), values,
                            0, gpu->stream);
}}
"""

_ADD = """\
// Adds the elements of sequences to those of others, `depth` levels down.
static int st_device_sequence_add_{dtype}(const Device *gpu, st_host *host, int site, st_sequence to, st_sequence from,
        int depth,
                                       int64_t size) {{
    if (depth == 0) {{
        CUDA_CHECK(site, launch_{name}(gpu, ({c_type} *)to.data, (const {c_type} *)from.data, from.length * size));
        return ST_OK;
    }}
    for (int64_t i = 0; i < from.length; ++i) {{
        const st_sequence *const inner = (const st_sequence *)from.data + i;
        if (st_device_sequence_add_{dtype}(gpu, host, site, ((st_sequence *)to.data)[i], *inner, depth - 1,
                size) != ST_OK) {{
            return host->error_kind;
        }}
    }}
    return ST_OK;
}}
"""


@dataclass
class SequenceTexts:
    """The operations of a program on sequences on its devices."""

    calls: set[str] = field(default_factory=set)
    """make, zeros, copy, take, add."""
    dtypes: list[DType] = field(default_factory=list)
    """Of the numbers that are added."""

    def adds(self, dtype: DType, nested: bool) -> None:
        """Note that numbers are added; `nested`: those of all elements of a sequence."""
        if dtype not in self.dtypes:
            self.dtypes.append(dtype)
        if nested:
            self.calls.add(f"add {dtype}")

    @property
    def kernels(self) -> list[str]:
        """The names of the kernels."""
        return [adder(dtype) for dtype in self.dtypes]

    def kernel_texts(self) -> list[str]:
        return [_ADD_KERNEL.format(threads=THREADS, name=adder(dtype), c_type=dtype.c_name) for dtype in self.dtypes]

    def launcher_texts(self) -> list[str]:
        return [
            _LAUNCH_ADD.format(
                threads=THREADS, last=THREADS - 1, most=MOST_BLOCKS, name=adder(dtype), c_type=dtype.c_name
            )
            for dtype in self.dtypes
        ]

    def function_texts(self) -> list[str]:
        """The host's functions, each before those that call it; they stand behind the launchers."""
        texts = [_STORE] if self.calls & {"make", "zeros", "copy", "take"} else []
        for name, comment, fill in (
            (
                "zeros",
                "Zeros as long as those of `given`, whose elements are sequences `depth` levels down, then `bytes` "
                "each.",
                "cudaMemsetAsync(own.data, 0, (size_t)given.length * bytes, gpu->stream)",
            ),
            (
                "copy",
                "A copy of its own.",
                "cudaMemcpyAsync(own.data, given.data, (size_t)given.length * bytes, cudaMemcpyDeviceToDevice, "
                "gpu->stream)",
            ),
        ):
            if name in self.calls:
                indent = " " * len(f"static int st_device_sequence_{name}(")
                texts.append(_NESTED.format(name=name, comment=comment, fill=fill, indent=indent))
        texts += [_TAKE] if "take" in self.calls else []
        texts += [
            _ADD.format(dtype=dtype, name=adder(dtype), c_type=dtype.c_name)
            for dtype in self.dtypes
            if f"add {dtype}" in self.calls
        ]
        return texts


def adder(dtype: DType) -> str:
    """The kernel that adds numbers of a dtype."""
    return f"add_{dtype}_kernel"
