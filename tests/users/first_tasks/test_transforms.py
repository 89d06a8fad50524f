"""Jacobians, the Hessian, and second derivatives of each element by `vmap(grad(grad))`.

Follows docs/guide.md#gradients.
"""

import numpy as np

import staged as st

A = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.25]])


def curve(x):
    return st.sin(A @ x)


@st.function
def derivatives(x):
    return (
        st.jacrev(curve)(x),
        st.jacfwd(curve)(x),
        st.hessian(lambda x: st.sum(curve(x)))(x),
        st.vmap(st.grad(st.grad(lambda t: st.exp(t * t))))(x),
    )


def test_all_are_the_closed_forms():
    x = np.array([0.3, -0.7])
    reverse, forward, hessian, second = derivatives(x)
    jacobian = np.cos(A @ x)[:, None] * A
    np.testing.assert_allclose(reverse, jacobian, rtol=1e-12)
    np.testing.assert_allclose(forward, jacobian, rtol=1e-12)
    np.testing.assert_allclose(hessian, -(A.T * np.sin(A @ x)) @ A, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(second, (2 + 4 * x * x) * np.exp(x * x), rtol=1e-12)
