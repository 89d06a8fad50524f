# ruff: noqa: B007, PTH, S101, T203  (programs of users)
"""Effects of code that is not converted: refused with the staged way, never carried out once and in silence."""

from __future__ import annotations

import bisect
import collections
import contextlib
import copy
import dataclasses
import datetime
import functools
import heapq
import itertools
import json
import logging
import math
import operator
import os
import pathlib
import pickle
import pprint
import queue
import re
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError, StaticStateError
from staged.frontend.calls.known_calls import KNOWN
from staged.frontend.trace_function import trace
from tests.frontend.harness import interpret

X = np.ones(3, np.float32)
NUMBERS, FLAGS = [1, 2], {"a": 1}
ARRAY = np.zeros(3)
QUEUE: queue.Queue[int] = queue.Queue()
DEQUE = collections.deque([1])
EVENT = threading.Event()
PATH = pathlib.Path("never-made")
LOG = logging.getLogger("tests.effects")
SHOWN = logging.getLogger("tests.effects.shown")
SHOWN.setLevel(logging.INFO)
ADAPTER = logging.LoggerAdapter(SHOWN, {})
TURNS = itertools.count()


@dataclasses.dataclass(frozen=True)
class Frozen:
    size: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.size + 1)


@functools.lru_cache
def remembered(n: int) -> int:
    return n + 1


def under(kind: str, action: Callable[[], Any]) -> Callable[..., Any]:
    """A program that does `action` in a branch that is not taken, in a loop, or at its start."""

    def branch(x):
        if x[0] > 100.0:
            action()
        return x

    def loop(x):
        for i in st.range(2):
            action()
        return x

    def start(x):
        action()
        return x

    return {"branch": branch, "loop": loop, "start": start}[kind]


ALWAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "logging": (lambda: LOG.warning("step %d", 3), "use `print(...)`"),
    "adapter": (lambda: ADAPTER.info("step %d", 3), "use `print(...)`"),
    "exit": (lambda: sys.exit(3), "raise RuntimeError"),
    "quit": (lambda: exit(3), "raise RuntimeError"),
    "os._exit": (lambda: os._exit(3), "raise RuntimeError"),
    "makedirs": (lambda: os.makedirs("never-made"), "before or after the call"),
    "environment": (lambda: os.environ.update(STAGED_NEVER="1"), "before or after the call"),
    "write_text": (lambda: PATH.write_text("a"), "open(path"),
    "redirect": (lambda: contextlib.redirect_stdout(None), "before or after the call"),
    "event": (EVENT.set, "one thread"),
    "queue": (lambda: QUEUE.put(1), "one thread"),
    "a file's write": (lambda: sys.stdout.write("no\n"), "use `print(...)`"),
    "pprint": (lambda: pprint.pprint(3), "use `print(...)`"),
    "subprocess": (lambda: subprocess.run(["false"], check=True), "before or after the call"),
    "temporary": (tempfile.mkdtemp, "open(path"),
    "json": (lambda: json.dump({}, sys.stdout), "open(path"),
    "pickle": (lambda: pickle.dump({}, sys.stdout.buffer), "or return them"),
    "savez": (lambda: np.savez("never-made.npz", ARRAY), "or return them"),
    "tofile": (lambda: ARRAY.tofile("never-made"), "or return them"),
    "now": (datetime.datetime.now, "time.time()"),
}
UNDER_CONTROL: dict[str, tuple[Callable[[], Any], str]] = {
    "deque": (lambda: DEQUE.append(3), "the deque `DEQUE` changes inside"),
    "unbound": (lambda: list.append(NUMBERS, 1), "the list `NUMBERS` changes inside"),
    "heappush": (lambda: heapq.heappush(NUMBERS, 3), "the list `NUMBERS` changes inside"),
    "insort": (lambda: bisect.insort(NUMBERS, 3), "the list `NUMBERS` changes inside"),
    "setitem": (lambda: operator.setitem(FLAGS, "a", 9), "the dict `FLAGS` changes inside"),
    "fill": (lambda: ARRAY.fill(3.0), "the array `ARRAY` of NumPy changes inside"),
    "copyto": (lambda: np.copyto(ARRAY, 1.0), "the array `ARRAY` of NumPy changes inside"),
    "out": (lambda: np.add(ARRAY, 1.0, out=ARRAY), "the array `ARRAY` of NumPy changes inside"),
    "next": (lambda: next(TURNS), "`next` is called inside"),
    "warn": (lambda: warnings.warn("no", stacklevel=1), "`warnings.warn` is called inside"),
    "unknown": (lambda: sys.audit("staged.test"), "`sys.audit` is called inside"),
}
HARMLESS: dict[str, Callable[[], Any]] = {
    "math": lambda: math.sqrt(2.0),
    "numpy": lambda: np.linalg.inv(np.eye(2)).sum() + np.float32(3) + np.sin(1.0) + np.finfo(np.float32).eps,
    "itertools": lambda: [*itertools.product([1], [2]), *itertools.chain.from_iterable([[1]])],
    "functools": lambda: functools.reduce(operator.add, [1, 2]) + functools.partial(max, 1)(2) + remembered(3),
    "copies": lambda: (copy.deepcopy(NUMBERS), dataclasses.replace(Frozen(1), size=4), dataclasses.asdict(Frozen(1))),
    "texts": lambda: (re.match("a", "ab").group(0), "a".upper(), ",".join(["a"]), json.dumps({"a": 1}), f"{3:4d}"),
    "paths": lambda: (PATH / "b", PATH.with_suffix(".x").name, os.path.join("a", "b"), PATH.exists(), os.environ.get("HOME")),
    "containers": lambda: (collections.deque([1]), dict.fromkeys([1]), collections.Counter("ab").most_common(), sorted([2, 1])),
    "local containers": lambda: (heapq.nlargest(1, NUMBERS), bisect.bisect(NUMBERS, 1), list(NUMBERS).append(1)),
    "iterators": lambda: (next(iter([1])), next(n for n in NUMBERS), slice(1, 2).indices(3)),
    "silent log": lambda: (LOG.debug("not shown"), ADAPTER.debug("nor this"), logging.getLogger("a")),
    "contexts": lambda: (contextlib.nullcontext(), contextlib.suppress(ValueError), datetime.date(2020, 1, 1).isoformat()),
    "named tuples": lambda: collections.namedtuple("P", "a b")(1, 2)._replace(a=3)._asdict(),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_effect_is_refused_wherever_it_stands(name: str) -> None:
    action, way = ALWAYS[name]
    for kind in ("branch", "loop", "start"):
        with pytest.raises(StagingError, match="would have its effect while staging") as caught:
            trace(under(kind, action), (X,))
        assert way in (caught.value.hint or "")
        assert caught.value.where is not None
    assert not EVENT.is_set() and QUEUE.empty() and not PATH.exists() and "STAGED_NEVER" not in os.environ


@pytest.mark.parametrize("name", UNDER_CONTROL)
def test_change_or_unknown_call_is_refused_where_the_program_decides(name: str) -> None:
    action, message = UNDER_CONTROL[name]
    for kind in ("branch", "loop"):
        NUMBERS[:], FLAGS["a"], ARRAY[:] = [1, 2], 1, 0.0
        with pytest.raises((StagingError, StaticStateError), match=re.escape(message)):
            trace(under(kind, action), (X,))


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_call_runs_anywhere(name: str) -> None:
    for kind in ("branch", "loop", "start"):
        trace(under(kind, HARMLESS[name]), (X,))


def test_eager_mode_runs_them_as_python_does() -> None:
    with st.eager():
        st.function(under("loop", lambda: DEQUE.append(7)))(X)
    assert list(DEQUE)[-2:] == [7, 7]


def test_what_is_vouched_for_may_run_in_a_loop() -> None:
    audit = functools.partial(sys.audit, "staged.test")
    trace(under("start", audit), (X,))
    with pytest.raises(StagingError, match=re.escape("st.pure(audit)")):
        trace(under("loop", audit), (X,))
    program = under("loop", st.pure(TURNS.__next__))
    trace(program, (X,))


def test_method_written_in_c_can_be_vouched_for() -> None:
    """It is another object each time that it is read: of one object, or of all objects of its class."""
    first, second = (ElementTree.fromstring("<a><b/></a>") for _ in range(2))
    find_in_first, find_in_second = (under("loop", lambda tree=tree: tree.find("b")) for tree in (first, second))
    st.pure(first.find)
    trace(find_in_first, (X,))
    with pytest.raises(StagingError, match=re.escape("st.pure(find)")):
        trace(find_in_second, (X,))
    st.pure(ElementTree.Element.find)
    trace(find_in_second, (X,))
    with pytest.raises(StagingError, match=re.escape("st.pure(findall)")):
        trace(under("loop", lambda: first.findall("b")), (X,))


def test_file_of_the_program_may_go_through_library_code() -> None:
    def program(x):
        for i in st.range(2):
            with open("never-made.json", "w") as f:
                json.dump({"a": [1]}, f)
        return x

    assert trace(program, (X,)).function is not None


def test_context_manager_of_the_users_is_recorded() -> None:
    class Announced:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            print(f"begin {self.name}")
            return 2.0

        def __exit__(self, *_):
            print(f"end {self.name}")

    @st.function
    def program(x):
        for i in st.range(2):
            with Announced("step") as factor:
                x = x * factor
        return x

    class Ending(contextlib.AbstractContextManager[Any]):
        def __exit__(self, *_):
            print("that was it")

    @st.function
    def ends(x):
        with Ending() as itself:
            x = x * 2.0
        return x, 1.0 if isinstance(itself, Ending) else 0.0

    assert ends.stage(X).ir.count("that was it") == 1
    np.testing.assert_array_equal(ends(X)[0], X * 2.0)
    assert ends(X)[1] == 1.0
    text = program.stage(X).ir
    assert text.count("begin step") == 1
    assert text.count("end step") == 1
    np.testing.assert_array_equal(interpret(trace(program.__wrapped__, (X,))), X * 4.0)


# Modules whose rows leave out a part of the path (`scipy.io.savemat` is `scipy.savemat`), or name it in another way.
NOT_SOUGHT = ("collections_abc", "sitebuiltins", "staged", "scipy", "safetensors")


def test_rows_of_known_calls_name_what_there_is() -> None:
    """A row whose module is of the standard library names something in it: a wrong spelling would refuse nothing."""
    inner = {"io.TextIOWrapper", "os._Environ"}
    for row in KNOWN:
        root, *rest = row.split(".")
        if root not in sys.modules or root in NOT_SOUGHT or rest[-1:] == ["*"]:
            continue
        found: Any = sys.modules[root]
        for part in rest:
            found = getattr(found, part, None)
        assert found is not None or row.rpartition(".")[0] in inner, row
