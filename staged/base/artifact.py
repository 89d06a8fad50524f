"""`Artifact`, which a back end returns and the runtime loads: the text of a program, its entry, and how to compile it.

The C interface of a generated program `NAME` is

    typedef struct NAME_args { <one field per parameter> } NAME_args;
    int NAME(const NAME_args *args, void *arena, st_host *host);

An input array is `const T *`, an input scalar `T`, an output or a variable `T *`. The Variables of equal layers are in
arrays of the struct. The arena is aligned to 64 bytes. The result is `ST_OK` or the `ErrorKind` that `host` explains.
A program that uses threads also has

    struct st_team *NAME_team_create(int threads);
    void NAME_team_destroy(struct st_team *team);

`HOST_STRUCT` is the one definition of `st_host`: back ends include it in the text, the runtime parses it with cffi.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

Role = Literal["input", "output", "variable"]
ScalarType = Literal[
    "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool", "f16", "bf16", "c64", "c128"
]  # fmt: skip


class ErrorKind(IntEnum):
    """Why a program stopped; `ST_<NAME>` in C."""

    OK = 0
    ASSERTION_ERROR = 1
    INDEX_ERROR = 2
    ZERO_DIVISION_ERROR = 3
    VALUE_ERROR = 4
    NAN_ERROR = 5
    INTERRUPTED = 6
    MEMORY_ERROR = 7
    FILE_ERROR = 8
    OVERFLOW_ERROR = 9
    RECURSION_ERROR = 10
    RUNTIME_ERROR = 11
    TYPE_ERROR = 12
    NOT_IMPLEMENTED_ERROR = 13


FailureKind = Literal[
    "assertion", "index", "zero_division", "value", "nan", "memory", "file", "overflow", "recursion", "runtime", "type",
    "not_implemented",
]  # fmt: skip
"""The errors with which an op can stop a program: `index` is `INDEX_ERROR`."""


HOST_STRUCT = """\
typedef struct st_host {
    // Where printed text goes, in whole lines where possible; NULL: standard output.
    void (*write)(void *context, const char *text, int64_t length);
    void *context;
    // Where the program reports that something else runs on this device, and for which line; NULL: standard error.
    void (*note)(void *context, int32_t site, const char *text);
    const volatile int *stop;  // another thread or a signal handler sets it to end the program early; may be NULL
    struct st_team *team;      // helper threads; NULL: everything runs on the calling thread
    int64_t stack_bytes;       // size of the stack of a program that recurses; 0: as large as usual
    int32_t live;              // 1: a progress bar, redrawn in place, makes sense there; 2: one stands on the line now
    int32_t error_kind;        // what stopped the program, and where; set once, by st_fail
    int32_t error_site;
    int32_t error_claimed;     // whoever turns it from 0 to 1 may write the message
    char message[512];
    int32_t text_length;       // printed text that waits for its end of line
    char text[1020];
} st_host;
"""


@dataclass(frozen=True, slots=True)
class Site:
    """A position in the user's Python that generated code can name: lines count from 1, columns from 0.

    `text` is the source line, for the case that the file cannot be read when the program runs.
    """

    file: str
    line: int
    column: int
    end_column: int
    function: str
    text: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One field of the program's argument struct.

    `label` is the user's name for it (`model.0.weight`). The field of a complex `dtype` has pairs of floats. An
    extent that is a str is a symbolic dimension: all parameters agree on it, and a scalar input of that name carries
    it if no input array has it. A `scalar` input is passed by value; a 0-d input array is not `scalar` unless the
    struct holds the number itself. An array on another `device` than 'cpu' is an address there, a multiple of
    `alignment` bytes and of the size of an element. `written` says of a variable whether the program may change it.

    For a size that the shapes of arrays have `part` is 'size', `most` its bound, `least` its smallest value, and
    `start` its value when the program was exported. For a generator of random numbers it is 'seed' or
    'counter': an exported program takes these as numbers with the default `start`, except one that is set before it is
    read (`is_set_first`).
    """

    field: str
    label: str
    dtype: ScalarType
    shape: tuple[int | str, ...]
    role: Role
    scalar: bool = False
    device: str = "cpu"
    written: bool = False
    part: str = ""
    start: int = 0
    is_set_first: bool = False
    alignment: int = 1
    is_uploaded: bool = False
    """True for an array of the host that the program copies to a device, perhaps after the call has returned."""
    key: str = ""
    """The name of a Variable in the `state_dict` of its module, in an exported folder; or empty."""
    file: str = ""
    """The file of an exported folder that has the array's elements; empty if the caller passes them."""
    most: int = 0
    least: int = 0
    """The bounds of a size."""
    index: int | None = None
    """Of a Variable that each of several equal layers has: the number of its layer. The struct has an array then."""
    array: str = ""
    """The array of structs, one for each layer, that has the field; empty if the field itself is an array. Without an
    `index`: the struct of a layer that has the field."""

    is_local: bool = False
    """True if the array may differ between MPI ranks: for a Variable, and in an exported folder."""

    @property
    def is_size(self) -> bool:
        """Return whether it is the size of a dimension, by its name, which the caller finds in the shapes of arrays."""
        return self.part == "size"

    @property
    def span(self) -> str:
        """The values of a size: `0 to 40`."""
        return f"{self.least} to {self.most}"

    @property
    def is_of_generator(self) -> bool:
        """Return whether it is part of the state of a generator of random numbers."""
        return self.part in ("seed", "counter")

    @property
    def entry(self) -> str:
        """The name in the argument struct of what has the parameter: a struct, an array for all layers, or a field."""
        return self.array or self.field

    @property
    def place(self) -> str:
        """Its place in the argument struct: `x`, `layer.x`, `weights[3]` or `blocks[3].x`."""
        if self.index is None:
            return f"{self.array}.{self.field}" if self.array else self.field
        return f"{self.entry}[{self.index}]" + (f".{self.field}" if self.array else "")

    @property
    def path(self) -> str:
        """The name of its flag and of its file in an exported folder."""
        return self.key or self.label

    @property
    def is_constant(self) -> bool:
        """True for an array that the program reads and does not write."""
        return self.role == "input" or (self.role == "variable" and not self.written)


def in_struct_order(parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters in the order of the argument struct: the layers of an array follow one another."""
    first: dict[tuple[str, ...], int] = {}
    for number, each in enumerate(parameters):
        first.setdefault((each.entry,), number)
        first.setdefault((each.entry, each.field), number)
    return sorted(parameters, key=lambda each: (first[each.entry,], each.index or 0, first[each.entry, each.field]))


@dataclass(frozen=True, slots=True)
class Artifact:
    """A generated program: `source` includes `header` as "NAME.h", or contains the same declarations.

    `target` names the machine it was written for; `flags` are the compiler flags for it (`-march=...`). `threads` is
    the number of threads: 0 means the machine's default, 1 the calling thread alone. `link` holds linker flags beyond
    those of every program of its language. `sites` maps error sites to Python positions; it is not part of the
    program's identity.
    """

    name: str
    source: str
    header: str
    parameters: tuple[Parameter, ...]
    arena_bytes: int
    threads: int = 0
    sites: tuple[Site, ...] = ()
    link: tuple[str, ...] = ()
    target: str = "portable"
    flags: tuple[str, ...] = ()
    contracts: bool = False
    """True if compilers may contract all products and sums into fused multiply-adds."""
    language: str = "c"
    """The language of the runtime that compiles and loads it."""
    grows: bool = False
    """True if the arena may own memory that grew in a call, which `void NAME_release(void *arena)` frees."""
    recursive: bool = False
    """True if the program runs on its own stack, of `host.stack_bytes`."""
    support: str = ""
    """Text of "NAME_support.h", which `source` includes; empty where it needs none."""
    pieces: tuple[tuple[str, str, tuple[str, ...]], ...] = field(default=(), compare=False)
    """The parts of `support` by name, each with the names of those that it needs; only of an exported program."""
    data: str = ""
    """Text of "NAME_data.c", which has the program's large constant arrays; empty where it has none."""
    gpus: tuple[int, ...] = (0,)
    """The numbers of the GPUs that a program with kernels runs on."""
    departs: bool = False
    """True if a call returns before the work on the device is over, which the event `departure` then follows."""
    has_ranks: bool = False
    """True if the program exchanges arrays with other ranks if it is compiled with MPI."""
    explains: bool = False
    """True if a kernel of such a program may fail: `NAME_explain` describes the failure in `report`."""
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The arrays in the files of an exported folder, by `Parameter.place`."""


@dataclass(frozen=True, slots=True)
class EventFields:
    """The last fields of the argument struct of a program with a device, in this order. An empty name is a field that
    the program does not have. No parameter has one of the names.
    """

    arrivals: str = ""
    """`void *const *`: CUDA's events, ended by NULL, after which arrays on a device may be used; or NULL."""
    departure: str = ""
    """`void *`: the CUDA event that the program records after its work."""
    report: str = ""
    """`void *`: pinned memory of `REPORT_BYTES`, zero at first, for the failure of a kernel."""


REPORT_BYTES = 32


def event_fields(parameters: Sequence[Parameter], departs: bool = False) -> EventFields:
    """The fields for events of a program with these parameters."""
    if not departs and all(parameter.role != "input" or parameter.device == "cpu" for parameter in parameters):
        return EventFields()
    taken = {parameter.entry for parameter in parameters}

    def free(name: str) -> str:
        while name in taken:
            name += "_"
        return name

    return EventFields(free("arrivals"), *((free("departure"), free("report")) if departs else ()))


def image_text(name: str, file: str) -> str:
    """Assembler text that includes the bytes of `file` as the array `NAME_image`: the compiled kernels."""
    return (
        "// The compiled kernels, as bytes that the program loads.\n"
        ".section .rodata\n"
        f".globl {name}_image\n"
        f".hidden {name}_image\n"
        ".balign 16\n"
        f"{name}_image:\n"
        f'.incbin "{file}"\n'
        '.section .note.GNU-stack, "", %progbits\n'
    )
