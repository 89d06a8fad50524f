"""Dynamic programming: hidden Markov models, edit distance, and CTC by hand, with gradients."""

import itertools

import numpy as np

import staged as st
from tests.torch_reference import reference


def forward(start, moves, shows, seen):
    alpha = start + shows[:, seen[0]]
    for t in st.range(1, len(seen)):
        alpha = st.logsumexp(alpha[:, None] + moves, axis=0) + shows[:, seen[t]]
    return st.logsumexp(alpha)


@st.function
def baum_welch(start, moves, shows, sequences, rounds):
    """Expectation maximisation: the expected counts are the gradient of the likelihood."""

    def likelihood(start, moves, shows):
        return st.sum(st.vmap(lambda seen: forward(start, moves, shows, seen))(sequences))

    history = st.Stack(start[0], max=20)
    for _ in st.range(rounds):
        value, counts = st.value_and_grad(likelihood, argnums=(0, 1, 2))(start, moves, shows)
        start, moves, shows = (st.log(c / c.sum(axis=-1, keepdims=True)) for c in counts)
        history.append(value)
    return start, moves, shows, history.array(), len(history)


@st.function
def viterbi(start, moves, shows, seen):
    best = start + shows[:, seen[0]]
    came = st.zeros((len(seen), len(start)), dtype=int)
    for t in st.range(1, len(seen)):
        scores = best[:, None] + moves
        came[t] = scores.argmax(axis=0)
        best = scores.max(axis=0) + shows[:, seen[t]]
    path = st.zeros(len(seen), dtype=int)
    path[-1] = best.argmax()
    for t in reversed(st.range(1, len(seen))):
        path[t - 1] = came[t, path[t]]
    return path, best.max()


def normalised(rng, *shape):
    a = rng.random(shape)
    return np.log(a / a.sum(-1, keepdims=True))


def test_viterbi_is_the_best_of_all_paths():
    rng = np.random.default_rng(0)
    start, moves, shows = normalised(rng, 3), normalised(rng, 3, 3), normalised(rng, 3, 4)
    seen = rng.integers(0, 4, 6)
    path, best = viterbi(start, moves, shows, seen)

    def score(p):
        return (
            start[p[0]]
            + sum(moves[i, j] for i, j in itertools.pairwise(p))
            + sum(shows[i, s] for i, s in zip(p, seen, strict=True))
        )

    likeliest = max(itertools.product(range(3), repeat=6), key=score)
    assert tuple(path.tolist()) == likeliest
    np.testing.assert_allclose(best, score(likeliest), rtol=1e-12)


def test_expectation_maximisation_climbs():
    rng = np.random.default_rng(1)
    start, moves, shows = normalised(rng, 2), normalised(rng, 2, 2), normalised(rng, 2, 3)
    sequences = rng.integers(0, 3, (5, 8))
    found = baum_welch(start, moves, shows, sequences, 10)
    assert found[4] == 10
    history = found[3][:10]
    assert np.all(np.diff(history) > -1e-9) and history[-1] > history[0] + 0.5
    np.testing.assert_allclose(np.exp(found[1]).sum(axis=1), 1.0, rtol=1e-12)
    brute = sum(
        np.logaddexp.reduce(
            [
                start[p[0]]
                + sum(moves[i, j] for i, j in itertools.pairwise(p))
                + sum(shows[i, s] for i, s in zip(p, seen, strict=True))
                for p in itertools.product(range(2), repeat=8)
            ]
        )
        for seen in sequences
    )
    np.testing.assert_allclose(history[0], brute, rtol=1e-12)


@st.function
def edit_distance(a, b):
    row = st.arange(len(b) + 1)
    for i in st.range(len(a)):
        above = row
        row[0] = i + 1
        for j in st.range(len(b)):
            row[j + 1] = min(above[j + 1] + 1, row[j] + 1, above[j] + (a[i] != b[j]))
    return row[-1]


def test_edit_distance():
    letters = lambda word: np.frombuffer(word.encode(), np.uint8)
    assert edit_distance(letters("kitten"), letters("sitting")) == 3
    assert edit_distance(letters("intention"), letters("execution")) == 5


def ctc(log_probs, target, blank=0):
    """Minus the log-likelihood of one sequence: (T, C) log-probabilities, labels without repeats of the blank."""
    labels = st.zeros(2 * len(target) + 1, dtype=st.i64)
    labels[1::2] = target
    skip = st.concat([st.zeros(2, dtype=bool), (labels[2:] != blank) & (labels[2:] != labels[:-2])])
    alpha = st.where(st.arange(len(labels)) < 2, log_probs[0, labels], -np.inf)
    for t in st.range(1, len(log_probs)):
        one = st.pad(alpha, (1, 0), value=-1e30)[:-1]
        two = st.where(skip, st.pad(alpha, (2, 0), value=-1e30)[:-2], -1e30)
        alpha = st.logsumexp(st.stack([st.maximum(alpha, -1e30), one, two]), axis=0) + log_probs[t, labels]
    return -st.logaddexp(alpha[-1], alpha[-2])


def torch_ctc(torch, logits, target):
    x = torch.tensor(logits, requires_grad=True)
    loss = torch.nn.functional.ctc_loss(
        x.log_softmax(-1)[:, None],
        torch.tensor(target)[None],
        torch.tensor([len(x)]),
        torch.tensor([len(target)]),
        reduction="sum",
    )
    loss.backward()
    return loss, x.grad


def test_ctc_by_hand_is_the_librarys_and_torchs():
    rng = np.random.default_rng(2)
    logits, target = rng.normal(size=(9, 5)), np.array([2, 2, 4, 1])
    by_hand = st.function(st.value_and_grad(lambda x, y: ctc(st.log_softmax(x), y)))
    value, slope = by_hand(logits, target)
    expected, expected_slope = reference(torch_ctc, logits, target)
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-7, atol=1e-10)

    @st.function
    def library(x, y):
        return st.ctc_loss(st.log_softmax(x)[:, None], y[None], np.array([len(x)]), np.array([len(y)]), reduction="sum")

    np.testing.assert_allclose(library(logits, target), expected, rtol=1e-10)
