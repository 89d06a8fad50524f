"""The Python blocks of README.md and docs/*.md run, and print what the text says they print.

All blocks of one page are one program: a later block sees the names of an earlier one. They are written to a file at
the same line numbers as on the page (the front end reads source text, and an error names the page's own line), and run
in an empty folder.

- ```` ```python ```` is run. A block that cannot be (it needs a GPU, it shows an error) comes after a comment that says
  why: `<!-- not run: needs a GPU -->`.
- ```` ```text ```` directly after the comment `<!-- prints -->` must appear in what the page prints, in this order.
- ```` ```c ```` directly after the comment `<!-- of EXPRESSION -->` is an excerpt of the text that the expression gives at the page's
  end: its lines must stand there in this order, one after another but for what an ellipsis leaves out.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from staged import errors

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("*/README.md"))]


@dataclass(frozen=True)
class Block:
    language: str
    line: int  # of its first line, counted from 1
    text: str
    comment: str  # the HTML comment directly above it, without its marks


def blocks_of(page: str) -> list[Block]:
    found, comment, lines = [], "", page.splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = re.match(r"^(```+)\s*(\w*)", line)
        if fence:
            end = next((n for n in range(number + 1, len(lines)) if lines[n].rstrip() == fence[1]), len(lines))
            found.append(Block(fence[2], number + 2, "\n".join(lines[number + 1 : end]) + "\n", comment))
            number, comment = end + 1, ""
            continue
        remark = re.match(r"^<!--\s*(.*?)\s*-->\s*$", line)
        if remark:
            comment = remark[1]
        elif line.strip():
            comment = ""
        number += 1
    return found


def program_of(page: str) -> str:
    """The page's Python blocks, each at its own line number."""
    lines: list[str] = []
    for block in blocks_of(page):
        if block.language == "python" and not re.match(r"not run: \w+", block.comment):
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    return "\n".join(lines) + "\n"


def expected_output(page: str) -> list[str]:
    return [block.text for block in blocks_of(page) if block.language == "text" and block.comment == "prints"]


def excerpts_of(page: str) -> list[tuple[str, str]]:
    """(excerpt, the expression whose text it is from)."""
    quoted = [(block, re.match(r"of (.+)", block.comment)) for block in blocks_of(page) if block.language == "c"]
    return [(block.text, source[1]) for block, source in quoted if source]


def stands_in(excerpt: str, text: str) -> bool:
    """Whether the pieces of an excerpt, between its ellipses, stand in the text in this order, each at the begin of a line."""
    position = 0
    for piece in re.split(r"^[ ]*\.\.\.\n", excerpt, flags=re.MULTILINE):
        position = ("\n" + text).find("\n" + piece, position)
        if position < 0:
            return False
        position += len(piece)
    return True


def run_page(page: str, name: str, folder: Path) -> str:
    """Run a page's blocks in `folder`; returns what they printed, or fails with the page's line."""
    script = folder / f"{name}.py"
    written = [f"with open('excerpt{n}', 'w') as f: f.write({source})" for n, (_, source) in enumerate(excerpts_of(page))]
    script.write_text(program_of(page) + "\n".join(written) + "\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{name}: a block failed (line numbers are the page's)\n{done.stdout}\n{done.stderr}"
    return done.stdout


def check_page(page: str, name: str, folder: Path) -> None:
    printed = run_page(page, name, folder)
    position = 0
    for text in expected_output(page):
        found = printed.find(text, position)
        assert found >= 0, f"{name} says that it prints\n{text}\nand it printed\n{printed[position:]}"
        position = found + len(text)
    for number, (excerpt, source) in enumerate(excerpts_of(page)):
        text = (folder / f"excerpt{number}").read_text()
        assert stands_in(excerpt, text), f"{name} quotes of {source}\n{excerpt}\nwhich is\n{text}"


@pytest.mark.parametrize(
    "path", [p for p in PAGES if "```python" in p.read_text()], ids=lambda p: str(p.relative_to(ROOT))
)
def test_python_blocks_of_page_run(path: Path, tmp_path: Path) -> None:
    check_page(path.read_text(), path.stem, tmp_path)


def test_readme_has_the_two_commands_first_of_all_commands() -> None:
    first = next(block for block in blocks_of((ROOT / "README.md").read_text()) if block.language == "sh")
    assert re.search(r"^make mnist\b", first.text, re.MULTILINE)
    assert re.search(r"^make test\b", first.text, re.MULTILINE)


def test_readmes_figure_is_that_of_the_benchmarks() -> None:
    readme, benchmarks = (ROOT / "README.md").read_text(), (ROOT / "docs" / "benchmarks.md").read_text()
    head, row = (re.search(rf"^\| {name} \|.*$", benchmarks, re.MULTILINE) for name in (r"row \| staged", "cnn_mnist"))
    assert head and row
    cells = dict(zip(head[0].split(" | "), row[0].split(" | "), strict=True))
    said = re.search(
        r"CNN takes ([\d.]+) ms on one core; PyTorch takes ([\d.]+) ms, `torch.compile` ([\d.]+) ms,\s+JAX ([\d.]+) ms", readme
    )
    assert said
    for figure, column in zip(said.groups(), ("staged", "torch-eager", "torch-max", "jax"), strict=True):
        measured = re.match(r"[\d.]+", cells[column])
        assert measured and cells[column].split()[1].startswith("ms")
        assert f"{float(measured[0]):.1f}" == f"{float(figure):.1f}", column


def test_no_page_has_a_heading_twice() -> None:
    for path in PAGES:
        code = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        headings = re.findall(r"^#+ .*$", code, re.MULTILINE)
        assert len(headings) == len(set(headings)), path


def test_page_on_errors_has_every_error_class() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    found = [value for value in vars(errors).values() if inspect.isclass(value) and value.__module__ == errors.__name__]
    missing = [
        error.__name__
        for error in found
        if not re.search(rf"`(st|staged\.errors)\.{error.__name__}`", page) or (error.__doc__ or "?") not in page
        if error is not errors.StagedError
    ]
    assert not missing, missing


# ---- the checker itself can fail ------------------------------------------------------------------

def test_checker_compares_excerpts_line_by_line(tmp_path: Path) -> None:
    page = "```python\ntext = 'a\\n  b\\nc\\nd\\n'\n```\n<!-- of text -->\n```c\n{}```\n"
    for excerpt in ("a\n", "  b\nc\n", "a\n  ...\nd\n"):
        check_page(page.format(excerpt), "page", tmp_path)
    for excerpt in ("b\n", "a\nc\n", "d\n...\na\n", "e\n"):
        with pytest.raises(AssertionError, match="page quotes of text"):
            check_page(page.format(excerpt), "page", tmp_path)


PAGE = """# Title
```python
x = 1
```
<!-- not run: shows an error -->
```python
raise ValueError
```

```python
print("x is", x)
```
<!-- prints -->
```text
x is 1
```
"""


def test_checker_runs_blocks_together_at_their_own_lines(tmp_path: Path) -> None:
    check_page(PAGE, "page", tmp_path)
    assert program_of(PAGE).splitlines()[2] == "x = 1"
    assert program_of(PAGE).splitlines()[10] == 'print("x is", x)'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x is 1", "x is 2", "says that it prints"),
        ("<!-- not run: shows an error -->\n", "\n", "line 7"),
        ("<!-- not run: shows an error -->", "<!-- not run: -->", "line 7"),
        ("x = 1", "y = 1", "NameError"),
    ],
)
def test_checker_finds_planted_fault(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_page(PAGE.replace(old, new), "page", tmp_path)
