"""Compile the guards of a trace to one Python function, which returns the arguments for the program if all guards hold.

    def check(args, kwargs, owner):
        try:
            if (o1 := w1()) is None: return 3
            if k2['model'] is not o1: return 4
            if o1.training is not k3: return 5
            ...
            return (x, y)
        except Exception as error:
            return error.__traceback__.tb_lineno

If a guard fails, the function returns its own line number, which `Writer.difference` translates to what has changed.
Objects are held weakly; when one of them dies, `dead` is called, and the program is not used again.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache
from keyword import iskeyword
from types import CodeType, FunctionType
from typing import Any

from staged.call.guards.expected import Entries, Expected, Fields, Items, Members, Object, Same, same
from staged.call.guards.guard import MISSING, Guard

Check = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[Any, ...] | int | None]
"""A check returns the program's arguments; or the line of the failed guard, or None, if the program does not fit the
call.
"""

_UNROLLED = 128
"""Containers of up to this many elements are compared element by element in the text; larger ones by `holds`."""
_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<guards>")
"""The file name in tracebacks: inside this package, so that the frame is not taken for the user's."""
_OF_STRINGS = frozenset((str,))
"""The classes of the keys of a dict, where all are plain strings."""
_ALONE = frozenset((type(None), bool, type(Ellipsis), type(NotImplemented)))
"""Classes of values that are always the same object."""
_GONE = "an object that is gone"


class DeadError(Exception):
    """An object that the trace read has died already."""


class Writer:
    """The text of one check, and the constants that it uses."""

    def __init__(self, dead: Callable[[Any], None]) -> None:
        self._dead = dead
        self.labels: list[str | Guard] = []
        """The guard, or its description, that each line checks."""
        self.lines: list[str] = []
        """Statements of the text."""
        self.label: str | Guard = "the call"
        self.constants: dict[str, Any] = {"same": same, "holds": holds, "lookup": lookup}
        self._objects: dict[int, str] = {}
        self._names = 0
        self._held: dict[int, str] = {}

    def constant(self, value: Any) -> str:
        """A name for a constant."""
        known = self._held.get(id(value))
        if known is None:
            self._names += 1
            known = f"k{self._names}"
            self._held[id(value)] = known
            self.constants[known] = value
        return known

    def fresh(self) -> str:
        """A name for a local."""
        self._names += 1
        return f"v{self._names}"

    def object(self, held: Object) -> str:
        """A name for an object that the trace met."""
        known = self._objects.get(held.identity)
        if known is not None:
            return known
        value = held.reference()
        if isinstance(held.reference, weakref.ref):
            if value is None:
                raise DeadError
            self._names += 1
            name = f"o{self._names}"
            self.constants[f"w{self._names}"] = weakref.ref(value, self._dead)
            label, self.label = self.label, _GONE
            self.refuse(f"({name} := w{self._names}()) is None")
            self.label = label
        else:
            name = self.constant(value)
        self._objects[held.identity] = name
        return name

    def refuse(self, condition: str) -> None:
        """Write a guard that fails if `condition` is true."""
        self.labels.append(self.label)
        self.lines.append(f"        if {condition}: return {len(self.labels) + _HEAD_LINES}")

    def expect(self, text: str, value: Expected) -> None:
        """Check that the expression `text` evaluates to what was read."""
        match value:
            case Same(value=constant):
                name = self.constant(constant)
                if type(constant) in _ALONE:
                    self.refuse(f"{text} is not {name}")
                else:
                    local = self.local(text)
                    self.refuse(f"{local} is not {name} and not same({local}, {name})")
            case Object():
                self.refuse(f"{text} is not {self.object(value)}")
            case Items(type=cls, items=items, identity=identity):
                local = self.local(text)
                by_id = f" or id({local}) != {self.constant(identity)}" if identity is not None else ""
                self.refuse(f"type({local}) is not {self.constant(cls)} or len({local}) != {len(items)}{by_id}")
                if len(items) > _UNROLLED:
                    self.refuse(f"not holds({local}, {self.constant(self._alive(value))})")
                else:
                    for index, item in enumerate(items):
                        self.expect(f"{local}[{index}]", item)
            case Entries(type=cls, keys=keys, values=values, identity=identity):
                local = self.local(text)
                self.refuse(f"type({local}) is not {self.constant(cls)} or id({local}) != {self.constant(identity)}")
                self.refuse(f"tuple({local}) != {self.constant(keys)}")
                if len(values) > _UNROLLED or not all(type(key) is str for key in keys):
                    self.refuse(f"not holds({local}, {self.constant(self._alive(value))})")
                else:
                    if keys:  # an equal key of another class is another key
                        self.refuse(f"set(map(type, {local})) != {self.constant(_OF_STRINGS)}")
                    for key, item in zip(keys, values, strict=True):
                        self.expect(f"{local}[{self.constant(key)}]", item)
            case Fields(type=cls, fields=fields):
                local = self.local(text)
                self.refuse(f"type({local}) is not {self.constant(cls)} or len({local}.__dict__) != {len(fields)}")
                for name, part in fields:
                    self.expect(f"{local}.{name}", part)
            case Members():
                self.refuse(f"not holds({text}, {self.constant(self._alive(value))})")

    def local(self, text: str) -> str:
        """A local name for the value of `text`."""
        if text.isidentifier():
            return text
        name = self.fresh()
        self.labels.append(self.label)
        self.lines.append(f"        {name} = {text}")
        return name

    def _alive(self, value: Expected) -> Expected:
        """Return `value`; from now on `dead` is called when an object in it dies."""
        match value:
            case Object():
                self.object(value)
            case Items(items=inner) | Entries(values=inner):
                for item in inner:
                    self._alive(item)
            case _:
                pass
        return value

    def guard(self, guard: Guard) -> None:
        """One read of the trace."""
        owner = self.object(guard.owner)
        key, value = guard.key, guard.value
        self.label = guard
        match guard.kind:
            case "code":
                assert value is not None
                self.expect(f"{owner}.__code__", value)
            case "attribute":
                assert value is not None
                self.expect(_attribute(owner, key, self), value)
            case "name":
                assert value is not None
                self.expect(f"{owner}[{self.constant(key)}]", value)
            case "no name":
                self.refuse(f"{self.constant(key)} in {owner}")
            case "cell":
                assert value is not None
                self.expect(f"{owner}.__closure__[{key}].cell_contents", value)
            case "unbound cell":
                self.refuse(f"is_bound({owner}.__closure__[{key}])")
                self.constants["is_bound"] = _is_bound
            case "method":
                assert value is not None
                self.expect(f"{_attribute(owner, key, self)}.__func__", value)
            case "no attribute":
                self.refuse(f"{self.constant(key)} in {owner}.__dict__")
            case "of class":
                if value is None:
                    self.refuse(f"lookup({owner}, {self.constant(key)}) is not MISSING")
                    self.constants["MISSING"] = MISSING
                elif isinstance(value, Object) and isinstance(value.reference(), FunctionType | property):
                    self.expect(_attribute(owner, key, self), value)
                else:
                    self.expect(f"lookup({owner}, {self.constant(key)})", value)
            case "own":
                found = f"{owner}.__dict__.get({self.constant(key)}, MISSING)"
                self.constants["MISSING"] = MISSING
                if value is None:
                    self.refuse(f"{found} is not MISSING")
                else:
                    self.expect(found, value)
            case "type":
                assert value is not None
                self.expect(f"type({owner})", value)
            case "array type":
                shape, wanted = key
                dtype = self.constant(wanted)
                self.refuse(
                    f"{owner}.shape != {shape!r} or ({owner}.dtype is not {dtype} and {owner}.dtype != {dtype})"
                )
            case "elements":
                dtype, shape, elements = key
                self.refuse(
                    f"{owner}.dtype.str != {dtype!r} or {owner}.shape != {shape!r} or {owner}.tobytes() != "
                    f"{self.constant(elements)}"
                )
            case "flags":
                assert value is not None
                self.expect(f"{owner}.flags.num", value)
            case "no slot":
                self.refuse(f"hasattr({owner}, {self.constant(key)})")
            case "contents":
                assert value is not None
                base = self.constant(key)
                self.expect(
                    f"tuple({base}.items({owner}))" if key is dict else f"tuple({base}.__iter__({owner}))", value
                )
            case "ambient":
                assert value is not None
                self.expect(f"{owner}()", value)
            case "keys":
                assert value is not None
                self.expect(f"tuple({owner}.__dict__)", value)
            case other:
                raise AssertionError(other)

    def finish(self, results: Iterable[str]) -> Check:
        """The compiled function."""
        given = "".join([f"{result}, " for result in results])
        text = "\n".join([_HEAD, *self.lines, f"        return ({given})", _TAIL])
        names: dict[str, Any] = dict(self.constants)
        exec(_code(text), names)
        made: Check = names.pop("check")  # its globals do not hold it: no cycle, and what they hold goes with it
        return made

    def difference(self, line: int) -> str:
        """The guard, or its description, that failed on this line."""
        return str(self.labels[line - _HEAD_LINES - 1])


@lru_cache(maxsize=64)
def _code(text: str) -> CodeType:
    """The compiled text, cached: retracing a function reads the same places, and the values found are constants."""
    return compile(text, _FILE, "exec")


_HEAD = "def check(args, kwargs, owner):\n    try:"
_TAIL = "    except Exception as error:\n        return error.__traceback__.tb_lineno\n"
_HEAD_LINES = 2


def _attribute(owner: str, name: str, writer: Writer) -> str:
    if name.isidentifier() and not iskeyword(name):
        return f"{owner}.{name}"
    return f"getattr({owner}, {writer.constant(name)})"


def holds(value: Any, wanted: Expected) -> bool:
    """Return whether `value` is as it was. For small containers `Writer.expect` writes the same comparison as code."""
    found: Any = value  # what `type(...) is` says is not narrowed
    match wanted:
        case Same(value=constant):
            return same(value, constant)
        case Object(reference=reference):
            return value is reference() and value is not None
        case Items(type=cls, items=items, identity=identity):
            return (
                type(value) is cls
                and len(found) == len(items)
                and (identity is None or id(value) == identity)
                and all(map(holds, found, items))
            )
        case Entries(type=cls, keys=keys, values=values, identity=identity):
            return (
                type(value) is cls
                and id(value) == identity
                and len(found) == len(keys)
                and all(map(same, found, keys))
                and all(map(holds, found.values(), values))
            )
        case Fields():
            raise AssertionError("settings are arguments, not parts of containers")
        case Members(type=cls, members=members, identity=identity):
            return (
                type(value) is cls
                and len(found) == len(members)
                and (identity is None or id(value) == identity)
                and all(map(same, found, members))
            )


def lookup(cls: type, name: str) -> Any:
    """The class attribute `name`, unbound, from the first base in `cls.__mro__` that has it; MISSING without one."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def _is_bound(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
