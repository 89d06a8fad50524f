"""Epilogues of cublasLt called without a program: what becomes of a NaN there is a fact that programs depend on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from cuda_emulator import declarations
from staged.runtime.cuda.devices import is_emulated
from staged.runtime.cuda.emulated import emulated_library
from staged.runtime.cuda.resident import DeviceCopy
from staged.runtime.cuda.toolkit import load_libraries
from tests.gpu_check.probes.book import Book, compared

WORKSPACE = 4 << 20
EPILOGUES = ("DEFAULT", "BIAS", "GELU", "GELU_BIAS", "RELU", "RELU_BIAS")


@cache
def library() -> tuple[Any, Any]:
    """(cffi, cublasLt): the device's library; its enumerators and prototypes are those of the emulated one."""
    found: Path = emulated_library("cublasLt") if is_emulated() else load_libraries(("cublasLt",))[-1]
    ffi = cffi.FFI()
    ffi.cdef(declarations("cublasLt.h"))
    return ffi, ffi.dlopen(str(found))


def epilogue(name: str, a: Any, b: Any, bias: Any) -> np.ndarray[Any, Any]:
    """a @ b with an epilogue: by columns it is the transposed result, from the factors in the other order."""
    ffi, lib = library()

    def do(function: str, *arguments: Any) -> None:
        status = getattr(lib, function)(*arguments)
        if status:
            raise RuntimeError(f"{function}: status {status}")

    def made(kind: str, *arguments: Any) -> Any:
        out = ffi.new(f"cublasLt{kind}_t *")
        do(f"cublasLt{kind}Create", out, *arguments)
        return out[0]

    def placed(array: Any) -> Any:
        place = DeviceCopy("gpu", array.nbytes)
        place.update(array)
        return place

    (M, K), N = a.shape, b.shape[1]
    result = np.full((M, N), 7.0, np.float32)
    places = [placed(each) for each in (b, a, bias, result)]
    left, right, added, there = (ffi.cast("void *", int(_address(place))) for place in places)
    handle = ffi.new("cublasLtHandle_t *")
    do("cublasLtCreate", handle)
    product = made("MatmulDesc", lib.CUBLAS_COMPUTE_32F, lib.CUDA_R_32F)
    kind = ffi.new("int *", getattr(lib, f"CUBLASLT_EPILOGUE_{name}"))
    do("cublasLtMatmulDescSetAttribute", product, lib.CUBLASLT_MATMUL_DESC_EPILOGUE, kind, 4)
    if "BIAS" in name:
        pointer = ffi.new("void **", added)
        do("cublasLtMatmulDescSetAttribute", product, lib.CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer, 8)
    layouts = [made("MatrixLayout", lib.CUDA_R_32F, rows, columns, rows) for rows, columns in ((N, K), (K, M), (N, M))]
    preference = made("MatmulPreference")
    limit = ffi.new("uint64_t *", WORKSPACE)
    do("cublasLtMatmulPreferenceSetAttribute", preference, lib.CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, limit, 8)
    offers, count = ffi.new("cublasLtMatmulHeuristicResult_t[1]"), ffi.new("int *")
    order = [*layouts, layouts[2], preference]
    do("cublasLtMatmulAlgoGetHeuristic", handle[0], product, *order, 1, offers, count)
    if count[0] == 0:
        raise RuntimeError("no algorithm is offered")
    one, zero = ffi.new("float *", 1.0), ffi.new("float *", 0.0)
    workspace = DeviceCopy("gpu", WORKSPACE)
    room = ffi.cast("void *", int(_address(workspace)))
    factors = (one, left, layouts[0], right, layouts[1], zero, there, layouts[2], there, layouts[2])
    algorithm = ffi.addressof(offers[0], "algo")
    do("cublasLtMatmul", handle[0], product, *factors, algorithm, room, WORKSPACE, ffi.NULL)
    places[3].written()
    places[3].fetch(result)
    for layout in layouts:
        do("cublasLtMatrixLayoutDestroy", layout)
    do("cublasLtMatmulPreferenceDestroy", preference)
    do("cublasLtMatmulDescDestroy", product)
    do("cublasLtDestroy", handle[0])
    return result


def _address(place: DeviceCopy) -> Any:
    from staged.runtime.guard import ffi

    return ffi.cast("uintptr_t", place.address)


def plain(name: str, a: Any, b: Any, bias: Any) -> np.ndarray[Any, Any]:
    """The same in f64, where a NaN stays a NaN."""
    y = a.astype(np.float64) @ b.astype(np.float64) + (bias if "BIAS" in name else 0.0)
    if "GELU" in name:
        return 0.5 * y * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (y + 0.044715 * y**3)))
    return np.where(y <= 0.0, 0.0, y) if "RELU" in name else y


def of_nan(book: Book) -> None:
    """Record whether each epilogue keeps a NaN. relu does not, by NVIDIA's answers; programs do not use it."""
    a, b, bias = book.normal(64, 128, scale=0.1), book.normal(128, 96, scale=0.1), book.normal(96)
    a[3, 5], bias[7] = np.nan, np.nan
    for name in EPILOGUES:
        with book.attempt(f"cublasLt without a program: {name}") as entry:
            if entry is None or book.prepares:
                continue
            found, expected = epilogue(name, a, b, bias), plain(name, a, b, bias)
            lost = np.isnan(expected) & ~np.isnan(found)
            entry["keeps_nan"] = not lost.any()
            entry["instead_of_nan"] = float(found[lost][0]) if lost.any() else None
            if "RELU" in name:  # the elements that are numbers must be right
                found[lost] = np.nan
            entry |= compared([found], [expected], 2e-4)
