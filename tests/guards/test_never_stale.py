"""Functions read things of every kind from outside; each is changed in every way that Python knows; no call is stale.

A case is a module text with a function `f(x)` and a list of changes. After each change the result of `f`, which may have run the
program of an earlier call, must be that of a new staged function on the same Python, which traces.
"""

from __future__ import annotations

import ast
import math
import os
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.names import bindings_of
from staged.testing import load_snippet


@dataclass(frozen=True)
class Case:
    """What is read, how, and the statements that change it."""

    name: str
    setup: str
    read: str
    changes: tuple[str, ...]
    traced: bool = False
    """Whether it cannot be guarded: then `why_traced` says why."""
    counts: bool = False
    """Whether each trace changes what it reads."""


OBJECT = """
class Base:
    inherited = 2.0
    def twice(self): return 2.0

class Config(Base):
    rate = 0.5
    def __init__(self):
        self.scale = 3.0; self.items = [1.0, [2.0, 3.0]]; self.table = {'a': 1.0, 'b': {'c': 2.0}}; self.hidden = 4.0; self.flag = True
    @property
    def double(self): return self.hidden * 2.0
    def method(self): return self.scale + 1.0
    @classmethod
    def of_class(cls): return cls.rate * 2.0
    @staticmethod
    def static(): return 7.0
    def __getattr__(self, name):
        if name.startswith('made_'): return self.hidden + len(name)
        raise AttributeError(name)
    def __len__(self): return int(self.scale)
    def __call__(self, y): return self.scale * y
    def __contains__(self, item): return item == self.scale
    def __getitem__(self, key): return self.scale + key
    def __mul__(self, other): return self.scale * other
    def __eq__(self, other): return self.scale == other
    def __hash__(self): return 1
    def __bool__(self): return self.flag
    def __iter__(self): return iter([self.scale, 1.0])
    def __format__(self, spec): return 'x' * int(self.scale)

config = Config()
class Holder: pass
holder = Holder(); holder.inner = Holder(); holder.inner.config = config
"""

CASES = [
    Case("global number", "scale = 2.0", "x * scale", ("scale = 3.0", "scale = 2", "scale = -0.0", "scale = 0.0", "scale = np.float32(2)")),
    Case("global deleted", "scale = 2.0\nabs_ = 1", "x * (scale if 'scale' in globals() else 5.0)", ("del scale",), traced=True),
    Case("shadowed builtin", "items = [1.0, 5.0]", "x * max(items)", ("max = min", "del max")),
    Case("global list", "items = [1.0, 2.0]", "x * items[1]", ("items[1] = 4.0", "items.append(3.0)", "items = [1.0, 9.0]", "items.reverse()", "items[1] = 9", "items.clear(); items.extend([7.0, 8.0])")),
    Case("list in a comprehension", "items = [1.0, 2.0]", "x * sum([v * 2.0 for v in items])", ("items[0] = 4.0", "items.append(3.0)", "items.sort(reverse=True)")),
    Case("list in a generator", "items = [1.0, 2.0]", "x * sum(v * 2.0 for v in items)", ("items[0] = 4.0", "del items[1]")),
    Case("list unpacked", "items = [1.0, 2.0]", "x * max(*items)", ("items[0] = 4.0",)),
    Case("list added", "items = [1.0]", "x * (items + [2.0])[0]", ("items[0] = 4.0", "items.insert(0, 8.0)")),
    Case("list compared", "items = [1.0]", "x * (2.0 if items == [1.0] else 3.0)", ("items[0] = 4.0",)),
    Case("list tested", "items = []", "x * (2.0 if items else 3.0)", ("items.append(1)",)),
    Case("list of lists", "items = [[1.0], [2.0, 3.0]]", "x * items[1][1]", ("items[1][1] = 4.0", "items[1] = [5.0, 6.0]", "items[1].insert(0, 1.0)")),
    Case("tuple of lists", "items = ([1.0], 2.0)", "x * items[0][0]", ("items[0][0] = 4.0", "items = ([3.0], 2.0)")),
    Case("dict", "table = {'a': 1.0, 'b': 2.0}", "x * table['a']", ("table['a'] = 4.0", "table = {'a': 5.0}", "del table['a']; table['a'] = 6.0")),
    Case("dict get", "table = {'a': 1.0}", "x * table.get('b', 3.0)", ("table['b'] = 4.0", "table.pop('b')")),
    Case("dict order", "table = {'a': 1.0, 'b': 2.0}", "x * list(table.values())[0]", ("table['a'] = table.pop('a')", "table.clear(); table['q'] = 5.0")),
    Case("dict keys", "table = {'a': 1.0}", "x * len(table)", ("table['z'] = 1.0", "table.popitem()")),
    Case("dict number keys", "table = {1: 1.0}", "x * (2.0 if any(type(k) is float for k in table) else 1.0)", ("table.clear(); table[1.0] = 1.0", "table.clear(); table[True] = 1.0")),
    Case("set", "names = {'a', 'b'}", "x * (2.0 if 'c' in names else 3.0)", ("names.add('c')", "names.discard('c')", "names = frozenset(['c'])")),
    Case("attribute", OBJECT, "x * config.scale", ("config.scale = 5.0", "setattr(config, 'scale', 6.0)", "config.__dict__['scale'] = 7.0", "vars(config).update(scale=8.0)", "object.__setattr__(config, 'scale', 9.0)", "config.scale = 9")),
    Case("attribute of a nested object", OBJECT, "x * holder.inner.config.scale", ("config.scale = 5.0", "holder.inner = type('H', (), {'config': Config()})()", "holder.inner.config.scale = 8.0")),
    Case("attribute deleted", OBJECT, "x * getattr(config, 'extra', 2.0)", ("config.extra = 5.0", "del config.extra", "Config.extra = 6.0", "del Config.extra", "Base.extra = 1.5")),
    Case("hasattr", OBJECT, "x * (2.0 if hasattr(config, 'extra') else 3.0)", ("config.extra = 5.0", "del config.extra", "Base.extra = 6.0")),
    Case("attribute becomes a property", OBJECT, "x * config.scale", ("Config.scale = property(lambda self: 11.0)", "del Config.scale")),
    Case("class attribute", OBJECT, "x * Config.rate", ("Config.rate = 5.0", "Config = type('C', (), {'rate': 6.0})")),
    Case("class attribute of an object", OBJECT, "x * config.rate", ("Config.rate = 5.0", "config.rate = 6.0", "del config.rate", "config.__class__ = type('D', (Config,), {'rate': 8.0})")),
    Case("inherited attribute", OBJECT, "x * config.inherited", ("Base.inherited = 5.0", "Config.inherited = 6.0", "del Config.inherited", "Config.__bases__ = (type('B', (), {'inherited': 9.0}),)")),
    Case("method", OBJECT, "x * config.method()", ("config.scale = 5.0", "Config.method = lambda self: 6.0", "config.method = lambda: 7.0", "del config.method", "del Config.method; Base.method = lambda self: 8.0")),
    Case("inherited method", OBJECT, "x * config.twice()", ("Base.twice = lambda self: 6.0", "Config.twice = lambda self: 7.0")),
    Case("method's code", OBJECT, "x * config.method()", ("Config.method.__code__ = (lambda self: 3.5).__code__",)),
    Case("property", OBJECT, "x * config.double", ("config.hidden = 5.0", "Config.double = property(lambda self: 1.25)", "Config.double = 2.5")),
    Case("class method", OBJECT, "x * config.of_class()", ("Config.rate = 5.0", "Config.of_class = classmethod(lambda cls: 1.5)")),
    Case("static method", OBJECT, "x * Config.static()", ("Config.static = staticmethod(lambda: 1.5)", "Config.static = lambda: 2.5")),
    Case("__getattr__", OBJECT, "x * config.made_up", ("config.hidden = 5.0", "config.made_up = 6.0", "del config.made_up", "Config.made_up = 7.5", "del Config.made_up; Config.__getattr__ = lambda self, name: 9.0")),
    Case("__len__", OBJECT, "x * len(config)", ("config.scale = 5.0", "Config.__len__ = lambda self: 9")),
    Case("__call__", OBJECT, "config(x)", ("config.scale = 5.0", "Config.__call__ = lambda self, y: y * 9.0")),
    Case("__contains__", OBJECT, "x * (2.0 if 3.0 in config else 4.0)", ("config.scale = 5.0", "Config.__contains__ = lambda self, item: True")),
    Case("__getitem__", OBJECT, "x * config[1]", ("config.scale = 5.0", "Config.__getitem__ = lambda self, key: 9.0")),
    Case("__mul__", OBJECT, "x * (config * 2.0)", ("config.scale = 5.0", "Config.__mul__ = lambda self, other: 9.0")),
    Case("__eq__", OBJECT, "x * (2.0 if config == 3.0 else 4.0)", ("config.scale = 5.0", "Config.__eq__ = lambda self, other: True")),
    Case("__bool__", OBJECT, "x * (2.0 if config else 4.0)", ("config.flag = False", "Config.__bool__ = lambda self: True")),
    Case("__iter__", OBJECT, "x * sum([v for v in config])", ("config.scale = 5.0", "Config.__iter__ = lambda self: iter([9.0])")),
    Case("__format__", OBJECT, "x * len(f'{config}')", ("config.scale = 5.0", "def __format__(self, spec): return 'abcdefgh'\nConfig.__format__ = __format__")),
    Case("isinstance", OBJECT, "x * (2.0 if isinstance(config, Config) else 3.0)", ("config = 5", "config = Config()", "config.__class__ = Base")),
    Case("type", OBJECT, "x * (2.0 if type(config) is Config else 3.0)", ("config.__class__ = type('E', (Config,), {})",)),
    Case("list in an attribute", OBJECT, "x * config.items[1][0]", ("config.items[1][0] = 5.0", "config.items[1] = (6.0,)", "config.items = [0, [7.0]]")),
    Case("dict in an attribute", OBJECT, "x * config.table['b']['c']", ("config.table['b']['c'] = 5.0", "config.table['b'] = {'c': 6.0}")),
    Case("__dict__", OBJECT, "x * config.__dict__['scale']", ("config.scale = 5.0",)),
    Case("helper", "def helper(y, a=2.0): return y * a", "helper(x)", ("def helper(y, a=2.0): return y + a", "helper.__defaults__ = (5.0,)", "helper = lambda y: y * 7.0", "helper.__code__ = (lambda y: y * 8.0).__code__")),
    Case("helper's global", "scale = 2.0\ndef helper(y): return y * scale", "helper(x)", ("scale = 5.0",)),
    Case("keyword default", "def helper(y, *, a=2.0): return y * a", "helper(x)", ("helper.__kwdefaults__ = {'a': 5.0}", "helper.__kwdefaults__['a'] = 6.0")),
    Case("mutable default", "def helper(y, a=[2.0]): return y * a[0]", "helper(x)", ("helper.__defaults__[0][0] = 5.0",)),
    Case("closure", "def make():\n    scale = 2.0\n    def helper(y): return y * scale\n    def change(v):\n        nonlocal scale\n        scale = v\n    return helper, change\nhelper, change = make()", "helper(x)", ("change(5.0)", "change(6)", "helper.__closure__[0].cell_contents = 7.0")),
    Case("function in a list", "fs = [lambda y: y * 2.0]", "fs[0](x)", ("fs[0] = lambda y: y * 3.0",)),
    Case("function in a dict", "fs = {'a': lambda y: y * 2.0}", "fs['a'](x)", ("fs['a'] = lambda y: y * 3.0",)),
    Case("partial", "import functools\ndef helper(a, y): return y * a\nbound = functools.partial(helper, 2.0)", "bound(x)", ("bound = functools.partial(helper, 3.0)", "def helper(a, y): return y + a\nbound = functools.partial(helper, 3.0)")),
    Case("module constant", "import math\npi_ = math.pi", "x * math.pi", ("math.pi = 3.0", "math.pi = pi_")),
    Case("module function", "import math\nfloor_ = math.floor", "x * math.floor(2.5)", ("math.floor = math.ceil", "math.floor = floor_")),
    Case("our function", "relu_ = st.relu", "st.relu(x)", ("st.relu = st.exp", "st.relu = relu_")),
    Case("enum", "import enum\nclass Color(enum.Enum):\n    RED = 1\n    BLUE = 2\nmode = Color.RED", "x * (2.0 if mode is Color.RED else 3.0)", ("mode = Color.BLUE", "mode = None")),
    Case("enum value", "import enum\nclass Color(enum.IntEnum):\n    RED = 1\n    BLUE = 2\nmode = Color.RED", "x * mode.value", ("mode = Color.BLUE",)),
    Case("dataclass", "import dataclasses\n@dataclasses.dataclass\nclass P:\n    a: float = 2.0\n    b: list = None\np = P(3.0, [1.0])", "x * p.a * p.b[0]", ("p.a = 5.0", "p.b[0] = 6.0", "p = dataclasses.replace(p, a=7.0)", "P.a = 9.0")),
    Case("frozen dataclass", "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass P:\n    a: float = 2.0\np = P(3.0)", "x * p.a", ("p = P(5.0)", "object.__setattr__(p, 'a', 6.0)")),
    Case("dataclass as a whole", "import dataclasses\n@dataclasses.dataclass\nclass P:\n    a: float = 2.0\np = P(3.0)", "x * sum(dataclasses.astuple(p))", ("p.a = 5.0",)),
    Case("named tuple", "import collections\nP = collections.namedtuple('P', 'a b')\np = P(1.0, [2.0])", "x * p.a * p.b[0]", ("p = P(3.0, [2.0])", "p.b[0] = 4.0")),
    Case("slots", "class S:\n    __slots__ = ('a',)\ns = S(); s.a = 2.0", "x * s.a", ("s.a = 3.0",)),
    Case("slot deleted", "class S:\n    __slots__ = ('a',)\ns = S(); s.a = 2.0", "x * getattr(s, 'a', 9.0)", ("del s.a", "s.a = 3.0")),
    Case("namespace", "import types\nn = types.SimpleNamespace(a=2.0, b=types.SimpleNamespace(c=3.0))", "x * n.a * n.b.c", ("n.a = 5.0", "n.b.c = 6.0", "n.b = types.SimpleNamespace(c=7.0)")),
    Case("array lifted", "table = np.array([1.0, 2.0, 3.0])", "x * table[:1]", ("table[0] = 5.0", "table = table * 2", "table = table.astype(np.float32)", "table = np.arange(1.0, 9.0)", "table = [4.0]")),
    Case("array read", "table = np.array([1.0, 2.0, 3.0])", "x * float(table[1])", ("table[1] = 5.0", "table = table * 2", "table.fill(9.0)", "np.copyto(table, 8.0)")),
    Case("array computed", "table = np.array([1.0, 2.0, 3.0])", "x * (table * 2.0)[:1]", ("table[0] = 5.0", "table[:] = 3.0")),
    Case("array by NumPy", "table = np.array([1.0, 2.0, 3.0])", "x * np.sum(table)", ("table[1] = 5.0", "table = table[:2]")),
    Case("array by a method", "table = np.array([1.0, 2.0, 3.0])", "x * table.max()", ("table[1] = 5.0",)),
    Case("array's shape", "table = np.zeros((2, 3))", "x * table.shape[0]", ("table.shape = (3, 2)", "table = np.zeros((5, 1))", "table.shape = (1, 5)")),
    Case("array in a condition", "table = np.array([1.0, 2.0])", "x * (2.0 if (table > 0).all() else 3.0)", ("table[0] = -1.0",)),
    Case("array gone through", "table = np.array([1.0, 2.0])", "x * sum([float(v) for v in table])", ("table[0] = -1.0",)),
    Case("array as an index", "places = np.array([0, 1])", "x[places]", ("places[0] = 2", "places = np.array([1])")),
    Case("array in a list", "tables = [np.array([1.0]), np.array([2.0])]", "x * tables[1]", ("tables[1][0] = 5.0", "tables[1] = np.array([6.0])", "tables.reverse()")),
    Case("view of an array", "whole = np.arange(6.0).reshape(2, 3)\nrow = whole[1]", "x * row[:1] + whole.T[0][:1]", ("whole[1, 0] = 9.0", "row = whole[0]"), ),
    Case("Variable", "v = st.Variable(np.array([2.0]))", "x * v.value", ("v.value = np.array([3.0])", "v = st.Variable(np.array([4.0]))", "v = st.Variable(np.array([4.0, 5.0, 6.0]))")),
    Case("module of ours", "net = st.nn.Linear(3, 3, dtype=st.f64)", "net(x)", ("net.weight.value = net.weight.value * 2.0", "net = st.nn.Linear(3, 3, dtype=st.f64)", "net.weight = st.Variable(np.eye(3))", "net.bias = None", "type(net).forward = lambda self, y: y * 3.0")),
    Case("training flag", "drop = st.nn.Dropout(0.5)\ndrop.eval()", "drop(x)", ("drop.training = True; drop.p = 0.0", "drop.eval()")),
    Case("environment", "import os\nos.environ['STAGED_TEST_A'] = '2'", "x * float(os.environ['STAGED_TEST_A'])", ("os.environ['STAGED_TEST_A'] = '3'", "os.environ.update(STAGED_TEST_A='4')", "os.putenv('STAGED_TEST_A', '5'); os.environ['STAGED_TEST_A'] = '5'")),
    Case("getenv", "import os\nos.environ.pop('STAGED_TEST_B', None)", "x * float(os.getenv('STAGED_TEST_B', '2'))", ("os.environ['STAGED_TEST_B'] = '3'",), traced=True),
    Case("file", "import pathlib, tempfile\npath = pathlib.Path(tempfile.mkdtemp()) / 'a'\npath.write_text('2')", "x * float(path.read_text())", ("path.write_text('3')",), traced=True),
    Case("weak reference", "import weakref\nclass W: pass\nw = W(); w.a = 2.0\nr = weakref.ref(w)", "x * r().a", ("w.a = 3.0", "w2 = W(); w2.a = 4.0; r = weakref.ref(w2)"), traced=True),
    Case("context variable", "import contextvars\nc = contextvars.ContextVar('c', default=2.0)", "x * c.get()", ("c.set(3.0)",), traced=True),
    Case("counter", "class C: n = 1.0\nc = C()\ndef count():\n    c.n += 1.0\n    return c.n", "x * count()", ("c.n = 10.0",), counts=True, traced=True),
    Case("attribute written", "class C: n = 1.0\nc = C()\ndef put():\n    c.m = 4.0\n    return c.m", "x * put() * c.n", ("c.n = 10.0", "c.m = 5.0", "del c.m")),
    Case("memo", "memo = {}\ndef get(k):\n    if k not in memo:\n        memo[k] = 2.0 + len(memo)\n    return memo[k]", "x * get('a')", ("memo['a'] = 5.0", "memo.clear(); memo['b'] = 1.0")),
    Case("lru_cache", "import functools\nscale = 2.0\n@functools.lru_cache\ndef get(k): return scale * k", "x * get(2.0)", ("scale = 3.0", "get.cache_clear()"), traced=True),
    Case("sorted by a function", "order = -1.0\ndef key(v): return v * order", "x * sorted([1.0, 2.0], key=key)[0]", ("order = 1.0", "def key(v): return v")),
    Case("user generator", "scale = 2.0\nimport itertools", "x * sum(itertools.accumulate([scale, 1.0]))", ("scale = 3.0",)),
    Case("custom descriptor", "class D:\n    k = 2.0\n    def __get__(self, owner, cls): return self.k\nclass O: d = D()\no = O()", "x * o.d", ("D.k = 3.0", "O.__dict__['d'].k = 4.0", "O.d = 5.0")),
    Case("own __getattribute__", "class G:\n    def __getattribute__(self, name): return scale\nscale = 2.0\ng = G()", "x * g.anything", ("scale = 3.0",), traced=True),
    Case("metaclass", "class M(type):\n    k = 2.0\n    def __getattr__(cls, name): return cls.k\nclass O(metaclass=M): pass", "x * O.anything", ("M.k = 3.0", "O.anything = 4.0")),
    Case("cached property", "import functools\nclass O:\n    a = 2.0\n    @functools.cached_property\n    def b(self): return self.a * 2.0\no = O()", "x * o.b", ("o.a = 3.0", "o.b = 5.0", "del o.b")),
    Case("another thread", OBJECT + "import threading\ndef run(f):\n    t = threading.Thread(target=f); t.start(); t.join()", "x * config.scale", ("run(lambda: setattr(config, 'scale', 5.0))",)),
    Case("staged helper", "scale = 2.0\n@st.function\ndef helper(y): return y * scale", "helper(x)", ("scale = 3.0", "@st.function\ndef helper(y): return y + scale")),
    Case("gradient of a helper", "scale = 2.0\ndef helper(y): return st.sum(y * y * scale)", "st.grad(helper)(x)", ("scale = 3.0", "def helper(y): return st.sum(y * scale)")),
    Case("vmap of a helper", "scale = 2.0\ndef helper(y): return y * scale", "st.vmap(helper)(x)", ("scale = 3.0",)),
    Case("string", "mode = 'relu'", "getattr(st, mode)(x)", ("mode = 'exp'",)),
    Case("dtype", "kind = st.f32", "st.astype(x, kind)", ("kind = st.f64", "kind = np.float32")),
    Case("range bounds", "n = 3", "x * len([i for i in range(n)])", ("n = 4",)),
    Case("None", "extra = None", "x * (2.0 if extra is None else extra)", ("extra = 3.0", "extra = None")),
    Case("identity", "a = [1.0]\nb = a", "x * (2.0 if a is b else 3.0)", ("b = [1.0]", "b = a")),
    Case("slice", "part = slice(0, 2)", "x[part]", ("part = slice(1, 3)",)),
    Case("starred dict", "options = {'axis': 0}", "st.sum(x, **options)", ("options['axis'] = -1; options['keepdims'] = True", "options = {}")),
    Case("numpy scalar", "scale = np.float64(2.0)", "x * scale", ("scale = np.float64(3.0)", "scale = np.float32(3.0)")),
    Case("deque", "import collections\nitems = collections.deque([1.0, 2.0])", "x * items[0]", ("items.rotate(1)", "items.appendleft(5.0)")),
    Case("default dict", "import collections\ntable = collections.defaultdict(float, a=2.0)", "x * table['a']", ("table['a'] = 3.0",)),
    Case("ordered dict", "import collections\ntable = collections.OrderedDict(a=2.0, b=3.0)", "x * next(iter(table.values()))", ("table.move_to_end('a')",)),
    Case("mapping proxy", "import types\nt = {'a': 2.0}\np = types.MappingProxyType(t)", "x * p['a']", ("t['a'] = 3.0",), traced=True),
    Case("bytearray", "b = bytearray(b'ab')", "x * b[0]", ("b[0] = 99",), traced=True),
    Case("subclass of list", "class L(list): pass\nitems = L([1.0, 2.0])", "x * items[0]", ("items[0] = 3.0", "items.append(1.0)", "L.__getitem__ = lambda self, key: 9.0")),
    Case("subclass of dict", "class T(dict): pass\nt = T(a=1.0)", "x * t['a']", ("t['a'] = 3.0", "T.__getitem__ = lambda self, key: 9.0")),
    Case("decimal", "import decimal\nd = decimal.Decimal('2.5')", "x * float(d)", ("d = decimal.Decimal('3.5')",)),
    Case("fraction", "import fractions\nd = fractions.Fraction(5, 2)", "x * float(d)", ("d = fractions.Fraction(7, 2)",)),
    Case("import inside", "import sys, types\nm = types.ModuleType('staged_test_module')\nm.scale = 2.0\nsys.modules['staged_test_module'] = m\ndef get():\n    import staged_test_module\n    return staged_test_module.scale", "x * get()", ("m.scale = 3.0", "m2 = types.ModuleType('m'); m2.scale = 4.0; sys.modules['staged_test_module'] = m2")),
    Case("from import inside", "import sys, types\nm = types.ModuleType('staged_test_module')\nm.scale = 2.0\nsys.modules['staged_test_module'] = m\ndef get():\n    from staged_test_module import scale as s\n    return s", "x * get()", ("m.scale = 3.0", "m2 = types.ModuleType('m'); m2.scale = 4.0; sys.modules['staged_test_module'] = m2")),
    Case("super", OBJECT + "class Sub(Config):\n    def twice(self): return super().twice() + 1.0\ns = Sub()", "x * s.twice()", ("def twice(self): return 5.0\nBase.twice = twice", "def twice(self): return 7.0\nConfig.twice = twice", "del Config.twice")),
    Case("__post_init__", "import dataclasses\nscale = 2.0\n@dataclasses.dataclass\nclass P:\n    a: float = 1.0\n    def __post_init__(self): self.a = self.a * scale\n", "x * P(3.0).a", ("scale = 4.0", "def __post_init__(self): self.a = 9.0\nP.__post_init__ = __post_init__")),
    Case("context manager", "class M:\n    scale = 2.0\n    def __enter__(self): return self.scale\n    def __exit__(self, *args): return None\nm = M()\ndef get():\n    with m as s:\n        return s", "x * get()", ("m.scale = 3.0", "def __enter__(self): return 9.0\nM.__enter__ = __enter__")),
    Case("class of helpers", "scale = 2.0\nclass H:\n    def __init__(self, a): self.a = a * scale\n    def get(self): return self.a", "x * H(3.0).get()", ("scale = 4.0", "def __init__(self, a): self.a = a\nH.__init__ = __init__", "def get(self): return 11.0\nH.get = get")),
    Case("operators of new objects", "scale = 2.0\nclass V:\n    def __init__(self, a): self.a = a\n    def __add__(self, o): return V(self.a + o.a * scale)", "x * (V(1.0) + V(2.0)).a", ("scale = 4.0", "def __add__(self, o): return V(7.0)\nV.__add__ = __add__")),
    Case("global set", "n = 1.0\ndef put():\n    global n\n    n = n + 1.0\n    return n", "x * put()", ("n = 10.0",), counts=True, traced=True),
    Case("class attribute set", "class C: n = 1.0\ndef put():\n    C.n = 4.0\n    return C.n", "x * put()", ("C.n = 10.0",), traced=True),
    Case("length of an array", "table = np.zeros((2, 3))", "x * len(table)", ("table = np.zeros((5, 1))", "table.shape = (1, 5)")),
    Case("function attribute", "def helper(y): return y * helper.scale\nhelper.scale = 2.0", "helper(x)", ("helper.scale = 3.0", "helper.__dict__['scale'] = 4.0")),
    Case("key function's module", "import math\ndef key(v): return math.floor(v)\nfloor_ = math.floor", "x * sorted([2.5, 2.1], key=key)[0]", ("math.floor = lambda v: v", "math.floor = floor_")),
    Case("singleton default", "def helper(y, a=np.array([2.0])): return y * a", "helper(x)", ("helper.__defaults__[0][0] = 5.0", "helper.__defaults__ = (np.array([6.0]),)")),
]  # fmt: skip


def module_of(case: Case) -> Any:
    """A module with the case's `f(x)`, and one function for each change: what they define has its source in a file."""
    text = f"import numpy as np\nimport staged as st\n{case.setup}\ndef f(x):\n    return {case.read}\n"
    for number, change in enumerate(case.changes):
        bound = sorted(bindings_of(ast.parse(change).body).bound)
        text += f"def change_{number}():\n" + (f"    global {', '.join(bound)}\n" if bound else "")
        text += textwrap.indent(change, "    ") + "\n"
    return load_snippet(text, "stale")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.usefixtures("_as_before")
def test_no_call_is_stale(case: Case) -> None:
    module = module_of(case)
    staged = st.function(module.f)
    x = np.array([1.0, 2.0, 3.0])
    for number in range(-1, len(case.changes)):
        if number >= 0:
            getattr(module, f"change_{number}")()
        change = case.changes[number] if number >= 0 else "nothing"
        found = [outcome(staged, x) for _ in range(1 if case.counts else 3)]
        fresh = outcome(st.function(module.f), x)
        for result in found if not case.counts else ():
            assert type(result) is type(fresh), change
            if isinstance(fresh, np.ndarray):
                assert result.dtype == fresh.dtype, change
                np.testing.assert_array_equal(result, fresh, err_msg=change)
    assert bool(staged._kept.reasons) == case.traced, staged.why_traced()
    if not case.traced:
        calls = sum(entry.calls for entry in staged._kept.entries)
        staged(x)
        assert sum(entry.calls for entry in staged._kept.entries) == calls + 1


def outcome(function: Any, x: Any) -> Any:
    """What a call gives, or the error that it raises."""
    try:
        return function(x.copy())
    except (AttributeError, KeyError, TypeError, IndexError, NameError, ValueError) as error:
        return error


@pytest.fixture(name="_as_before")
def as_before() -> Iterator[None]:
    kept = math.pi, math.floor, st.relu, st.nn.Linear.forward
    yield
    math.pi, math.floor, st.relu, st.nn.Linear.forward = kept
    for name in ("STAGED_TEST_A", "STAGED_TEST_B"):
        os.environ.pop(name, None)
