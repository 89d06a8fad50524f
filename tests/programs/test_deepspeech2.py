"""Deep Speech 2 of the examples: loss and gradients against PyTorch's, and what it hears."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.deepspeech2.model import DeepSpeech2
from examples.deepspeech2.train import LETTERS, heard, loss_of, synthetic, train
from tests.torch_reference import reference

HIDDEN, CHANNELS = 5, 3


def by_torch(torch: Any, weights: dict[str, np.ndarray], sound: np.ndarray, texts: np.ndarray, lengths: np.ndarray) -> list[Any]:
    """The loss and its gradient by each weight."""
    nn, F = torch.nn, torch.nn.functional
    state = {name: torch.tensor(value) for name, value in weights.items()}
    for name, value in state.items():
        value.requires_grad_(value.dtype == torch.float64 and "running" not in name)

    def normed(y: Any, name: str) -> Any:
        return F.batch_norm(y, None, None, state[f"{name}.weight"], state[f"{name}.bias"], training=True)

    y = F.conv2d(torch.tensor(sound)[:, None], state["conv1.weight"], stride=(2, 2), padding=5)
    y = F.hardtanh(normed(y, "bn1"), 0.0, 20.0)
    y = F.conv2d(y, state["conv2.weight"], stride=(2, 1), padding=5)
    y = F.hardtanh(normed(y, "bn2"), 0.0, 20.0).flatten(1, 2).permute(2, 0, 1)
    for layer in range(2):
        rnn = nn.LSTM(y.shape[2], HIDDEN, bidirectional=True).double()
        own = {name: state[f"rnns.{layer}.{name}"] for name, _ in rnn.named_parameters()}
        both, _ = torch.func.functional_call(rnn, own, (y,))
        y = both[..., :HIDDEN] + both[..., HIDDEN:]
        y = normed(y.flatten(0, 1), f"norms.{layer}").view(y.shape)
    scores = F.log_softmax(F.linear(y, state["out.weight"], state["out.bias"]), dim=2)
    places = torch.full((len(sound),), len(scores))
    loss = F.ctc_loss(scores, torch.tensor(texts), places, torch.tensor(lengths))
    loss.backward()
    return [loss.detach(), *(value.grad for value in state.values() if value.requires_grad)]


def test_the_loss_and_its_gradients_are_torchs() -> None:
    st.seed(3)
    sound, texts, lengths = synthetic(3, 5, bands=19, times=22, longest=3)
    sound = sound.astype(np.float64)
    model = DeepSpeech2(19, len(LETTERS), HIDDEN, 2, CHANNELS, st.f64)
    expected = reference(by_torch, model.state_dict(), sound, texts, lengths)
    loss, grads = st.function(
        lambda sound, texts, lengths: st.value_and_grad(loss_of, wrt=model)(model, sound, texts, lengths)
    )(sound, texts, lengths)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-9)
    for (name, _), gradient, wanted in zip(model.named_parameters(), grads.values(), expected[1:], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-9, err_msg=name)


def test_letters_are_heard_once_each_and_blanks_not() -> None:
    best = np.array([[0, 2, 2, 0, 2, 3, 3], [1, 1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0]])
    scores = np.eye(4)[best].transpose(1, 0, 2)
    letters, lengths = st.function(heard)(scores)
    assert np.asarray(lengths).tolist() == [3, 2, 0]
    assert np.asarray(letters)[0, :4].tolist() == [2, 2, 3, 0]
    assert np.asarray(letters)[1, :3].tolist() == [1, 1, 0] and not np.asarray(letters)[2].any()


def test_training_learns_to_hear(capsys: Any) -> None:
    codes = np.array([ord(letter) for letter in LETTERS])
    speech, test = (synthetic(count, seed, times=32, longest=2) for count, seed in ((128, 0), (32, 1)))
    _, losses, right = train(speech, test, codes, 20, 1e-2, 0, hidden=24, layers=1, channels=6)
    assert losses[19] < 0.2 * losses[0] and right > 0.4
    assert f"without a mistake: {100 * right:.1f} %" in capsys.readouterr().out
