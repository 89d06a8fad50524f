"""The claims of the documents about the sources, held against the sources."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.pipeline import PASSES

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "staged").rglob("*.py"))
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
GUIDE = (ROOT / "docs" / "guide.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()

# Files of more lines than CONTRIBUTING.md allows, each with what it is a table or list of.
LONG = {
    "staged/code/support/format.py": "one formatter in C",
    "staged/code/support/math.py": "functions of C by name",
    "staged/ir/loops.py": "statements of the loop-nest IR by kind",
    "staged/ops/shape.py": "declarations of ops",
}


def columns(page: str, head: str) -> list[list[str]]:
    """The rows of the table whose first line begins with `head`."""
    lines = page[page.index(f"\n{head}") + 1 :].splitlines()
    rows = lines[2 : next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_passes_is_the_pipeline() -> None:
    told: list[str] = []
    for name, _ in columns(ARCHITECTURE, "| pass | what it does |"):
        found = re.fullmatch(r"`([^`]+)`( \(twice\))?", name)
        assert found, name
        told += [found[1]] * (2 if found[2] else 1)
    run = [name.removesuffix(" before autodiff") for name, _ in PASSES] + ["fuse"]
    assert sorted(told) == sorted(run) and list(dict.fromkeys(told)) == list(dict.fromkeys(run))
    firsts = list(dict.fromkeys(run))
    assert list(dict.fromkeys(told)) == firsts, "in another order"


def test_the_table_of_folders_names_every_place() -> None:
    said = " ".join(row[1] for row in columns(ARCHITECTURE, "| # | place | purpose | may import |"))
    for path in (ROOT / "staged").iterdir():
        if path.name not in ("__pycache__", "py.typed", "__main__.py", "backends"):
            assert f"`{path.name}{'/' if path.is_dir() else ''}`" in said, path.name


def test_the_guide_lists_every_layer() -> None:
    told = " ".join(row[1] for row in columns(GUIDE, "| layers of `nn` | |"))
    layers = [name for name in nn.__all__ if name not in ("Module", "Parameter", "init", "utils")]
    assert sorted(re.findall(r"`(\w+)`", told)) == sorted(layers)


def test_a_value_goes_the_way_that_the_page_says() -> None:
    """`x @ w` of the page's first section calls the functions of its table, and first calls them in its order."""
    rows = columns(ARCHITECTURE, "| function | what becomes of `x @ w` there |")
    told = [row[0].strip("`").split(": ") for row in rows]
    w = st.Variable(np.full((3, 2), 0.1, np.float32), name="w")

    @st.function(target="portable")
    def step(x: Any) -> Any:
        return st.tanh(x @ w)

    seen: dict[tuple[str, str], None] = {}
    package = str(ROOT / "staged") + os.sep

    def note(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(package):
            path = Path(frame.f_code.co_filename).relative_to(package).as_posix()
            seen.setdefault((path, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        program = step.stage(np.ones((4, 3), np.float32))
        assert program.source
        program(np.ones((4, 3), np.float32))
    finally:
        sys.setprofile(None)
    order = list(seen)
    passed = [(path, name) for path, name in told if (path, name) in seen]
    assert [[path, name] for path, name in passed] == told
    assert sorted(passed, key=order.index) == passed


def test_changes_that_the_page_shows_have_been_made() -> None:
    """The lines that a diff of the page adds to a file stand there, hunk after hunk."""
    diffs = re.findall(r"```diff\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert diffs
    for path, lines in re.findall(r"^--- (\S+)\n((?:[+@].*\n)+)", "".join(diffs), re.MULTILINE):
        place, text = 0, (ROOT / path).read_text()
        for hunk in lines.split("@@\n"):
            added = "".join(line[1:] for line in hunk.splitlines(keepends=True))
            place = text.find(added, place)
            assert place >= 0, f"{path} has no more what the page adds to it:\n{added}"


def test_the_glossary_is_short_and_its_words_are_used() -> None:
    """At most 46 terms, each of them a word of the other pages and of the sources."""
    terms = [word for word, _ in columns((ROOT / "docs" / "glossary.md").read_text(), "| word | meaning |")]
    assert len(terms) == len(set(terms)) <= 46, "take out a word that means what it means everywhere"
    pages = " ".join(page.read_text() for page in (ROOT / "docs").glob("*.md") if page.name != "glossary.md").lower()
    sources = " ".join(path.read_text() for path in SOURCES).lower()
    unused = [
        word
        for term in terms
        for word in term.lower().split(", ")
        if not all(re.search(rf"\b{word}s?\b", text) for text in (pages, sources))
    ]
    assert not unused, "words of the glossary that the pages, or the sources, do not have"


def test_files_are_as_long_as_contributing_says() -> None:
    limit = re.search(r"stay below about (\d+) lines, tables aside", CONTRIBUTING)
    assert limit
    names = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    long = {name: count for name, count in names.items() if count > int(limit[1])}
    unlisted = {name: count for name, count in long.items() if name not in LONG and count > int(limit[1]) + 20}
    assert not unlisted, "split them, or list them above with the table that they are"
    assert not [name for name in LONG if name not in long], "listed above, and not long any more"
    assert max(names.values()) <= 1.5 * int(limit[1])


def test_every_command_of_make_that_a_page_names_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    of_exported_folders = {"split", "emu", "lib", "portable", "mpi", "mpi_lib"}
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        text = path.read_text()
        named = re.findall(r"`make ([a-z-]+)[^`]*`", text)
        for code in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            named += re.findall(r"^make ([a-z-]+)", code, re.MULTILINE)
        assert not set(named) - targets - of_exported_folders, path


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/roadmap.md"])
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    named = [word for word in re.findall(r"`([\w./]+\.(?:py|md|h|c|cu))`", text) if "/" in word]
    # Hidden folders are the tools': what is in them comes and goes while tests run.
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    names = {str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.*")}
    missing = [word for word in named if not any(name == word or name.endswith(f"/{word}") for name in names)]
    assert not missing
