"""The two models: Lantern's convolutional network, and a multilayer perceptron."""

import staged as st
from staged import nn


class CNN(nn.Module):
    """conv 1->10 5x5, relu, max-pool 2, conv 10->20 5x5, relu, max-pool 2, fc 320->50, relu, dropout 0.5, fc 50->10.

    Source: Wang et al., Demystifying Differentiable Programming, ICFP 2019 (the MNIST model of Lantern's evaluation).
    """

    def __init__(self, dtype=st.f32):
        self.conv1 = nn.Conv2d(1, 10, 5, dtype=dtype)
        self.conv2 = nn.Conv2d(10, 20, 5, dtype=dtype)
        self.fc1 = nn.Linear(320, 50, dtype=dtype)
        self.fc2 = nn.Linear(50, 10, dtype=dtype)

    def forward(self, x, dropout=0.0):
        """Class scores (batch, 10) of images (batch, 1, 28, 28)."""
        h1 = st.max_pool2d(st.relu(self.conv1(x)), 2)
        h2 = st.max_pool2d(st.relu(self.conv2(h1)), 2)
        h3 = st.relu(self.fc1(st.reshape(h2, (h2.shape[0], 320))))
        return self.fc2(st.dropout(h3, dropout))


class MLP(nn.Module):
    """784-256-128-10 with relu."""

    def __init__(self, dtype=st.f32):
        self.fc1 = nn.Linear(784, 256, dtype=dtype)
        self.fc2 = nn.Linear(256, 128, dtype=dtype)
        self.fc3 = nn.Linear(128, 10, dtype=dtype)

    def forward(self, x, dropout=0.0):
        """Class scores (batch, 10) of images (batch, 1, 28, 28)."""
        h1 = st.relu(self.fc1(st.reshape(x, (x.shape[0], 784))))
        h2 = st.relu(self.fc2(h1))
        return self.fc3(st.dropout(h2, dropout))


MODELS = {"cnn": CNN, "mlp": MLP}
