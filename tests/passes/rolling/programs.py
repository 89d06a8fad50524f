"""Programs of equal layers: each makes a function, its arguments, and the module or Variables that it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim

Made = tuple[Any, tuple[Any, ...], Any]
PROGRAMS: dict[str, tuple[Callable[[], Made], int]] = {}
"""By name: a program, and the number of loops over layers that are expected in it."""

RNG = np.random.default_rng(7)
X = RNG.standard_normal((4, 6)).astype(np.float32)
Y = RNG.standard_normal((4, 6)).astype(np.float32)
TEXT = RNG.standard_normal((2, 5, 8)).astype(np.float32)


def rolls(loops: int) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enter a program that has so many loops over layers."""

    def enter(make: Callable[[], Made]) -> Callable[[], Made]:
        PROGRAMS[make.__name__] = make, loops
        return make

    return enter


def portable(function: Callable[..., Any]) -> Any:
    """A staged function for the target that fuses no multiplications with additions."""
    return st.function(function, target="portable")


class Layers(nn.Module):
    """`count` linear layers, each with an activation."""

    def __init__(self, count: int, width: int = 6, activation: Callable[[Any], Any] = st.tanh) -> None:
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])
        self.activation = activation

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = self.activation(layer(x))
        return x


def training(model: Any, optimizer: Any, steps: int = 3, x: Any = X, y: Any = Y, **options: Any) -> Made:
    """Training steps on the mean squared error."""
    parameters = list(options.get("wrt", model.parameters()))
    clip = options.get("clip")

    def loss_of(x: Any, y: Any) -> Any:
        return st.mean((model(x) - y) ** 2)

    @portable
    def train(x: Any, y: Any) -> Any:
        losses = st.zeros((steps,))
        for i in st.range(steps):
            loss, grads = st.value_and_grad(loss_of, wrt=parameters)(x, y)
            if clip:
                grads, _ = optim.clip_grad_norm(grads, clip)
            optimizer.step(grads)
            losses[i] = loss
        return losses

    return train, (x, y), model


@rolls(1)
def forward_of_a_list() -> Made:
    model = Layers(5)
    return portable(lambda x: model(x)), (X,), model


@rolls(1)
def forward_of_a_sequential() -> Made:
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(6, 6), nn.ReLU())])
    return portable(lambda x: model(x)), (X,), model


@rolls(2)
def sgd() -> Made:
    model = Layers(4)
    return training(model, optim.SGD(model.parameters(), lr=0.1))


@rolls(2)
def adamw() -> Made:
    model = Layers(4)
    return training(model, optim.AdamW(model.parameters(), lr=0.01))


@rolls(2)
def a_last_layer_without_activation() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(6)])

        def forward(self, x: Any) -> Any:
            *before, last = self.layers
            for layer in before:
                x = st.relu(layer(x))
            return last(x)

    model = Net()
    return training(model, optim.SGD(model.parameters(), lr=0.1))


@rolls(2)
def variables_in_a_python_list() -> Made:
    weights = [st.Variable(Y[:1].T @ X[:1] * (0.1 + 0.1 * number)) for number in range(4)]

    def loss_of(x: Any, y: Any) -> Any:
        for weight in weights:
            x = st.sin(x @ weight)
        return st.sum((x - y) ** 2)

    @portable
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(loss_of, wrt=weights)(x, y)
        for weight, grad in zip(weights, grads, strict=True):
            weight.value = weight.value - 0.1 * grad
        return loss

    return step, (X, Y), weights


@rolls(2)
def dropout_in_each_layer() -> Made:
    class Net(nn.Module):
        def __init__(self) -> None:
            self.layers = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout(0.3)) for _ in range(4)])

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = x + layer(x)
            return x

    model = Net()
    return training(model, optim.SGD(model.parameters(), lr=0.05))


@rolls(3)
def batch_norm_in_each_layer() -> Made:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU()) for _ in range(4)])
    return training(model, optim.SGD(model.parameters(), lr=0.05))


class Residual(nn.Module):
    """Two convolutions with batch norms; the shortcut has a convolution if the size changes."""

    def __init__(self, channels: int, outer: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(channels, outer, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        if stride != 1:
            shortcut = nn.Conv2d(channels, outer, 3, stride=stride, padding=1, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outer))
        else:
            self.downsample = nn.Identity()

    def forward(self, x: Any) -> Any:
        y = st.relu(self.bn1(self.conv1(x)))
        return st.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Stage(nn.Module):
    """A block that halves the image, then equal ones."""

    def __init__(self, equal: int) -> None:
        self.layer1 = nn.Sequential(Residual(2, 4, 2), *[Residual(4, 4, 1) for _ in range(equal)])
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.fc(st.mean(self.layer1(x), axis=(2, 3)))


IMAGES = RNG.standard_normal((5, 2, 8, 8)).astype(np.float32)
LABELS = np.arange(5) % 3


def trained_and_evaluated(model: Any) -> Any:
    """Two steps of a model for images, then its results in evaluation."""
    optimizer = optim.AdamW(model.parameters(), lr=0.01)
    losses = st.zeros((2,))
    model.train()
    for step in st.range(2):
        loss, grads = st.value_and_grad(lambda x: st.cross_entropy(model(x), LABELS), wrt=model)(IMAGES)
        optimizer.step(grads)
        losses[step] = loss
    model.eval()
    return losses, model(IMAGES), list(model.state_dict().values())


@rolls(7)
def a_residual_stage_that_the_program_makes() -> Made:
    @portable
    def run(seed: Any) -> Any:
        st.seed(seed)
        return trained_and_evaluated(Stage(3))

    return run, (3,), []


@rolls(6)
def a_residual_stage() -> Made:
    model = Stage(2)
    return portable(lambda: trained_and_evaluated(model)), (), model


@rolls(2)
def layers_in_checkpoints() -> Made:
    model = Layers(4)

    def loss_of(x: Any, y: Any) -> Any:
        for layer in model.layers:
            x = st.checkpoint(lambda x, layer=layer: st.tanh(layer(x)))(x)
        return st.mean((x - y) ** 2)

    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @portable
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(loss_of, wrt=list(model.parameters()))(x, y)
        optimizer.step(grads)
        return loss

    return step, (X, Y), model


@rolls(1)
def gradients_of_each_sample() -> Made:
    model = Layers(4)

    def loss_of(x: Any, y: Any) -> Any:
        return st.sum((model(x) - y) ** 2)

    return portable(lambda x, y: st.vmap(st.grad(loss_of))(x, y)), (X, Y), model


@rolls(1)
def a_second_derivative() -> Made:
    model = Layers(4)

    def slope(x: Any) -> Any:
        return st.sum(st.grad(lambda x: st.sum(model(x) ** 2))(x) ** 2)

    return portable(lambda x: st.grad(slope, wrt=list(model.parameters()))(x)), (X,), model


@rolls(1)
def a_derivative_in_forward_mode() -> Made:
    model = Layers(4)
    return portable(lambda x, t: st.jvp(lambda x: model(x), (x,), (t,))), (X, Y), model


@rolls(2)
def transposed_weights_from_before_the_step() -> Made:
    model = Layers(4)
    weights = [layer.weight for layer in model.layers]
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @portable
    def step(x: Any, y: Any) -> Any:
        before = [st.transpose(weight) for weight in weights]
        loss, grads = st.value_and_grad(lambda x, y: st.mean((model(x) - y) ** 2), wrt=list(model.parameters()))(x, y)
        optimizer.step(grads)
        return loss, before

    return step, (X, Y), model


@rolls(4)
def gradients_with_a_largest_norm() -> Made:
    model = Layers(5)
    return training(model, optim.SGD(model.parameters(), lr=0.1), clip=0.5)


@rolls(3)
def the_last_layers_alone_are_trained() -> Made:
    model = Layers(8)
    trained = [parameter for layer in list(model.layers)[4:] for parameter in layer.parameters()]
    return training(model, optim.SGD(trained, lr=0.1), wrt=trained)


@rolls(1)
def results_of_each_layer() -> Made:
    model = Layers(4)

    @portable
    def features(x: Any) -> Any:
        found = []
        for layer in model.layers:
            x = st.tanh(layer(x))
            found.append(st.sum(x, axis=0))
        return x, found

    return features, (X,), model


@rolls(1)
def the_first_input_in_each_layer() -> Made:
    model = Layers(4)

    @portable
    def run(x: Any) -> Any:
        h = x
        for layer in model.layers:
            h = st.tanh(layer(h)) + x
        return h

    return run, (X,), model


@rolls(2)
def an_average_of_the_weights() -> Made:
    model, shadow = Layers(4), Layers(4)
    pairs = list(zip(shadow.parameters(), model.parameters(), strict=True))

    @portable
    def step(x: Any) -> Any:
        for average, parameter in pairs:
            average.value = 0.9 * average.value + 0.1 * parameter.value
        return shadow(x)

    return step, (X,), shadow


@rolls(1)
def the_weights_before_a_step() -> Made:
    model = Layers(4)

    @portable
    def step(x: Any) -> Any:
        before = [parameter.value for parameter in model.parameters()]
        for parameter in model.parameters():
            parameter.value = parameter.value * 0.5
        return sum(st.sum(old - parameter.value) for old, parameter in zip(before, model.parameters(), strict=True))

    return step, (X,), model


@rolls(5)
def a_model_that_the_program_makes() -> Made:
    @portable
    def run(x: Any, y: Any) -> Any:
        st.seed(3)
        model = Layers(4)
        parameters = list(model.parameters())
        optimizer = optim.SGD(parameters, lr=0.1, momentum=0.9)

        def loss_of(x: Any, y: Any) -> Any:
            return st.mean((model(x) - y) ** 2)

        losses = st.zeros((3,))
        for i in st.range(3):
            loss, grads = st.value_and_grad(loss_of, wrt=parameters)(x, y)
            optimizer.step(grads)
            losses[i] = loss
        return losses, model(x)

    return run, (X, Y), []


@rolls(1)
def checks_and_prints_in_each_layer() -> Made:
    model = Layers(4)

    @portable
    def run(x: Any) -> Any:
        for layer in model.layers:
            x = st.tanh(layer(x))
            print("largest:", st.max(x))
            assert st.max(x) < 2.0
        return x

    return run, (X,), model


@rolls(1)
def branches_in_each_layer() -> Made:
    model = Layers(4)

    def loss_of(x: Any) -> Any:
        for layer in model.layers:
            x = layer(x)
            if st.sum(x) > 0.0:
                x = st.tanh(x)
            else:
                x = x * 0.5
        return st.sum(x)

    return portable(lambda x: st.value_and_grad(loss_of, wrt=list(model.parameters()))(x)), (X,), model


@rolls(1)
def loops_in_each_layer() -> Made:
    model = Layers(4)

    def loss_of(x: Any) -> Any:
        for layer in model.layers:
            for _ in st.range(2):
                x = st.tanh(layer(x))
        return st.sum(x)

    return portable(lambda x: st.value_and_grad(loss_of, wrt=list(model.parameters()))(x)), (X,), model


@rolls(1)
def recursion_in_each_layer() -> Made:
    model = Layers(4)

    @st.function
    def power(x: Any, n: Any) -> Any:
        if n <= 0:
            return x
        return st.tanh(power(x, n - 1) * 1.1)

    def loss_of(x: Any) -> Any:
        for layer in model.layers:
            x = power(layer(x), 2)
        return st.sum(x)

    return portable(lambda x: st.value_and_grad(loss_of, wrt=list(model.parameters()))(x)), (X,), model


@rolls(1)
def recurrent_layers() -> Made:
    model = nn.LSTM(8, 8, num_layers=4, batch_first=True)

    def loss_of(x: Any) -> Any:
        return st.sum(model(x)[0] ** 2)

    return portable(lambda x: st.value_and_grad(loss_of, wrt=list(model.parameters()))(x)), (TEXT,), model


@rolls(2)
def transformer_layers() -> Made:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.TransformerEncoder(layer, 3)
    return training(model, optim.AdamW(model.parameters(), lr=0.01), x=TEXT, y=TEXT * 0.5)


@rolls(0)
def layers_of_different_widths() -> Made:
    widths = [6, 7, 8, 9, 6]
    model = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(widths, widths[1:], strict=False)])
    return training(model, optim.SGD(model.parameters(), lr=0.1))


@rolls(0)
def one_weight_for_all_layers() -> Made:
    layer = nn.Linear(6, 6)

    @portable
    def run(x: Any) -> Any:
        for _ in range(5):
            x = st.tanh(layer(x))
        return x

    return run, (X,), layer


@rolls(1)
def layers_in_another_order_the_second_time() -> Made:
    weights = [st.Variable(Y[:1].T @ X[:1] * (0.1 + 0.1 * number)) for number in range(6)]

    @portable
    def run(x: Any) -> Any:
        for weight in weights + [weights[number] for number in (0, 2, 1, 3, 5, 4)]:
            x = st.tanh(x @ weight)
        return x

    return run, (X,), weights


@rolls(0)
def complex_weights() -> Made:
    weights = [st.Variable((np.eye(6) * (0.5 + 0.1j * number)).astype(np.complex64)) for number in range(4)]

    @portable
    def run(x: Any) -> Any:
        for weight in weights:
            x = st.sin(x @ weight)
        return x

    return run, (X.astype(np.complex64),), weights


@rolls(0)
def weights_of_the_caller_and_of_the_program() -> Made:
    weights = [st.Variable(np.full((6, 6), 0.1 * number, np.float32)) for number in range(3)]

    @portable
    def run(x: Any) -> Any:
        for weight in [*weights, *[st.Variable(x.T @ x * number) for number in range(3)]]:
            x = st.tanh(x @ weight)
        return x

    return run, (X,), weights


@rolls(2)
def layers_of_a_recursive_function() -> Made:
    weights = [st.Variable(Y[:1].T @ X[:1] * (0.1 + 0.1 * number)) for number in range(4)]

    @st.function
    def deeper(x: Any, n: Any) -> Any:
        if n <= 0:
            return x
        for weight in weights:
            x = st.tanh(x @ weight)
        y = deeper(x, n - 1)
        for weight in weights:
            weight.value = weight.value * 0.9
        return y

    return portable(lambda x, n: deeper(x, n)), (X, 3), weights


@rolls(2)
def weights_that_are_read_backwards() -> Made:
    """The kernel of an update reads the old weight in another order, so it must not write it in its own place."""

    class Scale(nn.Module):
        def __init__(self, start: Any) -> None:
            self.weight = st.Variable(start)

        def forward(self, x: Any) -> Any:
            return st.tanh(x * self.weight * st.stop_gradient(st.flip(self.weight)))

    model = nn.Sequential(*(Scale(2.0 * row) for row in X))
    return training(model, optim.SGD(model.parameters(), lr=0.1))


@rolls(1)
def weights_that_the_program_computes() -> Made:
    @portable
    def run(x: Any) -> Any:
        weights = [st.Variable(x.T @ x * (0.1 * number)) for number in range(4)]
        for weight in weights:
            x = st.tanh(x @ weight)
        return x

    return run, (X,), []


@rolls(0)
def what_two_layers_back_has_made() -> Made:
    model = Layers(6)

    @portable
    def run(x: Any) -> Any:
        before = x
        for layer in model.layers:
            before, x = x, st.tanh(layer(x)) + before
        return x

    return run, (X,), model
