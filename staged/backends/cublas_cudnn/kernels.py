"""Fused kernels in CUDA: the independent loops of a nest become threads.

    // mlp.py:31  y = x * 2 + 1
    // fused: multiply, add
    // 1000 items, a thread each: 4 blocks of 256 threads; item i is element i
    extern "C" __global__ void __launch_bounds__(256) y_kernel(const float *__restrict__ x, float *__restrict__ y) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= 1000) {
            return;
        }
        y[i] = x[i] * 2.0f + 1.0f;
    }

Loops inside of those (a row's reduction) stay loops of one thread, or are shared by the threads of a team (`teams.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from staged.backends.c_family.expr import Name
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.loops import kernel_comments, rounded, wrapped
from staged.backends.c_family.writer import Names, Writer, safe_comment
from staged.backends.cublas_cudnn.failures import RECORD
from staged.backends.cublas_cudnn.geometry import (
    BLOCK,
    Launch,
    Team,
    launch_for,
    launch_for_team,
    launch_side_by_side,
    launch_with_workspace,
)
from staged.backends.cublas_cudnn.host_kernels import HostKernels
from staged.backends.cublas_cudnn.library.contraction import Contractions
from staged.backends.cublas_cudnn.library.loops import product_nest
from staged.backends.cublas_cudnn.mapping import Part, map_nest
from staged.backends.cublas_cudnn.packs import Access, alignments, packed
from staged.backends.cublas_cudnn.permutations import permutation_by_block
from staged.backends.cublas_cudnn.scatter import scatter_as_gather, scatter_with_atomics
from staged.backends.cublas_cudnn.spelling import device_names
from staged.backends.cublas_cudnn.statements import may_fail
from staged.backends.cublas_cudnn.teams import SHARED_BYTES, may_overwrite, team_for
from staged.backends.cublas_cudnn.tile_statements import TileStatements
from staged.backends.cublas_cudnn.tiles import TILE, tiles_of
from staged.backends.cublas_cudnn.windows import pooling_as_gather
from staged.ir.loops import ArrayRef, Axis, Guarded, Loop, Nest, Schedule, Statement, Tile, indices_of, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.types import CPU
from staged.source import Position

Site = Callable[[Position | None], int]

LOCAL_BYTES = 16 << 10
"""Workspace that one thread may have in the GPU's local memory (on the stack of the emulated device); more is the arena's."""
CUDA_WORDS = frozenset(
    "threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 __global__ __device__ __shared__ KERNELS KERNEL ST_UNROLLED".split()
)
SMALL = 1 << 30
"""Indices up to here are `int`: a GPU computes with these in one instruction, with 64 bits in several."""
PLAIN = Schedule()
"""Neither vectors nor a thread team: what a single GPU thread does."""


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """All of one parameter of a kernel from another, before it starts, unless they are one buffer."""

    target: str
    source: str
    size: str


@dataclass(frozen=True, slots=True)
class CudaKernel(KernelText):
    """A kernel on the device, and its launch; kernels of the host have none."""

    launch: Launch | None = None
    copies: tuple[WholeCopy, ...] = ()
    workspace_bytes: int = 0
    """Memory that its threads share out among them; it then takes it as `scratch`."""
    comments: tuple[str, ...] = ()
    statements: str = ""
    """What stands between its braces."""
    own_parameters: tuple[tuple[str, str], ...] = ()
    """What it takes besides the op's operands and results."""
    restricted: frozenset[str] = frozenset()
    """The parameters whose arrays are reached by no other."""

    def can_read(self, positions: Collection[int]) -> bool:
        """Whether it has such a form: the host must know the addresses of arrays that it copies before the launch."""
        names = {self.parameters[position][1] for position in positions}
        return bool(self.statements) and not any(copy.target in names or copy.source in names for copy in self.copies)

    def reading(self, positions: Collection[int], name: str) -> CudaKernel:
        """The same kernel, called `name`, with the arguments at `positions` found where an address of the device points.

            y_kernel(const float *x, float factor)  ->  y_of_turn_kernel(const float *x, const float *factor_at)
        """
        parameters, reads = [], []
        for position, (c_type, parameter) in enumerate(self.parameters):
            if position not in positions:
                parameters.append((c_type, parameter))
                continue
            place = f"{parameter}_at"
            while re.search(rf"\b{place}\b", self.statements):
                place += "_"
            is_pointer = c_type.endswith("*")
            parameters.append((f"{c_type}const *" if is_pointer else f"const {c_type}*", place))
            reads.append(f"    {c_type if is_pointer else f'const {c_type}'}{'const ' * is_pointer}{parameter} = *{place};")
        statements = "\n".join([*reads, self.statements])
        assert self.launch is not None and self.can_read(positions)
        given = (*parameters, *self.own_parameters)
        text = kernel_function(name, self.comments, self.launch, given, self.restricted, statements)
        return replace(self, name=name, text=text, parameters=tuple(parameters), statements=statements)


class CudaLibrary:
    """Emits each kernel of a program: for its host in C, for its device in CUDA."""

    def __init__(self, machine: Machine, names: Names, site: Site, options: DeviceOptions) -> None:
        self.machine = machine
        self.names = names
        self.options = options
        self.names.used |= CUDA_WORDS
        self.site = site
        self.contractions = Contractions(names, site, options)
        self.host = HostKernels(machine, names, site)
        self.known: dict[object, CudaKernel] = {}
        """Kernels by what they do: equal ones are compiled once, whatever lines they come from."""

    def kernel(self, op: Op) -> KernelText:
        """The text for a `kernel` op. Raises UnsupportedError, with the Python line, for what has none."""
        if op.name == "library":
            return self.contractions.whole(op)
        name = str(op.attrs.get("name") or "kernel")
        if op.device == CPU:
            return self.host.kernel(op)
        if op.name == "contraction":
            call = self.contractions.call(op, name)
            if call is not None:
                return call
            op = op.replace(attrs={**op.attrs, "nest": product_nest(op, name)})
        # With a suffix of its own: a kernel's name is visible to the linker, where libraries have plain names.
        chosen = self.names.fresh(f"{name}_kernel")
        made = CudaLoopEmitter(op, self.machine, self.site, self.options).kernel(chosen)
        first = self.known.setdefault(_shape_of(made), made)
        if first is made:
            return made
        self.names.used.discard(chosen)
        return replace(
            made,
            name=first.name,
            text=first.text,
            parameters=first.parameters,
            copies=first.copies,
            comments=first.comments,
            statements=first.statements,
            own_parameters=first.own_parameters,
            restricted=first.restricted,
        )


class CudaLoopEmitter(TileStatements):
    """Writes one nest as a `__global__` function."""

    def __init__(self, op: Op, machine: Machine, site: Site, options: DeviceOptions) -> None:
        nest: Nest = op.attrs["nest"]
        super().__init__(nest, PLAIN, machine, site)
        self.op = op
        self.can_fail = any(may_fail(s) for s in walk(nest.body))
        spreads = [map_nest(each) for each in op.attrs.get("joined", (nest,))]
        self.copies = tuple(copy for spread in spreads for copy in spread.copies)
        self.parts = [part for spread in spreads for part in spread.parts if part.items] or [Part((), (), ())]
        self.adds_atomically = False
        windows = pooling_as_gather(op)
        if windows is not None:
            self.copies, self.parts = (), [windows]
        elif len(self.parts) == 1:
            added = scatter_with_atomics(self.parts[0]) if not options.deterministic else None
            gather = scatter_as_gather(self.parts[0], self.copies) if added is None else None
            if added is not None:
                self.adds_atomically, self.parts = True, [added]
            elif gather is not None:
                self.copies, self.parts = (), [gather]
        # The windows over an element are few, and neighbouring elements have the same.
        self.team = team_for(self.parts[0]) if len(self.parts) == 1 and windows is None else None
        shuffled = permutation_by_block(self.parts[0]) if len(self.parts) == 1 else None
        if shuffled is not None:
            self.parts, self.team = [shuffled[0]], shuffled[1]
        alone = self.parts[0] if len(self.parts) == 1 and self.team is None else None
        self.tiles = tiles_of(alone) if alone is not None else None
        self.alignment = alignments(op)
        self.packs = [
            (1, frozenset()) if self.tiles or self.team else packed(part, self.alignment) for part in self.parts
        ]
        self.launches = self.launched()
        self.index_type = "int" if self.has_small_indices() else "int64_t"

    def launched(self) -> tuple[Launch, ...]:
        """The launch of each part."""
        threads = [part.items // width for part, (width, _) in zip(self.parts, self.packs, strict=True)]
        if len(self.parts) > 1:
            return launch_side_by_side(threads)
        (part,) = self.parts
        if self.tiles is not None:
            return (Launch(part.items, self.tiles.blocks, BLOCK, how=f"a block for each tile of {TILE} x {TILE}"),)
        needed = workspace_bytes(part)
        if self.team is not None:
            return (launch_for_team(part.items, self.team, 0 if self.fits_in_shared(part) else needed),)
        return (launch_with_workspace(part.items, needed) if needed > LOCAL_BYTES else launch_for(threads[0]),)

    def has_small_indices(self) -> bool:
        """Whether no index, and no number of a thread or a turn, is anywhere near 2^31: then 32 bits do."""
        if any(array.size > SMALL for array in (*self.nest.inputs, *self.nest.outputs) if isinstance(array, ArrayRef)):
            return False
        return all(
            max(part.items, launch.blocks * launch.threads, farthest(part)) <= SMALL for part, launch in self.work()
        )

    def wide(self, number: str) -> str:
        """An unsigned number of CUDA's as an index."""
        return number if self.index_type == "int" else f"({self.index_type}){number}"

    def fits_in_shared(self, part: Part) -> bool:
        return self.team is not None and workspace_bytes(part) * self.team.items <= SHARED_BYTES

    def workspace_of(self, part: Part, launch: Launch) -> int:
        """Bytes of the program's workspace that a part needs."""
        needed = workspace_bytes(part)
        if self.team is not None:
            return 0 if self.fits_in_shared(part) else needed * launch.blocks
        return needed * launch.blocks * launch.threads if needed > LOCAL_BYTES else 0

    def work(self) -> list[tuple[Part, Launch]]:
        return list(zip(self.parts, self.launches, strict=True))

    # ---- the function ----

    def kernel(self, name: str) -> CudaKernel:
        """The kernel, called `name`."""
        self.names.used |= {RECORD}
        parameters = self.parameters()
        given = len(parameters)
        workspace = sum(self.workspace_of(part, launch) for part, launch in self.work())
        if workspace:
            parameters.append(("unsigned char *", self.names.fresh("scratch")))
        if self.can_fail:
            parameters.append(("st_device_failure *", RECORD))
        self.parameter_names = set(self.names.used)
        first = self.launches[0]
        items, blocks = sum(launch.items for launch in self.launches), sum(launch.blocks for launch in self.launches)
        launch = replace(first, items=items, blocks=blocks)
        self.w.depth = 1
        self.write_parts()
        written = "\n".join(self.w.lines)
        unused = [parameter for _, parameter in parameters if not re.search(rf"\b{parameter}\b", written)]
        statements = device_names("\n".join([*(f"    (void){parameter};" for parameter in unused), written]))
        comments = (*kernel_comments(self.op), self.mapping(launch))
        restricted = frozenset(self.restricted())
        return CudaKernel(
            name,
            kernel_function(name, comments, launch, parameters, restricted, statements),
            tuple(parameters[:given]),
            self.nest.items,
            may_alias=self.may_alias(),
            snippets=frozenset(self.snippets),
            can_fail=self.can_fail,
            launch=launch,
            copies=tuple(
                WholeCopy(
                    str(self.arrays[copy.target]),
                    str(self.arrays[copy.source]),
                    f"{copy.target.size} * sizeof({copy.target.dtype.c_name})",
                )
                for copy in self.copies
            ),
            workspace_bytes=workspace,
            comments=comments,
            statements=statements,
            own_parameters=tuple(parameters[given:]),
            restricted=restricted,
        )

    def restricted(self) -> set[str]:
        """The parameters whose arrays nothing else in the kernel reaches: the memory plan lets only such pairs meet."""
        sources = (*self.nest.inputs, *self.nest.outputs)
        met = {source for copy in self.copies for source in (copy.target, copy.source)}
        for result, operand in self.may_alias():
            met |= {self.nest.outputs[result], *(s for s in (self.nest.inputs[operand],) if isinstance(s, ArrayRef))}
        return {str(self.arrays[source]) for source in sources if isinstance(source, ArrayRef) and source not in met}

    def may_alias(self) -> tuple[tuple[int, int], ...]:
        """The (result, operand) pairs that may share a buffer although threads keep no order."""
        if "joined" in self.op.attrs:
            return self.nest.in_place
        if len(self.parts) > 1:
            return ()
        (part,) = self.parts
        inputs = self.nest.inputs
        return tuple(
            (result, operand)
            for result, operand in self.nest.in_place
            if self.team is None
            or isinstance(source := inputs[operand], ArrayRef)
            and may_overwrite(part, source, self.nest.outputs[result])
        )

    def mapping(self, launch: Launch) -> str:
        """How threads map to elements, in words."""
        if self.adds_atomically:
            return f"{self.layout(launch)}; they add to the result by atomics, in no order"
        return self.layout(launch)

    def layout(self, launch: Launch) -> str:
        """Which thread does what."""
        if self.team is not None:
            names = f" ({', '.join(axis.name for axis in self.parts[0].axes)})" if self.parts[0].axes else ""
            turns = f"every {self.team.threads}th turn, or pack of neighbouring turns, of its loops"
            return f"{launch}; of an item{names} each thread takes {turns}"
        if self.tiles is not None:
            return f"{launch}, which turns the tile around in shared memory"
        if launch.items <= 1:
            return "one thread does it all"
        if len(self.parts) > 1:
            each = ", ".join(str(part.items) for part in self.parts)
            return f"{launch}; {len(self.parts)} parts side by side, of {each} items"
        (part,) = self.parts
        names = ", ".join(axis.name for axis in part.axes)
        if (width := self.packs[0][0]) > 1:
            return f"{launch}; an item is {width} neighbours along {part.axes[-1].name}, read and written at once"
        if len(part.axes) == 1:
            return f"{launch}; item {names} is turn {names} of the loop"
        return f"{launch}; items ({names}) are numbered row by row"

    def write_parts(self) -> None:
        """Each part in its blocks."""
        first = 0
        for number, (part, launch) in enumerate(self.work()):
            if self.team is not None:
                declared = len(self.w.lines)
                self.team_part(part, launch, self.team)
                if not any(re.search(rf"\b{self.team_lane}\b", line) for line in self.w.lines[declared + 1 :]):
                    del self.w.lines[declared]
            elif self.tiles is not None:
                self.tile_part(part, self.tiles)
            elif number == len(self.parts) - 1:
                self.part(part, launch, first, *self.packs[number])
            else:
                with self.block(f"if (blockIdx.x < {first + launch.blocks})"):
                    self.part(part, launch, first, *self.packs[number])
                    self.w.line("return;")
            first += launch.blocks

    def part(self, part: Part, launch: Launch, first: int, width: int, packs: frozenset[Access]) -> None:
        """What the blocks from `first` on do: an item, or several, for each thread."""
        if launch.blocks * launch.threads == 1:
            self.declare_workspace(part, "")
            self.body(part.body)
            return
        w = self.w
        block = f"({self.wide('blockIdx.x')} - {first})" if first else self.wide("blockIdx.x")
        number = f"{block} * blockDim.x + threadIdx.x"
        hint = part.axes[0].name if len(part.axes) == 1 and width == 1 else "pack" if width > 1 else "t"
        if launch.strided:
            start, item = self.names.fresh("thread_number"), self.names.fresh(hint)
            w.line(f"const {self.index_type} {start} = {number};")
            self.declare_workspace(part, start)
            step = launch.blocks * launch.threads
            with self.block(f"for ({self.index_type} {item} = {start}; {item} < {launch.items}; {item} += {step})"):
                self.number_axes(part.axes, item)
                self.body(part.body)
            return
        item = self.names.fresh(hint)
        w.line(f"const {self.index_type} {item} = {number};")
        if launch.has_tail:
            with w.block(f"if ({item} >= {launch.items})"):
                w.line("return;")
        self.declare_workspace(part, item)
        if width == 1:
            self.number_axes(part.axes, item)
            self.body(part.body)
            return
        *outer, last = part.axes
        packs_along = Axis(f"{last.name}_pack", last.extent // width)
        self.number_axes((*outer, packs_along), item)
        start = self.names.fresh(last.name)
        w.line(f"const {self.index_type} {start} = {width} * {self.axes[packs_along]};")
        self.axes[last] = Name(start)
        self.packed_body(part.body, last, width, packs)

    def team_part(self, part: Part, launch: Launch, team: Team) -> None:
        """Items that the threads of a team share."""
        w = self.w
        self.team_lane = self.names.fresh("lane")
        lane = {"warp": "threadIdx.x % 32", "block": "threadIdx.x", "column": "threadIdx.x / 32"}[team.kind]
        number = {
            "warp": f"({self.wide('blockIdx.x')} * blockDim.x + threadIdx.x) / 32",
            "block": "blockIdx.x",
            "column": f"{self.wide('blockIdx.x')} * 32 + threadIdx.x % 32",
        }[team.kind]
        w.line(f"const {self.index_type} {self.team_lane} = {lane};")
        self.declare_team_workspace(part, team)
        if part.items == 1 and not part.axes:
            self.team_body(part.body)
            return
        item = self.names.fresh(part.axes[0].name if len(part.axes) == 1 else "t")
        if launch.strided:
            with self.block(f"for ({self.index_type} {item} = blockIdx.x; {item} < {launch.items}; {item} += {launch.blocks})"):
                self.number_axes(part.axes, item)
                self.team_body(part.body)
                w.line("__syncthreads();  // before the workspace is used again")
            return
        ragged = launch.blocks * team.items != launch.items
        if ragged and team.kind == "column":
            given = self.names.fresh("column")
            w.line(f"const {self.index_type} {given} = {number};")
            w.line(f"const {self.index_type} {item} = {given} < {launch.items} ? {given} : {launch.items - 1};")
            self.is_mine = f"{given} < {launch.items}"
        else:
            w.line(f"const {self.index_type} {item} = {number};")
            if ragged:
                with w.block(f"if ({item} >= {launch.items})"):
                    w.line("return;  // all of a warp")
        self.number_axes(part.axes, item)
        self.team_body(part.body)

    # ---- workspace ----

    def declare_workspace(self, part: Part, thread: str) -> None:
        """A thread's own arrays: in its local memory where they are small, else its piece of the program's workspace."""
        whole = workspace_bytes(part)
        if whole > LOCAL_BYTES:
            self.declare_in_workspace(part, f"scratch + {thread} * {whole}" if thread else "scratch")
            return
        for array in part.scratch:
            name = self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            self.w.line(f"{array.dtype.c_name} {name}[{max(array.size, 1)}];")

    def declare_team_workspace(self, part: Part, team: Team) -> None:
        """A team's own arrays: in shared memory where they fit, else a block's piece of the program's workspace."""
        if not self.fits_in_shared(part):
            self.declare_in_workspace(part, f"scratch + (int64_t)blockIdx.x * {workspace_bytes(part)}")
            return
        for array in part.scratch:
            c_type, name = array.dtype.c_name, self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            if team.items == 1:
                self.w.line(f"__shared__ {c_type} {name}[{max(array.size, 1)}];")
                continue
            rows = self.names.fresh(f"{array.name}_rows")
            self.w.line(f"__shared__ {c_type} {rows}[{team.items} * {array.size}];")
            self.w.line(f"{c_type} *const {name} = {rows} + threadIdx.x / 32 * {array.size};")

    def declare_in_workspace(self, part: Part, start: str) -> None:
        offset = 0
        for array in part.scratch:
            c_type, name = array.dtype.c_name, self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            place = f"{start} + {offset}" if offset else start
            self.w.line(f"{c_type} *const {name} = ({c_type} *)(void *)({place});")
            offset += rounded(array)


def kernel_function(
    name: str,
    comments: Sequence[str],
    launch: Launch,
    parameters: Sequence[tuple[str, str]],
    restricted: Collection[str],
    statements: str,
) -> str:
    """The text of a kernel: `statements` stand between its braces."""
    w = Writer()
    for comment in comments:
        w.line("// " + safe_comment(comment))
    text = ", ".join(f"{type}{'__restrict__ ' * (name in restricted)}{name}" for type, name in parameters)
    bounds = f"__launch_bounds__({launch.threads})"
    w.line(wrapped(f'extern "C" __global__ void {bounds} {name}({text})') + " {")
    w.text(statements)
    w.line("}")
    return device_names(str(w))


_DECLARED = re.compile(
    r"\b(?:float|double|bool|(?:unsigned )?(?:char|int)|u?int\d+_t|st_device_\w+) \*?(?:(?:const|__restrict__|ST_\w+) )*(\w+)"
)
"""What a declaration in a kernel's text names."""


def _shape_of(kernel: CudaKernel) -> object:
    """What two kernels must share to be one: the text but for comments and names of their own, and the launch."""
    lines = [line for line in kernel.text.splitlines() if not line.lstrip().startswith("//")]
    local_names = set(_DECLARED.findall("\n".join(lines)))
    numbers: dict[str, str] = {kernel.name: "KERNEL"}

    def renamed(word: re.Match[str]) -> str:
        if word[0] in local_names:
            numbers.setdefault(word[0], f"${len(numbers)}")
        return numbers.get(word[0], word[0])

    # Members of structs are nobody's own: `threadIdx.x`.
    text = re.sub(r"(?<![.>\w])[A-Za-z_]\w*", renamed, "\n".join(lines))
    types = tuple(c_type for c_type, _ in kernel.parameters)
    copies = tuple((numbers.get(copy.target), numbers.get(copy.source), copy.size) for copy in kernel.copies)
    return text, types, replace(kernel.launch, how="") if kernel.launch else None, copies, kernel.workspace_bytes


def farthest(part: Part) -> int:
    """The largest number that an index of a part, a turn of its loops, or a sum on the way to one, can come to."""
    reach = turns_of(part.body)
    for s in walk(part.body):
        for index in indices_of(s):
            terms = (abs(stride) * name.extent for name, stride in index.terms if isinstance(name, Axis))
            reach = max(reach, abs(index.offset) + sum(terms))
    return max(reach, *(array.size for array in part.scratch), 0) if part.scratch else reach


def turns_of(body: Sequence[Statement]) -> int:
    """The turns of loops inside one another, at most: threads that share them count them through."""
    return max(
        (
            (s.axis.extent if isinstance(s, Loop | Tile) else 1) * turns_of(s.body)
            for s in body
            if isinstance(s, Loop | Tile | Guarded)
        ),
        default=1,
    )


def workspace_bytes(part: Part) -> int:
    """Workspace of one item, each array in whole cache lines."""
    return sum(rounded(array) for array in part.scratch)


def needs_of(kernels: Sequence[KernelText]) -> frozenset[str]:
    """The support functions that the device's kernels use."""
    return frozenset(name for kernel in kernels if isinstance(kernel, CudaKernel) for name in kernel.snippets)
