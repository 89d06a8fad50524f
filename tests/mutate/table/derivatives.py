"""Faults planted in derivatives: rules at special points, which rules are used, what a gradient is by."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_POINTS = "tests/ops/test_special_points.py"
_TARGETS = "tests/frontend/test_gradient_targets.py"
_STATE = "tests/frontend/test_state_in_transforms.py"
_TORCH = f"{_POINTS}::test_both_modes_have_torchs_values_at_special_points"
_HESSIANS = f"{_POINTS}::test_hessians_at_special_points_are_symmetric_and_right"
_NAN = f"{_POINTS}::test_a_nan_is_in_the_value_and_in_its_gradient"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the slope of softsign is a difference that far arguments round to 0",
        "library.elementwise.activations:_softsign_slope",
        "t / size / size",
        "t * ((1.0 - abs_(x) / size) / size)",
        ("tests/ops/test_saturated.py",),
    ),
    Mutant(
        "a zero times an infinite slope of a branch that is not chosen is NaN",
        "autodiff.inactive:kept",
        "(cotangent == 0) & (given != given)",
        "(cotangent != 0) & (given != given)",
        ("tests/ops/test_special_points.py", "-k", "beside_where or does_not_choose"),
    ),
    Mutant(
        "a cotangent that is 0 by chance has no second derivative",
        "autodiff.inactive:kept",
        "(cotangent == 0) & (given != given)",
        "cotangent == 0",
        ("tests/ops/test_special_points.py", "-k", "beside_where or does_not_choose"),
    ),
    Mutant(
        "numbers of the primal count as constants beside `where`",
        "autodiff.inactive:has_slope",
        "not number or not math.isfinite(number)",
        "number is not None and not math.isfinite(number)",
        ("tests/ops/test_special_points.py", "-k", "beside_where or does_not_choose"),
    ),
    Mutant(
        "the sum of two cotangents of branches that are not chosen counts as chosen",
        "autodiff.reverse:Reverse.accumulate",
        "before in self.inactive and cotangent in self.inactive",
        "False",
        ("tests/ops/test_special_points.py", "-k", "beside_where"),
    ),
    Mutant(
        "the tape counts the sum of two cotangents of branches that are not chosen as chosen",
        "eager_mode.tape:Tape.pull_back.add",
        "id(known) in inactive and id(cotangent) in inactive",
        "False",
        ("tests/ops/test_special_points.py", "-k", "beside_where"),
    ),
    Mutant(
        "forward mode differentiates the body of a composite that has rules",
        "autodiff.forward:forward_composite",
        'COMPOSITES[op.attrs["name"]].is_one_op',
        "False",
        (f"{_POINTS}::test_compiled_modes_agree_with_each_other_and_with_eager_mode",),
    ),
    Mutant(
        "eager derivatives go through the body of a composite that has rules",
        "ops.composite:Composite.__call__",
        "self.is_one_op",
        "False",
        (f"{_POINTS}::test_a_composite_with_both_rules_is_one_op_to_eager_derivatives",),
    ),
    Mutant(
        "the slope of softplus overflows when it is differentiated",
        "library.elementwise.activations:_softplus",
        "sigmoid(x)",
        "1.0 / (exp(-x) + 1.0)",
        (f"{_POINTS}::test_second_derivatives_far_from_zero_vanish",),
    ),
    Mutant(
        "the shares of a sum of nothing but -inf are NaN",
        "library.elementwise.activations:_shares",
        "where(top == -math.inf, 0.0, top)",
        "top",
        (_TORCH,),
    ),
    Mutant(
        "a standard deviation of 0 has a second derivative",
        "ops.reduction:std",
        "_zeros_like(spread)",
        "spread",
        (_HESSIANS,),
    ),
    Mutant(
        "the base of 0 ** 0 goes into its own slope",
        "ops.elementwise:_slope_of_base",
        "select(lost, ones_of(a), a)",
        "a",
        (_TORCH,),
    ),
    Mutant(
        "the slope by the base forgets the exponent where that is 0",
        "ops.elementwise:_slope_of_base",
        "t * (b * _general_power(select(lost, ones_of(a), a), b - 1.0))",
        "select(b == 0, zeros_of(t), t * (b * _general_power(select(lost, ones_of(a), a), b - 1.0)))",
        (_HESSIANS,),
    ),
    Mutant(
        "0 ** 0 has an infinite slope by its exponent",
        "ops.elementwise:_slope_of_exponent",
        "(a == 0) & (b >= 0)",
        "(a == 0) & (b > 0)",
        (_TORCH,),
    ),
    Mutant(
        "the squares of an angle's sides leave the range",
        "ops.elementwise:_per_square",
        "select(is_origin | isinf(length), ones_of(length), length)",
        "ones_of(length)",
        (_TORCH,),
    ),
    Mutant(
        "an angle at the origin has a slope",
        "ops.elementwise:_per_square",
        "zeros_of(t)",
        "t",
        (_TORCH,),
    ),
    Mutant(
        "the peak of the logits joins the logarithm before the picked one leaves",
        "library.losses.losses:_cross_entropy",
        "log_sum - score",
        "(log_sum + top) - _picked(logits, labels)",
        (f"{_POINTS}::test_the_loss_of_large_equal_logits_is_the_logarithm_of_their_number",),
    ),
    Mutant(
        "the probabilities of large logits are rounded off",
        "library.losses.losses:_probabilities",
        "logits - expand_dims(peak, -1) - expand_dims(log_sum, -1)",
        "logits - expand_dims(peak + log_sum, -1)",
        (_TORCH,),
    ),
    Mutant(
        "a NaN among the elements leaves the gradient of their maximum",
        "ops.reduction:_extreme_vjp",
        "select(count == 0, y, _zeros_like(y))",
        "_zeros_like(y)",
        (_NAN,),
    ),
    Mutant(
        "an infinite norm passes the slope of its sum",
        "library.elementwise.normalization:norm",
        "stop_gradient(total if ord > 0 else 1.0 / total)",
        "total if ord > 0 else 1.0 / total",
        (f"{_POINTS}::test_an_infinite_norm_gives_finite_elements_the_derivative_0",),
    ),
    Mutant(
        "a NaN probability is a loss of 100",
        "library.losses.losses:_log_from",
        "abs_(p) <= math.exp(-100.0)",
        "(p > math.exp(-100.0)) == (p > math.inf)",
        (_NAN,),
    ),
    Mutant(
        "of an argument that is named twice, one gradient is 0",
        "frontend.transforms.gradient:_Target._by_arguments",
        "list(dict.fromkeys(asked))",
        "asked",
        (_TARGETS,),
    ),
    Mutant(
        "of an argument that is named twice, one Jacobian is 0",
        "frontend.transforms.jacobian:_Call.__init__",
        "list(dict.fromkeys(asked))",
        "asked",
        (_TARGETS,),
    ),
    Mutant(
        "what `or` may not reach writes state twice",
        "frontend.constructs.boolean:_connect",
        "tracked(trace, scope)",
        "[scope]",
        (_STATE,),
    ),
    Mutant(
        "cofactors of a larger singular matrix are differentiated",
        "library.linalg.lu:_cofactors",
        "_once(found, stop_gradient(y))[0]",
        "found",
        ("tests/ops/test_linalg.py::test_the_second_derivative_of_a_larger_singular_determinant_stops",),
    ),
)
