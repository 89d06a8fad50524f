"""Programs with a mistake: an error of shapes, a step through eager mode, and the search for a NaN.

Follows README.md#errors-name-your-lines, docs/errors.md#while-staging and docs/guide.md#when-something-is-wrong.
"""

import sys
from pathlib import Path

import numpy as np
import pytest

import staged as st

LINES = Path(__file__).read_text().splitlines()


@st.function
def forward(x, w):
    hidden = st.relu(x)
    return hidden @ w  # the shapes


@st.function(check_nan=True)
def loss(x, w):
    p = st.log(x)  # the NaN
    q = p * w
    return st.mean(st.tanh(q + 1.0)), p


def line_with(remark):
    return next(number for number, line in enumerate(LINES, 1) if line.endswith(f"# {remark}"))


@pytest.mark.parametrize("eager", [False, True])
def test_an_error_cites_the_line_the_shapes_and_a_way_out(eager):
    with pytest.raises(st.ShapeError) as caught:
        if eager:
            with st.eager():
                forward(np.ones((2, 3)), np.ones((4, 5)))
        else:
            forward(np.ones((2, 3)), np.ones((4, 5)))
    text = str(caught.value)
    assert "matmul needs equal inner sizes, got (2, 3) @ (4, 5)" in text and "To fix: " in text
    assert f"test_wrong_programs.py, line {line_with('the shapes')}, in forward" in text


@st.function
def squares(x):
    y = x * x
    return st.sum(y)  # the stop


def test_a_debugger_stops_in_eager_mode_and_shows_values():
    seen = []

    def debugger(frame, event, argument):
        if event == "line" and (frame.f_code.co_filename, frame.f_lineno) == (__file__, line_with("the stop")):
            seen.extend(repr(value) for name, value in frame.f_locals.items() if name.startswith("locals__"))
        return debugger

    before = sys.gettrace()
    with st.eager():
        sys.settrace(debugger)
        try:
            total = squares(np.array([1.0, 2.0]))
        finally:
            sys.settrace(before)
    assert total == 5.0
    assert "x = [1.0 2.0]\ny = [1.0 4.0]" in seen


def test_the_first_nan_is_named():
    x, w = np.array([1.0, -1.0]), np.array([1.0, 1.0])
    with pytest.raises(FloatingPointError) as caught:
        loss(x, w)
    assert f"test_wrong_programs.py, line {line_with('the NaN')}, in loss" in str(caught.value)
    assert np.isclose(loss(np.ones(2), w)[0], np.tanh(1.0))
