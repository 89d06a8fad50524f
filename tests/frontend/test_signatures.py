"""Kept signatures: what they bind is what `inspect.signature` binds, whatever has happened to the function since."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from staged.frontend.calls.signatures import bound_arguments, signature_of


def plain(x: Any, y: Any) -> None: ...


def with_default(x: Any, n: Any = 2) -> None: ...


def keywords(x: Any, *, scale: Any = 1.0, shift: Any) -> None: ...


def anything(x: Any, *rest: Any, **options: Any) -> None: ...


def positional(x: Any, /, y: Any) -> None: ...


class Model:
    def step(self, x: Any, n: Any = 3) -> None: ...

    def __call__(self, x: Any) -> None: ...


@functools.wraps(plain)
def wrapper(*args: Any) -> None: ...


FUNCTIONS: list[Callable[..., Any]] = [
    plain,
    with_default,
    keywords,
    anything,
    positional,
    Model().step,
    Model(),
    wrapper,
    functools.partial(plain, 1),
    lambda a, b=4: None,
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}), ((1,), {}), ((1, 2), {}), ((1, 2, 3), {}), ((1,), {"y": 2}), ((), {"x": 1, "y": 2}), ((1,), {"n": 5}),
    ((1,), {"shift": 0}), ((1,), {"shift": 0, "scale": 2}), ((1, 2), {"other": 3}), ((1,), {"x": 2}), ((7,), {"b": 1}),
]  # fmt: skip


def outcome(bind: Callable[[], inspect.BoundArguments]) -> Any:
    try:
        return list(bind().arguments.items())
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("function", FUNCTIONS, ids=range(len(FUNCTIONS)))
def test_binding_is_that_of_inspect(function: Callable[..., Any]) -> None:
    for args, kwargs in CALLS:
        for defaults in (False, True):

            def oracle(args: Any = args, kwargs: Any = kwargs, defaults: bool = defaults) -> inspect.BoundArguments:
                bound = inspect.signature(function).bind(*args, **kwargs)
                if defaults:
                    bound.apply_defaults()
                return bound

            found = outcome(lambda: bound_arguments(function, args, kwargs, defaults))  # noqa: B023
            assert found == outcome(oracle)
    assert list(signature_of(function).parameters) == list(inspect.signature(function).parameters)


def test_defaults_code_and_wrappers_that_change_are_seen() -> None:
    def f(x: Any, n: Any = 1, *, k: Any = 2) -> None: ...

    def arguments() -> dict[str, Any]:
        return bound_arguments(f, (0,), {}, defaults=True).arguments

    assert arguments() == {"x": 0, "n": 1, "k": 2}
    f.__defaults__ = (5,)
    assert arguments() == {"x": 0, "n": 5, "k": 2}
    f.__kwdefaults__ = {"k": 7}
    assert arguments() == {"x": 0, "n": 5, "k": 7}
    assert f.__kwdefaults__ is not None
    f.__kwdefaults__["k"] = 8
    assert arguments() == {"x": 0, "n": 5, "k": 8}
    f.__defaults__ = (4, 5)
    assert bound_arguments(f, (), {}, defaults=True).arguments == {"x": 4, "n": 5, "k": 8}
    f.__defaults__ = f.__kwdefaults__ = None
    f.__code__ = (lambda other: None).__code__
    assert arguments() == {"other": 0}
    f.__signature__ = inspect.signature(lambda renamed: None)  # type: ignore[attr-defined]
    assert arguments() == {"renamed": 0}


def test_defaults_are_not_kept_alive() -> None:
    import weakref

    class Large: ...

    def made() -> Any:
        def f(x: Any = Large()) -> None: ...  # noqa: B008

        return f

    f = made()
    assert isinstance(bound_arguments(f, (), {}, defaults=True).arguments["x"], Large)
    alive = weakref.ref(f.__defaults__[0])
    del f
    assert alive() is None
