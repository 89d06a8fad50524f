"""A small network on digits, trained by a loop in Python, with `train()` and `eval()`.

Follows README.md#your-loop-may-stay-in-python, docs/guide.md#networks-and-optimisers and docs/calls.md#what-is-checked.
"""

import numpy as np

import staged as st
from staged import data, nn, optim

IMAGES, LABELS = (array[:256] for array in data.digits())


def test_a_network_learns_digits():
    st.seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.5)

    @st.function
    def step(x, y):
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimizer.step(grads)
        return loss

    losses = [step(IMAGES[i : i + 32], LABELS[i : i + 32]) for _ in range(30) for i in range(0, 256, 32)]
    assert losses[-1] < 0.5 < losses[0]
    (program,) = step.programs
    assert (program.calls, program.traces) == (240, 1)

    dropped = np.asarray(model(IMAGES))
    model.eval()
    found = np.asarray(model(IMAGES))
    state = {name: np.asarray(value) for name, value in model.state_dict().items()}
    hidden = np.maximum(IMAGES.reshape(256, 64) @ state["1.weight"].T + state["1.bias"], 0)
    np.testing.assert_allclose(found, hidden @ state["4.weight"].T + state["4.bias"], rtol=1e-4, atol=1e-4)
    assert not np.allclose(dropped, found, atol=0.1)  # `train()` drops values, `eval()` does not
    assert np.mean(found.argmax(axis=1) == LABELS) > 0.97
