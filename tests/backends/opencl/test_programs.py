"""Programs for OpenCL: what they compute on PoCL, their text, and what is refused, with the line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, optim, with_backend
from staged.backends import opencl
from tests import opencl_device

RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=shape).astype(np.float32) for shape in ((37, 19), (19, 5)))
IMAGES, TAPS = (RNG.normal(size=shape).astype(np.float32) for shape in ((4, 3, 9, 11), (6, 3, 3, 2)))


@pytest.fixture
def device() -> None:
    """An OpenCL device: the extra `opencl` brings one."""
    opencl_device.require()


def on_opencl(body: Callable[..., Any]) -> Callable[..., Any]:
    def program(*args: Any) -> Any:
        with with_backend(GPU, using="opencl"):
            return body(*args)

    return st.function(program)


def loop(x: Any, n: Any) -> Any:
    for _ in st.range(n):
        x = st.tanh(x) * 1.5
        if st.sum(x) > 0.0:
            x = x - 0.25
    return x


def gradient_of_steps(x: Any) -> Any:
    def total(x: Any) -> Any:
        for _ in st.range(4):
            x = st.tanh(x) * 1.5
        return st.sum(x)

    return st.grad(total)(x)


def gradient_of_unbounded_steps(x: Any, n: Any) -> Any:
    def total(x: Any) -> Any:
        for _ in st.range(n):
            x = st.tanh(x.T.reshape(x.shape) * 1.5)
        return st.sum(x)

    return st.grad(total)(x)


def train(x: Any, y: Any, w: Any) -> Any:
    weight = st.Variable(w)
    optimiser = optim.Adam([weight], lr=0.1)
    loss = 0.0
    for _ in st.range(3):
        loss, gradients = st.value_and_grad(lambda: st.mean((st.tanh(x @ weight) - y) ** 2), wrt=[weight])()
        optimiser.step(gradients)
    return loss, weight.value


def gradients_of_convolution(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        return st.sum(st.tanh(st.conv2d(x, w, stride=(2, 1), padding=(1, 2))) ** 2)

    return st.grad(loss, argnums=(0, 1))(x, w)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "elementwise": (lambda x, y: st.tanh(x) * 2.0 + y, (X, X[0])),
    "softmax": (lambda x: st.softmax(x, axis=1), (X,)),
    "sums": (lambda x: (st.sum(x), st.sum(x, axis=0), st.max(x, axis=1), st.argmax(x, axis=1)), (X,)),
    "a product": (lambda x, w: st.relu(x @ w + 1.0), (X, W)),
    "a product of transposes": (lambda x, w: w.T @ x.T, (X, W)),
    "a gradient": (lambda x, w: st.grad(lambda w: st.mean((x @ w) ** 2))(w), (X, W)),
    "a transpose": (lambda x: x.T + 1.0, (X,)),
    "bools": (lambda x: (x > 0.0) & (x < 1.0), (X,)),
    "f64": (lambda x: st.exp(x.astype(st.f64)), (X,)),
    "integers": (lambda x: (x * 10.0).astype(st.i32) * 3 + 1, (X,)),
    "pieces": (lambda x: st.concat([x, x[3:9] * 2.0], axis=0), (X,)),
    "random numbers": (lambda x: x + st.random.Generator(7).normal(x.shape), (X,)),
    "a loop": (loop, (X, 5)),
    "a gradient of steps": (gradient_of_steps, (X,)),
    "a gradient of unbounded steps": (gradient_of_unbounded_steps, (X, 40)),
    "a gradient of no steps": (gradient_of_unbounded_steps, (X, 0)),
    "training": (train, (X, X[:, :5].copy(), W)),
    "a gather": (lambda x, i: x[i] * 2.0, (X, np.array([1, -3, 5]))),
    "a gradient of a gather": (lambda x, i: st.grad(lambda x: st.sum(x[i] ** 2))(x), (X, np.array([1, 1, 36]))),
    "divisions": (lambda x, n: (x * 9.0).astype(st.i32) // n + (x * 9.0).astype(st.i32) % n, (X, 3)),
    "no elements": (lambda x: x[:0] * 2.0, (X,)),
    "a convolution": (lambda x, w: st.relu(st.conv2d(x, w, stride=2, padding=1)), (IMAGES, TAPS)),
    "a convolution of groups": (lambda x, w: st.conv2d(x, w, dilation=2, groups=3), (IMAGES, TAPS[:, :1])),
    "a convolution's gradients": (gradients_of_convolution, (IMAGES, TAPS)),
    "pooling": (lambda x: st.grad(lambda x: st.sum(st.max_pool2d(x, 3, 2) ** 2))(x), (IMAGES,)),
    "pooling in wide windows": (
        lambda x: st.grad(lambda x: st.sum(st.max_pool2d(x, 3, 1, 1, 2) ** 2))(x),
        (IMAGES,),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_the_host_gives(name: str, device: None) -> None:
    body, arguments = PROGRAMS[name]
    program = on_opencl(body)
    for _ in range(2):  # what the first call has made stays
        results, wanted = (_list(each(*arguments)) for each in (program, st.function(body)))
        for got, expected in zip(results, wanted, strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


FAILING: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, str]] = {
    "an index": (lambda x, i: x[i] + 1.0, (X, np.array([1, 37])), IndexError, "index 37 is out of range"),
    "a number": (
        lambda x, n: st.vmap(lambda n: x.astype(st.u8) + int(n))(n),
        (X, np.array([3, 256])),
        OverflowError,
        r"256 does not fit u8 \(0 to 255\)",
    ),
    "a division": (lambda x, n: x.astype(st.i32) // n, (X, 0), ZeroDivisionError, "division or modulo by zero"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_kernel_stops_the_program_with_its_line(name: str, device: None) -> None:
    body, arguments, kind, words = FAILING[name]
    program = on_opencl(body)
    for _ in range(2):  # the next call begins anew
        with pytest.raises(kind, match=words) as error:
            program(*arguments)
        assert "test_programs.py" in str(error.value)


def test_the_loader_of_the_wheel_finds_its_drivers_by_itself(device: None) -> None:
    """Without `import pyopencl`, which looks for them too."""
    code = "import sys, staged.runtime.opencl as o; o.devices().device(0); print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_nan_on_the_device_stops_the_program_with_its_line(device: None) -> None:
    @st.function(check_nan=True)
    def root(x: Any) -> Any:
        with with_backend(GPU, using="opencl"):
            y = st.tanh(x) + 1.0
            z = st.sqrt(y - 1.0) @ W
        return z

    np.testing.assert_allclose(root(np.abs(X)), np.sqrt(np.tanh(np.abs(X))) @ W, rtol=1e-4)
    with pytest.raises(FloatingPointError, match="has NaN") as error:
        root(X)
    assert "test_programs.py" in str(error.value)


def test_variables_and_arrays_stay_on_the_device(device: None) -> None:
    total = st.Variable(np.zeros(19, np.float32))

    @st.function
    def add(x: Any) -> Any:
        total.value = total.value + st.sum(x, axis=0)
        return total.value * 2.0

    with with_backend(GPU, X, using="opencl") as x:
        add(x)
        np.testing.assert_allclose(add(x), 4 * X.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(total.numpy(), 2 * X.sum(axis=0), rtol=1e-4)


def test_arrays_and_variables_move_between_runtimes(device: None, emulated_device: Any) -> None:
    total = st.Variable(np.zeros(19, np.float32))
    names = ("opencl", "cublas_cudnn", "cublas_cudnn", "opencl", "opencl")

    def add(x: Any) -> Any:
        total.value = total.value + st.sum(x, axis=0)
        return total.value * 2.0

    for number, name in enumerate(names, 1):
        with with_backend(GPU, X, using=name) as x:
            np.testing.assert_allclose(st.function(add)(x), 2 * number * X.sum(axis=0), rtol=1e-4)
    np.testing.assert_allclose(total.numpy(), len(names) * X.sum(axis=0), rtol=1e-4)


def test_the_text_says_what_runs_where() -> None:
    text = on_opencl(lambda x: st.tanh(x) * 2.0).stage(X).source
    assert "// backend opencl" in text
    assert (
        '    "__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void tanh_kernel(__global const float *' in text
    )
    assert "static int launch_tanh(const Device *gpu, const float *" in text
    assert ": to the device (input)" in text and "st_ocl_copy(gpu->device, " in text


def several(x: Any) -> Any:
    y = x * 2.0
    with with_backend(st.GPU(1)):
        y = st.tanh(y)
    return y


@st.function
def halved(x: Any, n: Any) -> Any:
    if n > 0:
        return halved(st.tanh(x), n - 1)
    return x


REFUSED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str, str]] = {
    "several devices": (several, (X,), "several devices", "y = st.tanh(y)"),
    "recursion": (halved, (X, 3), "a recursive function with work on the device", "st.tanh(x)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_written_yet_is_refused_with_its_line(name: str) -> None:
    body, arguments, words, line = REFUSED[name]
    with pytest.raises(st.errors.UnsupportedError, match=f"the back end 'opencl' cannot write {words}") as error:
        on_opencl(body).stage(*arguments).source  # noqa: B018
    assert error.value.where is not None and line in error.value.where.text


def _list(values: Any) -> list[Any]:
    return [np.asarray(value) for value in (values if isinstance(values, tuple) else (values,))]


def test_the_back_end_is_short() -> None:
    """Its own lines, without blank ones; what it shares with other back ends lies in their families' folders."""
    folder = Path(opencl.__file__).parent
    lines = [line for path in folder.glob("*.py") for line in path.read_text().splitlines() if line.strip()]
    assert len(lines) <= 600
