"""Batch norm's running statistics: they follow torch's through training, are saved and loaded, and are no parameters."""

import numpy as np
import pytest

import staged as st
from staged import nn, optim

RNG = np.random.default_rng(2)
BATCHES = RNG.standard_normal((3, 4, 2, 5, 5)) * 1.5 + 0.5


def build(n, **k):
    return n.Sequential(n.Conv2d(2, 3, 3, **k), n.BatchNorm2d(3, **k), n.ReLU())


@pytest.mark.parametrize("momentum", [0.1, None])
def test_training_follows_torch_step_by_step(momentum, library):
    torch = library("torch")
    theirs, ours = build(torch.nn, dtype=torch.float64), build(nn, dtype=st.f64)
    theirs[1].momentum = ours[1].momentum = momentum
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    opt = optim.SGD(ours.parameters(), lr=0.1)
    torch_opt = torch.optim.SGD(theirs.parameters(), lr=0.1)

    @st.function
    def step(x):
        loss, grads = st.value_and_grad(lambda: st.mean(ours(x) ** 2.0), wrt=ours)()
        opt.step(grads)
        return loss

    for x in BATCHES:
        torch_opt.zero_grad()
        loss = (theirs(torch.tensor(x)) ** 2.0).mean()
        loss.backward()
        torch_opt.step()
        np.testing.assert_allclose(step(x), loss.item(), rtol=1e-10)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(np.asarray(ours.state_dict()[name]), value.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)

    theirs.eval()
    ours.eval()

    @st.function
    def evaluate(x):
        return ours(x)

    np.testing.assert_allclose(evaluate(BATCHES[0]), theirs(torch.tensor(BATCHES[0])).detach().numpy(), rtol=1e-9, atol=1e-12)
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
    with st.eager():
        eager = train(BATCHES)
    assert compiled["2.num_batches_tracked"] == 3
    for name, value in eager.items():
        np.testing.assert_allclose(compiled[name], np.asarray(value), rtol=1e-10, atol=1e-12, err_msg=name)


def test_buffers_are_saved_in_torchs_order_and_are_no_parameters(library):
    torch = library("torch")
    ours, theirs = build(nn), build(torch.nn)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(ours.named_parameters()) == [name for name, _ in theirs.named_parameters()]
    assert list(ours.named_buffers()) == [name for name, _ in theirs.named_buffers()]
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
