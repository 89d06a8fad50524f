"""Every function of arrays with sizes that the program finds: the results of eager mode, and errors that name the size.

Each run compares some calls; with `--full` all of them, at more sizes.
"""

from __future__ import annotations

import linecache
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import StagedError
from staged.frontend.values import trees
from tests.dynamic_sizes.function_calls import CALLS, REFUSED

PARTS = 12
SIZES = ((3, 4), (5, 2), (1, 1), (4, 4), (2, 5), (0, 2), (2, 0))
AXES = dict(zip("xypshvuwijbcdef", "NM NM NM MM MM M M N N NM NM 2NM 2NMM 23NM 123NM".split(), strict=True))
INNER = re.compile(r"lambda (y, t|t, y|\w): [^,]*")


def argument(name: str, n: int, m: int) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(ord(name) * 100 + n * 10 + m)
    shape = [{"N": n, "M": m}[axis] if axis in "NM" else int(axis) for axis in AXES[name]]
    if name in "ij":
        return draw.integers(0, 2, shape)
    if name == "b":
        return draw.random(shape) < 0.5
    made = draw.uniform(0.1, 0.9, shape) if name == "p" else draw.uniform(-2, 2, shape)
    return made @ made.T + np.eye(m) if name == "h" else made


def function_of(call: str) -> tuple[Any, list[str]]:
    """A function of the call's arguments, with a line that staging can read, and their names."""
    bound = set(re.findall(r"lambda (\w)", call)) | set(re.findall(r"lambda \w, (\w)", call))
    names = sorted(set(re.findall(r"(?<![\w.\"'])([xypshvuwijbcdef])\b(?!\s*[=\"'])", call)) - bound)
    names += ["x"] if not names else []
    text = f"def call({', '.join(names)}):\n    return {call}\n"
    file = f"<call {call}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    space: dict[str, Any] = {"st": st, "np": np}
    exec(compile(text, file, "exec"), space)
    return space["call"], names


def outcome(run: Any, given: list[Any]) -> Any:
    st.seed(7)
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(leaf) for leaf in trees.flatten(run(*given))[0]]
    except (StagedError, ZeroDivisionError) as error:
        return error


def sized(function: Any, names: list[str]) -> Any:
    axes = {"N": "N <= 6", "M": "M <= 6"}
    return st.function(dims={name: tuple(axes.get(axis) or int(axis) for axis in AXES[name]) for name in names})(function)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_results_are_those_of_eager_mode(part: int, full: bool) -> None:
    for call in CALLS[part::PARTS] if full else CALLS[part :: 3 * PARTS][:1]:
        function, names = function_of(call)
        program, static = sized(function, names), st.function(dims="static")(function)
        for size in SIZES if full else SIZES[:2]:
            given = [argument(name, *size) for name in names]
            with st.eager():
                right = outcome(function, [*map(st.asarray, given)])
            if isinstance(right, Exception):  # a static program raises an error, which checks of values need not
                continue
            found = outcome(program, given)
            assert not isinstance(found, Exception), f"{call} at {size}: {found}"
            if [(leaf.shape, leaf.dtype) for leaf in found] != [(leaf.shape, leaf.dtype) for leaf in right] or not all(
                np.allclose(one, other, 1e-5, 1e-5, equal_nan=True) for one, other in zip(found, right, strict=True)
            ):  # eager mode has other signs of vectors, and other bits where rounding decides
                right = outcome(static, given)
                for one, other in zip(found, right, strict=True):
                    assert one.shape == other.shape and one.dtype == other.dtype, f"{call} at {size}"
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=f"{call} at {size}")


@pytest.mark.parametrize("call", REFUSED)
def test_an_error_names_the_size_and_its_value(call: str) -> None:
    function, names = function_of(call)
    error = outcome(sized(function, names), [argument(name, 3, 4) for name in names])
    assert isinstance(error, StagedError)
    assert re.search(r"\b(N is 3|M is 4)", str(error)) and call in str(error), error
