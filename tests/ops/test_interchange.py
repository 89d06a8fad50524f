"""Arrays of other libraries as arguments: read in place, by every protocol, and never as they were in an earlier call."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ops.interchange import elements
from tests.errors.said import refuses

X = np.arange(10, dtype=np.float32)


class Holder:
    def __init__(self, array: Any) -> None:
        self.array = array


class Interface(Holder):
    """Like PIL's images: a property of the class."""

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class OwnInterface(Holder):
    """An attribute of the object, as for memory of C that someone has wrapped."""

    def __init__(self, array: Any) -> None:
        super().__init__(array)
        self.__array_interface__ = array.__array_interface__


class Struct(Holder):
    @property
    def __array_struct__(self) -> Any:
        return self.array.__array_struct__


class DLPack(Holder):
    def __dlpack__(self, **words: Any) -> Any:
        return self.array.__dlpack__(**words)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Protocol(Holder):
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.array if dtype is None else self.array.astype(dtype)


OFFERS = [Interface, OwnInterface, Struct, DLPack, Protocol]


@pytest.fixture(scope="module")
def double() -> Any:
    return st.function(lambda x: x * 2.0 + 1.0)


@pytest.mark.parametrize("offer", OFFERS)
def test_elements_are_read_in_place(offer: Callable[[Any], Any], double: Any) -> None:
    array = X.copy()
    given = offer(array)
    assert np.shares_memory(elements(given), array)
    program = double.stage(X)
    for call in (double, program):
        for number in (3.0, 4.0):
            array[0] = number
            assert call(given).tolist() == (array * 2 + 1).tolist()
    with st.eager():
        assert double(given).tolist() == (array * 2 + 1).tolist()


def test_a_call_with_another_librarys_array_is_not_traced_again() -> None:
    double = st.function(lambda x: x * 2.0 + 1.0)
    for _ in range(4):
        double(Interface(X.copy()))
    assert [program.calls for program in double.programs] == [4]
    assert double(Interface(np.ones(3))).tolist() == [3.0, 3.0, 3.0]
    assert double(Interface(np.ones((3, 1), np.float32))).shape == (3, 1)
    assert double(DLPack(X)).tolist() == (X * 2 + 1).tolist()
    assert double(Interface(X)).tolist() == (X * 2 + 1).tolist()


def layouts() -> dict[str, Any]:
    wide = np.arange(20, dtype=np.float32)
    fixed = X.copy()
    fixed.flags.writeable = False
    bytes_ = np.zeros(41, np.uint8)
    odd = bytes_[1:].view(np.float32)
    odd[...] = X
    return {
        "strided": wide[::2], "reversed": X[::-1], "read-only": fixed, "other byte order": X.astype(">f4"),
        "repeated": np.broadcast_to(np.float32(3), 10), "unaligned": odd,
        "column": np.asfortranarray(np.stack([X, X + 1]))[1],
    }  # fmt: skip


@pytest.mark.parametrize("layout", layouts())
def test_any_layout_gives_the_elements(layout: str, double: Any) -> None:
    given = layouts()[layout]
    wanted = (given.astype(np.float32) * 2 + 1).tolist()
    program = double.stage(X)
    for call in (double, double, program):
        assert call(given).tolist() == wanted
        if layout not in ("other byte order", "repeated", "read-only"):
            assert call(Interface(given)).tolist() == wanted
    with st.eager():
        assert double(given).tolist() == wanted


def test_memory_lives_until_the_call_is_over(double: Any) -> None:
    """Only the array that the protocol gives holds it."""

    class Fresh:
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            return np.full(1 << 18, 2.0, np.float32)

    program = double.stage(np.zeros(1 << 18, np.float32))
    for _ in range(5):
        for call in (double, program):
            result = call(Fresh())
            gc.collect()
            assert (result == 5.0).all()


def test_numbers_of_numpy() -> None:
    scaled = st.function(lambda x, n: x * n)
    for number in (np.float32(2.5), np.float64(2.5), np.int32(-3), np.int64(7), np.uint8(200), np.bool_(True)):
        program = scaled.stage(X, number)
        wanted = np.asarray(scaled(X, np.asarray(number)))
        for call in (scaled, scaled, program):
            found = call(X, number)
            assert found.dtype == wanted.dtype
            assert found.tolist() == wanted.tolist() == (X * number).tolist()
        program._sorted_out = None  # the long way
        assert program(X, number).tolist() == wanted.tolist()


def test_results_are_the_callers_to_keep(double: Any) -> None:
    program = double.stage(X)
    large = np.zeros(1 << 19, np.float32)
    large_program = double.stage(large)
    kept = [(call(given), (given * 2 + 1)) for call, given in
            [(double, X), (program, X + 1), (double, large), (large_program, large + 1)] * 3]  # fmt: skip
    for number in range(4):
        for call, given in ((double, X), (program, X), (double, large), (large_program, large)):
            call(given + np.float32(number + 10))
    for result, wanted in kept:
        assert type(result) is np.ndarray
        assert result.flags.writeable
        assert (result == wanted).all()


def test_an_outer_array_of_another_library_is_read_as_it_is_now() -> None:
    """Its memory may be another without it being another object."""
    outer = Interface(X.copy())
    add = st.function(lambda x: x + st.sin(outer))
    assert add(X).tolist() == (X + np.sin(X)).tolist()
    outer.array[...] = 5.0
    assert np.allclose(add(X), X + np.sin(outer.array))
    outer.array = np.full(10, 7.0, np.float32)
    assert np.allclose(add(X), X + np.sin(outer.array))


def test_an_outer_tensor_is_read_as_it_is_now(library: Any) -> None:
    """Nothing of Python's tells where it keeps its elements."""
    torch = library("torch")
    outer = torch.arange(10, dtype=torch.float32)
    add = st.function(lambda x: x + st.sin(outer))
    assert np.allclose(add(X), X + np.sin(X))
    outer.add_(1)
    assert np.allclose(add(X), X + np.sin(X + 1))
    outer.data = torch.zeros(10)
    assert np.allclose(add(X), X)
    assert "a Tensor from outside is read" in add.why_traced()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda torch: torch.ones(10, requires_grad=True), "requires grad"),
        (lambda torch: torch.nn.Parameter(torch.ones(10)), "requires grad"),
        (lambda torch: torch.ones(10, dtype=torch.float8_e5m2), "Float8"),
        (lambda torch: torch.ones(10).to_sparse(), "Sparse"),
        (lambda torch: torch.empty(10, device="meta"), "meta"),
        (lambda torch: torch.conj(torch.ones(10, dtype=torch.complex64)), "conjugate"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_refused(make: Any, words: str, library: Any, double: Any) -> None:
    tensor = make(library("torch"))
    for call in (double, double.stage(X)):
        with refuses(st.DTypeError, words) as refused:
            call(tensor)
        assert "test_interchange.py" in str(refused.value)


def test_tensors_are_read_in_place(library: Any) -> None:
    torch = library("torch")
    double = st.function(lambda x: x * 2.0 + 1.0)
    tensor = torch.arange(10, dtype=torch.float32)
    for _ in range(3):
        tensor.add_(1)
        assert double(tensor).tolist() == (tensor * 2 + 1).tolist()
    assert double.programs[0].calls == 3
    assert double(tensor[::2]).tolist() == (tensor[::2] * 2 + 1).tolist()
    assert double(tensor.reshape(2, 5).T).tolist() == (tensor.reshape(2, 5).T * 2 + 1).tolist()
    assert np.shares_memory(elements(tensor), tensor.numpy())
    tensor.requires_grad_(True)  # the same object
    with pytest.raises(st.DTypeError, match="requires grad"):
        double(tensor)


def test_tensors_of_half_precision_are_read(library: Any, double: Any) -> None:
    torch = library("torch")
    for name in ("float16", "bfloat16"):
        tensor = torch.linspace(-1, 1, 10).to(getattr(torch, name))
        wanted = (tensor * 2 + 1).float().numpy()
        found = double(tensor)
        assert found.dtype.name == name
        np.testing.assert_array_equal(found.astype(np.float32), wanted)
        assert st.softmax(tensor).dtype == st.dtype_of(name)
        np.testing.assert_allclose(
            np.asarray(st.softmax(tensor)).astype(np.float32), torch.softmax(tensor, 0).float().numpy(), rtol=2**-7
        )
