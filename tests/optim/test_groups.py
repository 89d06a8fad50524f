"""Groups of parameters: each is updated as by an optimiser of its own."""

import pickle

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from tests.errors.said import words_of

RNG = np.random.default_rng(3)
BODY, HEAD, BIAS = RNG.standard_normal((2, 3)), RNG.standard_normal(3), RNG.standard_normal(2)
GRADS = [RNG.standard_normal(shape) for shape in ((2, 3), (3,), (2,))]

MADE = {
    "sgd": lambda ps, **o: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.9} | o),
    "plain": lambda ps, **o: optim.SGD(ps, **{"lr": 0.1} | o),
    "dampening": lambda ps, **o: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.9, "dampening": 0.5} | o),
    "adagrad": lambda ps, **o: optim.Adagrad(ps, **{"lr": 0.1, "lr_decay": 0.1} | o),
    "rmsprop": lambda ps, **o: optim.RMSprop(ps, **{"momentum": 0.5, "centered": True} | o),
    "adadelta": lambda ps, **o: optim.Adadelta(ps, **o),
    "nadam": lambda ps, **o: optim.NAdam(ps, **o),
    "radam": lambda ps, **o: optim.RAdam(ps, **o),
    "adamax": lambda ps, **o: optim.Adamax(ps, **o),
    "adafactor": lambda ps, **o: optim.Adafactor(ps, **o),
    "lion": lambda ps, **o: optim.Lion(ps, **o),
    "adam": lambda ps, **o: optim.Adam(ps, **{"lr": 0.1, "betas": (0.9, 0.5)} | o),
    "adamw": lambda ps, **o: optim.AdamW(ps, **{"lr": 0.1} | o),
}
USUAL = {"lr": 0.5, "weight_decay": 0.25, "maximize": True}
BETAS = {"betas": (0.5, 0.75)}
OWN = {
    "sgd": [{"momentum": 0.5, "nesterov": True}, {"momentum": 0.0}, {"dampening": 0.25}],
    "plain": [{"momentum": 0.5}, {"momentum": 0.5, "dampening": 0.25}],
    "dampening": [{"dampening": 0.0}, {"dampening": 0.25}, {"momentum": 0.0}],
    "adagrad": [{"lr_decay": 0.5, "eps": 0.1}, {"lr_decay": 0.0}],
    "rmsprop": [{"alpha": 0.5, "momentum": 0.25}, {"momentum": 0.0, "centered": False}],
    "adadelta": [{"rho": 0.5, "eps": 0.1}],
    "nadam": [{"eps": 0.1, "decoupled_weight_decay": True}],
    "radam": [BETAS],
    "adamax": [BETAS],
    "adafactor": [{"beta2_decay": -0.5, "d": 0.5, "eps": (None, 0.1)}],
    "lion": [{"betas": (0.9, 0.5)}],
    "adam": [BETAS, {"amsgrad": True}, {"decoupled_weight_decay": True}],
    "adamw": [{"betas": (0.5, 0.75), "amsgrad": True}],
}
"""The options that the second group has for itself, beside `USUAL`."""
CASES = [(name, USUAL) for name in MADE] + [(name, USUAL | own) for name in MADE for own in OWN[name]]


def variables():
    return [st.Variable(value, name=name) for value, name in ((BODY, "body"), (HEAD, "head"), (BIAS, "bias"))]


def both(name, own):
    """Three steps of one optimiser with two groups, and of an optimiser for each: where the parameters are then."""
    body, head, bias = variables()
    opt = MADE[name]([{"params": [body]}, {"params": [head, bias], **own}])
    other_body, *others = variables()
    apart = MADE[name]([other_body]), MADE[name](others, **own)
    for factor in (2.0, -1.0, 0.25):  # a mean that turns, a square that falls
        grads = [factor * grad for grad in GRADS]
        opt.step(grads)
        apart[0].step(grads[:1])
        apart[1].step(grads[1:])
    return [v.value for v in (body, head, bias)], [v.value for v in (other_body, *others)]


def test_groups_are_as_an_optimiser_for_each():
    found = st.function(lambda: [both(*case) for case in CASES])()
    for case, staged in zip(CASES, found, strict=True):
        plain = both(*case)
        for one, other in zip(*staged, strict=True):  # other kernels contract in other places
            np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-15, err_msg=str(case))
        for one, other in zip(*plain, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(case))
        for one, other in zip(staged[0], plain[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=str(case))


@pytest.mark.parametrize(("name", "own"), [(name, own) for name in MADE for own in OWN[name]])
def test_options_of_a_group_matter(name, own):
    (with_own, _), (without, _) = both(name, USUAL | own), both(name, USUAL)
    np.testing.assert_array_equal(with_own[0], without[0])
    assert not np.array_equal(with_own[1], without[1])


@pytest.mark.parametrize(
    ("make", "option", "number"),
    [
        (optim.Adafactor, lambda n: {"eps": (None, n)}, 0.5),
        (optim.Adafactor, lambda n: {"beta2_decay": -n}, 0.5),
        (optim.Adam, lambda n: {"betas": (n, 0.75)}, 0.5),
        (optim.SGD, lambda n: {"momentum": n, "dampening": n}, 0.5),
        (optim.Rprop, lambda n: {"etas": (n, 1.5)}, 0.25),
    ],
)
def test_options_of_a_group_may_be_staged(make, option, number):
    def two_steps(number):
        params = variables()
        opt = make([{"params": params[:1]}, {"params": params[1:], **option(number)}])
        for factor in (1.0, -0.5):
            opt.step([factor * grad for grad in GRADS])
        return [param.value for param in params]

    for one, other in zip(st.function(two_steps)(st.asarray(np.float64(number))), two_steps(number), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def test_adafactor_names_the_eps_that_is_negative():
    with pytest.raises(st.ArgumentError, match=r"eps\[1\] is at least 0, got -0.5"):
        optim.Adafactor(variables(), eps=(None, -0.5))


def test_numbers_of_groups_are_read_at_every_step():
    body, head, bias = variables()
    opt = optim.SGD([{"params": body, "lr": 0.5}, {"params": [head]}, {"params": [bias]}], lr=0.1)
    opt.groups[0]["lr"] = 0.25
    opt.groups[2]["weight_decay"] = 0.5
    opt.lr = 1.0
    opt.step(GRADS)
    np.testing.assert_allclose(body.numpy(), BODY - 0.25 * GRADS[0], rtol=1e-12)
    np.testing.assert_allclose(head.numpy(), HEAD - GRADS[1], rtol=1e-12)
    np.testing.assert_allclose(bias.numpy(), BIAS - GRADS[2] - 0.5 * BIAS, rtol=1e-12)
    assert (opt.lr, opt.weight_decay) == (1.0, 0.0)


def test_gradients_by_name_go_to_their_groups():
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    first, last = model
    opt = optim.SGD([{"params": last.parameters()}, {"params": first.named_parameters(), "lr": 0.0}], lr=1.0)
    before = model.state_dict()
    x = RNG.standard_normal((4, 3)).astype(np.float32)
    grads = st.grad(lambda: st.sum(model(x)), wrt=[*last.parameters(), *first.parameters()])()
    opt.step(grads)
    after = model.state_dict()
    for name in before:
        assert np.array_equal(before[name], after[name]) == name.startswith("0"), name


def test_what_groups_have_is_saved_and_loaded():
    def made(first=0.5):
        body, head, bias = variables()
        groups = [{"params": [body], "lr": first, "weight_decay": 0.1}, {"params": [head, bias]}]
        return [body, head, bias], optim.Adam(groups, lr=0.1, eps=1e-6)

    params, opt = made()
    opt.step(GRADS)
    saved = pickle.loads(pickle.dumps(opt.state_dict()))
    assert [(group["lr"], group["weight_decay"], group["eps"], group["params"]) for group in saved["param_groups"]] == [
        (0.5, 0.1, 1e-6, [0]), (0.1, 0.0, 1e-6, [1, 2]),
    ]  # fmt: skip
    others, again = made(first=9.0)
    again.lr = 9.0
    for other, param in zip(others, params, strict=True):
        other.value = param.numpy()
    again.load_state_dict(saved)
    for one in (opt, again):
        one.step(GRADS)
    for other, param in zip(others, params, strict=True):
        np.testing.assert_array_equal(other.numpy(), param.numpy())
    whole = optim.Adam(variables(), lr=0.1)
    moved = {**saved, "param_groups": [{**group, "params": [0]} for group in saved["param_groups"]]}
    for loaded, state in ((whole, saved), (again, whole.state_dict()), (again, moved)):
        with pytest.raises(st.StateDictError, match="does not fit"):
            loaded.load_state_dict(state)
    assert again.groups[0]["lr"] == 0.5


def test_numbers_that_groups_share_load_from_groups_with_one_value_alone():
    def made():
        body, head, bias = variables()
        return optim.NAdam([{"params": [body]}, {"params": [head, bias]}])

    saved = made().state_dict()
    saved["param_groups"][1]["betas"] = (0.5, 0.5)
    with pytest.raises(st.StateDictError, match="has one betas for all groups"):
        made().load_state_dict(saved)
    opt = optim.Adam([{"params": [each]} for each in variables()])
    saved = opt.state_dict()
    saved["param_groups"][1]["betas"] = (0.5, 0.5)
    opt.load_state_dict(saved)
    assert (opt.betas, opt.groups[1]["betas"]) == ((0.9, 0.999), (0.5, 0.5))


def test_a_group_without_momentum_keeps_nothing():
    body, head, bias = variables()
    opt = optim.SGD([{"params": [body], "momentum": 0.5}, {"params": [head, bias]}], lr=0.1)
    opt.step(GRADS)
    assert {index: list(entry) for index, entry in opt.state_dict()["state"].items()} == {0: ["momentum_buffer"]}
    opt.momentum = 0.5
    with pytest.raises(st.StagingError, match="SGD was made with momentum = 0, and keeps nothing for it"):
        opt.step(GRADS)


def test_the_momentum_of_all_groups_cycles():
    first, second = ([st.Variable(v) for v in (BODY, HEAD)] for _ in range(2))
    groups = optim.Adam([{"params": first[:1]}, {"params": first[1:], "betas": (0.25, 0.5)}])
    alone = optim.Adam(second[1:], betas=(0.25, 0.5))
    cycles = [optim.lr_scheduler.OneCycleLR(opt, max_lr=0.1, total_steps=5) for opt in (groups, alone)]
    for _ in range(4):
        groups.step(GRADS[:2])
        alone.step(GRADS[1:2])
        for cycle in cycles:
            cycle.step()
    np.testing.assert_allclose(first[1].numpy(), second[1].numpy(), rtol=1e-12)


REFUSED = {
    "a number of all": (
        lambda v: optim.NAdam([{"params": v, "betas": (0.5, 0.5)}]),
        "has lr, eps, weight_decay, maximize, decoupled_weight_decay for itself, got 'betas'",
    ),
    "an unknown one": (
        lambda v: optim.Adamax([{"params": v, "rate": 0.5}]),
        "lr, betas, eps, weight_decay, maximize for itself, got 'rate'",
    ),
    "betas of 1": (
        lambda v: optim.Adam([{"params": v, "betas": (0.5, 1.0)}]),
        "betas[1] is at least 0 and below 1.0, got 1.0",
    ),
    "nesterov without momentum": (
        lambda v: optim.SGD([{"params": v, "nesterov": True}]),
        "Nesterov's variant needs a momentum",
    ),
    "a large rho": (lambda v: optim.Adadelta([{"params": v, "rho": 1.5}]), "rho is between 0 and 1, got 1.5"),
    "a decay above 0": (
        lambda v: optim.Adafactor([{"params": v, "beta2_decay": 0.5}]),
        "beta2_decay is at most 0, got 0.5",
    ),
    "etas": (lambda v: optim.Rprop([{"params": v, "etas": (0.5, 0.9)}]), "etas are below 1 and above 1"),
    "a negative rate": (lambda v: optim.Adam([{"params": v, "lr": -0.5}]), "lr is at least 0, got -0.5"),
    "no parameters": (lambda v: optim.Adam([{"lr": 0.5}]), "a group of parameters has no `params`"),
    "in two groups": (lambda v: optim.SGD([{"params": v}, {"params": v[:1]}]), "`body` is there twice"),
    "not in a group": (lambda v: optim.SGD([{"params": v[1:]}, v[0]]), "some of the parameters are in a group"),
    "set later": (
        lambda v: set_later(optim.Rprop([{"params": v}])),
        "has etas, step_sizes, maximize for itself, got 'weight_decay'",
    ),
}


def set_later(opt):
    opt.groups[0]["weight_decay"] = 0.5
    opt.step(GRADS)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_group_is_refused_with_the_line(what):
    make, said = REFUSED[what]
    with pytest.raises(st.ArgumentError) as refused:
        make(variables())
    assert said in words_of(refused.value) and "test_groups.py" in str(refused.value)
