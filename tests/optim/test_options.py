"""Optimisers read their numbers at every step, and are made with numbers that there are."""

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.frontend.trace_function import trace

P = np.array([2.0, -3.0])
G = np.array([0.5, 1.0])


def moved(make, change, steps=3):
    """The values of the parameter in steps of one gradient, `change(opt)` before the last one; by a program, and eagerly."""
    ends = []
    for context in (None, st.eager):
        w = st.Variable(P, name="w")
        opt = make([w])

        @st.function
        def step(grad):
            opt.step([grad])  # noqa: B023

        for number in range(steps):
            if number == steps - 1:
                before = w.numpy()
                change(opt)
            if context is None:
                step(G)
            else:
                with context():
                    step(G)
        ends.append((before, w.numpy()))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-12)
    return ends[0]


ALL = [
    optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad, optim.RMSprop, optim.Adadelta, optim.Adamax, optim.NAdam,
    optim.RAdam, optim.Adafactor, optim.Lion,
]  # fmt: skip


@pytest.mark.parametrize("make", ALL)
def test_a_rate_of_0_moves_nothing(make):
    before, after = moved(lambda ps: make(ps, lr=0.5), lambda opt: setattr(opt, "lr", 0.0))
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("make", [*ALL, optim.ASGD], ids=lambda make: make.__name__)
def test_numbers_of_a_step_are_computed_once_for_all_parameters(make):
    def numbers(count):
        params = [st.Variable(P.astype(np.float32)) for _ in range(count)]
        opt = make(params, lr=st.Variable(0.1), weight_decay=0.1)
        ops = trace(opt.step, ([P.astype(np.float32)] * count,)).function.block.ops
        return sum(op.name in ("cast", "pow", "variable_read") and not op.result.type.shape for op in ops)

    assert numbers(1) == numbers(3)


def test_every_number_is_read_at_the_step():
    """The last step by torch's formula with the number set then, from what the steps before it left."""
    sgd = lambda **options: lambda ps: optim.SGD(ps, lr=0.1, **options)  # noqa: E731
    before, after = moved(sgd(), lambda opt: setattr(opt, "weight_decay", 0.5))
    np.testing.assert_allclose(after, before - 0.1 * (G + 0.5 * before), rtol=1e-12)
    before, after = moved(sgd(momentum=0.9), lambda opt: setattr(opt, "momentum", 0.5))
    np.testing.assert_allclose(after, before - 0.1 * (0.5 * 1.9 * G + G), rtol=1e-12)
    before, after = moved(sgd(momentum=0.9), lambda opt: setattr(opt, "nesterov", True))
    np.testing.assert_allclose(after, before - 0.1 * (G + 0.9 * 2.71 * G), rtol=1e-12)
    before, after = moved(sgd(momentum=0.9, dampening=0.5), lambda opt: setattr(opt, "dampening", 0.25))
    np.testing.assert_allclose(after, before - 0.1 * (0.9 * 1.4 * G + 0.75 * G), rtol=1e-12)
    before, after = moved(lambda ps: optim.Adagrad(ps, lr=0.1), lambda opt: setattr(opt, "eps", 10.0))
    np.testing.assert_allclose(after, before - 0.1 * G / (np.sqrt(3 * G * G) + 10.0), rtol=1e-12)
    decaying = lambda ps: optim.Adagrad(ps, lr=0.1, lr_decay=0.1, eps=0.0)  # noqa: E731
    before, after = moved(decaying, lambda opt: setattr(opt, "lr_decay", 1.0))
    np.testing.assert_allclose(after, before - 0.1 / 3.0 * G / np.sqrt(3 * G * G), rtol=1e-12)
    before, after = moved(lambda ps: optim.Adam(ps, lr=0.1), lambda opt: setattr(opt, "betas", (0.0, 0.0)))
    np.testing.assert_allclose(after, before - 0.1 * np.sign(G), rtol=1e-6)
    before, after = moved(lambda ps: optim.AdamW(ps, lr=0.1), lambda opt: setattr(opt, "weight_decay", 0.5))
    np.testing.assert_allclose(after, 0.95 * before - 0.1 * np.sign(G), rtol=1e-6)
    before, after = moved(lambda ps: optim.Adam(ps, lr=0.1), lambda opt: setattr(opt, "eps", 1.0))
    np.testing.assert_allclose(after, before - 0.1 * G / (np.abs(G) + 1.0), rtol=1e-6)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        (optim.SGD, "momentum", 0.9),
        (optim.Adagrad, "lr_decay", 0.1),
        (optim.RMSprop, "momentum", 0.9),
        (optim.RMSprop, "centered", True),
        (optim.Adam, "amsgrad", True),
    ],
)
def test_what_would_need_a_past_that_was_not_kept_is_refused(make, name, value):
    opt = make([st.Variable(P, name="w")], lr=0.1)
    setattr(opt, name, value)
    with pytest.raises(st.StagingError, match=f"made with {name} = 0"):
        opt.step([G])
    opt = optim.SGD([st.Variable(P, name="w")], lr=0.1, momentum=0.9)
    opt.dampening = 0.5
    with pytest.raises(st.StagingError, match="made with dampening = 0"):
        opt.step([G])


def test_the_first_gradient_is_not_dampened():
    w = st.Variable(P, name="w")
    opt = optim.SGD([w], lr=1.0, momentum=0.5, dampening=0.25)
    velocity, expected = np.zeros(2), P.copy()

    @st.function
    def run():
        for _ in st.range(4):
            opt.step([st.asarray(G)])

    run()
    for number in range(4):
        velocity = 0.5 * velocity + (G if number == 0 else 0.75 * G)
        expected = expected - velocity
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-12)


W = [st.Variable(P, name="w")]
REFUSED = {
    "SGD lr": lambda: optim.SGD(W, -0.1),
    "SGD lr nan": lambda: optim.SGD(W, float("nan")),
    "SGD momentum": lambda: optim.SGD(W, momentum=-0.9),
    "SGD weight_decay": lambda: optim.SGD(W, weight_decay=-1.0),
    "SGD nesterov alone": lambda: optim.SGD(W, nesterov=True),
    "SGD nesterov dampened": lambda: optim.SGD(W, momentum=0.9, dampening=0.1, nesterov=True),
    "Adam lr": lambda: optim.Adam(W, lr=-1),
    "Adam eps": lambda: optim.Adam(W, eps=-1e-8),
    "Adam beta of 1": lambda: optim.Adam(W, betas=(0.9, 1.0)),
    "Adam beta below": lambda: optim.Adam(W, betas=(-0.1, 0.9)),
    "AdamW weight_decay": lambda: optim.AdamW(W, weight_decay=-0.1),
    "Adagrad lr_decay": lambda: optim.Adagrad(W, lr_decay=-0.1),
    "Adagrad eps": lambda: optim.Adagrad(W, eps=-0.1),
    "Adagrad accumulator": lambda: optim.Adagrad(W, initial_accumulator_value=-0.1),
    "RMSprop alpha": lambda: optim.RMSprop(W, alpha=-0.1),
    "RMSprop momentum": lambda: optim.RMSprop(W, momentum=-0.1),
    "Adadelta rho below": lambda: optim.Adadelta(W, rho=-0.1),
    "Adadelta rho above": lambda: optim.Adadelta(W, rho=1.1),
    "Adamax beta": lambda: optim.Adamax(W, betas=(0.9, 1.0)),
    "NAdam momentum_decay": lambda: optim.NAdam(W, momentum_decay=-0.1),
    "RAdam eps": lambda: optim.RAdam(W, eps=-0.1),
    "Adafactor eps": lambda: optim.Adafactor(W, eps=(None, -1.0)),
    "Adafactor beta2_decay": lambda: optim.Adafactor(W, beta2_decay=0.1),
    "ASGD weight_decay": lambda: optim.ASGD(W, weight_decay=-0.1),
    "Rprop etas": lambda: optim.Rprop(W, etas=(1.5, 1.2)),
    "Lion betas": lambda: optim.Lion(W, betas=(0.9, 1.0)),
    "Muon ns_steps": lambda: optim.Muon(W, ns_steps=100),
    "Muon adjust_lr_fn": lambda: optim.Muon(W, adjust_lr_fn="mine"),
    "Muon coefficients": lambda: optim.Muon(W, ns_coefficients=(1.0, 2.0)),
    "one twice": lambda: optim.SGD([*W, *W]),
    "none": lambda: optim.SGD([]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_torch_refuses_is_refused_with_the_line(what):
    with pytest.raises(st.ArgumentError) as refused:
        REFUSED[what]()
    assert "test_options.py" in str(refused.value)


@pytest.mark.parametrize("make", [*ALL, optim.ASGD, optim.Rprop, optim.Muon])
@pytest.mark.parametrize("start", [np.arange(3), np.array([True, False])])
def test_what_holds_no_floats_is_not_trained(make, start):
    with pytest.raises(st.DTypeError, match="trains floats, the Variable `k` holds") as refused:
        make([st.Variable(start, name="k")])
    assert "test_options.py" in str(refused.value)


@pytest.mark.parametrize("clip", [optim.clip_grad_norm, optim.clip_grad_value])
@pytest.mark.parametrize("grads", [[G, np.arange(3)], {"a": np.array([7], np.uint8)}, np.array([True])])
def test_gradients_that_hold_no_floats_are_not_clipped(clip, grads):
    """A scale below 1 is 0 as an integer."""
    with pytest.raises(st.DTypeError, match="needs floats, got") as refused:
        clip(grads, 0.5)
    assert "test_options.py" in str(refused.value)


def test_muon_trains_matrices_and_names_what_is_none():
    with pytest.raises(st.ShapeError, match="trains matrices, the Variable `w` has shape") as refused:
        optim.Muon(W)
    assert "test_options.py" in str(refused.value)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match=r"Adam\(\) got an unexpected keyword argument 'amsgrat'"):
        optim.Adam(W, amsgrat=True)


def test_positions_are_torchs():
    opt = optim.SGD(W, 0.1, 0.9, 0, 1e-4)
    assert (opt.momentum, opt.dampening, opt.weight_decay, opt.nesterov) == (0.9, 0, 1e-4, False)
    with pytest.raises(st.DTypeError, match="trains Variables, got an ndarray"):
        optim.SGD([P])


def test_gradients_by_name_find_their_parameters_in_any_order():
    a, b = st.Variable(P, name="a"), st.Variable(P, name="b")
    opt = optim.SGD({"a": a, "b": b}, lr=1.0)
    opt.step({"b": np.ones(2), "a": np.zeros(2)})
    np.testing.assert_array_equal(a.numpy(), P)
    np.testing.assert_array_equal(b.numpy(), P - 1.0)
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    before = model.state_dict()
    optim.SGD(model.parameters(), lr=1.0).step(
        {"1.weight": np.ones((2, 2), np.float32), "0.weight": np.zeros((2, 2), np.float32)}
    )
    np.testing.assert_array_equal(model.state_dict()["0.weight"], before["0.weight"])
    with pytest.raises(st.ArgumentError, match="2 parameters, got 1 gradients"):
        opt.step([G])


class Two(nn.Module):
    """Two parameters of one shape, whose gradients are 1 and 10."""

    def __init__(self):
        self.a, self.b = nn.Parameter(np.ones(2, np.float32)), nn.Parameter(np.ones(2, np.float32))

    def forward(self):
        return st.sum(self.a) + 10.0 * st.sum(self.b)


GIVEN = {
    "a list": lambda model: [model.b, model.a],
    "a reversed iterator": lambda model: reversed(list(model.parameters())),
    "other names": lambda model: {"second": model.b, "first": model.a},
    "groups": lambda model: [{"params": [model.b]}, {"params": [model.a]}],
}


@pytest.mark.parametrize("given", GIVEN)
def test_gradients_of_a_module_find_parameters_that_were_given_in_another_order(given):
    model = Two()
    opt = optim.SGD(GIVEN[given](model), lr=1.0)
    opt.step(st.grad(model, wrt=model)())
    np.testing.assert_array_equal(model.a.numpy(), [0.0, 0.0])
    np.testing.assert_array_equal(model.b.numpy(), [-9.0, -9.0])


def test_gradients_whose_names_stand_at_another_parameters_place_are_refused():
    first, last = model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    grads = {"0.weight": np.ones((2, 2), np.float32), "1.weight": np.zeros((2, 2), np.float32)}
    for in_order in (list(model.parameters()), [*first.parameters(), *last.parameters()]):
        optim.SGD(in_order, lr=1.0).step(grads)
    before = model.state_dict()
    for turned in (
        [*last.parameters(), *first.parameters()],
        [{"params": last.parameters()}, {"params": first.parameters()}],
    ):
        with pytest.raises(
            st.ArgumentError, match="gradient `0.weight` .* `linear1.weight`[^$]*named_parameters"
        ) as refused:
            optim.SGD(turned, lr=1.0).step(grads)
        assert "test_options.py" in str(refused.value)
    for name, value in before.items():
        np.testing.assert_array_equal(model.state_dict()[name], value)
    optim.SGD(dict(reversed(model.named_parameters().items())), lr=1.0).step(grads)
    np.testing.assert_array_equal(model.state_dict()["1.weight"], before["1.weight"])


@pytest.mark.parametrize("grad", [None, [1.0, 1.0], 1.0])
def test_what_is_no_gradient_is_refused_with_the_line(grad):
    a, b = st.Variable(P, name="a"), st.Variable(P, name="b")
    with pytest.raises(st.ArgumentError, match="`b`.* got a (NoneType|list|float)") as refused:
        optim.SGD([a, b], lr=1.0).step([G, grad])
    assert "test_options.py" in str(refused.value)


def test_numbers_are_clipped_as_gradients():
    for most in (1.0, st.asarray(1.0)):
        (one, two), norm = optim.clip_grad_norm([3.0, 4.0], most)
        np.testing.assert_allclose([float(one), float(two), float(norm)], [0.6, 0.8, 5.0], rtol=1e-6)
        assert [float(each) for each in optim.clip_grad_value([3.0, -4.0], most)] == [1.0, -1.0]


def test_a_pair_is_not_taken_for_gradients():
    a, b = st.Variable(P, name="a"), st.Variable(P, name="b")
    opt = optim.SGD([a, b], lr=1.0)
    pair = optim.clip_grad_norm([st.asarray(G), st.asarray(G)], 1.0)
    with pytest.raises(st.ArgumentError, match=r"pair of gradients.*\n[^$]*opt.step\(pair\)[^$]*take the pair apart"):
        opt.step(pair)
    opt.step((G, G))  # a tuple of two gradients is what it says


def test_parameters_are_not_taken_for_gradients():
    model = nn.Linear(2, 2)
    opt = optim.SGD(model.parameters(), lr=1.0)
    for call in (
        lambda: opt.step(model.parameters()),
        lambda: opt.step(model.named_parameters().values()),
        lambda: optim.clip_grad_norm(model.parameters(), 1.0),  # torch's way
        lambda: optim.clip_grad_norm(dict(model.named_parameters()), 1.0),
        lambda: optim.clip_grad_value(model.parameters(), 1.0),
        lambda: optim.clip_grad_norm(model, 1.0),
    ):
        with pytest.raises(st.ArgumentError, match="gradients, got") as refused:
            call()
        assert "test_options.py" in str(refused.value)


KINDS_OF_NUMBERS = {"np.float64": np.float64, "an array": np.array, "a Variable": lambda v: st.Variable(np.array(v))}


@pytest.mark.parametrize("kind", KINDS_OF_NUMBERS)
def test_numbers_of_another_precision_leave_a_parameter_its_own(kind):
    """A rate that NumPy has computed is an f64 array as an argument of a step; an f32 parameter stays f32, as in torch."""
    of = KINDS_OF_NUMBERS[kind]
    makers = {
        "SGD": lambda ps, n: optim.SGD(ps, lr=n(0.1), momentum=n(0.9), dampening=n(0.5), weight_decay=n(0.1)),
        "nesterov": lambda ps, n: optim.SGD(ps, lr=n(0.1), momentum=n(0.9), nesterov=True),
        "Adagrad": lambda ps, n: optim.Adagrad(ps, lr=n(0.1), lr_decay=n(0.1), weight_decay=n(0.1), eps=n(1e-3)),
        "AdamW": lambda ps, n: optim.AdamW(ps, n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3), weight_decay=n(0.1)),
        "ASGD": lambda ps, n: optim.ASGD(ps, lr=n(0.1), lambd=n(0.1), alpha=n(0.5), t0=n(1.0), weight_decay=n(0.1)),
        "RMSprop": lambda ps, n: optim.RMSprop(ps, lr=n(0.1), alpha=n(0.9), momentum=n(0.5), centered=True),
        "Adadelta": lambda ps, n: optim.Adadelta(ps, lr=n(0.1), rho=n(0.9), eps=n(1e-3), weight_decay=n(0.1)),
        "Adamax": lambda ps, n: optim.Adamax(ps, lr=n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3)),
        "NAdam": lambda ps, n: optim.NAdam(ps, n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3), weight_decay=n(0.1)),
        "RAdam": lambda ps, n: optim.RAdam(ps, n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3), weight_decay=n(0.1)),
        "Adafactor": lambda ps, n: optim.Adafactor(ps, lr=n(0.1), beta2_decay=n(-0.8), weight_decay=n(0.1)),
        "Lion": lambda ps, n: optim.Lion(ps, n(0.1), betas=(n(0.8), n(0.9)), weight_decay=n(0.1)),
        "Adam": lambda ps, n: optim.Adam(ps, n(0.1), betas=(n(0.8), n(0.9)), eps=n(1e-3), weight_decay=n(0.1)),
    }
    start, slope = P.astype(np.float32), G.astype(np.float32)

    @st.function
    def ends(rate):
        found = {}
        for name, make in makers.items():
            for number, tag in ((of, "other"), (float, "python")):
                w = st.Variable(start, name="w")
                opt = make([w], number)
                if tag == "other":
                    opt.lr = rate
                opt.step([slope])
                opt.step([slope])
                found[name, tag] = w.value
        return found

    for context in (None, st.eager):
        if context is None:
            got = ends(np.float64(0.1))
        else:
            with context():
                got = ends(np.float64(0.1))
        for name in makers:
            assert got[name, "other"].dtype == np.float32
            np.testing.assert_allclose(got[name, "other"], got[name, "python"], rtol=1e-6)


def test_a_gradient_of_another_dtype_is_named():
    opt = optim.SGD([st.Variable(P.astype(np.float32), name="w")], lr=0.1)
    with pytest.raises(st.DTypeError, match="parameter `w` is f32, its gradient f64") as refused:
        opt.step([st.asarray(G)])
    assert "test_options.py" in str(refused.value)
