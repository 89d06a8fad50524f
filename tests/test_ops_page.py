"""docs/ops.md and staged/library/__init__.py say what staged/ops and staged/library declare: docs/make_ops.py makes them of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import staged as st
from staged import library, ops

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_ops", ROOT / "docs" / "make_ops.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_of_array_functions_is_up_to_date(maker: ModuleType) -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == maker.page(), "run `python -m docs.make_ops`"


def test_names_of_array_functions_are_up_to_date(maker: ModuleType) -> None:
    assert Path(library.__file__).read_text() == maker.names(), "run `python -m docs.make_ops`"


def test_methods_for_editors_are_up_to_date(maker: ModuleType) -> None:
    assert Path(ops.__file__).with_name("array_methods.pyi").read_text() == maker.stub(), "run `python -m docs.make_ops`"


def test_reference_has_every_public_function(maker: ModuleType) -> None:
    page = maker.page()
    missing = [name for name in library.__all__ if f"| `{name}(" not in page]
    assert not missing, missing


def test_dtypes_and_gradients_are_found_out(maker: ModuleType) -> None:
    assert maker.probed("matmul", st.matmul)[1] == "yes"
    assert maker.probed("bitwise_left_shift", st.bitwise_left_shift) == ("integers", "no")
    assert maker.probed("argmax", st.argmax)[1] == "no"
    assert maker.words_for(["f64", "f32", "bool"]) == "floats, bool"
