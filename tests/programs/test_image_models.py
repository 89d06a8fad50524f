"""SqueezeNet and ResNet of the examples: scores of the whole networks and training of small ones against PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from examples import images
from examples.resnet50.model import ResNet
from examples.squeezenet.model import FIRES, SqueezeNet
from staged import optim
from tests.torch_reference import reference

SMALL: dict[str, Any] = {
    "squeezenet": lambda: SqueezeNet(32, 10, fires=((4,), (8,)), dropout=0.0, dtype=st.f64),
    "resnet": lambda: ResNet(32, 10, blocks=(1, 2), width=4, dtype=st.f64),
}


def torch_model(torch: Any, name: str, size: int, classes: int, plan: Any, width: int = 64) -> Any:
    """The same networks of PyTorch's modules, written from the publications, with torchvision's names."""
    nn = torch.nn

    class Fire(nn.Module):
        def __init__(self, channels: int, squeezed: int) -> None:
            super().__init__()
            self.squeeze = nn.Conv2d(channels, squeezed, 1)
            self.expand1x1 = nn.Conv2d(squeezed, 4 * squeezed, 1)
            self.expand3x3 = nn.Conv2d(squeezed, 4 * squeezed, 3, padding=1)

        def forward(self, x: Any) -> Any:
            x = self.squeeze(x).relu()
            return torch.cat([self.expand1x1(x).relu(), self.expand3x3(x).relu()], 1)

    class Bottleneck(nn.Module):
        def __init__(self, channels: int, inner: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(inner)
            self.conv3, self.bn3 = nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner)
            if stride > 1 or channels != 4 * inner:
                self.downsample = nn.Sequential(
                    nn.Conv2d(channels, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
                )

        def forward(self, x: Any) -> Any:
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
            return (self.bn3(self.conv3(y)) + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if name == "squeezenet":
                first = nn.Conv2d(3, 64, 3, padding=1) if size < 64 else nn.Conv2d(3, 64, 3, 2)
                layers, channels = [first, nn.ReLU()], 64
                for group, widths in enumerate(plan):
                    layers += [nn.Identity() if size < 64 and not group else nn.MaxPool2d(3, 2, ceil_mode=True)]
                    for squeezed in widths:
                        layers += [Fire(channels, squeezed)]
                        channels = 8 * squeezed
                self.features = nn.Sequential(*layers)
                last = nn.Conv2d(channels, classes, 1)
                self.classifier = nn.Sequential(nn.Identity(), last, nn.ReLU(), nn.AdaptiveAvgPool2d(1))
                return
            self.conv1 = (
                nn.Conv2d(3, width, 3, 1, 1, bias=False) if size < 64 else nn.Conv2d(3, width, 7, 2, 3, bias=False)
            )
            self.bn1, channels = nn.BatchNorm2d(width), width
            self.pool = nn.Identity() if size < 64 else nn.MaxPool2d(3, 2, 1)
            for stage, count in enumerate(plan):
                inner = width * 2**stage
                blocks = [Bottleneck(channels, inner, 2 if stage else 1)]
                blocks += [Bottleneck(4 * inner, inner, 1) for _ in range(count - 1)]
                setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
                channels = 4 * inner
            self.fc = nn.Linear(channels, classes)

        def forward(self, x: Any) -> Any:
            if name == "squeezenet":
                return self.classifier(self.features(x)).flatten(1)
            x = self.pool(self.bn1(self.conv1(x)).relu())
            for stage in range(len(plan)):
                x = getattr(self, f"layer{stage + 1}")(x)
            return self.fc(x.mean((2, 3)))

    return Net()


def loaded(torch: Any, weights: dict[str, np.ndarray], *sizes: Any) -> Any:
    dtype = torch.float64 if next(iter(weights.values())).dtype == np.float64 else torch.float32
    net = torch_model(torch, *sizes).to(dtype)
    net.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    return net


@pytest.mark.parametrize("name", SMALL)
def test_ten_steps_have_torchs_losses_and_statistics(name: str) -> None:
    st.seed(1)
    net = SMALL[name]()
    weights = {key: np.array(value) for key, value in net.state_dict().items()}
    x, y = images.waves(8, 32, 0)
    x = x.astype(np.float64)

    def by_torch(torch: Any, weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> list[Any]:
        plan, width = (((4,), (8,)), 64) if name == "squeezenet" else ((1, 2), 4)
        theirs = loaded(torch, weights, name, 32, 10, plan, width)
        optimizer = torch.optim.SGD(theirs.parameters(), 0.02, momentum=0.9, weight_decay=5e-4)
        losses = []
        for _ in range(10):
            loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        theirs.eval()
        return [np.array(losses), theirs(torch.tensor(x)).detach()]

    opt = optim.SGD(net.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)

    @st.function
    def train(x: Any, y: Any) -> Any:
        losses = st.zeros(10, dtype=st.f64)
        for step in st.range(10):
            loss, grads = st.value_and_grad(lambda: st.cross_entropy(net(x), y), wrt=net)()
            opt.step(grads)
            losses[step] = loss
        return losses

    losses, scores = reference(by_torch, weights, x, y)
    np.testing.assert_allclose(train(x, y), losses, rtol=1e-6)
    assert losses[9] < 0.9 * losses[0]
    net.eval()
    np.testing.assert_allclose(net(x), scores, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_scores_of_the_whole_network_are_torchs(name: str) -> None:
    st.seed(2)
    net, plan = (SqueezeNet(64, 1000), FIRES) if name == "squeezenet" else (ResNet(64, 1000), (3, 4, 6, 3))
    net.eval()
    assert (
        sum(p.size for p in net.parameters()) == {"squeezenet": 1_235_496, "resnet": 25_557_032}[name]
    )  # torchvision's
    weights = {key: np.array(value) for key, value in net.state_dict().items()}
    x, _ = images.waves(1, 64, 0)

    def by_torch(torch: Any, weights: dict[str, np.ndarray], x: np.ndarray) -> Any:
        return loaded(torch, weights, name, 64, 1000, plan).eval()(torch.tensor(x)).detach()

    scores = reference(by_torch, weights, x)
    np.testing.assert_allclose(net(x), scores, atol=1e-3 * abs(scores).max())


@pytest.mark.slow
def test_a_step_on_images_of_224_has_torchs_loss_and_gradients() -> None:
    st.seed(4)
    net = ResNet(224, 10, blocks=(1, 1, 1, 1), width=4, dtype=st.f64)
    weights = {key: np.array(value) for key, value in net.state_dict().items()}
    x, y = images.waves(2, 224, 0)
    x = x.astype(np.float64)

    def by_torch(torch: Any, weights: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> list[Any]:
        theirs = loaded(torch, weights, "resnet", 224, 10, (1, 1, 1, 1), 4)
        loss = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        return [loss.detach(), theirs.conv1.weight.grad, theirs.fc.weight.grad]

    expected = reference(by_torch, weights, x, y)

    @st.function
    def step(x: Any, y: Any) -> Any:
        return st.value_and_grad(lambda: st.cross_entropy(net(x), y), wrt=[net.conv1.weight, net.fc.weight])()

    loss, grads = step(x, y)
    for found, wanted in zip([loss, *grads], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9 * abs(wanted).max())
