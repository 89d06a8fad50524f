"""A plugin of pytest that makes the suite importable by a library without complex numbers.

The suite leaves out dtypes that a variable of the environment names. Its module of dtypes then looks for the widest of no
complex dtypes, once, with a `max` that is given no default: this one has f64, of which samples of signatures are then made.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from typing import Any

import pytest
from hypothesis import Phase, settings

import staged as st


def _max(*args: Any, **options: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], list):
        options.setdefault("default", (st.float64, 0))
    return builtins.max(*args, **options)


def _load_dtypes() -> None:
    import array_api_tests

    name = "array_api_tests.dtype_helpers"
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__["max"] = _max
    sys.modules[name] = module
    spec.loader.exec_module(module)
    array_api_tests.dtype_helpers = module


if os.environ.get("ARRAY_API_TESTS_MODULE") == "compiled_staged":
    from tests.array_api.compiled import compile_operators, namespace

    compile_operators()
    sys.modules["compiled_staged"] = namespace()

if os.environ.get("ARRAY_API_TESTS_SKIP_DTYPES"):
    _load_dtypes()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """The suite's own settings, but failing examples are not made smaller, which takes most of the time of a run."""
    suite = settings.get_profile("array-api-tests")
    settings.register_profile("staged", suite, phases=(Phase.explicit, Phase.generate))
    settings.load_profile("staged")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many calls were compiled."""
    if "tests.array_api.compiled" in sys.modules:
        count = sys.modules["tests.array_api.compiled"].program_count()
        terminalreporter.write_line(f"{count} programs were made")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Special cases of complex numbers do not look at the dtypes that are left out: they are skipped by their names."""
    for item in items:
        if "test_special_cases" in item.nodeid and any(word in item.nodeid for word in ("real(x", "imag(x", "0j)")):
            item.add_marker(pytest.mark.skip(reason="there are no complex numbers"))
