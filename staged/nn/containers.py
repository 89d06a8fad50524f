"""Containers of modules: a sequence, a list, a dict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

import staged as st
from staged.nn.module import Module, check_module
from staged.nn.parameters import Parameter


class _Numbered(Module):
    """Modules by position; parameters are named `0.weight`, `0.bias`, `2.weight`, ... as in torch."""

    def append(self, module: Module) -> Any:
        """Put a module at the end."""
        check_module(self, module)
        held = {id(variable) for _, variable in self._variables()}
        index = len(self)
        object.__setattr__(self, str(index), module)
        name = type(module).__name__.lower()
        module.prefix_names(f"{name}{index}" if module._has_variables() else name, held)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Put modules at the end."""
        for module in modules:
            self.append(module)
        return self

    def __len__(self) -> int:
        return len(self._submodules())

    def __iter__(self) -> Iterator[Module]:
        return iter([child for _, child in self._submodules()])

    def __getitem__(self, index: Any) -> Any:
        chosen = [child for _, child in self._submodules()][index]
        if not isinstance(index, slice):
            return chosen
        part = type(self).__new__(type(self))  # its modules have their names already
        part.__dict__.update({str(number): child for number, child in enumerate(chosen)}, training=self.training)
        return part


class Sequential(_Numbered):
    """Modules one after the other: `Sequential(first, second)`, or a dict of them by name."""

    def __init__(self, *modules: Any) -> None:
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            self.extend(modules)

    def forward(self, x: Any) -> Any:
        """Apply each module to the result of the one before."""
        for _, child in self._submodules():
            x = child(x)
        return x


class ModuleList(_Numbered):
    """Modules in a list, for use in a `forward` of your own."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self.extend(modules)

    def _rows(self) -> list[tuple[str, str]]:
        """Print neighbours with equal text as one row."""
        rows = []
        for text, group in groupby(super()._rows(), key=lambda row: row[1]):
            labels = [label.strip("()") for label, _ in group]
            count = len(labels)
            rows.append(
                (f"({labels[0]})", text) if count == 1 else (f"({labels[0]}-{labels[-1]})", f"{count} x {text}")
            )
        return rows


class ModuleDict(Module):
    """Modules by name, for use in a `forward` of your own: `self.heads["policy"](x)`, or `self.heads.policy(x)`."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] = ()) -> None:
        self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Enter modules from a dict or from (name, module) pairs."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def keys(self) -> list[str]:
        """The names."""
        return [name for name, _ in self._submodules()]

    def values(self) -> list[Module]:
        """The modules."""
        return [child for _, child in self._submodules()]

    def items(self) -> list[tuple[str, Module]]:
        """(name, module)."""
        return self._submodules()

    def __getitem__(self, name: str) -> Module:
        return dict(self._submodules())[name]

    def __setitem__(self, name: str, module: Module) -> None:
        if hasattr(type(self), name):
            raise st.ArgumentError(f"a ModuleDict has a method `{name}`: give the module another name", where=st.here())
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        delattr(self, self._known(name))

    def _known(self, name: str) -> str:
        if name not in self.keys():
            raise KeyError(name)
        return name

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __len__(self) -> int:
        return len(self._submodules())

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class _Parameters(Module):
    """Base of containers of parameters: what is trained has an attribute, and so a name."""

    def _entered(self, name: str, value: Any) -> None:
        held = value if isinstance(value, st.Variable) else Parameter(value)
        if name not in self.__dict__ and hasattr(type(self), name):
            raise st.ArgumentError(
                f"{type(self).__name__} has a method `{name}`: give the parameter another name", where=st.here()
            )
        setattr(self, name, held)

    def _held(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value, _ in self._own()]

    def _rows(self) -> list[tuple[str, str]]:
        """One row for each parameter, in few words."""
        return [
            (
                f"({name})",
                f"{type(value).__name__} containing: [{value.dtype} of size {'x'.join(map(str, value.shape))}]",
            )
            for name, value in self._held()
        ]

    def __len__(self) -> int:
        return len(self._held())


class ParameterList(_Parameters):
    """Parameters in a list: `self.scales[1]`; they are named `0`, `1`, .. as in torch. Arrays become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        self.extend(values or ())

    def append(self, value: Any) -> Any:
        """Put a parameter at the end."""
        self._entered(str(len(self)), value)
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Put parameters at the end."""
        for value in values:
            self.append(value)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter([value for _, value in self._held()])

    def __getitem__(self, index: Any) -> Any:
        return [value for _, value in self._held()][index]

    def __setitem__(self, index: int, value: Any) -> None:
        self._entered(self._held()[index][0], value)


class ParameterDict(_Parameters):
    """Parameters by name: `self.scales["low"]`, or `self.scales.low`. Arrays become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None) -> None:
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        """Enter parameters from a dict or from (name, parameter) pairs."""
        for name, value in parameters.items() if isinstance(parameters, Mapping) else parameters:
            self[name] = value

    def keys(self) -> list[str]:
        """The names."""
        return [name for name, _ in self._held()]

    def values(self) -> list[Any]:
        """The parameters."""
        return [value for _, value in self._held()]

    def items(self) -> list[tuple[str, Any]]:
        """(name, parameter)."""
        return self._held()

    def __getitem__(self, name: str) -> Any:
        return dict(self._held())[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._entered(name, value)

    def __delitem__(self, name: str) -> None:
        if name not in self.keys():
            raise KeyError(name)
        delattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())


class Identity(Module):
    """Return the input unchanged. Like torch's, the constructor accepts and ignores any arguments."""

    def __init__(self, *unused: Any, **unused_too: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        """Return `x`."""
        return x
