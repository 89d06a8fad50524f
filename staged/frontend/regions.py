"""`with_backend`: the device of the ops traced in its extent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from staged.errors import StagingError
from staged.frontend.calls import call
from staged.frontend.tracing import current_trace
from staged.ir.types import CPU, Device
from staged.source import here

GPU = Device("gpu")


_ambient: ContextVar[Device] = ContextVar("staged_ambient_device", default=CPU)


def ambient_device() -> Device:
    """The device of the innermost `with_backend` around plain Python: that of the staged calls in its extent."""
    return _ambient.get()


class with_backend:
    """Decides where code is generated: `with with_backend(GPU, x) as xs: ...`, or `with_backend(GPU, x)(f)`.

    Inside a staged function it sets the device of the ops traced in its extent; in plain Python, of the staged calls in
    its extent. `inputs` are the arrays that the region uses (any tree); with none named, what it uses is found.
    `as` gives the inputs (one alone, or a tuple). The device is restored on every way out.
    """

    def __init__(self, device: Device, *inputs: Any) -> None:
        if not isinstance(device, Device):
            raise StagingError(
                f"with_backend takes a device, got {type(device).__name__}",
                where=here(),
                hint="`with_backend(GPU, x)` or `with_backend(CPU, x)`",
            )
        self.device = device
        self.inputs = inputs
        self._restore: list[Callable[[], None]] = []

    def __enter__(self) -> Any:
        trace = current_trace()
        if trace is not None:
            builder, before = trace.builder, trace.builder.device

            def restore() -> None:
                builder.device = before

            builder.device = self.device
            self._restore.append(restore)
        else:
            token = _ambient.set(self.device)
            self._restore.append(lambda: _ambient.reset(token))
        return self.inputs[0] if len(self.inputs) == 1 else self.inputs

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore.pop()()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function form: `function` with its ops on the device."""

        def on_device(*args: Any, **kwargs: Any) -> Any:
            with self:
                return call(function, *args, **kwargs)

        on_device.__staged_plain__ = True  # type: ignore[attr-defined]
        on_device.__name__ = getattr(function, "__name__", "on_device")
        return on_device
