"""`optim.GradScaler`: torch's scales, skipped steps and states, in programs and in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import optim
from tests.torch_reference import reference

FACTORS = np.array([1, 1, np.inf, 1, 1, 1, np.nan, np.inf, 1, 1, 1, 1], np.float32)
"""The factor of each step's loss."""
OPTIONS = {"init_scale": 1024.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}
START = np.array([1.0, -2.0], np.float32)


def of_torch(torch: Any, factors: Any, clips: bool) -> Any:
    """(weights, scale, tracker) after each step."""
    w = torch.nn.Parameter(torch.tensor(START))
    opt, scaler = torch.optim.SGD([w], lr=0.1), torch.amp.GradScaler("cpu", **OPTIONS)
    found = []
    for factor in factors:
        opt.zero_grad()
        scaler.scale((w * w).sum() * float(factor)).backward()
        if clips:
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_value_([w], 1.0)
        scaler.step(opt)
        scaler.update()
        state = scaler.state_dict()
        found.append((w.detach().numpy().copy(), state["scale"], state["_growth_tracker"]))
    return found


def of_ours(factors: Any, clips: bool, mode: str) -> Any:
    w = st.Variable(START.copy(), name="w")
    opt, scaler = optim.SGD([w], lr=0.1), optim.GradScaler("cpu", **OPTIONS)

    def step(factor: Any) -> Any:
        grads = st.grad(lambda: scaler.scale(st.sum(w.value * w.value) * factor), wrt=[w])()
        if clips:
            grads = optim.clip_grad_value(scaler.unscale(grads), 1.0)
        scaler.step(opt, grads)
        scaler.update()
        return w.value, scaler.factor.value, scaler.growth_tracker.value

    if mode == "whole":

        @st.function
        def run(factors: Any) -> Any:
            rows = []
            for i in range(len(FACTORS)):
                rows.append(step(factors[i]))
            return rows

        return [tuple(np.array(x) for x in row) for row in run(factors)]
    call = st.function(step) if mode == "step" else step
    return [tuple(np.array(x) for x in call(factor)) for factor in factors]


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("mode", ["step", "whole", "plain"])
def test_scales_and_weights_are_those_of_torch(mode: str, clips: bool) -> None:
    expected = reference(lambda torch, factors: of_torch(torch, factors, clips), FACTORS)
    for ours, theirs in zip(of_ours(FACTORS, clips, mode), expected, strict=True):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-6)
        assert (float(ours[1]), int(ours[2])) == (float(theirs[1]), int(theirs[2]))


def test_small_f16_gradients_are_kept_by_the_scale() -> None:
    """A gradient of 1e-8 is 0 in f16; times 2^16 it is not."""
    w = st.Variable(np.ones(3, np.float32), name="w")
    opt, scaler = optim.SGD([w], lr=1e6), optim.GradScaler()

    @st.function
    def step(scaled: bool) -> Any:
        def loss() -> Any:
            y = st.sum(st.astype(st.astype(w.value, st.f16), st.f32) * 1e-8)
            return scaler.scale(y) if scaled else y

        return st.grad(loss, wrt=[w])()

    assert np.asarray(step(False)[0]).max() == 0
    scaler.step(opt, step(True))
    np.testing.assert_allclose(np.asarray(w.value), 0.99, rtol=1e-4)


def test_states_go_to_torch_and_back() -> None:
    def theirs(torch: Any) -> Any:
        scaler = torch.amp.GradScaler("cpu", **OPTIONS)
        scaler.scale(torch.ones(()))
        return {name: float(value) for name, value in scaler.state_dict().items()}

    state = reference(theirs)
    ours = optim.GradScaler()
    assert ours.state_dict().keys() == state.keys()
    ours.load_state_dict(state)
    assert {name: float(value) for name, value in ours.state_dict().items()} == state
    assert float(ours.get_scale()) == 1024
    with pytest.raises(st.StateDictError, match="_growth_tracker"):
        ours.load_state_dict({"scale": 1.0, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval": 1})


def test_one_that_is_not_enabled_does_nothing() -> None:
    w = st.Variable(np.ones(2, np.float32), name="w")
    scaler = optim.GradScaler(enabled=False)
    assert scaler.scale(3.0) == 3.0
    scaler.step(optim.SGD([w], lr=1.0), scaler.unscale([np.ones(2, np.float32)]))
    scaler.update()
    assert np.asarray(w.value).tolist() == [0, 0]
    assert (scaler.state_dict(), scaler.get_scale(), scaler.is_enabled()) == ({}, 1.0, False)


def test_a_scale_can_be_set_and_does_not_become_infinite() -> None:
    scaler = optim.GradScaler(growth_interval=1)
    scaler.update(3e38)
    scaler.update()
    assert float(scaler.get_scale()) == pytest.approx(3e38)
    with pytest.raises(st.ArgumentError, match="growth_factor is above 1"):
        optim.GradScaler(growth_factor=1.0)
    with pytest.raises(st.ArgumentError, match="takes an optimiser"):
        scaler.step([np.ones(2)], None)


# ---- parameters in half precision ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Lion"]
)
@pytest.mark.parametrize("half", [st.f16, st.bf16])
def test_half_parameters_step_as_f32_rounded_once(name: str, half: Any) -> None:
    start = np.linspace(-1, 1, 12).astype(half.numpy).reshape(3, 4)
    grads = np.random.default_rng(1).normal(size=(4, 3, 4)).astype(np.float32)
    options = {"momentum": 0.9} if name == "SGD" else {}
    found = []
    for dtype in (half, st.f32):
        w = st.Variable(start.astype(dtype.numpy), name="w")
        opt = getattr(optim, name)([w], lr=0.05, **options)
        for grad in grads:
            opt.step([grad.astype(half.numpy).astype(dtype.numpy)])
            if dtype is st.f32:
                w.value = w.value.astype(half.numpy).astype(np.float32)
        found.append(np.asarray(w.value).astype(np.float32))
        assert st.dtype_of(w.dtype) is dtype
    np.testing.assert_array_equal(*found)
    saved = opt.state_dict()
    opt.load_state_dict(saved)


def test_accumulated_steps_take_half_parameters() -> None:
    w = st.Variable(np.ones(2, np.float16), name="w")
    many = optim.MultiSteps(optim.SGD([w], lr=1.0), 2)
    for grad in (0.25, 0.75):
        many.step([np.full(2, grad, np.float16)])
    assert np.asarray(w.value).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("half", [st.f16, st.bf16])
def test_clipping_and_unscaling_compute_halves_in_f32(half: Any) -> None:
    large, small = st.full(3, 300.0, dtype=half), st.full(3, 2e-8 * 2.0**16, dtype=half)
    (clipped,), norm = optim.clip_grad_norm([large], 0.5)
    np.testing.assert_allclose(np.asarray(norm), 300 * 3**0.5, rtol=1e-2)
    np.testing.assert_allclose(np.asarray(clipped).astype(np.float32), 0.5 / 3**0.5, rtol=1e-2)
    scaler = optim.GradScaler(init_scale=2.0**16)
    np.testing.assert_allclose(np.asarray(scaler.unscale([small])[0]).astype(np.float32), 2e-8, rtol=1e-2)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_a_limit_of_gradients_is_not_negative(limit: float) -> None:
    with pytest.raises(st.ArgumentError, match="max_norm must be at least 0"):
        optim.clip_grad_norm([np.ones(3)], limit)
    with pytest.raises(st.ArgumentError, match="clip_value must be at least 0"):
        optim.clip_grad_value([np.ones(3)], limit)
