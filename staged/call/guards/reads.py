"""The reads of one trace from outside: each becomes a guard, or a reason why the function must be traced at every call.

The front end reports reads as it evaluates the user's code: the value, before the trace changes anything, once per
place. Three kinds of code run while staging:

- converted code, whose reads are recorded one by one;
- code known to depend on its arguments alone (`known_calls`), for which everything reachable from them is recorded;
- any other code, which is a reason.

Only objects older than the trace are owners: those that the trace itself creates are the same in every trace.
"""

from __future__ import annotations

import abc
import builtins
import decimal
from collections.abc import Callable, Iterator
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType, UnionType
from typing import Any

import numpy as np

from staged.call.guards.expected import (
    Entries,
    Expected,
    Items,
    Members,
    Object,
    Same,
    TooLargeError,
    expected,
    held,
    is_known,
    is_library,
)
from staged.call.guards.guard import MISSING, Guard, GuardKind, Reason
from staged.call.guards.held_by import (
    CONTAINERS,
    OF_PYTHON,
    PLAIN,
    dict_of,
    globals_in,
    is_plain,
    names_in,
    references,
    slots_of,
)
from staged.errors import article
from staged.ops.array import Array
from staged.source import here

MOST_OBJECTS = 4000
"""The most objects below an argument of unconverted code that are recorded; with more, every call traces."""
_MOST_BYTES = 1 << 16
"""Of arrays that are read while staging."""


_MAY_HOLD_PARAMETERS = (Array, list, tuple, dict)
_ONE_OF_EACH = frozenset(("code", "type", "elements", "array type", "keys", "contents"))
"""Kinds of guards of which an object has one."""


def _nothing_is_made(owner: object) -> bool:
    return False


class Reads:
    """The reads of one trace."""

    def __init__(self, is_made: Callable[[object], bool] = _nothing_is_made) -> None:
        self.is_made = is_made
        """True if the trace has created an object, whose contents are then the same in every trace."""
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.reasons: dict[str, Reason] = {}
        self.arrays: dict[int, Any] = {}
        """NumPy arrays that are older than the trace, by id."""
        self.new: set[int] = set()
        """The ids of iterators that the trace has created. They are not kept alive, and no older object can have these
        ids.
        """
        self.owners: dict[int, Object] = {}
        """`Object` descriptions of the owners of reads, by id."""
        self.kept: list[object] = []
        """Alive until the trace ends, so that ids stay unique."""
        self.whole: set[tuple[int, bool, bool]] = set()
        """Objects of which everything is noted: with the elements of arrays, into functions."""
        self.states: list[tuple[Any, dict[str, Any], dict[str, Any]]] = []
        """Objects that unconverted code may change: (object, its attributes, their values before the call)."""
        self.writes: list[tuple[Object, str, Any]] = []
        """(object, attribute, value) that every call writes, as the trace did."""

    def release(self) -> None:
        """Drop references to the user's objects, once the guards are made or turn out not to be needed."""
        self.kept.clear()
        self.owners.clear()
        self.arrays.clear()
        self.states.clear()
        self.guards.clear()
        self.is_made = _nothing_is_made  # it knows the trace, which holds all that it met

    # ---- what converted code reads ----

    def given(self, value: Any) -> None:
        """A static argument: an array in it is older than the trace."""
        self._expected(value)

    def function(self, function: FunctionType, names: tuple[str, ...]) -> None:
        """A function that is converted and called: its code, defaults and closure, and the global names that it
        mentions.
        """
        if ("code", id(function)) in self.guards:
            return
        owner = self._owner(function)
        self._add("code", owner, None, self._expected(function.__code__))
        self._add("attribute", owner, "__defaults__", self._expected(function.__defaults__))
        self._add("attribute", owner, "__kwdefaults__", self._expected(function.__kwdefaults__))
        for index, cell in enumerate(function.__closure__ or ()):
            try:
                found = cell.cell_contents
            except ValueError:  # not bound yet
                self._add("unbound cell", owner, index, None)
                continue
            self._add("cell", owner, index, self._expected(found))
        for name in names:
            self.name(function.__globals__, name)

    def name(self, namespace: dict[str, Any], name: str) -> None:
        """A global or builtin name, bound or not."""
        key = ("name", id(namespace), name)
        if key in self.guards:
            return
        owner = Object(lambda: namespace, id(namespace))
        if name in namespace:
            self._add("name", owner, name, self._expected(namespace[name]))
            return
        self._add("no name", owner, name, None)
        builtin = Object(lambda: builtins.__dict__, id(builtins.__dict__))
        if name in builtins.__dict__:
            self._add("name", builtin, name, self._expected(builtins.__dict__[name]))
        else:
            self._add("no name", builtin, name, None)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name` was `value`; reading it again runs no code of the user's."""
        if ("attribute", id(owner), name) not in self.guards:
            self._add("attribute", self._owner(owner), name, self._expected(value))

    def method(self, owner: Any, name: str, function: Any) -> None:
        """`owner.name` is a bound method of `function`."""
        if ("method", id(owner), name) not in self.guards:
            self._add("method", self._owner(owner), name, self._expected(function))

    def no_slot(self, owner: Any, name: str) -> None:
        """`owner` has nothing in the place that its class has for this name."""
        self._add("no slot", self._owner(owner), name, None)

    def no_attribute(self, owner: Any, name: str) -> None:
        """`owner` has no attribute of this name in its own `__dict__`."""
        if ("no attribute", id(owner), name) not in self.guards:
            self._add("no attribute", self._owner(owner), name, None)

    def of_class(self, cls: type, name: str, value: Any) -> None:
        """The class attribute `name` is `value`, as found in the `__dict__` of a base; MISSING if no base has it."""
        if ("of class", id(cls), name) not in self.guards:
            self._add("of class", self._owner(cls), name, None if value is MISSING else self._expected(value))

    def own(self, cls: type, name: str) -> None:
        """The attribute `name` in the class's own `__dict__`, or its absence."""
        found = cls.__dict__.get(name, MISSING)
        self._add("own", self._owner(cls), name, None if found is MISSING else self._expected(found))

    def type_of(self, owner: Any) -> None:
        """The class of an object."""
        if ("type", id(owner)) not in self.guards:
            self._add("type", self._owner(owner), None, self._expected(type(owner)))

    def bases(self, cls: type) -> None:
        """The bases in which attributes of `cls` are looked up."""
        if not is_library(cls.__module__):
            self.attribute(cls, "__mro__", cls.__mro__)

    def is_instance(self, cls: type, wanted: Any) -> None:
        """Code tests whether objects of `cls` are instances of `wanted`: a class, a union, or a tuple of these."""
        self.bases(cls)
        for each in wanted if isinstance(wanted, tuple) else getattr(wanted, "__args__", (wanted,)):
            if isinstance(each, tuple | UnionType):
                self.is_instance(cls, each)
            elif isinstance(each, abc.ABCMeta):
                self.ambient("which classes are registered with abstract ones", abc.get_cache_token)
            if not is_library(type(each).__module__):
                self.methods(each)

    def array_fact(self, array: Any, name: str, value: Any) -> None:
        """The shape or dtype of an older array."""
        if id(array) in self.arrays:
            self.attribute(array, name, value)

    def array_type(self, array: Any) -> None:
        """The shape and dtype of an older array, both of which can be assigned in place."""
        if id(array) in self.arrays:
            self._add("array type", self._owner(array), (array.shape, array.dtype), None)

    def flags(self, array: Any) -> None:
        """The flags of an older array: its layout, and whether it can be written."""
        if id(array) in self.arrays:
            self._add("flags", self._owner(array), None, Same(array.flags.num))

    def base(self, array: Any) -> None:
        """The array whose memory another one shows is as old as that one."""
        if self.older(array) is not None:
            self._met(array.base)

    def ambient(self, what: str, read: Callable[[], Any]) -> None:
        """A global setting of Python or NumPy, returned by `read`."""
        self._add("ambient", held(read), what, Same(read()))

    def printed(self, value: Any) -> None:
        """A value was formatted while staging; for NumPy arrays that depends on NumPy's print options."""
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        if any(isinstance(part, np.ndarray) for part in parts):
            self.ambient("how NumPy prints", _print_options)

    # ---- what other code reads ----

    def contents(self, array: Any) -> None:
        """The elements of an older array are read while staging."""
        older = self.older(array)
        if older is None or ("elements", id(older)) in self.guards:
            return
        array = older  # a view that the trace has made is gone at the next call
        if array.nbytes > _MOST_BYTES or array.dtype.hasobject:
            self.reason(f"an array of {array.nbytes:,} bytes is read while staging")
            return
        self._add("elements", self._owner(array), (array.dtype.str, array.shape, array.tobytes()), None)

    def older(self, array: Any) -> Any:
        """The older array whose memory `array` shows: itself or a base; None for memory that the trace created."""
        each = whole = array
        while isinstance(each, np.ndarray):
            if id(each) in self.arrays:
                return each
            whole, each = each, each.base
        # A view of a view is one of the whole to NumPy.
        is_shared = whole is not array and any(other.base is whole for other in self.arrays.values())
        return whole if is_shared else None

    def consumed(self, value: Any, what: str = "") -> None:
        """Something that plain Python computes with: of an array its elements count, of an object all that it holds."""
        if type(value) is np.ndarray:
            self.contents(value)
        elif type(value) not in PLAIN and not isinstance(value, Array):
            self.all_of(value, what)

    def modules(self, root: Any) -> None:
        """The Variables and modules below a module, by name, as `parameters()` finds them."""
        waiting = [root]
        while waiting:
            module = waiting.pop()
            if ("keys", id(module)) in self.guards or self.is_made(module):
                continue
            contents = module.__dict__
            self._add("keys", self._owner(module), None, self._expected(tuple(contents)))
            for name, value in contents.items():
                by_reference = hasattr(type(value), "__staged_by_reference__")  # a generator
                if isinstance(value, _MAY_HOLD_PARAMETERS) or by_reference or hasattr(type(value), "named_parameters"):
                    self.attribute(module, name, value)
                    if hasattr(type(value), "named_parameters"):
                        waiting.append(value)

    def all_of(self, value: Any, what: str = "", arrays: bool = True, functions: bool = True) -> None:
        """Everything that can be reached from `value`: code that is not converted may have read any of it.

        Not the elements of arrays, where it lifts them, and not into functions, where it calls them converted.
        """
        waiting, seen = [value], 0
        while waiting:
            each = waiting.pop()
            cls = type(each)
            if cls in PLAIN:
                continue
            key = (id(each), arrays, functions)
            if key in self.whole or id(each) in self.new or is_plain(each):
                continue
            self.whole.add(key)
            self.kept.append(each)
            seen += 1
            if seen > MOST_OBJECTS:
                self.reason(f"{what or 'code that is not converted'} is given more than {MOST_OBJECTS:,} objects")
                return
            if cls is dict:
                waiting += each.values()
            elif cls is list or cls is tuple:
                waiting += each
            elif isinstance(each, CONTAINERS):
                waiting += self._contents(each)
            elif isinstance(each, decimal.Decimal):
                self.ambient("the context of decimal numbers", _decimal_context)
            elif (known := references(each)) is not None:
                waiting += known
            elif isinstance(each, np.ndarray):
                if arrays:
                    self.contents(each)
                if cls is not np.ndarray:
                    waiting += self._parts(each)  # a mask
            elif hasattr(cls, "__staged_by_reference__") or hasattr(cls, "__staged_of_trace__"):
                continue
            elif isinstance(each, FunctionType):
                if functions:
                    self._mentioned(each)
            elif isinstance(each, type):
                self.methods(each)
            elif dict_of(each) is not None or hasattr(cls, "__slots__"):
                waiting += self._parts(each)
            else:
                self.reason(f"{what or 'code that is not converted'} is given a {cls.__module__}.{cls.__qualname__}")

    def _contents(self, container: Any) -> Iterator[Any]:
        """The elements of a container; for a user's subclass also everything that its methods may read."""
        base = next(cls for cls in CONTAINERS if isinstance(container, cls))
        elements = tuple(dict.values(container)) if base is dict else tuple(base.__iter__(container))
        yield from elements
        if is_known(container):
            return  # looked at as it was reached
        if self.is_made(container):
            yield from self._parts(container)
            return
        held_there = tuple(dict.items(container)) if base is dict else elements
        self._add("contents", self._owner(container), base, self._expected(held_there))
        yield from self._parts(container)

    def _parts(self, owner: Any) -> Iterator[Any]:
        """The attributes of an object, noted; methods of a class of the user's may run, too."""
        held_there = dict_of(owner)
        if self.is_made(owner):
            yield from (held_there or {}).values()
        else:
            self.type_of(owner)
            self.bases(type(owner))
            if held_there is not None:
                self.states.append((owner, held_there, dict(held_there)))
                self._add("keys", self._owner(owner), None, self._expected(tuple(held_there)))
                for name, value in held_there.items():
                    self.attribute(owner, name, value)
                    yield value
        for cls in type(owner).__mro__:
            for name in slots_of(cls):
                value = getattr(owner, name, MISSING)
                if value is not MISSING:
                    if not self.is_made(owner):
                        self.attribute(owner, name, value)
                    yield value
            if not is_library(cls.__module__):
                yield from self._methods(cls)

    def _methods(self, cls: type) -> Iterator[Any]:
        """The contents of a user's class, since operators and other methods may call and read them."""
        self._add("keys", self._owner(cls), None, self._expected(tuple(cls.__dict__)))
        for name, value in list(vars(cls).items()):
            if name in OF_PYTHON or isinstance(value, MemberDescriptorType | GetSetDescriptorType):
                continue
            self.own(cls, name)
            if isinstance(value, property):
                yield from (each for each in (value.fget, value.fset, value.fdel) if each is not None)
            else:
                yield value.__func__ if isinstance(value, staticmethod | classmethod | MethodType) else value

    def _mentioned(self, function: FunctionType) -> None:
        """All that a function mentions that runs unconverted (if it is the user's), and its defaults and closure."""
        if getattr(function, "__staged_converted__", False):
            return
        if is_library(str(function.__globals__.get("__name__", ""))):
            names: tuple[str, ...] = ()
            if function.__closure__ is None:
                return  # else it may be a wrapper of one of the user's
        else:
            names = globals_in(function.__code__)
        self.function(function, names)
        for name in names:
            if name in function.__globals__:
                self._used(function, function.__globals__[name])
        for cell in function.__closure__ or ():
            try:
                self._used(function, cell.cell_contents)
            except ValueError:
                continue
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._used(function, value)
        self._add("keys", self._owner(function), None, self._expected(tuple(function.__dict__)))
        for name, value in function.__dict__.items():
            self.attribute(function, name, value)
            self._used(function, value)

    def _used(self, function: FunctionType, value: Any) -> None:
        """The parts of `value` that an unconverted function mentions."""
        if isinstance(value, ModuleType):
            for name in names_in(function.__code__):
                if name in value.__dict__:
                    self.attribute(value, name, value.__dict__[name])
                    if not isinstance(value.__dict__[name], ModuleType):
                        self._used(function, value.__dict__[name])
        else:
            self.all_of(value)

    def methods(self, cls: type) -> None:
        """All that a class of the user's and its bases have: making or using an object may call or read it."""
        self.bases(cls)
        metaclass: type = type(cls)
        for base in (*cls.__mro__, *metaclass.__mro__):
            if not is_library(base.__module__) and ("keys", id(base)) not in self.guards:
                for value in self._methods(base):
                    self.all_of(value)

    def writes_again(self, owner: Any, name: str, value: Any, wanted: Expected) -> None:
        """Each call of the program sets an attribute to a value that is the same in every trace."""
        if isinstance(wanted, Items | Entries | Members) and not isinstance(value, tuple | frozenset):
            self.reason(
                f"the attribute `{name}` of {article(type(owner).__name__)} is a new {type(value).__name__} in every "
                "trace"
            )
            return
        read = self.guards.get(("attribute", id(owner), name))
        if read is not None and read.value != wanted:
            self.reason(f"the attribute `{name}` of {article(type(owner).__name__)} is read and changed while staging")
        self.writes.append((self._owner(owner), name, value))

    def reason(self, text: str) -> None:
        """The function must be traced at every call."""
        if text not in self.reasons:
            self.reasons[text] = Reason(text, here())

    # ---- the parts ----

    def _owner(self, owner: Any) -> Object:
        known = self.owners.get(id(owner))
        if known is None:
            self.kept.append(owner)
            known = self.owners[id(owner)] = held(owner)
        return known

    def _expected(self, value: Any) -> Expected | None:
        self.kept.append(value)
        try:
            return expected(value, self._met)
        except TooLargeError:
            self.reason(f"{article(type(value).__name__)} of {len(value):,} elements is read while staging")
            return None

    def _met(self, value: Any) -> None:
        self.kept.append(value)
        if isinstance(value, np.ndarray):
            self.arrays[id(value)] = value

    def _add(self, kind: GuardKind, owner: Object, key: Any, value: Expected | None) -> None:
        name = (kind, owner.identity) if kind in _ONE_OF_EACH else (kind, owner.identity, key)
        # What the trace has made itself, such as a class, is gone at the next call, which makes it alike.
        if name not in self.guards and not self.is_made(owner.reference()):
            self.guards[name] = Guard(kind, owner, key, value)


def _decimal_context() -> tuple[Any, ...]:
    context = decimal.getcontext()
    return context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp


def _print_options() -> tuple[Any, ...]:
    return tuple(np.get_printoptions().items())
