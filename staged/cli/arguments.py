"""Words of a command line as arguments of a staged function."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

import staged as st

_SHAPE = re.compile(r"(?P<dtype>f32|f64|i32|i64|u8|bool)\[(?P<shape>[\d, ]*)\]\Z")


def load_function(target: str) -> Any:
    """The staged function that `FILE` or `FILE:FUNCTION` names.

    Raises: DataError where the file or the function is missing, or where FILE has several and none is named.
    """
    file, _, name = target.partition(":")
    path = Path(file)
    if not path.is_file():
        raise st.DataError(f"there is no file {file}")
    # The file's own folder and the working folder, as `python FILE` and `python -m` would see them.
    for folder in (str(path.resolve().parent), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    found = {key: value for key, value in vars(module).items() if isinstance(value, st.StagedFunction)}
    own = {key: value for key, value in found.items() if value.__module__ == path.stem}
    if name:
        if name not in found:
            raise st.DataError(f"{file} has no staged function `{name}`", hint=_choices(file, found))
        return found[name]
    if len(own) != 1:
        raise st.DataError(f"{file} has {len(own)} staged functions, name one", hint=_choices(file, own))
    return next(iter(own.values()))


def _choices(file: str, found: dict[str, Any]) -> str:
    if not found:
        return "decorate a function with `@staged.function`"
    return "one of " + ", ".join(f"{file}:{name}" for name in sorted(found))


def parse(word: str) -> Any:
    """One argument: a number, True/False/None, a `.npy` file, a type such as `f32[64,784]` (zeros), or a string."""
    match = _SHAPE.match(word)
    if match:
        shape = tuple(int(part) for part in match["shape"].split(",") if part.strip())
        dtype = st.dtype_of(match["dtype"])
        assert dtype is not None, "the pattern names our dtypes only"
        return np.zeros(shape, dtype.numpy)
    if word.endswith(".npy"):
        try:
            return np.load(word, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise st.DataError(f"cannot read {word}: {error}") from error
    constants = {"True": True, "False": False, "None": None}
    if word in constants:
        return constants[word]
    for number in (int, float):
        try:
            return number(word)
        except ValueError:
            continue
    return word


def parse_all(function: Any, words: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments from words; `name=value` is a keyword."""
    names = set(inspect.signature(function.__wrapped__).parameters)
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names:
            keywords[name] = parse(value)
        else:
            positional.append(parse(word))
    return positional, keywords
