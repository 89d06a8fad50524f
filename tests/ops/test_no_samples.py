"""Functions of a batch of no samples: the result has none either, as in torch, and the gradient is empty or 0."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

IMAGES, ROWS, STEPS = np.zeros((0, 4, 6, 6)), np.zeros((0, 5)), np.zeros((3, 0, 5))
RNG = np.random.default_rng(2)
FILTER, WEIGHT = RNG.standard_normal((2, 4, 3, 3)), RNG.standard_normal((12, 5))
AROUND = RNG.standard_normal((12, 3))
GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def recurrent(name):
    count = 3 * GATES[name]
    return lambda x: getattr(st, name)(x, None, WEIGHT[:count], AROUND[:count])[0]


FUNCTIONS = {
    "group_norm": (lambda x: st.group_norm(x, 2), IMAGES, IMAGES.shape),
    "group_norm, rows": (lambda x: st.group_norm(x, 5), ROWS, ROWS.shape),
    "group_norm, no places": (lambda x: st.group_norm(x, 2), np.zeros((2, 4, 0)), (2, 4, 0)),
    "instance_norm": (st.instance_norm, IMAGES, IMAGES.shape),
    "layer_norm": (lambda x: st.layer_norm(x, (6, 6)), IMAGES, IMAGES.shape),
    "rms_norm": (st.rms_norm, ROWS, ROWS.shape),
    "max_pool2d": (lambda x: st.max_pool2d(x, 2), IMAGES, (0, 4, 3, 3)),
    "avg_pool2d": (lambda x: st.avg_pool2d(x, 2), IMAGES, (0, 4, 3, 3)),
    "adaptive_avg_pool2d": (lambda x: st.adaptive_avg_pool2d(x, 2), IMAGES, (0, 4, 2, 2)),
    "conv2d": (lambda x: st.conv2d(x, FILTER), IMAGES, (0, 2, 4, 4)),
    "conv_transpose2d": (lambda x: st.conv_transpose2d(x, FILTER.transpose(1, 0, 2, 3)), IMAGES, (0, 2, 8, 8)),
    "linear": (lambda x: x @ WEIGHT.T, ROWS, (0, 12)),
    "softmax": (lambda x: st.softmax(x, axis=1), ROWS, ROWS.shape),
    "softmax of no scores": (lambda x: st.softmax(x, axis=0), ROWS, ROWS.shape),
    "log_softmax of no scores": (lambda x: st.log_softmax(x, axis=0), ROWS, ROWS.shape),
    "normalize": (st.normalize, ROWS, ROWS.shape),
    "cross_entropy": (
        lambda x: st.cross_entropy(x, np.zeros(0, np.int64), reduction="none"), ROWS, (0,)
    ),
    "flatten": (lambda x: st.flatten(x, 1), IMAGES, (0, 144)),
    **{name: (recurrent(name), STEPS, (3, 0, 3)) for name in GATES},
    "rnn of no features": (lambda x: st.rnn(x, None, WEIGHT[:3, :0], AROUND[:3])[0], np.zeros((2, 3, 0)), (2, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_of_no_samples(way) -> None:
    def run(batches):
        found = {}
        for name, (f, _, _) in FUNCTIONS.items():
            x = batches[name]
            found[name] = f(x), st.grad(lambda x, f=f: st.sum(st.sin(f(x))))(x), st.jvp(f, (x,), (x,))[1]
        return found

    batches = {name: x for name, (_, x, _) in FUNCTIONS.items()}
    found = st.function(run)(batches) if way == "compiled" else run(batches)
    for name, (_, x, shape) in FUNCTIONS.items():
        value, back, tangent = map(np.asarray, found[name])
        assert (value.shape, tangent.shape, back.shape) == (shape, shape, x.shape), name
        assert not np.isnan(value).any(), name


def test_the_logarithm_of_no_sum() -> None:
    def run(x, y):
        return st.logsumexp(x), st.logsumexp(y, axis=0), st.logsumexp(y, axis=1)

    for f in (run, st.function(run)):
        whole, down, along = map(np.asarray, f(np.zeros(0), ROWS))
        assert whole == -np.inf and (down == np.full(5, -np.inf)).all() and along.shape == (0,)
