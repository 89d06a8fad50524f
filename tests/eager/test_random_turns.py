"""An eager draw waits for a program that draws from the same generator, and a program's own print may not draw from it."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

import staged as st


class Drawing(io.StringIO):
    """A standard output that draws a random number when something is printed."""

    def write(self, text: str) -> int:
        st.random.uniform(())
        return super().write(text)


def test_what_a_programs_print_reaches_may_not_draw_from_its_generator() -> None:
    @st.function
    def f(x):
        y = x + st.random.uniform(())
        print("drawn")
        return y

    with contextlib.redirect_stdout(Drawing()), pytest.raises(st.ProgramError, match="inside a call that is writing"):
        f(np.float64(1.0))
    assert int(st.random.default_generator().counter) == 1
