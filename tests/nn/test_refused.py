"""Arguments that layers, losses and functions refuse where they are written, as torch refuses them."""

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.errors.said import refusals

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
    "MaxPool1d": (lambda: nn.MaxPool1d(2, dilation=0), "dilation"),
    "AvgPool2d": (lambda: nn.AvgPool2d(2, 0), "stride"),
    "GELU": (lambda: nn.GELU("erf"), '"none", "tanh"'),
    "reduction": (lambda: nn.MSELoss(reduction="average"), '"mean", "sum", "none", got \'average\''),
    "weights as reduction": (lambda: nn.CrossEntropyLoss("sum"), "weight of each class first"),
    "weights of losses as reduction": (lambda: nn.BCELoss("sum"), "weight of each loss first"),
    "weights as reduction, called": (lambda: st.cross_entropy(X, LABELS, "sum"), "weight of each class third"),
    "ReLU(inplace=True)": (lambda: nn.ReLU(inplace=True), "ReLU: arrays are values"),
    "SiLU(True)": (lambda: nn.SiLU(True), "SiLU: arrays are values"),
    "LeakyReLU(0.1, True)": (lambda: nn.LeakyReLU(0.1, True), "arrays are values"),
    "Hardtanh(inplace)": (lambda: nn.Hardtanh(inplace=True), "arrays are values"),
    "Mish(True)": (lambda: nn.Mish(True), "arrays are values"),
    "Threshold(0, 1, True)": (lambda: nn.Threshold(0.0, 1.0, True), "arrays are values"),
    "CELU(1.0, True)": (lambda: nn.CELU(1.0, True), "arrays are values"),
    "Hardtanh(1, -1)": (lambda: nn.Hardtanh(1.0, -1.0), "min_val is below max_val, got 1.0, -1.0"),
    "ELU(1.0, True)": (lambda: nn.ELU(1.0, True), "arrays are values"),
    "Dropout(0.5, True)": (lambda: nn.Dropout(0.5, True), "arrays are values"),
    "pad's mode": (lambda: st.pad(X, 1, 2.0), "mode is one of"),
    "pad twice": (lambda: st.pad(X, 1, pad=(1, 1)), "pad_width"),
    "pad of other axes": (lambda: st.pad(X, pad=(1, 1, 1)), "before and after of the last axis"),
    "pad cuts too much off": (lambda: st.pad(X, pad=(-2, -2)), "cuts more off"),
    "ZeroPad2d": (lambda: nn.ZeroPad2d((1, 2)), "an int or 4 of them"),
    "reflection of nothing": (lambda: st.pad(X[:0], 1, "edge"), "no element to repeat"),
    "PReLU": (lambda: nn.PReLU(0), "num_parameters"),
    "RReLU(inplace)": (lambda: nn.RReLU(inplace=True), "arrays are values"),
    "Dropout2d": (lambda: nn.Dropout2d(2.0), "between 0 and 1"),
    "FractionalMaxPool2d": (lambda: nn.FractionalMaxPool2d(2), "output_size or output_ratio"),
    "AdaptiveLogSoftmax": (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [5, 3]), "cutoffs are numbers that grow"),
    "MultiMarginLoss": (lambda: nn.MultiMarginLoss(3), "p is 1 or 2"),
    "interpolate's mode": (lambda: st.interpolate(X[None], 4, mode="cubic"), "mode is one of"),
    "interpolate's axes": (lambda: st.interpolate(X[None], 4, mode="bilinear"), "does not fit"),
    "interpolate's size": (lambda: st.interpolate(X[None]), "size or scale_factor"),
    "align_corners": (lambda: st.interpolate(X[None], 4, align_corners=True), "linear and cubic"),
    "grid_sample": (lambda: st.grid_sample(X[None, None], X[None, None]), "a grid"),
    "grid_sample's mode": (
        lambda: st.grid_sample(X[None, None, None], np.zeros((1, 1, 1, 1, 3), np.float32), "bicubic"),
        "bicubic is of images with two axes",
    ),
    "no divisor": (lambda: st.avg_pool2d(X[None], 1, divisor_override=0), "divisor_override is not 0"),
    "conv3d": (lambda: st.conv3d(X[None, None, None], np.ones((1, 2, 1, 1, 1), np.float32)), "2 per group"),
    "pixel_shuffle": (lambda: st.pixel_shuffle(X[None], 2), "no multiple of 4"),
    "fold": (lambda: st.fold(X, 4, 2), "columns of 4 taps"),
    "unflatten": (lambda: st.unflatten(X, 1, (2, 2)), "does not make up 3"),
    "max_unpool2d": (lambda: st.max_unpool2d(X[None], LABELS, 2), "of one shape"),
    "ParameterDict": (lambda: nn.ParameterDict({"keys": X}), "has a method `keys`"),
    "dirac_": (lambda: nn.init.dirac_(nn.Parameter(X)), "of a convolution"),
    "sparse_": (lambda: nn.init.sparse_(nn.Parameter(X), 2.0), "a share"),
    "orthogonal_": (lambda: nn.init.orthogonal_(nn.Parameter(X[0])), "at least 2 axes"),
    "weights as reduction, of elements": (lambda: nn.BCELoss("sum"), "weight of each loss first"),
    "weights as reduction, of a function": (lambda: st.binary_cross_entropy(X, X, "sum"), "weight of each loss third"),
    "classes in axis 1": (lambda: st.cross_entropy(X[None], np.zeros((1, 3), np.int32)), "`axis` names another"),
    "a label to ignore among shares": (lambda: st.cross_entropy(X, X, ignore_index=1), "no label that is ignored"),
    "padding of convolutions": (lambda: nn.Conv2d(1, 1, 3, padding_mode="wrap"), "padding_mode"),
    "strides that keep the size": (
        lambda: nn.Conv2d(1, 1, 3, 2, "same", padding_mode="reflect"),
        "needs a stride of 1",
    ),
    "label smoothing": (lambda: nn.CrossEntropyLoss(label_smoothing=1.5), "between 0 and 1"),
}
BY_POSITION = {
    "MSELoss's past": lambda: nn.MSELoss(None, None, "sum"),
    "Embedding's largest norm": lambda: nn.Embedding(3, 2, 0, 1.0),
    "Linear's device": lambda: nn.Linear(3, 2, True, st.f64),
    "normal's mean": lambda: st.random.normal(3, 4),
    "uniform's bounds": lambda: st.random.uniform(0, 1),
    "var's unbiased": lambda: st.var(X, 0, True),
    "linspace's endpoint": lambda: st.linspace(0, 1, 5, False),
    "mse_loss's reduction": lambda: st.mse_loss(X, X, "sum"),
}


test_values_that_there_are_not_are_refused_with_the_line = refusals(REFUSED, usual=ValueError)


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
