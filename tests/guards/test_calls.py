"""Calls run the program that they ran before: which calls do, what a program keeps alive, and what the user is told."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import linecache
import sys
import tracemalloc
import warnings
import weakref
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from tests.guards.interpreted import interpret
from tests.threads import run_at_once

X = np.array([1.0, 2.0, 3.0])


def calls(function: Any) -> list[int]:
    """The number of runs of each program without a trace."""
    return [use.calls - use.traces for use in function.programs]


# ---- which calls --------------------------------------------------------------------------------


def test_a_second_call_does_not_trace() -> None:

    @st.function
    def double(x: Any) -> Any:
        return x * 2.0

    assert double(X).tolist() == [2.0, 4.0, 6.0]
    assert double(X + 1).tolist() == [4.0, 6.0, 8.0]
    assert calls(double) == [1]


def test_a_named_tuple_with_its_own_new_is_an_argument_that_does_not_trace_again() -> None:
    class Pair(NamedTuple("Pair", [("a", Any), ("b", Any)])):
        def __new__(cls, a: Any, b: Any) -> Pair:
            return tuple.__new__(cls, (a, b))

    add = st.function(lambda pair: pair.a + pair[1])
    assert [add(Pair(X, X)).tolist() for _ in range(2)] == [[2.0, 4.0, 6.0]] * 2
    assert calls(add) == [1]


def test_a_frozen_dataclass_in_a_tuple_of_a_library_is_made_by_the_trace() -> None:
    source = "def doubled(x):\n    return x * 2.0, Pair(x, x * 3.0)\n"
    pair = dataclasses.make_dataclass("Pair", ["a", "b"], frozen=True)
    library = {"__name__": "staged.packing", "Pair": pair}
    exec(compile(source, st.packing.__file__, "exec"), library)
    doubled = library["doubled"]

    @st.function
    def total(x: Any) -> Any:
        y, pair = doubled(x)
        return y + pair.b

    assert [total(X).tolist() for _ in range(2)] == [[5.0, 10.0, 15.0]] * 2
    assert calls(total) == [1]


def test_programs_by_shape_dtype_and_static_values() -> None:
    @st.function(static=("n",))
    def power(x: Any, n: int = 2) -> Any:
        return x**n

    given = [(X,), (X.astype(np.float32),), (X[:2],), (X, 3), (2.0,), (2,)]
    for _ in range(2):
        for args in given:
            np.testing.assert_array_equal(power(*args), np.asarray(args[0]) ** (args[1] if len(args) > 1 else 2))
    assert calls(power) == [1] * 6
    assert power(x=X).tolist() == [1.0, 4.0, 9.0]
    assert power(n=3, x=X).tolist() == [1.0, 8.0, 27.0]
    assert power(X, n=3).tolist() == [1.0, 8.0, 27.0]
    assert power(True) == 1  # not the program of the int


def test_arguments_in_trees() -> None:
    @st.function
    def add(tree: Any, *rest: Any, **named: Any) -> Any:
        return tree["a"] + tree["b"][0] + sum(rest) + sum(named.values())

    for _ in range(2):
        assert add({"a": X, "b": [1.0]}, 2.0, three=3.0).tolist() == [7.0, 8.0, 9.0]
        assert add({"b": [1.0], "a": X}, 2.0, three=3.0).tolist() == [7.0, 8.0, 9.0]
    assert add({"a": X, "b": [1.0, 5.0]}, 2.0, three=3.0).tolist() == [7.0, 8.0, 9.0]
    assert add({"a": X, "b": (1.0,)}, 2.0, four=3.0).tolist() == [7.0, 8.0, 9.0]
    assert add({"a": X, "b": [1.0]}, 2.0, 4.0).tolist() == [8.0, 9.0, 10.0]


def test_one_array_twice_is_two_arguments() -> None:
    @st.function
    def subtract(a: Any, b: Any) -> Any:
        return a - b

    assert subtract(X, X).tolist() == [0.0, 0.0, 0.0]
    assert subtract(X, X * 2).tolist() == [-1.0, -2.0, -3.0]
    assert calls(subtract) == [1]


def test_integers_at_the_ends_of_their_range() -> None:
    double = st.function(lambda n: n * 2)
    assert double(3) == 6
    with pytest.raises(st.StagedError, match="64 bits"):
        double(2**63)
    assert double(-(2**62)) == -(2**63)


class Trainer:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.count = 0
        self.seen: list[float] = []

    @st.function
    def scaled(self, x: Any) -> Any:
        return x * self.scale

    def run(self) -> Any:
        self.count += 1
        self.seen.append(1.0)
        return self.scaled(X)


def test_methods_are_those_of_their_object() -> None:
    two, three = Trainer(2.0), Trainer(3.0)
    for _ in range(3):
        assert two.run().tolist() == [2.0, 4.0, 6.0]
        assert three.run().tolist() == [3.0, 6.0, 9.0]
    assert calls(two.scaled) == [2, 2]  # what the step does not read may change
    two.scale = 5.0
    assert two.run().tolist() == [5.0, 10.0, 15.0]
    assert three.run().tolist() == [3.0, 6.0, 9.0]


def test_a_method_is_bound_by_one_copy() -> None:
    """Python binds `trainer.scaled` anew at each call in a loop: the function is not looked at, nor its attributes one by one."""
    trainer, events = Trainer(2.0), []
    sys.setprofile(lambda frame, event, what: events.append((event, getattr(what, "__name__", ""))))
    try:
        found = trainer.scaled
    finally:
        sys.setprofile(None)
    assert [event for event, _ in events].count("call") == 1
    assert [name for event, name in events if event == "c_call"] == ["__new__", "copy", "setprofile"]
    assert found.__wrapped__.__self__ is trainer
    assert found(X).tolist() == [2.0, 4.0, 6.0]
    assert found.programs[0].calls == trainer.scaled.programs[0].calls


def test_training_in_a_loop_of_pythons() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    x, y = np.ones((5, 4), np.float32), np.arange(5) % 2

    @st.function
    def step(x: Any, y: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimizer.step(grads)
        return loss

    losses = [float(step(x, y)) for _ in range(10)]
    assert losses[-1] < losses[0]
    assert calls(step) == [9]
    assert not step.why_traced()
    optimizer.lr = 0.1
    model.eval()
    step(x, y)
    assert step.why_traced()
    assert calls(step) == [0, 9]


def test_arrays_change_between_calls() -> None:
    table = np.array([1.0, 2.0, 3.0])
    gather = st.function(lambda i: table[i] + table.sum())
    assert gather(0) == 7.0
    table[:] = [10.0, 20.0, 30.0]
    assert gather(0) == 70.0
    table[0] = 11.0
    assert gather(0) == 72.0


def test_what_a_function_writes_it_writes_at_each_call() -> None:
    class Holder:
        mode = "off"

    holder = Holder()

    @st.function
    def switch(x: Any) -> Any:
        holder.mode = "on"
        return x + 1.0

    for _ in range(3):
        holder.mode = "off"
        switch(X)
        assert holder.mode == "on"
    assert calls(switch) == [2]


def test_staged_values_do_not_stay_in_older_objects() -> None:
    class Holder:
        last: Any = None

    holder = Holder()

    @st.function
    def run(x: Any) -> Any:
        holder.last = x * 2.0
        return holder.last + 1.0

    for _ in range(3):
        assert run(X).tolist() == [3.0, 5.0, 7.0]
        assert holder.last is None


def test_results_are_of_the_callers_own() -> None:
    pair = st.function(lambda x: [x * 2.0, {"a": x, "b": (1.0, "text")}])
    first, second = pair(X), pair(X)
    assert first[0] is not second[0]
    assert first[1] is not second[1]
    first[1]["a"][0] = 9.0
    assert pair(X)[1]["a"][0] == 1.0


def test_programs_inside_and_outside_of_regions(emulated_device: Any) -> None:
    scale = st.function(lambda x: x * 2.0)
    for _ in range(2):
        assert scale(X).tolist() == [2.0, 4.0, 6.0]
        with st.with_backend(st.GPU):
            assert scale(X).tolist() == [2.0, 4.0, 6.0]
        with st.with_backend(st.GPU, X) as kept:
            assert scale(kept).tolist() == [2.0, 4.0, 6.0]
    with st.eager():
        assert np.asarray(scale(X)).tolist() == [2.0, 4.0, 6.0]


# ---- what is kept alive -------------------------------------------------------------------------


def test_programs_keep_no_model_alive() -> None:
    model = nn.Linear(3, 2, dtype=st.f64)
    table = np.ones(2)

    def run(x: Any) -> Any:
        return model(x) + table

    staged = st.function(run)
    staged(X)
    staged(X)
    watched = [weakref.ref(model), weakref.ref(model.weight), weakref.ref(table)]
    model, table = nn.Linear(3, 2, dtype=st.f64), np.zeros(2)
    gc.collect()
    assert [each() for each in watched] == [None] * 3
    np.testing.assert_allclose(staged(X), X @ model.weight.numpy().T + model.bias.numpy())


def test_references_and_memory_stay_the_same() -> None:
    double = st.function(lambda x, n: (x * n, n))
    for _ in range(100):
        double(X, 2)
    gc.collect()
    before, known = sys.getrefcount(X), len(gc.get_objects())
    tracemalloc.start()
    for _ in range(5000):
        double(X, 2)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gc.collect()
    assert sys.getrefcount(X) == before
    assert len(gc.get_objects()) <= known + 20
    assert size < 100_000


def test_threads_with_different_shapes() -> None:
    total = st.function(lambda x: st.sum(x * 2.0))
    wrong: list[Any] = []

    def work(size: int) -> None:
        x = np.arange(float(size))
        try:
            wrong.extend(size for _ in range(50) if total(x) != size * (size - 1))
        except BaseException as error:
            wrong.append(error)

    run_at_once(partial(work, size) for size in range(3, 11))
    assert not wrong


def run_cell(number: int, text: str, names: dict[str, Any]) -> None:
    """Run a cell of a notebook, whose text Python finds as IPython lets it."""
    file = f"<ipython-input-{number}-cells>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)


def test_what_exists_only_in_a_trace_is_no_reason_to_trace(capsys: pytest.CaptureFixture[str]) -> None:

    @st.function
    def loud(x: Any, n: Any) -> Any:
        total = st.sum(x)
        print(f"total {total:.1f} of {n}" + ", " + f"{x[0]}")
        print(total, "and", n, sep=" - ")
        assert n < 100, f"{n} is too large"
        y = x
        for i in st.range(n):
            y = y + 1.0
            if y[0] > 2.0:
                print(f"turn {i}")
        return y

    for _ in range(3):
        loud(X, 2)
    assert not loud.why_traced()
    assert calls(loud) == [2]
    said = capsys.readouterr().out
    assert said == 3 * "total 6.0 of 2, 1.0\n6.0 - and - 2\nturn 1\n"


def test_cells_of_a_notebook_that_are_run_again() -> None:
    names: dict[str, Any] = {"st": st}
    run_cell(1, "def helper(x):\n    return x * 2.0\n", names)
    run_cell(2, "@st.function\ndef double(x):\n    return helper(x)\n", names)
    assert names["double"](X).tolist() == [2.0, 4.0, 6.0]
    run_cell(3, "def helper(x):\n    return x * 3.0\n", names)
    assert names["double"](X).tolist() == [3.0, 6.0, 9.0]
    run_cell(4, "@st.function\ndef double(x):\n    return helper(x) + 1.0\n", names)
    assert names["double"](X).tolist() == [4.0, 7.0, 10.0]
    assert calls(names["double"]) == [0]


def test_modules_that_are_loaded_again(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "module_of_test_calls.py"
    path.write_text("import staged as st\nscale = 2.0\n@st.function\ndef scaled(x):\n    return x * scale\n")
    module = importlib.import_module(path.stem)
    before = module.scaled
    through = st.function(lambda x: module.scaled(x))
    assert before(X).tolist() == through(X).tolist() == [2.0, 4.0, 6.0]
    path.write_text("import staged as st\nscale = 5.00\n@st.function\ndef scaled(x):\n    return x * scale - 1.0\n")
    importlib.reload(module)
    assert module.scaled(X).tolist() == through(X).tolist() == [4.0, 9.0, 14.0]
    assert before(X).tolist() == [5.0, 10.0, 15.0]  # the old function reads the module's names as they are now
    del sys.modules[path.stem]


# ---- what the user is told ----------------------------------------------------------------------


def test_a_function_with_many_programs_says_what_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    power = st.function(lambda x, n: x * n, static=("n",))
    total = st.function(dims="static")(lambda x: st.sum(x))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(20):
            power(X, n)
        for size in range(1, 12):
            total(np.ones((2, size)))
    by_value, by_shape = [str(each.message) for each in caught]
    assert "has 8 programs" in by_value
    assert "the argument `n`" in by_value
    assert "static" in by_value or "as an array" in by_value
    assert "the argument `x`" in by_shape
    assert "`st.dim`" in by_shape
    assert len(power.programs) == 16
    power.clear()
    assert power.programs == []


def test_programs_are_listed_with_how_they_are_used() -> None:
    scale = st.function(lambda x, n: x * n, static=("n",))
    for n in (2.0, 3.0, 2.0, 2.0):
        scale(X, n)
    last, first = scale.programs
    assert (last.arguments, last.calls, last.traces, last.failures) == ("x: f64 (3,)", 3, 1, 1)
    assert (first.calls, first.traces, first.failures) == (1, 1, 1)
    assert last.seconds > 0.0 < last.staging_seconds
    assert str(last).startswith("(x: f64 (3,)): 3 calls, 1 trace, 1 guard failure; staged in ")
    assert first.seconds == 0.0
    assert "a call" not in str(first)


def test_the_program_that_ran_last_is_tried_first_and_kept_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    power = st.function(lambda x, n: x * n, static=("n",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(16):
            power(X, n)
        power(X, 0)
        power(X, 16)  # the seventeenth: the one that ran longest ago goes
        power(X, 0)
    assert power.programs[0].calls == 3
    assert len(power.programs) == 16


def test_a_function_that_is_traced_each_time_says_why(tmp_path: Any) -> None:
    path = tmp_path / "scale"
    path.write_text("2")
    scale = st.function(lambda x: x * float(path.read_text()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(30):
            scale(X)
    (note,) = [str(each.message) for each in caught]
    assert "traced 20 times to the same program" in note
    assert "read_text" in note
    assert "test_calls.py" in scale.why_traced()


def test_a_trace_that_follows_another_says_what_had_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By value, and by an exception where it was read."""
    interpret(monkeypatch)

    class Settings:
        scale, shift = 2.0, 1.0

    settings = Settings()
    settings.shift = 3.0
    holder = [settings]
    staged = st.function(lambda x: x * holder[0].scale + (holder[0].shift if hasattr(holder[0], "shift") else 0.0))

    def after(change: Any) -> str:
        change()
        staged(X)
        return staged.why_traced()

    assert not after(lambda: None)
    assert "`scale`" in after(lambda: setattr(settings, "scale", 5.0))
    assert "`shift`" in after(lambda: setattr(settings, "shift", 5.0))
    assert "`shift`" in after(lambda: (delattr(settings, "shift"), delattr(Settings, "shift")))
    assert (staged(X[:2]), staged.why_traced())[1] == "`x` has shape (2,); the last trace had (3,)"
    assert (staged(X.astype(np.float32)), staged.why_traced())[1] == "`x` has shape (3,); the last trace had (2,)"


def test_a_program_that_is_known_gives_each_trace_its_own_form_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    made: Any = {}
    staged = st.function(lambda x: made["form"](x * 2.0, x + 1.0))
    forms: list[Any] = [
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        lambda a, b: (a, b, "text"),
        lambda a, b: (a, b, 1),
        lambda a, b: (a, b, True),
        lambda a, b: {1: a, 2: b},
        lambda a, b: {True: a, 2: b},
        lambda a, b: (a, (b,)),
        lambda a, b: ((a,), b),
        lambda a, b: a,
        lambda a, b: b,
    ]
    for form in [*forms, *forms, *reversed(forms)]:
        made["form"] = form
        assert repr(staged(X)) == repr(form(X * 2.0, X + 1.0))


def test_a_counter_is_traced_each_time() -> None:
    class Counter:
        n = 0.0

    counter = Counter()

    @st.function
    def count(x: Any) -> Any:
        counter.n += 1.0
        return x * counter.n

    assert [count(X)[0] for _ in range(3)] == [1.0, 2.0, 3.0]
    assert "`n`" in count.why_traced()


class Made:
    def __init__(self) -> None:
        self.rows = [1.0]


@pytest.mark.parametrize(
    ("make", "change", "calls_trace"),
    [
        (lambda: np.ones(2), lambda array: array.fill(5.0), False),
        (lambda: np.zeros(3)[1:], lambda array: array.fill(5.0), False),
        (lambda: {1, 2}, lambda members: members.add(3), False),
        (lambda: bytearray(b"ab"), lambda text: text.append(99), False),
        (lambda: [1.0, {"a": np.ones(2)}], lambda parts: parts[1]["a"].fill(5.0), False),
        (Made, lambda made: made.rows.append(2.0), True),
    ],
)
def test_what_a_function_makes_and_returns_is_new_in_each_call(make: Any, change: Any, calls_trace: bool) -> None:
    @st.function
    def pair(x: Any) -> Any:
        return make(), x * 2.0

    for _ in range(3):
        made, doubled = pair(X)
        assert repr(getattr(made, "rows", made)) == repr(getattr(make(), "rows", make()))
        assert doubled.tolist() == [2.0, 4.0, 6.0]
        change(made)
    assert ("the result has a Made" in pair.why_traced()) == calls_trace


def test_an_array_from_outside_that_a_function_returns_is_that_array() -> None:
    outer = np.ones(3)

    @st.function
    def same(x: Any) -> Any:
        return outer, outer[1:], x

    for _ in range(2):
        found, part, _ = same(X)
        assert found is outer and np.shares_memory(part, outer)


def test_a_gradient_in_plain_python_says_once_that_it_could_be_compiled() -> None:
    def loss(w: Any) -> Any:
        return st.sum(w * w)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(50):
            st.grad(loss)(X)
    (note,) = caught
    assert "the gradient of `loss` ran 20 times in NumPy" in str(note.message)
    assert note.filename == __file__


def test_settings_that_are_made_anew_for_each_call() -> None:
    @dataclasses.dataclass(frozen=True)
    class Settings:
        rate: float = 0.5
        sizes: tuple[int, ...] = (1, 2)

    @st.function
    def scale(x: Any, settings: Settings) -> Any:
        return x * settings.rate * settings.sizes[1]

    for _ in range(3):
        assert scale(X, Settings()).tolist() == [1.0, 2.0, 3.0]
    assert calls(scale) == [2]
    assert scale(X, Settings(rate=1.0)).tolist() == [2.0, 4.0, 6.0]
    assert scale(X, Settings(sizes=(1, 3))).tolist() == [1.5, 3.0, 4.5]
    Settings.rate = 7.0  # type: ignore[misc]
    assert scale(X, Settings(0.5)).tolist() == [1.0, 2.0, 3.0]
