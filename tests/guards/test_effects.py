"""The changes of a function in Python: after each call, traced or not, it is what plain Python leaves behind."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import load_snippet
from tests.guards.interpreted import interpret

CALLS = 4


def cases() -> list[tuple[str, str, str, str]]:
    """(name, module, statements of `f(x)`, expression) of each case of the table."""
    _, *sections = re.split(r"^=== ", (Path(__file__).parent / "effects.txt").read_text(encoding="utf-8"), flags=re.M)
    found = []
    for section in sections:
        name, text = section.split("\n", 1)
        setup, body, state = re.split(r"^--- (?:f|state)\n", text, flags=re.M)
        found.append((name, setup, body, state.strip()))
    return found


@pytest.mark.parametrize(("name", "setup", "body", "state"), cases(), ids=[name for name, *_ in cases()])
def test_calls_leave_behind_what_python_does(
    name: str, setup: str, body: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpret(monkeypatch)
    text = f"{setup}\ndef f(x):\n{textwrap.indent(body, '    ')}\n    return x\ndef state(): return {state}\n"
    ours, pythons = load_snippet(text, "effects"), load_snippet(text, "effects")
    staged, plain = st.function(ours.f), st.function(pythons.f)
    for number in range(CALLS):
        found = outcome(staged)
        if isinstance(found, st.StagingError | st.StaticStateError):
            return  # refused: nothing is left behind
        with st.eager():
            expected = outcome(plain)
        assert repr(found) == repr(expected), number
        assert repr(ours.state()) == repr(pythons.state()), number


def outcome(function: Any) -> Any:
    try:
        return function(np.array([1.0, 2.0, 3.0])).tolist()
    except st.StagedError as error:
        return error
    except (AttributeError, KeyError) as error:
        return type(error)
