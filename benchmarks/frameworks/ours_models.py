"""The models of the MNIST rows in `staged`."""

from __future__ import annotations

from typing import Any

import staged as st
from staged import nn


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.fc3(st.relu(self.fc2(st.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: Any) -> Any:
        # Pool, then relu, as in the peers' versions: the same values, less work.
        x = st.relu(st.max_pool2d(self.conv1(x), 2))
        x = st.relu(st.max_pool2d(self.conv2(x), 2))
        return self.fc2(st.relu(self.fc1(x.reshape(x.shape[0], -1))))
