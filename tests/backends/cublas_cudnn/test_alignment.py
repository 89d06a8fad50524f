"""Arrays on a device that begin one element into their memory: kernels that access 16 bytes at once, and libraries that were chosen
for aligned arrays, never see such an address."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.errors import ProgramMemoryError, ProgramValueError
from staged.runtime.cuda.borrowed import BorrowedPlace
from staged.runtime.cuda.program import CudaProgram
from staged.runtime.guard import ffi
from tests.backends.cublas_cudnn.harness import settings
from tests.fuzz.late import Lent

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(5)
N = 8192
DATA = RANDOM.normal(size=9000).astype(np.float32)
A, W, B = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((32, 64), (64, 48), (49,)))
PACK = "st_device_f32x4"
CHECK = "% 16 != 0"


def run(function: Callable[..., Any], *arguments: Any, rtol: float = 2e-5) -> str:
    """The program's text, after a call in a region, in each order of work, equals eager mode."""
    staged = st.function(function)
    with st.eager():
        expected = staged(*(each.array if isinstance(each, Lent) else each for each in arguments))
    with with_backend(GPU):
        for _ in settings("eager forward", "lazy shuffled seed=3"):
            found = staged(*arguments)
            pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
            for one, other in pairs:
                one, other = np.asarray(one).astype(np.float64), np.asarray(other).astype(np.float64)
                np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * max(1.0, np.abs(other).max()))
        text: str = staged.stage(*arguments).source
    return text


# ---- arrays of the caller ------------------------------------------------------------------------


@pytest.mark.parametrize(("late", "copies"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 0)])
def test_an_array_of_another_library_is_copied_once_per_call_if_it_is_misaligned(
    late: int, copies: int, device: Emulator
) -> None:
    double = st.function(lambda x: x * 2.0 + 1.0)
    with with_backend(GPU):
        for _ in range(2):
            lent = Lent(DATA[:N], late)
            before = device.counts()
            found = double(lent)
            seen = device.counts() - before
            np.testing.assert_allclose(found, DATA[:N] * 2.0 + 1.0, rtol=1e-6)
            assert (seen.copies_on_device, seen.copies_to_device) == (copies, 0)
        program = double.stage(lent)
    text = program.source
    assert "on gpu at a multiple of 16 bytes" in program.header
    assert PACK in text
    assert CHECK in text


def test_a_program_that_reads_single_elements_takes_any_address(device: Emulator) -> None:
    double = st.function(lambda x: x * 2.0 + 1.0)
    lent = Lent(DATA[:32])
    with with_backend(GPU):
        before = device.counts()
        np.testing.assert_allclose(double(lent), DATA[:32] * 2.0 + 1.0, rtol=1e-6)
        assert (device.counts() - before).copies_on_device == 0
        assert CHECK not in double.stage(lent).source


def test_an_address_between_elements_is_copied(device: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even threads that read single elements need whole ones."""
    borrowed = CudaProgram.borrowed

    def checked(*arguments: Any) -> Any:
        place = borrowed(*arguments)
        assert int(ffi.cast("uintptr_t", place.address)) % 4 == 0
        return place

    monkeypatch.setattr(CudaProgram, "borrowed", checked)

    class Between(Lent):
        def __init__(self, array: Any) -> None:
            super().__init__(array, 0)
            bytes_ = np.frombuffer(b"\0" + array.tobytes() + b"\0\0\0", np.uint8)
            self.lent = Lent(bytes_, 0)
            self.address = self.lent.address + 1

    double = st.function(lambda x: x * 2.0)
    with with_backend(GPU):
        before = device.counts()
        np.testing.assert_allclose(double(Between(DATA[:32])), DATA[:32] * 2.0, rtol=1e-6)
        assert (device.counts() - before).copies_on_device == 1


def test_the_copy_follows_the_work_of_the_library(device: Emulator) -> None:
    """The library's work is on the null stream by the time that its array is lent."""
    copy = device.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")
    double = st.function(lambda x: x * 2.0 + 1.0)
    with with_backend(GPU):
        double(Lent(DATA[:N]))
        for seed in range(6):
            late, source = Lent(np.zeros(N, np.float32)), Lent(DATA[:N], 0)
            device.configure(f"lazy shuffled seed={seed}")
            address = ffi.cast("void *", late.address)
            assert copy(address, source.place.address, 4 * N, 3, ffi.NULL) == 0
            np.testing.assert_allclose(double(late), DATA[:N] * 2.0 + 1.0, rtol=1e-6)
    device.configure("")


def test_no_room_for_the_copy_names_the_array(device: Emulator) -> None:
    double = st.function(lambda values: values * 2.0 + 1.0)
    with with_backend(GPU):
        double(Lent(DATA[:N], 0))
        lent = Lent(DATA[:N])
        device.configure("memory=40000")
        with pytest.raises(ProgramMemoryError, match=r"no room for a copy of `values` \(8192,\) on the GPU"):
            double(lent)
    device.configure("")


@pytest.mark.parametrize("count", [1, 2])
def test_a_caller_in_c_gets_an_error(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers other than the runtime copy misaligned arrays: the entry function checks the addresses before it does anything."""

    def in_place(program: Any, device: str, address: int, nbytes: int, stream: Any, alignment: int, owner: Any) -> Any:
        return BorrowedPlace(device, address, nbytes, stream, 1, owner)

    monkeypatch.setattr(CudaProgram, "borrowed", in_place)
    function = (lambda x: x * 2.0) if count == 1 else (lambda x, y: x * y)
    staged, given = st.function(function), [Lent(DATA[:N], number) for number in (1, 0)[:count]]
    with with_backend(GPU):
        assert CHECK in staged.stage(*given).source
        with pytest.raises(ProgramValueError, match="is at 0x[0-9a-f]*[48c], not at a multiple of 16 bytes"):
            staged(*given)


# ---- parameters of functions ---------------------------------------------------------------------


def recursive() -> Any:
    @st.function
    def g(x: Any, n: Any) -> Any:
        y = x * 2.0 + 1.0
        return st.sum(y) if n <= 0 else g(x, n - 1) + st.sum(y)

    return g


def test_a_parameter_has_the_alignment_of_its_least_aligned_argument() -> None:
    g = recursive()

    def f(data: Any, n: Any) -> Any:
        return g(data[1 : N + 1], n), g(data[8 : N + 8], n)

    text = run(f, DATA, 2)
    assert f"*(const {PACK} *)(x + " not in text


def test_a_parameter_of_aligned_arguments_is_read_in_packs() -> None:
    g = recursive()
    assert f"*(const {PACK} *)(x + " in run(lambda data, n: (g(data[:N], n), g(data[8 : N + 8], n)), DATA, 2)


def test_what_a_recursive_function_passes_on_counts() -> None:
    @st.function
    def halves(x: Any, n: Any) -> Any:
        y = st.sum(x * 2.0 + 1.0)
        return y if n <= 0 else halves(st.reshape(st.concat([x, x])[1 : N + 1], (N,)), n - 1) + y

    text = run(lambda data, n: halves(data[:N], n), DATA, 2)
    assert f"*(const {PACK} *)(x + " not in text


def test_arrays_of_the_caller_reach_kernels_through_functions(device: Emulator) -> None:
    """The check of the entry function covers what only a function reads in packs."""
    g = recursive()
    staged = st.function(lambda x, n: g(x, n))
    with with_backend(GPU):
        assert CHECK in staged.stage(Lent(DATA[:N]), 2).source
        before = device.counts()
        found = staged(Lent(DATA[:N]), 2)
        assert (device.counts() - before).copies_on_device >= 1
    np.testing.assert_allclose(found, 3 * np.sum(DATA[:N] * 2.0 + 1.0), rtol=1e-4)


# ---- operands of libraries -----------------------------------------------------------------------


def gelu(x: Any) -> Any:
    return st.gelu(x, approximate="tanh")


@pytest.mark.parametrize("activation", [lambda x: x, gelu, st.relu])
def test_the_bias_of_an_epilogue_is_copied_if_it_is_misaligned(activation: Any, device: Emulator) -> None:
    copied = "// b: to a multiple of 16 bytes (alignment)"
    assert copied in run(lambda a, w, b: activation(a @ w + b[1:]), A, W, B)
    assert copied not in run(lambda a, w, b: activation(a @ w + b[:48]), A, W, B)
    run(lambda a, w, b: activation(a @ w + b), Lent(A), Lent(W), Lent(B[:48]))


def test_the_algorithm_of_a_product_is_chosen_for_the_alignment_of_its_matrices() -> None:
    def f(a: Any, w: Any, b: Any) -> Any:
        return a @ st.reshape(w[1:], (64, 48)) + b

    text = run(f, A, np.append(W[:1, 0], W), B[:48])
    assert "product_48x32x64_NN_bias_aligned_4" in text


def test_the_gradient_of_a_bias_is_computed_with_misaligned_operands() -> None:
    def f(x: Any, y: Any) -> Any:
        x, y = st.reshape(x[1:], (32, 64)), st.reshape(y[1:], (32, 48))
        return x.T @ y, st.sum(y, axis=0)

    run(f, np.append(A[:1, 0], A), RANDOM.normal(size=1 + 32 * 48).astype(np.float32))


def test_a_copied_bias_is_part_of_the_graph_of_a_loop(device: Emulator) -> None:
    def f(a: Any, w: Any, b: Any) -> Any:
        for _ in st.range(12):
            a = st.tanh(gelu(a @ w + b[1:]) @ w.T)
            a = gelu(a @ w + b[1:]) @ w.T * 0.1
        return a

    device.configure("")
    staged = st.function(f)
    with with_backend(GPU):
        found = staged(A, W, B)
        before = device.counts()
        staged(A, W, B)
        assert (device.counts() - before).graph_launches > 8
    with st.eager():
        np.testing.assert_allclose(found, staged(A, W, B), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_the_operands_of_attention_are_copied_if_they_are_misaligned(dtype: Any) -> None:
    shape, count = (2, 4, 16, 32), 2 * 4 * 16 * 32
    big, k = RANDOM.normal(size=count + 1).astype(dtype), RANDOM.normal(size=shape).astype(dtype)

    def f(big: Any, k: Any) -> Any:
        def loss(q: Any) -> Any:
            return st.sum(st.astype(st.scaled_dot_product_attention(st.reshape(q, shape), k, k), st.f32))

        q = big[1:]
        return st.scaled_dot_product_attention(st.reshape(q, shape), k, k), st.grad(loss)(q)

    text = run(f, big, k, rtol=3e-2)
    assert "q: to a multiple of 16 bytes (alignment)" in text


def test_attention_of_lent_arrays(device: Emulator) -> None:
    q, k, v = (RANDOM.normal(size=(2, 4, 16, 32)).astype(np.float16) for _ in "qkv")
    run(lambda q, k, v: st.scaled_dot_product_attention(q, k, v), Lent(q), Lent(k, 0), Lent(v, 3), rtol=4e-3)


def test_residuals_of_attention_in_a_loop(device: Emulator) -> None:
    """20 bytes of logarithms are kept for each iteration: what cuDNN writes is aligned nevertheless."""
    x = RANDOM.normal(size=(1, 1, 5, 8)).astype(np.float16)

    def f(x: Any) -> Any:
        def loss(x: Any) -> Any:
            y = x
            for _ in st.range(3):
                y = st.scaled_dot_product_attention(y, x, x)
            return st.sum(st.astype(y, st.f32) ** 2)

        return st.grad(loss)(x)

    run(f, x, rtol=2e-2)


# ---- programs that only copy ---------------------------------------------------------------------


@pytest.mark.parametrize("function", [lambda x: x * 1, lambda x: x[3], lambda x: x[2:]])
def test_a_program_that_only_copies_reads_the_device(function: Any) -> None:
    """Such a program was written for the host alone, which read an address of the device."""
    for given in (Lent(DATA[:32]), DATA[:32]):
        with with_backend(GPU, *([given] if isinstance(given, np.ndarray) else [])):
            staged = st.function(function)
            assert "cudaMemcpyAsync" in staged.stage(given).source
            np.testing.assert_array_equal(staged(given), function(DATA[:32]))
