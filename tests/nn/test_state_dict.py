"""`state_dict` gives what every library saves, and `load_state_dict` takes what any of them gives: as a whole, or not at all."""

import numpy as np
import pytest

import staged as st
from staged import nn


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def arrays(model):
    return {name: np.array(value) for name, value in model.state_dict().items()}


def test_in_plain_python_it_holds_numpy_arrays_of_the_callers_own(tmp_path, library):
    safetensors = library("safetensors.numpy")
    model = network()
    state = model.state_dict()
    assert {type(value) for value in state.values()} == {np.ndarray}
    before = arrays(model)
    for value in state.values():
        value += 1
    np.savez(tmp_path / "w.npz", **model.state_dict())
    safetensors.save_file(model.state_dict(), tmp_path / "w.safetensors")
    for saved in (np.load(tmp_path / "w.npz"), safetensors.load_file(tmp_path / "w.safetensors")):
        other = network()
        assert str(other.load_state_dict(saved)) == "<All keys matched successfully>"
        for name, value in arrays(other).items():
            np.testing.assert_array_equal(value, before[name])


def test_in_staged_and_differentiated_code_it_holds_what_the_program_goes_on_with():
    model = nn.Linear(2, 1)
    model.load_state_dict({"weight": [[2.0, 3.0]], "bias": [0.0]})

    @st.function
    def squares(x):
        def loss(x):
            model.weight.value = st.reshape(x * x, (1, 2))
            return st.sum(model.state_dict()["weight"] * 10.0)

        return st.grad(loss)(x)

    x = np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(squares(x), 20.0 * x)
    with st.eager():
        np.testing.assert_array_equal(squares(x), 20.0 * x)

    def loss(x):
        model.weight.value = st.reshape(x * x, (1, 2))
        return st.sum(model.state_dict()["weight"] * 10.0)

    np.testing.assert_array_equal(st.grad(loss)(st.asarray(x)), 20.0 * x)


VALUES = np.array([[1.5, -2.0, 3.25], [0.0, 7.0, -1.0]])
TAKEN = {
    "f64": VALUES,
    "f16": VALUES.astype(np.float16),
    "i64": VALUES.astype(np.int64),
    "bool": VALUES > 0,
    "list": VALUES.tolist(),
    "ours": st.asarray(VALUES, dtype=st.f64),
    "a Variable": st.Variable(VALUES),
    "read-only, other order": np.asfortranarray(VALUES.astype(np.float32)),
}


@pytest.mark.parametrize("kind", TAKEN)
def test_values_of_any_real_dtype_become_the_parameters(kind):
    layer = nn.Linear(3, 2, bias=False)
    layer.load_state_dict({"weight": TAKEN[kind]})
    np.testing.assert_array_equal(layer.state_dict()["weight"], np.asarray(TAKEN[kind]).astype(np.float32))
    assert layer.weight.dtype == st.f32


class Tensor:
    """The operations that a torch tensor of bfloat16 allows that requires grad, on a GPU."""

    def __init__(self, elements, dtype="torch.bfloat16", is_bare=False):
        self.elements, self.dtype, self.is_bare = elements, dtype, is_bare

    def detach(self):
        return self

    def cpu(self):
        return Tensor(self.elements, self.dtype, is_bare=True)

    def float(self):
        return Tensor(self.elements, "torch.float32", self.is_bare)

    def __array__(self, dtype=None, copy=None):
        if not self.is_bare or self.dtype != "torch.float32":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return np.array(self.elements, np.float32)


def test_a_tensor_that_numpy_cannot_read_is_converted_first():
    layer = nn.Linear(3, 2, bias=False)
    layer.load_state_dict({"weight": Tensor(VALUES)})
    np.testing.assert_array_equal(layer.state_dict()["weight"], VALUES)


def test_torch_tensors_of_any_dtype_load(library):
    torch = library("torch")
    theirs = torch.nn.Linear(3, 2, bias=False)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        layer = nn.Linear(3, 2, bias=False)
        layer.load_state_dict(theirs.to(dtype).state_dict(keep_vars=True))  # parameters that require grad
        np.testing.assert_array_equal(layer.state_dict()["weight"], theirs.weight.detach().float().numpy())


def test_a_staged_function_loads_its_arguments():
    @st.function
    def run(state, x):
        layer = nn.Linear(3, 2, bias=False)
        layer.load_state_dict(state)
        return layer(x)

    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(run({"weight": VALUES}, x), x @ VALUES.T.astype(np.float32))
    with st.eager():
        np.testing.assert_array_equal(run({"weight": VALUES}, x), x @ VALUES.T.astype(np.float32))


class Sparse:
    """An object that refuses to become an array, as torch's sparse tensors do."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert Sparse layout tensor to numpy")


WRONG = {
    "a shape": ({"2.weight": np.zeros((4, 2))}, st.ShapeError, r"`2.weight` has shape \(2, 4\), the state_dict has \(4, 2\)"),
    "two shapes": (
        {"2.weight": np.zeros(3), "1.bias": np.zeros(())},
        ValueError,
        r"`1.bias` has shape \(4,\), the state_dict has \(\); `2.weight`",
    ),
    "no array": ({"2.bias": None}, st.DTypeError, "`2.bias` takes an array of real numbers, the state_dict has a NoneType"),
    "text": ({"2.bias": ["a", "b"]}, TypeError, "`2.bias` takes an array of real numbers"),
    "complex": ({"2.bias": np.zeros(2, complex)}, st.DTypeError, "complex128"),
    "ragged": ({"2.weight": [[1.0], [2.0, 3.0]]}, st.DTypeError, "`2.weight` takes an array"),
    "masked": ({"2.bias": np.ma.zeros(2, np.float32)}, st.DTypeError, "`2.bias` takes a plain array, the state_dict has a MaskedArray"),
    "sparse": ({"2.weight": Sparse()}, st.DTypeError, "`2.weight` takes an array of real numbers, the state_dict has a Sparse"),
    "unknown": ({"3.bias": np.zeros(2)}, KeyError, r"missing \[\], not known \['3.bias'\]"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(kind):
    changes, error, match = WRONG[kind]
    model = network()
    before = arrays(model)
    state = {name: value + 1 for name, value in before.items()}
    with pytest.raises(error, match=match):
        model.load_state_dict({**state, **changes})
    for name, value in arrays(model).items():
        np.testing.assert_array_equal(value, before[name])


def test_names_that_are_missing_or_left_over_are_all_named_or_given_back():
    model = network()
    before = arrays(model)
    state = {"0.weight": np.ones((4, 3)), "head.weight": np.zeros(2)}
    with pytest.raises(st.StateDictError, match=r"missing \['0.bias', '1.bias', .*, '2.weight'\], not known \['head.weight'\]"):
        model.load_state_dict(state)
    keys = model.load_state_dict(state, strict=False)
    assert keys.unexpected_keys == ["head.weight"] and keys.missing_keys[:2] == ["0.bias", "1.bias"]
    np.testing.assert_array_equal(model.state_dict()["0.weight"], np.ones((4, 3)))
    np.testing.assert_array_equal(model.state_dict()["2.weight"], before["2.weight"])
    with pytest.raises(st.ShapeError, match=r"`0.weight`"):
        model.load_state_dict({"0.weight": np.ones(3)}, strict=False)
    with pytest.raises(st.DTypeError, match="dict of arrays"):
        model.load_state_dict([1.0])


def test_a_buffer_that_is_not_persistent_is_neither_saved_nor_missed():
    class Masked(nn.Module):
        def __init__(self):
            self.register_buffer("mask", np.tri(3, dtype=np.float32), persistent=False)
            self.register_buffer("scale", st.ones(3))
            self.fc = nn.Linear(3, 3)

    model = Masked()
    assert list(model.state_dict()) == ["scale", "fc.weight", "fc.bias"]
    assert model.named_buffers().keys() == ["mask", "scale"]
    assert model.named_parameters().keys() == ["fc.weight", "fc.bias"]
    model.load_state_dict(model.state_dict())
