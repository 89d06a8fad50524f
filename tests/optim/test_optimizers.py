"""Optimisers and clipping against torch's: the same steps from the same gradients, in one generated program."""

import numpy as np
import pytest

import staged as st
from staged import optim
from tests.torch_reference import reference

STEPS = 5
GRADS = np.random.default_rng(0).standard_normal((STEPS, 2, 3))
START = np.random.default_rng(1).standard_normal((2, 3))

CASES = {
    "sgd": (optim.SGD, "SGD", {"lr": 0.1}),
    "sgd_decay": (optim.SGD, "SGD", {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": (optim.SGD, "SGD", {"lr": 0.1, "momentum": 0.9}),
    "nesterov": (optim.SGD, "SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "adagrad": (optim.Adagrad, "Adagrad", {"lr": 0.05}),
    "adagrad_decay": (optim.Adagrad, "Adagrad", {"lr": 0.05, "lr_decay": 0.1, "weight_decay": 0.02}),
    "adam": (optim.Adam, "Adam", {"lr": 0.01}),
    "adam_decay": (optim.Adam, "Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    "adamw": (optim.AdamW, "AdamW", {"lr": 0.01}),
    "adamw_eps": (optim.AdamW, "AdamW", {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-3}),
}


def with_torch(name, options):
    def compute(torch, start, grads):
        param = torch.nn.Parameter(torch.tensor(start))
        opt = getattr(torch.optim, name)([param], **options)
        for grad in grads:
            param.grad = torch.tensor(grad)
            opt.step()
        return param

    return reference(compute, START, GRADS)


@pytest.mark.parametrize("case", CASES)
def test_a_staged_optimiser_takes_torchs_steps(case):
    ours, name, options = CASES[case]

    @st.function
    def run(start, grads):
        w = st.Variable(start, name="w")
        opt = ours([w], **options)
        for grad in grads:
            opt.step([grad])
        return w.value

    expected = with_torch(name, options)
    np.testing.assert_allclose(run(START, GRADS), expected, rtol=1e-12)
    with st.eager():
        np.testing.assert_allclose(run(START, GRADS), expected, rtol=1e-12)


def test_an_optimiser_made_outside_keeps_its_state_between_calls():
    w = st.Variable(START, name="w")
    opt = optim.Adam([w], lr=0.01)

    @st.function
    def step(grad):
        opt.step([grad])

    for grad in GRADS:
        step(grad)
    np.testing.assert_allclose(np.asarray(w), with_torch("Adam", {"lr": 0.01}), rtol=1e-12)


@pytest.mark.parametrize("max_norm", [0.5, 100.0])
def test_clipping_by_norm_is_torchs(max_norm):
    def compute(torch, grads):
        params = [torch.nn.Parameter(torch.zeros(2, 3, dtype=torch.float64)) for _ in range(2)]
        for param, grad in zip(params, grads, strict=True):
            param.grad = torch.tensor(grad)
        norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
        return norm, [param.grad for param in params]

    norm, expected = reference(compute, GRADS[:2])

    @st.function
    def clip(a, b):
        return optim.clip_grad_norm([a, b], max_norm)

    clipped, total = clip(GRADS[0], GRADS[1])
    np.testing.assert_allclose(total, norm, rtol=1e-12)
    for mine, other in zip(clipped, expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


def test_clipping_by_value_clips_each_element():
    @st.function
    def clip(a):
        return optim.clip_grad_value({"a": a}, 0.5)

    np.testing.assert_array_equal(clip(GRADS[0])["a"], np.clip(GRADS[0], -0.5, 0.5))


def test_wrong_gradients_are_refused_by_name():
    @st.function
    def run(start, grad):
        w = st.Variable(start, name="w")
        optim.SGD([w], lr=0.1).step([grad])
        return w.value

    with pytest.raises(st.ShapeError, match="`w`"):
        run(START, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([], lr=0.1)


def test_gradients_in_a_tree_are_clipped_by_their_joint_norm():
    tree = ({"w": np.float32([3.0, 0.0])}, [np.float32([0.0]), (np.float32([[4.0]]),)])

    @st.function
    def clipped(tree, most):
        by_norm, norm = optim.clip_grad_norm(tree, most)
        return by_norm, norm, optim.clip_grad_value(tree, most)

    for most in (1.0, np.float64(1.0)):
        with st.eager():
            eager = clipped(tree, most)
        for by_norm, norm, by_value in (clipped(tree, most), eager):
            assert norm == 5.0
            np.testing.assert_allclose(by_norm[0]["w"], [0.6, 0.0], rtol=1e-6)
            np.testing.assert_allclose(by_norm[1][1][0], [[0.8]], rtol=1e-6)
            assert by_norm[0]["w"].dtype == by_value[0]["w"].dtype == np.float32
            np.testing.assert_array_equal(by_value[0]["w"], [1.0, 0.0])
            np.testing.assert_array_equal(by_value[1][1][0], [[1.0]])


def test_no_gradients_have_no_norm():
    grads, norm = optim.clip_grad_norm([], 1.0)
    assert grads == [] and norm == 0.0
