"""Schedules against torch's: the same rates and momenta in a loop of one generated program, and in plain Python."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import staged as st
from staged import optim
from staged.optim import lr_scheduler
from tests.errors.said import words_of
from tests.torch_reference import reference

STEPS = 120
MOMENTUM, ADAM = ("SGD", {"lr": 0.1, "momentum": 0.9}), ("Adam", {"lr": 0.1})


def warm_then_root(epoch):
    return (epoch + 1) / 10 if epoch < 10 else 1 / (epoch - 8) ** 0.5


CASES = {
    "step": lambda m, o: m.StepLR(o, 7, 0.5),
    "milestones": lambda m, o: m.MultiStepLR(o, [2, 7, 7, 50], 0.5),
    "exponential": lambda m, o: m.ExponentialLR(o, 0.97),
    "constant": lambda m, o: m.ConstantLR(o, total_iters=9),
    "linear": lambda m, o: m.LinearLR(o, 0.25, 0.75, 30),
    "linear to 0": lambda m, o: m.LinearLR(o, 1.0, 0.0, 30),
    "polynomial": lambda m, o: m.PolynomialLR(o, 80, 2.0),
    "cosine": lambda m, o: m.CosineAnnealingLR(o, 30, 0.01),
    "restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 1, 0.01),
    "longer restarts": lambda m, o: m.CosineAnnealingWarmRestarts(o, 5, 2, 0.01),
    "a lambda": lambda m, o: m.LambdaLR(o, lambda epoch: 0.95**epoch),
    "a function with a condition": lambda m, o: m.LambdaLR(o, [warm_then_root]),
    "multiplicative": lambda m, o: m.MultiplicativeLR(o, lambda epoch: 0.9 if epoch % 2 == 0 else 1.05),
    "cyclic": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 8, 13),
    "cyclic, halves": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 8, mode="triangular2", base_momentum=0.7),
    "cyclic, powers": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 8, mode="exp_range", gamma=0.99, cycle_momentum=False),
    "cyclic, own scale": lambda m, o: m.CyclicLR(o, 0.01, 0.1, 8, scale_fn=lambda x: 1 / x, scale_mode="cycle"),
    "one cycle": lambda m, o: m.OneCycleLR(o, 0.3, STEPS),
    "one cycle, lines": lambda m, o: m.OneCycleLR(
        o, 0.3, epochs=12, steps_per_epoch=10, three_phase=True, anneal_strategy="linear"
    ),
    "chained": lambda m, o: m.ChainedScheduler(
        [m.ConstantLR(o, 0.1, 20), m.ExponentialLR(o, 0.9), m.CosineAnnealingLR(o, 17, 0.01)]
    ),
    "one after another": lambda m, o: m.SequentialLR(
        o,
        [m.LinearLR(o, 0.1, 1.0, 10), m.CosineAnnealingLR(o, 50, 0.001), m.MultiplicativeLR(o, lambda e: 0.9)],
        [10, 70],
    ),
    "restarts after others": lambda m, o: m.SequentialLR(
        o, [m.ConstantLR(o, 0.1, 4), m.CosineAnnealingWarmRestarts(o, 5, 2, 0.01), m.StepLR(o, 3)], [10, 90]
    ),
    "one cycle after a chain": lambda m, o: m.SequentialLR(
        o, [m.ChainedScheduler([m.ConstantLR(o, 0.1, 4), m.ExponentialLR(o, 0.9)]), m.OneCycleLR(o, 0.2, 200)], [10]
    ),
}  # fmt: skip
KINDS = {(name, kind[0]): kind for name in CASES for kind in ((MOMENTUM, ADAM) if "cyc" in name else (MOMENTUM,))}


def torchs(torch, steps):
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for (name, _), (kind, options) in KINDS.items():
            opt = getattr(torch.optim, kind)([torch.nn.Parameter(torch.zeros(1))], **options)
            schedule, group = CASES[name](torch.optim.lr_scheduler, opt), opt.param_groups[0]
            rates = []
            for _ in range(len(steps)):
                rates.append((group["lr"], group["betas"][0] if kind == "Adam" else group["momentum"]))
                schedule.step()
            found[f"{name}, {kind}"] = torch.tensor(rates, dtype=torch.float64)
    return found


def ours(numbers):
    found = {}
    for (name, _), (kind, options) in KINDS.items():
        opt = getattr(optim, kind)([st.Variable(st.zeros(1), name="w")], **options)
        schedule = CASES[name](lr_scheduler, opt)
        rates = st.zeros((STEPS, 2), dtype=st.f64)
        for index in numbers(STEPS):
            rates[index, 0] = opt.lr
            rates[index, 1] = opt.betas[0] if kind == "Adam" else opt.momentum
            schedule.step()
        found[f"{name}, {kind}"] = rates
    return found


def test_schedules_in_a_program_and_eagerly_give_torchs_rates():
    expected = reference(torchs, np.zeros(STEPS))
    run = st.function(lambda: ours(st.range))
    with st.eager():
        eagerly = run()
    for found in (run(), eagerly):
        assert found.keys() == expected.keys()
        for name, rates in found.items():
            np.testing.assert_allclose(np.asarray(rates), expected[name], rtol=1e-12, atol=1e-15, err_msg=name)


METRICS = np.round(np.abs(np.sin(np.arange(STEPS) ** 1.1)) + np.maximum(0.2, 1.0 - np.arange(STEPS) / 30), 6)
"""Rounded: the same bits on every processor."""
PLATEAUS = {
    "min": {"patience": 3, "factor": 0.5},
    "max": {"mode": "max", "patience": 2, "factor": 0.7, "threshold": 0.05, "threshold_mode": "abs", "cooldown": 4},
    "a least rate": {"patience": 0, "factor": 0.3, "min_lr": 0.01, "threshold": 0.2},
    "a least change": {"patience": 1, "threshold_mode": "abs", "threshold": 0.01, "eps": 1e-4},
}


def test_the_rate_is_reduced_on_a_plateau_when_torchs_is():
    def compute(torch, metrics):
        found = {}
        for name, options in PLATEAUS.items():
            opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
            schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, **options)
            rates = []
            for metric in metrics:
                schedule.step(metric)
                rates.append(schedule.get_last_lr()[0])
            found[name] = torch.tensor(rates, dtype=torch.float64)
        return found

    @st.function
    def run(metrics):
        found = {}
        for name, options in PLATEAUS.items():
            opt = optim.SGD([st.Variable(st.zeros(1))], lr=0.1)
            schedule = lr_scheduler.ReduceLROnPlateau(opt, **options)
            rates = st.zeros_like(metrics)
            for index in st.range(STEPS):
                schedule.step(metrics[index])
                rates[index] = schedule.get_last_lr()[0]
            found[name] = rates
        return found

    expected, found = reference(compute, METRICS), run(METRICS)
    with st.eager():
        eagerly = run(METRICS)
    for name, rates in expected.items():
        np.testing.assert_allclose(found[name], rates, rtol=1e-12, err_msg=name)
        np.testing.assert_allclose(eagerly[name], rates, rtol=1e-12, err_msg=name)
        assert len(set(rates)) > 2, name


def weighted(names=("a", "b")):
    return [st.Variable(np.ones(2), name=name) for name in names]


def test_a_step_in_a_loop_of_python_is_traced_once():
    (w,) = weighted("w")
    opt = optim.SGD([w], lr=0.1)
    schedule = lr_scheduler.CosineAnnealingLR(opt, T_max=5)

    @st.function
    def step(opt, schedule, grad):
        opt.step([grad])
        schedule.step()

    expected = np.ones(2)
    for count in range(6):
        expected = expected - 0.1 * (1 + np.cos(np.pi * count / 5)) / 2
        step(opt, schedule, np.ones(2))
        np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)
    assert len(step.programs) == 1 and step.programs[0].calls == 6
    assert schedule.get_last_lr() == [opt.lr.numpy()] and isinstance(schedule.get_last_lr()[0], float)


def test_groups_have_rates_of_their_own():
    a, b = weighted()
    opt = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
    schedule = lr_scheduler.LambdaLR(opt, [lambda epoch: 0.5**epoch, lambda epoch: 1 - epoch / 4])
    for _ in range(2):
        opt.step([np.ones(2), np.ones(2)])
        schedule.step()
    np.testing.assert_allclose(schedule.get_last_lr(), [0.025, 0.25], rtol=1e-12)
    np.testing.assert_allclose([a.numpy()[0], b.numpy()[0]], [1 - 0.15, 1 - 0.875], rtol=1e-12)
    assert [group["initial_lr"] for group in opt.state_dict()["param_groups"]] == [0.1, 0.5]


def test_a_rate_that_is_assigned_is_the_one_that_goes_on():
    opt = optim.SGD(weighted("w"), lr=0.1)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)
    opt.lr = 3.0
    schedule.step()
    assert schedule.get_last_lr() == [1.5] and opt.lr.numpy() == 1.5


def test_a_rate_may_be_an_argument_of_the_program():
    @st.function
    def run(rate):
        opt = optim.SGD([st.Variable(st.zeros(1))], lr=rate)
        schedule = lr_scheduler.StepLR(opt, 1, 0.5)
        schedule.step()
        return opt.lr.value, schedule.base_lrs[0]

    np.testing.assert_allclose(run(np.float64(0.3)), [0.15, 0.3], rtol=1e-12)


SAVED = [name for name in CASES if name not in ("a lambda", "multiplicative")]


@pytest.mark.parametrize("name", ["plateau", *SAVED])
def test_training_that_was_saved_and_loaded_has_the_same_rates(name):
    def made():
        opt = optim.SGD(weighted("w"), lr=0.1, momentum=0.9)
        make = CASES.get(name, lambda module, opt: module.ReduceLROnPlateau(opt, patience=2))
        return opt, make(lr_scheduler, opt)

    def steps(schedule, numbers):
        rates = []
        for number in numbers:
            schedule.step(*([METRICS[number]] if name == "plateau" else []))
            rates.append(schedule.get_last_lr()[0])
        return rates

    opt, schedule = made()
    steps(schedule, range(13))
    saved = pickle.loads(pickle.dumps((opt.state_dict(), schedule.state_dict())))
    other, again = made()
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    assert steps(again, range(13, 40)) == steps(schedule, range(13, 40))
    assert other.momentum is opt.momentum or np.asarray(other.momentum) == np.asarray(opt.momentum)
    assert again.state_dict()["_last_lr"] == schedule.state_dict()["_last_lr"]


def test_training_goes_on_after_a_number_of_steps():
    opt = optim.SGD(weighted("w"), lr=0.1)
    schedule = lr_scheduler.ExponentialLR(opt, 0.5)
    with pytest.raises(st.ArgumentError, match="last_epoch needs the rates"):
        lr_scheduler.ExponentialLR(optim.SGD(weighted("w"), lr=0.1), 0.5, last_epoch=3)
    for _ in range(3):
        schedule.step()
    other = optim.SGD(weighted("w"), lr=9.0)
    other.load_state_dict(copy.deepcopy(opt.state_dict()))
    again = lr_scheduler.ExponentialLR(other, 0.5, last_epoch=2)
    schedule.step(), again.step()
    assert again.get_last_lr() == schedule.get_last_lr() == [0.1 * 0.5**4] and again.base_lrs == [0.1]


def test_restarts_take_a_fraction_of_an_epoch():
    def compute(torch, at):
        opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3, 2, 0.01)
        rates = []
        for epoch in at:
            schedule.step(float(epoch))
            rates.append(schedule.get_last_lr()[0])
        return torch.tensor(rates, dtype=torch.float64)

    @st.function
    def run(at):
        opt = optim.SGD([st.Variable(st.zeros(1))], lr=0.1)
        schedule = lr_scheduler.CosineAnnealingWarmRestarts(opt, 3, 2, 0.01)
        rates = st.zeros_like(at)
        for index in st.range(len(at)):
            schedule.step(at[index])
            rates[index] = schedule.get_last_lr()[0]
        return rates

    at = np.arange(0.25, 40, 0.35)
    np.testing.assert_allclose(run(at), reference(compute, at), rtol=1e-9)


def test_a_cycle_ends_in_the_program_with_the_line():
    opt = optim.SGD(weighted("w"), lr=0.1, momentum=0.9)
    schedule = lr_scheduler.OneCycleLR(opt, 0.3, total_steps=2)
    step = st.function(lambda: schedule.step())
    step(), step()
    with pytest.raises(st.ProgramError, match="step 3 of a cycle of 2 steps") as refused:
        step()
    assert "test_lr_scheduler.py" in str(refused.value)


def test_a_schedule_on_the_device_is_that_of_the_host(emulated_device):
    def run(backend):
        @st.function
        def train(start):
            with st.with_backend(backend):
                w = st.Variable(start, name="w")
                opt = optim.Adam([w], lr=0.1)
                warm, cycle = lr_scheduler.LinearLR(opt, 0.1), lr_scheduler.OneCycleLR(opt, 0.3, 20)
                schedule = lr_scheduler.SequentialLR(opt, [warm, cycle], [3])
                for _ in st.range(12):
                    opt.step([st.cos(w)])
                    schedule.step()
                return w.value, opt.lr.value, opt.betas[0].value

        return train(np.linspace(-1.0, 1.0, 5))

    for host, device in zip(run(st.CPU), run(st.GPU), strict=True):
        np.testing.assert_allclose(np.asarray(device), np.asarray(host), rtol=1e-12)
    assert emulated_device.counts().launches


class Halves(lr_scheduler.LRScheduler):
    """A schedule of the user's."""

    def get_lr(self):
        if self.last_epoch % 2 == 1:
            return [rate * 0.5 for rate in self.get_last_lr()]
        return self.get_last_lr()


def test_a_schedule_of_ones_own_has_conditions():
    @st.function
    def run():
        schedule = Halves(optim.SGD([st.Variable(st.zeros(1))], lr=1.0))
        for _ in st.range(4):
            schedule.step()
        return schedule.get_last_lr()[0]

    assert run() == 0.25
    with st.eager():
        assert run() == 0.25


def of(name, *args, **options):
    return lambda opt: getattr(lr_scheduler, name)(opt, *args, **options)


def of_other(opt):
    return lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(optim.SGD(weighted("w")), 1)], opt)


REFUSED = {
    "no optimiser": (lambda opt: lr_scheduler.StepLR(0.1, 3), "the first argument is an optimiser, got a float"),
    "a step of 0": (of("StepLR", 0), "step_size is an integer of at least 1, got 0"),
    "a constant of 0": (of("ConstantLR", 0.0), "factor is above 0 and at most 1"),
    "a line from 0": (of("LinearLR", 0.0), "start_factor is above 0"),
    "a line to 2": (of("LinearLR", 1.0, 2.0), "end_factor is between 0 and 1"),
    "no length": (of("PolynomialLR", 0), "total_iters is an integer of at least 1"),
    "a period of 0": (of("CosineAnnealingLR", 0), "T_max is an integer"),
    "half a period": (of("CosineAnnealingWarmRestarts", 2.5), "T_0 is an integer"),
    "functions": (of("LambdaLR", [warm_then_root] * 2), "lr_lambda has 2 entries, the optimiser has 1 group"),
    "no function": (of("LambdaLR", 0.5), "lr_lambda is a function"),
    "a mode": (of("CyclicLR", 0.1, 0.2, mode="square"), 'mode is one of "triangular"'),
    "no momentum": (lambda opt: of("CyclicLR", 0.1, 0.2)(optim.Adagrad(weighted("w"))), "neither a momentum nor betas"),
    "two momenta": (
        lambda opt: of("OneCycleLR", 0.1, 9, base_momentum=[0.1, 0.2])(
            optim.SGD([{"params": [v]} for v in weighted()], momentum=0.1)
        ),
        "base_momentum is one number for all groups",
    ),
    "a cycle without end": (of("OneCycleLR", 0.1), "give `total_steps`, or"),
    "a cycle without a phase": (of("OneCycleLR", 0.1, 10, pct_start=0.1), "a phase has no steps"),
    "a share": (of("OneCycleLR", 0.1, 10, pct_start=2.0), "pct_start is a float between 0 and 1"),
    "a curve": (of("OneCycleLR", 0.1, 10, anneal_strategy="sine"), 'anneal_strategy is one of "cos"'),
    "a factor of 1": (of("ReduceLROnPlateau", factor=1.0), "factor is below 1"),
    "a direction": (of("ReduceLROnPlateau", "up"), 'mode is one of "min", "max"'),
    "a threshold": (of("ReduceLROnPlateau", threshold_mode="log"), 'threshold_mode is one of "rel", "abs"'),
    "many metrics": (lambda opt: of("ReduceLROnPlateau")(opt).step(np.ones(2)), "the metric is a scalar, got (2,)"),
    "none": (of("SequentialLR", [], []), "got no schedules"),
    "a plateau in a chain": (
        lambda opt: of("SequentialLR", [of("ReduceLROnPlateau")(opt)], [])(opt),
        "schedule 0 is a ReduceLROnPlateau",
    ),
    "milestones": (
        lambda opt: of("SequentialLR", [of("StepLR", 3)(opt)], [4])(opt),
        "1 schedules have one milestone less, got 1",
    ),
    "another optimiser": (of_other, "schedule 0 is of another optimiser"),
    "an epoch below 0": (lambda opt: of("CosineAnnealingWarmRestarts", 2)(opt).step(-1), "epoch is at least 0, got -1"),
    "a state": (
        lambda opt: of("StepLR", 3)(opt).load_state_dict({"gamma": 1.0}),
        "StepLR has step_size, gamma, base_lrs, last_epoch, missing",
    ),
    "a state of others": (
        lambda opt: of_other(None).load_state_dict({"_schedulers": []}),
        "has 1 schedules, the state_dict 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_schedule_is_refused_with_the_line(what):
    make, said = REFUSED[what]
    with pytest.raises((st.ArgumentError, st.ShapeError, st.StateDictError)) as refused:
        make(optim.SGD(weighted("w"), lr=0.1, momentum=0.9))
    assert said in words_of(refused.value) and "test_lr_scheduler.py" in str(refused.value)


def test_torchs_names_and_arguments(library):
    import inspect

    torch = library("torch")
    theirs = {name for name in torch.optim.lr_scheduler.__all__ if name != "_LRScheduler"}
    assert theirs == set(lr_scheduler.__all__)
    for name in theirs:
        mine, other = (inspect.signature(getattr(where, name)) for where in (lr_scheduler, torch.optim.lr_scheduler))
        assert [(one, two.default) for one, two in mine.parameters.items()] == [
            (one, two.default) for one, two in other.parameters.items()
        ], name


def traces(make, schedule, groups):
    """The number of programs of four calls of a step that writes and reads the rates."""
    weights = [st.Variable(np.ones(n, np.float32)) for n in (3, 2)]
    given = [{"params": weights[:1], "lr": 0.2}, {"params": weights[1:]}] if groups else weights
    opt = make(given)
    made = schedule(opt)

    @st.function
    def step():
        grads = st.grad(lambda: sum(st.sum(w.value**2) for w in weights), wrt=weights)()
        opt.step(grads)
        made.step()
        return made.get_last_lr()

    for _ in range(4):
        step()
    assert len(step.programs) == 1, step.why_traced()


OPTIMISERS = [
    name
    for name in optim.__all__
    if issubclass(type(made := getattr(optim, name)), type)
    and issubclass(made, optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "Muon")  # they take a function of the loss, and matrices
]


@pytest.mark.parametrize("groups", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("kind", OPTIMISERS)
def test_a_step_of_an_optimiser_and_its_schedule_is_traced_once(kind, groups) -> None:
    """Each call was another trace if the optimiser counts its steps (Adam, ASGD)."""
    has_rates = "lr" not in getattr(optim, kind).shared_options and kind != "Rprop"
    traces(lambda given: getattr(optim, kind)(given, lr=0.1), lambda o: lr_scheduler.StepLR(o, 2), groups and has_rates)


@pytest.mark.parametrize("name", ["averages", *dict.fromkeys(name for name in CASES if "condition" not in name)])
def test_a_schedule_in_a_step_is_traced_once(name) -> None:
    case = CASES.get(name, lambda m, o: optim.swa_utils.SWALR(o, 0.05, anneal_epochs=3))
    traces(lambda weights: optim.AdamW(weights, lr=0.1), lambda o: case(lr_scheduler, o), True)
