"""The transformer of the examples: training steps against PyTorch's from equal weights, and what it writes."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.transformer.train import BEGIN, DIGITS, Rewriter, train
from tests.torch_reference import reference

LENGTH, BATCH, STEPS, LR = 5, 8, 6, 3e-3


def torch_losses(torch: Any, weights: dict[str, np.ndarray], read: np.ndarray) -> np.ndarray:
    """The loss of each step of the same training."""
    F, width = torch.nn.functional, 32
    core = torch.nn.Transformer(width, 4, 1, 1, 4 * width, dropout=0.0, batch_first=True).double()
    core.load_state_dict(
        {
            name.removeprefix("transformer."): torch.tensor(value)
            for name, value in weights.items()
            if name.startswith("transformer.")
        }
    )
    rest = {
        name: torch.nn.Parameter(torch.tensor(value))
        for name, value in weights.items()
        if not name.startswith("transformer.")
    }
    optimizer = torch.optim.Adam([*core.parameters(), *rest.values()], lr=LR)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, dtype=torch.float64)
    losses = []
    for digits in torch.tensor(read):
        wanted = torch.sort(digits, dim=1).values
        written = torch.cat([torch.full((BATCH, 1), BEGIN), wanted[:, :-1]], dim=1)
        src, tgt = (F.embedding(each, rest["table.weight"]) + rest["places.weight"] for each in (digits, written))
        scores = F.linear(core(src, tgt, tgt_mask=mask), rest["out.weight"], rest["out.bias"])
        loss = F.cross_entropy(scores.reshape(-1, DIGITS), wanted.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def test_training_has_torchs_losses() -> None:
    options: dict[str, Any] = {"task": "sort", "length": LENGTH, "batch": BATCH, "dtype": st.f64}
    weights = {name: np.array(value) for name, value in train(0, LR, 7, **options)[0].items()}
    draws = st.random.Generator(7)
    read = np.array([np.asarray(draws.integers(0, DIGITS, (BATCH, LENGTH))) for _ in range(STEPS)])
    _, losses, _ = train(STEPS, LR, 7, **options)
    np.testing.assert_allclose(losses[:STEPS], reference(torch_losses, weights, read, computed=True), rtol=1e-8)


def test_strings_are_written_backwards_by_what_was_written_before() -> None:
    weights, losses, right = train(250, 5e-3, 0, length=4)
    assert losses[249] < 0.1 < 2.0 < losses[0] and right > 0.9
    model = Rewriter(4)
    model.load_state_dict(weights)
    read = np.array([[1, 2, 3, 4], [9, 0, 0, 7]])
    written = np.asarray(st.function(lambda read: model.write(read))(read))
    np.testing.assert_array_equal(written, read[:, ::-1])
    # The scores of a place do not depend on the digits that are written after it.
    scores = [np.asarray(model(read, np.array([[BEGIN, 4, 3, last]] * 2))) for last in (2, 8)]
    np.testing.assert_allclose(scores[0][:, :3], scores[1][:, :3], atol=1e-6)
    assert abs(scores[0][:, 3] - scores[1][:, 3]).max() > 1e-3
