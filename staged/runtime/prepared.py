"""The fast path into a program: one Python function per program, with its checks and stores written out.

    def call(x, n, w):
        if type(x) is not ndarray or x.shape != (10,): ...
        slot = idle.pop()
        slot.cells[0][0] = n
        r0 = empty((10,), e0)
        given = (x, r0)
        status = st_bind_and_call(entry, slot.args, slot.arena, slot.host, slot.stop, 0, binding, id(given))

C checks dtype and flags of each array and reads its address (see `layout`); with Variables it does so before the call,
as `if (bound[0]() is not w and not bind(slot, (w,))) or not st_bind(slot.args, binding, slot.sizes, id(given)): ...`.

It serves programs whose arguments are arrays and numbers of the host. Any other call takes the slow
path, `NativeProgram.__call__`, which accepts any array and reports errors. The address of an argument is read in each
call, as the caller may change anything of an array; that of a Variable, which belongs to the library, only if it is not
the Variable of the call before.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, Protocol

import numpy as np

from staged.base.artifact import Artifact, Parameter
from staged.ir.size_functions import renamed
from staged.ir.types import shape_text
from staged.runtime.guard import UNFIT, guard
from staged.runtime.layout import layout
from staged.runtime.results import WORTH_KEEPING

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<prepared call>")
"""The file name in tracebacks: inside this package, so that the frame is not taken for the user's."""
_SPEAKS = ("st_stop_requested(", "st_print(", "st_text_begin(", "st_progress_start(", "st_write(", "st_callback(")
"""Calls in a program's text that can be stopped, print, or go to Python."""


class Plan(Protocol):
    """The description of one parameter; see `arguments.ArgumentPlan`."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def parameter(self) -> Parameter: ...
    @property
    def shape(self) -> tuple[int, ...] | None: ...
    @property
    def index(self) -> int: ...
    @property
    def is_scalar(self) -> bool: ...
    @property
    def is_variable(self) -> bool: ...
    @property
    def is_remote(self) -> bool: ...
    @property
    def needed_flags(self) -> int: ...


class Program(Protocol):
    """The part of a program that the fast path uses; see `native.NativeProgram`."""

    @property
    def binding(self) -> Any: ...
    def is_current(self, slot: Any) -> bool: ...
    def ready(self, slot: Any) -> bool: ...
    def bind_variables(self, slot: Any, arrays: Sequence[Any]) -> bool: ...
    def acquire(self, slot: Any) -> None: ...
    def release(self, slot: Any) -> None: ...
    def stopped(self, slot: Any, status: int) -> None: ...
    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any: ...


def is_simple(given: Sequence[Plan], outputs: Sequence[Plan]) -> bool:
    """Return whether a program has a fast path: its arrays are on the host, in NumPy's layout."""
    return not any(plan.is_remote for plan in (*given, *outputs)) and layout() is not None


def speaks(artifact: Artifact) -> bool:
    """Return whether a program may be stopped or print: each call then sets its thread, stack and `sys.stdout`.

    Recursive functions test on entry whether to stop, and how much stack is left.
    """
    return artifact.recursive or any(word in artifact.source for word in _SPEAKS)


def prepare(
    program: Program,
    given: Sequence[Plan],
    outputs: Sequence[Plan],
    kinds: Sequence[type | None],
    is_told: bool,
    entry: Any,
    idle: list[Any],
    otherwise: Callable[..., Any],
    as_array: Callable[[Any], Any] | None = None,
    is_single: bool = False,
    known: Collection[int] = (),
) -> Callable[..., Any]:
    """Write the fast path; `otherwise` is the slow one, for calls that do not fit or find no idle slot.

    `kinds` are the Python types that numbers must have, one per parameter, None for any number that C takes; empty
    means None for all. `is_told` is the result of `speaks`. `as_array` converts arrays of other libraries to NumPy's,
    and returns other values unchanged. With `is_single` the only result is returned itself, not in a tuple. `known` are
    the parameters whose shapes the caller has compared.
    """
    names: dict[str, Any] = {
        "ndarray": np.ndarray, "empty": np.empty, "fresh": program.fresh, "binding": program.binding, "entry": entry,
        "st_call": guard().st_call, "st_bind": guard().st_bind, "st_bind_and_call": guard().st_bind_and_call,
        "idle": idle, "is_current": program.is_current, "ready": program.ready, "stopped": program.stopped,
        "otherwise": otherwise, "bind": program.bind_variables, "acquire": program.acquire, "release": program.release,
        "as_array": as_array,
    }  # fmt: skip
    everything = ", ".join(f"v{number}" for number in range(len(given)))
    sizes = {plan.parameter.label: f"v{number}" for number, plan in enumerate(given) if plan.parameter.is_size}

    def shape_of(plan: Plan) -> str:
        """The shape as Python, with the arguments that hold sizes."""
        return shape_text([each if isinstance(each, int) else renamed(each, sizes) for each in plan.parameter.shape])

    most = {plan.parameter.label: plan.parameter.most or math.inf for plan in given if plan.parameter.is_size}

    def is_large(plan: Plan) -> bool:
        """Return whether a result may be worth keeping."""
        extents = (each if isinstance(each, int) else most.get(each, math.inf) for each in plan.parameter.shape)
        return plan.dtype.itemsize * math.prod(extents) >= WORTH_KEEPING

    wrong: list[str] = []
    first: list[str] = []
    store: list[str] = []
    variables: list[str] = []
    sized: list[str] = []
    arrays: list[str] = []
    for number, plan in enumerate(given):
        value = f"v{number}"
        if plan.is_variable:
            variables.append(value)
        elif plan.is_scalar:
            kind = kinds[number] if kinds else None
            if kind is not None:
                names[f"t{number}"] = kind
                wrong.append(f"type({value}) is not t{number}")
            store.append(f"slot.cells[{plan.index}][0] = {value}")
        else:
            if as_array is not None:
                first += [f"if type({value}) is not ndarray:", f"    {value} = as_array({value})"]
            if number not in known:
                wrong.append(f"type({value}) is not ndarray or {value}.shape != {shape_of(plan)}")
            if plan.shape is None:
                sized.append(f"slot.sizes[{len(arrays) + len(variables)}] = {value}.nbytes")
            arrays.append(f"{value}, ")
    results = []
    for number, plan in enumerate(outputs):
        names[f"e{number}"] = plan.dtype
        store.append(f"r{number} = {'fresh' if is_large(plan) else 'empty'}({shape_of(plan)}, e{number})")
        results.append(f"r{number}, ")
    store.append(f"given = ({''.join([*arrays, *results])})")
    if variables:
        others = " or ".join(f"bound[{place}]() is not {value}" for place, value in enumerate(variables))
        store.append("bound = slot.bound")
        store.append(f"fits = not ({others}) or bind(slot, ({', '.join(variables)},))")
        store += sized
        store.append("fits = fits and st_bind(slot.args, binding, slot.sizes, id(given))")
    catches = "0"
    if is_told:
        store.append("catches = ready(slot)")
        catches = "catches"
    given_back = "r0" if is_single else f"({''.join(results)})"
    away = f"return otherwise({everything})"
    common = f"entry, slot.args, slot.arena, slot.host, slot.stop, {catches}"
    lines = [
        f"def call({everything}):",
        *(f"    {line}" for line in first),
        *([f"    if {' or '.join(wrong)}:", f"        {away}"] if wrong else []),
        "    try:",
        "        slot = idle.pop()",
        "    except IndexError:",
        f"        {away}",
        "    if not is_current(slot):",
        f"        {away}",
        "    try:",
        *(f"        {line}" for line in store),
        "    except (TypeError, OverflowError, ValueError):",
        "        idle.append(slot)",
        f"        {away}",
    ]
    if variables:
        lines += [
            "    if not fits:",
            "        idle.append(slot)",
            f"        {away}",
            "    try:",
            "        acquire(slot)",
            f"        status = st_call({common})",
            "    finally:",
            "        release(slot)",
        ]
    else:
        lines.append(f"    status = st_bind_and_call({common}, binding, id(given))")
    lines += [
        "    if status:",
        f"        if status == {UNFIT}:",
        "            idle.append(slot)",
        f"            {away}",
        "        stopped(slot, status)",
        "    idle.append(slot)",
        f"    return {given_back}",
    ]
    exec(_code("\n".join(lines)), names)
    # Its globals do not hold it: a cycle would keep the program loaded until the collector comes.
    made: Callable[..., Any] = names.pop("call")
    return made


@lru_cache(maxsize=64)
def _code(text: str) -> CodeType:
    """The compiled text: programs of one signature have one."""
    return compile(text, _FILE, "exec")
