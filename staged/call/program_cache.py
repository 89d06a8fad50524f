"""The cache of generated texts: a hit skips autodiff, passes and emission.

The key is the printed traced IR, the machine, and the version and sources of this package. Python lines are not in the
key: an entry keeps, for each error site, the number of the traced op it came from, and takes the line from the new
trace.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact, Parameter, Site
from staged.base.depth import goes_deep
from staged.ir.declaration import prims
from staged.ir.functions import every_function
from staged.ir.machine import Machine
from staged.ir.nodes import Function, Op, walk_ops
from staged.ir.printer import print_function
from staged.runtime.cache import default_cache, digest
from staged.source import Position

PACKAGE = Path(__file__).parents[1]
"""The folder of all source files."""


@goes_deep
def find_artifact(function: Function, machine: Machine, check_nan: bool) -> Artifact | None:
    """The artifact stored for this traced program, with the error sites of this trace."""
    if not _is_whole(function):
        return None
    text = default_cache().get_text(_key(function, machine, check_nan))
    if text is None:
        return None
    try:
        return _artifact(text, function)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None  # a text that `store_artifact` has not written, with a correct digest


def _artifact(text: str, function: Function) -> Artifact:
    """The artifact of a stored text; errors of any kind if its content is different."""
    stored = json.loads(text)
    places = _places(function)
    sites = []
    for site, place in zip(stored.pop("sites"), stored.pop("places"), strict=True):
        made = Site(**site)
        if place is not None and place < len(places):
            made = _site(places[place])
        sites.append(made)
    parameters = tuple(
        Parameter(**{**parameter, "shape": tuple(parameter["shape"])}) for parameter in stored.pop("parameters")
    )
    for name in ("link", "flags", "gpus", "pieces"):
        stored[name] = tuple(stored[name])
    return Artifact(**stored, parameters=parameters, sites=tuple(sites))


@goes_deep
def store_artifact(function: Function, machine: Machine, check_nan: bool, artifact: Artifact) -> None:
    """Keep the artifact for later processes."""
    if not _is_whole(function):
        return
    numbers = {_site(place): number for number, place in reversed(list(enumerate(_places(function))))}
    entry: dict[str, Any] = asdict(artifact)
    entry["places"] = [numbers.get(site) for site in artifact.sites]
    default_cache().put_text(_key(function, machine, check_nan), json.dumps(entry))


def _is_whole(function: Function) -> bool:
    """Return whether the traced IR says all of the program: a user's rule of `vmap` is Python, and runs in a pass."""
    return all(custom.batched is None for custom in _custom_ops(function))


def _custom_ops(function: Function) -> Iterator[Any]:
    """The C functions of the user's that the program calls."""
    for op in _ops(function):
        if op.declared in (prims.CUSTOM_OP, prims.CUSTOM_LAUNCH):
            yield op.attrs["function"]


def _definition(custom: Any) -> str:
    """The meaning of a C function of the user's, and of its form for a device: texts, or the files of libraries as they
    are now.
    """
    found = [custom.parameters]
    for form in (custom, custom.cuda) if custom.cuda is not None else (custom,):
        status = Path(form.library).stat() if form.library else None
        found += [form.source, form.library, f"{status.st_size} {status.st_mtime_ns}" if status else ""]
    return " ".join(found)


def _places(function: Function) -> list[Position]:
    """The Python positions of the traced ops, in order, without repeats."""
    found: dict[Position, None] = {}
    for called in function.functions:
        if called.where is not None:
            found[called.where] = None
    for op in _ops(function):
        if op.where is not None:
            found[op.where] = None
        if op.declared is prims.GPU_FUNC:
            found.update(dict.fromkeys(op.attrs["kernel"].positions()))
    return list(found)


def _ops(function: Function) -> Iterator[Op]:
    """The ops of the program and of the functions that it calls."""
    for each in every_function(function):
        yield from walk_ops(each.block)


def _site(position: Position) -> Site:
    return Site(position.file, position.line, position.column, position.end_column, position.function, position.text)


def _key(function: Function, machine: Machine, check_nan: bool) -> str:
    shape = [",".join(function.param_paths), ",".join(function.result_paths)]
    order = [f"{op.name}:{places}" for op, places in zip(_ops(function), _place_numbers(function), strict=True)]
    foreign = map(_definition, _custom_ops(function))
    parts = [print_function(function), *shape, ",".join(order), repr(machine), str(check_nan), *foreign]
    return digest("text 1", _fingerprint(), *parts)


def _place_numbers(function: Function) -> list[int]:
    """For each op, the index of its source position; two ops of one line keep different indices."""
    numbers = {place: number for number, place in enumerate(_places(function))}
    return [numbers[op.where] if op.where is not None else -1 for op in _ops(function)]


@cache
def _fingerprint() -> str:
    """A digest of all source files of this package: a newer version never takes an older one's text."""
    state = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        status = path.stat()
        state.update(f"{path.relative_to(PACKAGE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return state.hexdigest()
