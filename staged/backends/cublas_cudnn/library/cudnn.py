"""Shared by all calls of cuDNN: the handle, descriptors of shapes, and one workspace.

The legacy API: it is complete, forward compatible within cuDNN 9, and says in one call what the graph API says in
twenty. A descriptor is made once per distinct shape, before the first step of the program, and destroyed with its
arena.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart, Field, check, check_macro, destroy
from staged.ir.options import DeviceOptions
from staged.ir.types import DType

CHECK = check_macro(
    "The same for calls of cuDNN.", "cudnn", "cudnnStatus_t", "CUDNN_STATUS_SUCCESS", "cudnnGetErrorString"
)

MOST_ELEMENTS = 1 << 31
"""Elements of an array that a descriptor takes: fewer than these."""
MOST_IMAGES = 65535
"""Extent of the first axis up to which all of cuDNN's norms and pooling work: some make it an extent of a launch's
grid.
"""

IS_UNSUPPORTED = """\
// Whether a status means that cuDNN does not support an operation on this device: it has a number for each reason.
static bool is_unsupported(cudnnStatus_t status) {
    return status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED;
}
"""

DATA_TYPES = {"f32": "CUDNN_DATA_FLOAT", "f64": "CUDNN_DATA_DOUBLE"}


def math_type(options: DeviceOptions) -> str:
    """The arithmetic of f32 products: cuDNN's default uses TF32 where the GPU has it."""
    return "CUDNN_DEFAULT_MATH" if options.tf32 else "CUDNN_FMA_MATH"


def handle_part(site: int) -> DevicePart:
    """The handle of cuDNN, on the program's stream."""
    return DevicePart(
        (Field("cudnnHandle_t cudnn;"),),
        (
            check("CUDNN_CHECK", site, "cudnnCreate(&gpu->cudnn)"),
            check("CUDNN_CHECK", site, "cudnnSetStream(gpu->cudnn, gpu->stream)"),
        ),
        destroy("gpu->cudnn", "cudnnDestroy(gpu->cudnn)"),
        ("cudnn.h",),
        ("cudnn",),
        checks=(CHECK,),
    )


def workspace_part(site: int) -> DevicePart:
    """The memory that algorithms of cuDNN work in: as much as the one that needs most, since they run one after the
    other.
    """
    return DevicePart(
        (Field("void *cudnn_workspace;"), Field("size_t cudnn_workspace_bytes;", "what the largest algorithm needs")),
        (
            "if (gpu->cudnn_workspace_bytes > 0) {",
            "    " + check("CUDA_CHECK", site, "cudaMalloc(&gpu->cudnn_workspace, gpu->cudnn_workspace_bytes)"),
            "}",
        ),
        ("(void)cudaFree(gpu->cudnn_workspace);",),
        # Only then is it known how much.
        order=2,
        beside=(("workspace of cuDNN", None),),
    )


def tensor_part(site: int, dtype: DType, shape: Sequence[int]) -> tuple[str, DevicePart]:
    """The descriptor of a row-major (N, C, H, W) array: the field's name, and the part."""
    name = f"tensor_{dtype}_{by(shape)}"
    sizes = ", ".join(map(str, shape))
    return name, descriptor_part(
        site,
        name,
        "Tensor",
        f"cudnnSetTensor4dDescriptor(gpu->{name}, CUDNN_TENSOR_NCHW, {DATA_TYPES[dtype.name]}, {sizes})",
    )


def filter_part(site: int, dtype: DType, shape: Sequence[int]) -> tuple[str, DevicePart]:
    """The same for weights (O, C / groups, kH, kW)."""
    name = f"filter_{dtype}_{by(shape)}"
    sizes = ", ".join(map(str, shape))
    return name, descriptor_part(
        site,
        name,
        "Filter",
        f"cudnnSetFilter4dDescriptor(gpu->{name}, {DATA_TYPES[dtype.name]}, CUDNN_TENSOR_NCHW, {sizes})",
    )


def three_axes_part(site: int, what: str, dtype: DType, shape: tuple[int, int, int]) -> tuple[str, DevicePart]:
    """The descriptor of a row-major array of three axes, in a field that begins with `what` it is: the name, and the
    part.
    """
    name = f"{what}_{dtype}_{by(shape)}"
    _, second, third = shape
    part = descriptor_part(site, name, "Tensor")
    setting = f"cudnnSetTensorNdDescriptor(gpu->{name}, {DATA_TYPES[dtype.name]}, 3, extents, strides)"
    lines = (
        "{",
        f"    const int extents[3] = {{{', '.join(map(str, shape))}}};",
        f"    const int strides[3] = {{{second * third}, {third}, 1}};",
        "    " + check("CUDNN_CHECK", site, setting),
        "}",
    )
    return name, DevicePart(part.fields, (*part.opens, *lines), part.closes)


def descriptor_part(site: int, name: str, kind: str, *settings: str) -> DevicePart:
    """A descriptor of cuDNN of this kind, in the field `name`, with the calls that say what it describes."""
    calls = [f"cudnnCreate{kind}Descriptor(&gpu->{name})", *settings]
    return DevicePart(
        (Field(f"cudnn{kind}Descriptor_t {name};"),),
        tuple(check("CUDNN_CHECK", site, call) for call in calls),
        destroy(f"gpu->{name}", f"cudnnDestroy{kind}Descriptor(gpu->{name})"),
    )


def by(shape: Sequence[int]) -> str:
    """`64x1x28x28`."""
    return "x".join(map(str, shape))
