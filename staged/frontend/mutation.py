"""Python state changed by converted code: logged, undone when tracing is taken back, refused under staged control flow.

Lists, dicts and attributes exist while staging. Changed in a branch or loop that the program decides, they would be
changed whatever it decides; so a change must be undone by the end of the branch or body, or belong to an object made in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from staged.errors import StaticStateError
from staged.frontend.join import same_tree
from staged.frontend.tracing import Mutation, Region, TraceContext, current_trace
from staged.source import here, is_library_file


def record_mutation(owner: object, text: str, current: Callable[[], Any], undo: Callable[[Any], None]) -> None:
    """Note that `owner` is about to change: `current()` gives its contents, `undo(contents)` puts them back.

    `text` names it in an error; `{name}` in it is replaced by the owner's local name, if it has one.
    """
    trace = current_trace()
    if trace is None:
        return
    before = current()
    where = None
    if trace.regions:  # only there can it become an error
        text, where = text.format(name=_name_of(trace, owner)), here()
    trace.log.append(Mutation(owner, text, before, current, lambda: undo(before), where))


def _name_of(trace: TraceContext, owner: object) -> str:
    """`` `xs` `` with a space before it, where a local name of a running call holds `owner`."""
    places = [scope.__dict__ for scope in reversed(trace.frames)]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # names of closures and modules
        if not is_library_file(frame.f_code.co_filename):
            places += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    for names in places:
        for name, value in names.items():
            if value is owner and "__staged" not in name:
                return f" `{name}`"
    return ""


def note_made(value: object) -> None:
    """Note that converted code made a mutable object in the open regions."""
    trace = current_trace()
    if trace is not None:
        for region in trace.regions:
            region.made[id(value)] = value


def check_region(trace: TraceContext, region: Region) -> None:
    """At the end of a staged branch or body: refuse a change of state that was there before it."""
    seen: set[tuple[int, str]] = set()
    for mutation in trace.log[region.log_start :]:
        key = (id(mutation.owner), mutation.text)
        if key in seen or id(mutation.owner) in region.made:
            continue
        seen.add(key)
        if not same_tree(mutation.before, mutation.current()):
            raise StaticStateError(
                f"{mutation.text} changes inside {region.what}, but it is Python state, which exists only while staging",
                where=mutation.where,
                hint="use an `st.Variable`, or assign a new value to a local name (`xs = [*xs, x]`), which the program carries",
            )
