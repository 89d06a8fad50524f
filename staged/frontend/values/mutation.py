"""Python state changed by converted code: logged, undone when tracing is taken back, refused under staged control flow.

Lists, dicts and attributes exist while staging. Changed in a branch or loop that the program decides, they would be
changed whatever it decides. Objects made while tracing are tracked like locals (see `objects`); a change of others must
be undone by the end of the branch or body.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

from staged.errors import StaticStateError, article
from staged.frontend.trace.bodies import Mutation, OpenBody
from staged.frontend.trace.context import TraceContext, current_trace, note_made
from staged.frontend.values.join import same_tree
from staged.frontend.values.objects import Origins, before_change, contents_of, is_tracked
from staged.frontend.values.trees import mutable_nodes
from staged.source import here, is_library_file


def record_mutation(
    owner: object, text: str, current: Callable[[], Any], undo: Callable[[Any], None], attribute: str | None = None
) -> None:
    """Note that `owner` is about to change: `current()` gives its contents, `undo(contents)` puts them back.

    `text` names it in an error; `{name}` in it is replaced by the owner's local name, if it has one.
    """
    trace = current_trace()
    if trace is None:
        return
    where = None
    if trace.bodies or trace.of(Origins).by_id:  # only there can it become an error
        name = _name_of(trace, owner)
        before_change(trace, owner, name.strip(" `"))
        text, where = text.format(name=name), here()
    before = current()
    trace.log.append(Mutation(owner, text, before, current, lambda: undo(before), where, attribute))


def _name_of(trace: TraceContext, owner: object) -> str:
    """`` `xs` `` with a space before it, where a local name of a running call holds `owner`."""
    places = [scope.__dict__ for scope in reversed(trace.running_locals)]
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # names of closures and modules
        if not is_library_file(frame.f_code.co_filename):
            places += [frame.f_locals, frame.f_globals]
        frame = frame.f_back
    for names in places:
        for name, value in names.items():
            if value is owner and "__staged" not in name:
                return f" `{name}`"
    for names in places:
        for name, value in names.items():
            path = _path_in(value, owner) if "__" not in name else None
            if path is not None:
                return f" `{name}{path}`"
    return ""


def _path_in(holder: object, owner: object) -> str | None:
    """The path of `owner` in a dict, list or object that has a name: `["loss"]`, `[0]`, `.losses`."""
    if isinstance(holder, dict):
        key = next((key for key, value in holder.items() if value is owner), None)
        return None if key is None else f'["{key}"]' if isinstance(key, str) else f"[{key!r}]"
    if isinstance(holder, list | tuple):
        return next((f"[{number}]" for number, value in enumerate(holder) if value is owner), None)
    if isinstance(holder, type) or not hasattr(holder, "__dict__"):
        return None
    return next((f".{name}" for name, value in vars(holder).items() if value is owner), None)


def note_new(value: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Note that the result of an unconverted call is new, if only the caller refers to it."""
    if current_trace() is not None and sys.getrefcount(value) <= 4:  # names here and in the callers, the count's own
        if hasattr(value, "__dict__"):
            note_made(value)
        note_parts(value, args, kwargs)


def note_parts(value: object, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Note the nodes of a new object that are not among the arguments that it was made from."""
    if current_trace() is None:
        return
    nodes = mutable_nodes(value, with_frozen=True)
    if nodes:
        given = {id(node) for node in mutable_nodes([*args, *kwargs.values()], with_frozen=True)}
        for node in nodes:
            if id(node) not in given:
                note_made(node)


def check_body(trace: TraceContext, body: OpenBody) -> None:
    """At the end of a staged branch or body: refuse a change of state that was there before it."""
    seen: set[tuple[int, str]] = set()
    for mutation in trace.log[body.log_start :]:
        key = (id(mutation.owner), mutation.text)
        if key in seen or id(mutation.owner) in body.made or is_tracked(trace, mutation.owner):
            continue
        seen.add(key)
        if not same_tree(mutation.before, mutation.current()):
            raise StaticStateError(
                f"{mutation.text} changes inside {body.what}, but it is Python state, which exists only while staging",
                where=mutation.where,
                hint="use an `st.Variable`, or make the object in the staged function, which carries it; what grows is "
                "an `st.Stack`",
            )


def record_attribute(owner: Any, name: str) -> None:
    """Log an attribute of an object before it changes."""
    if isinstance(owner, type):
        held = vars(owner).get(name, _ABSENT)

        def undo_of_class(_: Any) -> None:
            if held is not _ABSENT:
                setattr(owner, name, held)
            elif name in vars(owner):
                delattr(owner, name)

        text = f"the attribute `{name}` of the class `{owner.__name__}`"
        record_mutation(owner, text, lambda: vars(owner).get(name, _ABSENT), undo_of_class, name)
        return
    contents = contents_of(owner) if not isinstance(owner, list | dict) else None
    if contents is not None:
        own = contents.get(name, _ABSENT)

        def undo(_: Any) -> None:
            if own is _ABSENT:
                contents.pop(name, None)
            else:
                contents[name] = own

        text = f"the attribute `{name}` of{{name}} ({article(type(owner).__name__)})"
        record_mutation(owner, text, lambda: getattr(owner, name, _ABSENT), undo, name)


_ABSENT = object()


def record_contents(container: Any) -> None:
    """Log a container or an array of Python before it changes."""
    if isinstance(container, list):

        def undo(before: Any) -> None:
            container[:] = before

        record_mutation(container, "the list{name}", lambda: list(container), undo)
    elif isinstance(container, dict | set):

        def undo_all(before: Any) -> None:
            container.clear()
            container.update(before)

        record_mutation(container, f"the {type(container).__name__}{{name}}", lambda: dict_or_set(container), undo_all)
    elif isinstance(container, deque | bytearray):

        def undo_each(before: Any) -> None:
            container.clear()
            container.extend(before)

        record_mutation(container, f"the {type(container).__name__}{{name}}", lambda: list(container), undo_each)
    elif isinstance(container, np.ndarray):

        def undo_elements(before: Any) -> None:
            container[...] = before

        record_mutation(container, "the array{name} of NumPy", container.copy, undo_elements)


def dict_or_set(container: Any) -> Any:
    """A shallow copy."""
    return dict(container) if isinstance(container, dict) else set(container)
