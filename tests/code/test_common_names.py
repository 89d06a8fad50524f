"""A function that serves several kernels has the words that their names share."""

from __future__ import annotations

from staged.code.common_names import common_words, usual_words, with_common_names
from staged.code.expr import Index, Infix, Literal, Variable
from staged.code.printer import print_function
from staged.code.tree import Assign, Declare, For, Function, Parameter
from staged.code.types import INDEX, Space, pointer, scalar
from staged.ir.types import f32


def copy(source: str, scale: str, target: str, index: str, element: str) -> Function:
    """`for (index < 8) { element = source[index]; target[index] = element * scale; }`."""
    x, y = (Variable(name, pointer(scalar(f32), Space.GLOBAL, is_const=name == source)) for name in (source, target))
    i, factor, value = Variable(index, INDEX), Variable(scale, scalar(f32)), Variable(element, scalar(f32))
    body = Declare(value, Index(x, i)), Assign(Index(y, i), Infix("*", value, factor))
    loop = For(i, Literal("0"), Literal("8"), body)
    return Function("copy", tuple(map(Parameter, (x, factor, y))), (loop,))


def named(*users: Function) -> str:
    return print_function(with_common_names(users[0], users))


def test_words_that_names_share_are_without_the_numbers_of_layers():
    assert common_words(["layer1_bn1_weight", "layer2_bottleneck0_bn3_weight"]) == ["layer", "bn", "weight"]
    assert common_words(["d_fc1_bias", "d_conv2_bias"]) == ["d", "bias"]
    assert common_words(["ln_1_weight", "ln_1_weight"]) == ["ln", "1", "weight"]
    assert common_words(["k", "v"]) == []
    assert common_words(["layer1_bn3_relu", "layer2_bn3_relu"], numbered=True) == ["layer", "bn3", "relu"]


def test_words_of_most_names():
    assert usual_words(["layer1_bn1", "layer1_bn2", "layer2_bn1", "norm1"]) == ["layer", "bn"]
    assert usual_words(["d_bias", "d_weight"]) == ["d"]


def test_variables_have_the_words_that_their_names_share():
    text = named(copy("fc1_weight", "lr", "new_fc1_weight", "i", "fc1_weight_i"),
                 copy("fc2_weight", "lr", "new_fc2_weight", "i", "fc2_weight_i"))  # fmt: skip
    assert "(const float *fc_weight, float lr, float *new_fc_weight)" in text
    assert "const float fc_weight_i = fc_weight[i];" in text
    assert "new_fc_weight[i] = fc_weight_i * lr;" in text


def test_pointers_without_a_common_name_are_in_and_out():
    text = named(copy("a", "s", "k", "k_2", "a_k"), copy("b", "t", "v", "k", "b_k"))
    assert "(const float *in, float s, float *out)" in text
    assert "const float in_k = in[k];" in text and "for (int64_t k = 0;" in text


def test_names_stay_apart():
    text = named(copy("x_1", "x", "out", "i", "x_i"), copy("x_2", "y", "out", "i", "y_i"))
    assert "(const float *x_2, float x, float *out)" in text or "(const float *x, float x_2, float *out)" in text
