"""The MNIST programs against PyTorch, from the same weights and batches, dropout off; and what they reach."""

from functools import partial

import numpy as np
import pytest

import staged as st
from examples.mnist import python_loop
from examples.mnist.models import CNN, MLP
from staged import optim
from tests.torch_reference import reference

STEPS, BATCH = 100, 20
RATE = 0.05


def data(dtype):
    rng = np.random.default_rng(0)
    images = rng.standard_normal((STEPS * BATCH, 1, 28, 28)).astype(dtype)
    return images, rng.integers(0, 10, STEPS * BATCH).astype(np.int32)


def torch_model(torch, name):
    nn = torch.nn

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
            self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

        def forward(self, x):
            f = nn.functional
            h = f.max_pool2d(self.conv1(x).relu(), 2)
            h = f.max_pool2d(self.conv2(h).relu(), 2)
            return self.fc2(self.fc1(h.flatten(1)).relu())

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.fc3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)

        def forward(self, x):
            return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())

    return {"cnn": CNN, "mlp": MLP}[name]().double()


def initial_weights(model):
    """Weights by name, drawn as PyTorch draws them: uniformly, within 1 / sqrt(fan in)."""
    random = np.random.default_rng(5)
    bound = 0.0
    weights = {}
    for name, value in model.state_dict().items():
        if name.endswith("weight"):
            bound = 1.0 / np.sqrt(np.prod(value.shape[1:]))
        weights[name] = random.uniform(-bound, bound, value.shape)
    return weights


def torch_losses(torch, weights, images, labels, name):
    model = torch_model(torch, name)
    model.load_state_dict({key: torch.tensor(value) for key, value in weights.items()})
    x, y = torch.tensor(images), torch.tensor(labels).long()
    opt = torch.optim.SGD(model.parameters(), lr=RATE)
    losses = []
    for step in range(STEPS):
        rows = slice(step * BATCH, (step + 1) * BATCH)
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return np.array(losses)


def staged_losses(model, weights, images, labels):
    model.load_state_dict(weights)
    opt = optim.SGD(model.parameters(), lr=RATE)

    @st.function
    def train(images, labels):
        losses = st.zeros(STEPS, dtype=st.f64)

        def loss_fn(x, y):
            return st.cross_entropy(model(x), y)

        step = 0
        for x, y in st.batches(images, labels, size=BATCH):
            loss, grads = st.value_and_grad(loss_fn, wrt=model)(x, y)
            opt.step(grads)
            losses[step] = st.astype(loss, st.f64)
            step += 1  # noqa: SIM113  (a counter of the program)
        return losses

    return train(images, labels)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_losses_are_pytorchs(name):
    make = {"cnn": CNN, "mlp": MLP}[name]
    weights = initial_weights(make(dtype=st.f64))
    expected = reference(partial(torch_losses, name=name), weights, *data(np.float64))

    in_f64 = staged_losses(make(dtype=st.f64), weights, *data(np.float64))
    np.testing.assert_allclose(in_f64, expected, rtol=1e-9)

    single = {key: value.astype(np.float32) for key, value in weights.items()}
    in_f32 = staged_losses(make(), single, *data(np.float32))
    np.testing.assert_allclose(in_f32[:20], expected[:20], rtol=1e-4)


# ---- a last, smaller batch ------------------------------------------------------------------------


def trained(images, labels, size, has_second_body):
    """The losses and weights of one epoch with dropout, in random order; the last batch may be smaller."""
    st.seed(3)
    model = CNN(dtype=st.f64)
    opt = optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    whole = images.shape[0] // size
    losses = st.zeros(whole + 1, dtype=st.f64)

    def step(x, y, number):
        loss, grads = st.value_and_grad(lambda x, y: st.cross_entropy(model(x, dropout=0.5), y), wrt=model)(x, y)
        opt.step(grads)
        losses[number] = loss * x.shape[0]

    if has_second_body:
        order = st.random.permutation(images.shape[0])
        for number in st.range(whole):
            rows = order[number * size : number * size + size]
            step(images[rows], labels[rows], number)
        rows = order[whole * size :]
        step(images[rows], labels[rows], whole)
    else:
        for number, (x, y) in enumerate(st.batches(images, labels, size=size, shuffle=True, drop_last=False)):
            step(x, y, number)
    return losses, model.state_dict()


def assert_same_training(found, expected):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-9)
    for name, weight in expected[1].items():
        np.testing.assert_allclose(found[1][name], weight, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("target", ["native", "c99"])
def test_a_smaller_batch_is_trained_by_the_body_of_the_others(target):
    """1,797 images in batches of 64: 28 batches, and 5 images."""
    images, labels = (np.resize(each, (1797, *each.shape[1:])) for each in data(np.float64))
    train = st.function(static=("size", "has_second_body"), target=target)(trained)
    found, expected = (train(images, labels, 64, has_second_body) for has_second_body in (False, True))
    assert_same_training(found, expected)
    assert [program.calls for program in train.programs] == [1, 1]


def test_a_smaller_batch_is_trained_by_the_body_of_the_others_on_a_device(device):
    images, labels = (each[:10] for each in data(np.float64))

    @st.function(target="portable")
    def on_device(images, labels):
        with st.with_backend(st.GPU, images, labels):
            found = trained(images, labels, 4, has_second_body=False)
        return found

    expected = st.function(static=("size", "has_second_body"))(trained)(images, labels, 4, has_second_body=True)
    assert_same_training(on_device(images, labels), expected)


# ---- the example as a whole -----------------------------------------------------------------------


def test_digits_are_learned_from_three_seeds(library):
    library("sklearn")
    from examples.mnist.train import load, train

    split = load(None)
    final = [train(*split, 10, 0.02, seed, batch=32)[2][9] for seed in range(3)]
    assert np.mean(final) > 0.96


def test_the_cnn_learns_mnist(data_folder):
    from examples.mnist.train import load, train

    weights, losses, accuracies = train(*load(str(data_folder("mnist"))), 10, 0.02, 0)
    assert accuracies[:10].max() > 0.97 and accuracies[9] > 0.97
    assert losses[9] < losses[0] / 4
    assert weights["conv1.weight"].shape == (10, 1, 5, 5)


def test_the_loop_in_python_trains_as_the_one_in_the_program(tmp_path):
    """Batches of mapped files, in their order and without dropout: the same losses and weights."""
    images, labels = data(np.float32)
    images, labels = images[: 12 * BATCH], labels[: 12 * BATCH]
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", labels)
    models = [MLP(), MLP()]
    for model in models:
        model.load_state_dict({name: value.astype(np.float32) for name, value in initial_weights(model).items()})
    inside, outside = (optim.SGD(model.parameters(), lr=RATE, momentum=0.9) for model in models)

    @st.function
    def whole(images, labels):
        total = 0.0
        for x, y in st.batches(images, labels, size=BATCH):
            loss, grads = st.value_and_grad(lambda x, y: st.cross_entropy(models[0](x), y), wrt=models[0])(x, y)
            inside.step(grads)
            total += loss
        return total / 12

    losses, _ = python_loop.train(models[1], outside, python_loop.Mapped(tmp_path, BATCH), epochs=2, dropout=0.0)
    np.testing.assert_allclose(losses, [whole(images, labels) for _ in range(2)], rtol=1e-4)
    for name, weight in models[0].state_dict().items():
        np.testing.assert_allclose(models[1].state_dict()[name], weight, rtol=1e-3, atol=1e-5)
    assert [program.calls for program in python_loop.step.programs] == [24]


def test_the_loop_in_python_over_a_data_loader(library, capsys):
    library("torch")
    images, labels = data(np.float32)
    labels[:] = images[:, 0, 0, 0] > 0
    images[:, 0, 0, :] = images[:, 0, 0, :1] * 3  # so that it can be learnt
    model = MLP()
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, _ = python_loop.train(model, optimizer, python_loop.data_loader(images, labels, BATCH), epochs=3)
    assert losses[2] < 0.5 * losses[0]
    assert python_loop.accuracy(model, images[:200], labels[:200]) > 0.9
    assert "epoch 3: loss" in capsys.readouterr().out
