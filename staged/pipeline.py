"""From traced IR to text: the passes in order, once, with the reasons where the order matters."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import staged.backends as backends_package
from staged.autodiff.fulfil import fulfil_transforms
from staged.batching.vmap import expand_vmap
from staged.depth import goes_deep
from staged.errors import UnsupportedError
from staged.ir.functions import every_function, map_functions
from staged.ir.machine import Machine
from staged.ir.nodes import Function, walk_ops
from staged.ir.verifier import verify_if_asked
from staged.kernels.fuse import fuse
from staged.kernels.groups import FusionLog
from staged.passes.call_libraries import call_libraries
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.defer_products import defer_products
from staged.passes.inline_calls import inline_calls
from staged.passes.inline_checkpoints import inline_checkpoints
from staged.passes.inline_composites import inline_composites
from staged.passes.memory.plan import plan_buffers
from staged.passes.narrow_functions import narrow_functions
from staged.passes.normalize_exits import normalize_exits
from staged.passes.outline_functions import outline_functions
from staged.passes.placement.place import place
from staged.passes.separate_accumulators import separate_accumulators
from staged.passes.simplify import simplify, simplify_before_transforms
from staged.passes.transposes import fold_transpose_of_matmul

Pass = Callable[[Function], Function]


def each(run: Pass) -> Pass:
    """A pass over one function as a pass over a program: over every function in it."""
    return lambda program: map_functions(program, run)


def with_library_calls(program: Function) -> Function:
    """`call_libraries` with what the program's back end has."""
    library_ways = backend_for(program).library_ways
    if library_ways is None:
        return program
    return map_functions(program, lambda function: call_libraries(function, library_ways(function, program.options)))


PASSES: tuple[tuple[str, Pass], ...] = (
    # First: what was recorded alike is still alike, and every later pass has less to do.
    ("outline functions", outline_functions),
    # Before autodiff: reverse mode runs a block backwards, which has no way out of its middle.
    ("normalize exits", normalize_exits),
    # What folds away, or is decided while staging, needs no derivative and leaves no residuals.
    ("simplify before autodiff", simplify_before_transforms),
    # Before autodiff: each value that reaches a function twice would have two cotangents.
    ("narrow functions before autodiff", narrow_functions),
    # Innermost transforms first: a gradient of a gradient differentiates plain IR.
    ("fulfil transforms", lambda program: fulfil_transforms(program, {"vmap": expand_vmap})),
    # After autodiff, which knows no such calls; while composites are one op.
    ("call libraries", with_library_calls),
    # After autodiff: composites keep their own, better derivative until here.
    ("inline composites", each(inline_composites)),
    # Before fusion: what vjp rules ask for in vain must not become a kernel, equal ops must be one op.
    ("simplify", each(simplify)),
    # After equal ops are one op: what a checkpoint makes again is not what was made before.
    ("inline checkpoints", each(inline_checkpoints)),
    # After `simplify` has brought transposes next to the products they belong to.
    ("fold transpose of matmul", each(fold_transpose_of_matmul)),
    ("eliminate dead code", each(eliminate_dead_code)),
    # What only dead code read of a function's arguments is not passed; what only an unread result needed is dead then.
    (
        "narrow functions",
        lambda program: each(eliminate_dead_code)(narrow_functions(program)) if program.functions else program,
    ),
    # Last of what changes sums: products of vectors, by now next to what they are added to.
    ("defer products", defer_products),
    # After the last pass that makes equal ops one: these are equal on purpose.
    ("separate accumulators", lambda program: each(eliminate_dead_code)(each(separate_accumulators)(program))),
    # Before placement: then only functions that must be one are placed as such.
    ("inline calls", inline_calls),
    # Before fusion: a kernel runs on one device; after dead code: nothing is copied for nobody.
    ("place", place),
)


@dataclass
class Built:
    """What the pipeline makes of a traced function."""

    emitted: Any
    lowered: Function
    """The IR after all passes (`program.ir` shows the traced one)."""
    seconds: dict[str, float] = field(default_factory=dict)


class Watch:
    """Is told what the pipeline does, for those who ask."""

    def __init__(self, log: FusionLog) -> None:
        self.log = log
        """What fusion decides."""

    def after(self, name: str, function: Function) -> None:
        """Called after each pass, with the program as it then is."""


@cache
def backends() -> dict[str, Any]:
    """Every back end by name: a package under `staged/backends/` joins by having a `backend` module."""
    found = {}
    for module in pkgutil.iter_modules(backends_package.__path__):
        if module.ispkg:
            try:
                backend = importlib.import_module(f"{backends_package.__name__}.{module.name}.backend")
            except ModuleNotFoundError as error:
                if error.name != f"{backends_package.__name__}.{module.name}.backend":
                    raise
                continue
            found[backend.NAME] = backend
    return found


def backend_for(function: Function) -> Any:
    """The back end that takes all devices which the function uses."""
    devices = {op.device.kind for each in every_function(function) for op in walk_ops(each.block)} or {"cpu"}
    fitting = [backend for backend in backends().values() if devices <= set(backend.DEVICES)]
    if not fitting:
        raise UnsupportedError(f"no back end runs on {', '.join(sorted(devices))}")
    # The one with the fewest other devices: plain C where nothing else is asked for.
    return min(fitting, key=lambda backend: (len(backend.DEVICES), backend.NAME))


@goes_deep
def lower(
    function: Function, machine: Machine, seconds: dict[str, float] | None = None, watch: Watch | None = None
) -> Function:
    """Run all passes and fuse. Under `STAGED_VERIFY=1` the verifier runs after each."""
    seconds = {} if seconds is None else seconds
    verify_if_asked(function, "tracing")

    def run(name: str, run_pass: Pass) -> None:
        nonlocal function
        begin = time.perf_counter()
        function = run_pass(function)
        verify_if_asked(function, name)
        seconds[name] = time.perf_counter() - begin
        if watch is not None:
            watch.after(name, function)

    for name, run_pass in PASSES:
        run(name, run_pass)
    # By now every op is on its device; a back end that calls libraries says which epilogues they have.
    takes_epilogue = backend_for(function).takes_epilogue
    log = None if watch is None else watch.log
    run("fuse", each(lambda f: fuse(f, machine, takes_epilogue, log)))
    return function


@goes_deep
def build(function: Function, machine: Machine, check_nan: bool = False, watch: Watch | None = None) -> Built:
    """Text for a traced function on a machine; with `check_nan` the program stops at the first NaN or infinity."""
    seconds: dict[str, float] = {}
    lowered = lower(function, machine, seconds, watch)
    begin = time.perf_counter()
    emitted = backend_for(lowered).emit(lowered, machine, plan_buffers, check_nan)
    seconds["emit"] = time.perf_counter() - begin
    return Built(emitted, lowered, seconds)
