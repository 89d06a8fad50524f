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
    "dampening": lambda ps, **o: optim.SGD(ps, **{"lr": 0.1, "momentum": 0.9, "dampening": 0.5} | o),
    "adagrad": lambda ps, **o: optim.Adagrad(ps, **{"lr": 0.1, "lr_decay": 0.1} | o),
    "rmsprop": lambda ps, **o: optim.RMSprop(ps, **{"momentum": 0.5, "centered": True} | o),
    "adadelta": lambda ps, **o: optim.Adadelta(ps, **o),
    "nadam": lambda ps, **o: optim.NAdam(ps, **o),
    "radam": lambda ps, **o: optim.RAdam(ps, **o),
    "adafactor": lambda ps, **o: optim.Adafactor(ps, **o),
    "lion": lambda ps, **o: optim.Lion(ps, **o),
    "adam": lambda ps, **o: optim.Adam(ps, **{"lr": 0.1} | o),
    "adamw": lambda ps, **o: optim.AdamW(ps, **{"lr": 0.1} | o),
}
OWN = {"lr": 0.5, "weight_decay": 0.25, "maximize": True}


def variables():
    return [st.Variable(value, name=name) for value, name in ((BODY, "body"), (HEAD, "head"), (BIAS, "bias"))]


def both(name):
    """Three steps of one optimiser with two groups, and of an optimiser for each: where the parameters are then."""
    body, head, bias = variables()
    opt = MADE[name]([{"params": [body]}, {"params": [head, bias], **OWN}])
    other_body, *others = variables()
    apart = MADE[name]([other_body]), MADE[name](others, **OWN)
    for _ in range(3):
        opt.step(GRADS)
        apart[0].step(GRADS[:1])
        apart[1].step(GRADS[1:])
    return [v.value for v in (body, head, bias)], [v.value for v in (other_body, *others)]


def test_groups_are_as_an_optimiser_for_each():
    found = st.function(lambda: {name: both(name) for name in MADE})()
    for name in MADE:
        for one, other in zip(*found[name], strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
        for one, other in zip(*both(name), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
        for one, other in zip(found[name][0], both(name)[0], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=name)


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
    unlike = {**saved, "param_groups": [saved["param_groups"][0], {**saved["param_groups"][1], "betas": (0.5, 0.5)}]}
    moved = {**saved, "param_groups": [{**group, "params": [0]} for group in saved["param_groups"]]}
    for loaded, state in ((whole, saved), (again, whole.state_dict()), (again, unlike), (again, moved)):
        with pytest.raises(st.StateDictError, match="does not fit"):
            loaded.load_state_dict(state)
    assert again.groups[0]["lr"] == 0.5


REFUSED = {
    "a number of all": (
        lambda v: optim.SGD([{"params": v, "momentum": 0.5}]),
        "has lr, weight_decay, maximize for itself, got 'momentum'",
    ),
    "an unknown one": (lambda v: optim.Adam([{"params": v, "rate": 0.5}]), "lr, weight_decay, eps, maximize for itself, got 'rate'"),
    "a negative rate": (lambda v: optim.Adam([{"params": v, "lr": -0.5}]), "lr is at least 0, got -0.5"),
    "no parameters": (lambda v: optim.Adam([{"lr": 0.5}]), "a group of parameters has no `params`"),
    "in two groups": (lambda v: optim.SGD([{"params": v}, {"params": v[:1]}]), "`body` is there twice"),
    "not in a group": (lambda v: optim.SGD([{"params": v[1:]}, v[0]]), "some of the parameters are in a group"),
    "set later": (lambda v: set_later(optim.SGD([{"params": v}])), "has lr, weight_decay, maximize for itself, got 'nesterov'"),
}


def set_later(opt):
    opt.groups[0]["nesterov"] = True
    opt.step(GRADS)


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_group_is_refused_with_the_line(what):
    make, said = REFUSED[what]
    with pytest.raises(st.ArgumentError) as refused:
        make(variables())
    assert said in words_of(refused.value) and "test_groups.py" in str(refused.value)
