"""The objects that a program keeps alive: nothing of the user's that could die without it, and itself no longer than it is used."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.call.dispatch import MOST_PROGRAMS
from staged.testing import load_snippet
from tests.guards.interpreted import interpret
from tests.threads import run_at_once

X = np.array([1.0, 2.0, 3.0])

HELD = {
    "an array": ("thing = np.ones(3)", "x * thing"),
    "an array of which a view is taken": ("thing = np.ones(30)", "x * thing[5:8]"),
    "an array of which a part of a part is taken": ("thing = np.ones((30, 3))\nrow = thing[4:]", "x * row[2] + x * row.T[:, 1]"),
    "an array that is read": ("thing = np.ones(3)", "x * float(thing[0])"),
    "an object": ("class Thing: k = 2.0\nthing = Thing()", "x * thing.k"),
    "an object in a list": ("class Thing: k = 2.0\nthing = Thing()\nthings = [thing]", "x * things[0].k"),
    "an object in a dict": ("class Thing: k = 2.0\nthing = Thing()\nthings = {'a': thing}", "x * things['a'].k"),
    "an object given to other code": ("class Thing: pass\nthing = Thing()\nthing.k = 2.0", "x * max([thing], key=id).k"),
    "a class": ("class thing: k = 2.0", "x * thing.k"),
    "a class whose objects are made": ("class thing:\n    def m(self): return 2.0", "x * thing().m()"),
    "a function": ("def thing(y): return y * 2.0", "thing(x)"),
    "a function with a default": ("def thing(y, a=np.ones(3)): return y * a", "thing(x)"),
    "a closure": ("def make(a):\n    def inner(y): return y * a\n    return inner\nthing = make(2.0)", "thing(x)"),
    "a key function": ("def thing(v): return -v", "x * sorted([1.0, 2.0], key=thing)[0]"),
    "a model": ("thing = st.nn.Linear(3, 2, dtype=st.f64)", "thing(x)"),
    "a method": ("class Thing:\n    def m(self): return 2.0\nthing = Thing()\nm = thing.m", "x * m()"),
    "a metaclass": ("class thing(type): k = 2.0\nclass C(metaclass=thing): pass", "x * C.k"),
    "a class that is asked for": ("class thing: pass", "x * (2.0 if isinstance(x, thing) else 3.0)"),
}  # fmt: skip


@pytest.mark.parametrize("what", HELD)
def test_a_program_keeps_nothing_alive_that_its_function_read(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    setup, read = HELD[what]
    module = load_snippet(f"import numpy as np\nimport staged as st\n{setup}\ndef f(x):\n    return {read}\n", "lifetimes")
    staged = st.function(module.f)
    for _ in range(3):
        staged(X)
    assert not staged.why_traced()
    assert staged.programs[0].calls == 3
    watched = weakref.ref(module.thing)
    for name in ("thing", "things", "row", "m", "C"):
        vars(module).pop(name, None)
    gc.collect()
    assert watched() is None
    assert not staged.programs


def test_a_program_goes_as_soon_as_its_function_forgets_it() -> None:
    """The library is unloaded then: no cycle waits for the collector."""
    double = st.function(lambda x, n: (x * n, n))
    double(X, 2)
    double(X, 2)
    program = double.stage(X, 2)
    program(X, 2)
    watched = [weakref.ref(each.native) for each in double._kept.loaded.values()]
    gc.disable()
    try:
        double.clear()
        is_loaded = [each() is not None for each in watched]
        del program
        is_loaded += [each() is not None for each in watched]
    finally:
        gc.enable()
    assert is_loaded == [True, False]


def test_programs_that_are_not_kept_are_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    power = st.function(lambda x, n: x * n, static=("n",))
    for n in range(3 * MOST_PROGRAMS):
        power(X, n)
    assert len(power._kept.loaded) <= 2 * MOST_PROGRAMS
    assert len(power._kept.traces) <= 2 * MOST_PROGRAMS


def test_a_model_that_dies_takes_its_program_along_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that held an object holds None, the object is dead: None is not what the weak reference gives."""
    interpret(monkeypatch)
    module = load_snippet(
        "class Thing: k = 2.0\nthing = Thing()\ndef f(x):\n    return x if thing is None else x * 2.0\n"
    )
    staged = st.function(module.f)
    staged(X)
    entry = staged._kept.entries[0]
    monkeypatch.setattr(type(entry), "is_dead", property(lambda self: False, lambda self, value: None), raising=False)
    module.thing = None
    gc.collect()
    assert type(entry.check((X,), {}, None)) is int
    assert staged(X).tolist() == X.tolist()


# ---- many calls ---------------------------------------------------------------------------------


def resident() -> int:
    """Bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@contextmanager
def flat(*watched: Any, bytes_allowed: int = 100_000, objects_allowed: int = 50, counts_all: bool = True) -> Iterator[None]:
    """References to what is watched, the objects of the collector and the memory of Python are after the block what they were.

    Many calls are counted by the memory of the process alone, since tracing allocations takes five times as long.
    """
    gc.collect()
    counts, objects, before = [sys.getrefcount(each) for each in watched], len(gc.get_objects()), resident()
    if counts_all:
        tracemalloc.start()
    yield
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] if counts_all else resident() - before
    tracemalloc.stop()
    assert [sys.getrefcount(each) for each in watched] == counts
    assert len(gc.get_objects()) <= objects + objects_allowed
    assert size < bytes_allowed


def training_step() -> tuple[Any, Any, tuple[Any, ...]]:
    """A step on a model and an optimiser that it closes over, its arguments, and what is watched."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    scales, x = {"a": [2.0]}, np.ones((5, 3), np.float32)

    @st.function
    def step(x: Any, weight: Any, options: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.mean(model(x) ** 2) * scales["a"][0] * weight, wrt=model)()
        optimizer.step(grads)
        return {"loss": loss, "options": options, "x": x}

    given = (x, 0.5, ("mean", 2))
    return step, given, (model, model[0].weight, optimizer, scales, x, step, given)


@pytest.mark.parametrize("calls", [300, pytest.param(100_000, marks=pytest.mark.slow)])
def test_references_and_memory_are_flat_over_many_calls(calls: int) -> None:
    step, given, watched = training_step()
    for _ in range(50):
        step(*given)
    is_short = calls < 1000
    with flat(*watched, bytes_allowed=100_000 if is_short else 4 << 20, counts_all=is_short):
        for _ in range(calls):
            step(*given)
    assert step.programs[0].calls == calls + 50


@pytest.mark.parametrize("calls", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_memory_is_flat_where_every_call_traces(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    module = load_snippet("class C: n = 1.0\nc = C()\ndef f(x):\n    c.n = c.n + 1.0\n    return x * len(str(c.n)[:1])\n")
    staged = st.function(module.f)
    for _ in range(40):
        staged(X)
    with flat(module.c, module.f, X, bytes_allowed=200_000):
        for _ in range(calls):
            staged(X)
    assert staged.why_traced()


def test_memory_is_bounded_where_every_call_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    module = load_snippet("rate = 0.0\ndef f(x):\n    return x * rate\n")
    staged = st.function(module.f)

    def run(count: int) -> None:
        for _ in range(count):
            module.rate += 1.0
            staged(X)

    run(3 * MOST_PROGRAMS)
    with flat(module.f, X, bytes_allowed=600_000, objects_allowed=3000):
        run(2 * MOST_PROGRAMS)


@pytest.mark.parametrize("calls", [10, pytest.param(3000, marks=pytest.mark.slow)])
def test_eight_threads_with_shapes_of_their_own(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each gets what it asks for, no program is lost, and there is one for each shape."""
    interpret(monkeypatch)
    module = load_snippet("factor = [2.0]\ndef f(x):\n    return st.sum(x * factor[0])\n")
    total = st.function(module.f, dims="static")
    wrong: list[Any] = []
    start = threading.Barrier(8)

    def work(size: int) -> None:
        x = np.arange(float(size))
        start.wait()
        for _ in range(calls):
            try:
                if total(x) != size * (size - 1):
                    wrong.append(size)
            except Exception as error:
                wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run_at_once(partial(work, size) for size in range(3, 11))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert len({use.arguments for use in total.programs}) == 8
    assert len(total.programs) == 8


@pytest.mark.slow
def test_what_is_read_changes_while_threads_call() -> None:
    """A result is that of the value before or after the change, never of one that was gone when the call began."""
    module = load_snippet("class C: k = 0.0\nc = C()\ndef f(x):\n    return x * c.k\n")
    staged = st.function(module.f)
    wrong: list[Any] = []
    counts: list[int] = []
    done = threading.Event()

    def work() -> None:
        count = 0
        while not done.is_set():
            least = module.c.k
            try:
                found = staged(X)[0]
            except BaseException as error:
                wrong.append(error)
                return
            if not least <= found <= module.c.k:
                wrong.append((least, found))
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for value in range(1, 25):
        module.c.k = float(value)
        staged(X)
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(counts) == 4
    assert min(counts) > 0
