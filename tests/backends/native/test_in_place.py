"""An array that a kernel reads and writes is one parameter if all calls of the kernel change it in place."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import optim

X = np.linspace(-1, 1, 8 * 24, dtype=np.float32).reshape(8, 24)


def heads(source: str, name: str) -> list[str]:
    """The parameters of the functions whose names begin with `name`."""
    return [" ".join(found.split()) for found in re.findall(rf"\nstatic void {name}\w*\(([^)]*)\)", source)]


@pytest.mark.parametrize("target", ["portable", "x86-64-v3", "c99"])
def test_a_weight_and_its_momentum_are_one_parameter_each(target: str) -> None:
    """Of a kernel of loops and of the epilogue of a product."""
    w, b = (st.Variable(np.full(shape, 0.1, np.float32), name=name) for name, shape in (("w", (24, 20)), ("b", (20,))))
    opt = optim.SGD([w, b], lr=0.5, momentum=0.9)

    def step(x):
        loss, grads = st.value_and_grad(lambda: st.sum(st.tanh(x @ w + b)), wrt=[w, b])()
        opt.step(grads)
        return loss

    source = st.function(step, target=target).stage(X).source
    (of_weight,) = [head for head in heads(source, "update_w") if "tile" not in head]
    (of_bias,) = heads(source, "update_b")
    for head, name in ((of_weight, "w"), (of_bias, "b")):
        assert f"float *velocity_{name}, float *{name}" in head
    assert not re.search(r"float \*new_|const float \*(velocity_)?[wb]\b", source[source.index("update_w") :])

    values = []
    for function in (st.function(step, target=target), step):
        w.value, b.value = np.full((24, 20), 0.1, np.float32), np.zeros(20, np.float32)
        opt = optim.SGD([w, b], lr=0.5, momentum=0.9)
        values.append([function(X), function(X), w.numpy(), b.numpy()])
    for one, other in zip(*values, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_a_kernel_with_other_calls_keeps_both_parameters() -> None:
    v = st.Variable(np.linspace(-1, 1, 96, dtype=np.float32), name="v")
    before = v.numpy().copy()

    @st.function
    def step(y):
        v.value = st.tanh(v.value) * 0.5
        return st.tanh(y) * 0.5

    (head,) = heads(step.stage(X[0]).source, "tanh_multiply")
    assert head.startswith("const float *in, float *out, ")
    np.testing.assert_allclose(step(X[0]), np.tanh(X[0]) * 0.5, rtol=1e-5)
    np.testing.assert_allclose(v.numpy(), np.tanh(before) * 0.5, rtol=1e-5)


def test_an_array_that_a_kernel_reads_in_two_shapes_is_one_parameter() -> None:
    @st.function
    def step(scores, labels):
        flat = labels.reshape(-1)
        return st.cross_entropy(scores, flat), st.grad(lambda scores: st.cross_entropy(scores, flat))(scores)

    scores, labels = X[:, :6], np.arange(8).reshape(2, 4) % 6
    (head,) = (head for head in heads(step.stage(scores, labels).source, "cross_entropy") if "labels" in head)
    assert head.count("const int64_t *") == 1, head
