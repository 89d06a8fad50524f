"""Batch norm by cuDNN: eager's values and gradients, which calls are made, and what describes them."""

from __future__ import annotations

import gc
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, nn, optim, with_backend
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, nothing_is_left, on_gpu

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(7)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return RANDOM.normal(0.7, 1.5, size=shape).astype(dtype)


def routines(text: str) -> list[str]:
    """The calls of cuDNN that are written, without those that make or destroy what they need."""
    return re.findall(r"CUDNN_CHECK\(site, cudnn(\w+)\(", text)


SHAPES = [(6, 3), (4, 2, 5), (3, 2, 4, 5), (2, 3, 2, 1, 3), (1, 2, 1, 4)]


@pytest.mark.parametrize(("dtype", "tolerance"), [("f4", 2e-5), ("f8", 1e-11)])
def test_training_and_its_gradients_agree_with_eager(dtype: str, tolerance: float, device: Emulator) -> None:
    def loss(x: Any, w: Any, b: Any, shift: Any) -> Any:
        total = st.sum(st.sin(x)) * 0.0
        statistics = []
        for weight, bias in ((w, b), (None, b), (w, None)):
            y, mean, var = st.batch_norm_training(x, weight, bias, eps=1e-3, correction=1)
            # The statistics have gradients too.
            total = total + st.sum(st.cos(y) * shift) + st.sum(mean * mean) + st.sum(st.sqrt(var))
            statistics += [mean, var]
        return total, statistics

    def every(arrays: Any) -> Any:
        return [st.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True)(*each) for each in arrays]

    arrays = [
        (normal(*s, dtype=dtype), normal(s[1], dtype=dtype), normal(s[1], dtype=dtype), normal(*s, dtype=dtype))
        for s in SHAPES
    ]
    staged = on_gpu(every)
    agrees_in_any_order(staged, device, tolerance, arrays)
    called = routines(staged.stage(arrays).source)
    # The gradient is the same call whether there is a bias or not.
    assert sorted(called) == ["BatchNormalizationBackward"] * 10 + ["BatchNormalizationForwardTraining"] * 15


def test_the_gradient_takes_what_training_has_kept() -> None:
    def loss(x: Any, w: Any) -> Any:
        return st.sum(st.batch_norm_training(x, w)[0] ** 3)

    text = on_gpu(st.grad(loss, argnums=(0, 1))).stage(normal(4, 2, 3, 3), normal(2)).source
    found = re.findall(r"if \((?!fill)\w+\(gpu, host, \d+, (.*?)\) != ST_OK", " ".join(text.split()))
    forward, backward = (arguments.split(", ") for arguments in found)
    assert "rsqrt" not in text
    # (x, weight; y, mean, variance, saved mean, saved rstd) and (x, d_y, weight, saved mean, saved rstd; ...)
    assert forward[-2:] == backward[3:5]


def test_the_gradient_of_a_loop_takes_what_each_iteration_has_kept(device: Emulator) -> None:
    def gradients(x: Any, w: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            for i in st.range(3):
                x = st.sin(st.batch_norm_training(x, w[i])[0])
            return st.sum(x**3)

        return st.grad(loss, argnums=(0, 1))(x, w)

    staged, arguments = on_gpu(gradients), (normal(4, 2, 3, 3), normal(3, 2))
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    assert "rsqrt" not in staged.stage(*arguments).source


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.BatchNorm2d(3)
        self.second = nn.BatchNorm2d(3, momentum=None)

    def forward(self, x: Any) -> Any:
        return self.second(st.relu(self.first(x)))


def test_a_gradient_by_the_images_that_nobody_wants_is_not_made(device: Emulator) -> None:
    def of_weights(x: Any, w: Any, b: Any) -> Any:
        return st.grad(lambda w, b: st.sum(st.sin(st.batch_norm_training(x, w, b)[0])), argnums=(0, 1))(w, b)

    staged, arguments = on_gpu(of_weights), (normal(4, 3, 5, 5), normal(3), normal(3))
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    assert routines(staged.stage(*arguments).source) == ["BatchNormalizationForwardTraining"]


def test_running_statistics_follow_as_on_the_host(device: Emulator) -> None:
    device.configure("lazy shuffled seed=1")
    batches = normal(4, 5, 3, 4, 2)

    def trained(backend: Any) -> tuple[dict[str, Any], Any]:
        net = Net()
        opt = optim.SGD(net.parameters(), lr=0.1)

        @st.function(target="portable")
        def train(batches: Any) -> Any:
            with with_backend(backend, batches):
                for step in st.range(4):
                    loss, gradients = st.value_and_grad(lambda x: st.mean(st.sin(net(x))), wrt=net)(batches[step])
                    opt.step(gradients)
            return loss

        loss = train(batches)
        if backend is GPU:
            text = train.stage(batches).source
            assert sorted(routines(text)) == ["BatchNormalizationBackward"] + ["BatchNormalizationForwardTraining"] * 2
            # The first one's are brought up to date in the call, where they are; the others' factor is a number of the program.
            given = r"d->\w+, args->[\w.]*running_mean\w*, args->[\w.]*running_var\w*, d->\w+, d->\w+\) != ST_OK"
            in_place = re.search(given, " ".join(text.split()))
            assert in_place is not None and text.count("CUDA_CHECK(site, cudaMemsetAsync(") == 2
            assert ", bias, 0.1," in text
        net.eval()

        @st.function(target="portable")
        def evaluate(x: Any) -> Any:
            with with_backend(backend, x):
                y = net(x)
            return y

        return net.state_dict(), (loss, evaluate(batches[0]))

    (found, results), (wanted, expected) = trained(GPU), trained(st.CPU)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], rtol=2e-5, atol=1e-6, err_msg=name)
    compare_trees(results, expected, rtol=2e-5, atol=1e-6)


def test_running_statistics_that_are_wanted_otherwise_are_kept_apart(device: Emulator) -> None:
    def follow(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y, new_mean, new_var = st.batch_norm_training(x, w, correction=1)
        return y, mean * 0.75 + new_mean * 0.25, 0.25 * new_var + var * 0.75, mean, var

    def apart(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y, followed, other, *_ = follow(x, w, mean, var)
        _, _, new_var = st.batch_norm_training(x, w, correction=1)
        return y, followed, other, new_var

    def biased(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y, new_mean, new_var = st.batch_norm_training(x, w)
        return y, mean * 0.75 + new_mean * 0.25, var * 0.75 + new_var * 0.25

    def uneven(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y, new_mean, new_var = st.batch_norm_training(x, w, correction=1)
        return y, mean * 0.75 + new_mean * 0.25, var * 0.8 + new_var * 0.2, mean * 0.75 + new_mean * 0.2

    def elsewhere(x: Any, w: Any, mean: Any, var: Any) -> Any:
        y, new_mean, new_var = st.batch_norm_training(x, w, correction=1)
        with with_backend(st.CPU):
            followed = mean * 0.75 + new_mean * 0.25, var * 0.75 + new_var * 0.25
        return y, followed

    arguments = (normal(3, 2, 2, 3), normal(2), normal(2), normal(2) ** 2)
    for function, is_followed in ((follow, True), (apart, True), (biased, False), (uneven, False), (elsewhere, False)):
        staged = on_gpu(function)
        agrees_in_any_order(staged, device, 2e-5, *arguments)
        text = staged.stage(*arguments).source
        assert bool(re.search(r"\s0\.25,\s+mean,\s", text)) is is_followed, function.__name__


def test_inference_is_a_call_where_no_kernel_takes_it_along(device: Emulator) -> None:
    def alone(x: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
        return st.batch_norm(x, mean, var, w, b), st.conv2d(st.batch_norm(x, mean, var), st.ones((2, 3, 1, 1)))

    def between(x: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
        return st.relu(st.batch_norm(x, mean, var, w, b)), st.batch_norm(x + 1.0, mean, var, w, b)

    arguments = (normal(2, 3, 4, 5), normal(3), normal(3) ** 2, normal(3), normal(3))
    for function, count in ((alone, 2), (between, 0)):
        staged = on_gpu(function)
        agrees_in_any_order(staged, device, 2e-5, *arguments)
        text = staged.stage(*arguments).source
        assert routines(text).count("BatchNormalizationForwardInference") == count
        assert ("cudnn.h" in text) is (count > 0)


def test_the_first_number_that_is_none_is_named() -> None:
    @st.function(check_nan=True, target="portable")
    def program(x: Any) -> Any:
        with with_backend(GPU, x):
            normal = st.batch_norm_training(x)[0]
            y = st.avg_pool2d(normal, 2) * 2.0
        return y

    x = normal(2, 2, 4, 4)
    program(x)
    x[1, 0, 2, 2] = np.inf
    with pytest.raises(st.ProgramError, match="`normal` has NaN") as caught:
        program(x)
    assert "normal = st.batch_norm_training(x)[0]" in str(caught.value)


def test_what_cudnn_does_not_take_stays_kernels() -> None:
    for shape in ((0, 3, 2, 2), (65536, 1)):
        text = on_gpu(lambda x: st.batch_norm(x, *[st.ones((x.shape[1],))] * 2)).stage(np.zeros(shape, "f4")).source
        assert "cudnn.h" not in text
    text = on_gpu(lambda x: st.batch_norm_training(x)[0]).stage(np.zeros((65536, 1), "f4")).source
    assert "cudnn.h" not in text


def test_what_stands_for_a_weight_and_a_bias_is_made_once(device: Emulator) -> None:
    def normalised(x: Any) -> Any:
        for _ in st.range(6):
            x = st.batch_norm_training(x)[0] * 2.0
        return x

    gc.collect()
    before = device.counts()
    staged, x = on_gpu(normalised), normal(4, 5, 3)
    agrees_in_any_order(staged, device, 1e-5, x)
    assert (device.counts() - before).allocations == 3  # the arena, ones, zeros
    text = staged.stage(x).source
    assert text.count("fill_f32(gpu, host") == 2 and text.count('extern "C" __global__') == 1
    del staged
    gc.collect()
    assert (device.counts() - before).live_allocations == 0


def test_sixty_batch_norms_share_descriptors_and_give_them_back(device: Emulator) -> None:
    def deep(x: Any, w: Any, b: Any) -> Any:
        def loss(x: Any, w: Any, b: Any) -> Any:
            for _ in range(60):
                x = x + st.batch_norm_training(x, w, b)[0]
            return st.mean(x * x)

        return st.value_and_grad(loss, argnums=(0, 1, 2))(x, w, b)

    gc.collect()
    before = device.counts()
    # In f64: the gradient of so many norms is a small difference of large numbers.
    staged, arguments = on_gpu(deep), (normal(3, 2, 2, 3, dtype="f8"), normal(2, dtype="f8"), normal(2, dtype="f8"))
    found = staged(*arguments)
    with st.eager():
        compare_trees(found, staged(*arguments), rtol=1e-8, atol=1e-9)
    first = device.counts() - before
    assert first.descriptors_created == 2  # the images, and a number for each channel
    staged(*arguments)
    again = device.counts() - before
    assert (again.descriptors_created, again.allocations) == (first.descriptors_created, first.allocations)
    text = staged.stage(*arguments).source
    assert text.count("BatchNormalization") == 2
    program = staged.stage(*arguments)
    assert program._artifact.link == ("-lcudnn", "-lcudart") and "cublas_v2.h" not in text
    del staged, program
    nothing_is_left(device, before)
