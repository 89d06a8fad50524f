"""Random numbers that go on: a `Generator` is a seed and a counter, two Variables, of which each random op advances the
second.

Every thread of Python has a default generator. A program that draws from it reads and writes the Variables of
`OF_THREAD`, which stand for those of whatever thread calls the program.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from staged.errors import ArgumentError, StateDictError
from staged.frontend.trace.context import RandomNumbers, TraceContext, current_trace
from staged.frontend.values.variable import Variable, read_variable
from staged.ir.types import TensorType, f32, i64
from staged.library.draws import distributions, random, rejection
from staged.ops.array import Array, StagedArray
from staged.ops.context import current_context
from staged.ops.promote import as_array, cast, dtype_error
from staged.source import here


class _Part(Variable):
    """A number of a generator: a Variable that keeps its buffer for life, so that calls of several threads take turns
    with it.
    """

    __slots__ = ()

    def __staged_read__(self) -> Array:
        trace = current_trace()
        if trace is not None:
            return read_variable(trace, self)
        self._check_alive()
        return current_context().lift(self.numpy())

    @property
    def _held(self) -> Any:
        return self.buffer(written=False)

    @_held.setter
    def _held(self, value: Any) -> None:
        if self._kept is None:
            self._kept = np.array(value, np.int64)
        else:
            self.buffer()[...] = np.asarray(value)

    def buffer(self, written: bool = True) -> np.ndarray[Any, Any]:
        self._check_alive()
        buffer: np.ndarray[Any, Any] = self._kept
        return buffer


class Seed(_Part):
    """The seed of a generator."""

    __slots__ = ()
    purpose = "seed of the numbers that are drawn"
    part = "seed"


class Counter(_Part):
    """The number of random ops that have drawn from a generator."""

    __slots__ = ()
    purpose = "numbers drawn so far"
    part = "counter"


class _OfThread(_Part):
    """A number of the default generator of the thread that asks."""

    __slots__ = ()

    def _own(self) -> _Part:
        return default_of_thread().counter if isinstance(self, Counter) else default_of_thread().seed

    @property
    def _kept(self) -> Any:
        return self._own()._kept


class _SeedOfThread(_OfThread, Seed):
    __slots__ = ()


class _CounterOfThread(_OfThread, Counter):
    __slots__ = ()


class Generator:
    """An independent source of random numbers: those of `seed`, where each draw continues where the last one ended.

        noise = st.random.Generator(7)
        x = noise.normal((3,))                          # or st.random.normal((3,), generator=noise)

    It is an argument of staged functions, closed over, or an attribute of a module, whose `state_dict` has it; a copy
    continues by itself. Its `seed` and `counter` are Variables: a program that stops half way has drawn what it has
    drawn. Calls of several threads that draw from one generator take turns. Made inside a staged function it lives in
    the program.

    Parameters: seed, an integer of 64 bits, in a staged function also a staged one; name, for messages and generated
    code.
    """

    __slots__ = ("__weakref__", "_counter", "_is_named", "_seed")
    __staged_by_reference__ = True
    __staged_generator__ = True

    def __init__(self, seed: Any = 0, *, name: str | None = None) -> None:
        self._set(Seed(_checked(seed), f"{name or 'generator'}.seed"), Counter(0, f"{name or 'generator'}.counter"))
        self._is_named = name is not None

    def _set(self, seed: Seed, counter: Counter) -> None:
        self._seed, self._counter, self._is_named = seed, counter, True

    @property
    def seed(self) -> Seed:
        """The Variable that says which numbers come."""
        return self._seed

    @property
    def counter(self) -> Counter:
        """The Variable that counts the random ops that have drawn from it."""
        return self._counter

    def start(self, seed: Any) -> None:
        """Begin again, with the numbers of `seed`."""
        self._seed.value = _checked(seed)
        self._counter.value = as_array(0)

    def rename(self, name: str) -> None:
        """Call its Variables after the attribute that holds it, unless it has a name."""
        if not self._is_named:
            self._seed.name, self._counter.name, self._is_named = f"{name}.seed", f"{name}.counter", True

    # ---- drawing ----

    def bits(self, shape: Any = (), *, shard: int | None = None) -> Array:
        """As `st.random.bits`."""
        return random.bits(shape, generator=self, shard=shard)

    def uniform(
        self, shape: Any = (), *, low: Any = 0.0, high: Any = 1.0, dtype: Any = f32, shard: int | None = None
    ) -> Array:
        """As `st.random.uniform`."""
        return random.uniform(shape, low=low, high=high, dtype=dtype, generator=self, shard=shard)

    def normal(
        self, shape: Any = (), *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = f32, shard: int | None = None
    ) -> Array:
        """As `st.random.normal`."""
        return random.normal(shape, mean=mean, std=std, dtype=dtype, generator=self, shard=shard)

    def bernoulli(self, p: Any = 0.5, shape: Any = None, *, shard: int | None = None) -> Array:
        """As `st.random.bernoulli`."""
        return random.bernoulli(p, shape, generator=self, shard=shard)

    def integers(self, low: Any, high: Any = None, shape: Any = (), dtype: Any = i64) -> Array:
        """As `st.random.integers`."""
        return random.integers(low, high, shape, dtype, generator=self)

    def permutation(self, n: Any) -> Array:
        """As `st.random.permutation`."""
        return random.permutation(n, generator=self)

    def exponential(self, shape: Any = (), *, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.exponential`."""
        return distributions.exponential(shape, scale=scale, dtype=dtype, generator=self)

    def laplace(self, shape: Any = (), *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.laplace`."""
        return distributions.laplace(shape, loc=loc, scale=scale, dtype=dtype, generator=self)

    def logistic(self, shape: Any = (), *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.logistic`."""
        return distributions.logistic(shape, loc=loc, scale=scale, dtype=dtype, generator=self)

    def gumbel(self, shape: Any = (), *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.gumbel`."""
        return distributions.gumbel(shape, loc=loc, scale=scale, dtype=dtype, generator=self)

    def cauchy(self, shape: Any = (), *, loc: Any = 0.0, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.cauchy`."""
        return distributions.cauchy(shape, loc=loc, scale=scale, dtype=dtype, generator=self)

    def truncated_normal(
        self,
        shape: Any = (),
        *,
        low: Any = -2.0,
        high: Any = 2.0,
        mean: Any = 0.0,
        std: Any = 1.0,
        dtype: Any = f32,
    ) -> Array:
        """As `st.random.truncated_normal`."""
        return distributions.truncated_normal(
            shape, low=low, high=high, mean=mean, std=std, dtype=dtype, generator=self
        )

    def gamma(self, a: Any, shape: Any = (), *, scale: Any = 1.0, dtype: Any = f32) -> Array:
        """As `st.random.gamma`."""
        return rejection.gamma(a, shape, scale=scale, dtype=dtype, generator=self)

    def beta(self, a: Any, b: Any, shape: Any = (), *, dtype: Any = f32) -> Array:
        """As `st.random.beta`."""
        return rejection.beta(a, b, shape, dtype=dtype, generator=self)

    def dirichlet(self, alpha: Any, shape: Any = (), *, dtype: Any = f32) -> Array:
        """As `st.random.dirichlet`."""
        return rejection.dirichlet(alpha, shape, dtype=dtype, generator=self)

    def poisson(self, rate: Any = 1.0, shape: Any = ()) -> Array:
        """As `st.random.poisson`."""
        return rejection.poisson(rate, shape, generator=self)

    def binomial(self, n: Any, p: Any, shape: Any = ()) -> Array:
        """As `st.random.binomial`."""
        return rejection.binomial(n, p, shape, generator=self)

    def multivariate_normal(self, mean: Any, cov: Any, shape: Any = (), *, dtype: Any = f32) -> Array:
        """As `st.random.multivariate_normal`."""
        return distributions.multivariate_normal(mean, cov, shape, dtype=dtype, generator=self)

    def categorical(self, logits: Any, shape: Any = ()) -> Array:
        """As `st.random.categorical`."""
        return distributions.categorical(logits, shape, generator=self)

    def choice(self, a: Any, shape: Any = (), *, replace: bool = True, p: Any = None) -> Array:
        """As `st.random.choice`."""
        return distributions.choice(a, shape, replace=replace, p=p, generator=self)

    # ---- keeping ----

    def state_dict(self) -> dict[str, Any]:
        """`{"seed": ..., "counter": ...}`: what it needs to go on."""
        return {"seed": self._seed.saved(), "counter": self._counter.saved()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the generator was whose `state_dict` this is. Raises: StateDictError where it is none of a
        generator.
        """
        if not isinstance(state_dict, Mapping) or set(state_dict) != {"seed", "counter"}:
            got = sorted(map(str, state_dict)) if isinstance(state_dict, Mapping) else type(state_dict).__name__
            raise StateDictError(f"the state of a generator has `seed` and `counter`, got {got}", where=here())
        seed, counter = _checked(state_dict["seed"]), _checked(state_dict["counter"])
        self._seed.value = seed
        self._counter.value = counter

    def __copy__(self) -> Generator:
        made = Generator.__new__(Generator)
        made._set(Seed(self._seed.value, self._seed.name), Counter(self._counter.value, self._counter.name))
        made._is_named = self._is_named
        return made

    def __deepcopy__(self, memo: object) -> Generator:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickles: the numbers that come next are the same."""
        if current_trace() is not None:
            self._seed.__reduce__()  # refuses it, with the way out
        names = self._seed.name, self._counter.name
        return _restored, (int(self._seed.numpy()), int(self._counter.numpy()), *names, self._is_named)

    def __repr__(self) -> str:
        if self._seed.is_inner or current_trace() is not None:
            return f"Generator({self._seed.name.removesuffix('.seed')})"
        return f"Generator({int(self._seed.numpy())}, counter={int(self._counter.numpy())})"


def _restored(seed: int, counter: int, seed_name: str, counter_name: str, is_named: bool) -> Generator:
    """Restore a generator from its pickle."""
    made = Generator.__new__(Generator)
    made._set(Seed(seed, seed_name), Counter(counter, counter_name))
    made._is_named = is_named
    return made


def _checked(value: Any) -> Any:
    """A seed or a counter as a Variable takes it. Raises: DTypeError or ArgumentError for what is no integer of 64
    bits.
    """
    if isinstance(value, Array) or (isinstance(value, np.ndarray) and value.shape == ()):
        array = as_array(value)
        if not array.dtype.is_integer:
            raise dtype_error(f"a seed is an integer, got {array.type}", array)
        return cast(array, i64)
    return as_array(checked_seed(value))


def checked_seed(value: Any) -> int:
    """A seed that is known. Raises: ArgumentError for what is no integer of 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"a seed is an integer, got {value!r}", where=here()) from None
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"a seed is an integer of 64 bits, got {number}", where=here(), hint="take it modulo 2**63")
    return number


# ---- the default generators ----------------------------------------------------------------------


def _outside(cls: type[_Part], name: str) -> Any:
    """A part of a generator that is older than whatever is being traced."""
    made = cls.__new__(cls)
    made.local = False
    made._name, made._type, made._trace, made._remote = name, TensorType(i64), None, None
    return made


def default_with(seed: int) -> Generator:
    """A generator that programs draw from unless they name another one."""
    made = Generator.__new__(Generator)
    made._set(_outside(Seed, "random_seed"), _outside(Counter, "random_counter"))
    made.seed._kept, made.counter._kept = np.array(seed, np.int64), np.array(0, np.int64)
    return made


class _Defaults(threading.local):
    generator: Generator | None = None


_defaults = _Defaults()
OF_THREAD = Generator.__new__(Generator)
OF_THREAD._set(_outside(_SeedOfThread, "random_seed"), _outside(_CounterOfThread, "random_counter"))
"""The default generator of the calling thread, whichever it is."""


def default_of_thread() -> Generator:
    """The default generator of this thread; it starts from seed 0 when it is first asked for."""
    found = _defaults.generator
    if found is None:
        found = _defaults.generator = default_with(0)
    return found


@contextmanager
def numbers_again() -> Iterator[None]:
    """Put the default generator of this thread back, at the end, to where it is now."""
    parts = default_of_thread().seed, default_of_thread().counter
    before = [part.numpy() for part in parts]
    try:
        yield
    finally:
        for part, value in zip(parts, before, strict=True):
            part.buffer()[...] = value


def default_generator() -> Generator:
    """The generator that random functions draw from by default: that of the calling thread.

    Its `state_dict()` is what a run needs, beside weights and optimiser, to continue with the same numbers. It is one
    object for all threads, and represents the numbers of each: a program draws from those of the thread that calls it.
    A copy is an independent generator. In a function with a seed it is the function's.
    """
    trace = current_trace()
    if trace is not None:
        source = trace.of(RandomNumbers).generator
        assert isinstance(source, Generator)
        return source
    found: Generator = current_context().generator()  # type: ignore[attr-defined]
    return found


def seed(value: Any) -> None:
    """Start the random numbers of this thread again from `value`, an integer.

    In a staged function, `value` may be staged, and the call may stand in loops and branches: it takes effect when the
    program runs.
    """
    default_generator().start(value)


def draw(trace: TraceContext, source: Any) -> tuple[Array, Array, Array]:
    """(seed, stream, counter) for one random op of a program; counts it when the program runs."""
    seed, counter = source.seed.value, source.counter.value
    following = counter + 1
    if trace.transforms and isinstance(following, StagedArray):
        following.value.hint = source.counter.name  # a transform passes it on
    source.counter.value = following
    return seed, trace.constant(0, TensorType(i64)), counter
