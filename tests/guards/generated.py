"""Random functions that read from outside, and random changes of what they read: a carrier of the value, at a place in the function.

A carrier is made of steps from a root to a number: `g.inner.table['k'][1]` passes an attribute, a property, a dict and a list, each of
which can be changed in ways of its own. The place is where the function reads it: plainly, in a loop, in a branch not taken
first, in a helper, under a derivative.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

PREAMBLE = """
import collections, dataclasses, enum, functools, math, operator, os, sys, threading, types
import numpy as np
import staged as st

class Plain: pass
class Other: pass
switch = [True]
names = {'a': 'k', 'b': 'k'}

def in_thread(run):
    thread = threading.Thread(target=run); thread.start(); thread.join()
"""


@dataclass
class Program:
    """A module under construction: its text, the expression that reaches the number, and the changes."""

    rng: random.Random
    setup: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    read: str = "g"
    count: int = 0

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        self.count += 1
        return f"{stem}_{self.count}"

    def number(self) -> str:
        """A value that the function can multiply by, unlike those before."""
        self.count += 1
        kind = self.rng.randrange(8)
        return [
            f"{self.count}.5", f"{self.count}.25", f"-{self.count}.5", f"{self.count}", f"np.float64({self.count}.5)",
            f"np.float32({self.count}.5)", f"np.array([{self.count}.5])", f"np.int32({self.count})",
        ][kind]  # fmt: skip


Step = Callable[[Program, str], tuple[str, str, list[str]]]
"""(program, name of what is inside) -> (name of what holds it, how to reach it from there, changes)."""


def plain(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """An attribute."""
    o = p.name("o")
    p.setup += [f"{o} = Plain()", f"{o}.k = {inner}"]
    return o, ".k", [
        f"{o}.k = NEW", f"setattr({o}, 'k', NEW)", f"{o}.__dict__['k'] = NEW", f"{o}.__dict__.update(k=NEW)",
        f"object.__setattr__({o}, 'k', NEW)", f"in_thread(lambda: setattr({o}, 'k', NEW))", f"{o}.__dict__ = dict(k=NEW)",
        f"del {o}.k\n{o}.k = NEW",
    ]  # fmt: skip


def of_class(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """An attribute of the class, of a base, or of the object instead."""
    base, cls, o = p.name("B"), p.name("C"), p.name("o")
    p.setup += [f"class {base}: k = {inner}", f"class {cls}({base}): pass", f"{o} = {cls}()"]
    return o, ".k", [
        f"{base}.k = NEW", f"{cls}.k = NEW", f"{o}.k = NEW", f"{cls}.__bases__ = (type('N', (), dict(k=NEW)),)",
        f"{o}.__class__ = type('N', ({cls},), dict(k=NEW))", f"{cls}.k = property(lambda self: NEW)",
        f"type.__setattr__({cls}, 'k', NEW)", f"if 'k' in vars({o}): del {o}.k\n{cls}.__getattr__ = lambda self, name: NEW",
        f"{cls}.__getattribute__ = lambda self, name: NEW" if p.rng.random() < 0.2 else f"{base}.k = NEW",
    ]  # fmt: skip


def of_the_class(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """An attribute read from a class itself, perhaps by its metaclass."""
    meta, cls = p.name("M"), p.name("C")
    p.setup += [f"class {meta}(type): pass", f"class {cls}(metaclass={meta}): pass"]
    p.setup += [f"{cls}.k = {inner}" if p.rng.random() < 0.5 else f"{meta}.k = {inner}"]
    return cls, ".k", [
        f"{cls}.k = NEW", f"{meta}.k = NEW", f"if 'k' in vars({cls}): del {cls}.k\n{meta}.k = NEW",
        f"{meta}.k = property(lambda cls: NEW)",
    ]  # fmt: skip


def slots(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """A slot."""
    cls, o = p.name("S"), p.name("o")
    p.setup += [f"class {cls}:\n    __slots__ = ('k', '__weakref__')", f"{o} = {cls}()", f"{o}.k = {inner}"]
    return o, ".k", [f"{o}.k = NEW", f"{cls}.k.__set__({o}, NEW)", f"{cls}.k = NEW", f"del {o}.k\n{o}.k = NEW"]


def namespace(p: Program, inner: str) -> tuple[str, str, list[str]]:
    o = p.name("o")
    p.setup += [f"{o} = types.SimpleNamespace(k={inner})"]
    return o, ".k", [f"{o}.k = NEW", f"{o}.__dict__['k'] = NEW"]


def module(p: Program, inner: str) -> tuple[str, str, list[str]]:
    o = p.name("staged_test_m")
    p.setup += [f"{o} = types.ModuleType('{o}')", f"{o}.k = {inner}", f"sys.modules['{o}'] = {o}"]
    return o, ".k", [f"{o}.k = NEW", f"{o}.__dict__['k'] = NEW", f"sys.modules['{o}'].k = NEW"]


def dataclass_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    cls, o = p.name("D"), p.name("o")
    frozen = p.rng.random() < 0.5
    p.setup += [
        f"@dataclasses.dataclass(frozen={frozen})\nclass {cls}:\n    k: object = None\n    other: int = 1",
        f"{o} = {cls}({inner})",
    ]
    ways = [f"object.__setattr__({o}, 'k', NEW)", f"{o}.__dict__['k'] = NEW"]
    return o, ".k", ways if frozen else [*ways, f"{o}.k = NEW"]


def property_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """A property that reads an attribute, or a global."""
    cls, o, hidden = p.name("P"), p.name("o"), p.name("hidden")
    if p.rng.random() < 0.5:
        p.setup += [f"{hidden} = {inner}", f"class {cls}:\n    @property\n    def k(self): return {hidden}", f"{o} = {cls}()"]
        ways = [f"{hidden} = NEW"]
    else:
        p.setup += [f"class {cls}:\n    @property\n    def k(self): return self.h", f"{o} = {cls}()", f"{o}.h = {inner}"]
        ways = [f"{o}.h = NEW", f"{cls}.h = NEW\nif 'h' in vars({o}): del {o}.h"]
    return o, ".k", [
        *ways, f"{cls}.k = property(lambda self: NEW)", f"{cls}.k = NEW",
        f"if isinstance({cls}.k, property): {cls}.k.fget.__code__ = (lambda self: BOX[0]).__code__\nBOX[0] = NEW",
    ]  # fmt: skip


def getattr_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    cls, o = p.name("G"), p.name("o")
    make = f"class {cls}:\n    def __getattr__(self, name): return self.__dict__['_' + name]"
    p.setup += [make, f"{o} = {cls}()", f"{o}._k = {inner}"]
    return o, ".k", [f"{o}._k = NEW", f"{o}.k = NEW", f"{cls}.__getattr__ = lambda self, name: NEW", f"{cls}.k = NEW"]


def descriptor(p: Program, inner: str) -> tuple[str, str, list[str]]:
    cls, kind, o = p.name("C"), p.name("K"), p.name("o")
    p.setup += [
        f"class {kind}:\n    def __init__(self, v): self.v = v\n    def __get__(self, owner, cls): return self.v",
        f"class {cls}: k = {kind}({inner})", f"{o} = {cls}()",
    ]  # fmt: skip
    return o, ".k", [
        f"vars({cls})['k'].v = NEW", f"{cls}.k = {kind}(NEW)", f"{o}.k = NEW", f"{kind}.__get__ = lambda self, owner, cls: NEW",
        f"{kind}.__set__ = lambda self, owner, v: None\n{o}.__dict__['k'] = NEW", f"{cls}.k = NEW",
    ]  # fmt: skip


def method(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """A method, of the object, the class, or neither, with its attribute, default or closure."""
    cls, o = p.name("C"), p.name("o")
    kind = p.rng.randrange(4)
    if kind == 0:
        p.setup += [f"class {cls}:\n    def m(self): return self.k", f"{o} = {cls}()", f"{o}.k = {inner}"]
        ways = [f"{o}.k = NEW"]
    elif kind == 1:
        p.setup += [f"class {cls}:\n    k = {inner}\n    @classmethod\n    def m(cls): return cls.k", f"{o} = {cls}()"]
        ways = [f"{cls}.k = NEW", f"{cls}.m = classmethod(lambda cls: NEW)"]
    elif kind == 2:
        p.setup += [f"class {cls}:\n    k = {inner}\n    @staticmethod\n    def m(): return {cls}.k", f"{o} = {cls}()"]
        ways = [f"{cls}.k = NEW", f"{cls}.m = staticmethod(lambda: NEW)"]
    else:
        p.setup += [f"class {cls}:\n    def m(self, k={inner}): return k", f"{o} = {cls}()"]
        ways = [f"{cls}.m.__defaults__ = (NEW,)"]
    return o, ".m()", [*ways, f"{o}.m = lambda: NEW", f"{cls}.m = lambda self=None: NEW"]


def super_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    base, middle, cls, o = p.name("B"), p.name("M"), p.name("C"), p.name("o")
    p.setup += [
        f"class {base}:\n    k = {inner}\n    def m(self): return self.k", f"class {middle}({base}): pass",
        f"class {cls}({middle}):\n    def m(self): return super().m()", f"{o} = {cls}()",
    ]  # fmt: skip
    return o, ".m()", [
        f"{base}.k = NEW", f"{middle}.m = lambda self: NEW", f"{base}.m = lambda self: NEW", f"{o}.k = NEW",
        f"{middle}.__bases__ = (type('N', (), dict(m=lambda self: NEW)),)",
    ]  # fmt: skip


def function(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """A function that gives it: from its closure, defaults, attributes, or a global."""
    f = p.name("f")
    kind = p.rng.randrange(5)
    if kind == 0:
        p.setup += [f"def make_{f}(v):\n    def {f}(): return v\n    return {f}", f"{f} = make_{f}({inner})"]
        ways = [f"{f}.__closure__[0].cell_contents = NEW"]
    elif kind == 1:
        p.setup += [f"def {f}(v={inner}): return v"]
        ways = [f"{f}.__defaults__ = (NEW,)"]
    elif kind == 2:
        p.setup += [f"def {f}(*, v={inner}): return v"]
        ways = [f"{f}.__kwdefaults__['v'] = NEW", f"{f}.__kwdefaults__ = dict(v=NEW)"]
    elif kind == 3:
        p.setup += [f"def {f}(): return {f}.k", f"{f}.k = {inner}"]
        ways = [f"{f}.k = NEW", f"{f}.__dict__['k'] = NEW"]
    else:
        p.setup += [f"{f} = functools.partial(lambda v: v, {inner})"]
        ways = [f"{f}.__setstate__((lambda v: v, (NEW,), {{}}, None))"]
    holder = p.name("o")
    p.setup += [f"{holder} = types.SimpleNamespace(f={f})"]
    return holder, ".f()", [*ways, f"{holder}.f = lambda: NEW"]


def list_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    xs = p.name("xs")
    kind = p.rng.choice(["[0.0, {}]", "collections.deque([0.0, {}])", "Xs([0.0, {}])", "[0.0, {}, *range(30)]"])
    if kind.startswith("Xs"):
        p.setup += ["class Xs(list): pass"]
    p.setup += [f"{xs} = {kind.format(inner)}"]
    ways = [f"{xs}[1] = NEW", f"{xs}.insert(1, NEW)", f"{xs}.pop(1)\n{xs}.insert(1, NEW)", f"{xs}.appendleft(0.0)\n{xs}[1] = NEW"]
    if "deque" not in kind:
        ways = [*ways[:3], f"{xs}[:] = [1.0, NEW, 2.0]", f"list.__setitem__({xs}, 1, NEW)", f"{xs}.clear()\n{xs}.extend([0.0, NEW])"]
    if kind.startswith("Xs"):
        ways += ["Xs.__getitem__ = lambda self, i: NEW"]
    return xs, "[1]", ways


def tuple_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    t = p.name("t")
    p.setup += [f"{t} = (0.0, {inner})"]
    return t, "[1]", []


def named_tuple(p: Program, inner: str) -> tuple[str, str, list[str]]:
    t, cls = p.name("t"), p.name("T")
    p.setup += [f"{cls} = collections.namedtuple('{cls}', 'k other')", f"{t} = {cls}({inner}, 1.0)"]
    return t, ".k", [f"{cls}.k = property(lambda self: NEW)"]


def dict_(p: Program, inner: str) -> tuple[str, str, list[str]]:
    d = p.name("d")
    kind = p.rng.choice(
        ["{{'j': 0.0, 'k': {}}}", "collections.OrderedDict(k={})", "collections.defaultdict(float, k={})", "Ds(k={})",
         "collections.Counter(k={})", "collections.ChainMap({{}}, {{'k': {}}})", "collections.UserDict(k={})"]
    )  # fmt: skip
    if kind.startswith("Ds"):
        p.setup += ["class Ds(dict): pass"]
    p.setup += [f"{d} = {kind.format(inner)}"]
    key = p.rng.choice(["'k'", "names['a']", "'k' if switch else 'j'"])
    ways = [f"{d}['k'] = NEW", f"{d}.update(k=NEW)", f"{d}.pop('k')\n{d}['k'] = NEW", f"{d}.clear()\n{d}.update(k=NEW)"]
    if kind.startswith("Ds"):
        ways += ["Ds.__getitem__ = lambda self, key: NEW", f"{d}.pop('k')\nDs.__missing__ = lambda self, key: NEW"]
    if "ChainMap" in kind:
        ways = [f"{d}['k'] = NEW", f"{d}.maps[1]['k'] = NEW", f"{d}.maps.insert(0, dict(k=NEW))"]
    return d, f"[{key}]", ways


def numbered(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """A dict with keys that are equal and yet of other types, or none at all."""
    d = p.name("d")
    p.setup += [f"{d} = {{1: {inner}, None: 0.0, (1, 2): 3.0}}"]
    return d, p.rng.choice(["[1]", "[True]", "[1.0]"]), [f"{d}[1] = NEW", f"{d}[True] = NEW", f"{d}.clear()\n{d}[1.0] = NEW"]


def indexed(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """`__getitem__` of a class of one's own."""
    cls, o = p.name("I"), p.name("o")
    p.setup += [f"class {cls}:\n    k = {inner}\n    def __getitem__(self, key): return self.k", f"{o} = {cls}()"]
    return o, "[0]", [f"{cls}.k = NEW", f"{o}.k = NEW", f"{cls}.__getitem__ = lambda self, key: NEW"]


def called(p: Program, inner: str) -> tuple[str, str, list[str]]:
    """`__call__` of a class of one's own."""
    cls, o = p.name("I"), p.name("o")
    p.setup += [f"class {cls}:\n    k = {inner}\n    def __call__(self): return self.k", f"{o} = {cls}()"]
    return o, "()", [f"{cls}.k = NEW", f"{o}.k = NEW", f"{cls}.__call__ = lambda self: NEW"]


STEPS: tuple[Step, ...] = (
    plain, plain, of_class, of_the_class, slots, namespace, module, dataclass_, property_, getattr_, descriptor, method, super_,
    function, function, list_, list_, tuple_, named_tuple, dict_, dict_, numbered, indexed, called,
)  # fmt: skip

# What reads an object with code that is not converted; `{}` is the expression, `key` names the attribute or item.
READERS = (
    "operator.attrgetter('k')({})",
    "getattr({}, names['b'])",
    "getattr({}, 'k', 77.0)",
    "(lambda o: o.k)({})",
    "max([{}], key=lambda o: 0).k",
    "[each for each in ({},)][0].k",
    "next(iter([{}])).k",
    "(lambda *given, **named: named['o'])(o={}).k",
    "(lambda o: o)(*[{}]).k",
)

PLACES = (
    "return x * {}",
    "return x * {} if switch[0] else x + 1.0",
    "return x + 1.0 if switch[0] else x * {}",
    "for i in range(2):\n    x = x * {}\nreturn x",
    "for i in st.range(2):\n    x = x * {}\nreturn x",
    "if st.sum(x) > 0.0:\n    return x * {}\nreturn x",
    "def inner(y): return y * {}\nreturn inner(x)",
    "def inner(y, v={}): return y * v\nreturn inner(x)",
    "return st.grad(lambda y: st.sum(y * y * {}))(x)",
    "return st.vmap(lambda y: y * {})(x)",
    "return sum([x * v for v in [{}, 1.0]])",
    "return sum(x * v for v in ({}, 2.0))",
    "def inner():\n    try:\n        return {}\n    except (AttributeError, KeyError):\n        return 99.0\nreturn x * inner()",
    "return helper(x, lambda: {})",
    "return staged_helper(x) * {}",
    "v = {}\nreturn x * (v + 1.0) if isinstance(v, int) else x * v",
    "return x * (lambda v: v)(v={})",
    "while True:\n    if not st.all(x == x):\n        break\n    x = x * {}\n    break\nreturn x",
    "a, *b = [x, {}]\nreturn a * b[0]",
    "return x * (v if (v := {}) is not None else 1.0)",
    "class Local:\n    def get(self): return {}\nreturn x * Local().get()",
    "with Manager():\n    return x * {}",
    "return helper_with_default(x) * {}",
    "return x * dict(k={})['k']",
    "return functools.reduce(lambda a, b: a * b, [x, {}])",
)

HELPERS = """
BOX = [1.0]
def helper(y, get): return y * get()
@st.function
def staged_helper(y): return y + len(switch)
def helper_with_default(y, n=2.0): return y + n
class Manager:
    def __enter__(self): return self
    def __exit__(self, *given): return None
"""


def generate(seed: int) -> tuple[str, list[str]]:
    """The text of a module with `f(x)`, and statements that change what it reads; all chosen by the seed."""
    p = Program(random.Random(seed))
    rng = p.rng
    inner, read, changes = p.name("leaf"), "", []
    p.setup += [f"{inner} = {p.number()}"]
    for _ in range(rng.randint(1, 4)):
        name, access, ways = rng.choice(STEPS)(p, inner)
        # What is inside is reached by what was the access so far; a change puts a new one of it there.
        changes += [(way, access, read) for way in ways]
        inner, read = name, access + read
    p.setup += [f"g = {inner}"]
    expression = f"g{read}"
    if read.startswith(".k") and rng.random() < 0.3:
        expression = f"({rng.choice(READERS).format('g')}{read[2:]})"
    picked = []
    for way, _, after in rng.sample(changes, min(len(changes), 5)):
        new = p.number()
        picked.append(way.replace("NEW", wrap(new, after)))
    picked.insert(rng.randint(0, len(picked)), "switch[0] = not switch[0]")
    if rng.random() < 0.3:
        picked.append(f"g = {wrap(p.number(), read)}")
    place = rng.choice(PLACES).format(expression)
    body = "\n".join(f"    {line}" for line in place.split("\n"))
    return f"{PREAMBLE}{HELPERS}{WRAPPED}" + "\n".join(p.setup) + f"\ndef f(x):\n{body}\n", picked


def wrap(value: str, access: str) -> str:
    """An object in which `access` reaches the value."""
    return f"wrapped({value}, {access!r})" if access else value


WRAPPED = '''
def wrapped(value, access):
    """Something new in which the accesses reach `value`."""
    if not access:
        return value
    for head in (".m()", ".f()", ".k", "()"):
        if access.startswith(head):
            inner = wrapped(value, access[len(head):])
            if head == "()":
                return lambda: inner
            if head == ".k":
                return types.SimpleNamespace(k=inner)
            return types.SimpleNamespace(m=lambda: inner, f=lambda: inner)
    assert access.startswith("["), access
    end = access.index("]", access.index("]") + 1) + 1 if access.startswith("[names") else access.index("]") + 1
    inner = wrapped(value, access[end:])
    key = access[1:end - 1]
    return [inner, inner] if key in ("0", "1", "True") else {"k": inner, 1.0: inner}
'''
