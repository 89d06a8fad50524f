"""The tree of modules by torch's words: names, shared parameters, containers, `apply`, buffers."""

import numpy as np
import pytest

import staged as st
from staged import nn, optim


class Tied(nn.Module):
    def __init__(self):
        self.embed = nn.Embedding(5, 3)
        self.middle = nn.Linear(3, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(st.tanh(self.middle(self.embed(ids))))


def test_a_shared_parameter_is_listed_once_and_saved_by_each_name():
    model = Tied()
    assert model.named_parameters().keys() == ["embed.weight", "middle.weight", "middle.bias"]
    assert [id(p) for p in model.parameters()] == [id(model.embed.weight), id(model.middle.weight), id(model.middle.bias)]
    assert list(model.state_dict()) == ["embed.weight", "middle.weight", "middle.bias", "head.weight"]
    assert len(model.named_parameters(remove_duplicate=False)) == 4
    assert model.embed.weight.name == "embed.weight"
    pair = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    pair[1].weight = pair[0].weight
    assert len(pair.parameters()) == 3 and pair[0].weight.name == "linear0.weight"


@pytest.mark.parametrize("make", [optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad])
def test_a_shared_parameter_decays_once_a_step(make):
    """From a gradient of 0 a step is the decay alone, which is that of the same weight under one name."""
    w = np.array([[2.0]], np.float32)
    a, b, alone = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    b.weight = a.weight
    ends = []
    for model in (nn.Sequential(a, b), nn.Sequential(alone)):
        model.load_state_dict(dict.fromkeys(model.state_dict(), w))
        opt = make(model.parameters(), lr=0.1, weight_decay=0.1)
        for _ in range(2):
            opt.step([st.zeros((1, 1)) for _ in model.parameters()])
        ends.append(model.state_dict()["0.weight"])
    np.testing.assert_array_equal(*ends)


def test_the_gradient_of_a_shared_parameter_is_the_sum_of_its_uses():
    model = Tied()
    ids, labels = np.array([1, 4, 1]), np.array([0, 2, 3])

    @st.function
    def step(ids, labels):
        return st.value_and_grad(lambda: st.cross_entropy(model(ids), labels), wrt=model)()

    loss, grads = step(ids, labels)
    assert list(grads) == ["embed.weight", "middle.weight", "middle.bias"]
    w = model.state_dict()["embed.weight"].astype(np.float64)
    middle, bias = (model.state_dict()[f"middle.{name}"].astype(np.float64) for name in ("weight", "bias"))

    def total(w):
        logits = np.tanh(w[ids] @ middle.T + bias) @ w.T
        return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(3), labels])

    np.testing.assert_allclose(loss, total(w), rtol=1e-5)
    for place in np.ndindex(w.shape):
        nudge = np.zeros_like(w)
        nudge[place] = 1e-6
        difference = (total(w + nudge) - total(w - nudge)) / 2e-6
        np.testing.assert_allclose(grads["embed.weight"][place], difference, rtol=1e-3, atol=1e-5)


def test_names_come_as_pairs_and_as_the_dict_of_them():
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    named = model.named_parameters()
    assert [(name, p.shape) for name, p in named] == [("0.weight", (3, 2)), ("0.bias", (3,))]
    assert named["0.bias"] is model[0].bias and "0.bias" in named and "2.bias" not in named
    assert dict(named).keys() == {"0.weight", "0.bias"} and named[0][0] == "0.weight"
    assert next(model.parameters()).dtype == st.f32
    rest = model.parameters()
    assert next(rest) is model[0].weight and next(rest) is model[0].bias
    with pytest.raises(StopIteration):
        next(rest)
    with pytest.raises(KeyError):
        named["1.bias"]


def test_names_are_iterated_and_differentiated_by_in_a_staged_function():
    model = nn.Linear(2, 2)

    @st.function
    def run(x):
        total = 0.0
        for name, p in model.named_parameters():
            total += st.sum(p * p) if name == "weight" else 0.5 * st.sum(p * p)
        grads = st.grad(lambda: st.sum(model(x)), wrt=model.parameters())()
        return total, grads

    x = np.ones((3, 2), np.float32)
    state = model.state_dict()
    expected = np.sum(state["weight"] ** 2) + 0.5 * np.sum(state["bias"] ** 2)
    for context in (st.eager, None):
        if context is None:
            total, grads = run(x)
        else:
            with context():
                total, grads = run(x)
        np.testing.assert_allclose(total, expected, rtol=1e-6)
        assert [g.shape for g in grads] == [(2, 2), (2,)]
        np.testing.assert_array_equal(grads[1], [3.0, 3.0])


def test_the_tree_is_walked_as_torchs():
    shared = nn.ReLU()
    model = nn.Sequential(nn.Linear(2, 2), shared, nn.ModuleDict({"a": nn.Linear(2, 1), "b": shared}))
    assert model.children() == [model[0], shared, model[2]]
    assert model.named_children().keys() == ["0", "1", "2"]
    assert model.named_modules().keys() == ["", "0", "1", "2", "2.a"]
    assert model.modules()[0] is model
    seen = []
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen == ["Linear", "ReLU", "Linear", "ReLU", "ModuleDict", "Sequential"]
    assert not model.eval().training and not model[2]["a"].training
    assert model.train()[2]["a"].training


def test_containers():
    blocks = nn.ModuleList([nn.Linear(2, 2)]).extend([nn.Linear(2, 2), nn.ReLU()])
    assert len(blocks) == 3 and blocks[-1] is list(blocks)[2]
    assert [*blocks[1:]] == [blocks[1], blocks[2]] and isinstance(blocks[:2], nn.ModuleList)
    row = nn.Sequential({"first": nn.Linear(2, 3), "second": nn.Linear(3, 1)})
    assert list(row.state_dict()) == ["first.weight", "first.bias", "second.weight", "second.bias"]
    np.testing.assert_array_equal(row(np.zeros((1, 2), np.float32)).shape, (1, 1))
    heads = nn.ModuleDict({"policy": nn.Linear(2, 2)})
    heads["value"] = nn.Linear(2, 1)
    assert heads.keys() == ["policy", "value"] and "value" in heads and list(heads) == heads.keys() and len(heads) == 2
    assert heads.value is heads["value"] and dict(heads.items())["policy"] is heads.values()[0]
    assert heads.named_parameters().keys() == ["policy.weight", "policy.bias", "value.weight", "value.bias"]
    del heads["policy"]
    assert heads.keys() == ["value"]
    with pytest.raises(KeyError):
        heads["policy"]
    with pytest.raises(st.ArgumentError, match="method `keys`"):
        heads["keys"] = nn.ReLU()
    with pytest.raises(st.ArgumentError, match="no dot"):
        row.add_module("a.b", nn.ReLU())


def test_only_modules_are_held_by_containers():
    for make in (
        lambda: nn.Sequential(st.relu),
        lambda: nn.Sequential([nn.ReLU()]),
        lambda: nn.ModuleList([3]),
        lambda: nn.ModuleDict({"a": np.tanh}),
        lambda: nn.Identity().add_module("a", 3),
    ):
        with pytest.raises(st.ArgumentError, match="holds modules, got an? ") as refused:
            make()
        assert "test_module.py" in str(refused.value)
    with pytest.raises(st.ArgumentError, match="no dot"):
        nn.ModuleDict({"a.b": nn.ReLU()})


def test_a_name_is_of_a_buffer_as_long_as_it_holds_one():
    start = np.ones(2, np.float32)
    module = nn.Identity()
    module.register_buffer("mask", None)
    module.register_buffer("scale", start, persistent=False)
    module.register_buffer("scale", start)
    assert list(module.state_dict()) == ["scale"] and module.parameters() == []
    module.mask = nn.Parameter(start)
    assert module.named_parameters().keys() == ["mask"] and module.named_buffers().keys() == ["scale"]
    module.scale = st.Variable(start)
    assert module.named_buffers().keys() == ["scale"]
    del module.scale
    module.scale = st.Variable(start)
    assert module.named_parameters().keys() == ["mask", "scale"]
    module.register_buffer("mask", nn.Parameter(start), persistent=False)
    assert module.named_parameters().keys() == ["scale"] and list(module.state_dict()) == ["scale"]


def test_a_parameter_by_torchs_name_is_a_variable():
    class Scale(nn.Module):
        def __init__(self):
            self.scale = nn.Parameter(np.full(3, 2.0, np.float32))
            self.register_parameter("shift", nn.Parameter(st.zeros(3)))
            self.register_parameter("none", None)

        def forward(self, x):
            return x * self.scale + self.shift

    model = Scale()
    assert isinstance(model.scale, nn.Parameter | st.Variable) and model.scale.numel() == 3
    assert model.named_parameters().keys() == ["scale", "shift"]
    np.testing.assert_array_equal(model(np.ones(3, np.float32)), [2.0, 2.0, 2.0])
    with pytest.raises(st.ArgumentError, match="register_buffer"):
        nn.Parameter(st.zeros(3), requires_grad=False)
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == 6
    with pytest.raises(st.ArgumentError, match="`scale` cannot be frozen") as refused:
        model.scale.requires_grad = False
    assert "test_module.py" in str(refused.value)
    with pytest.raises(TypeError, match="nn.Parameter"):
        model.register_parameter("w", np.zeros(3))


def test_statistics_follow_what_the_layer_says_now():
    """`momentum` and `track_running_stats` are read at every call, in torch's way."""
    norm, x = nn.BatchNorm1d(2, momentum=1.0), np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    norm(x)
    np.testing.assert_allclose(norm.running_mean.numpy(), [2.0, 4.0])
    norm.momentum = 0.5
    norm(x + 2.0)
    np.testing.assert_allclose(norm.running_mean.numpy(), [3.0, 5.0])
    norm.track_running_stats = False
    norm(x - 9.0)
    np.testing.assert_allclose(norm.running_mean.numpy(), [3.0, 5.0])
    norm.eval()
    np.testing.assert_allclose(norm(np.array([[3.0, 5.0]], np.float32)), [[0.0, 0.0]], atol=1e-6)
    drop = nn.Dropout(0.5)
    drop.p = 0.0
    np.testing.assert_array_equal(drop(x), x)


def test_a_module_called_in_plain_python_gets_arrays_of_ours():
    class Halves(nn.Module):
        def forward(self, x, scale=None):
            rows, columns = x.size()
            left, right = x.split(columns // 2, dim=1)
            return left.masked_fill(right > 0, 0.0).view(-1) * scale.size(0)

    x = np.array([[1.0, 2.0, -1.0, 1.0]], np.float32)
    expected = [2.0, 0.0]
    np.testing.assert_array_equal(Halves()(x, scale=np.ones(2, np.float32)), expected)
    run = st.function(lambda x, scale: Halves()(x, scale=scale))
    np.testing.assert_array_equal(run(x, np.ones(2, np.float32)), expected)
    with st.eager():
        np.testing.assert_array_equal(run(x, np.ones(2, np.float32)), expected)


@pytest.mark.parametrize("name", ["half", "bfloat16", "double", "float"])
def test_a_model_changes_its_dtype_as_torchs_does(name: str) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    model[3].tied = model[3].weight
    names = list(model.state_dict())
    before = np.asarray(model[3].weight.value)
    assert getattr(model, name)() is model
    dtype = {"half": st.f16, "bfloat16": st.bf16, "double": st.f64, "float": st.f32}[name]
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert model[3].tied is model[3].weight
    assert [st.dtype_of(x.dtype) for x in model[1].buffers()] == [dtype, dtype, st.i64]
    assert list(model.state_dict()) == names
    np.testing.assert_array_equal(np.asarray(model[3].weight.value), before.astype(dtype.numpy))
    x = np.random.default_rng(0).normal(size=(4, 1, 4, 4)).astype(dtype.numpy)
    step = st.function(lambda x: st.value_and_grad(lambda x: st.mean(model(x) ** 2), wrt=model)(x))
    loss, grads = step(x)
    assert st.dtype_of(loss.dtype) is dtype
    assert {st.dtype_of(grad.dtype) for grad in grads.values()} == {dtype}
    model.eval()
    assert st.dtype_of(st.function(model)(x).dtype) is dtype
