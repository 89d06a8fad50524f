"""CTC losses by cuDNN: eager's values and gradients, PyTorch's too, which losses are calls, and what these need."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, nn, optim, with_backend
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import agrees_in_any_order, on_gpu, trains_as_on_the_host

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(5)
STEPS, BATCH, CLASSES, LABELS = 9, 7, 6, 4
SCORES = RANDOM.normal(0.0, 2.0, (STEPS, BATCH, CLASSES)).astype(np.float32)
TARGETS = RANDOM.integers(1, CLASSES, (BATCH, LABELS))
TARGETS[1] = TARGETS[1, 0]  # equal labels, with room for a blank between them
TARGETS[2, 2:] = -7  # what stands behind a text is padding
TARGETS[5] = 3  # equal labels, without that room
# In this order: plain, equal labels, padded, an empty text, more labels than steps, equal ones, no steps and no text.
INPUTS, LENGTHS = np.array([9, 9, 6, 8, 2, 6, 0]), np.array([4, 3, 2, 0, 4, 4, 0])


def losses_of(x: Any, *texts: Any, **options: Any) -> Any:
    return st.ctc_loss(st.log_softmax(x), *texts, **options)  # here


def weighted(x: Any, *texts: Any, **options: Any) -> Any:
    """Losses whose cotangents differ, and are 0 for some."""
    found = losses_of(x, *texts, reduction="none", zero_infinity=True, **options)
    return st.sum(found * np.arange(found.shape[0], dtype=np.float32)), found


def calls(text: str) -> tuple[int, int]:
    """The numbers of calls of cuDNN for losses with their gradient, and for losses alone."""
    functions = re.findall(r"static int (\w+)\(const Device \*gpu[^{]*\) \{\n([^}]*)\n\}", text)
    made = [(name, body) for name, body in functions if "cudnnCTCLoss_v8" in body]
    sites = {name: len(re.findall(rf"if \({name}\(", text)) for name, _ in made}
    alone = sum(sites[name] for name, body in made if "NULL, NULL" in body)
    return sum(sites.values()) - alone, alone


def test_losses_and_gradients_agree_with_eager(device: Emulator) -> None:
    def everything(x: Any, *texts: Any) -> Any:
        alone = losses_of(x + 1.0, *texts, reduction="none")
        mean = st.value_and_grad(lambda x: losses_of(x, *texts, reduction="mean"))(x)
        zeroed = st.value_and_grad(lambda x: losses_of(x * 0.5, *texts, reduction="sum", zero_infinity=True))(x)
        return alone, mean, zeroed, st.grad(lambda x: weighted(x, *texts), has_aux=True)(x)

    arguments = SCORES, TARGETS, INPUTS, LENGTHS
    staged = on_gpu(everything)
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    text = staged.stage(*arguments).source
    # Two of the gradients are of the very same losses.
    assert calls(text) == (2, 1)
    assert text.count("cudnnSetCTCLossDescriptor_v9") == text.count("cudnnSetTensorNdDescriptor") == 1
    assert "path_history" not in text


@pytest.mark.parametrize(
    ("steps", "classes", "texts", "inputs"),
    [
        (1, 2, [[1]], [1]),
        (4, 2, [[1, 1, 1]], [4]),
        (300, 3, [[1, 2] * 100, [2] * 120 + [0] * 80], [300, 270]),
        (12, 40, [[39, 7, 7], [1, 0, 0]], [12, 3]),
    ],
)
def test_sizes(device: Emulator, steps: int, classes: int, texts: list[list[int]], inputs: list[int]) -> None:
    x = RANDOM.normal(size=(steps, len(texts), classes)).astype(np.float32)
    lengths = np.array([sum(label > 0 for label in text) for text in texts], np.int32)
    staged = on_gpu(lambda x, *texts: st.value_and_grad(lambda x: losses_of(x, *texts, reduction="sum"))(x))
    arguments = x, np.array(texts, np.uint8), np.array(inputs, np.int32), lengths
    assert calls(staged.stage(*arguments).source) == (1, 0)
    agrees_in_any_order(staged, device, 1e-4, *arguments)


def test_losses_and_gradients_agree_with_torch(torch: Any) -> None:
    feasible = [0, 1, 2, 3]
    x, texts = SCORES[:, feasible], (TARGETS[feasible], INPUTS[feasible], LENGTHS[feasible])
    theirs = torch.tensor(x, requires_grad=True)
    lengths = torch.tensor(texts[1]), torch.tensor(texts[2])
    loss = torch.nn.functional.ctc_loss(theirs.log_softmax(2), torch.tensor(np.maximum(texts[0], 0)), *lengths)
    loss.backward()
    found, gradient = on_gpu(lambda x, *texts: st.value_and_grad(lambda x: losses_of(x, *texts))(x))(x, *texts)
    np.testing.assert_allclose(found, loss.item(), rtol=1e-5)
    np.testing.assert_allclose(gradient, theirs.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_the_gradient_by_the_log_probabilities_is_that_of_the_formula(device: Emulator) -> None:
    def shared(x: Any, *texts: Any) -> Any:
        log_probs = st.log_softmax(x)
        return st.value_and_grad(lambda scores: st.ctc_loss(scores, *texts, reduction="sum", zero_infinity=True))(
            log_probs
        )

    staged = on_gpu(shared)
    arguments = SCORES, TARGETS, INPUTS, LENGTHS
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    assert calls(staged.stage(*arguments).source) == (1, 0)
    # Each step of a text is in one of its states: the shares of all labels add up to 1.
    np.testing.assert_allclose(staged(*arguments)[1].sum(2)[:, 0], -1.0, rtol=1e-5)


def test_rows_may_stand_elsewhere_than_where_they_were_made(device: Emulator) -> None:
    def moved(x: Any, targets: Any, inputs: Any, lengths: Any) -> Any:
        by_text = lambda x: st.swapaxes(st.log_softmax(x, -1), 0, 1)  # noqa: E731
        in_rows = lambda x: st.reshape(st.log_softmax(st.reshape(x, (-1, CLASSES))), x.shape)  # noqa: E731
        first = st.grad(lambda x: st.ctc_loss(by_text(x), targets, inputs, lengths, zero_infinity=True))(
            st.swapaxes(x, 0, 1)
        )
        second = st.grad(lambda x: st.ctc_loss(in_rows(x), targets, inputs, lengths, zero_infinity=True))(x)
        alone = st.grad(lambda x: losses_of(x, targets[0], inputs[0], lengths[0]))(x[:, 0])
        return first, second, alone

    staged = on_gpu(moved)
    arguments = SCORES, TARGETS, INPUTS, LENGTHS
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    assert calls(staged.stage(*arguments).source) == (3, 0)


def test_probabilities_of_zero_are_no_nan(device: Emulator) -> None:
    x = SCORES[:, :3].copy()
    x[::2, 0, TARGETS[0, 1]] = -np.inf  # not at all steps: there are other ways
    x[:, 1, TARGETS[1, 0]] = -np.inf  # no way is left
    x[3, 2, 5 if TARGETS[2, 0] != 5 else 4] = -np.inf
    staged = on_gpu(lambda x, *texts: st.grad(lambda x: weighted(x, *texts), has_aux=True)(x))
    arguments = x, TARGETS[:3], INPUTS[:3], LENGTHS[:3]
    agrees_in_any_order(staged, device, 2e-5, *arguments)
    gradient, found = staged(*arguments)
    assert np.isfinite(gradient).all() and found[0] > 0.0 and found[1] == 0.0
    assert calls(staged.stage(*arguments).source) == (1, 0)


def test_texts_drawn_by_lot(device: Emulator) -> None:
    steps, batch, classes, longest = 7, 6, 4, 5
    lot = np.random.default_rng(1)
    staged = on_gpu(lambda x, *texts: st.grad(lambda x: weighted(x, *texts), has_aux=True)(x))
    program = None
    for number in range(20):
        device.configure(("eager reverse", f"lazy shuffled seed={number}")[number % 2])
        x = (lot.standard_normal((steps, batch, classes)) * lot.choice([0.1, 1.0, 5.0, 20.0])).astype(np.float32)
        x[..., 1:][lot.random((steps, batch, classes - 1)) < lot.choice([0.0, 0.1])] = -np.inf
        lengths = lot.integers(0, steps + 1, batch), lot.integers(0, longest + 1, batch)
        arguments = x, lot.integers(1, classes, (batch, longest)), *lengths
        with st.eager():
            expected = staged(*arguments)
        program = program or staged.stage(*arguments)
        compare_trees(program(*arguments), expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize(
    ("inputs", "lengths", "label", "said"),
    [
        (10, 2, 1, "length 10 is"),
        (9, 5, 1, "length 5 is"),
        (-1, 2, 1, "length -1 is"),
        (9, -1, 1, "length -1 is"),
        (9, 2, 6, "label 6 is out of range for an alphabet of 6"),
        (9, 2, -1, "label -1 is"),
        (9, 2, 1 << 33, "label 8589934592 is"),
    ],
)
def test_lengths_and_labels_out_of_range_stop_the_program(
    device: Emulator, inputs: int, lengths: int, label: int, said: str
) -> None:
    def run(x: Any, *texts: Any) -> Any:
        return st.grad(lambda x: losses_of(x, *texts))(x)

    staged = on_gpu(run)
    arguments = SCORES[:, :2], np.full((2, LABELS), label), np.array([9, inputs]), np.array([1, lengths])
    for words in ("eager", "lazy shuffled seed=2"):
        device.configure(words)
        with pytest.raises(IndexError, match=said) as caught:
            staged(*arguments)
        assert "# here" in str(caught.value)
    # The program is as good as before.
    arguments[1][:], arguments[2][1], arguments[3][1] = 2, 9, 3
    assert np.isfinite(staged(*arguments)).all()


def in_loops(x: Any, *texts: Any) -> Any:
    def loss(x: Any) -> Any:
        total = 0.0
        for k in st.range(2):
            for _ in st.range(2):
                total = total + losses_of(x, *texts, zero_infinity=True)
                x = x * 0.5
            if k == 1:
                total = total * losses_of(x, *texts, reduction="sum", zero_infinity=True)
        return total

    return st.grad(loss)(x)


def as_long_as(x: Any, *texts: Any) -> Any:
    def loss(x: Any) -> Any:
        k, total = 0, 0.0
        while k < 3 and total < 1000.0:
            total = total + losses_of(x, *texts, zero_infinity=True) ** 2
            x, k = x + 0.5 * x, k + 1
        return total

    return st.grad(loss)(x)


def checkpointed(x: Any, *texts: Any) -> Any:
    def layer(x: Any) -> Any:
        return losses_of(st.sin(x), *texts, zero_infinity=True)

    def loss(x: Any) -> Any:
        total = 0.0
        for k in st.range(2):
            total = total + st.checkpoint(layer)(x * (k + 1.0))
        return total

    return st.grad(loss)(x)


@pytest.mark.parametrize(("function", "expected"), [(in_loops, (2, 2)), (as_long_as, (1, 1)), (checkpointed, (1, 0))])
def test_a_reverse_in_another_loop_has_a_call_of_its_own(
    function: Any, expected: tuple[int, int], device: Emulator
) -> None:
    staged = on_gpu(function)
    arguments = SCORES[:5], TARGETS, np.minimum(INPUTS, 5), LENGTHS
    agrees_in_any_order(staged, device, 1e-4, *arguments)
    text = staged.stage(*arguments).source
    assert calls(text) == expected
    assert "ctc_loss_history" not in text  # no paths are kept


def second(x: Any, *texts: Any) -> Any:
    def loss(x: Any) -> Any:
        return losses_of(x, *texts, reduction="sum", zero_infinity=True)

    return st.grad(lambda x: st.sum(st.grad(loss)(x) ** 2))(x)


NO_CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "f64": (losses_of, (SCORES.astype(np.float64),)),
    "another blank": (lambda x, *texts: losses_of(x, *texts, blank=1), (SCORES,)),
    "no softmax": (lambda x, *texts: st.ctc_loss(x, *texts), (SCORES,)),
    "a softmax over the batch": (lambda x, *texts: st.ctc_loss(st.log_softmax(x, 1), *texts), (SCORES,)),
    "something in between": (lambda x, *texts: st.ctc_loss(st.log_softmax(x) * 2.0, *texts), (SCORES,)),
    "a second derivative": (second, (SCORES,)),
    "one class": (losses_of, (SCORES[:, :, :1],)),
    "no sequences": (losses_of, (SCORES[:, :0],)),
    "no steps": (losses_of, (SCORES[:0],)),
}


@pytest.mark.parametrize("name", NO_CALLS)
def test_what_cudnn_does_not_take_stays_kernels(name: str) -> None:
    function, (x,) = NO_CALLS[name]
    batch = x.shape[1]
    assert "cudnn.h" not in on_gpu(function).stage(x, TARGETS[:batch], INPUTS[:batch], LENGTHS[:batch]).source


@pytest.mark.parametrize(
    ("batch", "longest", "expected"), [(2, 255, (0, 1)), (2, 256, (0, 0)), (2048, 2, (0, 1)), (2049, 2, (0, 0))]
)
def test_long_texts_and_large_batches_stay_kernels(batch: int, longest: int, expected: tuple[int, int]) -> None:
    lengths = np.full(batch, longest)
    text = (
        on_gpu(losses_of)
        .stage(np.zeros((600, batch, 3), "f4"), np.ones((batch, longest), int), lengths + 300, lengths)
        .source
    )
    assert calls(text) == expected


def test_second_derivatives_agree_with_eager(device: Emulator) -> None:
    agrees_in_any_order(on_gpu(second), device, 1e-4, SCORES[:5], TARGETS, np.minimum(INPUTS, 5), LENGTHS)


def test_numbers_that_cudnn_leaves_alone_are_not_looked_at() -> None:
    @st.function(check_nan=True, target="portable")
    def program(x: Any, *texts: Any) -> Any:
        with with_backend(GPU, x, *texts):
            result = st.value_and_grad(lambda x: losses_of(x, *texts))(x)
        return result

    value, gradient = program(SCORES[:, :3], TARGETS[:3], INPUTS[:3], LENGTHS[:3])
    assert np.isfinite(value) and np.isfinite(gradient).all() and not gradient[6:, 2].any()


def test_training_makes_what_the_losses_need_once(device: Emulator) -> None:
    x = RANDOM.normal(size=(6, STEPS, BATCH, 5)).astype(np.float32)
    arguments = (
        x,
        np.stack([np.roll(TARGETS, k, 0) for k in range(6)]),
        *(np.stack([np.roll(numbers, k) for k in range(6)]) for numbers in (INPUTS, LENGTHS)),
    )

    def train(backend: Any) -> tuple[Any, Any]:
        @st.function(target="portable")
        def fit(x: Any, *texts: Any) -> Any:
            st.seed(3)
            net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES))
            adam = optim.Adam(net.parameters(), lr=0.05)
            losses = st.zeros((12,))
            with with_backend(backend, x, *texts):
                for step in st.range(12):
                    batch = [array[step % 6] for array in texts]
                    loss, grads = st.value_and_grad(
                        lambda k=step, batch=batch: losses_of(net(x[k % 6]), *batch, zero_infinity=True), wrt=net
                    )()
                    adam.step(grads)
                    losses[step] = loss
            return losses, net.state_dict()

        return fit(*arguments), fit.stage(*arguments).source

    text, descriptors = trains_as_on_the_host(train, device, rtol=1e-3, atol=1e-4)
    assert calls(text) == (1, 0)
    assert descriptors == 2 * 2  # of two programs: the loss, and its activations
