"""Each module of `kernels`, `code`, `backends` and `passes` has a test file of its name, or says where it is tested."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("kernels", "code", "backends", "passes")


def named_tests(text: str) -> list[str]:
    """The files in the sentence `Tested by ...` of a module's docstring."""
    sentence = re.search(
        r"^Tested by ([^.]*(?:\.py`[^.]*)+)\.$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
    )
    return re.findall(r"`([^`]+)`", sentence[1]) if sentence else []


def lacking(modules: Iterable[Path], root: Path) -> set[str]:
    """The modules without a test file of their name in the tests of their folder, and without the sentence."""
    found = set()
    for module in modules:
        folder = module.relative_to(root / "staged").parts[0]
        folders = (folder, "backends") if folder == "code" else (folder,)  # the tests of back ends run code
        own = [path for each in folders for path in (root / "tests" / each).rglob(f"test_{module.stem}.py")]
        if module.name != "__init__.py" and not own and not named_tests(module.read_text()):
            found.add(str(module.relative_to(root / "staged")))
    return found


def modules(root: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((root / "staged" / folder).rglob("*.py"))]


def test_each_module_has_a_test_file_or_names_one() -> None:
    assert not lacking(modules(ROOT), ROOT), (
        "write `tests/<folder>/test_<module>.py`, or `Tested by ...` in the docstring"
    )


def test_named_test_files_exist() -> None:
    missing = [
        f"{module.relative_to(ROOT)} names {name}"
        for module in modules(ROOT)
        for name in named_tests(module.read_text())
        if not (ROOT / name).is_file() or not Path(name).name.startswith("test_")
    ]
    assert not missing


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    for folder in ("staged/passes", "tests/passes/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "staged/passes/__init__.py").write_text("")
    (tmp_path / "staged/passes/own.py").write_text('"""Has a file."""')
    (tmp_path / "tests/passes/deeper/test_own.py").write_text("")
    (tmp_path / "staged/passes/other.py").write_text(
        '"""Names one.\n\nTested by `tests/a/test_b.py` and `tests/test_c.py`.\n"""'
    )
    (tmp_path / "staged/passes/alone.py").write_text('"""Is tested by chance."""')
    assert lacking(modules(tmp_path), tmp_path) == {"passes/alone.py"}
    assert named_tests((tmp_path / "staged/passes/other.py").read_text()) == ["tests/a/test_b.py", "tests/test_c.py"]
