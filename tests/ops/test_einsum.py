"""Einstein sums against NumPy's, each in one program with all others, and the order of their products."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.testing import compare_trees
from tests.errors.said import refusals

RNG = np.random.default_rng(5)
CASES = {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "ij,kj->ik": ((2, 3), (4, 3)),
    "ji,jk->ki": ((3, 2), (3, 4)),
    "ba,cb": ((2, 3), (4, 2)),
    "ij,ij->": ((2, 3), (2, 3)),
    "ij,ij->j": ((2, 3), (2, 3)),
    "i,j->ji": ((2,), (3,)),
    "i,i": ((3,), (3,)),
    "ij->ji": ((2, 3),),
    "ba": ((2, 3),),
    "ij->": ((2, 3),),
    "ii": ((3, 3),),
    "ii->i": ((3, 3),),
    "iji->ij": ((3, 2, 3),),
    "iii->i": ((3, 3, 3),),
    "iijj->ij": ((2, 2, 3, 3),),
    "ii,ij->j": ((3, 3), (3, 2)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhqd,bhkd->bhqk": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bqhd,bkhd->bhqk": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "...ij,...jk->...ik": ((2, 1, 3, 4), (5, 4, 2)),
    "...i,...i": ((2, 3, 4), (4,)),
    "i...,j...": ((2, 3), (4, 3)),
    "i...j->j...": ((2, 3, 4, 5),),
    "...": ((2, 3),),
    "...,...->...": ((2, 1), (3,)),
    "ij,jk->ik ": ((2, 1), (3, 4)),
    "ij,jk,kl->il": ((2, 3), (3, 4), (4, 5)),
    "ij,jk,kl,lm": ((2, 3), (3, 4), (4, 5), (5, 2)),
    "a,b,c,d,e,f,g,h,h->abc": ((2,), (2,), (2,), (2,), (2,), (2,), (2,), (3,), (3,)),
    "abc,cd,def->fb": ((2, 3, 4), (4, 5), (5, 2, 3)),
    "ij,k->i": ((2, 3), (4,)),
    "ij,jk,ik->": ((2, 3), (3, 4), (2, 4)),
    "i,->i": ((3,), ()),
    "ij,j->i": ((2, 0), (0,)),
}
OPERANDS = {text: [RNG.standard_normal(shape) for shape in shapes] for text, shapes in CASES.items()}


def all_of(operands):
    return {text: st.einsum(text, *given) for text, given in operands.items()}


def expected(operands):
    return {text: np.array(np.einsum(text.replace(" ", ""), *given)) for text, given in operands.items()}


@pytest.mark.parametrize("text", CASES)
def test_values_are_numpys(text: str) -> None:
    compare_trees(st.einsum(text, *map(wrap, OPERANDS[text])), expected(OPERANDS)[text], rtol=1e-13, atol=1e-13)


def test_a_program_its_map_and_integers_give_the_same() -> None:
    compare_trees(st.function(all_of)(OPERANDS), expected(OPERANDS), rtol=1e-13, atol=1e-13)
    twice = {text: [np.stack([x, 2 * x]) for x in given] for text, given in OPERANDS.items()}
    mapped = st.function(st.vmap(all_of))(twice)
    doubled = expected({text: [2 * x for x in given] for text, given in OPERANDS.items()})
    compare_trees({text: value[1] for text, value in mapped.items()}, doubled, rtol=1e-12, atol=1e-12)
    integers = {text: [np.round(3 * x).astype(np.int32) for x in given] for text, given in OPERANDS.items()}
    compare_trees(st.function(all_of)(integers), expected(integers))


def test_derivatives_agree_with_differences() -> None:
    st.check_grads(all_of, (OPERANDS,), rtol=1e-5)


def test_a_device_gives_the_same(emulated_device) -> None:
    @st.function
    def program(operands):
        with st.with_backend(st.GPU, operands):
            return all_of(operands)

    given = {text: [x.astype(np.float32) for x in one] for text, one in OPERANDS.items()}
    compare_trees(program(given), st.function(all_of)(given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", [3, 9])
def test_products_are_taken_in_the_cheapest_order(count: int) -> None:
    """A chain of matrices whose last is a column is multiplied from the right: each product has a column."""
    letters = "abcdefghijkl"
    text = ",".join(letters[place : place + 2] for place in range(count))
    shapes = [(8, 8)] * (count - 1) + [(8, 1)]
    program = st.function(lambda *xs: st.einsum(f"{text}->{letters[0]}{letters[count]}", *xs))
    ir = program.stage(*(np.ones(shape) for shape in shapes)).ir
    products = re.findall(r"f64 \((\d, \d)\) = matmul\(", ir)
    assert len(products) == count - 1
    assert all("1" in shape for shape in products)


def test_an_ellipsis_that_the_result_lacks_is_summed_over_as_in_torch() -> None:
    x = RNG.standard_normal((2, 3, 4))
    np.testing.assert_allclose(np.asarray(st.einsum("...i->i", x)), x.sum((0, 1)), rtol=1e-13)


def test_torchs_list_and_numpys_function() -> None:
    a, b = OPERANDS["ij,jk"]
    for found in (st.einsum("ij,jk", [a, b]), np.einsum("ij,jk", wrap(a), wrap(b), optimize=True)):
        assert isinstance(found, st.Array)
        np.testing.assert_allclose(np.asarray(found), a @ b, rtol=1e-13)


X = np.ones((2, 3))
REFUSED = {
    "operands": (lambda: st.einsum("ij,jk", X), st.StagedError, "has 2 operands, and 1 are given"),
    "axes": (lambda: st.einsum("ijk", X), st.ShapeError, "does not fit"),
    "axes_left": (lambda: st.einsum("i", X), st.ShapeError, "does not fit"),
    "extents": (lambda: st.einsum("ij,ij", X, X.T), st.ShapeError, "`i` of `ij,ij` is 2 and 3"),
    "letters": (lambda: st.einsum("i1", X), st.StagedError, "labels are letters"),
    "result": (lambda: st.einsum("ij->ik", X), st.StagedError, "each label once"),
    "result_twice": (lambda: st.einsum("ij->ii", X), st.StagedError, "each label once"),
    "text": (lambda: st.einsum(X, "ij"), st.ArgumentError, "the text of its subscripts"),
}

test_refused_with_words = refusals(REFUSED)


@pytest.mark.parametrize("optimize", [True, False, "greedy", "optimal"])
def test_numpys_word_for_the_order_changes_nothing(optimize):
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    found = st.function(lambda a, b: st.einsum("ij,jk->ik", a, b, optimize=optimize))(a, b)
    np.testing.assert_allclose(found, np.einsum("ij,jk->ik", a, b, optimize=optimize), rtol=1e-14)
