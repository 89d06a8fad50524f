"""The functions that are converted: the user's, methods of layers, and libraries of this package in staged code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import staged as st
from staged import optim
from staged.frontend.syntax.user_code import is_user_code, is_user_file
from staged.optim import accumulation

PACKAGE = Path(st.__file__).parent


@pytest.mark.parametrize("file", sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")), ids=str)
def test_of_this_package_what_is_written_on_public_names_is_converted(file: Path) -> None:
    assert is_user_file(str(PACKAGE / file)) == (file.parts[0] in ("nn", "optim", "integrate", "optimize"))


def test_of_a_layer_its_call_is_converted_and_of_an_optimiser_what_has_conditions() -> None:
    assert is_user_code(st.nn.Sequential.forward)
    assert not is_user_code(st.nn.Sequential.__init__)
    assert is_user_code(accumulation.step_where)
    assert not is_user_code(optim.SGD.step) and not is_user_code(optim.MultiSteps.__init__)
    assert not is_user_code(json.dumps)
    assert is_user_code(st.integrate.odeint) and is_user_code(st.optimize.minimize)
    assert is_user_code(test_of_this_package_what_is_written_on_public_names_is_converted)
