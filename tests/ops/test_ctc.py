"""CTC loss against PyTorch and against a sum over all alignments: values, gradients, lengths, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals, refuses
from tests.ops.against_torch import agree_compiled

RNG = np.random.default_rng(11)
T, N, C, S = 9, 5, 6, 4
SCORES = RNG.standard_normal((T, N, C)) * 2
TARGETS = RNG.integers(1, C, (N, S))
TARGETS[1] = TARGETS[1, 0]  # equal labels need a blank between them
TARGETS[2, 2:] = -7  # what stands behind a text is padding
INPUTS, LENGTHS = np.array([9, 9, 6, 8, 5]), np.array([4, 3, 2, 0, 1])


def spelled(path, blank):
    """The labels that a path spells: repetitions merged, blanks dropped."""
    return [label for label, _ in itertools.groupby(path) if label != blank]


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_loss_agrees_with_torch(reduction, blank) -> None:
    targets = np.where(TARGETS == blank, 1, TARGETS)

    def theirs(F, x):
        import torch

        padded = torch.tensor(np.maximum(targets, 0))
        lengths = torch.tensor(INPUTS), torch.tensor(LENGTHS)
        return F.ctc_loss(x.log_softmax(-1), padded, *lengths, blank=blank, reduction=reduction)

    agree_compiled(
        lambda x: st.ctc_loss(st.log_softmax(x), targets, INPUTS, LENGTHS, blank=blank, reduction=reduction),
        theirs,
        SCORES,
    )


def test_the_likelihood_is_the_sum_over_all_alignments() -> None:
    log_probs = np.log(RNG.dirichlet(np.ones(3), 5))
    for target in ([], [1], [1, 2], [2, 2], [1, 2, 1]):
        total = sum(
            np.exp(sum(log_probs[t, label] for t, label in enumerate(path)))
            for path in itertools.product(range(3), repeat=5)
            if spelled(path, 0) == target
        )
        loss = st.ctc_loss(log_probs, np.array(target, np.int64), 5, len(target), reduction="sum")
        np.testing.assert_allclose(float(loss), -np.log(total), rtol=1e-12)


def test_the_gradient_is_that_of_the_formula() -> None:
    log_probs = np.log(RNG.dirichlet(np.ones(4), (6, 2)))

    def loss(x):
        return st.ctc_loss(x, np.array([[1, 1], [3, 2]]), np.array([6, 4]), np.array([2, 2]), reduction="sum")

    st.check_grads(loss, (log_probs,))
    second = st.grad(lambda x: st.sum(st.grad(loss)(x) * np.cos(np.arange(48.0)).reshape(6, 2, 4)))(log_probs)
    direction = RNG.standard_normal(log_probs.shape)
    ends = [np.asarray(st.grad(loss)(log_probs + s * 1e-6 * direction)) for s in (1.0, -1.0)]
    slope = float(np.sum((ends[0] - ends[1]) * np.cos(np.arange(48.0)).reshape(6, 2, 4))) / 2e-6
    np.testing.assert_allclose(float(np.sum(np.asarray(second) * direction)), slope, rtol=1e-6)


def test_a_text_without_an_alignment_has_an_infinite_loss_and_no_gradient() -> None:
    arguments = (np.array([[1, 1], [1, 2]]), np.array([2, 2]), np.array([2, 2]))

    @st.function
    def run(x):
        def loss(x):
            return st.ctc_loss(st.log_softmax(x), *arguments, reduction="none")

        zeroed = st.ctc_loss(st.log_softmax(x), *arguments, reduction="none", zero_infinity=True)
        return loss(x), zeroed, st.grad(lambda x: st.sum(loss(x)))(x)

    losses, zeroed, back = run(SCORES[:2, :2].astype(np.float32))
    assert losses[0] == np.inf and np.isfinite(losses[1])
    assert zeroed[0] == 0.0 and zeroed[1] == losses[1]
    assert not back[:, 0].any() and np.isfinite(back).all() and back[:, 1].any()


def test_an_input_of_no_steps_spells_nothing() -> None:
    def both(x):
        return st.value_and_grad(
            lambda x: st.sum(st.ctc_loss(st.log_softmax(x), TARGETS[:2], INPUTS[:2] * 0, np.array([0, 2]), reduction="none"))
        )(x)

    for run in (both, st.function(both)):
        loss, back = run(np.zeros((0, 2, C)))
        assert float(loss) == np.inf and back.shape == (0, 2, C)


def test_probabilities_of_zero_are_no_nan() -> None:
    log_probs = np.full((3, 1, 3), -np.inf)
    log_probs[[0, 1, 2], 0, [1, 0, 2]] = 0.0
    value, back = st.value_and_grad(lambda x: st.ctc_loss(x, np.array([[1, 2]]), np.array([3]), np.array([2])))(log_probs)
    assert float(value) == 0.0
    np.testing.assert_allclose(back[:, 0], -0.5 * (log_probs[:, 0] == 0.0))


@pytest.mark.parametrize(
    ("inputs", "lengths", "label", "said"),
    [
        (10, 2, 1, "length 10 is out of range: there are 10 lengths"),
        (-1, 2, 1, "length -1 is out of range: there are 10 lengths"),
        (9, 5, 1, "length 5 is out of range: there are 5 lengths"),
        (9, -1, 1, "length -1 is out of range: there are 5 lengths"),
        (9, 2, 6, "label 6 is out of range for an alphabet of 6"),
        (9, 2, -1, "label -1 is out of range for an alphabet of 6"),
    ],
)
def test_lengths_and_labels_out_of_range_stop_the_program(inputs, lengths, label, said) -> None:
    @st.function
    def run(x, targets, inputs, lengths):
        return st.ctc_loss(x, targets, inputs, lengths)  # here

    for mode in (run, run.__wrapped__):
        with refuses(IndexError, said) as caught:
            mode(SCORES[:, :1], np.full((1, S), label), np.array([inputs]), np.array([lengths]))
        assert "# here" in str(caught.value)


test_bad_calls_are_refused_with_the_line = refusals(
    (lambda x: st.ctc_loss(x, TARGETS.reshape(-1), INPUTS, LENGTHS), r"targets \(N, S\)"),
    (lambda x: st.ctc_loss(x, TARGETS[:3], INPUTS, LENGTHS), r"targets \(N, S\)"),
    (lambda x: st.ctc_loss(x, TARGETS, INPUTS[:2], LENGTHS), "one of input_lengths"),
    (lambda x: st.ctc_loss(x, TARGETS, INPUTS, LENGTHS * 1.0), "integer target_lengths"),
    (lambda x: st.ctc_loss(x, TARGETS * 1.0, INPUTS, LENGTHS), "integer targets"),
    (lambda x: st.ctc_loss(x, TARGETS, INPUTS, LENGTHS, blank=6), "the blank is one of 6"),
    (lambda x: st.ctc_loss(x, TARGETS, INPUTS, LENGTHS, reduction="max"), "reduction is"),
    given=(SCORES,),
)
