"""Each first task cites the headings of the documents that it follows, and these headings exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.text.links import anchors

ROOT = Path(__file__).parents[3]
TASKS = sorted(path for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))


def missing_citations(docstring):
    """The citations whose heading does not exist; `["none"]` if there is no citation."""
    cited = re.findall(r"((?:README|docs/\w+)\.md)#([\w-]+)", docstring)
    return [f"{page}#{name}" for page, name in cited if name not in anchors(ROOT / page)] if cited else ["none"]


def test_there_are_twelve_tasks():
    assert len(TASKS) == 12


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_the_headings_that_a_task_cites_exist(path):
    assert not missing_citations(ast.get_docstring(ast.parse(path.read_text())) or "")


def test_a_wrong_citation_is_found():
    assert missing_citations("docs/guide.md#gradients, docs/guide.md#gradient") == ["docs/guide.md#gradient"]
    assert missing_citations("Follows the guide.") == ["none"]
