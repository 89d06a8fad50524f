"""Running means of weights against torch's, in one program and from call to call."""

import inspect

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.optim import swa_utils
from tests.errors.said import words_of
from tests.torch_reference import reference

X = np.random.default_rng(0).standard_normal((6, 4, 3))
AVERAGES = {
    "mean": lambda m: {},
    "exponential": lambda m: {"avg_fn": m.get_ema_avg_fn(0.8)},
    "exponential, lists": lambda m: {"multi_avg_fn": m.get_ema_multi_avg_fn(0.8)},
    "mean, lists": lambda m: {"multi_avg_fn": m.get_swa_multi_avg_fn()},
    "buffers": lambda m: {"avg_fn": m.get_ema_avg_fn(0.6), "use_buffers": True},
    "own": lambda m: {"avg_fn": lambda mean, new, n: mean + 0.5 * (new - mean) / (n + 1)},
}
WEIGHTS = {"0.weight": np.arange(6.0).reshape(2, 3) / 10, "0.bias": np.array([0.1, -0.2])}


def loss(made):
    """A number whose gradient is none that a norm takes away: that would be rounding alone."""
    return (made**3 + made**2).mean()


def torchs(torch, x):
    found = {}
    for name, options in AVERAGES.items():
        model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).double()
        model.load_state_dict({key: torch.tensor(value) for key, value in WEIGHTS.items()}, strict=False)
        averaged = torch.optim.swa_utils.AveragedModel(model, **options(torch.optim.swa_utils))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for batch in x:
            opt.zero_grad()
            loss(model(torch.tensor(batch))).backward()
            opt.step()
            averaged.update_parameters(model)
        found[name] = {key: value.double() for key, value in averaged.state_dict().items()}
    return found


def ours(x):
    found = {}
    for name, options in AVERAGES.items():
        model = nn.Sequential(nn.Linear(3, 2, dtype=st.f64), nn.BatchNorm1d(2, dtype=st.f64))
        model.load_state_dict(WEIGHTS, strict=False)
        averaged = swa_utils.AveragedModel(model, **options(swa_utils))
        opt = optim.SGD(model.parameters(), lr=0.1)
        for batch in x:
            grads = st.grad(lambda: loss(model(batch)), wrt=model)()  # noqa: B023
            opt.step(grads)
            averaged.update_parameters(model)
        found[name] = averaged.state_dict()
    return found


def test_means_of_weights_are_torchs():
    expected = reference(torchs, X)
    run = st.function(ours)
    with st.eager():
        eagerly = run(X)
    for found in (run(X), eagerly):
        for name, state in expected.items():
            assert set(found[name]) == set(state)
            for key, value in state.items():
                if name == "buffers" and key.endswith("num_batches_tracked"):
                    value = np.array(len(X))  # torch averages integers, and rounds the mean down
                rtol = 1e-6 if name == "mean, lists" else 1e-9  # torch divides by a number of f32 there
                mine = np.asarray(found[name][key])
                np.testing.assert_allclose(mine, value, rtol=rtol, atol=1e-12, err_msg=f"{name} {key}")


def test_means_are_kept_from_call_to_call_and_answer():
    model = nn.Linear(2, 1)
    averaged = swa_utils.AveragedModel(model, avg_fn=swa_utils.get_ema_avg_fn(0.5))
    model.weight.value, model.bias.value = np.float32([[1.0, 2.0]]), np.float32([0.0])

    @st.function
    def step(rate):
        averaged.update_parameters(model)
        model.weight.value = model.weight.value * rate

    for _ in range(3):
        step(np.float32(2.0))
    np.testing.assert_array_equal(averaged.module.weight.numpy(), [[2.75, 5.5]])
    np.testing.assert_array_equal(averaged(np.float32([[1.0, 1.0]])), [[8.25]])
    np.testing.assert_array_equal(st.function(lambda x: averaged(x))(np.float32([[1.0, 1.0]])), [[8.25]])
    again = swa_utils.AveragedModel(nn.Linear(2, 1))
    again.load_state_dict(averaged.state_dict())
    assert again.n_averaged.numpy() == 3


@pytest.mark.parametrize("options", [{}, {"anneal_epochs": 0}, {"anneal_epochs": 5, "anneal_strategy": "linear"}])
def test_the_last_rate_is_approached_as_by_torch(options):
    def rates_of(optim, swa, params, steps, stack):
        opt = optim.SGD(params, lr=0.5)
        schedule = swa.SWALR(opt, 0.1, **options)
        rates = [schedule.get_last_lr()[0]]
        for _ in steps:
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
        return stack(rates)

    def compute(torch, steps):
        params = [torch.nn.Parameter(torch.zeros(1))]
        return rates_of(torch.optim, torch.optim.swa_utils, params, steps, lambda rates: torch.tensor(rates).double())

    expected = reference(lambda torch, steps: compute(torch, steps), np.zeros(15))
    found = st.function(lambda: rates_of(optim, swa_utils, [st.Variable(st.zeros(1))], range(15), st.stack))()
    np.testing.assert_allclose(found, expected, rtol=1e-6)


REFUSED = {
    "a device": (lambda m: swa_utils.AveragedModel(m, "cuda"), "weights are where their region is"),
    "two functions": (lambda m: swa_utils.AveragedModel(m, None, max, max), "avg_fn or multi_avg_fn, not both"),
    "no model": (lambda m: swa_utils.AveragedModel(3.0), "averages a Module, got float"),
    "in place": (
        lambda m: swa_utils.AveragedModel(m, multi_avg_fn=lambda means, news, n: None).update_parameters(m),
        "multi_avg_fn returns the list",
    ),
    "a decay": (lambda m: swa_utils.get_ema_avg_fn(1.5), "decay is between 0 and 1, got 1.5"),
    "a curve": (lambda m: swa_utils.SWALR(optim.SGD(m.parameters()), 0.1, 5, "sine"), 'one of "cos", "linear"'),
    "a length": (
        lambda m: swa_utils.SWALR(optim.SGD(m.parameters()), 0.1, -1),
        "anneal_epochs is an integer of at least 0",
    ),
    "no optimiser": (lambda m: optim.MultiSteps(m, 2), "MultiSteps takes an optimiser, got a Linear"),
    "no steps": (lambda m: optim.MultiSteps(optim.SGD(m.parameters()), 0), "every is an integer of at least 1, got 0"),
    "a gradient": (
        lambda m: optim.MultiSteps(optim.SGD(m.parameters()), 2).step([1.0]),
        "2 parameters, got 1 gradients",
    ),
    "a state": (
        lambda m: optim.MultiSteps(optim.SGD(m.parameters()), 2).load_state_dict({}),
        "MultiSteps has `total`, a sum for each parameter",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_meaning_is_refused_with_the_line(what):
    make, said = REFUSED[what]
    with pytest.raises((st.ArgumentError, st.StateDictError)) as refused:
        make(nn.Linear(2, 1))
    assert said in words_of(refused.value) and "test_swa_utils.py" in str(refused.value)


def test_names_and_arguments_are_torchs(library):
    torch = library("torch")
    assert set(torch.optim.swa_utils.__all__) == set(swa_utils.__all__)
    for name in ("AveragedModel", "SWALR", "update_bn"):
        mine, other = (inspect.signature(getattr(where, name)) for where in (swa_utils, torch.optim.swa_utils))
        assert [(one, two.default) for one, two in mine.parameters.items()] == [
            (one, two.default) for one, two in other.parameters.items()
        ], name


# ---- accumulation -------------------------------------------------------------------------------

GRADS = np.random.default_rng(2).standard_normal((7, 2, 3))
START = np.ones((2, 3))


def test_steps_along_the_mean_of_several_gradients():
    def whole(every):
        w = st.Variable(START, name="w")
        opt = optim.Adam([w], lr=0.1)
        for first in range(0, len(GRADS) - every + 1, every):
            opt.step([np.mean(GRADS[first : first + every], axis=0)])
        return w.numpy()

    @st.function
    def run(grads, every):
        w = st.Variable(START, name="w")
        opt = optim.MultiSteps(optim.Adam([w], lr=0.1), every)
        schedule = optim.lr_scheduler.LambdaLR(opt.optimizer, lambda epoch: 1.0)
        for grad in grads:
            if opt.step([grad]):
                schedule.step()
        return w.value, schedule.last_epoch.value

    for every in (1, 2, 3):
        for eager in (False, True):
            if eager:
                with st.eager():
                    found, steps = st.function(lambda grads: run(grads, every))(GRADS)  # noqa: B023
            else:
                found, steps = st.function(lambda grads: run(grads, every))(GRADS)  # noqa: B023
            np.testing.assert_allclose(np.asarray(found), whole(every), rtol=1e-12)
            assert int(steps) == len(GRADS) // every


def test_a_sum_is_saved_between_calls():
    def made():
        w = st.Variable(START, name="w")
        return w, optim.MultiSteps(optim.SGD([w], lr=0.1, momentum=0.9), 3)

    (w, opt), (other, again) = made(), made()
    step = st.function(lambda opt, grad: opt.step([grad]))
    done = [bool(step(opt, grad)) for grad in GRADS[:4]]
    assert done == [False, False, True, False]
    again.load_state_dict(opt.state_dict())
    other.value = w.numpy()
    for grad in GRADS[4:]:
        assert bool(step(opt, grad)) == bool(again.step([grad]))
    np.testing.assert_allclose(other.numpy(), w.numpy(), rtol=1e-12)
    assert not np.array_equal(w.numpy(), START)


BATCHES = np.random.default_rng(4).normal(1.0, 2.0, size=(3, 8, 4)).astype(np.float32)
LABELS = np.zeros((3, 8), np.int32)


def normed():
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=0.3), nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5)))
    model[0].running_mean.value = np.full(4, 9.0, np.float32)
    return model.eval()


def check_normed(model):
    mean = BATCHES.mean(axis=1).mean(axis=0)
    var = BATCHES.var(axis=1, ddof=1).mean(axis=0)
    np.testing.assert_allclose(model[0].running_mean.numpy(), mean, rtol=1e-5)
    np.testing.assert_allclose(model[0].running_var.numpy(), var, rtol=1e-5)
    np.testing.assert_allclose(model[1][0].running_mean.numpy(), 0.0, atol=1e-5)
    assert int(model[0].num_batches_tracked.numpy()) == 3
    assert [each.momentum for each in (model[0], model[1][0])] == [0.3, 0.1]
    assert not any(module.training for module in model.modules())


def test_statistics_of_batch_norms_are_means_over_all_batches():
    for loader in (list(BATCHES), list(zip(BATCHES, LABELS, strict=True))):
        model = normed()
        swa_utils.update_bn(loader, model)
        check_normed(model)
    swa_utils.update_bn(iter(()), nn.Linear(4, 4))  # without norms nothing is read
    with pytest.raises(st.ArgumentError, match="batches are where their region is"):
        swa_utils.update_bn([], normed(), "cuda")


def test_statistics_are_taken_in_a_loop_of_the_program():
    @st.function
    def f(model, x, y):
        swa_utils.update_bn(st.batches(x, y, size=8, shuffle=False), model)
        return 0

    model = normed()
    f(model, BATCHES.reshape(24, 4), LABELS.reshape(24))
    check_normed(model)
