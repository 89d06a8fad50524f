"""`LBFGS`: several iterations a step, with a line search in the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import staged as st
from staged.eager_mode.context import is_plain
from staged.errors import article
from staged.nn.state import elements, shape_of
from staged.optim.groups import Params
from staged.optim.optimizer import Optimizer
from staged.optimize.lbfgs import Memory, Point, descend

_VECTORS = {"d": "direction", "prev_flat_grad": "before", "t": "length", "H_diag": "scale"}
_ROWS = {"old_stps": "moves", "old_dirs": "changes", "ro": "weights"}
_COUNTS = {"n_iter": "iterations", "func_evals": "evaluations"}
"""The attributes that keep the descent, by torch's names of them in a `state_dict`."""


class LBFGS(Optimizer):
    """L-BFGS over all parameters at once: `step(closure)` makes up to `max_iter` iterations.

    `closure()` returns the loss; it reads the parameters, and runs as often as `max_eval` allows (`max_iter * 5 / 4`).
    Its gradient is the project's own: closures that call `backward` are torch's. `line_search_fn` is None, for steps of
    `lr`, or "strong_wolfe". A step returns the loss that it began with. Source: Liu and Nocedal, 1989; options, names
    and rules are torch's.
    """

    options = ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size", "line_search_fn")
    shared_options = options

    def __init__(
        self,
        params: Params,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        super().__init__(params, lr)
        if len(self.groups) > 1:
            raise st.ArgumentError("LBFGS: all parameters are in one group", where=st.here())
        dtypes = {param.dtype for param in self.params}
        if len(dtypes) > 1:
            raise st.DTypeError(
                f"LBFGS: the parameters have one dtype, got {', '.join(sorted(map(str, dtypes)))}", where=st.here()
            )
        if line_search_fn not in (None, "strong_wolfe"):
            raise st.ArgumentError(
                f'LBFGS: line_search_fn is None or "strong_wolfe", got {line_search_fn!r}', where=st.here()
            )
        self.max_iter = max_iter
        self.max_eval = max_iter * 5 // 4 if max_eval is None else max_eval
        self.tolerance_grad, self.tolerance_change = tolerance_grad, tolerance_change
        self.history_size, self.line_search_fn = history_size, line_search_fn
        (dtype,) = dtypes
        size = sum(int(np.prod(param.shape)) for param in self.params)
        shapes = {
            "direction": (size,), "length": (), "before": (size,), "moves": (history_size, size),
            "changes": (history_size, size), "weights": (history_size,), "scale": (),
        }  # fmt: skip
        for name, shape in shapes.items():
            setattr(self, name, st.Variable(st.zeros(shape, dtype=dtype), name=f"lbfgs_{name}"))
        self.scale.value = st.ones((), dtype=dtype)
        for name in ("count", "iterations", "evaluations"):
            setattr(self, name, st.Variable(st.zeros((), dtype=st.i64), name=f"lbfgs_{name}"))

    def step(self, closure: Callable[[], Any]) -> Any:
        """Up to `max_iter` iterations; returns the loss before them."""
        if not callable(closure):
            raise st.ArgumentError(
                f"LBFGS: step takes a function that returns the loss, got {article(type(closure).__name__)}",
                where=st.here(),
                hint="`optimizer.step(lambda: loss(model, x, y))`",
            )
        return _step(self, closure)

    def state_dict(self) -> dict[str, Any]:
        """The state in torch's layout, all of it kept for the first parameter; in plain Python."""
        if not is_plain():
            raise st.StagingError(
                "LBFGS: how many changes it keeps is known when the program runs, a state_dict lists them",
                where=st.here(),
                hint="take it in Python, after the call",
            )
        options = {option: getattr(self, option) for option in self.options}
        group = {**options, "params": list(range(len(self.params)))}
        if not int(self.iterations.numpy()):
            return {"state": {}, "param_groups": [group]}
        count, room = int(self.count.numpy()), self.history_size
        order = [row % room for row in range(max(0, count - room), count)]
        entry: dict[str, Any] = {name: int(getattr(self, kept).numpy()) for name, kept in _COUNTS.items()}
        entry |= {name: getattr(self, kept).saved() for name, kept in _VECTORS.items()}
        for name, kept in _ROWS.items():
            rows = getattr(self, kept).saved()
            entry[name] = [rows[row] for row in order]
        return {"state": {0: entry}, "param_groups": [group]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from the state of another one, ours or torch's: all of it is set, or nothing.

        Raises: StateDictError if it is of another kind of optimiser, of other parameters, or keeps more changes than
        `history_size`; ShapeError and DTypeError where an array does not fit.
        """
        (group,), state = self._checked(state_dict)
        if not set(state) <= {0}:
            self._refuse("keeps its state for the first parameter")
        entry = dict(state.get(0, {}))
        wanted = {*_VECTORS, *_ROWS, *_COUNTS}
        if entry and not wanted <= entry.keys():
            self._refuse(f"keeps {sorted(wanted)}, the state_dict has {sorted(entry)}")
        lists = {name: list(entry.get(name, ())) for name in _ROWS}
        (count,) = {len(rows) for rows in lists.values()} if len({*map(len, lists.values())}) == 1 else (-1,)
        history = int(group.get("history_size", self.history_size))
        if not 0 <= count <= self.history_size or history != self.history_size:
            self._refuse(f"was made with history_size = {self.history_size}, the state_dict has another")
        writes = []
        for name, kept in _VECTORS.items():
            variable = getattr(self, kept)
            start = 1.0 if name == "H_diag" else 0.0
            given = entry.get(name, np.full(variable.shape, start))
            writes.append((variable, self._fitting(name, np.asarray(given).reshape(variable.shape), variable)))
        for name, kept in _ROWS.items():
            variable = getattr(self, kept)
            rows = np.zeros(variable.shape)
            for row, given in enumerate(lists[name]):
                label = f"{name}[{row}]"
                array = elements(label, given, variable.dtype)
                if shape_of(array) != variable.shape[1:]:
                    raise st.ShapeError(
                        f"`{label}` has shape {shape_of(array)}, {variable.shape[1:]} is wanted", where=st.here()
                    )
                rows[row] = np.asarray(array)
            writes.append((variable, self._fitting(name, rows, variable)))
        for name, kept in _COUNTS.items():
            writes.append((getattr(self, kept), st.asarray(int(entry.get(name, 0)), dtype=st.i64)))
        writes.append((self.count, st.asarray(count, dtype=st.i64)))
        for variable, value in writes:
            variable.value = value
        for option in self.options:
            if option in group:
                setattr(self, option, group[option])

    def flat(self, arrays: Any) -> Any:
        """Arrays like the parameters as one of one axis."""
        return st.concat([st.reshape(array, (-1,)) for array in arrays])

    def write(self, flat: Any) -> None:
        """Set the parameters."""
        begin = 0
        for param in self.params:
            size = int(np.prod(param.shape))
            param.value = st.reshape(flat[begin : begin + size], param.shape)
            begin += size


@st.function  # so that plain Python runs a program, too
def _step(self: LBFGS, closure: Any) -> Any:
    here = st.value_and_grad(closure, wrt=self.params)

    def evaluate(flat: Any) -> tuple[Any, Any]:
        self.write(flat)
        value, slopes = here()
        return value, self.flat(slopes)

    value, slopes = here()
    start = Point(
        self.flat([param.value for param in self.params]),
        value,
        self.flat(slopes),
        self.direction.value,
        self.length.value,
        self.before.value,
        Memory(self.moves.value, self.changes.value, self.weights.value, self.scale.value, self.count.value),
        self.iterations.value,
        self.evaluations.value + 1,
    )
    end = descend(
        evaluate,
        start,
        self.lr,
        self.max_iter,
        self.max_eval - 1,
        self.tolerance_grad,
        self.tolerance_change,
        self.line_search_fn is not None,
    )
    self.write(end.x)
    self.direction.value, self.length.value, self.before.value = end.direction, end.step, end.before
    memory = end.memory
    self.moves.value, self.changes.value, self.weights.value = memory.steps, memory.changes, memory.weights
    self.scale.value, self.count.value = memory.scale, memory.count
    self.iterations.value, self.evaluations.value = end.iterations, end.evaluations
    return value
