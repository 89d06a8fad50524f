"""The contract of a back end: what the pipeline asks of it, and what it returns.

A back end writes programs for some kinds of devices. It knows the IR and the ops, and neither the passes nor the
runtime: what it returns is an `Artifact`, whose language names what compiles and loads it (`runtime/languages.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from staged.base.artifact import Artifact
from staged.errors import UnsupportedError
from staged.ir.buffers import Called, Plan, Sharing
from staged.ir.machine import Machine
from staged.ir.nodes import Block, End, Function, Op
from staged.ir.options import DeviceOptions
from staged.ir.transfers import Transfer
from staged.ops.custom import CFunction
from staged.ops.library_calls import FindWay

Aliases = Callable[[Op], Iterable[tuple[int, int]]]
"""The (result, operand) pairs of a step that may share a buffer: every element is read before it is written."""
Planner = Callable[[Function, Aliases, Called | None, Sharing | None], Plan]
"""Makes the memory plan of a function, once a back end knows its kernels; `Called` says how the program calls it, None
of the entry; `Sharing` which loops threads may share, None for none.
"""


class Kernel(Protocol):
    """A function of a program that makes the results of one step, as people see it."""

    @property
    def name(self) -> str:
        """Its name in the text."""

    @property
    def how(self) -> str:
        """The way a device runs it; empty for one of the host's."""


@dataclass(frozen=True)
class Emitted:
    """A written program."""

    artifact: Artifact
    plan: Plan
    """The memory plan, for `program.memory`."""
    kernels: int = 0
    """The number of its functions that are kernels."""
    kernel_of: Mapping[Op, Kernel] = field(default_factory=dict)
    """By op that is one step, its kernel."""
    function: Function | None = None
    """The function that the program is generated from, if the back end has changed it."""
    own_copies: Mapping[Op | End | None, Sequence[Transfer]] = field(default_factory=dict)
    """By op or end of that function, the copies that the program adds there; by None, the copies of the first call."""


class BackEnd(Protocol):
    """A back end: a class that derives from this one, and overrides what its programs need."""

    name: str
    devices: tuple[str, ...]
    """The kinds of devices whose ops it takes; 'cpu' is the host."""
    takes_cuda_arrays: bool = False
    """True if its programs take inputs that are in CUDA's memory, where `st.loader` copies batches ahead of them."""
    takes_cuda_forms: bool = False
    """True if its programs call the forms for CUDA of `st.custom_op`; then `custom_source` returns source code."""
    has_families: bool = False
    """True if it supports Variables that represent several (`VariableRef.members`): equal layers become loops."""
    has_ranks: bool = False
    """True if its programs exchange arrays with other MPI ranks."""
    variants: tuple[str, ...] = ()
    """Names of machines: an exported folder has the program for each of these too,
    and chooses among them when it runs."""

    def emit(self, function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
        """Write the program of a placed and fused function; with `check_nan` it stops at the first NaN or infinity.

        Raises: UnsupportedError for an op that the back end cannot write, with its Python line.
        """
        ...

    def takes_epilogue(self, op: Op, body: Block) -> bool:
        """Return whether a contraction and what `body` does to its result are written in one piece."""
        return True

    def library_ways(self, function: Function, options: DeviceOptions, machine: Machine) -> FindWay | None:
        """The libraries' ways for composites of a function, with the libraries of the host as `machine` has them.

        None for a back end that calls no libraries.
        """
        return None

    def custom_source(self, function: CFunction) -> str:
        """Return the source code of a user's kernel (`st.custom_op`), which compiles alone."""
        return ""

    def export(self, artifact: Artifact, variants: Mapping[str, Artifact], beside: Mapping[str, str]) -> dict[str, str]:
        """The files of a folder that builds by itself, by path.

        `variants` are the program for the machines of `variants`, or empty; `beside` are what `Language.files_beside`
        adds.
        """
        raise UnsupportedError(f"programs of the back end {self.name!r} cannot be exported")
