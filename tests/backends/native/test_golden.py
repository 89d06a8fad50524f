"""The text that programs become, pinned for a named target: a change of output shows its diff."""

import numpy as np

import staged as st
from staged import nn, optim


def test_a_loop_with_a_branch_and_a_print(golden):
    @st.function(target="portable")
    def collatz(n):
        steps = 0
        while n != 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        print(f"{steps} steps")
        return steps

    golden(collatz.stage(27).source)


def test_a_softmax_is_one_kernel(golden):
    @st.function(target="x86-64-v4")
    def probabilities(logits):
        return st.softmax(logits, axis=1)

    golden(probabilities.stage(np.zeros((8, 100), np.float32)).source)


def test_a_training_step_of_a_small_network(golden):
    @st.function(target="x86-64-v3")
    def train(images, labels, epochs):
        hidden, out = nn.Linear(12, 8), nn.Linear(8, 4)
        opt = optim.SGD([*hidden.parameters(), *out.parameters()], lr=0.1)

        def loss_fn(x, y):
            h = st.relu(hidden(x))
            return st.cross_entropy(out(h), y)

        for epoch in st.range(epochs):
            total = 0.0
            for x, y in st.batches(images, labels, size=16):
                loss, grads = st.value_and_grad(loss_fn, wrt=[*hidden.parameters(), *out.parameters()])(x, y)
                opt.step(grads)
                total += loss
            print(f"epoch {epoch}: loss {total:.4f}")
        return hidden.weight.value

    golden(train.stage(np.zeros((64, 12), np.float32), np.zeros(64, np.int32), 3).source)


def test_a_gradient_through_a_while_loop(golden):
    @st.function(target="portable")
    def slope(x):
        def grow(x):
            a = x
            while a < 100.0:
                a = a * x
            return a

        return st.grad(grow)(x)

    golden(slope.stage(np.float64(1.5)).source)
