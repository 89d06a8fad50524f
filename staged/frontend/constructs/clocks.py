"""The clocks of Python's `time`, read when the program runs: seconds as a float, or nanoseconds as an integer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from staged.frontend.calls.call import BUILTINS
from staged.frontend.trace.context import current_trace
from staged.ir.nodes import IO, Op
from staged.ir.structure import CLOCK
from staged.ir.types import TensorType, f64, i64
from staged.source import here

_CLOCKS: dict[Any, tuple[str, bool]] = {
    time.time: ("wall", False),
    time.time_ns: ("wall", True),
    time.perf_counter: ("monotonic", False),
    time.perf_counter_ns: ("monotonic", True),
    time.monotonic: ("monotonic", False),
    time.monotonic_ns: ("monotonic", True),
    time.process_time: ("process", False),
    time.process_time_ns: ("process", True),
}
"""The clock that each function reads, and whether it counts nanoseconds."""


def _reader(function: Callable[[], Any]) -> Callable[[], Any]:
    clock, counts = _CLOCKS[function]

    def read() -> Any:
        trace = current_trace()
        if trace is None:
            return function()
        type_ = TensorType(i64 if counts else f64, (), True)
        op = Op(CLOCK, [], [type_], attrs={"clock": clock}, effects=IO, where=here())
        (result,) = trace.emit_op(op)
        return result

    return read


BUILTINS.update({function: _reader(function) for function in _CLOCKS})
