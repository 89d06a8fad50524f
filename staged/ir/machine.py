"""The properties of a machine that schedules depend on, as data.

Sizes are in bytes. The presets pin a target by name, so that the same program gives the same text everywhere;
`staged.runtime.machine` fills one in for the machine it runs on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Blas:
    """A library with the C interface of BLAS and the Fortran one of LAPACK.

    `link` are the linker's flags for it; `symbols` has `{}` in the place of a function's name; `lapack` are further
    flags where LAPACK is a library of its own.
    """

    link: tuple[str, ...]
    symbols: str = "{}"
    lapack: tuple[str, ...] = ()

    def function(self, name: str) -> str:
        """The library's name of a function."""
        return self.symbols.replace("{}", name)


@dataclass(frozen=True, slots=True)
class Machine:
    """A CPU as the scheduler sees it.

    `march` is the compiler's `-march` value; None leaves the compiler's baseline, so that the text runs on every
    machine of the architecture. `cores` is how many threads may work at once. `vector_bytes` is 0 where there are no
    vectors.
    """

    name: str
    cores: int
    vector_bytes: int
    vector_registers: int
    l1: int
    l2: int
    l3: int
    fma: bool
    march: str | None
    blas: Blas | None = None
    contracts: bool = False
    """True if compilers may contract all products and sums into fused multiply-adds, those of the user's too."""
    ranks: int | None = 1
    """The number of ranks that run a program; None: any number, known when the program runs."""
    bucket_bytes: int = 4 << 20
    """The size of a message in which several arrays are reduced over ranks."""
    overlaps: bool = False
    """True if a reduction over ranks starts as soon as its arrays are complete."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The compiler's flags."""
        march = (f"-march={self.march}",) if self.march else ()
        return (*march, "-ffp-contract=fast") if self.contracts else march

    def lanes(self, item_size: int) -> int:
        """The number of items of `item_size` bytes in one vector; 0 without vectors."""
        return self.vector_bytes // item_size

    @property
    def is_iso_c(self) -> bool:
        """Return whether its programs are C99 without extensions, on one thread and in static memory: vectors are an
        extension.
        """
        return not self.vector_bytes

    def with_cores(self, cores: int) -> Machine:
        """The same machine with another number of threads."""
        return replace(self, cores=cores)


# 128-bit vectors are the x86-64 and aarch64 baseline: no flag is needed, and no vector crosses an ABI boundary.
PORTABLE = Machine("portable", 1, 16, 16, 32 << 10, 256 << 10, 4 << 20, fma=False, march=None)
X86_64_V3 = Machine("x86-64-v3", 1, 32, 16, 32 << 10, 512 << 10, 8 << 20, fma=True, march="x86-64-v3")
X86_64_V4 = Machine("x86-64-v4", 1, 64, 32, 48 << 10, 1 << 20, 16 << 20, fma=True, march="x86-64-v4")
# Any processor with any compiler of C99: what microcontrollers have.
C99 = Machine("c99", 1, 0, 16, 16 << 10, 64 << 10, 64 << 10, fma=False, march=None)

MACHINES = {machine.name: machine for machine in (PORTABLE, X86_64_V3, X86_64_V4, C99)}


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the scheduler sees it. Sums are added in an order that follows from it: one description serves all
    devices, so that all give the same bits.
    """

    name: str
    warp: int
    """Lanes of a warp."""
    block: int
    """Threads of a usual block: enough warps to hide the memory's latency, few enough for every GPU's registers."""
    largest_block: int
    blocks: int
    """The largest grid along x."""
    access_bytes: int
    """Bytes that one thread reads or writes by one instruction."""
    shared_bytes: int
    """Shared memory that a block's workspace may take: several blocks fit beside each other on every GPU."""
    largest_shared_bytes: int
    """Shared memory that the arrays of a block may have at most, where its size is known to the compiler."""
    thread_bytes: int
    """Workspace that one thread may have for itself, beyond its registers in the GPU's local memory."""
    workspace_bytes: int
    """Workspace in device memory that one launch may have: where each thread needs much, fewer run, and take several
    items.
    """
    busy_threads: int
    """Threads that keep it busy: with as many items, none needs to be shared."""
    busy_warps: int
    """Warps that keep its memory busy."""
    busy_items: int
    """Items from which on memory, not the launch, dominates the time."""
    has_warps: bool = True
    """True if the threads of a warp exchange numbers and vote; without that no threads share an item."""
