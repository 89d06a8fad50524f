"""The list of constructs names every file that registers something, and a new construct is a file and a line there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np

import staged as st
from staged.frontend import constructs
from staged.frontend.calls.call import BUILTINS, METHODS_OF, OBJECTS, builtin, calls_of, method_of

FRONTEND = Path(constructs.__file__).parent.parent
FOLDERS = sorted(path.name for path in FRONTEND.iterdir() if path.is_dir() and path.name != "gpu_func")
REGISTERS = {"statement", "expression", "operator", "builtin", "method_of", "calls_of"}
ENGINE = {"syntax/converter"}  # its own rule, for names


def registers(path: Path) -> bool:
    """Whether a file enters something in a table as it is imported."""
    for node in ast.parse(path.read_text()).body:
        for call in ast.walk(node) if isinstance(node, ast.Expr) else getattr(node, "decorator_list", []):
            function = call.func if isinstance(call, ast.Call) else call
            if isinstance(function, ast.Attribute) and ast.unparse(function) == "BUILTINS.update":
                return True
            if isinstance(function, ast.Name) and function.id in REGISTERS:
                return True
    return False


def test_every_file_that_registers_something_is_in_the_list() -> None:
    tree = ast.parse(Path(constructs.__file__).read_text())
    lists = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    listed = {f"{str(node.module).rpartition('.')[2]}/{alias.name}" for node in lists for alias in node.names}
    files = [path for folder in FOLDERS for path in (FRONTEND / folder).glob("*.py")]
    assert listed == {f"{path.parent.name}/{path.stem}" for path in files if registers(path)} - ENGINE


class Doubled:
    __doubled__ = True


def test_what_is_registered_is_what_a_call_does() -> None:
    @st.function
    def f(x: Any) -> Any:
        return hash(x), b"abc".hex(x), Doubled()(x), len(b"abc".hex(":"))

    try:
        builtin(hash)(lambda x: x + 1.0)
        method_of(bytes, "hex")(lambda owner, x: x * len(owner) if isinstance(x, st.Array) else NotImplemented)
        calls_of("__doubled__")(lambda function, args, kwargs: args[0] * 2.0)
        made = f(np.float64(2.0))
    finally:
        del BUILTINS[hash], METHODS_OF[bytes], OBJECTS["__doubled__"]
    assert [float(value) for value in made] == [3.0, 6.0, 4.0, 8.0]
