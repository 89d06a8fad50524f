"""The warning for a region of plain Python without work on its device."""

from __future__ import annotations

import sys
from types import FrameType

from staged.ir.types import CPU, Device
from staged.ops.context import eager_names
from staged.source import Position, here, is_between, is_library_file, position_of_frame, warn

_warned: set[tuple[str, int]] = set()
"""The file and line of each `with_backend` with a warning."""


class RegionWork:
    """The work in a region of plain Python: staged calls, and ops that ran in NumPy."""

    def __init__(self) -> None:
        self.where: Position | None = None
        """The position of the `with`; None if the region does not warn, as in eager mode."""
        self.has_staged_call = False
        self.has_copies = False
        """True if the region copied arrays to its device for later use."""
        self.has_numpy_work = False
        self.function = ""
        """The function that the region called and that ran in NumPy, if one is known."""
        self._frame = 0
        """The id of the frame with the `with`."""

    def begin(self) -> None:
        """Remember the position of the `with`."""
        if eager_names():
            return
        self.where = here()
        frame = _user_frame(sys._getframe(1))
        self._frame = id(frame) if frame is not None else 0

    def note_numpy_work(self) -> None:
        """Remember the function that the region called, in which an op runs in NumPy now."""
        if self.has_numpy_work or self.has_staged_call or self.where is None:
            return
        if eager_names():
            self.where = None
            return
        called: FrameType | None = None
        frame = _user_frame(sys._getframe(1))
        while frame is not None and id(frame) != self._frame:
            called, frame = frame, _user_frame(frame.f_back)
        self.has_numpy_work = frame is not None  # else this is another thread, as of a loader
        if frame is not None and called is not None:
            name = position_of_frame(called).function
            if not name.startswith("<"):  # a lambda, a comprehension
                self.function = f"`{name}`, line {called.f_code.co_firstlineno},"

    def end(self, device: Device) -> bool:
        """Warn, once per place, if no work ran on the device. Returns True after a warning, also an earlier one."""
        where = self.where
        if where is None or device == CPU or self.has_staged_call or self.has_copies and not self.has_numpy_work:
            return False
        if (where.file, where.line) not in _warned:
            _warned.add((where.file, where.line))
            cause = f"it called no staged function on {device}"
            if self.has_numpy_work:
                cause = f"{self.function or 'its lines'} ran in NumPy"
            warn(
                f"no work ran on {device} in this region: {cause}. Put `@st.function` on the function with the loop, "
                "or on the function of one step.",
                where,
            )
        return True


def _user_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the user's code, from `frame` outwards."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_library_file(file) and not is_between(file):
            return frame
        frame = frame.f_back
    return None
