"""The short way into a program: one Python function per program, with its checks and stores written out.

    def call(x, n):
        slot = take()
        if type(x) is not ndarray or x.dtype is not d0 or x.shape != (10,) or x.flags.num & 257 != 257: ...
        kept0 = slot.words[0] = from_buffer(x)
        ...
        status = st_call(entry, slot.args, slot.arena, slot.host, slot.stop, 0)

It is for programs whose arguments are arrays and numbers of the host and which write none of them. What does not fit goes the
long way, `NativeProgram.__call__`, which takes any array and says what is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from staged.runtime.guard import ffi, guard

LARGE = 1 << 20
"""Bytes of a result from which on its memory is used again (`Results`)."""


class Plan(Protocol):
    """What is known of one parameter; see `native._Plan`."""

    @property
    def dtype(self) -> np.dtype[Any]: ...
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


def is_simple(given: Sequence[Plan], outputs: Sequence[Plan], source: str) -> bool:
    """Whether a program can be called the short way: it neither prints nor can be stopped, and its sizes are known."""
    if any(word in source for word in ("st_stop_requested(", "st_text_begin(", "st_progress_start(")):
        return False
    return all(plan.shape is not None and not plan.is_variable and not plan.is_remote for plan in (*given, *outputs))


def prepare(
    given: Sequence[Plan],
    outputs: Sequence[Plan],
    kinds: Sequence[type],
    entry: Any,
    idle: list[Any],
    is_current: Callable[[Any], bool],
    stopped: Callable[[Any, int], None],
    otherwise: Callable[..., tuple[Any, ...]],
) -> Callable[..., tuple[Any, ...]]:
    """The short way; `otherwise` is the long one, for calls that do not fit or find no idle slot.

    `kinds` are the Python types that numbers must have; without them any number does that C takes.
    """
    names: dict[str, Any] = {
        "ndarray": np.ndarray, "empty": np.empty, "from_buffer": ffi.from_buffer, "st_call": guard().st_call,
        "entry": entry, "idle": idle, "is_current": is_current, "stopped": stopped, "otherwise": otherwise,
    }  # fmt: skip
    arguments = [f"v{number}" for number in range(len(given))]
    everything = ", ".join(arguments)
    wrong: list[str] = []
    store: list[str] = []
    for number, plan in enumerate(given):
        if plan.is_scalar:
            if kinds:
                names[f"t{number}"] = kinds[number]
                wrong.append(f"type(v{number}) is not t{number}")
            store.append(f"cells[{plan.index}][0] = v{number}")
            continue
        names[f"d{number}"] = plan.dtype
        wrong.append(
            f"type(v{number}) is not ndarray or v{number}.dtype is not d{number} or v{number}.shape != {plan.shape!r} "
            f"or v{number}.flags.num & {plan.needed_flags} != {plan.needed_flags}"
        )
        store.append(f"b{number} = words[{plan.index}] = from_buffer(v{number})")
    results = []
    for number, plan in enumerate(outputs):
        names[f"e{number}"] = plan.dtype
        store.append(f"r{number} = empty({plan.shape!r}, e{number})")
        store.append(f"c{number} = words[{plan.index}] = from_buffer(r{number})")
        results.append(f"r{number}, ")
    lines = [
        f"def call({everything}):",
        *([f"    if {' or '.join(wrong)}:", f"        return otherwise({everything})"] if wrong else []),
        "    try:",
        "        slot = idle.pop()",
        "    except IndexError:",
        f"        return otherwise({everything})",
        "    if not is_current(slot):",
        f"        return otherwise({everything})",
        "    words, cells = slot.words, slot.cells",
        "    try:",
        *(f"        {line}" for line in store or ["pass"]),
        "    except (TypeError, OverflowError, ValueError):",
        "        idle.append(slot)",
        f"        return otherwise({everything})",
        "    status = st_call(entry, slot.args, slot.arena, slot.host, slot.stop, 0)",
        "    if status:",
        "        stopped(slot, status)",
        "    idle.append(slot)",
        f"    return ({''.join(results)})",
    ]
    exec(compile("\n".join(lines), "<prepared call>", "exec"), names)
    made: Callable[..., tuple[Any, ...]] = names["call"]
    return made


def is_small(outputs: Sequence[Plan]) -> bool:
    """Whether all results are so small that the allocator is as quick as keeping their memory."""
    return all(plan.dtype.itemsize * math.prod(plan.shape or ()) < LARGE for plan in outputs)


