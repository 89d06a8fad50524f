"""The text of graphs: their types, the kernels that bring an iteration's values to the device, and the function that
repeats an iteration.

Tested by `tests/backends/cublas_cudnn/test_graphs.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from staged.backends.cublas_cudnn.device import WORD, DevicePart, Field
from staged.backends.cublas_cudnn.steps import LoopStep, Step
from staged.backends.gpu.addresses import bare
from staged.code.expr import (
    Expr,
    Index,
    Infix,
    Items,
    Junction,
    Literal,
    Member,
    Name,
    Prefix,
    Variable,
    call,
    member,
)
from staged.code.tree import Assign, CodeBuilder, Declare, Statement
from staged.code.types import CType
from staged.code.writer import Names, Writer, wrapped
from staged.ir.buffers import DEVICE_ALIGNMENT, Buffer, aligned
from staged.ir.nodes import Value
from staged.ir.types import ALL_DTYPES, DType
from staged.source import Position

SIZES = "sizes"
"""The parameter of a captured function with the sizes that its graph is for, in programs that find sizes."""
_BYTES = {f"{dtype.c_name} ": dtype.size for dtype in ALL_DTYPES if dtype.size < WORD}


def _size(c_type: str) -> int:
    return _BYTES.get(c_type, WORD)


@dataclass(frozen=True, slots=True)
class Change:
    """A value that differs between iterations."""

    c_type: str
    name: str
    """Of the field that has it."""
    value: Expr
    """The host's expression."""
    loops: tuple[LoopStep, ...] = ()
    """The captured loops around it, if their indices are in it: the field is an array, with a value for each index."""

    @property
    def declaration(self) -> str:
        return f"{self.c_type}{self.name}{''.join(f'[{loop.room}]' for loop in self.loops)}"

    @property
    def nbytes(self) -> int:
        return _size(self.c_type) * math.prod(loop.room for loop in self.loops)

    @property
    def begin(self) -> Expr:
        """Its value before loops have filled it."""
        value = self.value
        for number in range(len(self.loops)):
            value = Items((Literal("0") if number == 0 else value,))
        return value

    def of(self, struct: Expr, arrow: bool) -> Expr:
        """The value in a struct, in the present iteration of its loops."""
        place: Expr = Member(struct, self.name, arrow)
        for loop in self.loops:
            place = Index(place, loop.loop.index)
        return place


@dataclass(slots=True)
class Iteration:
    """The differences between the iterations of one run."""

    name: str
    where: Position | None
    lines: str
    """The user's lines behind it, for comments: `, mlp.py:14-32`."""
    names: Names = field(default_factory=Names)
    fields: dict[tuple[str, str], Change] = field(default_factory=dict)
    """By C type and expression of the host."""
    slices: dict[Value, Buffer] = field(default_factory=dict)
    """Values that libraries read at changing addresses, with the buffer that they are copied to."""
    slice_bytes: int = 0
    sizes: list[Variable] = field(default_factory=list)
    """The variables of the host with the sizes that a graph is for."""

    def __post_init__(self) -> None:
        self.names.used.add("rest_of_word")

    @property
    def type(self) -> str:
        return f"{self.name}_values"

    @property
    def graph(self) -> str:
        """The field of `Device` with its graph, or with the graphs of its last sizes."""
        return f"{self.name}_graph{'s' if self.sizes else ''}"

    @property
    def forget(self) -> tuple[str, Expr]:
        """The function that forgets what is in that field, and its argument."""
        graphs = member("gpu", self.graph)
        return ("forget_graphs", graphs) if self.sizes else ("forget_graph", Prefix("&", graphs))

    @property
    def nbytes(self) -> int:
        """The most bytes of the struct."""
        return sum(aligned(change.nbytes, WORD) for change in self.fields.values())

    def known_sizes(self) -> list[Declare]:
        """The declarations of these sizes in the function that is captured."""
        return [Declare(size, Index(Name(SIZES), Literal(str(number)))) for number, size in enumerate(self.sizes)]

    def members(self) -> list[tuple[str, Expr]]:
        """The struct's declarations with their values, the largest first, up to whole words:
        no byte is left to chance."""
        changes = sorted(self.fields.values(), key=lambda change: -_size(change.c_type))
        rest = -sum(change.nbytes for change in changes) % WORD
        filler = [(f"unsigned char {'rest_of_word'}[{rest}]", Items((Literal("0"),)))] if rest else []
        return [*((change.declaration, change.begin) for change in changes), *filler]

    def address(self, c_type: str, expression: Expr, hint: str, loops: tuple[LoopStep, ...] = ()) -> Expr:
        """The address of the field on the device that has the value of a host's expression in each iteration."""
        key = (c_type, str(expression))
        if key not in self.fields:
            own = bare(expression)
            name = self.names.fresh(own.text if isinstance(own, Name) and own.text.isidentifier() else hint)
            self.fields[key] = Change(c_type, name, expression, loops)
        return Prefix("&", self.fields[key].of(Member(Name("gpu"), self.name), arrow=True))

    def fills(self, struct: Expr, steps: Sequence[Step]) -> Iterator[Statement]:
        """The loops of the host that fill the arrays of the struct."""
        for step in steps:
            if isinstance(step, LoopStep):
                own = [change for change in self.fields.values() if change.loops and change.loops[-1] is step]
                inner: list[Statement] = [Assign(change.of(struct, arrow=False), change.value) for change in own]
                inner += self.fills(struct, step.steps)
                if inner:
                    yield replace(step.loop, body=(*step.loop.body, *inner))


GRAPH = """\
// Work that is done again and again, as one graph from the second time on.
typedef struct {
    cudaGraphExec_t executable;
    int is_known;  // it has been done once
} Graph;
"""

MOST_GRAPHS = 8
"""Graphs of one run for different sizes: fewer than the sizes for which libraries keep plans."""

_SIZED = """\

// A graph for one set of sizes.
typedef struct {{
    Graph graph;
    int64_t sizes[{count}];
}} SizedGraph;
"""

SIZED_FUNCTIONS = f"""\
static void forget_graphs(SizedGraph *all) {{
    for (int number = 0; number < {MOST_GRAPHS}; ++number) {{
        forget_graph(&all[number].graph);
    }}
}}

// The graph for these sizes, which goes to the front. A new one replaces the graph that was used least
// recently.
static Graph *graph_of(SizedGraph *all, const int64_t *sizes, size_t nbytes) {{
    int number = 0;
    while (number < {MOST_GRAPHS - 1} && memcmp(all[number].sizes, sizes, nbytes) != 0) {{
        ++number;
    }}
    SizedGraph found = all[number];
    if (memcmp(found.sizes, sizes, nbytes) != 0) {{
        forget_graph(&found.graph);
        memcpy(found.sizes, sizes, nbytes);
    }}
    memmove(all + 1, all, (size_t)number * sizeof *all);
    all[0] = found;
    return &all[0].graph;
}}
"""


def most_sizes(iterations: Sequence[Iteration]) -> int:
    """The most sizes that a graph is for."""
    return max((len(iteration.sizes) for iteration in iterations), default=0)


def graph_types(iterations: Sequence[Iteration]) -> list[str]:
    """The types of graphs."""
    if not iterations:
        return []
    count = most_sizes(iterations)
    return [GRAPH + (_SIZED.format(count=count) if count else "")]


_REPEAT = """\
{work}

// Does some work that repeats itself. The first time as it stands, when libraries load what they need; the second time
// its calls are captured as a graph; from then on they are one launch.
{head} {{
    if (!graph->is_known) {{
        graph->is_known = 1;
        return work({arguments});
    }}
    if (graph->executable == NULL) {{
        cudaGraph_t captured = NULL;
        CUDA_CHECK(site, cudaStreamBeginCapture(gpu->stream, cudaStreamCaptureModeThreadLocal));
        const int status = work({arguments});
        // Whatever came of it: nothing runs on a stream that is captured.
        cudaError_t error = cudaStreamEndCapture(gpu->stream, &captured);
        if (status == ST_OK && error == cudaSuccess) {{
            error = cudaGraphInstantiate(&graph->executable, captured, 0);
        }}
        if (captured != NULL) {{
            (void)cudaGraphDestroy(captured);
        }}
        if (status != ST_OK) {{
            return status;
        }}
        if (error != cudaSuccess) {{
            return st_fail(host, ST_RUNTIME_ERROR, site, "a turn of a loop cannot become a CUDA graph: %s (%s:%d)",
                           cudaGetErrorString(error), __FILE__, __LINE__);
        }}
    }}
    CUDA_CHECK(site, cudaGraphLaunch(graph->executable, gpu->stream));
    return ST_OK;
}}

static void forget_graph(Graph *graph) {{
    if (graph->executable != NULL) {{
        (void)cudaGraphExecDestroy(graph->executable);
    }}
    graph->executable = NULL;
    graph->is_known = 0;
}}
"""

_SET = """\
// What the kernels of a graph read of this turn: the host gives it as arguments, and so needs no memory that must wait.
extern "C" __global__ void __launch_bounds__(1) {name}_kernel({type} *turn, {type} now) {{
    *turn = now;
}}
"""

_LAUNCH_SET = """\
// one thread
static cudaError_t launch_{name}(const Device *gpu, {type} now) {{
    void *values[] = {{(void *)&gpu->{field}, &now}};
    return cudaLaunchKernel(KERNEL({name}_kernel), st_dim3(1), st_dim3(1), values, 0, gpu->stream);
}}
"""

_COPY = """\
// An array that is elsewhere in each turn: both addresses are found on the device.
extern "C" __global__ void __launch_bounds__(256) {name}_kernel(const {c_type} *const *from, {c_type} *const *to,
        int64_t count) {{
    const {c_type} *const source = *from;
    {c_type} *const target = *to;
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
        target[i] = source[i];
    }}
}}
"""

_LAUNCH_COPY = """\
// A thread for each element, up to 1024 blocks, whose threads then take further ones
static cudaError_t launch_{name}(const Device *gpu, const {c_type} *const *from, {c_type} *const *to, int64_t count) {{
    const int64_t blocks = (count + 255) / 256;{leave}
    void *values[] = {{&from, &to, &count}};
    const dim3 grid = st_dim3(blocks < 1024 ? (unsigned int)blocks : 1024);
    return cudaLaunchKernel(KERNEL({name}_kernel), grid, st_dim3(256), values, 0, gpu->stream);
}}
"""


_LEAVE = """
    if (blocks == 0) {
        return cudaSuccess;  // of no elements
    }"""

KNOWN = "graph_arguments"
"""The field of `Device` with the addresses in the caller's arguments that graphs know."""


# ---- kernels ------------------------------------------------------------------------------------


def set_name(iteration: Iteration) -> str:
    """The kernel that brings an iteration's values to the device, without its suffix."""
    return f"set_{iteration.name}"


def copy_name(dtype: DType) -> str:
    """The kernel that copies an array between two places that it finds on the device, without its suffix."""
    return f"copy_of_turn_{dtype}"


def kernel_names(iterations: Sequence[Iteration], copied: Sequence[DType]) -> list[str]:
    """The kernels that graphs need beside those of the program."""
    names = [*(set_name(iteration) for iteration in iterations if iteration.fields), *map(copy_name, copied)]
    return [f"{name}_kernel" for name in names]


def kernel_texts(iterations: Sequence[Iteration], copied: Sequence[DType]) -> list[str]:
    """Their text."""
    sets = [_SET.format(name=set_name(iteration), type=iteration.type) for iteration in iterations if iteration.fields]
    return [*sets, *(_COPY.format(name=copy_name(dtype), c_type=dtype.c_name) for dtype in copied)]


def launchers(iterations: Sequence[Iteration], copied: Sequence[DType]) -> list[str]:
    """The host functions that start them."""
    sets = [
        _LAUNCH_SET.format(name=set_name(iteration), type=iteration.type, field=iteration.name)
        for iteration in iterations
        if iteration.fields
    ]
    leave = _LEAVE if most_sizes(iterations) else ""
    copies = [_LAUNCH_COPY.format(name=copy_name(dtype), c_type=dtype.c_name, leave=leave) for dtype in copied]
    return [*sets, *copies]


# ---- the host's part ----------------------------------------------------------------------------


def types(iterations: Sequence[Iteration]) -> list[str]:
    """The structs of what changes, for kernels and host alike."""
    texts = []
    for iteration in iterations:
        if not iteration.fields:
            continue
        w = Writer()
        w.comment(f"What differs between the turns of a loop{iteration.lines}, as the kernels of its graph read it.")
        with w.block("typedef struct", f" {iteration.type};"):
            for declaration, _ in iteration.members():
                w.line(f"{declaration};")
        texts.append(str(w))
    return texts


def repeated(iteration: Iteration, site: int, shared: Sequence[str], sizes: Variable | None) -> Expr:
    """The call that does an iteration's work, with a graph for these sizes. `shared`: the arguments of its function."""
    graph: Expr = Prefix("&", member("gpu", iteration.graph))
    if sizes is not None:
        graph = call("graph_of", member("gpu", iteration.graph), sizes, Prefix("sizeof ", sizes))
    given = [each if each != SIZES else sizes or "NULL" for each in shared]
    return call("repeat", "gpu", "host", site, graph, f"do_{iteration.name}", *given)


def repeat_text(parameters: Sequence[str], names: Sequence[str]) -> str:
    """The functions that make, launch and forget graphs. `parameters` and `names`: of what their work takes."""
    work = f"typedef int Work({', '.join(parameters)});"
    head = "static int repeat(const Device *gpu, st_host *host, int site, Graph *graph, Work *work, "
    return _REPEAT.format(
        head=wrapped(head + ", ".join(parameters[2:]) + ")"),
        work=work if SIZES not in names else wrapped(work),
        arguments=", ".join(names),
    )


def parts(iterations: Sequence[Iteration], known: Mapping[str, int], offset: int) -> list[DevicePart]:
    """The parts that are created once: places in the arena from `offset` on. Graphs are created when they are first
    used.

    `known`: the tables of the caller's addresses that they know, with the numbers of addresses.
    """
    found = []
    most = most_sizes(iterations)
    for name, count in known.items():
        field = Field(f"const void *{name}[{count}];", "addresses that graphs know", WORD * count)
        found.append(DevicePart((field,), (), ()))
    for iteration in iterations:
        graph = Field(f"Graph {iteration.graph};", "", 2 * WORD)
        if iteration.sizes:
            graph = Field(f"SizedGraph {iteration.graph}[{MOST_GRAPHS}];", "", MOST_GRAPHS * (2 + most) * WORD)
        fields, opens = [graph], []
        if iteration.fields:
            fields.append(Field(f"{iteration.type} *{iteration.name};", "what its kernels read of a turn"))
            opens.append(f"gpu->{iteration.name} = ({iteration.type} *)(void *)(gpu->memory + {offset});")
            offset += aligned(iteration.nbytes, DEVICE_ALIGNMENT)
        forget, graphs = iteration.forget
        found.append(DevicePart(tuple(fields), tuple(opens), (f"{forget}({graphs});",)))
    return found


def add_check_of_arguments(
    code: CodeBuilder, iterations: Sequence[Iteration], arguments: Sequence[str], layers: Mapping[str, str]
) -> None:
    """Add a check to the entry: graphs that know other addresses than this call's are made anew.

    `arguments` are fields of the argument struct. `layers` are the tables that know its arrays for layers.
    """
    if not arguments and not layers:
        return
    code.comment("Graphs know these addresses: where one has changed they are made anew.")
    copies: list[tuple[Expr, Expr, Expr]] = []
    if arguments:
        known = Variable("known", CType("const void *const"))
        values = Items(tuple(member("args", name) for name in arguments))
        code.add(Declare(known, values, is_const=False, sizes=(Literal(""),)))
        copies.append((member("gpu", KNOWN), known, Prefix("sizeof ", known)))
    for name, array in layers.items():
        table = member("gpu", name)
        copies.append((table, member("args", array), Prefix("sizeof ", table)))
    differ = [Infix("!=", call("memcmp", *copy), Literal("0")) for copy in copies]
    with code.branch(differ[0] if len(differ) == 1 else Junction("||", tuple(differ))):
        for iteration in iterations:
            code.do(*iteration.forget)
        for copy in copies:
            code.do("memcpy", *copy)
