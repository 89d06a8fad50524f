"""Tracing a function: from Python and the types of its arguments to one IR function."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

import numpy as np

from staged.base.depth import goes_deep
from staged.base.garbage import RareCollections
from staged.call.guards.arguments import Argument, SizeOf, sizes_of
from staged.call.guards.expected import is_value
from staged.call.guards.reads import Reads
from staged.errors import ShapeError, StagedError, StagingError, article
from staged.frontend import constructs  # noqa: F401  (they register themselves)
from staged.frontend.calls.arguments import Arguments, flatten_arguments
from staged.frontend.calls.call import call
from staged.frontend.calls.call_arguments import flatten_call
from staged.frontend.calls.open_calls import Functions
from staged.frontend.calls.recursion import has_body
from staged.frontend.calls.staged_calls import activate
from staged.frontend.constructs.loops import Learned
from staged.frontend.devices.device_options import RegionOptions, device_options, takes_cuda_arrays
from staged.frontend.devices.resident import (
    DeviceArray,
    ambient_device,
    ambient_options,
    ambient_region,
    device_of,
    note_staged_call,
)
from staged.frontend.program_body import traced_as_program
from staged.frontend.program_functions import finish_functions, reachable
from staged.frontend.result_names import result_names
from staged.frontend.syntax.sources import remember_modules
from staged.frontend.trace.context import RandomNumbers, TraceContext, note_made
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.notes import Notes
from staged.frontend.trace.signals import Body
from staged.frontend.trace.strict import Named, Strict
from staged.frontend.values import trees
from staged.frontend.values.changes import settle_changes, take_back_changes
from staged.frontend.values.dimensions import bound_here
from staged.frontend.values.generator import OF_THREAD, Generator, draw
from staged.frontend.values.join import Static, Template, template_of
from staged.frontend.values.size_numbers import check_numbers
from staged.frontend.values.trees import mutable_nodes, note_tree
from staged.frontend.values.variable import Variable
from staged.ir.builder import Builder
from staged.ir.functions import every_function
from staged.ir.names import as_name
from staged.ir.nodes import Block, Function, Value, VariableRef, walk_blocks
from staged.ir.sizes import Dim
from staged.ir.types import CPU, TensorType, dims_of
from staged.ir.verifier import verify_if_asked
from staged.ops.array import StagedArray
from staged.ops.context import use_context
from staged.ops.dimension import COUNT
from staged.source import Position, position_of_function, position_of_recursion, rooted, roots_positions

_ROOT = re.compile(r"[.\[]")
"""The end of a parameter's name in a path."""


@dataclass(frozen=True)
class TracedFunction:
    """The result of tracing: the IR, and how to call it.

    The program's parameters are one per element of `arguments`, then one per element of `hidden` (arrays of Python that
    the function closes over, by reference; a region of plain Python may keep one on a device). `variables` are the
    outer Variables, in the order in which `function.variables` lists the outer references.
    """

    function: Function
    arguments: tuple[Argument, ...]
    hidden: tuple[Any, ...]
    variables: tuple[Variable, ...]
    result: Template
    notes: tuple[str, ...]
    reads: Reads
    """The reads of the trace from outside."""
    sizes: tuple[SizeOf, ...] = ()
    """The dimensions of the arguments, which are further parameters after the hidden ones."""
    copied: frozenset[int] = frozenset()
    """The leaves of the result that the trace has made, and the caller may change: each call returns copies of them."""

    def inputs(self, values: Sequence[Any]) -> list[Any]:
        """One value per parameter of the program, given those of the arguments."""
        return [*values, *self.hidden, *self.sizes_of(values).values()]

    def with_local(self, names: Collection[str]) -> TracedFunction:
        """The same with these arguments declared local."""
        local = [number for number, argument in enumerate(self.arguments) if argument.name in names]
        return replace(self, function=self.function.replace(local_params=local))

    def sizes_of(self, values: Sequence[Any]) -> dict[Dim, int]:
        """The dimensions of the arguments, given one value per argument."""
        return sizes_of(self.sizes, lambda number: np.shape(values[number]))

    def rebuild(self, outputs: Any) -> Any:
        """The function's result as the user wrote it, from one array per result of the program."""
        return self.result.rebuild(list(outputs))


@goes_deep
@RareCollections()
def trace(
    function: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    static: Collection[str] = (),
    generator: Generator = OF_THREAD,
    arguments: Arguments | None = None,
    local: Collection[str] = (),
) -> TracedFunction:
    """Record `function(*args, **kwargs)` as IR.

    Arrays and numbers are staged; the rest, and what `static` names, is known while staging. Random numbers come
    from `generator`. `arguments` are the flattened arguments where the caller has them already. The arguments that
    `local` names may differ between MPI ranks.

    Raises: the errors of `staged.errors` for what cannot be staged, with the user's line.
    """
    arguments = arguments or flatten_arguments(function, args, kwargs or {}, static)
    note_staged_call()
    remember_modules()
    read_later: set[tuple[object, ...]] = set()
    while True:
        made = _trace_once(function, arguments, static, generator, read_later)
        if isinstance(made, TracedFunction):
            return made.with_local(local) if local else made
        assert made not in read_later, "tracing the program does not settle"
        read_later.add(made)


@roots_positions
def _trace_once(
    function: Callable[..., Any],
    arguments: Arguments,
    static: Collection[str],
    generator: Generator,
    read_later: set[tuple[object, ...]],
) -> TracedFunction | tuple[object, ...]:
    """Record the function, given what is known of names that loops bind and that are read after them; or another such
    name.
    """
    name = getattr(function, "__name__", type(function).__name__)
    builder = Builder()
    builder.device = ambient_device()
    context = TraceContext(name, builder)
    context.put(RegionOptions(ambient_options()))
    context.put(RandomNumbers(generator, draw))
    if read_later:
        context.of(Learned).read_later = read_later
    params = [Value(argument.type, as_name(argument.path)) for argument in arguments.staged]
    where = position_of_function(function)
    with use_context(context), rooted(where):
        block = context.open_block()
        for param in params:
            context.block_of[param] = block
        handles = [StagedArray(param, context) for param in params]
        roots = [_ROOT.split(argument.path, maxsplit=1)[0] for argument in arguments.staged]
        context.arguments = dict(zip(params, roots, strict=True))
        sizes = {size.dim: Value(COUNT, as_name(size.dim.name)) for size in arguments.sizes}
        context.block_of |= dict.fromkeys(sizes.values(), block)
        region = ambient_region()
        if region is not None:
            given = zip(handles, arguments.staged, strict=True)
            named = [handle for handle, argument in given if region.names(argument.value)]
            inputs = Strict(region.device, [*named, *region.named])
            context.put(Named(inputs))
            context.strict = inputs if region.strict else None
        with context.entered(block):
            for dim, size in sizes.items():
                bound_here(context, dim, StagedArray(size, context))
            with context.attempt([]) as context.program:
                try:
                    template = _record(context, function, arguments, handles, static)
                except Exception as error:
                    if arguments.assumptions is not None:
                        take_back_changes(context)
                    if isinstance(error, RecursionError):
                        raise endless(error) from None
                    raise
            if context.program.is_taken_back:
                found: tuple[object, ...] = context.program.reason
                return found
    settle_changes(context, where)
    copied = _settle_result(context, template)
    ir, hidden = _assemble(context, name, block.block, params, sizes, arguments, template, function, where)
    if arguments.assumptions is not None:
        check_numbers(ir, arguments.assumptions)
    outer = [ref.identity for ref in ir.variables if ref.outer]
    verify_if_asked(ir, "tracing")
    return TracedFunction(
        ir,
        arguments.staged,
        tuple(hidden),
        tuple(variable for variable in outer if isinstance(variable, Variable)),
        template,
        tuple(context.of(Notes).texts),
        context.reads,
        arguments.sizes,
        copied,
    )


def endless(error: RecursionError) -> Exception:
    """The meaning of Python's RecursionError while staging; one that the user raised is unchanged."""
    if isinstance(error, StagedError) or not str(error).startswith("maximum recursion depth"):
        return error
    where = position_of_recursion(error)
    name = f"`{where.function}`" if where else "a function"
    return StagingError(
        f"{name} calls itself without end while staging",
        where=where,
        hint="decorate the function with `@st.function` (a lambda as a `def`): under a staged condition it then "
        "becomes a "
        "function of the program",
    )


def _record(
    context: TraceContext,
    function: Callable[..., Any],
    arguments: Arguments,
    handles: list[StagedArray],
    static: Collection[str],
) -> Template:
    """Run the function on the handles and end the open block with its results."""
    args, kwargs = arguments.rebuild(handles)
    note_tree((args, kwargs))
    for leaf in [leaf.given for leaf in arguments.leaves if not isinstance(leaf, Argument)]:
        if is_value(leaf):  # what it holds is looked at as it is passed
            note_made(leaf)
            continue
        context.given.update((id(node), node) for node in mutable_nodes(leaf))
        context.reads.given(leaf)
    finished: list[Template] = []

    def in_place() -> Any:
        if not has_body(function):
            # A partial, a callable object: what it calls is traced inside.
            return call(function, *args, **kwargs)

        def body_of_program(scope: Locals, body: Body) -> None:
            target = traced_as_program(context, scope, body, f"`{scope._staged_function}`")
            finished.append(target.result if target.result is not None else template_of(None))

        context.next_run = body_of_program
        return call(function, *args, **kwargs)

    value = activate(context, function, flatten_call(function, args, kwargs, static), in_place)
    if finished:
        return finished[0]
    # Its value is that of a call: of what a callable object calls, or of the function itself where it is recursive.
    leaves, _ = trees.flatten(value)
    context.builder.end("return", [context.value_of(leaf) for leaf in leaves if isinstance(leaf, StagedArray)])
    return template_of(value)


def _assemble(
    context: TraceContext,
    name: str,
    block: Block,
    params: list[Value],
    sizes: Mapping[Dim, Value],
    arguments: Arguments,
    template: Template,
    python: Callable[..., Any],
    where: Position | None,
) -> tuple[Function, list[Any]]:
    """The function: hidden inputs that are used become parameters."""
    used: set[Value] = set()
    if context.hidden:
        for inner in walk_blocks(block):
            used.update(inner.end.operands)
            used.update([operand for op in inner.ops for operand in op.operands])
    hidden = [(array, value) for array, value in context.hidden.values() if value in used]
    all_params = [*params, *(value for _, value in hidden), *sizes.values()]
    known = context.of(Functions).by_name
    functions = reachable(known, block) if known else {}
    touched = _touched(context, [block, *(called.block for called in functions.values())])
    body = Block(all_params, block.ops, block.end)
    _name_variables(touched)
    inputs = [*(argument.path for argument in arguments.staged), *(value.hint for _, value in hidden), *map(str, sizes)]
    taken = {*inputs, *(variable.name for variable in touched)}
    paths = result_names(python, trees.paths(template.spec, "result"), taken)
    _refuse_sizes(block, template, paths, sizes)
    function = Function(
        name,
        body,
        variables=touched,
        param_paths=inputs,
        result_paths=[path for path, leaf in zip(paths, template.leaves, strict=True) if isinstance(leaf, TensorType)],
        where=where,
    )
    function = finish_functions(function, functions)
    blocks = [inner for each in every_function(function) for inner in walk_blocks(each.block)]
    if [op for inner in blocks for op in inner.ops if op.device is not CPU and op.device != CPU]:
        given = [*(argument.value for argument in arguments.staged), *(array for array, _ in hidden)]
        devices = [*(device_of(value) for value in given), *(CPU for _ in sizes)]
        if any(device != CPU for device in devices):
            function = function.replace(param_devices=devices)
        options = device_options(context.of(RegionOptions).said)
        keeps = takes_cuda_arrays(ambient_device(), options)
        function = function.replace(options=replace(options, keeps_results=keeps))
    return function, [array if isinstance(array, DeviceArray) else np.asarray(array) for array, _ in hidden]


def _settle_result(context: TraceContext, template: Template) -> frozenset[int]:
    """Find what the function makes while staging and returns, which is another one in each call: the leaves to copy.
    Other objects of this kind are a reason to trace at every call.
    """
    copied = set()
    for number, leaf in enumerate(template.leaves):
        value = leaf.value if isinstance(leaf, Static) else None
        if isinstance(value, np.ndarray):
            is_own = context.reads.older(value) is None
        else:
            is_own = context.is_made(value) and not isinstance(value, np.generic | FunctionType | type)
        if is_own and isinstance(value, np.ndarray | set | bytearray):
            copied.add(number)
        elif is_own:
            context.reads.reason(f"the result has {article(type(value).__name__)} that is made while staging")
    return frozenset(copied)


def _refuse_sizes(block: Block, template: Template, paths: Sequence[str], sizes: Collection[Dim]) -> None:
    """The caller gives a result its place before the program runs: its size must be known then."""
    for path, leaf in zip(paths, template.leaves, strict=True):
        if isinstance(leaf, TensorType) and not set(dims_of(leaf)).issubset(sizes):
            ends = [inner.end for inner in walk_blocks(block) if inner.end.kind == "return"]
            raise ShapeError(
                f"`{path}` is {leaf}: the size of a result must be known before the program runs",
                where=ends[0].where if ends else None,
                hint="write it into an array of a fixed size and return that: `out = st.zeros(...); out[:n] = x`",
            )


def _touched(context: TraceContext, blocks: list[Block]) -> list[VariableRef]:
    """The Variables that the program reads or writes, in order of first use."""
    ops = [op for block in blocks for inner in walk_blocks(block) for op in inner.ops if op.effects]
    found = {effect.target for op in ops for effect in op.effects}
    return [ref for ref in context.variables if ref in found]


def _name_variables(refs: list[VariableRef]) -> None:
    """Different names for different Variables, so that printed programs tell them apart."""
    used: dict[str, int] = {}
    for ref in refs:
        base = getattr(ref.identity, "name", "") or ref.name
        count = used[base] = used.get(base, 0) + 1
        ref.name = base if count == 1 else f"{base}_{count}"
