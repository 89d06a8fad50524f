"""The parameters that an optimiser is given: Variables, with names or without, in groups or as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import staged as st
from staged.errors import article

Params = Iterable[Any] | Mapping[str, Any]


def grouped(owner: str, params: Params) -> tuple[list[str], list[Any], list[dict[str, Any]]]:
    """(names, parameters, groups) of all groups; without groups, one group of all."""
    given = params if isinstance(params, Mapping) else list(params)
    if isinstance(given, Mapping) or not given or not all(isinstance(group, Mapping) for group in given):
        names, values = _named(owner, given, getattr(params, "names", ()))
        return names, values, [{"params": values}]
    names, values, groups = [], [], []
    for group in given:
        if "params" not in group:
            raise st.ArgumentError(
                f"{owner}: a group of parameters has no `params`, got {sorted(map(str, group))}",
                where=st.here(),
                hint='`{"params": model.parameters(), "lr": 0.1}` is a group',
            )
        inside = [group["params"]] if isinstance(group["params"], st.Variable) else group["params"]
        found, variables = _named(owner, inside, getattr(inside, "names", ()))
        names, values = [*names, *found], [*values, *variables]
        groups.append({**group, "params": variables})
    _named(owner, values)  # none is in two groups
    return names if len(names) == len(values) else [], values, groups


def _named(owner: str, params: Params, known: Iterable[str] = ()) -> tuple[list[str], list[Any]]:
    """(names, parameters) from a dict, from pairs, or from `model.parameters()`; names are empty if none are known."""
    if isinstance(params, Mapping):
        names, values = list(params), list(params.values())
    else:
        values = list(params)
        names = list(known)
        if values and all(isinstance(value, tuple) and len(value) == 2 for value in values):
            names, values = [name for name, _ in values], [value for _, value in values]
    if not values:
        raise st.ArgumentError(f"{owner}: the optimiser got no parameters", where=st.here())
    seen: set[int] = set()
    for value in values:
        if isinstance(value, Mapping):
            raise st.ArgumentError(
                f"{owner}: some of the parameters are in a group, others are not",
                where=st.here(),
                hint='put them into one, too: `{"params": [...]}`',
            )
        if not isinstance(value, st.Variable):
            raise st.DTypeError(f"{owner} trains Variables, got {article(type(value).__name__)}", where=st.here())
        if not value.dtype.is_float:
            raise st.DTypeError(
                f"{owner} trains floats, the Variable `{value.name}` holds {value.dtype}", where=st.here()
            )
        if id(value) in seen:
            raise st.ArgumentError(
                f"{owner}: the Variable `{value.name}` is there twice, and would be updated twice a step",
                where=st.here(),
                hint="name each Variable once; `model.parameters()` has a shared one once",
            )
        seen.add(id(value))
    return names, values
