"""The C formatter, compiled once for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.formatting.c_driver import FOREIGN_POINT, CFormatter, driver


@pytest.fixture(scope="session")
def c_format(tmp_path_factory: pytest.TempPathFactory) -> CFormatter:
    return driver(tmp_path_factory.mktemp("formatter"))


@pytest.fixture(scope="session")
def c_format_with_foreign_point(tmp_path_factory: pytest.TempPathFactory) -> CFormatter:
    return driver(tmp_path_factory.mktemp("foreign"), FOREIGN_POINT)
