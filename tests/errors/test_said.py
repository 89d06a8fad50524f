"""The helper of tables of refusals: words that stand only in the cited line are not found."""

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals, refuses, words_of


def test_words_of_the_cited_line_are_not_the_errors() -> None:
    call, words = (lambda: st.one_hot(np.array([0]), -1), "only this row says so")
    with pytest.raises(st.StagedError, match=words):
        call()
    with pytest.raises(AssertionError, match="is not in what was said"), refuses(st.StagedError, words):
        call()
    with refuses(st.StagedError, "not negative") as caught:
        call()
    assert words not in words_of(caught.value) and words in str(caught.value)


def test_an_error_that_does_not_cite_the_call_is_found() -> None:
    def call() -> None:
        raise KeyError("words")

    with pytest.raises(AssertionError, match=r"test_said.py, line is not in what was said:\n'words'"):
        refusals((call, "words"), usual=KeyError)("0: words")


def test_details_and_hints_are_the_errors() -> None:
    error = st.ArgumentError("a message", details=["x:  f32"], hint="do this")
    assert words_of(error) == "a message\nx:  f32\ndo this"
    assert words_of(KeyError("a")) == "'a'"
