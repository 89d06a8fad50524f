"""A loss that the library does not have, the focal loss, as a function and as a module.

Follows docs/guide.md#networks-and-optimisers and docs/guide.md#gradients.
"""

import numpy as np

import staged as st
from staged import nn


def focal_loss(logits, labels, gamma):
    log_p = st.log_softmax(logits, axis=-1)
    log_p = st.sum(log_p * st.one_hot(labels, logits.shape[-1]), axis=-1)
    return st.mean(-((1 - st.exp(log_p)) ** gamma) * log_p)


class FocalLoss(nn.Module):
    def __init__(self, gamma):
        self.gamma = gamma

    def forward(self, logits, labels):
        return focal_loss(logits, labels, self.gamma)


@st.function
def both(logits, labels):
    module = FocalLoss(2.0)
    return (
        st.value_and_grad(lambda logits: focal_loss(logits, labels, 2.0))(logits),
        st.value_and_grad(module)(logits, labels),
    )


def test_value_and_gradient_are_those_of_the_formula():
    logits = np.random.default_rng(0).normal(size=(5, 3))
    labels = np.array([0, 2, 1, 1, 0])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    hot = np.eye(3)[labels]
    q = (p * hot).sum(axis=1)
    value = np.mean(-((1 - q) ** 2) * np.log(q))
    slope = 2 * (1 - q) * np.log(q) - (1 - q) ** 2 / q  # of one example, with respect to q
    gradient = slope[:, None] * q[:, None] * (hot - p) / 5
    for loss, found in both(logits, labels):
        np.testing.assert_allclose(loss, value, rtol=1e-12)
        np.testing.assert_allclose(found, gradient, rtol=1e-10, atol=1e-14)
