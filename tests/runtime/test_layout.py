"""The offsets of the fields of arrays and tuples: found in this process, or not taken for granted."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from staged.runtime import layout as module
from staged.runtime.layout import Layout, layout


def test_the_fields_of_arrays_are_found() -> None:
    assert layout() is not None


@pytest.mark.parametrize("name", [field.name for field in fields(Layout)])
def test_a_field_that_is_elsewhere_is_noticed(name: str) -> None:
    found = layout()
    assert found is not None
    assert module._is_so(found)
    assert not module._is_so(replace(found, **{name: getattr(found, name) - 8}))


def test_what_is_not_found_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_so", lambda at: False)
    assert layout.__wrapped__() is None


def test_another_python_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys.implementation, "name", "pypy")
    assert layout.__wrapped__() is None
