"""`Optimizer`, the base of all: state for each parameter, matching of gradients to parameters, saving and loading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import staged as st
from staged.base.other_names import OF_OPTIMIZERS, answer_from, no_attribute
from staged.call.api import plain_number
from staged.call.parts import begin_part, end_part
from staged.eager_mode.context import is_plain
from staged.errors import article
from staged.nn.state import elements, shape_of
from staged.optim.groups import Params, grouped
from staged.optim.pieces import Widened, computed_in, give_pieces, take_pieces
from staged.saving.pieces import Piece, Split, split_of_job

Slots = tuple[tuple[str, str], ...]
_WAYS = ("foreach", "fused", "capturable", "differentiable")
"""torch's options that say how it computes: all are accepted, and change nothing, since a program is one anyway."""


class Optimizer:
    """Base: the parameters, the learning rate, and the loop over both.

    Updates of f16 and bf16 parameters are computed in f32 and rounded once; their state is f32.

    All numbers (`lr`, `weight_decay`, ...) are read at every step: setting one changes the steps that follow. Each may
    be a Python number, or a staged scalar or Variable. Instead of parameters, `params` may hold groups, `{"params":
    ..., "lr": ...}`, whose own options take precedence; `groups` has them, to read and to set.
    """

    options: tuple[str, ...] = ("lr",)
    """Names of the numeric and boolean options: attributes, and entries of each group of a `state_dict`."""
    shared_options: tuple[str, ...] = ()
    """Those of them that no group may have for itself: what is kept for all parameters follows from them."""
    slots: Slots = ()
    """The state of each parameter: (torch's name in a `state_dict`, attribute holding a list of Variables)."""
    shared: tuple[str, ...] = ()
    """Attributes holding a scalar Variable of all parameters, named as in a `state_dict`."""
    kept_for: Mapping[str, str] = {}
    """Options that need a slot, by the slot's attribute: a `state_dict` that has one on, which is off here, is
    refused."""
    maximize: bool = False
    """True if the steps go up."""
    weight_decay: Any = 0.0
    steps: Any = None
    split: Split | None = None
    """With `shard=True`, the division of the state among ranks; None for one rank."""
    is_elementwise: bool = True
    """False if the update of an element depends on other elements, so that no rank can update a piece alone."""

    def __init__(
        self,
        params: Params,
        lr: Any,
        maximize: bool = False,
        ways: Mapping[str, Any] | None = None,
    ) -> None:
        for way in ways or ():
            if way not in (*_WAYS, "shard"):
                raise TypeError(f"{type(self).__name__}() got an unexpected keyword argument {way!r}")
        self.names, self.params, self.groups = grouped(type(self).__name__, params)
        self.maximize = maximize
        if ways and ways.get("shard"):
            self.split = self._split()
        self.check_number("lr", lr)
        self.lr = lr
        self.cast: Mapping[str, Mapping[str, Any]] = {}
        """The numbers of the group that is updated, by name of its updates' dtype, then by their own name."""
        for group in self.groups:
            for name, value in self.own_numbers(group).items():
                self.check_option(name, value)

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(f"{type(self).__name__!r} object has", name, answer_from((OF_OPTIMIZERS,), name))

    def __repr__(self) -> str:
        """Return the options of each group, as torch prints them."""
        lines = [f"{type(self).__name__} ("]
        for number, group in enumerate(self.groups):
            options = {name: getattr(self, name) for name in self.options} | self.own_numbers(group)
            lines += [f"Parameter Group {number}", *(f"    {name}: {options[name]}" for name in sorted(options))]
        return "\n".join([*lines, ")"])

    # ---- what it is made with ----

    def _split(self) -> Split | None:
        if not self.is_elementwise:
            raise st.ArgumentError(
                f"{type(self).__name__} updates whole arrays, and `shard=True` divides arrays among ranks",
                where=st.here(),
                hint="use an optimiser that updates each element alone, such as `optim.AdamW`",
            )
        return split_of_job()

    def check_number(self, name: str, value: Any, below: float | None = None) -> None:
        """Raises: ArgumentError if a Python number is negative, or not below `below`."""
        if isinstance(value, st.Array):
            return
        if not value >= 0.0 or (below is not None and not value < below):
            wanted = "at least 0" if below is None else f"at least 0 and below {below}"
            raise st.ArgumentError(f"{type(self).__name__}: {name} is {wanted}, got {value}", where=st.here())

    def check_option(self, name: str, value: Any) -> None:
        """Raises: ArgumentError if a number is negative, or one of `betas` not from 0 to below 1."""
        if not isinstance(value, list | tuple):
            self.check_number(name, value)
            return
        for place, number in enumerate(value):
            self.check_number(f"{name}[{place}]", number, below=1.0 if name == "betas" else None)

    def take(self, **options: Any) -> None:
        """Hold options as attributes. Raises: ArgumentError if one cannot be."""
        for name, value in options.items():
            self.check_option(name, value)
            setattr(self, name, value)

    def own_numbers(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """The options that `group` sets for itself. Raises: ArgumentError for an option that a group cannot set."""
        own = {name: value for name, value in group.items() if name not in ("params", "initial_lr")}
        allowed = [name for name in self.options if name not in self.shared_options]
        wrong = [name for name in own if name not in allowed]
        if wrong:
            raise st.ArgumentError(
                f"{type(self).__name__}: a group of parameters has {', '.join(allowed)} for itself, got "
                f"{', '.join(map(repr, wrong))}",
                where=st.here(),
                hint="make an optimiser for each group",
            )
        return own

    @contextmanager
    def having(self, own: Mapping[str, Any]) -> Iterator[None]:
        """Inside the `with`, the options have a group's own values."""
        others = {name: getattr(self, name) for name in own}
        vars(self).update(own)
        try:
            yield
        finally:
            vars(self).update(others)

    def state(self, name: str, fill: float = 0.0, option: str | None = None) -> list[Any]:
        """One state Variable per parameter, filled with a number and named after the parameter.

        None for those without, if only parameters with an `option` that is on have it.
        """
        on = self.having_on(option)
        return [
            self._variable(param, fill, f"{name}_{param.name or index}") if has else None
            for index, (param, has) in enumerate(zip(self.params, on, strict=True))
        ]

    def _variable(self, param: Any, fill: float, name: str) -> Any:
        shape = param.shape if self.split is None else (self.split.size(param.shape),)
        return st.Variable(st.full(shape, fill, dtype=computed_in(param)), name=name, local=self.split is not None)

    def having_on(self, option: str | None) -> list[bool]:
        """Whether an option is on, for each parameter. None is on for all."""
        return [
            option is None or not is_off(group[option] if option in group else getattr(self, option))
            for group in self.groups
            for _ in group["params"]
        ]

    def counter(self) -> Any:
        """A Variable that counts steps."""
        return st.Variable(st.zeros((), dtype=st.i64), name=f"{type(self).__name__.lower()}_steps")

    def counted(self) -> Any:
        """Count the step; returns the number of steps as f64."""
        steps = self.steps.value + 1
        self.steps.value = steps
        return st.astype(steps, st.f64)

    def with_decay(self, param: Any, grad: Any) -> Any:
        """The gradient with `weight_decay` times the parameter added."""
        (weight_decay,) = self.numbers(param, "weight_decay")
        return grad if is_off(weight_decay) else grad + weight_decay * param.value

    def shrunk(self, param: Any) -> Any:
        """The value of a parameter less `lr * weight_decay` of it."""
        if is_off(self.weight_decay):
            return param.value
        (kept_share,) = self.numbers(param, "kept_share")
        return param.value * kept_share

    def must_have(self, kept: Any, option: str) -> None:
        """Refuse an option that was turned on after construction but needs state kept from the first step on."""
        if kept is None:
            raise st.StagingError(
                f"{type(self).__name__} was made with {option} = 0, and keeps nothing for it",
                where=st.here(),
                hint=f"make it with the {option}: it can change afterwards",
            )

    # ---- a step ----

    def numbers(self, param: Any, *names: str) -> list[Any]:
        """These options, or numbers of `begin_group`, as numbers of the parameter's dtype, so that a rate of another
        dtype does not change the parameter's. They are cast once for all parameters of a group.
        """
        cast = self.cast[param.dtype.name]
        return [cast[name] for name in names]

    def numbers_of_group(self) -> dict[str, Any]:
        """The numbers that all updates of a group use, by name."""
        numbers = {name: getattr(self, name) for name in self.options}
        if not is_off(self.weight_decay):
            kept_share = 1.0 - self.lr * self.weight_decay
            numbers["kept_share"] = kept_share
        return numbers | self.begin_group()

    def gradients(self, grads: Any) -> list[Any]:
        """The gradients in the order of the parameters. `grads` is a list, or a dict by name (from `wrt=model`)."""
        _refuse_pair(grads)
        ordered = list(grads.values()) if isinstance(grads, Mapping) else list(grads)
        if len(ordered) != len(self.params):
            raise st.ArgumentError(
                f"the optimiser has {len(self.params)} parameters, got {len(ordered)} gradients", where=st.here()
            )
        if isinstance(grads, Mapping):
            ordered = self._by_name(grads)
        for param, grad in zip(self.params, ordered, strict=True):
            if param is grad:
                raise st.ArgumentError(
                    f"step takes gradients, got the parameter `{param.name}` itself",
                    where=st.here(),
                    hint="`loss, grads = st.value_and_grad(f, wrt=model)()` gives them",
                )
            if not hasattr(grad, "shape"):
                raise st.ArgumentError(
                    f"the gradient of parameter `{param.name}` is an array, got {article(type(grad).__name__)}",
                    where=st.here(),
                    hint="leave a parameter out of the optimiser that has none",
                )
            if tuple(param.shape) != tuple(grad.shape):
                raise st.ShapeError(
                    f"parameter `{param.name}` has shape {param.shape}, its gradient {grad.shape}", where=st.here()
                )
            if st.dtype_of(grad.dtype) not in (param.dtype, computed_in(param)):
                raise st.DTypeError(
                    f"parameter `{param.name}` is {param.dtype}, its gradient {st.dtype_of(grad.dtype) or grad.dtype}",
                    where=st.here(),
                    hint=f"cast it: `st.astype(grad, st.{param.dtype})`",
                )
        return [grad if isinstance(grad, st.Array) else st.asarray(grad) for grad in ordered]

    def _by_name(self, grads: Mapping[str, Any]) -> list[Any]:
        """Gradients given by name, in the order of the parameters: matched by path, else by the Variables' names, else
        in order.

        Raises: ArgumentError if that would assign a gradient to a parameter and its name is that of another.
        """
        own = [param.name or "" for param in self.params]
        for names in (self.names, own):
            if len(names) == len(grads) and set(names) == set(grads):
                return [grads[name] for name in names]
        for path, name in zip(grads, own, strict=True):
            if not _is_path_of(path, name) and any(_is_path_of(path, other) for other in own):
                raise st.ArgumentError(
                    f"the gradient `{path}` stands where the optimiser has the parameter `{name}`",
                    where=st.here(),
                    hint="give it the parameters by name: `dict(model.named_parameters())`",
                )
        return list(grads.values())

    def step(self, grads: Any) -> None:
        """Update every parameter once."""
        outside = begin_part(phase="update")
        try:
            self._step_all(grads)
        finally:
            end_part(outside)

    def _step_all(self, grads: Any) -> None:
        params, ordered = self.params, self.gradients(grads)
        if self.split is not None:
            self.split.check(f"{type(self).__name__}.step")
            params, ordered = take_pieces(self.split, params, ordered)
        for option, attribute in self.kept_for.items():
            for is_on, kept in zip(self.having_on(option), getattr(self, attribute), strict=True):
                if is_on:
                    self.must_have(kept, option)
        self.begin_step()
        index = 0
        for group in self.groups:
            with self.having(self.own_numbers(group)):
                numbers = self.numbers_of_group()
                dtypes = {dtype.name: dtype for dtype in map(computed_in, group["params"])}
                cast = {
                    each: {name: scalar(numbers[name], dtype) for name in numbers} for each, dtype in dtypes.items()
                }
                with self.having({"cast": cast}):
                    for _ in group["params"]:
                        grad, param = ordered[index], params[index]
                        if param.dtype.is_half:
                            grad, param = st.astype(grad, st.f32), Widened(param)
                        self.update(index, param, -grad if self.maximize else grad)
                        index += 1
        if self.split is not None:
            give_pieces(self.split, params)

    def begin_step(self) -> None:
        """Do the work that is done once per step, before the parameters are updated."""

    def begin_group(self) -> dict[str, Any]:
        """The numbers that are computed once per group, whose options hold, before its parameters are updated."""
        return {}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """Update one parameter; every subclass defines it."""
        raise TypeError(f"{type(self).__name__} has no update()")

    # ---- saving and loading ----

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's layout: `{"state": {0: {...}, 1: {...}}, "param_groups": [{"lr": ..., ...}, ...]}`.


        In plain Python the arrays are NumPy's, as in `Module.state_dict`. With `shard=True`, arrays there are pieces.
        """
        state: dict[int, dict[str, Any]] = {index: {} for index in range(len(self.params))}
        for index, entry in state.items():
            if self.steps is not None:
                entry["step"] = self.steps.saved()
            entry |= {name: getattr(self, name).saved() for name in self.shared}
            entry |= {name: self._saved(index, variable) for name, variable in self._kept(index).items()}
        groups: list[dict[str, Any]] = []
        first = 0
        for group in self.groups:
            with self.having(self.own_numbers(group)):
                numbers = {option: getattr(self, option) for option in self.options}
            saved = {name: _saved(value) for name, value in numbers.items()}
            if "initial_lr" in group:
                saved["initial_lr"] = _saved(group["initial_lr"])
            groups.append({**saved, "params": list(range(first, first + len(group["params"])))})
            first += len(group["params"])
        return {"state": {index: entry for index, entry in state.items() if entry}, "param_groups": groups}

    def _saved(self, index: int, variable: Any) -> Any:
        return variable.saved() if self.split is None else self.split.saved(variable, self.params[index].shape)

    def _kept(self, index: int) -> dict[str, Any]:
        """The Variables that are kept for a parameter, by torch's names."""
        lists = {name: getattr(self, attribute) for name, attribute in self.slots}
        return {name: kept[index] for name, kept in lists.items() if kept and kept[index] is not None}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the state of another optimiser, ours or torch's: all of it is set, or nothing.

        Parameters without a state in it start anew. Raises: StateDictError (a KeyError) if it is of another kind of
        optimiser or of another number of parameters, ShapeError and DTypeError where an array does not fit.
        """
        groups, state = self._checked(state_dict)
        writes: list[tuple[Any, Any]] = []
        counts = []
        scalars: dict[str, list[Any]] = {name: [] for name in self.shared}
        for index in range(len(self.params)):
            entry = {name: value for name, value in dict(state.get(index, {})).items() if value is not None}
            counts.append(entry.pop("step", 1 if entry else 0))
            for name, found in scalars.items():
                found.append(entry.pop(name, self.first(name)))
            known = self._kept(index)
            if entry and entry.keys() != known.keys():
                self._refuse(f"keeps {sorted(known)} for a parameter, the state_dict has {sorted(entry)}")
            for name, variable in known.items():
                whole = variable.shape if self.split is None else self.params[index].shape
                writes.append((variable, self._fitting(name, entry.get(name), variable, whole)))
        if self.steps is not None:
            writes.append((self.steps, self._count(counts)))
        for name, values in scalars.items():
            variable = getattr(self, name)
            writes.append((variable, st.reshape(elements(name, values[0], variable.dtype), ())))
        places: list[tuple[dict[str, Any], str, Any]] = []
        for option in self.options:
            found = [_number(group[option]) for group in groups if option in group]
            alike = len(found) == len(groups) and all(_alike(value, found[0]) for value in found)
            if option in self.shared_options and found and not alike:
                self._refuse(f"has one {option} for all groups, the state_dict has {found}")
            for own, saved in zip(self.groups, groups, strict=True):
                if option in saved:
                    # What all groups have alike is the optimiser's, but where a group has its own.
                    at = own if option in own or not alike else vars(self)
                    value, held = _number(saved[option]), at.get(option)
                    if isinstance(held, st.Variable):
                        writes.append((held, elements(option, value, held.dtype)))
                    elif isinstance(held, tuple) and any(isinstance(each, st.Variable) for each in held):
                        parts = [
                            (each, isinstance(each, st.Variable), part) for each, part in zip(held, value, strict=True)
                        ]
                        writes += [(each, part) for each, is_variable, part in parts if is_variable]
                        kept = [each if is_variable else part for each, is_variable, part in parts]
                        places.append((at, option, tuple(kept)))
                    else:
                        places.append((at, option, value))
        for own, saved in zip(self.groups, groups, strict=True):
            if "initial_lr" in saved:
                places.append((own, "initial_lr", _number(saved["initial_lr"])))
        for variable, value in writes:
            variable.value = value
        for at, option, value in places:
            at[option] = value

    def _checked(self, state_dict: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], Mapping[int, Any]]:
        """The groups and the state of a `state_dict` that is of an optimiser like this one."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= state_dict.keys():
            self._refuse('takes {"state": ..., "param_groups": ...}, as `state_dict()` gives it')
        groups = list(state_dict["param_groups"])
        if len(groups) != len(self.groups):
            self._refuse(f"has {len(self.groups)} group(s) of parameters, the state_dict has {len(groups)}")
        counts = [len(group.get("params", own["params"])) for group, own in zip(groups, self.groups, strict=True)]
        if len(groups) > 1 and counts != (wanted := [len(own["params"]) for own in self.groups]):
            self._refuse(f"has groups of {wanted} parameters, the state_dict of {counts}")
        count = sum(counts)
        state = {int(index): entry for index, entry in state_dict["state"].items()}
        if count != len(self.params) or not set(state) <= set(range(count)):
            self._refuse(f"has {len(self.params)} parameters, the state_dict has {max(count, len(state))}")
        lacking = [option for option, attribute in self.kept_for.items() if _is_empty(getattr(self, attribute))]
        on = [option for option in lacking if any(group.get(option) for group in groups)]
        if on:
            self._refuse(f"makes no steps with {' and '.join(on)}")
        return groups, state

    def _refuse(self, what: str) -> None:
        raise st.StateDictError(f"state_dict does not fit: {type(self).__name__} {what}", where=st.here())

    def _fitting(self, name: str, value: Any, variable: Any, shape: Any = None) -> Any:
        if value is None:
            return st.full(variable.shape, self.first(name), dtype=variable.dtype)
        label, split = f"{name} of {variable.name}", self.split
        shape = variable.shape if shape is None else shape
        is_piece = isinstance(value, Piece) and split is not None and value.ranks == split.ranks
        array = elements(label, value.array if is_piece else value, variable.dtype)
        found = value.shape if is_piece else shape_of(array)
        if found != shape:
            raise st.ShapeError(f"`{label}` has shape {shape}, the state_dict has {found}", where=st.here())
        return array if split is None or is_piece else split.piece(array)

    def first(self, name: str) -> Any:
        """The initial value of a slot."""
        return 0.0

    def _count(self, counts: list[Any]) -> Any:
        """The number of steps, which all parameters share."""
        arrays = [elements("step", count, st.i64) for count in counts]
        if any(not isinstance(array, st.Array) and int(array) != int(arrays[0]) for array in arrays):
            self._refuse(
                f"counts the steps of all parameters at once, the state_dict has {sorted(set(map(int, arrays)))}"
            )
        return st.reshape(arrays[0], ())


def _is_path_of(path: Any, name: str) -> bool:
    """Return whether a gradient's path may name this parameter: they agree from the end on, as `0.weight` and
    `body.linear0.weight`.
    """
    steps = zip(reversed(str(path).split(".")), reversed(name.split(".")), strict=False)
    return all(one == other or (one.isdigit() and other.rstrip("0123456789") + one == other) for one, other in steps)


def scalar(number: Any, dtype: Any) -> Any:
    """`number` as `dtype`; a weak number is returned unchanged, since it adopts the dtype of the array it meets.

    Of a tuple, each number is cast. Text and None are returned unchanged.
    """
    if type(number) in (float, int, bool):
        return number
    if isinstance(number, list | tuple):
        return tuple([scalar(each, dtype) for each in number])
    number = plain_number(number)
    is_weak = number.type.weak if isinstance(number, st.Array) else isinstance(number, int | float | str | None)
    return number if is_weak else st.astype(number, dtype)


def is_off(number: Any) -> bool:
    """Return whether an option is the Python number 0; a staged one is not known."""
    return not isinstance(number, st.Array) and not number


def _is_empty(kept: list[Any]) -> bool:
    """Return whether no parameter has a Variable of this state."""
    return all(variable is None for variable in kept)


def _alike(a: Any, b: Any) -> bool:
    """Return whether two numbers of groups are the same; staged ones where they are one."""
    return a is b or (not isinstance(a, st.Array) and not isinstance(b, st.Array) and a == b)


def _refuse_pair(grads: Any) -> None:
    """Raises: ArgumentError if `grads` is the pair that `clip_grad_norm` returns."""
    if isinstance(grads, tuple) and len(grads) == 2 and isinstance(grads[0], Mapping | list | tuple):
        raise st.ArgumentError(
            "step takes gradients, got a pair of gradients and something else, such as `clip_grad_norm` returns",
            where=st.here(),
            hint="take the pair apart: `grads, norm = optim.clip_grad_norm(grads, max_norm)`",
        )


def _saved(number: Any) -> Any:
    """`number` as saved in a `state_dict`. Raises: LeakError if it belongs to a staged function that has ended."""
    if isinstance(number, st.Variable):
        return number.saved()
    if isinstance(number, list | tuple):
        return tuple(map(_saved, number))
    return np.asarray(number) if isinstance(number, st.Array) and is_plain() else number


def _number(value: Any) -> Any:
    """A Python number for a number of any library; staged ones and other things as they are."""
    if isinstance(value, list | tuple):
        return tuple(map(_number, value))
    return value.item() if hasattr(value, "item") and not isinstance(value, st.Array) else value
