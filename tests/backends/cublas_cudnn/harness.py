"""What tests of the back end do with a function: put it into a GPU region, and compare what it gives there with eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import staged as st
from staged import GPU, with_backend
from staged.runtime import cuda
from staged.testing import compare_trees


def on_gpu(function: Callable[..., Any], **options: Any) -> Any:
    """`function`, staged, inside of a GPU region that names its arguments and has these options."""

    def inside(*args: Any) -> Any:
        with with_backend(GPU, *args, **options):
            result = function(*args)
        return result

    return st.function(target="portable")(inside)


def agrees_in_any_order(staged: Any, device: cuda.Emulator, tolerance: float, *arguments: Any) -> None:
    """A staged function gives what eager mode gives, with work done at once and with work done late and shuffled."""
    with st.eager():
        expected = staged(*arguments)
    for words in ("eager forward", "lazy shuffled seed=3"):
        device.configure(words)
        compare_trees(staged(*arguments), expected, rtol=tolerance, atol=tolerance)
