"""Dataclasses, named tuples, lists, dicts and objects as arguments, results and carried values; changes in place."""

from __future__ import annotations

import collections
import copy
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import staged as st
from staged.errors import CarriedValueError, StaticStateError, UnboundNameError
from staged.frontend.values.objects import contents_of
from tests.frontend.harness import Case, check_refusal, checks_of

X = np.array([1.0, 2.0, 3.0])


@dataclasses.dataclass
class Body:
    position: Any
    velocity: Any
    hits: Any = 0

    def step(self, dt: Any) -> None:
        self.position = self.position + self.velocity * dt

    def bounce(self) -> None:
        self.velocity = -self.velocity * 0.9
        self.hits += 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@dataclasses.dataclass(slots=True)
class Slotted:
    a: Any
    b: Any


class Pair(NamedTuple):
    a: Any
    b: Any


def fields_in_a_loop(x: Any, n: Any) -> Any:
    body = Body(x, x * 0.5)
    for i in range(n):
        body.position = body.position + body.velocity
        body.velocity *= 0.9
        body.hits += i
    return body


def methods_in_nested_control(x: Any, n: Any) -> Any:
    body = Body(x, -x)
    for _ in range(n):
        body.step(0.4)
        if body.position.sum() < 0.0:
            body.bounce()
            k = 0
            while k < 2:
                body.step(0.1)
                k += 1
    return body.position, body.velocity, body.hits


def two_objects(x: Any, n: Any) -> Any:
    a, b = Body(x, x), Body(x * 2, x * 3)
    for i in range(n):
        a.position, b.position = b.position + a.velocity, a.position * 0.5
        if i % 2 == 0:
            a.hits += 1
        else:
            b.hits += 10
            continue
        b.velocity = a.velocity + b.velocity * 0.1
    return a, b


def aliases(x: Any, n: Any) -> Any:
    body = Body(x, x)
    same = body
    others = [body, Body(x, x)]
    for _ in range(n):
        same.position = same.position * 2.0
        others[0].velocity = others[0].velocity + body.position
    return body.position, others[0].position, same.velocity, others[1].position


def argument(body: Any, n: Any) -> Any:
    for _ in range(n):
        body.step(0.5)
        body.hits += 1
    return body


def branches(x: Any, n: Any) -> Any:
    body = Body(x, x)
    if n > 3:
        body.position = body.position * 2.0
        body.hits = n
    else:
        body.velocity = body.velocity * 3.0
    return body


def early_exit(x: Any, n: Any) -> Any:
    body = Body(x, x)
    for i in range(10):
        body.position = body.position + 1.0
        if i == n:
            body.hits = i
            break
        body.velocity = body.velocity * 0.5
    return body


def unrolled_early_exit(x: Any, n: Any) -> Any:
    body = Body(x, x)
    for i in (1, 2, 3):
        body.position = body.position + i
        if i == n:
            break
        body.velocity = body.velocity * 0.5
    return body


def early_return(x: Any, n: Any) -> Any:
    def helper(body: Any) -> Any:
        for i in (1, 2, 3):
            body.position = body.position + i
            if i == n:
                return body.position.sum()
            body.velocity = body.velocity * 0.5
        return body.velocity.sum()

    body = Body(x, x)
    total = helper(body)
    return body, total


def frozen_replaced(x: Any, n: Any) -> Any:
    state = Frozen(x, x.sum())
    for _ in range(n):
        state = dataclasses.replace(state, a=state.a * 0.5)
        if state.a.sum() < 2.0:
            state = dataclasses.replace(state, b=state.b + 1.0)
    return state


def replaced_and_changed(x: Any, n: Any) -> Any:
    state = Body(x, x)
    for _ in range(n):
        state = dataclasses.replace(state, position=state.position * 0.5)
        state.hits += 1
        twin = copy.copy(state)
        twin.velocity = twin.velocity * 2.0
        state = twin
    return state


def slots(x: Any, n: Any) -> Any:
    state = Slotted(x, 0)
    for i in range(n):
        state.a = state.a * 0.5
        if i > 1:
            state.b += i
    return state.a, state.b


def named_tuples(x: Any, n: Any) -> Any:
    state = Pair(x, 0.0)
    for _ in range(n):
        state = state._replace(b=state.b + state.a.sum())
        if state.b > 20:
            state = Pair(state.a * 0.5, state.b)
    return state


def nested_tree(tree: Any, n: Any) -> Any:
    for _ in range(n):
        tree["a"] = tree["a"] + tree["b"][1][0]
        tree["b"][0] = tree["b"][0] * 2.0
    return tree


def lists(x: Any, n: Any) -> Any:
    state = [x, x.sum(), 0]
    for _ in range(n):
        state[0] = state[0] * 0.5
        state[1] += state[0].sum()
        state[2] += 1
        state[0], state[1] = state[0] + 1.0, state[1] * 0.5
    return state


def dicts(x: Any, n: Any) -> Any:
    state = {"x": x, "time": 0.0, 3: x * 2}
    while state["time"] < n:
        state["time"] += 1.0
        state["x"] = state["x"] * state["time"]
        state[3] -= 1.0
    return state["x"], state["time"], state[3]


def rebound_and_new(x: Any, n: Any) -> Any:
    def step(state: Any) -> Any:
        made = {"h": state["h"] * 0.5, "c": state["c"] + 1.0}
        made["h"] = made["h"] + made["c"]
        return made

    state = {"h": x, "c": x}
    for _ in range(n):
        state = step(state)
        state["c"] = state["c"] * 0.9
    state["h"] = state["h"] - 1.0
    return state


def rotated_list(x: Any, n: Any) -> Any:
    window = [x[0], x[1], x[2]]
    for i in range(n):
        window = [*window[1:], window[0] * 0.5 + i]
    return window


def both_branches_append(x: Any, n: Any) -> Any:
    parts = [x]
    if n > 2:
        parts.append(x * 2.0)
    else:
        parts.append(x * 3.0)
    return parts


def list_made_in_the_loop(x: Any, n: Any) -> Any:
    for _ in range(n):
        parts = []
        for k in range(3):
            parts.append(x[k] * k)
        if n > 1:
            parts[0] = parts[2]
        x = x + parts[0] + parts[1]
    return x


class Counted:
    """Changed by methods that Python itself calls."""

    def __init__(self, x: Any) -> None:
        self.calls, self.x = 0, x

    def __add__(self, other: Any) -> Any:
        self.calls += other
        return self

    def __len__(self) -> int:
        self.calls += 100
        return 3

    @property
    def halved(self) -> Any:
        self.x = self.x * 0.5
        return self.x

    def __enter__(self) -> Any:
        self.calls += 1000
        return self

    def __exit__(self, *error: object) -> None:
        self.calls += 10000


def methods_that_python_calls(x: Any, n: Any) -> Any:
    counted = Counted(x)
    for i in range(n):
        counted + 2
        if i > 1:
            len(counted)
            x = x + counted.halved
        with counted:
            x = x * 0.5
    return counted.calls, counted.x, x


def swapped(x: Any, n: Any) -> Any:
    a, b = Body(x, x), Body(x * 2, x)
    for _ in range(n):
        a.position = a.position + 1.0
        a, b = b, a
    return a.position, b.position


def kept_history(x: Any, n: Any) -> Any:
    state = {"h": x}
    before = state
    for _ in range(n):
        before = state
        state = {"h": before["h"] * 2.0}
    return before, state


class Running:
    """An object of the user's own, with state, a property and operators."""

    scale = 2.0

    def __init__(self, total: Any) -> None:
        self.total = total
        self.count = 0

    def add(self, value: Any) -> Any:
        self.total = self.total + value * self.scale
        self.count += 1
        return self

    @property
    def mean(self) -> Any:
        return self.total / (self.count + 1)

    @mean.setter
    def mean(self, value: Any) -> None:
        if value > 0:
            self.total = self.total * 0.0 + value
        self.count = 0

    def __iadd__(self, value: Any) -> Any:
        return self.add(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.total[key] = value

    def __call__(self, value: Any) -> Any:
        return self.add(value).mean


def objects(x: Any, n: Any) -> Any:
    running = Running(x)
    for i in range(n):
        running.add(x).add(i * 1.0)
        running += 0.5
        if i == 2:
            running.mean = 1.5
        running.scale = 1.0
    running(0.25)
    return running.mean, running.count, running.scale


def items_of_an_object(x: Any, n: Any) -> Any:
    running = Running(x * 1.0)
    for i in range(n):
        running[i] = x[i] * 10.0
    return running.total


def class_made_inside(x: Any, n: Any) -> Any:
    class Accumulator:
        def __init__(self, value: Any) -> None:
            self.value = value

        def add(self, other: Any) -> None:
            self.value = self.value + other

    made = Accumulator(x)
    for _ in range(n):
        made.add(x)
    return made.value


def closure(x: Any, n: Any) -> Any:
    state = {"total": 0.0}

    def add(value: Any) -> None:
        state["total"] += value

    for i in range(n):
        add(x[i])
        if i > 0:
            add(0.5)
    return state["total"]


def carried_by_a_nonlocal(x: Any, n: Any) -> Any:
    total, last = 0.0, [x[0]]

    def add(value: Any) -> None:
        nonlocal total
        total += value * last[0]
        last[0] = value

    for i in range(n):
        add(x[i])
    return total, last[0]


def parameters(x: Any, n: Any) -> Any:
    def f(first: Any, /, *rest: Any, scale: Any = 2.0, **named: Any) -> Any:
        total = first * scale
        for item in rest:
            total = total + item
        for name in sorted(named):
            total = total * named[name]
        return total

    g = lambda a, b=1.0, *, c: a * b + c  # noqa: E731
    return f(x, x, n, scale=0.5, q=2.0, r=n) + g(x, c=3) + g(*[x], c=n), (lambda *a, **k: a[0] * k["s"])(x, s=n)


def unpacking(x: Any, n: Any) -> Any:
    a, *b, c = [x, x * 2, x * 3, x * 4]
    d, *e = x
    (p, q), *r = ((n, n + 1), 2, n)
    b[0] = b[0] + 1.0
    *init, last = (n, x)
    return a + c + sum(b), d, e, p * q, r, init, last


def comprehensions(x: Any, n: Any) -> Any:
    a = [x * i for i in range(4) if i % 2 == 0]
    b = [[x.sum() * i * j for j in range(2) if j != i] for i in range(3)]
    c = {k: x * v for k, v in [("a", 1), ("b", n)]}
    return (
        a,
        b,
        c,
        sum(x[i] * i for i in range(3)),
        [v * 2 for v in x],
        [(i, v) for i, v in enumerate(x)],
    )


@dataclasses.dataclass
class Log:
    totals: Any = dataclasses.field(default_factory=lambda: [0.0, 0.0])
    by_name: Any = dataclasses.field(default_factory=dict)


def lists_that_arise_in_expressions(x: Any, n: Any) -> Any:
    log = Log(by_name={"a": x[0]})
    twin = copy.deepcopy(log)
    joined = [x[0]] + [x[1]]
    repeated = [x[2]] * 2
    first, *rest = [x[0], x[1], x[2]]
    part = rest[:1]
    order = sorted([2, 1])
    replaced = dataclasses.replace(log, totals=[x[1], x[1]])
    for i in range(n):
        log.totals[0] += x[0] * i
        log.by_name["a"] = log.by_name["a"] * 0.5
        twin.totals[1] += x[1]
        joined[1] = joined[0] + joined[1]
        repeated[0] = repeated[1] * i
        rest[0] = rest[0] * rest[1]
        part[0] = part[0] + first
        order[0] += i
        replaced.totals[0] *= 2.0
    return log.totals, log.by_name, twin.totals, twin.by_name, joined, repeated, rest, part, order, replaced.totals


TREE = {"a": np.array([1.0, 2.0]), "b": [np.array(3.0), (np.array([4.0, 5.0]), 2)]}

def new_ones_on_each_path(x: Any, n: Any) -> Any:
    """Lists that are made on the path itself can be changed after it, though they hold the same on all paths."""
    rows, total = [0.0, 1.0], x
    for _ in st.range(n):
        rows = [0.0, 1.0]
        rows[0] = rows[0] + 2.0
        total = total + rows[0]
    rows[1] = 4.0
    pair = [x, 1.0] if n > 3 else [x, 1.0]
    pair.append(3.0)
    pair[0] = pair[0] * total
    return rows[0], rows[1], pair[0], len(pair)


CASES = [
    Case(new_ones_on_each_path, [(X, 4), (X, 0)], (0,)),
    Case(fields_in_a_loop, [(X, 4), (X, 0)], (0,)),
    Case(methods_in_nested_control, [(X, 6), (X, 0)], (0,)),
    Case(two_objects, [(X, 5)], (0,)),
    Case(aliases, [(X, 3)], (0,)),
    Case(argument, [(Body(X, X * 2, 1), 3), (Body(X, X * 2, 1), 0)]),
    Case(branches, [(X, 5), (X, 2)], (0,)),
    Case(early_exit, [(X, 3), (X, 20)], (0,)),
    Case(unrolled_early_exit, [(X, 2), (X, 9)], (0,)),
    Case(early_return, [(X, 2), (X, 9)], (0,)),
    Case(frozen_replaced, [(X, 4)], (0,)),
    Case(replaced_and_changed, [(X, 4), (X, 0)], (0,)),
    Case(slots, [(X, 4)], (0,)),
    Case(named_tuples, [(X, 6)], (0,)),
    Case(nested_tree, [(TREE, 3)]),
    Case(lists, [(X, 4), (X, 0)], (0,)),
    Case(dicts, [(X, 4), (X, 0)], (0,)),
    Case(rebound_and_new, [(X, 3), (X, 0)], (0,)),
    Case(rotated_list, [(X, 4)], (0,)),
    Case(both_branches_append, [(X, 4), (X, 1)], (0,)),
    Case(list_made_in_the_loop, [(X, 2), (X, 1)], (0,)),
    Case(objects, [(X, 5), (X, 1)], (0,)),
    Case(methods_that_python_calls, [(X, 4), (X, 0)], (0,)),
    Case(swapped, [(X, 3), (X, 0)], (0,)),
    Case(kept_history, [(X, 3), (X, 0)], (0,)),
    Case(items_of_an_object, [(X, 2)], (0,)),
    Case(class_made_inside, [(X, 3)], (0,)),
    Case(closure, [(X, 3)], (0,)),
    Case(carried_by_a_nonlocal, [(X, 3)], (0,)),
    Case(parameters, [(X, 4)], (0,)),
    Case(unpacking, [(X, 4)], (0,)),
    Case(lists_that_arise_in_expressions, [(X, 4), (X, 0)], (0,)),
    Case(comprehensions, [(X, 4)], (0,)),
]

test_programs, test_gradients = checks_of(CASES)


def test_the_argument_of_the_caller_stays_as_it_was() -> None:
    body = Body(X, X)
    st.function(argument)(body, 3)
    np.testing.assert_array_equal(body.position, X)
    assert body.hits == 0


# ---- refusals -------------------------------------------------------------------------------------

OUTSIDE = {"total": 0.0}


def _changes_shape(x: Any, n: Any) -> Any:
    body = Body(x, x)
    for _ in st.range(n):
        body.position = st.concat([body.position, x])
    return body


def _changes_text(x: Any, n: Any) -> Any:
    t = {"mode": "train"}
    if n > 3:
        t["mode"] = "eval"
    return x


def _set_in_one_branch(x: Any, n: Any) -> Any:
    running = Running(x)
    if n > 3:
        running.extra = x
    return running.total


def _grows(x: Any, n: Any) -> Any:
    rows = []
    for i in st.range(n):
        rows.append(x * i)
    return rows


def _shrinks(x: Any, n: Any) -> Any:
    rows = [x, x]
    if n > 3:
        rows.pop()
    return rows


def _outside(x: Any, n: Any) -> Any:
    for _ in st.range(n):
        OUTSIDE["total"] = x.sum()
    return x


def _either_of_two(x: Any, n: Any) -> Any:
    a, b = [x], [x * 2]
    chosen = a if n > 3 else b
    chosen[0] = x * 5
    return a, b


def _either_of_two_equal(x: Any, n: Any) -> Any:
    a, b = [x], [x]
    chosen = a if n > 3 else b
    chosen[0] = x * 5
    return a, b


def _bound_in_one_branch_to_an_equal_one(x: Any, n: Any) -> Any:
    body, a = Body(x, x), collections.deque([1.0])
    rows = a
    if n > 3:
        rows, body.position = collections.deque([1.0]), x * 2
    rows.append(2.0)
    return body.position * len(a)


def _an_attribute_becomes_an_equal_list(x: Any, n: Any) -> Any:
    running, rows = Running(x), [1.0]
    running.rows = [1.0]
    if n > 3:
        running.rows = rows
    running.rows[0] = 2.0
    return x * rows[0]


def _bound_in_a_loop_to_an_equal_one(x: Any, n: Any) -> Any:
    a = [1.0, 2.0]
    b = a
    for _ in st.range(n):
        b = [1.0, 2.0]
    b[0] = 5.0
    return x * a[0]


def _returned_from_a_loop(x: Any, n: Any) -> Any:
    def first(rows: Any) -> Any:
        for i in st.range(n):
            if x[i] > 1:
                return rows
        return [2.0]

    a = [1.0]
    found = first(a)
    found[0] = 4.0
    return x * a[0]


OLDER = [1.0], [2.0]


def _either_of_two_older(x: Any, n: Any) -> Any:
    chosen = OLDER[0]
    if n > 3:
        chosen = OLDER[1]
    chosen.append(3.0)
    return x * len(OLDER[0])


def _keys_in_two_orders(x: Any, n: Any) -> Any:
    t = {"a": x, "b": x * 2}
    if n > 3:
        t = {"b": x, "a": x * 2}
    return list(t.values())


def _a_key_goes_to_the_end(x: Any, n: Any) -> Any:
    t = {"a": x, "b": x * 2}
    if n > 3:
        t["a"] = t.pop("a") * 3
    return list(t.values())


def _a_key_goes_to_the_end_in_a_loop(x: Any, n: Any) -> Any:
    t = {"a": x, "b": x * 2}
    for _ in st.range(n):
        t["a"] = t.pop("a") * 3
    return list(t.values())


def _keys_come_in_two_orders(x: Any, n: Any) -> Any:
    t = {}
    if n > 3:
        t["a"], t["b"] = x, x * 2
    else:
        t["b"], t["a"] = x * 3, x * 4
    return list(t.values())


def _keys_in_another_order_after_an_iteration(x: Any, n: Any) -> Any:
    t = [{"a": x, "b": x * 2}]
    for _ in st.range(n):
        t = [{"b": t[0]["a"], "a": x * 2}]
    return list(t[0].values())


def _seen_by_another_name(x: Any, n: Any) -> Any:
    state = {"h": x}
    seen = state
    for _ in st.range(n):
        state["h"] = state["h"] * 2.0
        state = {"h": state["h"] + 1.0}
    return state, seen


def _next_iteration_has_two_names(x: Any, n: Any) -> Any:
    a, b = Body(x, x), Body(x * 2, x)
    for _ in st.range(n):
        a.position = a.position + 1.0
        a = b
    return a.position, b.position


def _held_by_a_tuple_that_is_carried(x: Any, n: Any) -> Any:
    body = Body(x, x)
    pair = (body, 0)
    for _ in st.range(n):
        pair = (pair[0], pair[1] + 1)
        body.position = body.position + 1.0
    return pair[0].position


def _held_by_an_object(x: Any, n: Any) -> Any:
    running, other = Running([x]), [x * 2]
    chosen = running.total if n > 3 else other
    chosen[0] = x * 5
    return running.total[0]


def _changed_in_a_gradient(x: Any, n: Any) -> Any:
    body = Body(x, x)

    def loss(y: Any) -> Any:
        for _ in st.range(n):
            body.position = body.position * y
        return body.position.sum()

    return st.grad(loss)(x), body.position


@st.function
def _descend(state: Any, n: Any) -> Any:
    state["h"] = state["h"] * 0.5
    if n == 0:
        return state["h"].sum()
    return _descend(state, n - 1)


def _argument_of_a_recursive_function(x: Any, n: Any) -> Any:
    state = {"h": x}
    return _descend(state, n), state


@pytest.mark.parametrize(
    ("program", "error", "message", "hint"),
    [
        (_argument_of_a_recursive_function, StaticStateError, "`state` is an argument of the recursive", "return what"),
        (_next_iteration_has_two_names, StaticStateError, "two names in the next iteration", "change a copy"),
        (
            _held_by_a_tuple_that_is_carried,
            StaticStateError,
            "`body` changes in place, and `pair` may be the same",
            "a copy",
        ),
        (
            _held_by_an_object,
            StaticStateError,
            "changes in place, and `running` may be the same object",
            "change a copy",
        ),
        (
            _changed_in_a_gradient,
            st.LeakError,
            "was made inside a branch, loop or transform that has ended",
            "return it",
        ),
        (
            _changes_shape,
            CarriedValueError,
            "`body.position` is f64 (3,) before the loop and f64 (6,) after",
            "body.position",
        ),
        (_changes_text, CarriedValueError, "`t[\"mode\"]` is the value 'eval'", "strings cannot differ by path"),
        (
            _set_in_one_branch,
            UnboundNameError,
            "`running.extra` is not bound on every path",
            "set `running.extra` before",
        ),
        (
            _grows,
            StaticStateError,
            "the list `rows` changes its length inside the loop at line",
            "st.Stack(like, max=...)",
        ),
        (_shrinks, StaticStateError, "the list `rows` changes its length inside the `if` at line", "st.Stack"),
        (_outside, StaticStateError, "the dict `OUTSIDE` changes inside the loop at line", "st.Variable"),
        (
            _either_of_two,
            StaticStateError,
            "`chosen` changes in place, and `a` may be the same object",
            "change a copy",
        ),
        (
            _seen_by_another_name,
            StaticStateError,
            "`state` changes in place, and `seen` may be the same",
            "change a copy",
        ),
        (_either_of_two_equal, StaticStateError, "`chosen` changes in place, and `a` may be", "change a copy"),
        (_bound_in_one_branch_to_an_equal_one, StaticStateError, "`rows` changes in place, and `a` may be", "a copy"),
        (_an_attribute_becomes_an_equal_list, StaticStateError, "`running.rows` changes in place, and `rows`", "a copy"),
        (_bound_in_a_loop_to_an_equal_one, StaticStateError, "`b` changes in place, and `a` may be", "change a copy"),
        (_returned_from_a_loop, StaticStateError, "`found` changes in place, and `a` may be", "change a copy"),
        (_either_of_two_older, StaticStateError, "may be an object that is older than the call", "change a copy"),
        (_keys_in_two_orders, CarriedValueError, "the order of the keys differs", "in one order"),
        (_a_key_goes_to_the_end, StaticStateError, "the order of the keys of `t` depends on the path", "without removing"),
        (_a_key_goes_to_the_end_in_a_loop, StaticStateError, "the order of the keys of `t`", "without removing"),
        (_keys_come_in_two_orders, StaticStateError, "the order of the keys of `t`", "without removing"),
        (_keys_in_another_order_after_an_iteration, CarriedValueError, "the order of the keys differs", "in one order"),
    ],
)
def test_refusals(program: Any, error: Any, message: str, hint: str) -> None:
    check_refusal(program, (X, 4), error, message, hint)


@pytest.mark.parametrize("owner", [[1.0, 2.0], {"a": 1.0}])
def test_a_name_of_another_object_is_nothing_that_this_one_has(owner: Any) -> None:
    """A loop asks so where an earlier try of it had, say, a Stack in the place in which there is a list now."""
    contents = contents_of(owner)
    assert contents is not None and contents.get("rows") is None and "rows" not in contents


def test_a_class_that_a_call_gives_is_no_object_of_the_program() -> None:
    def names_of_classes(x: Any, n: int) -> Any:
        kinds = [type(item).__name__ for item in (1, x, "a")][:1]
        rows = [x]
        for i in st.range(n):
            rows[0] = rows[0] + float(i)
        return rows[0], kinds

    compiled, kinds = st.function(names_of_classes)(np.ones(2), 3)
    assert compiled.tolist() == [4.0, 4.0] and kinds == ["int"]
    with st.eager():
        assert st.function(names_of_classes)(np.ones(2), 3)[0].tolist() == [4.0, 4.0]


class Packed(collections.namedtuple("Packed", ["data", "sizes", "order"])):
    """As torch's PackedSequence: its `__new__` rejects whatever is not an array of NumPy, and has a default."""

    def __new__(cls, data, sizes, order=None):
        if not all(isinstance(part, np.ndarray) for part in (data, sizes)):
            raise TypeError("Packed takes arrays")
        return super().__new__(cls, data, sizes, order)

    @property
    def total(self):
        return st.sum(self.data)


def test_named_tuples_with_a_new_of_their_own_are_arguments_and_results() -> None:
    """Their `__new__` ran with staged values: torch's PackedSequence raised an AttributeError."""
    packed = Packed(X, np.array([2, 1]))
    run = st.function(lambda p: (p, p.total, p.sizes))
    result, total, sizes = run(packed)
    assert type(result) is Packed and result.order is None and float(total) == 6.0
    np.testing.assert_array_equal(result.data, X)
    np.testing.assert_array_equal(sizes, [2, 1])
    slope = st.function(lambda p: st.grad(lambda p: st.sum(p.data**2) * p.sizes[0])(p))
    floats = Packed(X, np.array([2.0, 1.0]), np.zeros(2))
    for found in (slope(floats), st.grad(lambda p: st.sum(p.data**2) * p.sizes[0])(floats)):
        assert type(found) is Packed
        np.testing.assert_allclose(found.data, 4.0 * X)
        np.testing.assert_allclose(found.sizes, [14.0, 0.0])


def test_a_packed_sequence_of_torch_is_an_argument(torch) -> None:
    rnn = torch.nn.utils.rnn
    data = torch.arange(24.0).reshape(4, 2, 3)
    packed = rnn.pack_padded_sequence(data, torch.tensor([4, 2]))
    assert float(st.function(lambda p: st.sum(p.data) + st.sum(p.batch_sizes))(packed)) == float(packed.data.sum()) + 6
