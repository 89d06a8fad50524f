"""Files that a program writes: `with open("log.txt", "w") as f: f.write(...)` and `print(..., file=f)`.

Text goes through the formatter that `print` uses, in UTF-8, with `\\n` at the end of lines. A file is closed where its
`with` ends, on every path out of it, and at the latest when the program ends, however it ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from staged.errors import ArgumentError, ProgramFileError, StagedValueError, StagingError
from staged.frontend.calls.call import builtin
from staged.frontend.constructs.strings import Part, StagedString, check_unicode, encode, parts_of
from staged.frontend.exits.cleanup import Cleanups
from staged.frontend.exits.targets import Files
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect
from staged.ir.nodes import FAIL, IO, Op
from staged.ir.structure import FILE_OPEN, PRINT
from staged.ir.types import CPU, TensorType, i64
from staged.ops.array import StagedArray
from staged.source import here

_MODES = {"w": "w", "wt": "w", "a": "a", "at": "a", "x": "wx", "xt": "wx"}
"""The modes of Python's `open` that a program has, and what C calls them."""
_EFFECTS = (*IO, *FAIL)


@builtin(open)
def open_(
    file: Any,
    mode: str = "r",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Python's `open` for converted code: a text file to write (`"w"`), to append to (`"a"`) or to create (`"x"`)."""
    check_effect("print", "a file")
    if mode not in _MODES:
        raise StagingError(
            f"a program writes text files, the mode {mode!r} cannot be staged",
            where=here(),
            hint="read in Python and pass the data as arguments; write with mode `'w'`, `'a'` or `'x'`",
        )
    plain = (buffering == -1, encoding in (None, "utf-8", "utf8", "UTF-8"), errors is None, newline in (None, "", "\n"))
    if not all(plain):
        raise StagingError(
            "a program writes UTF-8 with its own buffering",
            where=here(),
            hint='leave the options of `open` away, but for `encoding="utf-8"`',
        )
    trace = current_trace()
    if trace is None:
        try:
            return open(file, mode, encoding="utf-8", newline="\n")
        except OSError as error:
            raise ProgramFileError(f'cannot open "{os.fspath(file)}": {error.strerror}', where=here()) from None
    operands, parts = encode(trace, parts_of(path_of(file)))
    op = Op(
        FILE_OPEN,
        operands,
        [TensorType(i64)],
        attrs={"parts": parts, "mode": _MODES[mode]},
        effects=_EFFECTS,
        device=CPU,
        where=here(),
    )
    op.results[0].hint = "file"
    return StagedFile(trace.emit_op(op)[0])


def path_of(file: Any) -> str | StagedString:
    """The path of a file that a program writes.

    Raises: StagedValueError for what is no text, ArgumentError for a zero character: C would end the path there, and
    write another file.
    """
    path = file if isinstance(file, StagedString) else os.fspath(file) if isinstance(file, str | os.PathLike) else None
    if not isinstance(path, str | StagedString):
        raise StagedValueError(f"the path of a file is text, got {type(file).__name__}", where=here())
    for part in parts_of(path):
        if isinstance(part, str):
            check_unicode(part)
    if any(isinstance(part, str) and "\0" in part for part in parts_of(path)):
        raise ArgumentError("the path of a file has a zero character", where=here())
    return path


class StagedFile:
    """A file of the program, as the user's code sees it while staging."""

    __staged_of_trace__ = True
    __staged_file__ = True

    def __init__(self, number: StagedArray) -> None:
        self.number = number

    def write(self, text: Any) -> int | None:
        """Write text; the number of its characters where that is known while staging."""
        if not isinstance(text, str | StagedString):
            raise StagedValueError(
                f"a file takes text, got {type(text).__name__}",
                where=here(),
                hint='write an f-string: f.write(f"{x}\\n")',
            )
        emit_write(_trace(), self, parts_of(text), "")
        return len(text) if isinstance(text, str) else None

    def writelines(self, lines: Iterable[Any]) -> None:
        """Write several texts, one after another."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Do nothing: readers see the text when the system's buffers are written."""

    def close(self) -> None:
        """Close the file; closing it again does nothing."""
        _emit(_trace(), "file_close", self)

    def __enter__(self) -> StagedFile:
        trace = _trace()
        trace.put(Files((*trace.of(Files).open, (self, len(trace.targets)))))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        trace = _trace()
        trace.put(Files(trace.of(Files).open[:-1]))
        if kind is None and not trace.block.ended:
            self.close()
            for guard in trace.of(Cleanups).open[-1:]:
                guard.expect(1)  # exits that leave the `with` close the file themselves

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise StagingError(
            f"a file of the program has no `{name}`",
            where=here(),
            hint="use `write`, `writelines`, `print(..., file=f)`",
        )


def emit_write(trace: TraceContext, file: StagedFile, parts: list[Part], end: str) -> None:
    """Record a `print` op that goes to a file, whose number is its last operand."""
    operands, attr = encode(trace, parts)
    trace.emit_op(
        Op(
            PRINT,
            [*operands, trace.value_of(file.number)],
            [],
            attrs={"parts": attr, "end": end, "file": "file"},
            effects=_EFFECTS,
            device=trace.builder.device,
            where=here(),
        )
    )


def _emit(trace: TraceContext, name: str, file: StagedFile) -> None:
    trace.emit_op(Op(name, [trace.value_of(file.number)], [], effects=_EFFECTS, device=CPU, where=here()))


def _trace() -> TraceContext:
    trace = current_trace()
    if trace is None:
        raise StagingError(
            "a file of a program is used outside of it", where=here(), hint="open it where it is written"
        )
    return trace
