"""`optim.LBFGS` against torch's: the same iterations and evaluations from the same start, in one program."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import staged as st
from staged import optim
from tests.errors.said import refusals
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 5))
Y = np.round(np.tanh(X @ RNG.normal(size=(5, 3))), 6)  # the same bits on every processor
START = {"w": 0.1 * RNG.normal(size=(5, 3)), "b": np.zeros(3)}
STEPS = 5
CASES = {
    "fixed": {"lr": 0.5, "max_iter": 7},
    "short memory": {"lr": 0.5, "max_iter": 7, "history_size": 3},
    "few evaluations": {"lr": 0.5, "max_iter": 9, "max_eval": 4},
    "search": {"max_iter": 7, "line_search_fn": "strong_wolfe"},
    "search, short memory": {"max_iter": 7, "line_search_fn": "strong_wolfe", "history_size": 2},
    "search, too long steps": {"lr": 300.0, "max_iter": 5, "line_search_fn": "strong_wolfe"},
    "search, too short steps": {"lr": 1e-3, "max_iter": 5, "line_search_fn": "strong_wolfe"},
    "search, few evaluations": {"max_iter": 20, "max_eval": 6, "line_search_fn": "strong_wolfe"},
    "loose": {"tolerance_grad": 1e-2, "line_search_fn": "strong_wolfe"},
    "loose change": {"tolerance_change": 1e-2, "line_search_fn": "strong_wolfe"},
}


def by_torch(torch, x, y, options):
    """For each step: the loss that it began with, the parameters after it, and both counts."""
    w, b = (torch.nn.Parameter(torch.tensor(START[name])) for name in "wb")
    opt = torch.optim.LBFGS([w, b], **options)

    def closure():
        opt.zero_grad()
        loss = ((torch.tanh(torch.tensor(x) @ w + b) - torch.tensor(y)) ** 2).mean()
        loss.backward()
        return loss

    losses, weights, counts = [], [], []
    for _ in range(STEPS):
        losses.append(opt.step(closure))
        weights.append(w.detach().clone())
        counts.append([float(opt.state[w][name]) for name in ("n_iter", "func_evals")])
    return torch.stack([loss.detach() for loss in losses]), torch.stack(weights), torch.tensor(counts)


def made(options):
    w, b = (st.Variable(START[name].copy(), name=name) for name in "wb")
    opt = optim.LBFGS([w, b], **options)
    return w, opt, lambda: st.mean((st.tanh(X @ w.value + b.value) - Y) ** 2)


@pytest.mark.parametrize("case", CASES)
def test_iterations_are_torchs(case):
    losses, weights, counts = reference(lambda torch, x, y: by_torch(torch, x, y, CASES[case]), X, Y)
    w, opt, closure = made(CASES[case])
    for i in range(STEPS):
        loss = opt.step(closure)
        np.testing.assert_allclose(loss, losses[i], rtol=1e-6, atol=1e-14)
        np.testing.assert_allclose(w.numpy(), weights[i], rtol=1e-6, atol=1e-9)
        assert [int(opt.iterations.numpy()), int(opt.evaluations.numpy())] == list(counts[i])


def test_a_loop_of_steps_is_one_program_and_eager_mode_agrees():
    options = CASES["search"]
    w, opt, closure = made(options)
    for _ in range(STEPS):
        opt.step(closure)
    inside, its, own = made(options)
    outside, eagerly, also = made(options)

    @st.function
    def train():
        for _ in st.range(STEPS):
            its.step(own)

    train()
    np.testing.assert_array_equal(inside.numpy(), w.numpy())
    with st.eager():
        for _ in range(STEPS):
            eagerly.step(also)
    np.testing.assert_allclose(outside.numpy(), w.numpy(), rtol=1e-7)


@pytest.mark.parametrize("case", ["fixed", "short memory", "search", "search, short memory"])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_training_that_was_saved_and_loaded_goes_on_with_the_same_bits(case, before):
    w, opt, closure = made({**CASES[case], "max_iter": 4})
    for _ in range(before):
        opt.step(closure)
    saved = pickle.loads(pickle.dumps(opt.state_dict()))
    weights = [param.numpy() for param in opt.params]
    for _ in range(2):
        opt.step(closure)
    other, again, same = made({**CASES[case], "max_iter": 99})
    for param, value in zip(again.params, weights, strict=True):
        param.value = value
    again.load_state_dict(saved)
    assert again.max_iter == 4
    for _ in range(2):
        again.step(same)
    np.testing.assert_array_equal(other.numpy(), w.numpy())


def test_a_state_of_torchs_goes_on(torch):
    options = CASES["search, short memory"]
    w, b = (torch.nn.Parameter(torch.tensor(START[name])) for name in "wb")
    theirs = torch.optim.LBFGS([w, b], **options)

    def closure():
        theirs.zero_grad()
        loss = ((torch.tanh(torch.tensor(X) @ w + b) - torch.tensor(Y)) ** 2).mean()
        loss.backward()
        return loss

    theirs.step(closure)
    mine, opt, own = made(options)
    for param, value in zip(opt.params, (w, b), strict=True):
        param.value = value.detach().numpy()
    opt.load_state_dict(theirs.state_dict())
    entry = opt.state_dict()["state"][0]
    fresh = torch.optim.LBFGS([w, b], **options)
    fresh.load_state_dict({"state": {0: {**theirs.state_dict()["state"][0], **_tensors(torch, entry)}},
                           "param_groups": theirs.state_dict()["param_groups"]})  # fmt: skip
    theirs = fresh
    fresh.step(closure)
    opt.step(own)
    np.testing.assert_allclose(mine.numpy(), w.detach().numpy(), rtol=1e-9)


def _tensors(torch, entry):
    return {
        name: [torch.tensor(each) for each in value] if isinstance(value, list) else torch.tensor(value)
        for name, value in entry.items()
        if isinstance(value, list | np.ndarray)
    }


W = st.Variable(START["w"], name="w")


test_refusals = refusals(
    (lambda: optim.LBFGS([W], line_search_fn="armijo"), st.ArgumentError, 'None or "strong_wolfe"'),
    (lambda: optim.LBFGS([{"params": [W]}, {"params": [st.Variable(W)]}]), st.ArgumentError, "in one group"),
    (lambda: optim.LBFGS([W, st.Variable(np.float32([1.0]))]), st.DTypeError, "have one dtype"),
    (lambda: optim.LBFGS([W], lr=-1.0), st.ArgumentError, "lr is at least 0"),
    (lambda: optim.LBFGS([W]).step([np.zeros((5, 3))]), st.ArgumentError, "takes a function that returns the loss"),
    (lambda: made({"history_size": 3})[1].load_state_dict(state_of(4)), st.StateDictError, "history_size = 3"),
    (lambda: made({})[1].load_state_dict(optim.SGD([W, W2]).state_dict() | {"state": {0: {"step": 1}}}),
     st.StateDictError, "keeps"),
    (lambda: st.function(lambda: made({})[1].state_dict())(), st.StagingError, "when the program runs"),
)  # fmt: skip


W2 = st.Variable(START["b"], name="b")


def state_of(history):
    """The state of an optimiser that keeps so many changes, after a step."""
    _, opt, closure = made({"history_size": history, "max_iter": 2})
    opt.step(closure)
    return opt.state_dict()
