"""Batch norm's running statistics: they follow torch's through training, are saved and loaded, and are no parameters."""

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from tests.torch_reference import reference

RNG = np.random.default_rng(2)
BATCHES = RNG.standard_normal((3, 4, 2, 5, 5)) * 1.5 + 0.5


def build(n, **k):
    return n.Sequential(n.Conv2d(2, 3, 3, **k), n.BatchNorm2d(3, **k), n.ReLU())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_follows_torch_step_by_step(momentum):
    ours = build(nn, dtype=st.f64)
    ours[1].momentum = momentum
    start = {name: np.asarray(value) for name, value in ours.state_dict().items()}
    start["0.weight"] = np.random.default_rng(3).uniform(-0.2, 0.2, start["0.weight"].shape)
    start["0.bias"] = np.array([0.1, 0.0, -0.1])
    ours.load_state_dict(start)
    opt = optim.SGD(ours.parameters(), lr=0.1)

    def theirs(torch, start, batches):
        module = build(torch.nn, dtype=torch.float64)
        module[1].momentum = momentum
        module.load_state_dict({name: torch.tensor(value) for name, value in start.items()})
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        losses = []
        for x in batches:
            optimizer.zero_grad()
            loss = (module(torch.tensor(x)) ** 2.0).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        module.eval()
        return losses, module.state_dict(), module(torch.tensor(batches[0]))

    losses, trained, evaluated = reference(theirs, start, BATCHES)

    @st.function
    def step(x):
        loss, grads = st.value_and_grad(lambda: st.mean(ours(x) ** 2.0), wrt=ours)()
        opt.step(grads)
        return loss

    for x, loss in zip(BATCHES, losses, strict=True):
        np.testing.assert_allclose(step(x), loss, rtol=1e-10)
    for name, value in trained.items():
        np.testing.assert_allclose(np.asarray(ours.state_dict()[name]), value, rtol=1e-9, atol=1e-12, err_msg=name)

    ours.eval()

    @st.function
    def evaluate(x):
        return ours(x)

    np.testing.assert_allclose(evaluate(BATCHES[0]), evaluated, rtol=1e-9, atol=1e-12)
    before = {name: np.asarray(value) for name, value in ours.state_dict().items()}
    evaluate(BATCHES[1])
    for name, value in ours.state_dict().items():
        np.testing.assert_array_equal(np.asarray(value), before[name], err_msg="evaluation changes nothing")


def test_a_whole_training_loop_in_one_program_agrees_with_eager_mode():
    @st.function
    def train(batches):
        model = nn.Sequential(nn.Flatten(), nn.Linear(50, 4, dtype=st.f64), nn.BatchNorm1d(4, dtype=st.f64))
        opt = optim.SGD(model.parameters(), lr=0.1)
        for x in batches:
            _, grads = st.value_and_grad(lambda x: st.mean(st.sin(model(x))), wrt=model)(x)
            opt.step(grads)
        return model.state_dict()

    compiled = train(BATCHES)
    st.seed(0)
    with st.eager():
        eager = train(BATCHES)
    assert compiled["2.num_batches_tracked"] == 3
    for name, value in eager.items():
        np.testing.assert_allclose(compiled[name], np.asarray(value), rtol=1e-10, atol=1e-12, err_msg=name)


def test_buffers_are_saved_in_torchs_order_and_are_no_parameters():
    def names(module):
        parts = module.state_dict(), dict(module.named_parameters()), dict(module.named_buffers())
        return [",".join(part) for part in parts]

    ours = build(nn)
    assert names(ours) == reference(lambda torch: names(build(torch.nn)))
    with pytest.raises(KeyError, match="running_var"):
        ours.load_state_dict({n: v for n, v in ours.state_dict().items() if n != "1.running_var"})


def test_running_statistics_cannot_be_written_under_vmap():
    layer = nn.BatchNorm1d(3)

    @st.function
    def f(x):
        return st.vmap(layer)(x)  # here

    with pytest.raises(st.StagedError, match="`running_mean`|`num_batches_tracked`") as caught:
        f(np.zeros((2, 4, 3), np.float32))
    assert "# here" in str(caught.value)
