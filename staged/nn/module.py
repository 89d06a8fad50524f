"""`Module`: parameters with names, as in `torch.nn`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np

import staged as st
from staged.base.other_names import OF_MODULES, answer_from, no_attribute
from staged.eager_mode.context import is_plain
from staged.errors import article
from staged.nn.parameters import Parameter
from staged.nn.state import MatchedKeys, load
from staged.random import Generator


class Found(list[Any]):
    """A list of a module's parts that `next` also accepts, since torch's methods return iterators."""

    __staged_node__ = True
    _rest: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._rest is None:
            self._rest = iter(self)
        return next(self._rest)


class Parameters(Found):
    """Parameters, each once, with their paths in `names`, by which an optimiser assigns gradients given by name."""

    def __init__(self, named: Named) -> None:
        super().__init__(variable for _, variable in named)
        self.names = list(named.keys())


class Named(Found):
    """(path, part) pairs in torch's order, usable as a dict too: `["conv1.weight"]`, `.items()`, `dict(...)`."""

    def keys(self) -> list[str]:
        """The paths."""
        return [name for name, _ in self]

    def values(self) -> list[Any]:
        """The parts."""
        return [value for _, value in self]

    def items(self) -> list[tuple[str, Any]]:
        """The (path, part) pairs."""
        return list(self)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        for name, value in self:
            if name == key:
                return value
        raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return any(name == key or pair is key for pair in self for name in pair[:1])


class Module:
    """Base of all layers: a tree of modules and parameters with torch's names.

    Parameters are `staged.Variable`s (or `nn.Parameter`s) held as attributes; submodules are Modules held as
    attributes. State that is saved but not trained (running statistics, masks) is a Variable entered by
    `register_buffer`. A `st.random.Generator` held as an attribute is saved too (`noise.seed`, `noise.counter`).

    A module may be built inside a staged function (its parameters then live in the program) or in plain Python (they
    keep their buffers between calls and are seen from Python). Subclasses write `forward`.
    """

    training: bool = True
    _buffers: tuple[str, ...] = ()
    """The names of the Variables that are not parameters."""
    _unsaved: tuple[str, ...] = ()
    """The names among `_buffers` that a `state_dict` leaves out."""
    _shown: tuple[str, ...] = ()
    """The constructor's arguments that `extra_repr` shows."""
    __staged_layer__: tuple[str, bool] = "", True
    """The name in generated code, which is the path in the outermost module (`block0.linear1`), and whether it holds
    Variables.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        held = {id(variable) for _, variable in self._variables()} if isinstance(value, Module) else set()
        object.__setattr__(self, name, value)
        if isinstance(value, Parameter):
            self._forget_buffer(name)
        if isinstance(value, st.Variable):
            if "." not in value.name:  # a tied weight keeps the path that it has
                value.name = name
        elif isinstance(value, Generator):
            value.rename(name)
        elif isinstance(value, Module):
            value.prefix_names(name, held)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._forget_buffer(name)

    def _forget_buffer(self, name: str) -> None:
        """From now on a Variable of this name is a parameter."""
        for kind in ("_buffers", "_unsaved"):
            names = getattr(self, kind)
            if name in names:
                object.__setattr__(self, kind, tuple(each for each in names if each != name))

    def prefix_names(self, prefix: str, besides: Collection[int] = ()) -> None:
        """Put `prefix` before the names of modules and Variables, which generated code shows, except those of
        Variables with ids in `besides`.
        """
        done = set(besides)
        for place, module in self._places():
            module._refuse_hidden()
            label = module.__staged_layer__[0] or place.removesuffix(".")
            layer = f"{prefix}.{label}" if label else prefix, module._has_variables()
            object.__setattr__(module, "__staged_layer__", layer)
        for path, variable in self._variables():
            if id(variable) not in done:
                variable.name = f"{prefix}.{variable.name or path}"
                done.add(id(variable))

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(f"{type(self).__name__!r} object has", name, answer_from((OF_MODULES,), name))

    def register_buffer(self, name: str, buffer: Any, persistent: bool = True) -> None:
        """Hold an array that is saved with the parameters (unless it is not `persistent`) and not trained.

        It becomes a Variable. None holds the name alone.
        """
        setattr(self, name, buffer if buffer is None or isinstance(buffer, st.Variable) else st.Variable(buffer))
        self._forget_buffer(name)
        object.__setattr__(self, "_buffers", (*self._buffers, name))
        if not persistent:
            object.__setattr__(self, "_unsaved", (*self._unsaved, name))

    def register_parameter(self, name: str, parameter: Any) -> None:
        """Hold a Variable that is trained; None holds the name alone."""
        if parameter is not None and not isinstance(parameter, st.Variable):
            raise TypeError(f"parameter `{name}` is a Variable or an nn.Parameter, got {type(parameter).__name__}")
        setattr(self, name, parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """Hold a submodule by a name, which need not be a Python identifier; None holds the name alone."""
        if not name or "." in name:
            raise st.ArgumentError(f"a module's name has a letter and no dot, got {name!r}", where=st.here())
        if module is not None:
            check_module(self, module)
        setattr(self, name, module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; every subclass defines it."""
        raise TypeError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = _handed(args, kwargs)
        return self.forward(*args, **kwargs)

    def _has_variables(self) -> bool:
        return next(iter(self._variables()), None) is not None

    # ---- the tree ----

    def _submodules(self) -> list[tuple[str, Module]]:
        """(name, submodule) in order of assignment; one held under two names appears twice."""
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, Module)]

    def _places(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Module]]:
        """(path with a dot at its end, module): this one and all below it, in order."""
        yield prefix, self
        for name, child in self._submodules() if recurse else ():
            yield from child._places(f"{prefix}{name}.")

    def _own(self) -> list[tuple[str, Any, bool]]:
        """(name, Variable, is a buffer) of this module alone, in order of assignment."""
        found = []
        for name, value in self.__dict__.items():
            if isinstance(value, st.Variable):
                found.append((name, value, name in self._buffers))
            elif isinstance(value, Generator):
                found += [(f"{name}.seed", value.seed, True), (f"{name}.counter", value.counter, True)]
        return found

    def _variables(self) -> Iterator[tuple[str, Any]]:
        """(path, Variable) of each module: parameters, buffers, then submodules; a shared one once per name."""
        for place, module in self._places():
            for name, variable, _ in sorted(module._own(), key=lambda item: item[2]):
                yield place + name, variable

    def _named(self, buffers: bool, prefix: str, recurse: bool, remove_duplicate: bool) -> Named:
        found, seen = Named(), set()
        for place, module in self._places(prefix and f"{prefix}.", recurse):
            module._refuse_hidden()
            for name, value, is_buffer in module._own():
                if is_buffer != buffers:
                    continue
                if not remove_duplicate or id(value) not in seen:
                    found.append((place + name, value))
                seen.add(id(value))
        return found

    def children(self) -> Found:
        """The submodules, each once, in order of assignment."""
        return Found(self.named_children().values())

    def named_children(self) -> Named:
        """(name, submodule), each once, in order of assignment."""
        return Named(_once(self._submodules()))

    def modules(self) -> Found:
        """This module and all below it, each once."""
        return Found(self.named_modules().values())

    def named_modules(self, prefix: str = "") -> Named:
        """(path, module): this one, whose path is `prefix`, and all below it, each once."""
        places = self._places(prefix and f"{prefix}.")
        return Named(_once([(path.removesuffix("."), module) for path, module in places]))

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """(path, parameter): this module's before those of submodules, in order of assignment.

        A parameter with several names appears once, under the first: it is trained once.
        """
        return self._named(False, prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """(path, Variable) of the buffers: this module's before those of submodules."""
        return self._named(True, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Parameters:
        """Every parameter once, in the order of `named_parameters`."""
        return Parameters(self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Found:
        """Every buffer once, in the order of `named_buffers`."""
        return Found(self.named_buffers(recurse=recurse).values())

    def _refuse_hidden(self) -> None:
        """Raises: TypeError where a list or dict holds a module or Variable that is no attribute: it would not be
        trained.
        """
        seen = {id(value) for value in self.__dict__.values()}
        for name, value in self.__dict__.items():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            for each in held:
                if isinstance(each, Module | st.Variable | Generator) and id(each) not in seen:
                    what = next(word for kind, word in _HIDDEN if isinstance(each, kind))
                    raise TypeError(
                        f"`{type(self).__name__}.{name}` is {article(type(value).__name__)} of {what}: "
                        "put modules into an nn.ModuleList or nn.ModuleDict, Variables and generators into attributes "
                        "of their own"
                    )

    def apply(self, function: Callable[[Module], Any]) -> Module:
        """Call `function` with every module below this one, children first, then with this one; returns it."""
        for child in self.children():
            child.apply(function)
        function(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Set training mode (static: it decides which code is generated)."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Module:
        """Set evaluation mode: dropout does nothing, batch norm uses its running statistics."""
        return self.train(False)

    def half(self) -> Module:
        """Convert float parameters and buffers to f16. Do so before an optimiser gets them: they are new Variables."""
        return self._converted(st.f16)

    def bfloat16(self) -> Module:
        """Convert float parameters and buffers to bf16, as `half` does."""
        return self._converted(st.bf16)

    def float(self) -> Module:
        """Convert float parameters and buffers to f32, as `half` does."""
        return self._converted(st.f32)

    def double(self) -> Module:
        """Convert float parameters and buffers to f64, as `half` does."""
        return self._converted(st.f64)

    def _converted(self, dtype: Any) -> Module:
        made: dict[int, Any] = {}
        for module in self.modules():
            for name, held in list(module.__dict__.items()):
                if isinstance(held, st.Variable) and held.dtype.is_float and held.dtype != dtype:
                    if id(held) not in made:
                        made[id(held)] = type(held)(st.astype(held.value, dtype), name=held.name)
                    object.__setattr__(module, name, made[id(held)])
        return self

    # ---- what it holds ----

    def _saved(self) -> dict[str, Any]:
        """The Variables of a `state_dict` by path; a shared one appears under each of its names."""
        unsaved = {place + name for place, module in self._places() for name in module._unsaved}
        for _, module in self._places():
            module._refuse_hidden()
        return {path: variable for path, variable in self._variables() if path not in unsaved}

    def state_dict(self) -> dict[str, Any]:
        """The present values of parameters and buffers by path, with torch's keys and layouts.

        In plain Python they are NumPy arrays that belong to the caller, ready to be saved; in staged and eager code
        they are arrays of that code.
        """
        return {path: variable.saved() for path, variable in self._saved().items()}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> MatchedKeys:
        """Set every parameter and buffer from `state_dict`: all of them, or none if one does not fit.

        Its values are torch tensors, NumPy arrays or lists of any real dtype, which become the parameter's, or arrays
        of ours. Returns (missing_keys, unexpected_keys), both empty unless `strict` is off. Raises: StateDictError (a
        KeyError) naming all names that are missing or left over, ShapeError naming all shapes that differ, DTypeError
        for what is not an array of real numbers.
        """
        return load(type(self).__name__, self._saved(), state_dict, strict)

    # ---- how it prints ----

    def extra_repr(self) -> str:
        """The text in parentheses when the module is printed; subclasses override it."""
        values = ((name, getattr(self, name)) for name in self._shown)
        return ", ".join(f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in values)

    def _rows(self) -> list[tuple[str, str]]:
        """(label, text) of each line printed below the module's name."""
        return [(f"({name})", repr(child)) for name, child in self._submodules()]

    def __repr__(self) -> str:
        extra = self.extra_repr()
        rows = [_indented(f"{label}: {text}") for label, text in self._rows()]
        if not rows and "\n" not in extra:
            return f"{type(self).__name__}({extra})"
        lines = [*([_indented(extra)] if extra else []), *rows]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


_HIDDEN = (
    (Module, "modules, whose parameters are not found"),
    (st.Variable, "Variables, which are not found"),
    (Generator, "generators, which are not saved"),
)


def check_module(holder: Module, module: Any) -> None:
    """Raises: ArgumentError if `module` is not a Module, since no walk through the tree would find it."""
    if not isinstance(module, Module):
        hint = "write a Module, whose `forward` calls it"
        if isinstance(module, list | tuple):
            hint = "give the modules one by one: `nn.Sequential(*modules)`"
        raise st.ArgumentError(
            f"{type(holder).__name__} holds modules, got {article(type(module).__name__)}", where=st.here(), hint=hint
        )


def _handed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments for `forward`: in plain Python NumPy's arrays become ours, which have a program's methods."""
    if not is_plain():
        return args, kwargs
    return tuple(map(_ours, args)), {name: _ours(argument) for name, argument in kwargs.items()}


def _ours(argument: Any) -> Any:
    is_taken = isinstance(argument, np.ndarray) and st.dtype_of(argument.dtype) is not None
    return st.asarray(argument) if is_taken else argument


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _once(named: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The first pair of each object."""
    first: dict[int, tuple[str, Any]] = {}
    for pair in named:
        first.setdefault(id(pair[1]), pair)
    return list(first.values())
