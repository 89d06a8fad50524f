"""Objects whose `__getattr__` answers to every name, or raises another error than AttributeError: they are not asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret


class Items(dict[str, Any]):
    """A dict whose items are attributes: an unknown one is a KeyError."""

    __getattr__ = dict.__getitem__


class Gets(dict[str, Any]):
    """A dict whose items are attributes: an unknown one is None."""

    __getattr__ = dict.get


class Holds:
    """An object that keeps its attributes elsewhere."""

    def __init__(self, **kept: Any) -> None:
        self.__dict__["kept"] = kept

    def __getattr__(self, name: str) -> Any:
        return self.__dict__["kept"][name]

    def __getitem__(self, name: str) -> Any:
        return self.kept[name]

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Any:
        return iter(self.kept)


class Called:
    """One that anything can be read of and done with."""

    def __getattr__(self, name: str) -> Any:
        return 1.0

    def __call__(self, x: Any) -> Any:
        return x * 2.0


@pytest.mark.parametrize("kind", [Items, Gets, Holds])
@pytest.mark.parametrize("static", [(), ("given",)])
def test_object_with_attributes_of_its_own_making(kind: Any, static: tuple[str, ...]) -> None:
    options = kind(k=2.0, n=3)

    def program(given, x):
        y = x * options.k + len(options) + len(list(options)) + sum(1.0 for _ in options)
        if options and not (not given):
            y = y + given["k"]
        for i, name in enumerate(options):
            y = y + i * len(name)
        for _, i in zip(options, range(given.n), strict=False):
            y = y + i
        print(type(options).__name__)
        return y

    x = np.array([1.0, 2.0])
    want = program(options, x)
    np.testing.assert_array_equal(interpret(trace(program, (options, x), static=static)), want)
    with st.eager():
        np.testing.assert_array_equal(st.function(program, static=static)(options, x), want)


def test_callable_object_that_has_every_attribute() -> None:
    doubled = Called()
    assert interpret(trace(lambda x: doubled(x) * doubled.unheard_of, (3.0,))) == 6.0
