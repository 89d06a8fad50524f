"""Arguments of all kinds, one after another in random order: a call never runs the program of an argument of another kind."""

from __future__ import annotations

import collections
import functools
import random
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import load_snippet
from tests.guards.interpreted import interpret

MODULE = '''
import collections, dataclasses, enum, functools

@dataclasses.dataclass
class P:
    a: object
    b: object = 1
    k = 2.0
    def m(self): return self.k
class Q(P):
    k = 5.0
@dataclasses.dataclass(frozen=True)
class F:
    a: object
    n: object = 1
class G(F):
    def __eq__(self, o): return True
    __hash__ = None
class E(enum.Enum):
    A = 1
    B = 2
class I(enum.IntEnum):
    A = 1
    B = 2
N = collections.namedtuple('N', 'a b')
N2 = collections.namedtuple('N2', 'a b')
class Plain:
    def __init__(self, v): self.v = v
class S(str): pass
class L(list): pass
class D(dict): pass
class Int(int): pass
def g(y): return y * 2.0
def h(y): return y * 3.0

def weighed(parts):
    return sum([kind(part) * (i + 1) for i, part in enumerate(parts)])

def kind(v):
    """A number that tells each argument from all others."""
    if v is None: return 1.0
    if isinstance(v, bool): return 2.0
    if isinstance(v, str): return 3.0 + len(v)
    if isinstance(v, P): return 20.0 + v.m() + v.k + kind(v.a) * v.b if not isinstance(v.b, str) else 99.0
    if isinstance(v, F): return 30.0 + kind(v.a) + kind(v.n)
    if isinstance(v, E): return 40.0 + v.value
    if isinstance(v, I): return 45.0 + v.value
    if isinstance(v, N): return 50.0 + kind(v.a) + 2.0 * kind(v.b)
    if isinstance(v, L): return 65.0 + weighed(v)
    if isinstance(v, list): return 60.0 + weighed(v)
    if isinstance(v, tuple): return 70.0 + weighed(v)
    if isinstance(v, dict):
        which = 0.5 if isinstance(v, D) else 0.25 if isinstance(v, collections.OrderedDict) else 0.0
        return 80.0 + weighed(v.keys()) + weighed(v.values()) + which
    if isinstance(v, Plain): return 90.0 + kind(v.v)
    if isinstance(v, (set, frozenset)): return 95.0 + len(v) + weighed(v)
    if isinstance(v, type): return 100.0 + len(v.__name__)
    if isinstance(v, functools.partial): return 110.0 + len(v.args)
    if isinstance(v, (int, float)): return v * 1.5
    if callable(v): return v(7.0)
    if isinstance(v, range): return 120.0 + v.start + v.stop * 4.0 + v.step * 16.0
    if isinstance(v, slice): return 130.0 + v.stop
    if isinstance(v, np.dtype): return 140.0 + v.itemsize
    if isinstance(v, bytes): return 150.0 + len(v)
    if isinstance(v, st.DType): return 160.0 + len(str(v))
    if isinstance(v, complex): return 170.0 + v.imag
    return st.sum(v) * (1.0 + len(v.shape))

def f(x, v): return x * kind(v)
'''


def values(m: Any) -> list[Any]:
    """The arguments: numbers, texts, arrays, containers, objects, functions, classes; many differ in type or order alone."""
    a = np.array([1.0, 2.0])
    fixed = a.copy()
    fixed.flags.writeable = False
    numbers = [None, True, False, 1, 0, 1.0, -0.0, 0.0, float("nan"), 2**40, np.float64(1.0), np.float32(1.0), np.int32(1),
               np.bool_(True), m.Int(1), "a", "b", "ab", m.S("a"), b"a", 1 + 2j]  # fmt: skip
    arrays = [a, a * 2, a.astype("f4"), a.astype("i8"), a.astype("i4"), a.astype(bool), a.astype(">f8"), fixed, a[::-1],
              a.reshape(1, 2), np.asfortranarray(np.ones((2, 3))), np.array(1.0), np.array(2), np.zeros(0),
              st.Variable(a), st.Variable(a * 3)]  # fmt: skip
    lists = [[1.0], [1], [True], [1.0, 2.0], (1.0,), (1,), (True,), m.L([1.0]), [a], (a,), [a, 1.0], [1.0, a], [None], ["a"],
             ["b"], ("a",), [[1.0]], [[1.0], [2.0]], [], ()]  # fmt: skip
    dicts = [{}, {"a": 1.0}, {"b": 1.0}, {"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}, {1: 1.0}, {True: 1.0}, {1.0: 1.0}, {"a": a},
             {"a": "s"}, {"a": "t"}, m.D(a=1.0), collections.OrderedDict(a=1.0), collections.OrderedDict(b=2.0, a=1.0),
             collections.defaultdict(float, a=1.0), {m.E.A: 1.0}, {m.E.B: 1.0}, {np.int64(1): 1.0}, {(1, 2): a}, {None: 1.0},
             {2.5: a, 1.5: a * 3}, {1.5: a * 3, 2.5: a}, {b"a": 1.0}, {"a": {"b": 1.0, "c": 2.0}},
             {"a": {"c": 2.0, "b": 1.0}}]  # fmt: skip
    objects = [m.N(1.0, 2.0), m.N(a, 2.0), m.N2(1.0, 2.0), m.N("s", 1.0), m.P(1.0), m.P(a), m.P(1.0, 2), m.P(1.0, "s"), m.Q(1.0),
               m.F(1.0), m.F(1), m.F(a), m.F("s"), m.F("t"), m.F(True), m.F(m.F("s")), m.F((1, 2)), m.F((1.0, 2)), m.F([1]),
               m.G(1.0), m.G("s"), m.E.A, m.E.B, m.I.A, m.I.B, m.Plain(1.0), m.Plain("s"), m.Plain(a)]  # fmt: skip
    others = [m.g, m.h, functools.partial(m.g), functools.partial(m.g, 1.0), int, float, m.E, m.P, range(3), range(4),
              range(0, 3, 2), range(0, 4, 2), frozenset((8, 0)), frozenset((0, 8)),
              slice(0, 2), slice(0, 3), np.dtype("f8"), np.dtype("f4"), st.f32, st.f64, {1, 2}, {1, 2, 3}, frozenset({1}),
              frozenset({1.0}), frozenset({True})]  # fmt: skip
    return [*numbers, *arrays, *lists, *dicts, *objects, *others]


def outcome(function: Any, value: Any, by_name: bool = False) -> Any:
    """The type, shape and elements of the result, or the error."""
    x = np.array([1.0, 2.0])
    try:
        found = function(x, v=value) if by_name else function(x, value)
    except st.StagedError as error:
        return type(error).__name__, error.message
    return found.dtype, found.shape, repr(found.tolist())


def twice(function: Any, value: Any) -> Any:
    """`outcome` of two calls, the second of which traces nothing."""
    found = outcome(function, value)
    assert outcome(function, value) == found
    assert not function.why_traced(), value
    return found


@pytest.mark.parametrize("static", [(), ("v",)], ids=["staged", "static"])
@pytest.mark.parametrize("orders", [8, pytest.param(150, marks=pytest.mark.slow)])
def test_arguments_in_random_order(static: tuple[str, ...], orders: int, monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
    module = load_snippet(MODULE, "arguments")
    given = values(module)
    alone = [twice(st.function(static=static)(module.f), value) for value in given]
    with st.eager():
        eager = [outcome(st.function(static=static)(module.f), value) for value in given]
    for value, found, expected in zip(given, alone, eager, strict=True):
        assert found == expected, value
    rng = random.Random(0)
    for _ in range(orders):
        function = st.function(static=static)(module.f)
        order = [rng.randrange(len(given)) for _ in range(12)]
        for place in [*order, *order[-3:]]:
            said = f"{given[place]!r} among {[given[each] for each in order]!r}"
            assert outcome(function, given[place], rng.random() < 0.3) == alone[place], said
