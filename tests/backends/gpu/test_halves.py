"""f16 and bf16 in regions: CUDA on the emulated device and OpenCL compute what the host does."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import staged as st
from staged import GPU, nn, optim, with_backend
from tests import opencl_device

RNG = np.random.default_rng(0)


@pytest.fixture(params=["cuda", "opencl"])
def using(request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of a region of each back end."""
    if request.param == "opencl":
        opencl_device.require()
        return {"using": "opencl"}
    request.getfixturevalue("emulated_device")
    return {}


def results(x: Any, w: Any, images: Any, taps: Any, table: Any) -> Any:
    h = st.gelu(x @ w * 0.1 + w[0])
    return (
        h,
        st.softmax(x),
        st.sum(x, axis=0),
        st.mean(x),
        st.max(x, axis=1),
        st.sort(x),
        x.T[::2],
        st.where(x > 0, x, 0.5),
        st.conv2d(images, taps),
        table[st.asarray([3, 0, 3])],
        st.grad(lambda t: st.sum(t[st.asarray([3, 0, 3])] ** 2))(table),
        st.cumsum(x, axis=1),
        st.astype(x, st.i32),
        st.astype(x, st.f64),
        x.bfloat16(),
        x.half(),
        st.isfinite(x),
    )


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_regions_compute_what_the_host_does(half: Any, using: dict[str, str]) -> None:
    shapes = ((9, 7), (7, 5), (2, 3, 6, 5), (4, 3, 3, 3), (4, 3))
    given = [RNG.normal(size=shape).astype(half) for shape in shapes]
    given[0][0, :3] = np.array([0.0, 6e-8, -300.0]).astype(half)

    @st.function
    def on_device(*arrays: Any) -> Any:
        with with_backend(GPU, **using):
            return results(*arrays)

    for number, (ours, host) in enumerate(zip(on_device(*given), st.function(results)(*given), strict=True)):
        assert ours.dtype == host.dtype, number
        # Sums in f32 in another order may be rounded to the neighbour.
        rtol = {2: 1e-3, 1: 0}.get(ours.dtype.itemsize, 0) if ours.dtype != ml_dtypes.bfloat16 else 8e-3
        scale = np.abs(host.astype(np.float64)).max()
        np.testing.assert_allclose(
            ours.astype(np.float64),
            host.astype(np.float64),
            rtol=rtol,
            atol=1e-3 * scale * (rtol > 0),
            err_msg=str(number),
        )


def test_a_model_trains_in_low_precision_as_on_the_host(using: dict[str, str]) -> None:
    x = RNG.normal(size=(16, 6)).astype(np.float32)
    y = x[:, :2] * 0.5

    def train(x: Any, y: Any, steps: Any) -> Any:
        st.seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
        opt, scaler = optim.Adam(model.parameters(), lr=0.05), optim.GradScaler(growth_interval=3)

        def scaled() -> Any:
            with st.autocast(st.f16):
                return scaler.scale(st.mse_loss(model(x), y))

        loss = 0.0
        for _ in st.range(steps):
            loss, grads = st.value_and_grad(scaled, wrt=model)()
            loss = loss / scaler.get_scale()
            scaler.step(opt, grads)
            scaler.update()
        return loss, scaler.get_scale()

    @st.function
    def on_device(x: Any, y: Any, steps: Any) -> Any:
        with with_backend(GPU, **using):
            return train(x, y, steps)

    loss, scale = on_device(x, y, 20)
    expected, expected_scale = st.function(train)(x, y, 20)
    assert scale == expected_scale
    np.testing.assert_allclose(loss, expected, rtol=2e-2)


def test_prints_and_nan_checks_know_halves(capsys: pytest.CaptureFixture[str], using: dict[str, str]) -> None:
    @st.function
    def show(x: Any) -> Any:
        with with_backend(GPU, **using):
            y = x * 2
            print(f"{y[0]} {y}")
            return y

    for half in (np.float16, ml_dtypes.bfloat16):
        show(np.array([0.05, 0.5]).astype(half))
        assert capsys.readouterr().out == "0.1 [0.1 1.0]\n"


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_packs_of_sixteen_bytes(half: Any, using: dict[str, str]) -> None:
    x = RNG.normal(size=(64, 128)).astype(half)

    @st.function
    def on_device(x: Any) -> Any:
        with with_backend(GPU, **using):
            return x * x * 0.5

    with st.eager():
        expected = on_device(x)
    np.testing.assert_array_equal(on_device(x), expected)
