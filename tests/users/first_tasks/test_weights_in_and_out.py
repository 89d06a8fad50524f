"""Weights of another library, saved and loaded: a dict of arrays, `st.save` and `st.load`, torch and back.

Follows docs/guide.md#checkpoints and docs/guide.md#saving-and-numpy.
"""

import json
import struct

import numpy as np
import pytest

import staged as st
from staged import nn

STATE = {
    "0.weight": np.arange(12, dtype=np.float32).reshape(4, 3) / 10 - 0.5,
    "0.bias": np.array([0.1, -0.2, 0.3, 0.0], np.float32),
    "2.weight": np.array([[1.0, -1.0, 0.5, 2.0]], np.float32),
    "2.bias": np.array([0.25], np.float32),
}
X = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.0]], np.float32)


def network(library):
    return library.Sequential(library.Linear(3, 4), library.Tanh(), library.Linear(4, 1))


def expected():
    hidden = np.tanh(X @ STATE["0.weight"].T + STATE["0.bias"])
    return hidden @ STATE["2.weight"].T + STATE["2.bias"]


def test_weights_pass_through_a_file(tmp_path):
    model = network(nn)
    model.load_state_dict(STATE)
    np.testing.assert_allclose(model(X), expected(), rtol=1e-5)
    st.save(tmp_path / "model.safetensors", model)

    content = (tmp_path / "model.safetensors").read_bytes()  # the format of safetensors, read by hand
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    for name, value in STATE.items():
        first, last = (8 + length + offset for offset in header[name]["data_offsets"])
        assert header[name]["dtype"] == "F32" and header[name]["shape"] == list(value.shape)
        assert content[first:last] == value.tobytes()

    other = network(nn)
    other.load_state_dict(st.load(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(other(X), model(X))


def test_the_name_of_another_format_is_noted(tmp_path):
    with pytest.warns(UserWarning, match=r"end it in `.safetensors`") as noted:
        st.save(tmp_path / "model.pt", network(nn))
    assert noted[0].filename == __file__


@pytest.mark.live
def test_weights_go_to_torch_and_back(library):
    torch = library("torch")
    model, theirs = network(nn), network(torch.nn)
    model.load_state_dict(theirs.state_dict())
    np.testing.assert_allclose(model(X), theirs(torch.tensor(X)).detach().numpy(), rtol=1e-5, atol=1e-6)
    model.load_state_dict(STATE)
    theirs.load_state_dict({name: torch.as_tensor(value) for name, value in model.state_dict().items()})
    np.testing.assert_allclose(theirs(torch.tensor(X)).detach().numpy(), expected(), rtol=1e-5)
