"""NumPy arrays of classes of their own are refused where their meaning would be lost; plain ones are taken however they lie."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st


class Metres(np.ndarray):
    """Stands for a library's quantities with units."""


MASKED = np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])
LOST = {
    "masked": (MASKED, "MaskedArray: its mask would be lost", "getmaskarray"),
    "masked element": (np.ma.masked, "MaskedConstant: its mask would be lost", "filled"),
    "matrix": (np.arange(4.0).reshape(2, 2).view(np.matrix), "matrix: `*` of matrices is a product", "np.asarray"),
    "units": (np.arange(3.0).view(Metres), "Metres: what its class adds", "np.asarray"),
    "record": (np.rec.array([(1.0, 2.0)], dtype=[("a", "f8"), ("b", "f8")]), "recarray: what its class adds", "np.asarray"),
}


@st.function
def double(x):
    return x * 2


def closed_over(array):
    @st.function
    def scale(y):
        return st.asarray(array) * y

    return scale(2.0)


def eagerly(array):
    with st.eager():
        return double(array)


WAYS = {
    "argument": double,
    "static shape, argument of a program": lambda array: double.stage(np.ones(3))(array),
    "eager": eagerly,
    "closed over": closed_over,
    "in the code": lambda array: st.function(lambda y: y * array)(2.0),
    "operand": lambda array: st.multiply(array, 2.0),
    "element of a list": lambda array: st.asarray([array, array]),
    "Variable": st.Variable,
    "in a tree": lambda array: st.function(lambda tree: tree["x"] * 2)({"x": array}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LOST)
def test_an_array_whose_meaning_would_be_lost_is_refused(name, way) -> None:
    array, why, hint = LOST[name]
    with pytest.raises(st.DTypeError) as caught:
        WAYS[way](array)
    assert why in caught.value.message
    assert hint in caught.value.hint


def unaligned() -> np.ndarray:
    return np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64)


def read_only() -> np.ndarray:
    array = np.arange(3.0)
    array.setflags(write=False)
    return array


@pytest.mark.parametrize(
    "array",
    [
        read_only(),
        unaligned(),
        np.arange(6.0)[::2],
        np.arange(3.0)[::-1],
        np.arange(6.0).reshape(2, 3).T,
        np.broadcast_to(np.float64(3.0), (2, 2)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3.0),
    ],
)
def test_plain_arrays_are_taken_however_they_lie(array) -> None:
    for way in (double, eagerly, closed_over):
        np.testing.assert_array_equal(np.asarray(way(array)), array * 2)


def test_a_memory_map_is_its_elements(tmp_path) -> None:
    mapped = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(3,))
    mapped[:] = [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(double(mapped), [2.0, 4.0, 6.0])


def test_bytes_in_the_other_order_are_turned_round_in_arguments_and_refused_elsewhere() -> None:
    """A call copies them; by reference they would have to be copied each time."""
    array = np.arange(3.0).astype(">f8")
    for name in ("argument", "static shape, argument of a program", "eager", "in a tree"):
        np.testing.assert_array_equal(WAYS[name](array), [0.0, 2.0, 4.0])
    for name in ("closed over", "in the code", "operand", "Variable"):
        with pytest.raises(st.DTypeError, match=">f8"):
            WAYS[name](array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([1, 2], object),
        np.zeros(2, [("a", "f4")]),
        np.array(["a"]),
        np.array(["2020-01-01"], "M8[D]"),
        np.ones(2, np.longdouble),
    ],
    ids=lambda array: str(array.dtype),
)
def test_dtypes_that_there_are_not_are_refused_everywhere(array) -> None:
    for name, way in WAYS.items():
        if name != "element of a list" or array.dtype.kind != "f":  # NumPy makes native arrays of lists
            with pytest.raises(st.DTypeError):
                way(array)
