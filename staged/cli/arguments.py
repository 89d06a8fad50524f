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

_SHAPE = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d, ]*)\]\Z")


def load_function(target: str) -> Any:
    """The staged function that `FILE` or `FILE:FUNCTION` names.

    Raises: DataError where the file or the function is missing, or where FILE has several and none is named.
    """
    file, name = (target, "") if Path(target).is_file() else _split(target)
    path = Path(file)
    if not path.is_file():
        raise st.DataError(f"there is no file {file}", hint="name a Python file, or FILE:FUNCTION")
    if path.suffix != ".py":
        raise st.DataError(f"{file} is no Python file", hint="its name should end in .py")
    # The file's own folder and the working folder, as `python FILE` and `python -m` would see them.
    for folder in (str(path.resolve().parent), str(Path.cwd())):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    # A file that is called like a module which is already there (random.py) must not take its place.
    module_name = path.stem if path.stem not in sys.modules else f"_run_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    found = {key: value for key, value in vars(module).items() if isinstance(value, st.StagedFunction)}
    own = {key: value for key, value in found.items() if value.__module__ == module_name}
    if name:
        if name not in found:
            raise st.DataError(f"{file} has no staged function `{name}`", hint=_choices(file, found))
        return found[name]
    if len(own) != 1:
        count = "no staged function" if not own else f"{len(own)} staged functions, name one"
        raise st.DataError(f"{file} has {count}", hint=_choices(file, own))
    return next(iter(own.values()))


def _split(target: str) -> tuple[str, str]:
    """FILE and FUNCTION of a word; the last colon is the one between them."""
    file, colon, name = target.rpartition(":")
    return (file, name) if colon else (target, "")


def _choices(file: str, found: dict[str, Any]) -> str:
    if not found:
        return "decorate a function with `@staged.function`"
    return "one of " + ", ".join(f"{file}:{name}" for name in sorted(found))


def parse(word: str) -> Any:
    """One argument: a number, True/False/None, a `.npy` file, a type such as `f32[64,784]` (zeros), or a string."""
    match = _SHAPE.match(word)
    dtype = st.dtype_of(match["dtype"]) if match else None
    if match and dtype is not None:
        shape = tuple(int(part) for part in match["shape"].split(",") if part.strip())
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
    """Positional and keyword arguments from words; `name=value` is a keyword.

    Raises: StagedError for arguments that the function does not take, naming those that it takes.
    """
    signature = inspect.signature(function.__wrapped__)
    takes_any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.parameters.values())
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name.isidentifier() and (name in signature.parameters or takes_any):
            keywords[name] = parse(value)
        elif equals and name.isidentifier():
            raise st.StagedError(f"`{function.__name__}` has no argument `{name}`", hint=_usage(function, signature))
        else:
            positional.append(parse(word))
    try:
        signature.bind(*positional, **keywords)
    except TypeError as error:
        raise st.StagedError(f"`{function.__name__}`: {error}", hint=_usage(function, signature)) from None
    return positional, keywords


def _usage(function: Any, signature: inspect.Signature) -> str:
    return f"it is {function.__name__}{signature}"
