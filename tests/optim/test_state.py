"""Saving and loading of optimisers: training goes on with the same bits, and torch's checkpoints load."""

import pickle

import numpy as np
import pytest

import staged as st
from staged import nn, optim

RNG = np.random.default_rng(0)
GRADS = RNG.standard_normal((6, 2, 3)).astype(np.float32)
START = RNG.standard_normal((2, 3)).astype(np.float32)

MADE = {
    "sgd": lambda ps: optim.SGD(ps, lr=0.1),
    "momentum": lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "dampening": lambda ps: optim.SGD(ps, lr=0.1, momentum=0.9, dampening=0.3),
    "adagrad": lambda ps: optim.Adagrad(ps, lr=0.1, initial_accumulator_value=0.5),
    "adagrad_decay": lambda ps: optim.Adagrad(ps, lr=0.1, lr_decay=0.1),
    "adam": lambda ps: optim.Adam(ps, lr=0.1, weight_decay=0.01),
    "amsgrad": lambda ps: optim.Adam(ps, lr=0.1, amsgrad=True, maximize=True),
    "asgd": lambda ps: optim.ASGD(ps, lr=0.1, lambd=0.1, t0=2),
    "rprop": lambda ps: optim.Rprop(ps, lr=0.1),
    "adadelta": lambda ps: optim.Adadelta(ps),
    "rmsprop": lambda ps: optim.RMSprop(ps, momentum=0.5, centered=True),
    "adamax": lambda ps: optim.Adamax(ps),
    "nadam": lambda ps: optim.NAdam(ps),
    "radam": lambda ps: optim.RAdam(ps),
    "adafactor": lambda ps: optim.Adafactor(ps),
    "lion": lambda ps: optim.Lion(ps, lr=0.1),
    "muon": lambda ps: optim.Muon(ps, lr=0.1),
    "adamw": lambda ps: optim.AdamW(ps, lr=0.1),
}


def steps(opt, grads):
    for grad in grads:
        opt.step([grad])


@pytest.mark.parametrize("name", MADE)
def test_training_that_was_saved_and_loaded_goes_on_with_the_same_bits(name):
    w = st.Variable(START, name="w")
    opt = MADE[name]([w])
    steps(opt, GRADS[:3])
    saved, weights = pickle.loads(pickle.dumps(opt.state_dict())), w.numpy()
    for entry in saved["state"].values():
        assert {type(value) for value in entry.values()} == {np.ndarray}
    steps(opt, GRADS[3:])
    other = st.Variable(weights, name="w")
    again = MADE[name]([other])
    again.lr = 99.0  # loaded too
    again.load_state_dict(saved)
    steps(again, GRADS[3:])
    np.testing.assert_array_equal(other.numpy(), w.numpy())


def test_a_program_saves_and_another_goes_on():
    def train(model, opt, rows):
        for row in rows:
            grads = st.grad(lambda row: st.sum(st.square(model(row))), wrt=model)(row)
            opt.step(grads)

    @st.function
    def first(weights, rows):
        model = nn.Linear(3, 2)
        model.load_state_dict(weights)
        opt = optim.Adam(model.parameters(), lr=0.01)
        train(model, opt, rows)
        return model.state_dict(), opt.state_dict()["state"]

    @st.function
    def second(weights, state, rows):
        model = nn.Linear(3, 2)
        model.load_state_dict(weights)
        opt = optim.Adam(model.parameters(), lr=0.01)
        opt.load_state_dict({"state": state, "param_groups": [{}]})
        train(model, opt, rows)
        return model.state_dict()

    weights = {"weight": START, "bias": START[:, 0]}
    rows = RNG.standard_normal((6, 1, 3)).astype(np.float32)
    whole, _ = first(weights, rows)
    halfway, state = first(weights, rows[:3])
    assert set(state[0]) == {"step", "exp_avg", "exp_avg_sq"} and state[0]["step"] == 3
    after = second(halfway, state, rows[3:])
    with st.eager():
        eagerly = second(halfway, state, rows[3:])
    for name, value in whole.items():
        np.testing.assert_array_equal(after[name], value)
        np.testing.assert_allclose(eagerly[name], value, rtol=1e-5, atol=1e-6)


def test_numbers_held_by_variables_are_saved_and_written():
    w, lr = st.Variable(START, name="w"), st.Variable(0.5, name="lr")
    opt = optim.SGD([w], lr=lr)
    saved = opt.state_dict()
    assert saved["param_groups"][0]["lr"] == 0.5
    lr.value = 0.25
    opt.load_state_dict(saved)
    assert opt.lr is lr and lr.numpy() == 0.5


def test_a_rate_of_a_staged_function_is_taken_out_when_it_ends():
    w = st.Variable(START, name="w")
    opt = optim.SGD([w], lr=0.1)

    @st.function
    def step(grad, rate):
        opt.lr = rate
        opt.step([grad])
        return opt.state_dict()["param_groups"][0]["lr"]

    for count in (1, 2):
        assert step(np.ones_like(START), 0.5) == 0.5
        np.testing.assert_allclose(w.numpy(), START - 0.5 * count, rtol=1e-6)
        assert opt.state_dict()["param_groups"][0]["lr"] == 0.1


def test_a_rate_that_a_staged_function_has_left_behind_is_not_saved():
    kept = []

    @st.function
    def step(grad, rate):
        made = optim.SGD([st.Variable(START)], lr=rate)
        made.step([grad])
        kept.append(made)
        return made.state_dict()["param_groups"][0]["lr"]

    assert step(np.ones_like(START), 0.5) == 0.5
    with pytest.raises(st.LeakError, match="`rate`.* staged function, which has ended") as refused:
        kept[0].state_dict()
    assert "test_state.py" in str(refused.value)


def test_what_does_not_fit_is_refused_and_changes_nothing():
    w = st.Variable(START, name="w")
    opt = optim.Adam([w], lr=0.1)
    steps(opt, GRADS[:2])
    saved = opt.state_dict()
    entry = saved["state"][0]
    wrong = {
        "another optimiser": optim.SGD([w], lr=0.1, momentum=0.9).state_dict(),
        "two parameters": optim.Adam([w, st.Variable(START)], lr=0.1).state_dict(),
        "a shape": {**saved, "state": {0: {**entry, "exp_avg_sq": np.zeros((3, 2))}}},
        "no array": {**saved, "state": {0: {**entry, "exp_avg": "many"}}},
        "amsgrad": {**saved, "param_groups": [{**saved["param_groups"][0], "amsgrad": True, "lr": 7.0}]},
        "two groups": {**saved, "param_groups": saved["param_groups"] * 2},
        "a part": {"state": {}},
        "a list": [saved],
    }
    for what, state in wrong.items():
        with pytest.raises(st.StagedError, match="fit|shape|array of real"):
            opt.load_state_dict(state)
        assert opt.lr == 0.1, what
        np.testing.assert_array_equal(opt.state_dict()["state"][0]["exp_avg"], entry["exp_avg"], err_msg=what)
    uneven = {"state": {0: {**entry}, 1: {**entry, "step": np.array(9)}}, "param_groups": [{}]}
    with pytest.raises(st.StateDictError, match=r"all parameters at once, the state_dict has \[2, 9\]"):
        optim.Adam([w, st.Variable(START)]).load_state_dict(uneven)


OPTIONS = {
    "Rprop": {"lr": 0.1},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "RMSprop": {"lr": 0.1, "centered": True, "momentum": 0.5},
}


@pytest.mark.parametrize(
    "name",
    "SGD Adam AdamW Adagrad ASGD Rprop Adadelta RMSprop Adamax NAdam RAdam Adafactor Muon".split(),
)
def test_torchs_checkpoints_load_and_torch_loads_ours(name, library):
    torch = library("torch")
    options = OPTIONS.get(name, {"lr": 0.1, "weight_decay": 0.1})
    if name == "SGD":
        options = {**options, "momentum": 0.9, "dampening": 0.5}
    theirs = torch.nn.Parameter(torch.tensor(START))
    their_opt = getattr(torch.optim, name)([theirs], **options)

    def their_steps(opt, parameter, grads):
        for grad in grads:
            parameter.grad = torch.tensor(grad)
            opt.step()

    their_steps(their_opt, theirs, GRADS[:3])
    ours = st.Variable(theirs.detach().numpy(), name="w")
    our_options = {**options, "lr": 7.0} | ({"lr_decay": 0.0} if name == "Adagrad" else {})
    opt = getattr(optim, name)([ours], **our_options)
    opt.load_state_dict(their_opt.state_dict())
    steps(opt, GRADS[3:5])
    their_steps(their_opt, theirs, GRADS[3:5])
    rtol = 2e-2 if name == "Muon" else 1e-5  # torch rounds its steps to bf16
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=rtol)
    saved = opt.state_dict()
    state = {
        index: {key: torch.tensor(value) for key, value in entry.items()} for index, entry in saved["state"].items()
    }
    back = torch.nn.Parameter(torch.tensor(ours.numpy()))
    back_opt = getattr(torch.optim, name)([back], **options)
    filled = {**back_opt.state_dict()["param_groups"][0], **saved["param_groups"][0]}
    if name == "Adagrad":
        state[0]["step"] = torch.tensor(5.0)  # which ours does not count without a decay of the rate
    back_opt.load_state_dict({"state": state, "param_groups": [filled]})
    their_steps(back_opt, back, GRADS[5:])
    steps(opt, GRADS[5:])
    np.testing.assert_allclose(back.detach().numpy(), ours.numpy(), rtol=rtol)
