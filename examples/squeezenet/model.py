"""SqueezeNet, with the names of torchvision's."""

import staged as st
from staged import nn

FIRES = ((16, 16), (32, 32), (48, 48, 64, 64))
"""The squeezed channels of the fire modules between two poolings."""


class Fire(nn.Module):
    """Few channels by a 1x1 convolution, then many by 1x1 and 3x3 ones side by side."""

    def __init__(self, channels, squeezed, expanded, dtype):
        self.squeeze = nn.Conv2d(channels, squeezed, 1, dtype=dtype)
        self.expand1x1 = nn.Conv2d(squeezed, expanded, 1, dtype=dtype)
        self.expand3x3 = nn.Conv2d(squeezed, expanded, 3, padding=1, dtype=dtype)

    def forward(self, x):
        x = st.relu(self.squeeze(x))
        return st.concat([st.relu(self.expand1x1(x)), st.relu(self.expand3x3(x))], axis=1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1; for images of fewer than 64 pixels its first stride and pooling are left out.

    Source: Iandola et al., SqueezeNet: AlexNet-level accuracy with 50x fewer parameters, 2016.
    """

    def __init__(self, size=224, classes=1000, fires=FIRES, dropout=0.5, dtype=st.f32):
        small = size < 64
        stem = nn.Conv2d(3, 64, 3, stride=1 if small else 2, padding=1 if small else 0, dtype=dtype)
        layers, channels = [stem, nn.ReLU()], 64
        for group, widths in enumerate(fires):
            layers.append(nn.Identity() if small and group == 0 else nn.MaxPool2d(3, stride=2, ceil_mode=True))
            for squeezed in widths:
                layers.append(Fire(channels, squeezed, 4 * squeezed, dtype))
                channels = 8 * squeezed
        self.features = nn.Sequential(*layers)
        last = nn.Conv2d(channels, classes, 1, dtype=dtype)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        # Without normalisation the signal must keep its size through all layers from the start, as in torchvision.
        for parameter in self.parameters():
            if parameter is last.weight:
                nn.init.normal_(parameter, std=0.01)
            elif parameter.ndim > 1:
                nn.init.kaiming_uniform_(parameter)
            else:
                nn.init.zeros_(parameter)

    def forward(self, x):
        """Class scores (batch, classes) of images (batch, 3, height, width)."""
        return self.classifier(self.features(x)).flatten(1)
