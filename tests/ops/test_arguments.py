"""Numbers that there are not, for functions that torch has too: refused where they are written, as torch refuses them."""

import numpy as np
import pytest

import staged as st

X = np.ones((2, 3, 4), np.float32)
MEAN, VAR = np.zeros(3, np.float32), np.ones(3, np.float32)
LOGS = np.zeros((4, 1, 3), np.float32)

REFUSED = {
    "batch_norm eps": (lambda: st.batch_norm(X, MEAN, VAR, eps=-1e-5), "eps is at least 0"),
    "batch_norm_training eps": (lambda: st.batch_norm_training(X, eps=0.0), "eps is above 0"),
    "smooth_l1_loss beta": (lambda: st.smooth_l1_loss(X, X, beta=-1.0), "beta is at least 0"),
    "huber_loss delta": (lambda: st.huber_loss(X, X, delta=0.0), "delta is above 0"),
    "integers": (lambda: st.random.integers(5, 5, (3,)), "low is below high, got 5 and 5"),
    "integers of nothing": (lambda: st.random.integers(0), "low is below high, got 0 and 0"),
    "normal": (lambda: st.random.normal((3,), std=-1.0), "std is at least 0"),
    "uniform": (lambda: st.random.uniform((3,), low=2.0, high=1.0), "low is at most high"),
    "ctc_loss blank": (lambda: st.ctc_loss(LOGS, np.array([[1, 2]]), 4, 2, blank=3), "blank is one of the 3 classes"),
    "ctc_loss blank below": (lambda: st.ctc_loss(LOGS, np.array([[1, 2]]), 4, 2, blank=-1), "blank is one of the 3 classes"),
    "flatten": (lambda: st.flatten(X, 2, 1), "axis 2 comes after axis 1"),
    "flatten counted from the end": (lambda: st.flatten(X, -1, 0), "comes after"),
    "linspace": (lambda: st.linspace(0, 1, -1), "num is at least 0"),
    "arange": (lambda: st.arange(0, 3, 0), "step"),
    "dropout": (lambda: st.dropout(X, 1.5), "between 0 and 1"),
}
TAKEN = {
    "batch_norm": lambda: st.batch_norm(X, MEAN, VAR, eps=0.0),
    "smooth_l1_loss": lambda: st.smooth_l1_loss(X, X, beta=0.0),
    "normal": lambda: st.random.normal((3,), std=0.0),
    "uniform": lambda: st.random.uniform((3,), low=1.0, high=1.0),
    "integers": lambda: st.random.integers(4, 5, (3,)),
    "flatten": lambda: st.flatten(X, 1, 1),
    "linspace": lambda: st.linspace(0, 1, 0),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_number_that_there_is_not_is_refused_with_the_line(what):
    call, match = REFUSED[what]
    with pytest.raises(ValueError, match=match) as refused:
        call()
    assert "test_arguments.py" in str(refused.value)


@pytest.mark.parametrize("what", TAKEN)
def test_a_number_at_the_edge_is_taken(what):
    assert np.isfinite(np.asarray(TAKEN[what]())).all()
