"""The table of slow tests names tests that there are."""

from __future__ import annotations

import re

from tests import slow_tests


def test_every_listed_test_is_there() -> None:
    for name in slow_tests.listed():
        file, *classes, function = name.split("::")
        text = (slow_tests.TESTS.parent / file).read_text()
        assert re.search(rf"^\s*(def )?{function}\b", text, re.MULTILINE), name
