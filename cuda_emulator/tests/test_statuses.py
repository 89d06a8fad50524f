"""The emulated libraries and NVIDIA's answer alike to calls that need no device: descriptors of cuDNN and of cublasLt."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cffi
import pytest
from cuda_library import Library

from cuda_emulator import declarations
from tests import cuda_wheels

pytestmark = pytest.mark.usefixtures("needs_cuda_wheels")


class NvidiasLibrary(Library):
    """NVIDIA's library of the same functions."""

    def __init__(self, path: Path, header: str) -> None:
        self.ffi = cffi.FFI()
        self.ffi.cdef(declarations(header))
        self.lib: Any = self.ffi.dlopen(str(path))


@cache
def both(name: str) -> tuple[Library, Library]:
    """(the emulated library, NVIDIA's)."""
    header, path = {
        "cudnn": ("cudnn.h", "cudnn/lib/libcudnn.so.9"),
        "cublasLt": ("cublasLt.h", "cu13/lib/libcublasLt.so.13"),
    }[name]
    return Library(name, header), NvidiasLibrary(cuda_wheels.nvidia() / path, header)


NCHW, F32, NAN, CORRELATION = "CUDNN_TENSOR_NCHW", "CUDNN_DATA_FLOAT", "CUDNN_PROPAGATE_NAN", "CUDNN_CROSS_CORRELATION"
SHAPES = [(2, 3, 4, 5), (0, 3, 4, 5), (2, 3, 0, 5), (-1, 3, 4, 5), (2, 3, 4, -5)]
LARGE = [(2147483647, 1, 1, 1), (32768, 65535, 1, 1), (32768, 65536, 1, 1), (65536, 65536, 1, 1), (46341, 46341, 1, 1)]
STRIDES = [(60, 20, 5, 1), (0, 20, 5, 1), (60, 20, 5, 0), (1, 1, 1, 1), (60, 20, 4, 1), (2147483647, 1, 1, 1)]
AXES = [
    (4, (2, 3, 4, 5), (60, 20, 5, 1)),
    (3, (2, 3, 4), (12, 4, 1)),
    (3, (65536, 65536, 1), (65536, 1, 1)),
    (8, (1,) * 8, (1,) * 8),
    (9, (1,) * 9, (1,) * 9),
    (0, (1,), (1,)),
    (5, (1, 1, 1, 2, 0), (2, 2, 2, 1, 1)),
]
WINDOWS = [(0, 0, 1, 1, 1, 1), (-1, 0, 1, 1, 1, 1), (0, 0, 0, 1, 1, 1), (0, 0, 1, -1, 1, 1), (0, 0, 1, 1, 0, 1), (9, 0, 3, 1, 2, 1)]
POOLS = [(2, 2, 0, 0, 2, 2), (0, 2, 0, 0, 2, 2), (2, 2, 0, 0, 0, 2), (2, 2, 1, 1, 1, 1)]
CUDNN = [
    *(("Tensor", "cudnnSetTensor4dDescriptor", NCHW, F32, *shape) for shape in SHAPES + LARGE),
    *(("Filter", "cudnnSetFilter4dDescriptor", F32, NCHW, *shape) for shape in SHAPES + LARGE),
    *(("Tensor", "cudnnSetTensor4dDescriptorEx", F32, 2, 3, 4, 5, *strides) for strides in STRIDES),
    *(("Tensor", "cudnnSetTensorNdDescriptor", F32, *axes) for axes in AXES),
    *(("Convolution", "cudnnSetConvolution2dDescriptor", *window, CORRELATION, F32) for window in WINDOWS),
    *(("Convolution", "cudnnSetConvolutionGroupCount", groups) for groups in (1, 2, 0, -1)),
    *(("Pooling", "cudnnSetPooling2dDescriptor", "CUDNN_POOLING_MAX_DETERMINISTIC", NAN, *pool) for pool in POOLS),
]


@pytest.mark.parametrize("row", CUDNN, ids=lambda row: " ".join(map(str, row[1:])))
def test_descriptors_of_cudnn_are_accepted_and_rejected_alike(row: tuple[Any, ...]) -> None:
    kind, function, *arguments = row
    found = []
    for library in both("cudnn"):
        descriptor = library.made(f"cudnnCreate{kind}Descriptor", f"cudnn{kind}Descriptor_t")
        found.append(library.status(function, descriptor, *arguments) == 0)
        library.do(f"cudnnDestroy{kind}Descriptor", descriptor)
    assert found[0] == found[1]


STRICTER = [
    ("Pooling", "cudnnSetPooling2dDescriptor", "CUDNN_POOLING_MAX_DETERMINISTIC", NAN, 2, 2, 2, 0, 2, 2),
    ("Tensor", "cudnnSetTensor4dDescriptorEx", F32, 2, 3, 4, 5, -60, 20, 5, 1),
]


@pytest.mark.parametrize("row", STRICTER, ids=lambda row: row[1])
def test_the_emulated_library_rejects_more_where_no_program_needs_it(row: tuple[Any, ...]) -> None:
    """Padding as wide as the window has outputs that see no input; programs have no negative strides."""
    kind, function, *arguments = row
    found = []
    for library in both("cudnn"):
        descriptor = library.made(f"cudnnCreate{kind}Descriptor", f"cudnn{kind}Descriptor_t")
        found.append(library.status(function, descriptor, *arguments) == 0)
        library.do(f"cudnnDestroy{kind}Descriptor", descriptor)
    assert found == [False, True]


TRANSA, EPILOGUE, BIAS = (f"CUBLASLT_MATMUL_DESC_{name}" for name in ("TRANSA", "EPILOGUE", "BIAS_POINTER"))
ATTRIBUTES = [(TRANSA, 4), (TRANSA, 2), (TRANSA, 8), (EPILOGUE, 4), (EPILOGUE, 8), (BIAS, 8), (BIAS, 4), (999, 4)]
PREFERENCES = [("MAX_WORKSPACE_BYTES", 8), ("MAX_WORKSPACE_BYTES", 4), ("MIN_ALIGNMENT_A_BYTES", 4), ("MIN_ALIGNMENT_A_BYTES", 8)]


@pytest.mark.parametrize(("attribute", "size"), ATTRIBUTES)
def test_attributes_of_a_product_have_the_same_sizes(attribute: str | int, size: int) -> None:
    found = []
    for library in both("cublasLt"):
        product = library.made("cublasLtMatmulDescCreate", "cublasLtMatmulDesc_t", "CUBLAS_COMPUTE_32F", "CUDA_R_32F")
        value = library.ffi.new("uint64_t *", 1)
        found.append(library.status("cublasLtMatmulDescSetAttribute", product, attribute, value, size))
        library.do("cublasLtMatmulDescDestroy", product)
    assert found[0] == found[1]


@pytest.mark.parametrize(("name", "size"), PREFERENCES)
def test_preferences_of_the_heuristics_have_the_same_sizes(name: str, size: int) -> None:
    found = []
    for library in both("cublasLt"):
        preference = library.made("cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreference_t")
        value = library.ffi.new("uint64_t *", 16)
        attribute = f"CUBLASLT_MATMUL_PREF_{name}"
        found.append(library.status("cublasLtMatmulPreferenceSetAttribute", preference, attribute, value, size))
        library.do("cublasLtMatmulPreferenceDestroy", preference)
    assert found[0] == found[1]
