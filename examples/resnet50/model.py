"""ResNet-50, with the names of torchvision's."""

import staged as st
from staged import nn


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions whose result is added to what came in."""

    def __init__(self, channels, inner, stride, dtype):
        outer = 4 * inner
        self.conv1 = nn.Conv2d(channels, inner, 1, bias=False, dtype=dtype)
        self.bn1 = nn.BatchNorm2d(inner, dtype=dtype)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False, dtype=dtype)
        self.bn2 = nn.BatchNorm2d(inner, dtype=dtype)
        self.conv3 = nn.Conv2d(inner, outer, 1, bias=False, dtype=dtype)
        self.bn3 = nn.BatchNorm2d(outer, dtype=dtype)
        if stride != 1 or channels != outer:
            shortcut = nn.Conv2d(channels, outer, 1, stride=stride, bias=False, dtype=dtype)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outer, dtype=dtype))
        else:
            self.downsample = nn.Identity()

    def forward(self, x):
        y = st.relu(self.bn1(self.conv1(x)))
        y = st.relu(self.bn2(self.conv2(y)))
        return st.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """Residual networks of bottlenecks; `blocks` (3, 4, 6, 3) is ResNet-50.

    For images of fewer than 64 pixels the first convolution is 3x3 without stride, and nothing is pooled before the end.
    Source: He et al., Deep residual learning for image recognition, 2015; the stride in the 3x3, as torchvision's.
    """

    def __init__(self, size=224, classes=1000, blocks=(3, 4, 6, 3), width=64, dtype=st.f32):
        small = size < 64
        self.conv1 = (
            nn.Conv2d(3, width, 3, padding=1, bias=False, dtype=dtype)
            if small
            else nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False, dtype=dtype)
        )
        self.bn1 = nn.BatchNorm2d(width, dtype=dtype)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, stride=2, padding=1)
        channels, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            inner = width * 2**stage
            first = Bottleneck(channels, inner, 2 if stage > 0 else 1, dtype)
            others = [Bottleneck(4 * inner, inner, 1, dtype) for _ in range(count - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(first, *others))
            channels = 4 * inner
        self.fc = nn.Linear(channels, classes, dtype=dtype)

    def forward(self, x):
        """Class scores (batch, classes) of images (batch, 3, height, width)."""
        x = self.maxpool(st.relu(self.bn1(self.conv1(x))))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(st.mean(x, axis=(2, 3)))
