"""Random numbers go on: the default generator of each thread, and generators of one's own, in eager mode and in programs."""

from __future__ import annotations

import copy
import gc
import pickle
from functools import partial

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.frontend.values.generator import numbers_again
from tests.threads import run_at_once

X = np.arange(1.0, 5.0, dtype=np.float32)


def same(have, want):
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-6)


def state(generator=None):
    found = (generator or st.random.default_generator()).state_dict()
    return int(found["seed"]), int(found["counter"])


# ---- the default generator -----------------------------------------------------------------------


def test_calls_go_on_and_are_those_of_eager_mode_and_of_plain_python() -> None:
    @st.function
    def f(x):
        return st.dropout(x, 0.5), st.random.normal((3,)), st.random.permutation(9)

    st.seed(5)
    found = [f(X), f(X), f.stage(X)(X)]
    assert state() == (5, 9)
    assert (found[0][2] != found[1][2]).any() and (found[1][2] != found[2][2]).any()
    st.seed(5)
    with st.eager():
        in_eager = [f(X) for _ in range(3)]
    st.seed(5)
    in_python = [(st.dropout(X, 0.5), st.random.normal((3,)), st.random.permutation(9)) for _ in range(3)]
    for have, eager, plain in zip(found, in_eager, in_python, strict=True):
        for each, one, other in zip(have, eager, plain, strict=True):
            same(each, one)
            same(each, other)
    assert len(f.programs) == 1 and not f.why_traced()


def test_gradients_in_plain_python_go_on() -> None:
    slope = st.grad(lambda x: st.sum(st.dropout(x, 0.5)))
    masks = [tuple(np.asarray(slope(np.ones(32)))) for _ in range(3)]
    assert len(set(masks)) == 3 and state() == (0, 3)
    st.seed(0)
    compiled = st.function(lambda x: slope(x))
    assert [tuple(np.asarray(compiled(np.ones(32)))) for _ in range(3)] == masks


def test_a_seed_in_a_program_holds_from_there_on_in_loops_and_branches_too() -> None:
    @st.function
    def f(n):
        first = st.random.uniform(())
        for i in st.range(n):
            if i == 1:
                st.seed(n + 100)
            first = first + st.random.uniform(())
        return first

    st.seed(7)
    found = f(3), f(1), st.random.uniform(())
    assert state() == (103, 5)
    st.seed(7)
    with st.eager():
        expected = f(3), f(1), st.random.uniform(())
    same(found, expected)


def test_a_program_that_stops_has_drawn_what_it_has_drawn() -> None:
    @st.function
    def f(n):
        total = 0.0
        for i in st.range(n):
            total += st.random.uniform(())
            assert i < 2
        return total

    for run in (st.eager, numbers_again):
        st.seed(1)
        with run():
            with pytest.raises(AssertionError):
                f(5)
            assert state() == (1, 3)


def test_a_program_that_draws_nothing_has_no_arguments_for_it() -> None:
    @st.function
    def f(x, draws):
        return st.dropout(x, 0.5, training=draws) * 2

    assert "random" in f.stage(X, True).header
    assert "random" not in f.stage(X, False).header


def test_functions_with_a_seed_have_numbers_of_their_own_which_go_on() -> None:
    def draw():
        return st.random.uniform((2,))

    f, g = st.function(draw, seed=3), st.function(draw, seed=3)
    first, second = f(), f()
    assert (first != second).any() and state() == (0, 0)
    with st.eager():
        same(g(), first)
    same(g(), second)
    st.seed(3)
    same(st.random.uniform((2,)), first)


def test_methods_of_a_class_share_the_numbers_of_their_function() -> None:
    class Sampler:
        @st.function(seed=2)
        def draw(self):
            return st.random.uniform(())

    one, other = Sampler(), Sampler()
    assert len({float(one.draw()), float(one.draw()), float(other.draw())}) == 3


@pytest.mark.parametrize("value", ["a", 1.5, None, 2**63, np.zeros(2), np.float32(1)])
def test_what_is_no_seed_is_refused(value) -> None:
    calls = [lambda: st.seed(value), lambda: st.random.Generator(value)]
    if value is not None:
        calls.append(lambda: st.function(lambda: 1, seed=value))
    for call in calls:
        with pytest.raises((st.ArgumentError, st.DTypeError), match="a seed is an integer"):
            call()


def test_other_things_than_generators_are_refused() -> None:
    with pytest.raises(st.DTypeError, match=r"a generator is a `st.random.Generator`, got an int"):
        st.random.normal((2,), generator=3)


def test_the_counter_wraps_as_in_programs() -> None:
    f = st.function(lambda: st.random.uniform((2,)))
    generator = st.random.default_generator()
    found = []
    for run in (st.eager, numbers_again):
        generator.load_state_dict({"seed": 1, "counter": 2**63 - 1})
        with run():
            found.append(f())
            assert state() == (1, -(2**63))
    same(*found)


# ---- threads -------------------------------------------------------------------------------------


def in_threads(work, count=2):
    found, failed = [None] * count, []

    def run(index):
        try:
            found[index] = work(index)
        except BaseException as error:
            failed.append(error)

    run_at_once(partial(run, index) for index in range(count))
    assert not failed, failed
    return found


def test_threads_have_numbers_of_their_own_whoever_traced_the_program() -> None:
    named = st.random.default_generator()
    f = st.function(lambda generator: st.random.uniform(()) + generator.uniform(()))
    st.seed(4)
    first = f(named)  # traced here, by this thread

    def work(index):
        st.seed(4 + index)
        return [float(f(named) if turn % 2 else named.uniform(()) + st.random.uniform(())) for turn in range(20)]

    found = in_threads(work)
    assert state() == (4, 2) and len(f.programs) == 1
    st.seed(4)
    assert float(first) == found[0][0]
    same(found[0], [float(f(named)) for _ in range(20)])
    assert not set(found[0]) & set(found[1])


def test_threads_take_turns_with_one_generator_in_programs_and_eagerly() -> None:
    shared = st.random.Generator(6)

    @st.function
    def f(n):
        total = []
        for _ in range(4):
            total.append(shared.uniform((), dtype=st.f64))
        return total

    f(1)
    found = in_threads(lambda index: [x for turn in range(25) for x in (*f(1), shared.uniform((), dtype=st.f64))], 3)
    assert state(shared) == (6, 4 + 3 * 25 * 5)
    assert len({float(x) for each in found for x in each}) == 3 * 25 * 5


# ---- generators of one's own ---------------------------------------------------------------------


def test_a_generator_gives_what_the_default_one_gives_from_its_seed() -> None:
    own = st.random.Generator(5)
    f = st.function(
        lambda g: (
            g.bits((2,)), g.uniform((2,), low=1.0, high=3.0, dtype=st.f64), g.normal((2,), mean=1.0, std=2.0),
            g.bernoulli(0.3, (5,)), g.integers(3, 9, (4,), st.i32), g.permutation(6), st.dropout(X, 0.5, generator=g),
        )
    )  # fmt: skip
    found = f(own)
    assert state(own) == (5, 7) and state() == (0, 0)
    st.seed(5)
    r = st.random
    expected = (
        r.bits((2,)), r.uniform((2,), low=1.0, high=3.0, dtype=st.f64), r.normal((2,), mean=1.0, std=2.0),
        r.bernoulli(0.3, (5,)), r.integers(3, 9, (4,), st.i32), r.permutation(6), st.dropout(X, 0.5),
    )  # fmt: skip
    own.start(5)
    with st.eager():
        again = f(own)
    for have, want, eager in zip(found, expected, again, strict=True):
        assert have.dtype == np.asarray(want).dtype
        same(have, want)
        same(have, eager)


def test_one_generator_given_twice_is_one() -> None:
    @st.function
    def f(pair, second):
        return (
            pair["first"].uniform((), dtype=st.f64),
            second.uniform((), dtype=st.f64),
            pair["first"].uniform((), dtype=st.f64),
        )

    own, other = st.random.Generator(1), st.random.Generator(1)
    assert len(set(map(float, f({"first": own}, own)))) == 3 and state(own) == (1, 3)
    first, second, third = map(float, f({"first": other}, st.random.Generator(1)))
    assert first == second != third and state(other) == (1, 2)


def test_generators_in_loops_branches_and_transforms_are_those_of_eager_mode() -> None:
    own = st.random.Generator(8)

    @st.function
    def f(x, n):
        def noisy(x):
            y = x
            for _ in st.range(n):
                if st.sum(y) > 8.0:
                    y = y * own.uniform((4,))
                else:
                    y = y + st.checkpoint(lambda y: y * y * own.normal((4,)))(y)
            return st.sum(y)

        value, slope = st.value_and_grad(noisy)(x)
        moved = st.jvp(noisy, (x,), (x,))
        second = st.grad(lambda x: st.sum(st.grad(noisy)(x)))(x)
        return value, slope, moved, second, own.uniform(())

    found = f(X, 3), f(X, 2)
    counted = state(own)
    own.start(8)
    with st.eager():
        expected = f(X, 3), f(X, 2)
    assert counted == state(own) and counted[1] == 2 * 1 + 3 * (3 + 2)
    for have, want in zip(found, expected, strict=True):
        for left, right in zip((*have[:2], *have[2], *have[3:]), (*want[:2], *want[2], *want[3:]), strict=True):
            np.testing.assert_allclose(np.asarray(left), np.asarray(right), rtol=2e-5)


def test_a_checkpoint_draws_again_what_it_drew() -> None:
    own = st.random.Generator(2)

    def loss(x):
        return st.sum(st.checkpoint(lambda x: st.dropout(x * x, 0.5, generator=own))(x))

    value, slope = st.function(lambda x: st.value_and_grad(loss)(x))(X)
    assert state(own) == (2, 1)
    own.start(2)
    kept = np.asarray(own.bernoulli(0.5, (4,)))
    same(slope, np.where(kept, 4 * X, 0))
    same(value, np.where(kept, 2 * X * X, 0).sum())


def test_drawing_from_a_generator_under_vmap_is_refused_with_the_way_out() -> None:
    own = st.random.Generator(2)
    f = st.function(lambda x: st.vmap(lambda row: row * own.uniform(()))(x))
    for run in (st.eager, numbers_again):
        with run(), pytest.raises(st.StagingError, match="random numbers are drawn inside") as caught:
            f(X)
        assert "draw the numbers before" in str(caught.value)
    assert state(own) == (2, 0)


def test_a_generator_in_a_recursion_goes_on() -> None:
    own = st.random.Generator(3)

    @st.function
    def total(n):
        if n == 0:
            return 0.0
        return total(n - 1) + own.uniform((), dtype=st.f64)

    found = total(4)
    assert state(own) == (3, 4)
    own.start(3)
    same(found, sum(float(own.uniform((), dtype=st.f64)) for _ in range(4)))


def test_a_generator_made_inside_lives_in_the_program() -> None:
    @st.function
    def f(seed):
        own = st.random.Generator(seed)
        return own.uniform(()), copy.deepcopy(own).uniform(()), own.uniform(())

    for _ in range(2):
        first, copied, second = f(9)
        assert copied == second != first
    assert state() == (0, 0)
    with st.eager():
        same(f(9), (first, copied, second))


def test_another_generator_in_its_place_is_seen() -> None:
    class Noisy(nn.Module):
        def __init__(self, seed):
            self.noise = st.random.Generator(seed)
            self.drop = nn.Dropout(0.5, generator=self.noise)

        def forward(self, x):
            return self.drop(x) + self.noise.normal((4,))

    model = Noisy(1)
    f = st.function(lambda x: model(x))
    first = f(X)
    model.noise = st.random.Generator(1)
    second = f(X)
    assert f.why_traced()
    assert state(model.noise) == (1, 1) and state(model.drop.generator) == (1, 3)
    assert (first != second).any()
    model = Noisy(1)
    gc.collect()
    same(f(X), first)


# ---- keeping -------------------------------------------------------------------------------------


def test_copies_and_pickles_go_on_by_themselves() -> None:
    own = st.random.Generator(4, name="noise")
    own.uniform(())
    held = {"a": own, "b": own}
    made = copy.deepcopy(held)
    assert made["a"] is made["b"] is not own
    assert st.random.default_generator() is st.random.default_generator()
    kept = copy.copy(st.random.default_generator())
    assert float(kept.uniform(())) == float(st.random.uniform(())) and state() == state(kept) == (0, 1)
    kept.uniform(())
    assert state() == (0, 1)
    copies = [copy.copy(own), made["a"], pickle.loads(pickle.dumps(own))]
    expected = float(own.uniform(()))
    for each in copies:
        assert float(each.uniform(())) == expected and state(each) == (4, 2)
        assert each.seed.name == "noise.seed" and repr(each) == "Generator(4, counter=2)"


def test_a_module_saves_the_generators_that_it_holds() -> None:
    class Noisy(nn.Module):
        def __init__(self):
            self.noise = st.random.Generator(5)
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x) + self.noise.normal((2,))

    model = nn.Sequential(Noisy())
    assert model.state_dict().keys() == {"0.noise.seed", "0.noise.counter", "0.linear.weight", "0.linear.bias"}
    assert model.named_parameters().keys() == ["0.linear.weight", "0.linear.bias"]
    assert model.named_buffers().keys() == ["0.noise.seed", "0.noise.counter"]
    x = np.ones(2, np.float32)
    model(x)
    saved = model.state_dict()
    expected = model(x)
    other = nn.Sequential(Noisy())
    other.load_state_dict(saved)
    same(other(x), expected)
    same(copy.deepcopy(other)(x), other(x))
    names = st.function(lambda x: model(x)).stage(x).header
    assert "0.noise.counter" in names


def test_what_a_program_saves_of_a_module_is_of_the_generator_that_it_holds_then() -> None:
    class Noisy(nn.Module):
        def __init__(self, seed):
            self.noise = st.random.Generator(seed)

    model = Noisy(3)
    f = st.function(lambda: (model.noise.uniform(()), model.state_dict()))
    assert [int(f()[1]["noise.counter"]) for _ in range(2)] == [1, 2]
    g = st.function(lambda: model.state_dict()["noise.seed"])
    assert int(g()) == 3
    model.noise = st.random.Generator(4)
    assert int(g()) == int(f()[1]["noise.seed"]) == 4


def test_batches_are_shuffled_by_a_generator_of_ones_own() -> None:
    own = st.random.Generator(3)

    @st.function
    def f(x):
        rows = []
        for _ in range(2):
            order = x[:2]
            for batch in st.batches(x, size=2, shuffle=True, generator=own):
                order = batch
            rows.append(order)
        return rows

    x = np.arange(20)
    found = f(x), f(x)
    assert state(own) == (3, 4) and state() == (0, 0)
    own.start(3)
    expected = [np.asarray(own.permutation(20))[-2:] for _ in range(4)]
    np.testing.assert_array_equal(np.concatenate([*found[0], *found[1]]), np.concatenate(expected))


def test_generators_in_a_list_of_a_module_are_refused_since_nothing_would_save_them() -> None:
    class Several(nn.Module):
        def __init__(self):
            self.sources = [st.random.Generator(1)]

    with pytest.raises(TypeError, match=r"`Several.sources` is a list of generators, which are not saved"):
        Several().state_dict()


@pytest.mark.parametrize("given", [{}, {"seed": 1}, {"seed": 1, "counter": 2, "more": 3}, 7])
def test_what_is_no_state_of_a_generator_is_refused(given) -> None:
    own = st.random.Generator(5)
    with pytest.raises(st.StateDictError, match="has `seed` and `counter`"):
        own.load_state_dict(given)
    assert state(own) == (5, 0)


def training():
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.3), nn.ReLU(), nn.Linear(6, 1))
    optimizer = optim.Adam(model.parameters(), lr=0.05)
    own = st.random.Generator(17)

    @st.function
    def step(x):
        def loss():
            return st.mean((model(x + own.normal((5, 4), std=0.1)) - 1.0) ** 2)

        value, grads = st.value_and_grad(loss, wrt=model)()
        optimizer.step(grads)
        return value

    return model, optimizer, own, step


def test_a_run_that_is_saved_and_resumed_mid_way_gives_the_bits_of_one_that_was_not() -> None:
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    st.seed(11)
    model, optimizer, own, step = training()
    losses = [step(x) for _ in range(3)]
    parts = model, optimizer, own, st.random.default_generator()
    saved = pickle.dumps([part.state_dict() for part in parts])
    losses += [step(x) for _ in range(3)]
    st.seed(99)  # another process
    model, optimizer, own, step = training()
    for part, given in zip((model, optimizer, own, st.random.default_generator()), pickle.loads(saved), strict=True):
        part.load_state_dict(given)
    resumed = [step(x) for _ in range(3)]
    assert [float(value).hex() for value in resumed] == [float(value).hex() for value in losses[3:]]
    assert len({float(value) for value in losses}) == 6
