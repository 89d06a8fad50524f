"""A small ResNet and a SqueezeNet in torch's words: losses, running statistics, logits in evaluation."""

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from tests.torch_reference import reference


def define(nn, F, cat):
    class BasicBlock(nn.Module):
        def __init__(self, c_in, c_out, stride=1):
            super().__init__()
            self.conv1 = nn.Conv2d(c_in, c_out, 3, stride=stride, padding=1, bias=False)
            self.bn1 = nn.BatchNorm2d(c_out)
            self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
            self.bn2 = nn.BatchNorm2d(c_out)
            self.downsample = None
            if stride != 1 or c_in != c_out:
                self.downsample = nn.Sequential(
                    nn.Conv2d(c_in, c_out, 1, stride=stride, bias=False), nn.BatchNorm2d(c_out)
                )

        def forward(self, x):
            y = F.relu(self.bn1(self.conv1(x)))
            y = self.bn2(self.conv2(y))
            return F.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self, classes=10):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            self.layer1 = BasicBlock(8, 8)
            self.layer2 = BasicBlock(8, 16, 2)
            self.fc = nn.Linear(16, classes)

        def forward(self, x):
            x = self.layer2(self.layer1(self.stem(x)))
            return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))

    class Fire(nn.Module):
        def __init__(self, c_in, squeeze, expand):
            super().__init__()
            self.squeeze = nn.Conv2d(c_in, squeeze, 1)
            self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
            self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

        def forward(self, x):
            x = F.relu(self.squeeze(x))
            return cat([F.relu(self.expand1x1(x)), F.relu(self.expand3x3(x))], dim=1)

    class SqueezeNet(nn.Module):
        def __init__(self, classes=10):
            super().__init__()
            self.features = nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2),
                nn.ReLU(),
                nn.MaxPool2d(3, stride=2, ceil_mode=True),
                Fire(8, 4, 8),
                Fire(16, 4, 8),
            )
            self.classifier = nn.Sequential(nn.Conv2d(16, classes, 1), nn.AdaptiveAvgPool2d((1, 1)))

        def forward(self, x):
            return self.classifier(self.features(x)).flatten(1)

    return {"resnet": ResNet, "squeezenet": SqueezeNet}


NETS = define(nn, st, st.concat)


@st.function
def train(model, images, labels, steps):
    opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    losses = st.Stack(0.0, max=10)
    for _ in st.range(steps):
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(images), labels), wrt=model)()
        opt.step(grads)
        losses.append(loss)
    return losses.array()[:3]


@st.function
def evaluate(model, images):
    return model(images)


def torch_run(torch, name, weights, images, labels):
    model = define(torch.nn, torch.nn.functional, torch.cat)[name]()
    model.load_state_dict({key: torch.tensor(value) for key, value in weights.items()})
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
    images, labels, losses = torch.tensor(images), torch.tensor(labels), []
    for _ in range(3):
        opt.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    model.eval()
    return losses, dict(model.state_dict()), model(images)


@pytest.mark.parametrize("name", NETS)
def test_it_is_torchs(name):
    rng = np.random.default_rng(0)
    images, labels = rng.normal(size=(8, 3, 16, 16)).astype(np.float32), rng.integers(0, 10, 8)
    st.seed(0)
    model = NETS[name]()
    losses, state, logits = reference(torch_run, name, model.state_dict(), images, labels)
    np.testing.assert_allclose(train(model, images, labels, 3), losses, rtol=1e-4)
    model.eval()
    np.testing.assert_allclose(evaluate(model, images), logits, rtol=1e-3, atol=3e-4)
    assert list(model.state_dict()) == list(state)
    for key, value in state.items():
        assert np.allclose(model.state_dict()[key], value, rtol=1e-3, atol=1e-4), key
