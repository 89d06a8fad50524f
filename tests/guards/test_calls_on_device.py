"""Guarded calls in a region: Variables and arrays of the device pass as addresses; the host waits for results alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.runtime.cuda.resident import DeviceCopy
from staged.runtime.guard import ffi

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def training() -> tuple[Any, Any]:
    st.seed(3)
    model = nn.Linear(4, 1)
    optimizer = optim.Adam(model.parameters(), lr=0.05)

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.mean((model(x) - y) ** 2), wrt=model)()
        optimizer.step(grads)
        return loss

    return model, step


def test_a_call_waits_once_for_its_result_and_moves_nothing_else(emulated_device: Any) -> None:
    _, on_host = training()
    wanted = [float(on_host(X, Y)) for _ in range(6)]
    model, step = training()
    found = []
    with st.with_backend(st.GPU, X, Y):
        found.append(float(step(X, Y)))
        for _ in range(3):
            before = emulated_device.counts()
            found.append(float(step(X, Y)))
            seen = emulated_device.counts() - before
            moved = (seen.copies_to_device, seen.bytes_to_host, seen.allocations, seen.copies_on_device)
            assert moved == (0, 4, 0, 0)
            assert seen.synchronisations == 1
    with st.with_backend(st.GPU):  # a batch of its own for each call: it moves, and nothing waits for it
        found.append(float(step(X.copy(), Y.copy())))
        before = emulated_device.counts()
        found.append(float(step(X.copy(), Y.copy())))
        seen = emulated_device.counts() - before
        assert (seen.bytes_to_device, seen.bytes_to_host, seen.synchronisations) == (X.nbytes + Y.nbytes, 4, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert model.weight.numpy().shape == (1, 4)


def test_a_program_of_the_host_takes_what_the_device_has_written(emulated_device: Any) -> None:
    """The buffers of the call before are not those that hold the weights now."""
    _, on_host = training()
    wanted = [float(on_host(X, Y)) for _ in range(6)]
    _, step = training()
    found = [float(step(X, Y)) for _ in range(2)]
    with st.with_backend(st.GPU, X, Y):
        found += [float(step(X, Y)) for _ in range(2)]
    found += [float(step(X, Y)) for _ in range(2)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


class Tensor:
    """Stands for cupy's arrays and PyTorch's tensors on a device: it has memory there, and NumPy cannot read it."""

    def __init__(self, array: Any, device: Any, stream: int | None = None, strides: Any = None) -> None:
        self.place = DeviceCopy("gpu", array.nbytes)
        self.place.update(array)
        self.interface = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (int(ffi.cast("uintptr_t", self.place.address)), False),
            "version": 3, "stream": stream, "strides": strides,
        }  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.interface

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        raise TypeError("implicit conversion to NumPy is not allowed")


def test_tensors_of_the_device_are_read_in_place(emulated_device: Any) -> None:
    double = st.function(lambda x, y: x * 2.0 + y)
    with st.with_backend(st.GPU):
        for number in range(4):
            tensor = Tensor(X + np.float32(number), emulated_device, stream=1 if number == 3 else None)
            before = emulated_device.counts()
            found = double(tensor, 1.0)
            seen = emulated_device.counts() - before
            np.testing.assert_allclose(found, (X + number) * 2 + 1, rtol=1e-6)
            if number:
                assert (seen.bytes_to_device, seen.bytes_to_host, seen.allocations) == (0, 0, number == 1)
                assert seen.synchronisations == 1  # the result; the program waits for the tensor's own stream, the host does not
        assert [program.calls for program in double.programs] == [4]
        assert double(Tensor(X[:3].copy(), emulated_device), 1.0).shape == (3, 4)
        assert double(X, 1.0).tolist() == (X * 2 + 1).tolist()
        program = double.stage(tensor, 1.0)
        np.testing.assert_allclose(program(tensor, 1.0), (X + 3) * 2 + 1, rtol=1e-6)


def test_work_on_the_stream_of_a_tensor_is_over_before_it_is_read(emulated_device: Any) -> None:
    """Here a copy that the legacy stream has still to do: the program's stream is none that it waits for by itself."""
    double = st.function(lambda x: x * 2.0)
    copy = emulated_device.function("cudaMemcpyAsync", "int (*)(void *, void *, size_t, int, void *)")
    device_to_device, legacy = 3, ffi.NULL
    emulated_device.configure("lazy")
    with st.with_backend(st.GPU):
        for number in range(1, 4):
            tensor, later = Tensor(X, emulated_device, stream=1), Tensor(X + np.float32(number), emulated_device)
            assert copy(tensor.place.address, later.place.address, X.nbytes, device_to_device, legacy) == 0
            np.testing.assert_array_equal(double(tensor), (X + np.float32(number)) * 2)


def test_an_interface_that_names_no_stream_is_read_after_the_legacy_stream(emulated_device: Any) -> None:
    """Before version 3 it could not; a `stream` of None in version 3 means that nothing is pending."""
    double = st.function(lambda x: x * 2.0)
    copy = emulated_device.function("cudaMemcpyAsync", "int (*)(void *, void *, size_t, int, void *)")
    emulated_device.configure("lazy")
    with st.with_backend(st.GPU):
        double(Tensor(X, emulated_device))
        for number in range(1, 4):
            tensor, later = Tensor(X, emulated_device), Tensor(X + np.float32(number), emulated_device)
            del tensor.interface["stream"]
            tensor.interface["version"] = 2
            assert copy(tensor.place.address, later.place.address, X.nbytes, 3, ffi.NULL) == 0
            np.testing.assert_array_equal(double(tensor), (X + np.float32(number)) * 2)


def test_tensors_of_the_device_that_cannot_be_read_are_refused(emulated_device: Any) -> None:
    double = st.function(lambda x: x * 2.0)
    with st.with_backend(st.GPU):
        with pytest.raises(st.DTypeError, match="not one after another"):
            double(Tensor(X, emulated_device, strides=(4, 32)))
        assert (double(Tensor(X.astype(np.complex64) * 1j, emulated_device)) == X * 2j).all()
        assert double(Tensor(X, emulated_device, strides=(16, 4))).shape == X.shape
    with st.eager(), pytest.raises(st.StagedError, match="read on the host"):
        double(Tensor(X, emulated_device))
