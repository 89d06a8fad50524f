"""Memory of results: used again only when nobody can see it any more."""

import gc

import numpy as np

from staged.runtime.results import WORTH_KEEPING, Results

SHAPE = (WORTH_KEEPING // 4,)
F32 = np.dtype(np.float32)


def address(array):
    return array.__array_interface__["data"][0]


def test_a_dropped_result_gives_its_memory_to_the_next():
    results = Results()
    first = results.fresh(SHAPE, F32)
    where = address(first)
    del first
    assert address(results.fresh(SHAPE, F32)) == where


def test_results_and_views_that_are_held_are_never_written_again():
    results = Results()
    held = [results.fresh(SHAPE, F32) for _ in range(5)]
    for number, array in enumerate(held):
        array.fill(number)
    view = held[0][10:20].reshape(2, 5).T
    del held[0]
    gc.collect()
    for _ in range(10):
        results.fresh(SHAPE, F32).fill(-1)
    assert np.all(view == 0) and [array[0] for array in held] == [1, 2, 3, 4]


def test_sizes_and_shapes_do_not_mix():
    results = Results()
    assert results.fresh((2, WORTH_KEEPING), F32).shape == (2, WORTH_KEEPING)
    assert results.fresh((WORTH_KEEPING, 2), F32).shape == (WORTH_KEEPING, 2)
    assert results.fresh((3,), F32).flags.owndata
