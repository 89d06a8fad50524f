"""The functions that are converted: the user's, and of this package the methods of layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import staged as st
from staged.frontend.syntax.user_code import is_user_code, is_user_file

PACKAGE = Path(st.__file__).parent


@pytest.mark.parametrize("file", sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")), ids=str)
def test_of_this_package_layers_alone_are_converted(file: Path) -> None:
    assert is_user_file(str(PACKAGE / file)) == (file.parts[0] == "nn")


def test_of_a_layer_its_call_is_converted() -> None:
    assert is_user_code(st.nn.Sequential.forward)
    assert not is_user_code(st.nn.Sequential.__init__)
    assert not is_user_code(json.dumps)
    assert is_user_code(test_of_a_layer_its_call_is_converted)
