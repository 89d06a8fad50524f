"""Nouns for values that neither the user nor the library names, and verbs for ops that move or draw elements.

A noun describes the value, not the op. The table has names of ops because nouns are for readers alone: passes do not
use them.

Tested by `tests/ir/test_names.py`.
"""

from __future__ import annotations

from staged.ir.declaration import prims
from staged.ir.nodes import Op

_LISTED = """
select chosen, cast converted, fit number, exp exponential, expm1 exponential, log logarithm, log1p logarithm,
log2 logarithm, log10 logarithm, sqrt root, rsqrt inverse_root, cbrt root, sin sine, cos cosine, tan slope, asin angle,
acos angle, atan angle, atan2 angle, sinh hyperbolic_sine, cosh hyperbolic_cosine, tanh squashed, erf error_integral,
erfc error_tail, floor whole, ceil whole, trunc whole, round whole, isnan is_invalid, isinf is_infinite,
isfinite is_usual, negative opposite, square squared, abs magnitude, sign direction, add total, accumulate total,
subtract difference, multiply scaled, divide ratio, maximum larger, minimum smaller, logaddexp log_of_both,
floor_divide quotient, remainder rest, pow power, equal is_same, not_equal differs, less is_below,
less_equal is_at_most, greater is_above, greater_equal is_at_least, logical_and both, logical_or either,
logical_xor just_one, logical_not opposite, bitwise_and common_bits, bitwise_or joined_bits, bitwise_xor mixed_bits,
bitwise_left_shift moved_bits, bitwise_right_shift moved_bits, bitwise_invert opposite_bits, index_check index,
sum total, max largest, min smallest, any any_holds, all each_holds, argmax place, argmin place, prod whole_product,
broadcast_to repeated, reshape view, permute turned, slice piece, dynamic_slice piece, pad framed, concat joined,
matmul product, conv2d response, conv2d_backward_input spread_back, conv2d_backward_weight correlation,
dynamic_update updated, take picked, take_along picked, scatter updated, scatter_add collected,
scatter_add_along collected, scatter_reduce collected, scatter_reduce_along collected, max_pool2d largest,
max_pool2d_backward spread_back, avg_pool2d average, avg_pool2d_backward spread_back, sort ordered,
random_bits bits, uniform draw, normal noise, bernoulli kept, log_gamma_draw draw, poisson_draw draw,
binomial_draw draw, permutation order, linear_recurrence state, cumsum running_total, cumprod running_product,
logcumsumexp running_log, cumargmax place, cumargmin place, iota index, real_part real, imag_part imaginary,
rank own_rank, ranks rank_count, vary own, all_reduce reduced, all_gather gathered, shard part,
reduce_scatter reduced_part, all_to_all exchanged, broadcast received, shift_ranks shifted
"""
NOUNS = dict(each.split() for each in _LISTED.replace("\n", " ").split(","))
NOUNS_ALONE = frozenset(NOUNS.values())
"""Nouns that say nothing without the name of another value."""
_FURTHER = {"max_pool2d": "places", "sort": "places", "cumargmax": "places", "cumargmin": "places"}
"""The nouns for results after the first."""


def noun_of(op: Op, index: int = 0) -> str:
    """The noun for a result of an op; the name of an op that is not a primitive."""
    if op.declared is prims.SUM and _is_of_truths(op):
        return "count"
    return (_FURTHER if index else NOUNS).get(op.name) or NOUNS.get(op.name, op.name)


def _is_of_truths(op: Op) -> bool:
    made = op.operands[0].producer
    return made is not None and made.declared is prims.CAST and made.operands[0].tensor.dtype.is_bool


_VERBS = {
    **dict.fromkeys(("random_bits", "uniform", "normal", "bernoulli", "permutation"), "draw"),
    **dict.fromkeys(("take", "take_along"), "gather"),
    **dict.fromkeys(("scatter_add", "scatter_add_along"), "scatter"),
    "permute": "transpose",
    "dynamic_update": "store",
    "concat": "join",
    "pad": "pad",
}
"""Verbs of kernels, by the names of ops: they are for readers alone."""


def verb_of(op: Op) -> str:
    """The verb for an op that moves or draws elements, else nothing."""
    return _VERBS.get(op.name, "")
