"""`Module`: parameters with names, as in `torch.nn`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

import staged as st


class Module:
    """Base of all layers: a tree of modules and parameters with torch's names.

    Parameters are `staged.Variable`s held as attributes, submodules are Modules held as attributes. What is kept and not
    trained (running statistics) is a Variable too, entered by `register_buffer`. A module may be built inside a staged
    function (its parameters then live in the program) or in plain Python (they keep their buffers between calls and are seen
    from Python). Subclasses write `forward`.
    """

    training: bool = True
    _buffers: tuple[str, ...] = ()
    """The names of the Variables that are no parameters."""

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)
        if isinstance(value, st.Variable):
            value.name = name
        elif isinstance(value, Module):
            value.prefix_names(name)

    def prefix_names(self, prefix: str) -> None:
        """Put `prefix` before the names of Variables, which generated code carries."""
        for path, variable in self._named_variables().items():
            variable.name = f"{prefix}.{variable.name or path}"

    def register_buffer(self, name: str, buffer: Any) -> None:
        """Hold a Variable that is saved with the parameters and not trained; None holds the name alone."""
        object.__setattr__(self, "_buffers", (*self._buffers, name))
        setattr(self, name, buffer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; every subclass has its own."""
        raise TypeError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    # ---- the tree ----

    def children(self) -> list[tuple[str, Module]]:
        """(name, submodule), in order of assignment."""
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, Module)]

    def named_parameters(self) -> dict[str, Any]:
        """Every parameter by its path (`conv1.weight`), own ones before those of submodules, in order of assignment."""
        named = {name: value for name, value in self._own_variables() if name not in self._buffers}
        for name, child in self.children():
            for path, parameter in child.named_parameters().items():
                named[f"{name}.{path}"] = parameter
        return named

    def named_buffers(self) -> dict[str, Any]:
        """Every Variable that is no parameter, by its path: own ones before those of submodules."""
        named = {name: value for name, value in self._own_variables() if name in self._buffers}
        for name, child in self.children():
            for path, buffer in child.named_buffers().items():
                named[f"{name}.{path}"] = buffer
        return named

    def _own_variables(self) -> list[tuple[str, Any]]:
        self._refuse_hidden()
        return [(name, value) for name, value in self.__dict__.items() if isinstance(value, st.Variable)]

    def _refuse_hidden(self) -> None:
        """Raises: TypeError where a list or dict holds a module or Variable that is no attribute: nobody would train it."""
        seen = {id(value) for value in self.__dict__.values()}
        for name, value in self.__dict__.items():
            held = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
            for each in held:
                if isinstance(each, Module | st.Variable) and id(each) not in seen:
                    what = "modules" if isinstance(each, Module) else "Variables"
                    raise TypeError(
                        f"`{type(self).__name__}.{name}` is a {type(value).__name__} of {what}, whose parameters are not found: "
                        "put modules into an nn.ModuleList, Variables into attributes of their own"
                    )

    def _named_variables(self) -> dict[str, Any]:
        """Parameters and buffers by path, in torch's order: a module's own parameters, its buffers, its submodules."""
        own = self._own_variables()
        named = dict(sorted(own, key=lambda item: item[0] in self._buffers))
        for name, child in self.children():
            for path, variable in child._named_variables().items():
                named[f"{name}.{path}"] = variable
        return named

    def parameters(self) -> list[Any]:
        """Every parameter, in the order of `named_parameters`."""
        return list(self.named_parameters().values())

    def state_dict(self) -> dict[str, Any]:
        """The present values of parameters and buffers by path, with torch's keys and layouts."""
        return {name: variable.value for name, variable in self._named_variables().items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Set every parameter and buffer from `state` (arrays by path, as `state_dict` gives them).

        Raises: KeyError where names are missing or left over, ShapeError where a shape differs.
        """
        own = self._named_variables()
        missing = sorted(own.keys() - state.keys())
        extra = sorted(state.keys() - own.keys())
        if missing or extra:
            raise KeyError(f"state_dict does not fit {type(self).__name__}: missing {missing}, not known {extra}")
        for name, parameter in own.items():
            value = state[name]
            shape = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
            if shape != parameter.shape:
                raise st.ShapeError(f"`{name}` has shape {parameter.shape}, the state_dict has {shape}")
            parameter.value = value

    def train(self, mode: bool = True) -> Module:
        """Set training mode (static: it decides which code is generated)."""
        self.training = mode
        for _, child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        """Set evaluation mode: dropout does nothing, batch norm uses its running statistics."""
        return self.train(False)


class Sequential(Module):
    """Modules one after the other; parameters are named `0.weight`, `0.bias`, `2.weight`, ... as in torch."""

    def __init__(self, *modules: Module) -> None:
        for index, module in enumerate(modules):
            object.__setattr__(self, str(index), module)
            module.prefix_names(f"{type(module).__name__.lower()}{index}")

    def __len__(self) -> int:
        return len(self.children())

    def __getitem__(self, index: int) -> Module:
        return [child for _, child in self.children()][index]

    def forward(self, x: Any) -> Any:
        """Apply each module to the result of the one before."""
        for _, child in self.children():
            x = child(x)
        return x


class ModuleList(Module):
    """Modules in a list, to be used by a `forward` of one's own; parameters are named `0.weight`, `1.weight`, ..."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for module in modules:
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Put a module at the end."""
        index = len(self)
        object.__setattr__(self, str(index), module)
        module.prefix_names(f"{type(module).__name__.lower()}{index}")
        return self

    def __len__(self) -> int:
        return len(self.children())

    def __getitem__(self, index: int) -> Module:
        return [child for _, child in self.children()][index]

    def __iter__(self) -> Iterator[Module]:
        return iter([child for _, child in self.children()])


class Identity(Module):
    """Gives what it takes."""

    def forward(self, x: Any) -> Any:
        """Apply it."""
        return x
