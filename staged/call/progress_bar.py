"""`progress`: a live bar for a loop, drawn by the generated program itself.

In a staged function the loop records three ops: `progress_start` before it, `progress_update` at the end of each
iteration, `progress_end` after it. In eager mode and plain Python the same bar is drawn from here. C side:
`code/support/progress.py`, with the same layout.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any
from weakref import WeakKeyDictionary

from staged.base.launcher import this_job
from staged.errors import StagingError
from staged.frontend.constructs.iterables import SeesLocals, StagedIterable, as_staged_iterable, nth
from staged.frontend.constructs.strings import Part, encode, message_parts
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.values.join import WEAK_INT, materialise
from staged.ir.nodes import IO, Op
from staged.ir.structure import PROGRESS_END
from staged.ops.array import Array
from staged.ops.formatting import format_value, parse_spec
from staged.ops.promote import as_array
from staged.runtime.printing import is_live
from staged.source import here

WIDTH = 79
"""Characters of a line: a terminal has at least 80 columns."""

INTERVAL = 0.1
"""Seconds between two drawings."""


def progress(
    loop: Iterable[Any],
    total: int | None = None,
    desc: Any = None,
    show: str | Sequence[str] = (),
    leave: bool = False,
) -> Any:
    """`loop` with a live bar: `for x, y in st.progress(st.batches(images, labels, size=64), show="loss"):`.

    Shows the part done, the rate, the time left, and the values of the local names in `show` at the end of an iteration
    (`"loss"`, or with a format spec `"loss:.3f"`). `desc` stands before the bar and may be an f-string with staged
    parts. `total` is needed only where the loop has no length. With `leave`, the last state stays on the screen.

    The bar is drawn in a terminal and in a notebook; nothing is written where the output is a file.
    Raises: StagingError for a name in `show` that is not bound at the end of an iteration.
    """
    names = tuple(show.replace(",", " ").split()) if isinstance(show, str) else tuple(show)
    bar = Bar(desc, names, leave)
    staged = as_staged_iterable(loop)
    if staged is not None:
        return Progress(staged, bar, total)
    return UnrolledProgress(loop, bar, total)


_counts: WeakKeyDictionary[TraceContext, int] = WeakKeyDictionary()


class Bar:
    """One bar: records ops in a trace, draws otherwise."""

    def __init__(self, desc: Any, show: tuple[str, ...], leave: bool) -> None:
        self.desc = desc
        self.show = show
        self.leave = leave
        self.trace = current_trace()
        self.number = 0
        if self.trace is not None:
            self.number = _counts[self.trace] = _counts.get(self.trace, 0) + 1
        self.drawing: Drawing | None = None

    def start(self, total: Any) -> None:
        """Before the loop; `total` may be staged, and None where it is unknown."""
        if self.trace is not None:
            self._record("progress_start", -1 if total is None else total, message_parts(self.desc))
        elif this_job().rank == 0 and is_live(sys.stdout):
            self.drawing = Drawing("" if self.desc is None else str(self.desc), None if total is None else int(total))

    def update(self, done: Any, names: Mapping[str, Any]) -> None:
        """At the end of an iteration: `done` are finished, `names` are the locals."""
        if self.trace is not None:
            self._record("progress_update", done, self._values(names))
        elif self.drawing is not None and self.drawing.is_due(int(done)):
            self.drawing.draw("".join(part if isinstance(part, str) else _text(part) for part in self._values(names)))

    def end(self) -> None:
        """After the loop, however it was left."""
        if self.trace is not None:
            attrs = {"id": self.number, "leave": self.leave}
            self.trace.emit_op(
                Op(PROGRESS_END, [], [], attrs=attrs, effects=IO, device=self.trace.builder.device, where=here())
            )
        elif self.drawing is not None:
            self.drawing.end(self.leave)
            self.drawing = None

    def _record(self, name: str, count: Any, parts: list[Part]) -> None:
        trace = self.trace
        assert trace is not None
        operands, attr = encode(trace, parts)
        trace.emit_op(
            Op(
                name,
                [materialise(trace, count, WEAK_INT), *operands],
                [],
                attrs={"id": self.number, "parts": attr},
                effects=IO,
                device=trace.builder.device,
                where=here(),
            )
        )

    def _values(self, names: Mapping[str, Any]) -> list[Any]:
        parts: list[Any] = []
        for index, shown in enumerate(self.show):
            name, _, spec = shown.partition(":")
            if name not in names:
                raise StagingError(
                    f"the progress bar shows `{name}`, which is not bound at the end of an iteration",
                    where=here(),
                    hint=f"assign `{name}` in the loop on every path, or leave it out of `show`",
                )
            value = as_array(names[name])
            if value.shape:
                raise StagingError(
                    f"the progress bar shows `{name}`, which is an array: {value.type}",
                    where=here(),
                    hint="show a number, for example its mean",
                )
            spec = spec or (".4g" if value.dtype.is_float or value.dtype.is_complex else "")
            parse_spec(spec, value.dtype.kind)
            parts += [" " * bool(index) + f"{name} ", (value, spec, "")]
        return parts


def _text(part: tuple[Array, str, str]) -> str:
    return format_value(part[0], part[1], part[2])


class Progress(StagedIterable):
    """A loop of the program (or of eager mode) with a bar."""

    def __init__(self, inner: StagedIterable, bar: Bar, total: Any) -> None:
        self.inner = inner
        self.bar = bar
        self.total = total
        self.index_hint = inner.index_hint

    @property
    def length(self) -> Any:
        return self.inner.length

    def element(self, index: Any) -> Any:
        return nth(self.inner, index)

    def begin(self) -> None:
        self.inner.begin()
        self.bar.start(self.inner.length if self.total is None else self.total)

    def end_iteration(self, index: Any, names: Mapping[str, Any]) -> None:
        self.inner.end_iteration(index, names)
        self.bar.update(index + 1, names)

    def end(self) -> None:
        self.inner.end()
        self.bar.end()


class UnrolledProgress(SeesLocals):
    """A loop over Python objects with a bar: in a staged function it is unrolled."""

    def __init__(self, inner: Iterable[Any], bar: Bar, total: int | None) -> None:
        self.inner = inner
        self.bar = bar
        self.total = total

    def __len__(self) -> int:
        return len(self.inner)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        total = self.total
        if total is None and isinstance(self.inner, Sized):
            total = len(self.inner)
        self.bar.start(total)
        try:
            for done, item in enumerate(self.inner, 1):
                yield item
                # In plain Python the locals are those of the frame that requests the next item.
                self.bar.update(done, sys._getframe(1).f_locals if self.scope is None else self.scope.__dict__)
        finally:
            # A trace that is being taken back, or whose path has ended, gets no more ops.
            trace = self.bar.trace
            if trace is None or (trace is current_trace() and not trace.block.ended):
                self.bar.end()


# ---- drawing in Python --------------------------------------------------------------------------


class Drawing:
    """A bar on `sys.stdout`."""

    def __init__(self, label: str, total: int | None) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self.values = ""
        self.began = time.monotonic()
        self.drawn = self.began
        self.draw("")

    def is_due(self, done: int) -> bool:
        self.done = done
        return done == self.total or time.monotonic() - self.drawn >= INTERVAL

    def draw(self, values: str) -> None:
        self.values = values
        now = time.monotonic()
        self._write(
            "\r" + progress_line(self.label, self.done, self.total, now - self.began, values)[:WIDTH].ljust(WIDTH)
        )
        self.drawn = now

    def end(self, leave: bool) -> None:
        if leave:
            self.draw(self.values)
            self._write("\n")
        else:
            self._write("\r" + " " * WIDTH + "\r")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def progress_line(label: str, done: int, total: int | None, seconds: float, values: str) -> str:
    """`epoch 1  42% [########............] 420/1000 0:12<0:17 35.2/s loss 0.1234`."""
    out = f"{label} " if label else ""
    if total is not None:
        part = 1.0 if total == 0 else done / total
        out += f"{int(100.0 * part):3d}% [{'#' * int(20.0 * part):.<20s}] "
    out += str(done) if total is None else f"{done}/{total}"
    out += " " + _clock(seconds)
    if done > 0 and seconds > 0.0:
        rate = done / seconds
        if total is not None:
            out += "<" + _clock((total - done) / rate)
        out += f" {rate:.{0 if rate >= 100.0 else 1 if rate >= 1.0 else 2}f}/s"
    return out + (f" {values}" if values else "")


def _clock(seconds: float) -> str:
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"
