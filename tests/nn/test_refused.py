"""Arguments that layers, losses and functions refuse where they are written, as torch refuses them."""

import numpy as np
import pytest

import staged as st
from staged import nn

X = np.ones((2, 3), np.float32)
LABELS = np.array([0, 2])

REFUSED = {
    "Dropout(1.5)": (lambda: nn.Dropout(1.5), "between 0 and 1, got 1.5"),
    "Dropout(-0.1)": (lambda: nn.Dropout(-0.1), "between 0 and 1, got -0.1"),
    "Dropout(nan)": (lambda: nn.Dropout(float("nan")), "between 0 and 1"),
    "LSTM dropout": (lambda: nn.LSTM(2, 2, dropout=2.0), "LSTM: a probability"),
    "LSTM layers": (lambda: nn.LSTM(2, 2, num_layers=0), "num_layers is an integer of at least 1"),
    "LSTM hidden": (lambda: nn.LSTM(2, 0), "hidden_size is an integer"),
    "RNN nonlinearity": (lambda: nn.RNN(2, 2, 1, "gelu"), '"tanh", "relu", got \'gelu\''),
    "RNNCell nonlinearity": (lambda: nn.RNNCell(2, 2, nonlinearity="gelu"), "nonlinearity"),
    "GroupNorm(3, 4)": (lambda: nn.GroupNorm(3, 4), "4 channels do not divide into 3 groups"),
    "GroupNorm(0, 4)": (lambda: nn.GroupNorm(0, 4), "num_groups"),
    "Linear": (lambda: nn.Linear(-1, 2), "in_features is an integer of at least 0"),
    "Linear by a float": (lambda: nn.Linear(2.0, 2), "in_features is an integer"),
    "Embedding": (lambda: nn.Embedding(3, -1), "embedding_dim"),
    "Embedding's padding": (lambda: nn.Embedding(3, 2, 3), "one of 3 rows"),
    "Conv2d groups": (lambda: nn.Conv2d(4, 6, 3, groups=4), "do not divide into 4 groups"),
    "Conv2d kernel": (lambda: nn.Conv2d(4, 6, 0), "kernel_size is an integer of at least 1"),
    "Conv2d three axes": (lambda: nn.Conv2d(4, 6, (3, 3, 3)), "2 axes to slide along"),
    "Conv2d stride": (lambda: nn.Conv2d(4, 6, 3, stride=0), "stride"),
    "Conv2d padding": (lambda: nn.Conv2d(4, 6, 3, padding=-1), "padding is an integer of at least 0"),
    "Conv2d padding word": (lambda: nn.Conv2d(4, 6, 3, padding="full"), '"valid", "same"'),
    "MaxPool2d": (lambda: nn.MaxPool2d(0), "kernel_size"),
    "AvgPool2d": (lambda: nn.AvgPool2d(2, 0), "stride"),
    "GELU": (lambda: nn.GELU("erf"), '"none", "tanh"'),
    "reduction": (lambda: nn.MSELoss(reduction="average"), '"mean", "sum", "none", got \'average\''),
    "weights as reduction": (lambda: nn.CrossEntropyLoss("sum"), "weight of each class first"),
    "weights as reduction, called": (lambda: st.cross_entropy(X, LABELS, "sum"), "weight of each class third"),
    "ReLU(inplace=True)": (lambda: nn.ReLU(inplace=True), "ReLU: arrays are values"),
    "SiLU(True)": (lambda: nn.SiLU(True), "SiLU: arrays are values"),
    "LeakyReLU(0.1, True)": (lambda: nn.LeakyReLU(0.1, True), "arrays are values"),
    "ELU(1.0, True)": (lambda: nn.ELU(1.0, True), "arrays are values"),
    "Dropout(0.5, True)": (lambda: nn.Dropout(0.5, True), "arrays are values"),
    "label smoothing": (lambda: nn.CrossEntropyLoss(label_smoothing=1.5), "between 0 and 1"),
}
BY_POSITION = {
    "MaxPool2d's dilation": lambda: nn.MaxPool2d(2, 2, 0, 2),
    "MSELoss's past": lambda: nn.MSELoss(None, None, "sum"),
    "BCELoss's weight": lambda: nn.BCELoss("sum"),
    "Embedding's largest norm": lambda: nn.Embedding(3, 2, 0, 1.0),
    "Linear's device": lambda: nn.Linear(3, 2, True, st.f64),
    "InstanceNorm2d's momentum": lambda: nn.InstanceNorm2d(3, 1e-5, 0.1),
    "normal's mean": lambda: st.random.normal(3, 4),
    "uniform's bounds": lambda: st.random.uniform(0, 1),
    "pad's mode": lambda: st.pad(X, 1, 2.0),
    "var's unbiased": lambda: st.var(X, 0, True),
    "linspace's endpoint": lambda: st.linspace(0, 1, 5, False),
    "mse_loss's reduction": lambda: st.mse_loss(X, X, "sum"),
    "max_pool2d's dilation": lambda: st.max_pool2d(np.ones((1, 1, 4, 4)), 2, 2, 0, 2),
}


@pytest.mark.parametrize("what", REFUSED)
def test_values_that_there_are_not_are_refused_with_the_line(what):
    make, match = REFUSED[what]
    with pytest.raises(ValueError, match=match) as refused:
        make()
    assert isinstance(refused.value, st.StagedError) and "test_refused.py" in str(refused.value)


@pytest.mark.parametrize("what", BY_POSITION)
def test_what_torch_has_at_that_position_is_not_taken_for_something_else(what):
    with pytest.raises(TypeError, match="positional argument"):
        BY_POSITION[what]()


def test_weights_of_classes_stand_where_torch_has_them():
    weights = np.array([1.0, 2.0, 3.0], np.float32)
    by_name = st.cross_entropy(X, LABELS, weight=weights)
    np.testing.assert_array_equal(st.cross_entropy(X, LABELS, weights), by_name)
    np.testing.assert_array_equal(nn.CrossEntropyLoss(weights)(X, LABELS), by_name)
    np.testing.assert_array_equal(nn.NLLLoss(weights)(X, LABELS), st.nll_loss(X, LABELS, weights))
    held = nn.CrossEntropyLoss(st.Variable(weights))
    np.testing.assert_array_equal(held(X, LABELS), by_name)
    assert not held.parameters() and list(held.state_dict()) == ["weight"]


NO_FLOATS = {
    "Parameter": lambda: nn.Parameter(np.arange(3)),
    "Parameter of bools": lambda: nn.Parameter(np.array([True])),
    "LayerNorm": lambda: nn.LayerNorm(3, dtype=st.i64),
    "BatchNorm2d": lambda: nn.BatchNorm2d(3, dtype=st.u8),
    "GroupNorm": lambda: nn.GroupNorm(1, 3, dtype=st.i32),
}


@pytest.mark.parametrize("what", NO_FLOATS)
def test_parameters_that_hold_no_floats_are_refused_with_the_line(what):
    with pytest.raises(st.DTypeError, match="every parameter is trained, and so holds floats") as refused:
        NO_FLOATS[what]()
    assert "test_refused.py" in str(refused.value)
