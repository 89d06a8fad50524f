"""ResNet-50's structure: equal blocks are loops, what its 158 convolutions need is made once, and it trains.

Source: He, Zhang, Ren and Sun, Deep residual learning for image recognition, 2016, table 1; the stride of a bottleneck is on
its 3 x 3 convolution, as in torchvision.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from typing import Any

import numpy as np

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, nn, optim, with_backend

BLOCKS = (3, 4, 6, 3)
CLASSES, STEPS, BATCH, SIDE = 10, 3, 2, 64
CONVOLUTIONS = 1 + sum(3 * count + 1 for count in BLOCKS)


class Bottleneck(nn.Module):
    """1 x 1 to `width` channels, 3 x 3, 1 x 1 to four times as many, each with batch norm; and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int, dtype: Any) -> None:
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False, dtype=dtype)
        self.bn1 = nn.BatchNorm2d(width, dtype=dtype)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False, dtype=dtype)
        self.bn2 = nn.BatchNorm2d(width, dtype=dtype)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False, dtype=dtype)
        self.bn3 = nn.BatchNorm2d(4 * width, dtype=dtype)
        self.is_projected = stride != 1 or inputs != 4 * width
        if self.is_projected:
            self.shortcut = nn.Conv2d(inputs, 4 * width, 1, stride=stride, bias=False, dtype=dtype)
            self.shortcut_bn = nn.BatchNorm2d(4 * width, dtype=dtype)

    def forward(self, x: Any) -> Any:
        y = st.relu(self.bn1(self.conv1(x)))
        y = st.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return st.relu(y + (self.shortcut_bn(self.shortcut(x)) if self.is_projected else x))


class ResNet(nn.Module):
    """ResNet-50 for a width of 64."""

    def __init__(self, width: int, dtype: Any) -> None:
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False, dtype=dtype)
        self.bn1 = nn.BatchNorm2d(width, dtype=dtype)
        blocks, inputs = [], width
        for stage, count in enumerate(BLOCKS):
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                blocks.append(Bottleneck(inputs, width << stage, stride, dtype))
                inputs = 4 * (width << stage)
        self.blocks = nn.Sequential(*blocks)
        self.fc = nn.Linear(inputs, CLASSES, dtype=dtype)

    def forward(self, x: Any) -> Any:
        y = st.max_pool2d(st.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(st.mean(self.blocks(y), axis=(2, 3)))


def training(backend: Any, width: int, dtype: Any) -> Any:
    """SGD with momentum, a step for each batch of images, from weights that are the same each time."""
    model = ResNet(width, dtype)
    rng = np.random.default_rng(0)
    state = model.state_dict()
    for name, value in state.items():
        if name.endswith("weight") and value.ndim > 1:
            state[name] = (rng.normal(size=value.shape) / np.sqrt(np.prod(value.shape[1:]))).astype(dtype.numpy)
    state["fc.bias"] = np.zeros((CLASSES,), dtype.numpy)
    model.load_state_dict(state)
    opt = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss_fn(x: Any, labels: Any) -> Any:
        return st.cross_entropy(model(x), labels)

    @st.function
    def train(images: Any, labels: Any, steps: Any) -> Any:
        losses = st.zeros((STEPS,), dtype=dtype)
        with with_backend(backend, images, labels):
            for step in st.range(steps):
                loss, grads = st.value_and_grad(loss_fn, wrt=model)(images[step], labels[step])
                opt.step(grads)
                losses[step] = loss
        return losses

    return train


def batches(dtype: str, side: int = SIDE) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    return rng.normal(size=(STEPS, BATCH, 3, side, side)).astype(dtype), rng.integers(0, CLASSES, (STEPS, BATCH))


def functions(text: str) -> dict[str, str]:
    """The body of each C function of a program, by its name."""
    found = re.findall(r"^(?:static int|extern \"C\" __global__ void(?: __launch_bounds__\(\d+\))?) (\w+)\((.*?)^}$",
                       text, re.MULTILINE | re.DOTALL)  # fmt: skip
    return dict(found)


def without_names(body: str) -> str:
    """A function's text with its own names numbered in their order, without comments."""
    body = re.sub(r"//.*", "", body)
    own = set(re.findall(r"(?:float|double|bool|int|int32_t|int64_t|_f32x\d|_f64x\d) \*?(\w+)(?: = |,|\)|\[|;)", body))
    numbers: dict[str, str] = {}
    return re.sub(
        r"(?<![.>])\b\w+", lambda m: numbers.setdefault(m[0], f"${len(numbers)}") if m[0] in own else m[0], body
    )


def routines(text: str, bodies: dict[str, str]) -> Counter[str]:
    """The number of calls of each of cuDNN's routines of convolutions."""
    made: Counter[str] = Counter()
    for name, body in bodies.items():
        routine = re.search(r"CHECK\(site, (cudnnConvolution\w+)\(", body)
        if routine:
            made[routine[1]] += len(re.findall(rf"\b{name}\(gpu, host,", text))
    return made


CALLS = 1 + len(BLOCKS) * (4 + 3)
"""In the text: a stage is its first block, and a loop over the others. The images need no gradient."""
ROUTINES = {
    "cudnnConvolutionForward": CALLS, "cudnnConvolutionBackwardFilter": CALLS, "cudnnConvolutionBackwardData": CALLS - 1
}  # fmt: skip


def test_resnet_50_of_full_width_has_158_convolutions_and_each_kernel_once() -> None:
    """Of images of 224 x 224: its text alone, which is as long as that of a narrow one."""
    assert CONVOLUTIONS == 53
    images, labels = batches("f4", 224)
    text = training(GPU, 64, st.f32).stage(images, labels, 1).source
    bodies = functions(text)
    assert routines(text, bodies) == ROUTINES
    assert text.count("cudnnCreate") == bodies["open_device"].count("cudnnCreate") > 10
    launches = dict(re.findall(r"cudaLaunchKernel\(KERNEL\((\w+)\), (st_dim3\(\d+\), st_dim3\(\d+\))", text))
    shapes = Counter((without_names(body), launches.get(name)) for name, body in bodies.items())
    assert len(launches) > 20 and shapes.most_common(1)[0][1] == 1


def test_what_158_convolutions_need_is_made_once_and_given_back(emulated_device: Emulator) -> None:
    device = emulated_device
    gc.collect()
    before = device.counts()
    train = training(GPU, 64 // 16, st.f32)
    images, labels = batches("f4")
    program = train.stage(images, labels, 1)
    assert routines(program.source, functions(program.source)) == ROUTINES

    program(images, labels, 1)
    first = device.counts() - before
    program(images, labels, STEPS)
    seen = device.counts() - before
    assert seen.library_calls >= 158  # iterations that are replayed as a graph make none
    assert (seen.descriptors_created, seen.allocations) == (first.descriptors_created, first.allocations)
    assert 0 < first.descriptors_created == first.live_descriptors < 120
    del train, program
    gc.collect()
    left = device.counts() - before
    assert (left.live_descriptors, left.live_handles, left.live_allocations, left.live_bytes) == (0, 0, 0, 0)


def test_resnet_50_at_a_quarter_of_its_width_has_the_hosts_losses(emulated_device: Emulator) -> None:
    """Those of eager mode, in f64: norms of eight elements, one after the other, let roundings grow from 1e-14 to 1e-10."""
    images, labels = batches("f8")
    found = training(GPU, 16, st.f64)(images, labels, STEPS)
    with st.eager():
        wanted = training(CPU, 16, st.f64)(images, labels, STEPS)
    assert np.isfinite(wanted).all() and wanted.min() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
