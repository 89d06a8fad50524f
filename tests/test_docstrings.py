"""Every public name has a docstring: of `staged`, and of the modules that users import beside it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import staged as st
from staged import cuda, data, nn, optim, system, testing
from staged.ops.array import Array

ROOT = Path(__file__).parent.parent
MODULES = {"staged": st, "staged.nn": nn, "staged.optim": optim, "staged.data": data, "staged.testing": testing}
MODULES["staged.system"] = system
MODULES["staged.cuda"] = cuda
MODULES["staged.random"] = st.random

# Values, which carry no docstring of their own: dtypes and devices.
VALUES = {"CPU", "GPU", "bool_", "newaxis", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}


def public_names(module: Any) -> list[str]:
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(name for name, value in vars(module).items() if not name.startswith("_") and is_own(value, module))


def is_own(value: Any, module: Any) -> bool:
    return getattr(value, "__module__", None) == module.__name__


def documented(name: str, value: Any) -> Iterator[tuple[str, bool]]:
    """(name, whether it has a docstring) of a public thing and, for a class, of what it offers."""
    yield name, bool(own_doc(value))
    if not inspect.isclass(value):
        return
    for attribute, member in vars(value).items():
        if attribute.startswith("_"):
            continue
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) or hasattr(function, "func"):  # cached_property has `func`
            yield f"{name}.{attribute}", bool(inspect.getdoc(getattr(value, attribute)))


def own_doc(value: Any) -> str | None:
    """The docstring of the thing itself: a class's own, not its base's, and not the one that `dataclass` makes up."""
    doc = value.__doc__ if not inspect.isclass(value) else value.__dict__.get("__doc__")
    if inspect.isclass(value) and doc and doc.startswith(f"{value.__name__}("):
        return None
    return doc


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_docstring(module: str) -> None:
    missing = []
    for name in public_names(MODULES[module]):
        if module == "staged" and name in VALUES:
            continue
        missing += [found for found, is_there in documented(name, getattr(MODULES[module], name)) if not is_there]
    assert not missing, f"no docstring in {module}: {', '.join(missing)}"


def test_attributes_of_arrays_have_docstrings() -> None:
    missing = [found for found, is_there in documented("Array", Array) if not is_there]
    assert not missing, missing


@pytest.mark.parametrize("module", MODULES)
def test_module_has_names_and_words(module: str) -> None:
    assert public_names(MODULES[module]) and MODULES[module].__doc__


def test_absence_is_found() -> None:
    class Base:
        """Has words."""

        def method(self) -> None: ...

    class Derived(Base):
        @property
        def size(self) -> int:
            return 0

    assert [name for name, is_there in documented("Base", Base) if not is_there] == ["Base.method"]
    assert [name for name, is_there in documented("Derived", Derived) if not is_there] == ["Derived", "Derived.size"]


def headless(source: str) -> list[tuple[int, str]]:
    """The docstrings of a source, those of attributes too, that begin with a clause instead of a subject or a verb."""
    bodies = [getattr(node, field, None) for node in ast.walk(ast.parse(source)) for field in ("body", "orelse")]
    found = [
        (node.lineno, node.value.value)
        for body in bodies
        if isinstance(body, list)
        for node in body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return [(line, text) for line, text in found if re.match(r"(What|Which|Where|When|Who|Whose|How|That|Whatever)\b", text)]


@pytest.mark.parametrize("folder", ["staged", "tests", "benchmarks", "examples", "docs"])
def test_docstrings_begin_with_a_subject_or_a_verb(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path in files for line, text in headless(path.read_text())]
    assert files and not found, "\n".join(["", *found])


def test_a_headless_docstring_is_found() -> None:
    source = '"""Values."""\nclass A:\n    x: int = 0\n    """What it is."""\n    def f(self):\n        """Return x."""\n'
    assert headless(source) == [(4, "What it is.")]
