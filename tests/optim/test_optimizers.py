"""Optimisers and clipping against torch's: the same steps from the same gradients, in one generated program."""

import inspect

import numpy as np
import pytest

import staged as st
from staged import optim
from tests.torch_reference import reference

STEPS = 25
GRADS = np.random.default_rng(0).standard_normal((STEPS, 2, 3))
START = np.random.default_rng(1).standard_normal((2, 3))
UP = {"weight_decay": 0.1, "maximize": True}
MOMENTS = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}

CASES = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, **UP}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "foreach": False}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.5, "lambd": 0.1, "alpha": 0.5, "t0": 3, **UP}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.5, "etas": (0.3, 1.5), "step_sizes": (1e-3, 1.0), "maximize": True}),
    ("Adagrad", {"lr": 0.05}),
    ("Adagrad", {"lr": 0.05, "lr_decay": 0.1, **UP}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-3, **UP}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.05, "alpha": 0.8, "eps": 1e-3, "weight_decay": 0.1}),
    ("RMSprop", {"momentum": 0.9}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5, **UP}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
    ("Adam", {"amsgrad": True, "decoupled_weight_decay": True, **MOMENTS, **UP}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "eps": 1e-3}),
    ("AdamW", {"amsgrad": True, "maximize": True, "fused": None}),
    ("Adamax", {}),
    ("Adamax", {**MOMENTS, **UP}),
    ("NAdam", {}),
    ("NAdam", {**MOMENTS, **UP, "momentum_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {}),
    ("RAdam", {**MOMENTS, **UP}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-4, 1e-2), "d": 2.0, **UP}),
    ("Muon", {}),
    ("Muon", {"nesterov": False, "weight_decay": 0.0, "lr": 0.1}),
    ("Muon", {"adjust_lr_fn": "match_rms_adamw", "ns_steps": 3, "momentum": 0.5}),
]
OURS = {"GradScaler", "Lion", "MultiSteps", "clip_grad_norm", "clip_grad_value", "lr_scheduler", "swa_utils"}
"""Names that are not torch's, or are no optimisers."""
SHARES = {"NAdam": 1e-7, "ASGD": 1e-7}
"""torch keeps a product of shares, or a rate, in f32."""


def moved_by_torch(torch, name, options, start, grads):
    """The parameter, a part of it transposed, and a vector, after all steps; Muon does not round to bf16."""
    params = [torch.nn.Parameter(torch.tensor(each)) for each in parts(name, start)]
    opt = getattr(torch.optim, name)(params, **options)
    rounded = torch.Tensor.bfloat16
    torch.Tensor.bfloat16 = torch.Tensor.clone
    for grad in grads:
        for param, each in zip(params, parts(name, grad), strict=True):
            param.grad = torch.tensor(each)
        opt.step()
    torch.Tensor.bfloat16 = rounded
    return params


def parts(name, x):
    """A matrix, and a vector or, where only matrices are trained, a tall one."""
    return [x, x.T.copy() if name == "Muon" else x[0].copy()]


def with_torch(name, options):
    return reference(lambda torch, start, grads: moved_by_torch(torch, name, options, start, grads)[0], START, GRADS)


def test_staged_optimisers_take_torchs_steps():
    expected = reference(
        lambda torch, start, grads: [moved_by_torch(torch, name, options, start, grads) for name, options in CASES],
        START,
        GRADS,
    )

    @st.function
    def run(start, grads):
        ends = []
        for name, options in CASES:
            params = [st.Variable(part, name="w") for part in parts(name, START)]
            opt = getattr(optim, name)(params, **options)
            for grad in grads:
                opt.step([grad, grad.T if name == "Muon" else grad[0]])
            ends.append([param.value for param in params])
        return ends

    found = run(START, GRADS)
    with st.eager():
        eagerly = run(START, GRADS)
    for (name, options), *ends in zip(CASES, expected, found, eagerly, strict=True):
        for other, mine, here in zip(*ends, strict=True):
            rtol = SHARES.get(name, 1e-11)
            np.testing.assert_allclose(mine, other, rtol=rtol, err_msg=f"{name} {options}")
            np.testing.assert_allclose(here, other, rtol=rtol, err_msg=f"{name} {options}, eagerly")


def test_lion_moves_by_the_sign_of_its_mean():
    """The formula of its authors; torch does not have it."""
    for options in ({}, {"lr": 0.01, "betas": (0.8, 0.5), "weight_decay": 0.1}):
        first, second = options.get("betas", (0.9, 0.99))
        rate, decay = options.get("lr", 1e-4), options.get("weight_decay", 0.0)
        w = st.Variable(START, name="w")
        opt = optim.Lion([w], **options)
        step = st.function(lambda grad: opt.step([grad]))  # noqa: B023
        mean, expected = np.zeros_like(START), START
        for grad in GRADS:
            expected = expected * (1 - rate * decay) - rate * np.sign(first * mean + (1 - first) * grad)
            mean = second * mean + (1 - second) * grad
            step(grad)
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


def test_names_and_arguments_are_torchs(library):
    """Its ways to compute apart, which all are taken and say nothing of the result."""
    torch = library("torch")
    theirs = {name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)} - {"SparseAdam"}
    assert theirs == set(optim.__all__) - OURS
    ways = {"foreach", "fused", "capturable", "differentiable", "ways"}
    for name in theirs - {"Optimizer"}:
        mine, other = (
            [
                (one, two.default)
                for one, two in inspect.signature(getattr(where, name)).parameters.items()
                if one not in ways
            ]
            for where in (optim, torch.optim)
        )
        assert mine == other, name


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


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, np.inf])
def test_clipping_by_a_norm_of_any_order(order):
    whole = np.concatenate([GRADS[0].ravel(), GRADS[1].ravel()])
    norm = np.linalg.norm(whole, order)
    for clip in (optim.clip_grad_norm, st.function(lambda g, most: optim.clip_grad_norm(g, most, norm_type=order))):
        options = {"norm_type": order} if clip is optim.clip_grad_norm else {}
        (one, two), total = clip([GRADS[0], GRADS[1]], 0.5 * norm, **options)
        np.testing.assert_allclose(total, norm, rtol=1e-12)
        np.testing.assert_allclose(np.concatenate([np.ravel(one), np.ravel(two)]), 0.5 * whole, rtol=1e-5)
    with pytest.raises(st.ArgumentError, match="norm_type must be above 0, got -1"):
        optim.clip_grad_norm([GRADS[0]], 1.0, norm_type=-1.0)


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
