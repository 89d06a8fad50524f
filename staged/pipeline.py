"""From traced IR to text: the passes in order, once, with the reasons where the order matters."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from staged.autodiff.fulfil import fulfil_transforms
from staged.backends.contract import BackEnd, Emitted
from staged.backends.registry import choose
from staged.base.depth import goes_deep
from staged.base.garbage import RareCollections
from staged.batching.vmap import expand_vmap
from staged.errors import UnsupportedError
from staged.ir.functions import every_function, map_functions
from staged.ir.machine import PORTABLE, Machine
from staged.ir.nodes import Function, walk_ops
from staged.ir.ranks import collectives, has_ranks
from staged.ir.structure import COPY, VMAP
from staged.ir.transfers import Transfer
from staged.ir.types import CPU
from staged.ir.verifier import verify_if_asked
from staged.kernels.fuse import fuse
from staged.kernels.fusion_log import FusionLog
from staged.passes.call_libraries import call_libraries
from staged.passes.dead_code import eliminate_dead_code
from staged.passes.dead_writes import eliminate_dead_writes
from staged.passes.defer_products import defer_products
from staged.passes.halves_in_products import multiply_halves
from staged.passes.inline_blocks import inline_checkpoints, inline_composites
from staged.passes.inline_calls import inline_calls
from staged.passes.masks_of_pieces import read_masks_of_pieces
from staged.passes.memory.plan import plan_buffers
from staged.passes.merge_loops import merge_loops
from staged.passes.narrow_functions import narrow_functions
from staged.passes.normalize_exits import normalize_exits
from staged.passes.outline_functions import outline_functions
from staged.passes.placement.place import place, transfers
from staged.passes.ranks.buckets import bucket_reductions
from staged.passes.ranks.edges import local_edges as local_edges
from staged.passes.ranks.vary import check_ranks, lower_ranks
from staged.passes.rolling.roll import roll
from staged.passes.rolling.updates import update_in_loops
from staged.passes.separate_accumulators import separate_accumulators
from staged.passes.simplify import simplify, simplify_before_transforms
from staged.passes.split_complex import split_complex
from staged.passes.transposes import fold_transpose_of_matmul

Pass = Callable[[Function], Function]


def each(run: Pass) -> Pass:
    """A pass over one function as a pass over a program: over every function in it."""
    return lambda program: map_functions(program, run)


def with_layers_rolled(program: Function) -> Function:
    """Apply `roll` if the back end of the program supports families."""
    return roll(program) if back_end_of(program).has_families else program


def with_library_calls(program: Function, machine: Machine = PORTABLE) -> Function:
    """Apply `call_libraries` with the libraries of the program's back end, and those of the machine."""
    back_end = back_end_of(program)
    machine = for_host(machine, back_end)

    def with_calls(function: Function) -> Function:
        alive = eliminate_dead_code(function)  # a result that dead code alone reads need not be a call's
        ways = back_end.library_ways(alive, program.options, machine)
        return function if ways is None else call_libraries(alive, ways)

    return map_functions(program, with_calls)


def with_halves_multiplied(program: Function, machine: Machine = PORTABLE) -> Function:
    """Apply `multiply_halves` for the machine, as the program's back end may use it."""
    machine = for_host(machine, back_end_of(program))

    def with_halves(function: Function) -> Function:
        made = multiply_halves(function, machine)
        return function if made is function else eliminate_dead_code(made)

    return map_functions(program, with_halves)


def with_ranks_checked(program: Function, machine: Machine = PORTABLE) -> Function:
    """Apply `check_ranks` for the ranks of the machine."""
    return check_ranks(program, machine)


def with_buckets(program: Function, machine: Machine = PORTABLE) -> Function:
    """Apply `bucket_reductions` as the machine's network needs it."""
    return bucket_reductions(program, machine.bucket_bytes, machine.overlaps) if has_ranks(program) else program


FOR_A_MACHINE = (with_library_calls, with_halves_multiplied, with_ranks_checked, with_buckets)
"""Passes that depend on the host: on its libraries, its vectors, the number of ranks."""
PASSES: tuple[tuple[str, Pass], ...] = (
    # First: every later pass then sees one layer.
    ("roll", with_layers_rolled),
    # Before functions are outlined: a helper may be called with replicated and with local values.
    ("check ranks", with_ranks_checked),
    # What was recorded alike is still alike, and every later pass has less to do.
    ("outline functions", outline_functions),
    # Before autodiff: reverse mode runs a block backwards, which has no way out of its middle.
    ("normalize exits", normalize_exits),
    # What folds away, or is decided while staging, needs no derivative and leaves no residuals.
    ("simplify before autodiff", simplify_before_transforms),
    # Before autodiff: each value that reaches a function twice would have two cotangents.
    ("narrow functions before autodiff", narrow_functions),
    # Innermost transforms first: a gradient of a gradient differentiates plain IR.
    ("fulfil transforms", lambda program: fulfil_transforms(program, {VMAP: expand_vmap})),
    # After autodiff, which alone needs to know where values become local.
    ("lower ranks", lower_ranks),
    # After autodiff, which knows no such calls; while composites are one op.
    ("call libraries", with_library_calls),
    # After autodiff: composites keep their own, better derivative until here.
    ("inline composites", each(inline_composites)),
    # After the last pass that writes complex ops, before `simplify`, which knows no complex numbers.
    ("split complex", split_complex),
    # Before fusion: what vjp rules ask for in vain must not become a kernel, equal ops must be one op.
    ("simplify", each(simplify)),
    # After equal ops are merged: what loops start from is then one value. Before what is computed again on purpose.
    ("merge loops", each(merge_loops)),
    # After equal ops are merged: ops that a checkpoint recomputes must not be merged with the first ones.
    ("inline checkpoints", each(inline_checkpoints)),
    # After `simplify` has brought transposes next to the products they belong to.
    ("fold transpose of matmul", each(fold_transpose_of_matmul)),
    # After `simplify` has merged equal masks, before dead code: the first comparisons are dead.
    ("read masks of pieces", each(read_masks_of_pieces)),
    # After `simplify` has replaced reads of numbers: the writes that only they saw are dead.
    ("eliminate dead writes", each(eliminate_dead_writes)),
    ("eliminate dead code", each(eliminate_dead_code)),
    # While gradients are plain ops: an update may become a part of the product that computes its gradient.
    ("update in loops", lambda program: each(eliminate_dead_code)(each(update_in_loops)(program))),
    # What only dead code read of a function's arguments is not passed; what only an unread result needed is dead then.
    (
        "narrow functions",
        lambda program: each(eliminate_dead_code)(narrow_functions(program)) if program.functions else program,
    ),
    # After dead code: a gradient that nobody uses is not sent. Before fusion: the update comes after the message.
    ("bucket reductions", with_buckets),
    # Last of what changes sums: products of vectors, by now next to what they are added to.
    ("defer products", defer_products),
    # After the last pass that makes equal ops one: these are equal on purpose.
    ("separate accumulators", lambda program: each(eliminate_dead_code)(each(separate_accumulators)(program))),
    # Before placement: then only functions that must be one are placed as such.
    ("inline calls", inline_calls),
    # Before fusion: a kernel runs on one device; after dead code elimination: unused values are not copied.
    ("place", place),
    # After placement: devices have their own products. The casts that are left over are dead.
    ("multiply halves", with_halves_multiplied),
)


@dataclass
class Built:
    """The results of the pipeline for one traced function."""

    back_end: BackEnd
    emitted: Emitted
    lowered: Function
    """The IR after all passes (`program.ir` shows the traced one)."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The copies between devices, the back end's own included."""
        return transfers(self.emitted.function or self.lowered, self.emitted.own_copies)


class Watch:
    """A receiver of the pipeline's intermediate results, for `explain`."""

    def __init__(self, log: FusionLog) -> None:
        self.log = log
        """Decisions of fusion."""

    def after(self, name: str, function: Function) -> None:
        """Called after each pass, with the program as it then is."""


def back_end_of(function: Function) -> BackEnd:
    """The back end that writes a program: the one that its regions name, else one that has all devices of its ops.

    The device that an op copies from is one of them, and so are the devices of results.
    """
    kinds = {CPU.kind, *(device.kind for device in function.result_devices)}
    for op in (op for each in every_function(function) for op in walk_ops(each.block)):
        kinds.add(op.device.kind)
        if op.declared is COPY:
            kinds.add(op.attrs["source"].kind)
    return choose(kinds, function.options.using)


def check_has_mpi(function: Function, machine: Machine, back_end: BackEnd) -> None:
    """Raise UnsupportedError if a program of several ranks has a target without MPI."""
    op = next(collectives(function), None)
    if op is None or (back_end.has_ranks and not machine.is_iso_c):
        return
    what = "the target 'c99'" if machine.is_iso_c else f"the back end {back_end.name!r}"
    raise UnsupportedError(
        f"`st.{op.name}` on several ranks needs MPI, and {what} does not support it",
        where=op.where,
        hint="remove the target or the region, or use `@st.function(ranks=1)` for a program of one rank",
    )


def for_host(machine: Machine, back_end: BackEnd) -> Machine:
    """The machine as a back end may use it: programs with a device are linked to its libraries, and to no BLAS."""
    return machine if back_end.devices == (CPU.kind,) else replace(machine, blas=None)


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
        run(name, partial(run_pass, machine=machine) if run_pass in FOR_A_MACHINE else run_pass)
    # By now every op is on its device; a back end that calls libraries says which epilogues they have.
    back_end = back_end_of(function)
    takes_epilogue, machine = back_end.takes_epilogue, for_host(machine, back_end)
    log = None if watch is None else watch.log
    run("fuse", each(lambda f: fuse(f, machine, takes_epilogue, log)))
    return function


@goes_deep
@RareCollections()
def build(function: Function, machine: Machine, check_nan: bool = False, watch: Watch | None = None) -> Built:
    """Text for a traced function on a machine; with `check_nan` the program stops at the first NaN or infinity."""
    seconds: dict[str, float] = {}
    lowered = lower(function, machine, seconds, watch)
    begin = time.perf_counter()
    back_end = back_end_of(lowered)
    if machine.is_iso_c and back_end.devices != (CPU.kind,):
        raise UnsupportedError(
            f"programs of the back end {back_end.name!r} are no plain C: the target 'c99' is for the CPU alone",
            where=next((op.where for op in walk_ops(lowered.block) if op.device != CPU), lowered.where),
        )
    check_has_mpi(lowered, machine, back_end)
    emitted = back_end.emit(lowered, for_host(machine, back_end), plan_buffers, check_nan)
    seconds["emit"] = time.perf_counter() - begin
    return Built(back_end, emitted, lowered, seconds)
