"""`save` and `load`: trees of arrays in files of the safetensors format, which the program writes itself.

A dict of arrays by name is a plain file of that format. Any other tree (the state of an optimiser, a dict of states) is
one too, with the names of its leaves joined by dots; its nodes, texts and Nones stand in the file's metadata under
`SAVED_TREE`, so that `load` gives the tree back.

| node of the tree | in the metadata |
|---|---|
| array | `{"array": name}` |
| Python number, staged or not | `{"number": name}`: a 0-d array in the file |
| list or tuple of Python numbers of one kind | `{"numbers": name, "of": "list"}`: one array |
| list, tuple | `{"list": [...]}`, `{"tuple": [...]}` |
| dict | `{"dict": [[key, node], ...]}` |
| text, None | itself |
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from staged.base.launcher import this_job
from staged.errors import ArgumentError, DataError, DTypeError, StagingError
from staged.frontend.calls.call import call
from staged.frontend.constructs.files import path_of
from staged.frontend.constructs.strings import check_unicode, encode, parts_of
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect
from staged.frontend.transforms import stop_gradient
from staged.frontend.values.variable import Variable
from staged.ir.nodes import FAIL, IO, Op
from staged.ir.structure import MOST_SAVED_AXES, SAVE, SAVED_DTYPES, SAVED_TREE
from staged.ir.types import CPU
from staged.ops.array import Array
from staged.ops.context import context_or_none
from staged.ops.joining import stack
from staged.ops.promote import as_array, cast, read
from staged.saving import safetensors
from staged.saving.pieces import Piece, write_pieces
from staged.source import here, warn

_OTHER_FORMATS = (".pt", ".pth", ".pkl", ".npy", ".npz", ".h5", ".onnx")


def save(path: Any, tree: Any) -> None:
    """Write the arrays of `tree` to a safetensors file: `st.save(f"step-{step}.safetensors", model)`.

    In staged code it is a statement of the program, in loops and branches too: the path is text whose values are filled
    in as those of a print are, the values are those that the program has there, and an exported program writes the file
    without Python. In a region only what is saved is copied from the device. `tree` is a module, optimiser, generator
    or anything else with a `state_dict`; an array, Variable or number; or a dict (keys: texts and integers), list or
    tuple of these, of texts and of Nones, nested. Names are those of torch: the keys joined by dots.

    The file appears whole or not at all: it is written beside its place under another name, forced to the disk, and
    renamed: it takes the place of an older file, or of a link. Any dtype but the complex ones.

    On several ranks, rank 0 writes the state of modules and optimisers. The state of an optimiser with `shard=True` is
    in pieces: all ranks call `st.save`, and each writes its pieces into the file, which has whole arrays.

    Raises: ArgumentError where two arrays have one name, or the tree holds what is no array; DTypeError for complex
    numbers; StagingError under `vmap`. The program stops with ProgramFileError (an OSError), at this line, where the
    file cannot be written, or a device or pipe has its name.
    Source of the format: https://github.com/huggingface/safetensors.
    """
    check_effect("print", "`st.save`")
    text = path_of(path)
    if isinstance(text, str) and text.endswith(_OTHER_FORMATS):
        warn("`st.save` writes a safetensors file, which the name does not say: end it in `.safetensors`", here())
    parts = _Parts()
    node = parts.node(tree, ())
    nodes = "" if _is_plain(node) else json.dumps(node, separators=(",", ":"))
    words = [(name, _word(name, array)) for name, array in parts.arrays.items()]
    order = safetensors.ordered(words)
    chosen = [words[n] for n in order]
    arrays = [parts.arrays[name] for name, _ in chosen]
    trace = current_trace()
    if trace is not None:
        _record(trace, text, tuple(chosen), arrays, nodes)
        return
    metadata = json.dumps({SAVED_TREE: nodes}) if nodes else ""
    found = [array if isinstance(array, Piece) else np.asarray(stop_gradient(array)) for array in arrays]
    whole = [array for array in found if not isinstance(array, Piece)]
    if len(whole) < len(found):
        write_pieces(str(text), chosen, found, metadata)
    elif not parts.has_state or this_job().rank == 0:
        safetensors.write(str(text), chosen, whole, metadata)


def load(path: str | os.PathLike[str]) -> Any:
    """The tree that `st.save` wrote to a file; of another safetensors file, its arrays by name.

    Arrays are NumPy's and belong to the caller, numbers are Python's: `model.load_state_dict(st.load(path))`.

    Raises: DataError (a ValueError) for a file that cannot be read or is none of that format, and for a dtype that
    NumPy lacks; StagingError in staged code: a program takes arrays as arguments.
    """
    if context_or_none() is not None:
        raise StagingError(
            "a program reads no files, `st.load` cannot be staged",
            where=here(),
            hint="load in Python, before the call: `model.load_state_dict(st.load(path))`",
        )
    arrays, texts = safetensors.read(path)
    if SAVED_TREE not in texts:
        return arrays
    try:
        return _tree(json.loads(texts[SAVED_TREE]), arrays)
    except (ValueError, LookupError, TypeError, AttributeError, StopIteration, RecursionError) as error:
        raise DataError(
            f'"{os.fspath(path)}" has arrays, but the tree in its metadata is damaged: {error!r}', where=here()
        ) from None


# ---- trees ----


class _Parts:
    """The arrays of a tree by name, and the tree without them."""

    def __init__(self) -> None:
        self.arrays: dict[str, Array | np.ndarray[Any, Any] | Piece] = {}
        self.has_state = False
        """True if the tree has the state of a module, an optimiser or a Variable, which are equal on all ranks."""

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        """`value` as the metadata has it; its arrays are entered under their names."""
        if isinstance(value, str) or value is None:
            return value
        if hasattr(value, "state_dict"):
            self.has_state = True
            value = call(value.state_dict)
        if isinstance(value, Mapping):
            return {"dict": [[_key(key, path), self.node(item, (*path, str(key)))] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            word = "tuple" if isinstance(value, tuple) else "list"
            numbers = _numbers(value)
            if numbers is not None:
                return {"numbers": self.enter(numbers, path), "of": word}
            return {word: [self.node(item, (*path, str(index))) for index, item in enumerate(value)]}
        if _is_number(value):
            return {"number": self.enter(as_array(value), path)}
        if isinstance(value, Piece):
            return {"array": self.enter(value, path)}
        self.has_state = self.has_state or (isinstance(value, Variable) and not value.local)
        found = read(value)
        if not isinstance(found, Array | np.ndarray | np.generic):
            raise ArgumentError(
                f"`st.save` takes arrays, numbers, texts, and dicts, lists and tuples of them, "
                f"{'.'.join(path) or 'the tree'} is {type(value).__name__}",
                where=here(),
                hint="save its `state_dict()`, or a dict of its fields",
            )
        return {"array": self.enter(as_array(found), path)}

    def enter(self, array: Any, path: tuple[str, ...]) -> str:
        """Note an array; its name."""
        name = ".".join(path) or "array"
        check_unicode(name)
        if name in self.arrays or name == safetensors.METADATA:
            raise ArgumentError(
                f"two arrays of the file would be called `{name}`"
                if name in self.arrays
                else f"the format keeps the name `{name}` for texts",
                where=here(),
                hint="names are the keys joined by dots: choose others",
            )
        if len(array.shape) > MOST_SAVED_AXES:
            raise ArgumentError(
                f"`st.save` accepts arrays of at most {MOST_SAVED_AXES} axes, `{name}` has {len(array.shape)}",
                where=here(),
                hint=f"merge axes: `{name}.reshape(-1)`",
            )
        self.arrays[name] = array
        return name


def _key(key: Any, path: tuple[str, ...]) -> Any:
    if isinstance(key, str) or (isinstance(key, int) and not isinstance(key, bool)):
        return key
    raise ArgumentError(
        f"`st.save` takes dicts whose keys are texts or integers, {'.'.join(path) or 'the tree'} has {key!r}",
        where=here(),
    )


def _is_number(value: Any) -> bool:
    """Return whether it is a Python number, which a staged one stands for too."""
    return isinstance(value, bool | int | float) or (isinstance(value, Array) and value.type.weak)


def _numbers(values: Any) -> Any:
    """The values as one array, if they are Python numbers of one kind."""
    if not values or type(values) not in (list, tuple) or not all(map(_is_number, values)):
        return None
    numbers = [as_array(value) for value in values]
    dtype = numbers[0].dtype
    if any(number.dtype is not dtype for number in numbers):
        return None
    if any(isinstance(value, Array) for value in values):
        return stack([cast(number, dtype) for number in numbers])
    return as_array(np.asarray(values, dtype.numpy))


def _is_plain(node: Any) -> bool:
    """Return whether a tree is a dict of arrays by name, which a file is without any metadata."""
    rows = node.get("dict") if isinstance(node, dict) else None
    return (
        isinstance(rows, list)
        and rows != []
        and all(isinstance(item, dict) and item.get("array") == key for key, item in rows)
    )


def _tree(node: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """The tree of its metadata and arrays."""
    if node is None or isinstance(node, str):
        return node
    makers: dict[str, Callable[[Any], Any]] = {
        "array": lambda name: arrays[name],
        "number": lambda name: arrays[name].item(),
        "numbers": lambda name: (tuple if node["of"] == "tuple" else list)(arrays[name].tolist()),
        "list": lambda items: [_tree(item, arrays) for item in items],
        "tuple": lambda items: tuple(_tree(item, arrays) for item in items),
        "dict": lambda rows: {key: _tree(item, arrays) for key, item in rows},
    }
    kind = next(iter(node))
    return makers[kind](node[kind])


def _word(name: str, array: Any) -> str:
    """The format's word for an array's dtype."""
    dtype = str(array.dtype)
    if dtype.upper() not in SAVED_DTYPES or dtype.startswith("c"):
        raise DTypeError(
            f"`{name}` is {dtype}, and `st.save` takes real numbers",
            where=here(),
            hint="save its parts: `z.real` and `z.imag`, or `st.view_as_real(z)`",
        )
    return dtype.upper()


# ---- staged code ----


def _record(trace: TraceContext, path: Any, words: tuple[tuple[str, str], ...], arrays: list[Any], tree: str) -> None:
    """Record a `save` op: the values of its path, then the arrays."""
    values, parts = encode(trace, parts_of(path))
    trace.emit_op(
        Op(
            SAVE,
            [*values, *(trace.value_of(array) for array in arrays)],
            [],
            attrs={"parts": parts, "arrays": words, "tree": tree},
            effects=(*IO, *FAIL),
            device=CPU,
            where=here(),
        )
    )
