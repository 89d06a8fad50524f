"""The registry of back ends, and the choice of one for a program.

Tested by `tests/backends/test_contract.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Set
from functools import cache

import staged.backends as package
from staged.backends.contract import BackEnd
from staged.errors import UnsupportedError
from staged.ir.types import CPU


@cache
def back_ends() -> dict[str, BackEnd]:
    """Every back end by name: `BACK_END` of each module `backend` in a folder of `staged/backends/`, and registered
    ones.
    """
    found: dict[str, BackEnd] = {}
    for module in pkgutil.iter_modules(package.__path__):
        name = f"{package.__name__}.{module.name}.backend"
        if module.ispkg and importlib.util.find_spec(name) is not None:
            back_end: BackEnd = importlib.import_module(name).BACK_END
            found[back_end.name] = back_end
    return found


def register_back_end(back_end: BackEnd) -> None:
    """Add a back end from outside of the package, or replace the one of its name.

    It writes the programs that name it, and those whose devices no other back end has.
    """
    back_ends()[back_end.name] = back_end


def names_for(kind: str) -> tuple[str, ...]:
    """The back ends that have a kind of device."""
    return tuple(name for name, back_end in back_ends().items() if kind in back_end.devices)


def choose(kinds: Set[str], name: str = "") -> BackEnd:
    """The back end of a program with ops on these kinds of devices: the named one.

    Without a name it is the one with the fewest other devices, then the first: plain C for a program of the host's.
    Such a program takes the named one only if that has no other devices either.

    Raises: UnsupportedError where none, or not the named one, has all the devices.
    """
    fitting = [each for each in back_ends().values() if kinds <= set(each.devices)]
    if not fitting:
        raise UnsupportedError(f"no back end runs on {', '.join(sorted(kinds))}")
    if kinds == {CPU.kind}:
        fewest = min(len(each.devices) for each in fitting)
        fitting = [each for each in fitting if len(each.devices) == fewest]
        return next((each for each in fitting if each.name == name), fitting[0])
    if not name:
        return min(fitting, key=lambda each: len(each.devices))
    named = next((each for each in fitting if each.name == name), None)
    if named is None:
        there = ", ".join(each.name for each in fitting)
        raise UnsupportedError(f"the back end {name!r} does not run on {', '.join(sorted(kinds))}: {there} can")
    return named
