"""A program's state on the device from its first call until its arena is freed, as parts: the stream, the memory, the
loaded kernels, and for each library a handle, descriptors and workspace.

    // What the program has on the device. The first call makes it; it lasts until the arena goes.
    typedef struct {
        int is_open;
        cudaStream_t stream;    // all work is on it, in order
        unsigned char *memory;  // 5,632 bytes
        cublasHandle_t cublas;
    } Device;

    static int open_device(Device *gpu, st_host *host)    makes the parts, in their order
    void NAME_release(void *arena)                        destroys them, in the opposite order

Every part is made once, however often its program runs. If one cannot be made, those before it are given back.

Tested by `tests/backends/cublas_cudnn/test_programs.py` and `tests/backends/cublas_cudnn/test_text.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from staged.code.expr import literal, member
from staged.code.types import Space, pointer, word
from staged.code.writer import Writer, c_string
from staged.ir.types import DType

Item = TypeVar("Item", bound=Hashable)

DEVICE = pointer(word("Device"), Space.GLOBAL)
"""The type of the address of what a program has on a device."""
STREAM = member("gpu", "stream")
"""The stream that all work is on."""
WORD = 8
"""Bytes of the host's arena for each field's items: no item of the struct is larger unless its part says so."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of `Device`: `declaration` with its semicolon, a note for people, the bytes that it takes at most."""

    declaration: str
    note: str = ""
    nbytes: int = WORD


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Some fields of `Device`, the C that makes what they hold, and the C that destroys it.

    `opens` are lines of `open_device`, where `gpu` is the struct, all zeros where nothing was made, and `host` takes
    errors; `closes` are lines of `NAME_release`, which also runs after `opens` failed halfway. `condition` is the
    preprocessor's, for a part that only some builds have. `includes`, `libraries` and `checks` (macros, in full) are
    what the part needs, `helpers` are functions that `opens` calls. Parts of a lower `order` are made before all of a
    higher one.
    """

    fields: tuple[Field, ...]
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    includes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    condition: str = ""
    checks: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """The types of its fields, in full."""
    order: int = 0
    beside: tuple[tuple[str, int | None], ...] = ()
    """Device memory that it allocates besides the arena: description, and bytes; None if a library determines them."""
    copied: tuple[tuple[str, int], ...] = ()
    """Values of the host that `opens` copies to the device: description, and bytes."""

    @property
    def nbytes(self) -> int:
        """The most bytes of the struct that the part takes."""
        return sum(field.nbytes for field in self.fields)


def check_macro(comment: str, library: str, status: str, success: str, words: str) -> str:
    """The text of `<LIBRARY>_CHECK`: a call that does not give `success`, of type `status`, stops the program with
    `words(status)`.
    """
    variable = status.removesuffix("Status_t").removesuffix("Error_t") + "_status"
    return f"""\
// {comment}
#define {library.upper()}_CHECK(site, call) \\
    do {{ \\
        const {status} {variable} = (call); \\
        if ({variable} != {success}) {{ \\
            return st_fail(host, ST_RUNTIME_ERROR, (site), "%s: %s (%s:%d)", \\
                           #call, {words}({variable}), __FILE__, __LINE__); \\
        }} \\
    }} while (0)
"""


def check(macro: str, site: int, call: str) -> str:
    """A checked call: `macro` is CUDA_CHECK or that of a library, `site` the number of the Python line."""
    return f"{macro}({site}, {call});"


def destroy(pointer: str, call: str) -> tuple[str, ...]:
    """The lines that destroy what `pointer` names, if it was made."""
    return (f"if ({pointer} != NULL) {{", f"    (void){call};", "}")


def stream_part(site: int) -> DevicePart:
    """The stream that all work of the program is on."""
    return DevicePart(
        (Field("cudaStream_t stream;", "all work is on it, in order"),),
        (check("CUDA_CHECK", site, "cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking)"),),
        destroy("gpu->stream", "cudaStreamDestroy(gpu->stream)"),
        ("cuda_runtime_api.h",),
        ("cudart",),
    )


def memory_part(site: int, nbytes: int, largest: str) -> DevicePart:
    """The device's arena: one allocation for every value that the program has there.

    `largest` names the arrays that take most of it, for the case that the device has no room.
    """
    kind = "given == cudaErrorMemoryAllocation ? ST_MEMORY_ERROR : ST_RUNTIME_ERROR"
    words = c_string(f"cudaMalloc of {nbytes:,} bytes: %s; most of it is for %s (`program.memory` has all)")
    opens = (
        "void *memory = NULL;",
        f"const cudaError_t given = cudaMalloc(&memory, {nbytes});",
        "if (given != cudaSuccess) {",
        f"    return st_fail(host, {kind}, {site},",
        f"                   {words},",
        f"                   cudaGetErrorString(given), {c_string(largest)});",
        "}",
        "gpu->memory = (unsigned char *)memory;",
    )
    return DevicePart(
        (Field("unsigned char *memory;", f"{nbytes:,} bytes"),),
        opens if nbytes else (),
        ("(void)cudaFree(gpu->memory);",),
    )


def workspace_part(offset: int, nbytes: int) -> DevicePart:
    """Workspace of kernels, behind the values in the device's arena: one after the other, they all use the same."""
    return DevicePart(
        (Field("unsigned char *scratch;", f"{nbytes:,} bytes, workspace of kernels"),),
        (f"gpu->scratch = gpu->memory + {offset};",),
        (),
    )


def failures_part(offset: int, finite_checks: bool) -> DevicePart:
    """The record in which kernels say why they must not go on, at the end of the device's arena; with a count of the
    checks for NaN and infinity, where there are some.
    """
    count = (Field("unsigned int finite_checks;", "how many this call has made"),) if finite_checks else ()
    return DevicePart(
        (Field("st_device_failure *failed;", "what kernels report"), *count),
        (f"gpu->failed = (st_device_failure *)(void *)(gpu->memory + {offset});",),
        (),
    )


def filled_part(site: int, dtype: DType, count: int, value: float) -> tuple[str, DevicePart]:
    """An array of `count` elements that are all `value`, 0 or 1, from the start: the field's name, and the part."""
    name = f"{'ones' if value else 'zeros'}_{dtype}_{count}"
    c_type = dtype.c_name
    helper = f"""\
// An array on the device that is `value` everywhere.
static int fill_{dtype}(const Device *gpu, st_host *host, int site, {c_type} value, size_t count, {c_type} **array) {{
    const cudaStream_t stream = gpu->stream;
    CUDA_CHECK(site, cudaMalloc((void **)array, count * sizeof({c_type})));
    CUDA_CHECK(site, cudaMemcpyAsync(*array, &value, sizeof({c_type}), cudaMemcpyHostToDevice, stream));
    for (size_t done = 1; done < count; done *= 2) {{
        const size_t size = (done < count - done ? done : count - done) * sizeof({c_type});
        CUDA_CHECK(site, cudaMemcpyAsync(*array + done, *array, size, cudaMemcpyDeviceToDevice, stream));
    }}
    CUDA_CHECK(site, cudaStreamSynchronize(stream));  // `value` goes
    return ST_OK;
}}
"""
    fill = f"fill_{dtype}(gpu, host, {site}, {literal(value, dtype)}, {count}, &gpu->{name})"
    return name, DevicePart(
        (Field(f"{c_type} *{name};"),),
        (f"if ({fill} != ST_OK) {{", "    return host->error_kind;", "}"),
        (f"(void)cudaFree(gpu->{name});",),
        copied=((name, dtype.size),),
        helpers=(helper,),
        beside=((f"{count:,} elements that are all {value:g}", count * dtype.size),),
    )


def kernels_part(site: int, name: str, count: int) -> DevicePart:
    """The compiled kernels, for builds in which host and kernels are compiled apart."""
    load = f"cudaLibraryLoadData(&gpu->library, {name}_image, NULL, NULL, 0, NULL, NULL, 0)"
    get = "cudaLibraryGetKernel(&gpu->kernels[number], gpu->library, names[number])"
    return DevicePart(
        (Field("cudaLibrary_t library;"), Field("cudaKernel_t kernels[KERNEL_COUNT + 1];", "", WORD * (count + 1))),
        (
            "#define KERNEL_NAME(name) #name,",
            "static const char *const names[] = {KERNELS(KERNEL_NAME) NULL};",
            check("CUDA_CHECK", site, load),
            "for (int number = 0; number < KERNEL_COUNT; ++number) {",
            f"    {check('CUDA_CHECK', site, get)}",
            "}",
        ),
        destroy("gpu->library", "cudaLibraryUnload(gpu->library)"),
        condition="HOST_ONLY",
    )


# ---- the text -----------------------------------------------------------------------------------


def distinct(items: Iterable[Item]) -> list[Item]:
    """Without repetitions, in the order of first use."""
    return list(dict.fromkeys(items))


def struct_bytes(parts: Sequence[DevicePart]) -> int:
    """Bytes that `Device` takes at most."""
    return WORD + sum(part.nbytes for part in parts)


def all_parts(parts_of_each: Iterable[Sequence[DevicePart]]) -> list[DevicePart]:
    """The parts of several devices, without duplicates: those that declare the same fields are one."""
    found: dict[object, DevicePart] = {}
    for parts in parts_of_each:
        for part in parts:
            found.setdefault(tuple(field.declaration for field in part.fields) or part, part)
    return list(found.values())


def write_struct(w: Writer, parts: Sequence[DevicePart]) -> None:
    """The type `Device`."""
    width = max(len(field.declaration) for part in parts for field in part.fields if field.note)
    w.comment("What the program has on the device. The first call makes it; it lasts until the arena goes.")
    with w.block("typedef struct", " Device;"):
        w.line("int is_open;")
        for part in parts:
            _conditional(
                w,
                part,
                [f"{f.declaration:<{width}}  // {f.note}" if f.note else f.declaration for f in part.fields],
            )


def write_helpers(w: Writer, parts: Sequence[DevicePart]) -> None:
    """The functions that opening needs."""
    for helper in distinct(helper for part in parts for helper in part.helpers):
        w.text(helper)
        w.line()


def write_open(w: Writer, parts: Sequence[DevicePart], name: str = "open_device") -> None:
    """`open_device`, which gives ST_OK with everything made, or an error with something of it missing."""
    with w.block(f"static int {name}(Device *gpu, st_host *host)"):
        for part in parts:
            _conditional(w, part, part.opens)
        w.line("gpu->is_open = 1;")
        w.line("return ST_OK;")


def write_release(w: Writer, name: str, offset: int, parts: Sequence[DevicePart], departs: bool) -> None:
    """`NAME_release`, for a struct at `offset` of the arena: destroys what there is, the last part first. A program
    that departs may have work left.
    """
    with w.block(f"void {name}_release(void *arena)"):
        w.line(f"Device *const gpu = (Device *)(void *)((unsigned char *)arena + {offset});")
        w.comment("Nobody is left to be told of an error.")
        if departs:
            with w.block("if (gpu->stream != NULL)"):
                w.line("(void)cudaStreamSynchronize(gpu->stream);  // the work of the last call may still be under way")
        write_closes(w, parts)
        w.line("memset(gpu, 0, sizeof *gpu);")


def write_closes(w: Writer, parts: Sequence[DevicePart]) -> None:
    """The lines that destroy the parts of `gpu`, the last one first."""
    for part in reversed(parts):
        _conditional(w, part, part.closes)


def _conditional(w: Writer, part: DevicePart, lines: Sequence[str]) -> None:
    if part.condition and lines:
        w.line(f"#ifdef {part.condition}")
    for line in lines:
        w.statement(line)
    if part.condition and lines:
        w.line("#endif")
