"""Imports point one way: every import in the tree, inside functions too, against one table, and no circle of files.

The layers, from the bottom: positions and errors; the IR; ops; the passes between IR and IR, which do not know one
another; back ends and the runtime, which share only an `Artifact`; the files that know every layer; and on top of
these, written with public names alone, what users build with.

Inside of a layer, files import one another without circles. What calls itself through several files (eval and apply, the derivative
of a loop's body) is tied by a table: each file enters its own in it, and what looks into the table imports none of them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# What a part may import from `staged` besides itself. `base` is that folder and `BASE_FILES`; `guards` is call/guards; `top` is
# every other file directly below staged/ (pipeline, testing, ...), `TOP_FOLDERS`, and the package itself.
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "ir": {"base"},
    "ops": {"base", "ir"},
    "library": {"base", "ir", "ops"},
    "guards": {"base", "ir", "ops"},
    "frontend": {"base", "ir", "ops", "library", "guards", "backends"},  # of `backends`, which names there are
    "autodiff": {"base", "ir", "ops"},
    "batching": {"base", "ir", "ops"},
    "passes": {"base", "ir", "ops"},
    "kernels": {"base", "ir", "ops"},
    "code": {"base", "ir", "ops"},
    "backends": {"base", "ir", "ops"},  # the contract and the registry
    "backends.host": {"base", "ir", "ops", "code", "backends"},
    "backends.cpu": {"base", "ir", "ops", "library", "code", "backends"},
    "backends.gpu": {"base", "ir", "ops", "library", "code", "backends", "backends.host"},
    "backends.*": {"base", "ir", "ops", "library", "code", "backends", "backends.host", "backends.cpu", "backends.gpu"},
    "runtime": {"base", "ir"},
}
BASE_FILES = {"errors", "source"}
TOP_FOLDERS = {"call", "eager_mode", "saving", "explain"}
# Written on the public names: `import staged`, names of the files at the top, each other, and the error types.
PUBLIC_PARTS = {"nn", "optim", "data", "integrate", "optimize", "onnx", "cli"}
ALLOWED |= {part: {"top", *PUBLIC_PARTS} for part in PUBLIC_PARTS}
ALLOWED["top"] = {part for part in (*ALLOWED, "top") if not part.startswith("backends.")}  # they are chosen by the registry

# The folders of `frontend`, from the bottom: each imports itself and those of the floors below. "" is the files beside them.
FRONT_END = (
    ("syntax", "trace"),
    ("values", "devices"),
    ("exits",),
    ("calls",),
    ("constructs", "transforms"),
    ("", "gpu_func"),
)

# Imports inside functions: they hide what a file depends on, so each has a reason.
LATE: dict[tuple[str, str], str] = {
    ("staged/__init__.py", "staged.eager_mode.context"): "`import staged` loads it at the first op of plain Python",
    ("staged/__init__.py", "staged.frontend.constructs.regions"): "`import staged` does not load the front end",
    ("staged/__init__.py", "staged.runtime.cuda.borrowed"): "`import staged` does not load the runtime",
    ("staged/__init__.py", "staged.runtime.mpi"): "`import staged` loads the runtime in a job of several ranks alone",
    ("staged/call/api.py", "staged.call.program"): "loads passes, kernels, back ends and the runtime: at the first compilation",
    ("staged/call/api.py", "staged.system"): "loads the runtime: at the first compilation",
    ("staged/__init__.py", "staged.base.other_names"): "at the top its names would be names of the package",
    ("staged/nn/__init__.py", "staged.base.other_names"): "at the top its names would be names of the package",
    ("staged/optim/__init__.py", "staged.base.other_names"): "at the top its names would be names of the package",
    ("staged/cli/__init__.py", "staged.cli.commands"): "needs click, which may not be installed: that is said first",
    ("staged/ops/thread_kernel.py", "staged.ops.thread_interpreter"): "loaded at the first launch in eager mode",
    ("staged/call/program.py", "staged.explain"): "loads passes and kernels, which a program in the cache does not need",
    ("staged/call/program.py", "staged.passes.ranks.vary"): "loads passes, which a program in the cache does not need",
    ("staged/call/program.py", "staged.pipeline"): "loads passes and kernels, which a program in the cache does not need",
    ("staged/system.py", "staged.runtime.opencl"): "loaded where OpenCL is asked for",
    ("staged/backends/*/backend.py", "staged.backends.*"): "loaded where a program asks for the back end",
}

# Starting a process or loading machine code is the runtime's alone, so that all up to the text is tested without it.
MACHINE_LIBRARIES = {"cffi", "ctypes", "subprocess", "cuda", "pyopencl"}
MAY_TOUCH_THE_MACHINE = {"runtime", "top", "cli"}


@dataclass(frozen=True)
class Import:
    """One imported module, `line` of `path`; `name` is what `from module import name` takes, if it is that form."""

    path: str
    line: int
    module: str
    name: str | None = None
    late: bool = False
    """Whether it is inside a function."""

    def __str__(self) -> str:
        what = f"from {self.module} import {self.name}" if self.name else f"import {self.module}"
        return f"{self.path}:{self.line}: {what}"


@cache
def imports_of(text: str, path: str, module: str, is_package: bool) -> tuple[Import, ...]:
    """Every import in one file: statements at any depth, and `import_module("...")` with a literal name."""
    return tuple(_imports_in(ast.parse(text, path), path, module, is_package))


def _nodes(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is inside a function."""
    waiting = [(tree, False)]
    while waiting:
        node, late = waiting.pop()
        yield node, late
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        waiting += [(inner, late) for inner in ast.iter_child_nodes(node)]


def _imports_in(tree: ast.AST, path: str, module: str, is_package: bool) -> Iterator[Import]:
    for node, late in _nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, None, late)
        elif isinstance(node, ast.ImportFrom):
            source = node.module or ""
            if node.level:
                parts = module.split(".") if is_package else module.split(".")[:-1]
                parts = parts[: len(parts) - (node.level - 1)]
                source = ".".join([*parts, source] if source else parts)
            for alias in node.names:
                yield Import(path, node.lineno, source, alias.name, late)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield Import(path, node.lineno, node.args[0].value, None, late)


def modules(root: Path) -> dict[str, Path]:
    """Dotted module name -> file, for every Python file of the package below `root`."""
    found = {}
    for path in sorted((root / "staged").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def part_of(module: str, known: dict[str, Path]) -> str:
    """The row of the table that a module of `staged` belongs to."""
    _, *below = module.split(".")
    if not below:
        return "top"
    if len(below) == 1 and (known.get(module) is None or known[module].name != "__init__.py"):
        # A file directly below staged/. Folders without an __init__.py (yet) are known by their contents.
        if not any(name.startswith(module + ".") for name in known):
            return "base" if below[0] in BASE_FILES else "top"
    if below[0] == "backends" and len(below) > 1:
        file = known.get(f"staged.backends.{below[1]}")
        if file is None or file.name == "__init__.py":
            return f"backends.{below[1]}"
    if below[:2] == ["call", "guards"]:
        return "guards"
    return "top" if below[0] in TOP_FOLDERS else below[0]


def may_import(part: str) -> set[str] | None:
    """The row of the table for a part: patterns of what it may import; None for a part that has none."""
    return next((allowed for pattern, allowed in ALLOWED.items() if fnmatchcase(part, pattern)), None)


def target_of(made: Import, known: dict[str, Path]) -> str:
    """The module that an import reaches: `from staged.ir import types` reaches staged.ir.types."""
    longer = f"{made.module}.{made.name}"
    return longer if made.name and longer in known else made.module


def arrows(root: Path) -> dict[str, dict[str, Import]]:
    """The modules that each module imports, wherever in its file, and one import of each.

    `import staged` in what is written on the public names is no arrow: the package loads these files after all others.
    """
    known = modules(root)
    found: dict[str, dict[str, Import]] = {module: {} for module in known}
    for module, path in known.items():
        shown = path.relative_to(root).as_posix()
        for made in imports_of(path.read_text(), shown, module, path.name == "__init__.py"):
            target = target_of(made, known)
            if target not in known or (target == "staged" and part_of(module, known) in PUBLIC_PARTS):
                continue
            found[module].setdefault(target, made)
    return found


def circles(root: Path) -> list[str]:
    """The imports that have to go where files import one another: each circle of imports, as its arrows."""
    graph = arrows(root)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += graph[module]
        return seen

    reach = {module: reached(module) for module in graph}
    groups = {frozenset({other for other in reach[module] if module in reach[other]}) for module in graph}
    return [
        "\n  ".join(
            [f"{len(group)} files in a circle:", *(str(graph[a][b]) for a in sorted(group) for b in graph[a] if b in group)]
        )
        for group in sorted(groups, key=sorted)
        if group
    ]


def late_imports(root: Path) -> list[str]:
    """Imports of `staged` inside functions that no row of `LATE` gives a reason for, and rows that nothing needs."""
    known, found, used = modules(root), [], set()
    for module, path in known.items():
        shown = path.relative_to(root).as_posix()
        for made in imports_of(path.read_text(), shown, module, path.name == "__init__.py"):
            if made.late and made.module.split(".")[0] == "staged":
                target = target_of(made, known)
                rows = [row for row in LATE if fnmatchcase(shown, row[0]) and fnmatchcase(target, row[1])]
                used.update(rows)
                if not rows:
                    found.append(f"{made}: an import inside a function; make it one of the file, or give its reason in LATE")
    unused = [row for row in LATE if row not in used]
    return found + [f"{path} imports {module} in no function: take its row out of LATE" for path, module in unused]


def violations(root: Path) -> list[str]:
    known = modules(root)
    found = []
    for module, path in known.items():
        part = part_of(module, known)
        shown = path.relative_to(root).as_posix()
        allowed = may_import(part)
        if allowed is None:
            found.append(f"{shown}: `{part}` is in no layer; add it to the table")
            continue
        for made in imports_of(path.read_text(), shown, module, path.name == "__init__.py"):
            top_package = made.module.split(".")[0]
            if top_package in MACHINE_LIBRARIES and part.split(".")[0] not in MAY_TOUCH_THE_MACHINE:
                found.append(f"{made}: only the runtime touches the machine")
            if top_package != "staged":
                continue
            target = target_of(made, known)
            reached = part_of(target, known)
            if reached == "base" and part in PUBLIC_PARTS and target in ("staged.errors", "staged.base.other_names"):
                continue
            if reached != part and not any(fnmatchcase(reached, pattern) for pattern in allowed):
                found.append(f"{made}: `{part}` may import {sorted(allowed) or 'nothing'}, not `{reached}`")
            elif part in PUBLIC_PARTS and reached == "top" and made.name and made.name.startswith("_"):
                found.append(f"{made}: `{part}` uses public names alone")
    return found


def violations_of_users(root: Path) -> list[str]:
    """Examples and benchmarks are users: the package, what users build with, and its testing helpers."""
    known = modules(root)
    found = []
    for path in sorted([*(root / "examples").rglob("*.py"), *(root / "benchmarks").rglob("*.py")]):
        if path.name == "micro_contraction.py":  # measures one inner part on purpose
            continue
        shown = path.relative_to(root).as_posix()
        for made in imports_of(path.read_text(), shown, "", False):
            if made.module.split(".")[0] != "staged" or made.module in ("staged", "staged.testing", "staged.errors"):
                continue
            if part_of(made.module, known) not in PUBLIC_PARTS:
                found.append(f"{made}: examples and benchmarks use public names alone")
    return found


def folders_upwards(root: Path) -> list[str]:
    """Imports in `frontend` that lead to another folder that is on no lower floor."""
    floors = {f"staged.frontend.{folder}".rstrip("."): floor for floor, folders in enumerate(FRONT_END) for folder in folders}

    def folder_of(module: str) -> str:
        folder = ".".join(module.split(".")[:3])
        return folder if folder in floors else "staged.frontend"

    found = []
    for module, reached in arrows(root).items():
        for target, made in reached.items():
            if module.startswith("staged.frontend") and target.startswith("staged.frontend."):
                here, there = folder_of(module), folder_of(target)
                if here != there and floors[there] >= floors[here]:
                    found.append(f"{made}: `{there}` is not below `{here}`")
    return found


RULES = {
    "every import points up the table": violations,
    "folders of the front end point one way": folders_upwards,
    "no circle of files": circles,
    "imports inside functions have a reason": late_imports,
    "examples use public names alone": violations_of_users,
}


@pytest.mark.parametrize("rule", RULES)
def test_imports_follow_the_rule(rule: str) -> None:
    found = RULES[rule](ROOT)
    assert not found, "\n".join(["", *found])


def test_planted_import_of_a_higher_folder_is_found(tmp_path: Path) -> None:
    tree(tmp_path, "staged/frontend/values/a.py", "from staged.frontend.trace.b import c")
    tree_with(tmp_path, "staged/frontend/trace/b.py", "")
    assert folders_upwards(tmp_path) == []
    tree_with(tmp_path, "staged/frontend/trace/b.py", "from staged.frontend.values import a")
    assert folders_upwards(tmp_path) == [
        "staged/frontend/trace/b.py:1: from staged.frontend.values import a: "
        "`staged.frontend.values` is not below `staged.frontend.trace`"
    ]


def test_the_emulated_device_is_a_separate_package() -> None:
    """It does not import `staged`, which does not have C++ and imports the package in one file."""
    outside = (ROOT / "cuda_emulator" / "cuda_emulator").rglob("*.py")
    found = [each.module for path in outside for each in imports_of(path.read_text(), str(path), "", False)]
    assert found and not [module for module in found if module.startswith("staged")]
    users = {path for path in (ROOT / "staged").rglob("*.py") if re.search("(?:import|from) cuda_emulator", path.read_text())}
    assert users == {ROOT / "staged" / "runtime" / "cuda" / "emulated.py"}
    assert not [path for path in (ROOT / "staged").rglob("*") if path.suffix in (".cpp", ".cu")]


PLANTED = [
    ("staged/ir/a.py", "from staged.ops import record", "`ir` may import"),
    ("staged/ir/a.py", "def f():\n    import staged.ops.record", "`ir` may import"),
    ("staged/ir/a.py", "from ..ops import record", "`ir` may import"),
    ("staged/ir/a.py", "if TYPE_CHECKING:\n    from staged import ops", "`ir` may import"),
    ("staged/passes/a.py", "from staged.kernels.b import c", "`passes` may import"),
    ("staged/passes/a.py", "importlib.import_module('staged.kernels')", "`passes` may import"),
    ("staged/backends/native/a.py", "from staged.runtime import native", "`backends.native` may import"),
    ("staged/backends/native/a.py", "from staged.backends.cublas_cudnn import a", "`backends.native` may import"),
    ("staged/backends/host/a.py", "from staged.backends import native", "`backends.host` may import"),
    ("staged/backends/another/a.py", "from staged.backends.native import b", "`backends.another` may import"),
    ("staged/ops/a.py", "from staged.library.b import c", "`ops` may import"),
    ("staged/code/a.py", "from staged.backends.host import b", "`code` may import"),
    ("staged/call/guards/a.py", "from staged.call import b", "`guards` may import"),
    ("staged/passes/a.py", "from staged.backends.native import b", "`passes` may import"),
    ("staged/pipeline.py", "from staged.backends.native import b", "`top` may import"),
    ("staged/runtime/a.py", "from staged.ops import record", "`runtime` may import"),
    ("staged/runtime/a.py", "import staged", "`runtime` may import"),
    ("staged/errors.py", "from staged.ir import b", "`base` may import"),
    ("staged/nn/a.py", "from staged.ir import b", "`nn` may import"),
    ("staged/nn/a.py", "from staged.call.api import _private", "public names alone"),
    ("staged/kernels/a.py", "import cffi", "only the runtime"),
    ("staged/surprise/a.py", "", "in no layer"),
]
FINE = [
    ("staged/ir/a.py", "from staged.ir import b\nfrom . import b\nfrom staged import errors"),
    ("staged/errors.py", "from staged.source import Position"),
    ("staged/backends/native/a.py", "from staged.backends.host import writer\nfrom ..host import writer"),
    ("staged/backends/another/a.py", "from staged.backends.host import b"),
    ("staged/runtime/a.py", "import cffi\nfrom staged.ir.machine import Machine"),
    ("staged/pipeline.py", "from staged.runtime import native\nimport subprocess"),
    ("staged/data/a.py", "from staged.errors import DataError\nimport staged as st\nfrom staged import nn"),
]


def tree(root: Path, path: str, text: str) -> Path:
    """A small package with one file of each part, and `text` in `path`."""
    for part in ("ir", "ops", "passes", "kernels", "runtime", "nn", "library", "code", "call", "backends/native", "backends/host"):
        for name in ("__init__.py", "b.py"):
            (root / "staged" / part).mkdir(parents=True, exist_ok=True)
            (root / "staged" / part / name).write_text("")
    for name in ("ops/record.py", "errors.py", "source.py", "call/api.py", "__init__.py", "ir/machine.py"):
        (root / "staged" / name).write_text("")
    return tree_with(root, path, text)


def tree_with(root: Path, path: str, text: str) -> Path:
    """The package with `text` in `path`."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return root


@pytest.mark.parametrize(("path", "text", "message"), PLANTED)
def test_planted_violation_is_found(tmp_path: Path, path: str, text: str, message: str) -> None:
    found = violations(tree(tmp_path, path, text))
    assert len(found) == 1, found
    assert message in found[0]
    assert found[0].startswith(path)


@pytest.mark.parametrize(("path", "text"), FINE)
def test_allowed_import_is_not_reported(tmp_path: Path, path: str, text: str) -> None:
    assert violations(tree(tmp_path, path, text)) == []


def test_example_reaching_inside_is_found(tmp_path: Path) -> None:
    tree(tmp_path, "examples/mnist/mlp.py", "from staged import nn\nfrom staged.ir import b")
    assert violations_of_users(tmp_path) == [
        "examples/mnist/mlp.py:2: from staged.ir import b: examples and benchmarks use public names alone"
    ]


CIRCLES = [
    ("from staged.ir.c import x", "from staged.ir.b import y"),
    ("from staged.ir.c import x", "def f():\n    from staged.ir import b"),
    ("import staged.ir.c", "if TYPE_CHECKING:\n    from staged.ir.b import B"),
    ("from . import c", "from .b import y"),
    ("def f():\n    from staged.ir import b", ""),
]


@pytest.mark.parametrize(("b", "c"), CIRCLES)
def test_planted_circle_is_found(tmp_path: Path, b: str, c: str) -> None:
    tree(tmp_path, "staged/ir/b.py", b)
    tree_with(tmp_path, "staged/ir/c.py", c)
    (found,) = circles(tmp_path)
    assert "staged/ir/b.py:" in found
    assert ("staged/ir/c.py:" in found) == bool(c)


def test_files_that_import_one_way_are_no_circle(tmp_path: Path) -> None:
    tree(tmp_path, "staged/ir/b.py", "from staged.ir import c\nfrom staged import errors")
    tree_with(tmp_path, "staged/ir/c.py", "from staged import errors")
    tree_with(tmp_path, "staged/__init__.py", "from staged import nn\nfrom staged.ir import b")
    tree_with(tmp_path, "staged/nn/b.py", "import staged as st")  # by design: nn is written on the public names
    assert circles(tmp_path) == []


def test_planted_import_inside_a_function_is_found(tmp_path: Path) -> None:
    tree(tmp_path, "staged/ir/a.py", "def f():\n    from staged.ir import b\n    import os")
    found = [line for line in late_imports(tmp_path) if "staged/ir/a.py" in line]
    assert len(found) == 1
    assert found[0].startswith("staged/ir/a.py:2: from staged.ir import b: an import inside a function")


def test_a_reason_without_an_import_is_found(tmp_path: Path) -> None:
    tree(tmp_path, "staged/ir/a.py", "import staged.ir.b")
    assert len(late_imports(tmp_path)) == len(LATE)
