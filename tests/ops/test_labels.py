"""The error of a loss for a label that is no class: the label that is in the data, and what leaves rows out."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.random.default_rng(0).standard_normal((3, 5))
WEIGHT = np.linspace(0.5, 1.5, 5)
MESSAGE = r"label {} is out of range for 5 classes \(a loss leaves out the rows of its `ignore_index`\)"

LOSSES = {
    "cross_entropy": lambda x, y: st.cross_entropy(x, y),
    "cross_entropy, weights": lambda x, y: st.cross_entropy(x, y, weight=WEIGHT),
    "cross_entropy, another label ignored": lambda x, y: st.cross_entropy(x, y, ignore_index=-7),
    "nll_loss": lambda x, y: st.nll_loss(x, y),
    "gradient": lambda x, y: st.value_and_grad(st.cross_entropy)(x, y),
    "forward mode": lambda x, y: st.jvp(lambda x: st.cross_entropy(x, y), (x,), (x,)),
    "mapped over rows": lambda x, y: st.vmap(st.cross_entropy)(x, y),
    "mapped over rows, weights": lambda x, y: st.vmap(lambda x, y: st.cross_entropy(x, y, weight=WEIGHT))(x, y),
    "mapped over logits": lambda x, y: st.vmap(st.nll_loss, in_axes=(0, None))(st.stack([x, x]), y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_label_of_the_data_is_named(name) -> None:
    program = st.function(LOSSES[name])
    for label in (-100, -1, 5):
        labels = np.array([0, label, 2])
        with pytest.raises(IndexError, match=MESSAGE.format(label)):
            program(X, labels)
        with pytest.raises(IndexError, match=MESSAGE.format(label)), st.eager():
            LOSSES[name](X, labels)


def test_one_row_alone_and_unsigned_labels() -> None:
    program = st.function(lambda x, y: st.cross_entropy(x, y, weight=WEIGHT))
    with pytest.raises(IndexError, match=MESSAGE.format(-1)):
        program(X[0], np.array(-1))
    with pytest.raises(IndexError, match=MESSAGE.format(200)):
        program(X, np.array([0, 200, 1], np.uint8))


def test_the_ignored_label_is_left_out() -> None:
    labels = np.array([1, -100, 2])
    found = st.function(lambda x, y: st.cross_entropy(x, y, ignore_index=-100))(X, labels)
    log_p = X - np.log(np.exp(X).sum(1, keepdims=True))
    np.testing.assert_allclose(found, -(log_p[0, 1] + log_p[2, 2]) / 2, rtol=1e-12)
