"""A plugin of pytest: the namespace whose calls are compiled, and settings of the suite's examples."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import Phase, settings

if os.environ.get("ARRAY_API_TESTS_MODULE") == "compiled_staged":
    from tests.array_api.compiled import compile_operators, namespace

    compile_operators()
    sys.modules["compiled_staged"] = namespace()


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
