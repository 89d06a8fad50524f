# ruff: noqa: B007  (programs of users name their loop variables)
"""Hints name what the user has written: arguments, lists in dicts, and the names that other libraries use."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.base.other_names import EQUIVALENTS, IN_NN, IN_OPTIM, OF_ARRAYS, OF_MODULES, OF_OPTIMIZERS, answer_to
from staged.errors import StagedError

X = np.ones((2, 3), np.float32)


class Kept:
    def __init__(self):
        self.losses = []


def shape_of_an_argument(x, epochs):
    return st.zeros(epochs) + st.sum(x)


def shape_of_two(x, rows, more):
    return st.zeros((rows + more, 2)) + st.sum(x)


def shape_of_an_entry(x, settings):
    return st.zeros(settings["n"]) + st.sum(x)


def shape_of_a_counter(x, n):
    for i in st.range(n):
        x = x + st.sum(st.zeros(i))
    return x


def new_shape(x, rows):
    return x.reshape((rows, -1))


def classes(x, count):
    return st.one_hot(st.zeros(2, dtype=st.i64), count)


def batch(x, rows):
    for b in st.batches(x, size=rows):
        x = b
    return x


def room(x, most):
    return st.Stack(x, max=most).array()


@pytest.mark.parametrize(
    ("program", "args", "static"),
    [
        (shape_of_an_argument, (3,), '("epochs",)'),
        (shape_of_two, (3, 4), '("rows", "more")'),
        (shape_of_an_entry, ({"n": 3},), '("settings",)'),
        (shape_of_a_counter, (3,), "(...)"),
        (new_shape, (3,), '("rows",)'),
        (classes, (3,), '("count",)'),
        (batch, (3,), '("rows",)'),
        (room, (3,), '("most",)'),
    ],
)
def test_hint_names_the_argument_to_make_static(program, args, static) -> None:
    with pytest.raises(StagedError) as caught:
        st.function(program).stage(X, *args)
    assert f"st.function(static={static})" in (caught.value.hint or "")


def list_in_a_dict(x, n):
    history = {"loss": []}
    for i in st.range(n):
        history["loss"].append(x)
    return x


def list_in_an_object(x, n):
    kept = Kept()
    for i in st.range(n):
        kept.losses.append(x)
    return x


def list_without_a_name(x, n):
    kept = [[[]]]
    for i in st.range(n):
        kept[0][0].append(x)
    return x


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (list_in_a_dict, 'the list `history["loss"]` changes its length'),
        (list_in_an_object, "the list `kept.losses` changes its length"),
        (list_without_a_name, "a list changes its length"),
    ],
)
def test_list_that_grows_is_called_as_it_is_reached(program, message) -> None:
    with pytest.raises(StagedError) as caught:
        st.function(program).stage(X, 3)
    assert caught.value.message.startswith(message)
    assert "st.Stack" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("gather", "use `st.take_along_axis`"),
        ("partition", "`st.sort(x)` has all in order"),
        ("inv", "use `st.linalg.inv`"),
        ("jacobian", "use `st.jacrev(f)(x)`"),
        ("eig", "there is no `eig` here yet"),
        ("cond", "write an `if`"),
        ("arcsinh", "use `st.asinh`"),
        ("maen", "did you mean `st.mean`?"),
        ("frobnicate", "has no attribute 'frobnicate'"),
        ("_mean", "has no attribute '_mean'"),
    ],
)
def test_unknown_name_is_answered_by_what_does_it_here(name, answer) -> None:
    with pytest.raises(AttributeError, match=re.escape(answer)) as caught:
        getattr(st, name)
    assert ("did you mean" in str(caught.value)) == (name == "maen")


def test_table_of_other_names_speaks_of_what_there_is() -> None:
    for name, way in EQUIVALENTS.items():
        assert name not in st.__all__, f"`st.{name}` is here by now: take its row out"
        for ours in re.findall(r"`st\.(\w+)", way):
            assert ours in st.__all__ or ours in ("random", "cuda"), f"{name}: there is no `st.{ours}`"
    assert answer_to("entirely_else", st.__all__) == ""


def adds_up(x, n):
    grads = None
    for i in st.range(n):
        grads = {"w": x} if grads is None else {"w": grads["w"] + x}
    return grads


def rebuilds(x, n):
    rows = []
    for i in st.range(n):
        rows = [*rows, x]
    return rows


@pytest.mark.parametrize(
    ("program", "difference", "hint"),
    [
        (adds_up, "the value None before the loop and a dict of 1 after", "with arrays of zeros: `st.zeros_like(x)`"),
        (rebuilds, "a list of 0 before the loop and a list of 1 after", "collect values in `st.Stack"),
    ],
)
def test_trees_that_change_are_told_by_their_lengths(program, difference, hint) -> None:
    with pytest.raises(st.CarriedValueError) as caught:
        st.function(program).stage(X, 3)
    assert difference in caught.value.message and hint in (caught.value.hint or "")


PLACES = {
    "arrays": (lambda: st.exp(X), OF_ARRAYS),
    "a Variable": (lambda: st.Variable(X), OF_ARRAYS),
    "modules": (lambda: nn.Linear(2, 2), OF_MODULES),
    "optimisers": (lambda: optim.SGD([st.Variable(X)]), OF_OPTIMIZERS),
    "nn": (lambda: nn, IN_NN),
    "optim": (lambda: optim, IN_OPTIM),
}


def test_values_of_a_program_have_no_array_of_numpy() -> None:
    with pytest.raises(AttributeError) as caught:
        st.function(lambda x: x.numpy()).stage(X)
    assert OF_ARRAYS["numpy"] in str(caught.value)


@pytest.mark.parametrize("place", PLACES)
def test_every_name_of_a_table_is_unknown_there_and_answered(place) -> None:
    make, table = PLACES[place]
    owner = make()
    for name, way in table.items():
        if name == "numpy" and table is OF_ARRAYS:
            continue  # arrays outside of programs have it
        with pytest.raises(AttributeError) as caught:
            getattr(owner, name)
        assert way.split("{")[0] in str(caught.value)
        # Python adds its own guess where it has the object: none beside an answer
        assert caught.value.name == name and caught.value.obj is None
        for ours in re.findall(r"`(?:st|optim|nn)\.(\w+)", way):
            assert any(hasattr(module, ours) for module in (st, nn, optim)), f"{name}: there is no `{ours}`"
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'$"):
        _ = owner.frobnicate
    assert not hasattr(owner, "frobnicate") and hasattr(owner, "__doc__")


def test_names_of_arrays_are_answered_in_a_program_and_in_plain_python() -> None:
    answers = {
        "use `st.take_along_axis`": lambda x: x.gather(0, x),
        r"`st.sort\(x\)` has all in order": lambda x: x.partition_(),
        "arrays are values": lambda x: x.zero_(),
        "write `x = x.exp": lambda x: x.exp_(),
    }
    for answer, program in answers.items():
        for call in (st.function(program), lambda x, program=program: program(st.exp(x))):
            with pytest.raises(AttributeError, match=answer):
                call(X)
    with pytest.raises(AttributeError, match=r"`st.argsort\(x\)` has all in order"):
        st.function(lambda x: x.argpartition(1))(X)
    np.testing.assert_array_equal(st.exp(X).argpartition(1), X.argpartition(1))  # NumPy's, in plain Python
    with pytest.raises(AttributeError, match="x = st.sort"):
        st.function(lambda x: x.sort())(X)
    for name in ("sort", "fill", "partition"):  # NumPy's would write into elements that are not the caller's
        with pytest.raises(AttributeError, match=f"no attribute '{name}': "):
            getattr(st.exp(X), name)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda x: np.partition(x, 1), "`st.sort(x)` has all in order"),
        (lambda x: np.linalg.eig(x), "there is no `eig` here yet"),
        (lambda x: np.vander(x), "write `x[:, None] ** st.arange(n)`"),
        (lambda x: np.block([x, x]), "use the functions of `staged`"),
    ],
)
def test_functions_of_numpys_are_answered_by_what_does_it_here(call, hint) -> None:
    with pytest.raises(StagedError) as caught:
        st.function(call).stage(X)
    assert (caught.value.hint or "").startswith(hint)


def test_roll_along_several_axes_is_numpys() -> None:
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    cases = [((1, 2), (0, 1)), (1, (0, 1)), ((1, 1), 0), ((-1, 5), (1, 1)), ((1, 2), None)]

    @st.function
    def rolled(x, n):
        return [st.roll(x, shift, axis) for shift, axis in cases] + [st.roll(x, (n, 1), (0, 1))]

    got = rolled(x, 2)
    for (shift, axis), have in zip([*cases, ((2, 1), (0, 1))], got, strict=True):
        np.testing.assert_array_equal(have, np.roll(x, shift, axis))
    with pytest.raises(st.ShapeError, match="2 shifts for 3 axes"):
        st.roll(x, (1, 2), (0, 1, 0))


def test_what_hints_write_in_place_of_numpys_functions_is_equal_to_them() -> None:
    a = np.random.default_rng(0).normal(size=6)
    y, n, m, i, degree = 2.0 * a**2 - a + 0.5, 5, 3, 7, 2
    expected = {
        "ravel": [a],
        "identity": [np.identity(5)],
        "tri": [np.tri(5, 3)],
        "vander": [np.vander(a, 5, increasing=True)],
        "polyfit": [np.polyfit(a, y, 2)[::-1]],
        "unravel_index": [None],
    }
    for name, results in expected.items():
        codes = re.findall(r"`([^`]*)`", EQUIVALENTS[name])
        for code, result in zip(codes, results, strict=True):
            x = st.asarray(a)
            space = {"st": st, "x": x, "y": y, "n": n, "m": m, "i": i, "degree": degree}
            if result is None:
                exec(code, space)
                np.testing.assert_array_equal((space["row"], space["column"]), np.unravel_index(i, (9, n)))
            else:
                np.testing.assert_allclose(eval(code, space), result, rtol=1e-9, atol=1e-12, err_msg=name)
