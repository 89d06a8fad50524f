"""A plugin of pytest: note the graphs of every program that a test gives to the emulated device, a line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cudnn_without_gpu.questions import questions_of, to_json


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--graphs", type=Path, help="the file that takes the graphs")


@pytest.fixture(scope="session", autouse=True)
def graphs_of_programs_are_noted(pytestconfig: pytest.Config) -> Iterator[None]:
    """Wraps the compilation for the emulated device."""
    from staged.runtime.cuda import loading

    compile_emulated = loading.compile_emulated

    def noting(artifact: Any, options: Any) -> Path:
        lines = [json.dumps(to_json(question)) + "\n" for question in questions_of(artifact.source)]
        with pytestconfig.getoption("--graphs").open("a") as file:
            file.writelines(lines)
        return compile_emulated(artifact, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "compile_emulated", noting)
        yield
