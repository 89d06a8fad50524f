"""`@staged.function`, and the object that it returns."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from staged.base.depth import goes_deep
from staged.base.tracebacks import trimmed, trims_traceback
from staged.call.dispatch import Entry, Programs, ProgramUse, entry_for, region_key
from staged.call.guards.guard import Reason
from staged.call.nan_search import checked, first_nan
from staged.eager_mode.context import eager_call, unwrap, wrap
from staged.errors import ProgramNanError, ProgramRecursionError, StagedError, StagingError
from staged.frontend.calls.arguments import Arguments, checked_local, flatten_arguments
from staged.frontend.calls.call import call
from staged.frontend.calls.detection import Axis, Failure
from staged.frontend.calls.dims import declared_of
from staged.frontend.calls.staged_calls import call_staged
from staged.frontend.devices.resident import open_regions
from staged.frontend.relations import traced_with_relations
from staged.frontend.syntax.sources import remember, remember_modules
from staged.frontend.syntax.user_code import is_generator
from staged.frontend.trace.context import current_trace
from staged.frontend.trace_function import TracedFunction, trace
from staged.frontend.values import trees
from staged.frontend.values.generator import OF_THREAD, Generator, checked_seed, default_with
from staged.ir.fingerprint import ProgramKey
from staged.ops.assumptions import assuming
from staged.ops.autocast import lowered_to
from staged.ops.context import context_or_none, eager_names, is_eager
from staged.ops.promote import plain_number as plain_number
from staged.ops.ranks import check_job, check_static, checked_ranks, using_ranks
from staged.runtime.options import CompileOptions
from staged.source import position_of_function, position_of_recursion

if TYPE_CHECKING:
    from staged.call.program import Program

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_Self = TypeVar("_Self")
_Rest = ParamSpec("_Rest")


class StagedFunction(Generic[P, R]):
    """A Python function that becomes a program when it is called.

    Arrays and numbers among the arguments are staged, other arguments are static; each combination of types and static
    values is staged once. Called inside another staged function it is staged along; inside `staged.eager()` it runs in
    NumPy, line by line.
    """

    def __init__(
        self,
        function: Callable[P, R],
        static: Collection[str],
        target: str | None,
        seed: int | None,
        check_nan: bool,
        contract: bool | None,
        dims: Mapping[str, Any] | Literal["static"] | None = None,
        ranks: int | None = None,
        local: Collection[str] | str = (),
    ) -> None:
        plain = getattr(function, "__func__", function)
        if isinstance(plain, FunctionType) and is_generator(plain):
            raise StagingError(
                f"`{function.__name__}` is a generator, which cannot be staged",
                where=position_of_function(function),
                hint="return a list instead",
            )
        functools.update_wrapper(self, function)
        remember_modules()
        remember(function)
        self.__wrapped__ = function
        self._static = tuple(static)
        self._declared = declared_of(function, dims or {})
        self._target = target
        self._seed = None if seed is None else checked_seed(seed)
        self._check_nan = check_nan
        self._contract = contract
        self._ranks = None if ranks is None else checked_ranks(ranks, function)
        self._local = checked_local(function, local, self._static)
        self._kept = Programs()
        self._kept.generator = None if self._seed is None else default_with(self._seed)
        self._owner: Any = getattr(function, "__self__", None)
        self.options = CompileOptions()

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> StagedFunction[P, R]: ...

    @overload
    def __get__(
        self: StagedFunction[Concatenate[_Self, _Rest], R], instance: _Self, owner: type | None = None
    ) -> StagedFunction[_Rest, R]: ...

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        # Python asks at each `model.step`: another that shares all but the function, and nothing is looked at anew.
        bound = object.__new__(type(self))
        fields, function = self.__dict__.copy(), self.__wrapped__
        if type(function) is FunctionType:
            fields["__wrapped__"], fields["_owner"] = MethodType(function, instance), instance
        else:
            fields["__wrapped__"] = method = function.__get__(instance, owner)
            fields["_owner"] = getattr(method, "__self__", None)
        bound.__dict__ = fields
        return bound

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it; the class says how arguments are treated. Results are NumPy arrays in the function's tree. In a
        region they are `DeviceArray`s if the device computes them.
        """
        # What `trims_traceback` does is written out: its wrapper would be a tenth of a small call.
        result: R
        try:
            if context_or_none() is None and not eager_names():
                kept = self._kept
                entries = kept.entries
                if entries:
                    region = region_key() if open_regions() or lowered_to() else None
                    for entry in entries:
                        if entry.region == region and entry.options is self.options:
                            values = entry.values(args, kwargs, self._owner)
                            if values is not None:
                                if entry is not entries[0]:
                                    kept.ran(entry)
                                result = entry.run(values)
                                return result
                    kept.traces_again(args, kwargs, self._owner)
                result = self._run_traced(args, kwargs)
                return result
            if current_trace() is not None:
                result = call_staged(self, args, kwargs)
                return result
            if is_eager(getattr(self.__wrapped__, "__name__", "")):
                result = self._run_eagerly(args, kwargs)
                return result
            result = self._run_traced(args, kwargs)
            return result
        except RecursionError:  # its frames say who calls whom, to the trace around
            raise
        except ProgramNanError as error:
            again = functools.partial(self._run_eagerly, args, kwargs)
            left = trimmed(first_nan(error, again) if self._check_nan else error)
        except Exception as error:
            left = trimmed(error)
        raise left  # STAGED_TRACEBACK=full shows the frames that are left out here

    def _run_traced(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace, keep the program for later calls if a check can tell whether it holds for them, and run it."""
        started, kept = perf_counter(), self._kept
        arguments = self._arguments(args, kwargs)
        sizes = kept.detection.call(arguments, self._declared, (id(self._owner), repr(region_key()), id(self.options)))
        staged: Any = None
        reasons: dict[tuple[Axis, ...], Exception] = {}
        if sizes is not None and not kept.reasons:

            def attempt(axes: Collection[Axis]) -> Any:
                bound = sizes.bind(arguments, self._declared, axes)
                try:
                    return self._staged(args, kwargs, bound)
                except Exception as error:  # whatever it is: the program for these sizes alone follows, or its error
                    return Failure(error, bound.assumptions is not None and bound.assumptions.is_of_call(error))

            staged, reasons = sizes.most_dynamic(attempt)
        traced, program, made = staged or self._staged(args, kwargs, arguments)
        if isinstance(made, Entry):
            made.staging_seconds = perf_counter() - started
        kept.keep(made, program.key, self.__wrapped__)
        if sizes is not None:
            kept.traced_sizes(sizes, reasons, self.__wrapped__)
        return program.run(traced.arguments, traced)

    def _staged(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: Arguments
    ) -> tuple[TracedFunction, Program, Entry | list[Reason]]:
        """Trace and compile for these arguments."""
        arguments, traced = self._trace(args, kwargs, arguments)
        program = self._program(traced)
        made = entry_for(self.__wrapped__, arguments, traced, program)
        traced.reads.release()
        if isinstance(made, Entry) and made.is_dead:
            made = [Reason("an object that was made while staging was read as one from outside", None)]
        return traced, program, made

    def why_traced(self) -> str:
        """The reason why the last traced call was traced, and why every call is, if so.

        Empty if it was only the first call.
        """
        kept = self._kept
        if kept.reasons:
            return "every call traces: " + "; ".join(map(str, kept.reasons))
        why = f"{kept.changed} was not as the trace before had read it" if kept.changed else ""
        if kept.changed.startswith(("the argument", "the size", "the shape")) and kept.values:
            why = kept.values
        elif kept.captured:
            why += f": the captured {kept.captured}"
            if "has shape" in kept.captured:
                why += ". Sizes of captured arrays are static: pass the array as an argument"
        return f"{why}; the function {kept.why_static}" if kept.why_static else why

    @property
    def programs(self) -> list[ProgramUse]:
        """The programs that later calls may run, most recent first, with their calls, traces, failures and times."""
        return self._kept.uses()

    def clear(self) -> None:
        """Forget all programs: the next call traces."""
        self._kept.clear()

    @property
    def _generator(self) -> Generator | None:
        """The random generator of a function with `seed`, which continues from call to call."""
        return self._kept.generator

    @property
    def __staged_inline__(self) -> Callable[..., Any]:
        """The function as converted code calls it: inside another staged function it is traced inline."""
        check_static(self._ranks, self.__wrapped__)
        return self.__wrapped__

    @property
    def __staged_static__(self) -> tuple[str, ...]:
        """The arguments that are known while staging, in calls from staged functions too."""
        return self._static

    @goes_deep
    def _run_eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any], seconds: float | None = None) -> Any:
        check_job(self._ranks, self.__wrapped__)
        arguments = flatten_arguments(self.__wrapped__, args, kwargs, self._static)
        with eager_call(self._generator), checked(self._check_nan, seconds) as check:
            args, kwargs = arguments.rebuild([wrap(argument.value) for argument in arguments.staged])
            try:
                made = call(self.__wrapped__, *args, **kwargs)
                check(trees.flatten(made)[0])
                return trees.map_leaves(unwrap, made)
            except RecursionError as error:
                if isinstance(error, StagedError):
                    raise
                raise _too_deep(error) from None

    @trims_traceback
    def stage(self, *args: P.args, **kwargs: P.kwargs) -> Program:
        """The program for these arguments, without running it."""
        arguments, traced = self._trace(args, kwargs)
        traced.reads.release()
        return self._program(traced, [(passed.path, passed.value) for passed, _ in arguments.placed])

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        arguments = flatten_arguments(self.__wrapped__, args, kwargs, self._static)
        return self._declared.bind(arguments) if self._declared.axes else arguments

    def _trace(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: Arguments | None = None
    ) -> tuple[Arguments, TracedFunction]:
        arguments = arguments or self._arguments(args, kwargs)
        generator = self._kept.generator or OF_THREAD

        traced: Callable[[Arguments], TracedFunction] = functools.partial(
            trace, self.__wrapped__, args, kwargs, self._static, generator, local=self._local
        )
        if self._ranks is not None:
            traced = using_ranks(self._ranks)(traced)
        if not arguments.sizes:
            return arguments, traced(arguments)

        def assumed(given: Arguments) -> TracedFunction:
            with assuming(given.assumptions):
                return traced(given)

        return traced_with_relations(arguments, assumed, lambda: position_of_function(self.__wrapped__))

    def _program(self, traced: TracedFunction, given: Sequence[tuple[str, Any]] = ()) -> Program:
        from staged.call.program import Program
        from staged.system import target as machine_of

        machine = machine_of(self._target or "native", self._contract, self._ranks)
        key = ProgramKey(traced.function, machine, self.options)
        return Program(
            traced,
            self.__wrapped__,
            self._static,
            machine,
            self.options,
            self._check_nan,
            self._kept.loaded,
            key,
            self._target,
            given,
            self._ranks,
        )

    def __reduce__(self) -> str | tuple[Any, ...]:
        """The function's name in its module, for `copy` and `pickle`, which treat it as a plain function.

        A bound method is bound again, since a copy has another object.
        """
        if isinstance(self.__wrapped__, MethodType):
            return StagedFunction, (
                self.__wrapped__, self._static, self._target, self._seed, self._check_nan, self._contract,
                None, self._ranks, self._local,
            )  # fmt: skip
        return str(getattr(self, "__qualname__", ""))

    def __repr__(self) -> str:
        return f"<staged function `{getattr(self, '__name__', '?')}`>"


def _too_deep(error: RecursionError) -> ProgramRecursionError:
    return ProgramRecursionError(
        "the recursion is deeper than Python allows in eager mode",
        where=position_of_recursion(error),
        hint="the compiled program goes much deeper; in eager mode raise the limit with `sys.setrecursionlimit`",
    )


@overload
def function(function: Callable[P, R], /) -> StagedFunction[P, R]: ...


@overload
def function(
    *,
    static: Collection[str] = (),
    target: str | None = None,
    seed: int | None = None,
    check_nan: bool = False,
    contract: bool | None = None,
    dims: Mapping[str, Any] | Literal["static"] | None = None,
    ranks: int | None = None,
    local: Collection[str] | str = (),
) -> Callable[[Callable[P, R]], StagedFunction[P, R]]: ...


def function(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static: Collection[str] = (),
    target: str | None = None,
    seed: int | None = None,
    check_nan: bool = False,
    contract: bool | None = None,
    dims: Mapping[str, Any] | Literal["static"] | None = None,
    ranks: int | None = None,
    local: Collection[str] | str = (),
) -> Any:
    """Turn a Python function into a staged one: `@staged.function`, or `@staged.function(static=("name",))`.

    `static` names arguments whose values are known while staging (sizes, flags); a single name may be given as a
    string. `target` names the machine that the program is for: 'native', 'portable', 'x86-64-v3', 'x86-64-v4', 'c99'.
    Without one it is this machine, and an exported program adapts to the processor.
    `dims` declares sizes of arguments that differ from call to call, by the name of the argument. One program serves
    all sizes of `dims={"x": ("N <= 512", None, "2 * N")}`. An axis has a name with or without a bound, an expression of
    names, a number, or None for a size that is fixed while staging. `x: st.Array["N <= 512", 784]` does the same.
    Other axes are detected: from the third size on, one program serves all sizes. `dims="static"` turns this off.
    With `seed` the function has its own generator of random numbers, which continues from call to call; without, it
    uses the generator of the calling thread. With `check_nan` a NaN or infinity in an array of the program is a
    ProgramNanError. It names the line of the first one, which a second run in eager mode finds.

    Products and sums are rounded one by one, as in NumPy; only matmuls, convolutions and reductions contract
    `a * b + c` to one instruction. With `contract=True` all arithmetic may do so: a little faster, and identities such
    as `x * y - y * x == 0` need not hold. The default is False, or the value of the environment variable
    `STAGED_CONTRACT`, 0 or 1.

    `ranks` is the number of MPI ranks that run the program. Without it the program is for the ranks of this job, and
    an exported program is for any number. `ranks` is needed to export a program whose sizes depend on the number of
    ranks. A run with another number of ranks is a RankError.

    `local` names arguments whose arrays may differ between the ranks, such as the rows of each rank. Other arguments
    are equal on all ranks. A derivative or a Variable that would differ between ranks by mistake is an error.
    """
    static = (static,) if isinstance(static, str) else static
    if function is None:
        return lambda real: StagedFunction(real, static, target, seed, check_nan, contract, dims, ranks, local)
    return StagedFunction(function, static, target, seed, check_nan, contract, dims, ranks, local)
