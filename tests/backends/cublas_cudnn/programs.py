"""Staged functions with GPU regions, for the tests of the back end and of the runtime."""

from __future__ import annotations

from typing import Any

import staged as st
from staged import GPU, with_backend


@st.function
def double(x: Any) -> Any:
    with with_backend(GPU, x):
        y = x * 2.0 + 1.0
    return y
