"""Gradients of programs whose ranks take different branches: each case is equal on any number of ranks.

The 12 rows of the data are sharded, and a case treats its rows one by one. `test_local_gradients.py` compares them.
"""

from __future__ import annotations

import numpy as np

import staged as st
from staged.base.launcher import this_job

JOB = this_job()
RNG = np.random.default_rng(30)
X, W, U = RNG.normal(size=(12, 3)), RNG.normal(size=3), RNG.normal(size=(3, 3))
IDS = RNG.integers(0, 3, size=12)


def gradients(row_loss, *more):
    """The mean over all rows of a function of a row and two weights, with gradients."""

    @st.function
    def run(x, ids, w, u):
        x, ids = st.shard(x), st.shard(ids)

        def loss(w, u):
            total = 0.0
            for i in range(x.shape[0]):
                total = total + row_loss(x[i], ids[i], w, u)
            return st.all_reduce(total) / 12

        return st.value_and_grad(loss, argnums=(0, 1))(w, u)

    return run(X, IDS, W, U)


def whole(loss_of, *given):
    """A function of the shard and two weights that returns a replicated loss, with gradients."""

    @st.function
    def run(x, ids, w, u):
        x, ids = st.shard(x), st.shard(ids)
        return st.value_and_grad(lambda w, u: loss_of(x, ids, w, u), argnums=(0, 1))(w, u)

    return run(X, IDS, W, U)


def case_branches():
    def row(x, n, w, u):
        if x[0] > 0.5:
            y = st.sum(x * w)
        elif x[1] > 0:
            y = st.sum(u @ x)
        else:
            y = st.sum(w) * x[2]
        return y * y

    return gradients(row)


def case_replicated_value_of_a_local_branch():
    def row(x, n, w, u):
        v = w
        if x[0] > 0:
            v = u[0]
        return st.sum(st.tanh(v)) * 1.0

    return gradients(row)


def case_local_while():
    def row(x, n, w, u):
        y = st.sum(x * w)
        while abs(y) > 0.1:
            y = y * st.tanh(u[0, 0]) * 0.5
        return y

    return gradients(row)


def case_local_trip_count():
    def row(x, n, w, u):
        h = x
        for i in range(n):
            h = st.tanh(u @ h) + w * i
        return st.sum(h)

    return gradients(row)


def case_break_and_continue():
    def row(x, n, w, u):
        h = st.zeros(3, dtype=st.f64)
        for i in range(4):
            if x[0] * i < -0.5:
                continue
            h = st.tanh(u @ h + w)
            if st.sum(h * x) > 0.3:
                break
            h = h + x * w
        return st.sum(h)

    return gradients(row)


def early(x, w, u):
    h = x
    for _ in range(3):
        h = st.tanh(u @ h)
        if st.sum(h * x) > 0.2:
            return w
        h = h * w
    if x[0] > 0:
        return u[0]
    return h


def case_early_return():
    return gradients(lambda x, n, w, u: st.sum(early(x, w, u) ** 2))


@st.function
def deep(x, w, n):
    if n <= 0:
        return w
    return st.tanh(deep(x, w, n - 1) * x)


def case_recursion():
    return gradients(lambda x, n, w, u: st.sum(deep(x, w, n)) + st.sum(deep(x, u[0], n + 1)))


def case_replicated_recursion():
    return whole(lambda x, n, w, u: st.all_reduce(st.sum(x @ deep(u[0], w, 3))) / 12 + st.sum(deep(u[1], w, 2)))


def case_list_by_a_local_index():
    def row(x, n, w, u):
        hs = []
        h = w
        for _ in range(5):
            h = st.tanh(u @ h)
            hs.append(h)
        y = 0.0
        for j in range(n + 1):
            y = y + st.sum(st.asarray(hs)[j] * x)
        return y

    return gradients(row)


def case_local_list():
    def row(x, n, w, u):
        hs = []
        for i in range(4):
            if x[0] > 0:
                hs.append(w * i)
            else:
                hs.append(x * w)
        return st.sum(st.stack(hs)[2])

    return gradients(row)


def case_stack():
    def row(x, n, w, u):
        stack = st.Stack(w, max=8)
        stack.append(w)
        for i in range(n):
            stack.append(x * w * i)
        y = st.sum(stack.pop())
        while len(stack) > 0:
            y = y + st.sum(stack.pop() * u[0])
        return y

    return gradients(row)


def case_vmap():
    def row(x, w, u):
        y = st.sum(x * w)
        while abs(y) > 0.1:
            y = y * 0.5
        if x[0] > 0:
            y = y + st.sum(st.tanh(u @ x))
        return y

    return whole(lambda x, n, w, u: st.all_reduce(st.sum(st.vmap(lambda r: row(r, w, u))(x))))


def case_jvp():
    def loss(x, n, w, u):
        y, d_y = st.jvp(lambda w: st.all_reduce(st.sum(st.tanh(x @ w))), (w,), (u[0],))
        return y * d_y

    return whole(loss)


def case_jvp_of_local():
    def loss(x, n, w, u):
        y, d_y = st.jvp(lambda w: st.sum(st.tanh(x @ w)), (w,), (u[0],))
        return st.all_reduce(d_y * d_y * 0.0 + d_y + y)

    return whole(loss)


def case_second_order():
    def loss(x, n, w, u):
        d_w = st.grad(lambda w: st.all_reduce(st.sum(st.tanh(x @ w * st.sum(u)))))(w)
        return st.sum(d_w * d_w * w)

    return whole(loss)


def case_second_order_of_max():
    def loss(x, n, w, u):
        d_w = st.grad(lambda w: st.all_reduce(st.max(st.tanh(x @ w * st.sum(u))), "max") ** 3)(w)
        return st.sum(d_w * d_w * w)

    return whole(loss)


def case_derivative_of_local_by_local():
    def loss(x, n, w, u):
        total = 0.0
        for i in range(x.shape[0]):
            d_x = st.grad(lambda x: st.sum(st.tanh(u @ x) * w))(x[i])
            total = total + st.sum(d_x**2)
        return st.all_reduce(total)

    return whole(loss)


def case_checkpoint():
    def loss(x, n, w, u):
        @st.checkpoint
        def block(h):
            h = st.tanh(h @ u) * w
            return h - st.all_reduce(st.sum(h, axis=0)) / 12

        h = x
        for _ in range(3):
            h = block(h)
        return st.all_reduce(st.sum(h**2))

    return whole(loss)


@st.custom_vjp
def scaled(x, w):
    return st.sum(x * w)


scaled.defvjp(lambda x, w: (st.sum(x * w), (x, w)), lambda kept, ct: (ct * kept[1], ct * kept[0]))


def case_custom_vjp():
    return gradients(lambda x, n, w, u: scaled(x, w) ** 2 + scaled(u[0], w))


@st.custom_vjp
def total(x):
    return st.all_reduce(x)


total.defvjp(lambda x: (st.all_reduce(x), ()), lambda kept, ct: (ct,))


def case_custom_vjp_with_a_collective():
    return whole(lambda x, n, w, u: total(st.sum(st.tanh(x @ w))) ** 2 + st.sum(u))


def case_inner_variable():
    return whole(_inner)


def _inner(x, n, w, u):
    v = st.Variable(w)
    total = 0.0
    for i in range(x.shape[0]):
        v.value = w
        if x[i, 0] > 0:
            v.value = v.value * x[i]
        for _ in range(n[i]):
            v.value = st.tanh(u @ v.value)
        total = total + st.sum(v.value)
    return st.all_reduce(total)


def case_table():
    return whole(lambda x, n, w, u: st.all_reduce(st.sum(u[n] * x)) + st.all_reduce(st.sum(w[n])))


def case_moves():
    def loss(x, n, w, u):
        both = st.concat([st.reshape(w, (1, 3)), u.T], axis=0)
        bias = st.broadcast_to(w, (3, 3)).T
        mixed = st.where(u > 0, bias, u)
        return st.all_reduce(st.sum(st.tanh(x @ both.T)) + st.sum(x @ mixed)) + st.sum(both)

    return whole(loss)


def case_carried():
    def loss(x, n, w, u):
        h, k = w, u[0]
        for _ in range(4):
            h = st.tanh(h * st.sum(x, axis=0) * 0 + k)
            k = st.tanh(u @ k)
        return st.all_reduce(st.sum((x @ u) * st.tanh(h)) / 12)

    return whole(loss)


def case_collective_in_a_loop():
    def loss(x, n, w, u):
        h = w
        for _ in range(5):
            h = st.tanh(st.all_reduce(x.T @ (x @ (u @ h))) / 12)
        return st.sum(h**2)

    return whole(loss)


def case_replicated_while():
    def loss(x, n, w, u):
        h = x @ u
        gap = st.all_reduce(st.max(abs(h)), "max")
        while gap > 0.2:
            h = 0.5 * h * st.tanh(w)
            gap = st.all_reduce(st.max(abs(h)), "max")
        return st.all_reduce(st.sum(h))

    return whole(loss)


def case_local_size():
    def loss(x, n, w, u):
        count = st.dim("P", st.sum(x[:, 0] > 0), max=12)
        kept = x[st.argsort(-x[:, 0])][:count]
        ones = st.ones(count, dtype=st.f64)
        return st.all_reduce(st.sum(st.tanh(kept @ w)) + st.sum(ones) * st.sum(u))

    return whole(loss)


def case_local_loop_in_a_replicated_loop():
    def loss(x, n, w, u):
        total = 0.0
        h = w
        for _ in range(3):
            h = st.tanh(u @ h)
            for k in range(x.shape[0]):
                y = st.sum(x[k] * h)
                while y > 0.5:
                    y = y * 0.3 + st.sum(h) * 0.01
                total = total + y
            h = h + st.all_reduce(st.sum(x, axis=0)) * w
        return st.all_reduce(total)

    return whole(loss)


LAYERS = [st.Variable(np.random.default_rng(k).normal(size=(3, 3)), name=f"w{k}") for k in range(6)]


def case_rolled_layers():
    @st.function
    def run(x):
        x = st.shard(x)

        def loss():
            h = x
            for layer in LAYERS:
                h = st.tanh(h @ layer)
            return st.all_reduce(st.sum(h**2))

        return st.value_and_grad(loss, wrt=LAYERS)()

    value, found = run(X)
    return value, np.stack(found)


def case_declared():
    @st.function(local=("rows",))
    def run(rows, w):
        def loss(w):
            return st.all_reduce(st.sum(st.tanh(rows["x"] @ w)) + st.sum(w) / st.ranks())

        return st.value_and_grad(loss)(w)

    return run({"x": np.split(X, JOB.ranks)[JOB.rank]}, W)


def case_shard_of_weights():
    def loss(x, n, w, u):
        ws = st.shard(st.concat([u, u * 2, w[None], w[None] ** 2, u * 3, w[None] ** 3, u[:0]], axis=0)[:12][:, 0])
        return st.all_reduce(st.sum(st.tanh(ws * x[:, 0])))

    return whole(loss)


def case_gathered():
    def loss(x, n, w, u):
        h = st.all_gather(st.tanh(x @ u))
        return st.sum(st.mean(h, axis=0) * w) ** 2 + st.sum(h[2])

    return whole(loss)


def case_scattered():
    def loss(x, n, w, u):
        own = u / st.ranks()
        outer = st.concat([u * st.sum(st.tanh(x @ w)), own, own * w, own], axis=0)
        part = st.reduce_scatter(outer)
        return st.all_reduce(st.sum(st.tanh(part)))

    return whole(loss)


def case_jvp_of_grad():
    @st.function
    def run(x, w, u):
        x = st.shard(x)

        def f(w):
            return st.all_reduce(st.sum(st.tanh(x @ w) ** 2))

        return st.jvp(st.grad(f), (w,), (u[0],))

    return run(X, W, U)


def case_under_replicated_if():
    def loss(x, n, w, u):
        s = st.all_reduce(st.sum(x @ w))
        if s > 0:
            y = st.all_reduce(st.sum(st.tanh(x @ w)))
        else:
            y = st.all_reduce(st.sum(st.tanh(x @ u) @ w)) + st.sum(w)
        return y

    return whole(loss)


def case_value_and_grad_under_if():
    @st.function
    def run(x, w):
        x = st.shard(x)
        s = st.all_reduce(st.sum(x))
        if s > 100:
            return w * 0
        d = w
        for _ in range(3):
            d = d - 0.1 * st.grad(lambda w: st.all_reduce(st.sum(st.tanh(x @ w)), "mean") * st.ranks())(d)
        return d

    return run(X, W)


def case_set_item():
    def row(x, n, w, u):
        h = st.zeros((4, 3), dtype=st.f64)
        for i in range(4):
            h[i] = w * i
        h[n] = h[n] + x * u[0]
        return st.sum(h * h)

    return gradients(row)


def case_nested_function():
    @st.function
    def helper(a, b):
        for _ in range(2):
            a = st.tanh(a * b)
        return a

    def loss(x, n, w, u):
        replicated = helper(w, u[0])
        local = helper(x, w) * helper(w, x)
        return st.all_reduce(st.sum(local * replicated)) + st.sum(replicated)

    return whole(loss)


def case_mutual_recursion():
    @st.function
    def even(x, w, n):
        if n <= 0:
            return w, x
        a, b = odd(x, w, n - 1)
        return a * w, b * x

    @st.function
    def odd(x, w, n):
        if n <= 0:
            return w * w, w
        a, b = even(x, w, n - 1)
        return st.tanh(a), b

    def row(x, n, w, u):
        a, b = even(x, w, n + 1)
        c, d = even(w, w, 3)
        return st.sum(a * b) + st.sum(c * d)

    return gradients(row)


def case_captured_in_recursion():
    def loss(x, n, w, u):
        @st.function
        def f(h, k):
            if k <= 0:
                return h * w
            return f(st.tanh(u @ h), k - 1)

        t = 0.0
        for i in range(x.shape[0]):
            t = t + st.sum(f(x[i], n[i]))
        return st.all_reduce(t) + st.sum(f(w, 2))

    return whole(loss)


def case_local_variable_wrt():
    v = st.Variable(np.split(X[:, 0], JOB.ranks)[JOB.rank], name="v", local=True)

    @st.function
    def run(x, w):
        x = st.shard(x)

        def f():
            return st.all_reduce(st.sum(st.tanh(x @ w * v)))

        value, d = st.value_and_grad(f, wrt=v)()
        v.value = v.value - 0.1 * d
        return value, st.all_gather(v.value)

    r = [run(X, W) for _ in range(3)]
    return r


def case_complex():
    def loss(x, n, w, u):
        z = (x @ u) * (1.0 + 2.0j)
        z = z * st.exp(1j * w)
        return st.all_reduce(st.sum(abs(z) ** 2 * w))

    return whole(loss)


def case_min_ties():
    def loss(x, n, w, u):
        y = st.all_reduce(st.min(st.maximum(x, w)), "min")
        return y * st.sum(w)

    return whole(loss)


def case_checkpoint_with_local_branch():
    def row(x, n, w, u):
        @st.checkpoint
        def f(h):
            if h[0] > 0:
                return st.tanh(u @ h)
            return h * w

        return st.sum(f(f(x)))

    return gradients(row)


def case_grad_in_vmap():
    def loss(x, n, w, u):
        g = st.vmap(st.grad(lambda r: st.sum(st.tanh(u @ r) * w)))(x)
        return st.all_reduce(st.sum(g**2))

    return whole(loss)


def case_raise_on_some():
    def loss(x, n, w, u):
        if st.max(x) > 100:
            raise ValueError("large")
        y = x @ w
        assert st.max(y) < 1e9
        return st.all_reduce(st.sum(st.tanh(y)))

    return whole(loss)


def case_layers_local_input_first():
    ws = [st.Variable(np.random.default_rng(k).normal(size=(3, 3)), name=f"l{k}") for k in range(6)]

    @st.function
    def run(x):
        x = st.shard(x)

        def loss():
            h = ws[0].value
            for layer in ws:
                h = st.tanh(h @ layer)
            g = x
            for layer in ws:
                g = st.tanh(g @ layer + h[0])
            return st.all_reduce(st.sum(g)) + st.sum(h)

        return st.value_and_grad(loss, wrt=ws)()

    v, d = run(X)
    return v, np.stack(d)
