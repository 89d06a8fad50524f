"""Contexts: the one in force records each op (tracing, transforms) or computes it (eager).

Ops are functions on `Array` handles that end in `bind(primitive, operands, **attrs)`, which calls the innermost context
of this thread. Composites, layers and vjp rules are written once and serve every context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NoReturn, Protocol

from staged.errors import DTypeError, StagingError
from staged.ir.declaration import prims
from staged.ir.types import TensorType, bf16, f16, f32
from staged.ops.array import WORDS, Array
from staged.ops.primitive import JvpRule, Primitive, VjpRule
from staged.source import here


class Whole(Protocol):
    """A composite that is one op to every derivative, or has a reference, as a context sees it."""

    @property
    def name(self) -> str: ...

    @property
    def vjp(self) -> VjpRule | None: ...

    @property
    def jvp(self) -> JvpRule | None: ...

    @property
    def reference(self) -> Callable[..., tuple[Any, ...]] | None: ...

    @property
    def is_one_op(self) -> bool: ...

    def run(self, arrays: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]: ...


class Context(ABC):
    """Carries out ops."""

    @abstractmethod
    def bind(self, primitive: Primitive, operands: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
        """Record or compute `primitive`; one handle per result."""

    def whole(self, composite: Whole, operands: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
        """Compute a composite that is one op to every derivative, or has a reference."""
        return composite.run(operands, attrs)

    @abstractmethod
    def constant(self, value: Any, type: TensorType) -> Array:
        """A handle for a value known now: a Python number or a NumPy array, of the given type."""

    @abstractmethod
    def lift(self, array: Any) -> Array:
        """A handle for a NumPy array (or another context's concrete array) that exists outside: a hidden input."""

    def read_now(self, value: Any) -> None:
        """Note that elements of a Python object's array become constants of the program."""
        return

    def note_offered(self, array: Any) -> None:
        """Note that the elements of another library's array become an input of the program."""
        return

    @property
    def is_plain(self) -> bool:
        """Return whether this is plain Python: no staged function runs, staged or eagerly, and no derivative is being
        taken.

        There an array may become NumPy's. Elsewhere that would lose it for the program, or for the derivative.
        """
        return False

    @property
    def is_certain(self) -> bool:
        """Return whether the code being executed runs in any case, so that its errors can be reported at once."""
        return True

    def next_random(self, generator: Any = None) -> tuple[Array, Array, Array]:
        """(seed, stream, counter), i64 scalars, for one execution of a random op; counts it.

        They are those of `generator`, without one of the default generator.
        """
        raise AssertionError("random ops are run by the user's program, transforms record none")


_current: ContextVar[Context | None] = ContextVar("staged_context", default=None)
_default: Context | None = None
_make_default: Callable[[], Context] | None = None


def set_default_context(make: Callable[[], Context]) -> None:
    """Set the context for plain Python, outside of any staged or eager code. The first op there calls `make`."""
    global _make_default
    _make_default = make


def current_context() -> Context:
    """The context in force: of the code around, else the default one; a StagingError where there is neither."""
    global _default
    context = _current.get() or _default
    if context is None:
        if _make_default is not None:
            _default = _make_default()
            return _default
        raise StagingError(
            "this needs a staged function or eager mode around it",
            hint="call it from a function decorated with `@staged.function`, or inside `with staged.eager():`",
        )
    return context


WORDS["is_plain"] = lambda: current_context().is_plain

context_or_none = _current.get
"""The context of the staged or eager code around, if any (in plain Python: None)."""


EAGER_NAMES: ContextVar[frozenset[str]] = ContextVar("staged_eager_names", default=frozenset())
eager_names = EAGER_NAMES.get
"""The names of the staged functions that run eagerly here, `*` for all; empty outside of eager mode."""


def is_eager(name: str = "") -> bool:
    """Return whether a staged function called `name` runs eagerly here."""
    names = eager_names()
    return "*" in names or name in names


@contextmanager
def use_context(context: Context) -> Iterator[None]:
    """Put `context` in force for the extent of the `with`."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


COMPLEX_FORMS: dict[Any, Callable[..., Array]] = {}
"""By primitive or composite: what it is on complex operands; see `complex_numbers`."""


def refuse_complex(name: str, operands: Sequence[Array]) -> NoReturn:
    """Refuse an op that has no meaning for complex numbers."""
    raise DTypeError(
        f"{name} is not defined for complex numbers, got {', '.join(str(operand.type) for operand in operands)}",
        where=here(),
        hint="take `st.real(x)`, `st.imag(x)` or `st.abs(x)`",
    )


def bind(primitive: Primitive, operands: Sequence[Array], **attrs: Any) -> Array:
    """Carry out an op with one result."""
    (result,) = bind_all(primitive, operands, **attrs)
    return result


def bind_all(primitive: Primitive, operands: Sequence[Array], **attrs: Any) -> tuple[Array, ...]:
    """Carry out an op with any number of results; what computes with f16 or bf16 is carried out with f32.

    Results that are f32 then are rounded, to the dtype of the first half operand. On complex operands an op is its
    form, unless it takes them as they are.
    """
    context = _current.get() or current_context()
    if not primitive.by_parts:
        for operand in operands:
            if operand.type.dtype.kind == "c":
                form = COMPLEX_FORMS.get(primitive)
                return refuse_complex(primitive.name, operands) if form is None else (form(*operands, **attrs),)
    if not primitive.is_of_storage:
        dtype = attrs.get("dtype")
        for operand in operands:
            found = operand.type.dtype
            if found is f16 or found is bf16:
                dtype = found
                break
        if dtype is f16 or dtype is bf16:
            cast = prims.CAST
            wide = [bind(cast, [x], dtype=f32, weak=False) if x.type.dtype.is_half else x for x in operands]
            if "dtype" in attrs:
                attrs["dtype"] = f32
            results = context.bind(primitive, wide, attrs)
            return tuple(bind(cast, [x], dtype=dtype, weak=False) if x.dtype is f32 else x for x in results)
    return context.bind(primitive, operands, attrs)
