"""Functions of a program with a device: what their calls work on there, and what calls keep there for their reverse.

Control flow, numbers and frames are the host's. The arrays of one call, and the arrays that its frame holds, are pieces
of two stores of device memory that grow in chunks (`code/support/frames.py`) and are given back in the opposite
order: all of one call's arrays are one piece, planned while staging, and so are those of a frame. Work is in one
stream, in order, so that a piece may be given out again as soon as the host has given it back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.backends.cublas_cudnn.device import DevicePart, Field
from staged.backends.cublas_cudnn.peers import DEVICES, device_field
from staged.backends.host.functions import OWN_ON_DEVICE, CFunction
from staged.code.expr import Expr, Prefix
from staged.code.writer import Writer, safe_comment
from staged.ir.buffers import aligned
from staged.ir.nodes import FrameRecord
from staged.ir.types import CPU, Device, TensorType, shape_text

CALLS, FRAMES = "calls", "frames"
"""The stores, as fields of `Device`."""

STORES = """\
// ---- stores of device memory ---------------------------------------------------------------------
// A piece of the device's memory, aligned to 256 bytes, from chunks that are kept; NULL once `host` holds the report.
static unsigned char *st_device_push(st_host *host, st_frames *store, int site, int64_t bytes, const char *what) {
    const int64_t needed = (bytes + 255) / 256 * 256;
    st_chunk *chunk = st_frames_room(store, needed);
    if (chunk == NULL) {
        const int64_t size = st_frames_growth(store, needed);
        void *data = NULL;
        const cudaError_t given = cudaMalloc(&data, (size_t)size);
        chunk = given == cudaSuccess ? st_frames_add(store, (unsigned char *)data, size) : NULL;
        if (chunk == NULL) {
            (void)cudaFree(data);
            const bool is_full = given == cudaSuccess || given == cudaErrorMemoryAllocation;
            (void)st_fail(host, is_full ? ST_MEMORY_ERROR : ST_RUNTIME_ERROR, site,
                          "cudaMalloc of %lld bytes for %s, which have %lld bytes on the device: %s", (long long)size,
                          what, (long long)st_frames_mark(store), cudaGetErrorString(given));
            return NULL;
        }
    }
    unsigned char *const place = chunk->data + chunk->used;
    chunk->used += needed;
    return place;
}

// Give the memory itself back.
static void st_device_free(st_frames *store) {
    for (st_chunk *chunk = store->first; chunk != NULL;) {
        st_chunk *const next = chunk->next;
        (void)cudaFree(chunk->data);
        free(chunk);
        chunk = next;
    }
    store->first = NULL;
    store->current = NULL;
}
"""


def stores_part(calls: bool, frames: bool) -> DevicePart:
    """The stores that a program has: for what open calls work on, for what frames hold."""
    fields, closes = [], []
    for name, note, wanted in (
        (CALLS, "grows: the arrays of open calls", calls),
        (FRAMES, "grows: the arrays that calls keep for gradients", frames),
    ):
        if wanted:
            fields.append(Field(f"st_frames {name};", note, 16))
            closes.append(f"st_device_free(&gpu->{name});")
    return DevicePart(tuple(fields), (), tuple(closes))


def host_part(frames: int | None, own_stack: int | None) -> DevicePart:
    """Giving back what functions have grown on the host; the numbers say where the heads are in the host's arena."""
    closes = []
    if frames is not None:
        closes.append(f"st_frames_free((st_frames *)(void *)((unsigned char *)arena + {frames}));")
    if own_stack is not None:
        closes.append(f"st_own_stack_release((st_own_stack *)(void *)((unsigned char *)arena + {own_stack}));")
    return DevicePart((), (), tuple(closes))


def write_device_locals(w: Writer, made: CFunction, name: str) -> None:
    """The struct of where one call has its arrays on the device, or devices."""
    w.comment(f"Where one call of `{made.signature.name}` has its arrays on the device.")
    rows = []
    for buffer in (
        buffer for device in sorted(made.plan.local_bytes, key=str) for buffer in made.plan.local_buffers(device)
    ):
        member = str(made.structure.places[buffer]).removeprefix(f"{OWN_ON_DEVICE}.")
        where = f"  {buffer.where.short}  {buffer.where.text}" if buffer.where else ""
        rows.append((f"{buffer.type.dtype.c_name} *{member};", shape_text(buffer.type.shape) + where))
    width = max(len(declaration) for declaration, _ in rows)
    with w.block("typedef struct", f" {name};"):
        for declaration, note in rows:
            w.line(f"{declaration:<{width}}  // {safe_comment(note)}")


def has_device_fields(record: FrameRecord) -> bool:
    """Return whether a frame holds arrays of a device."""
    return any(is_device_array(record, number) for number in range(len(record.fields)))


def is_device_array(record: FrameRecord, number: int) -> bool:
    """Return whether a field is an array of a device; sequences say themselves where their elements are."""
    return record.device(number) != CPU and isinstance(record.fields[number][1], TensorType)


def fields_on(record: FrameRecord, device: Device) -> list[int]:
    """The fields of a frame that are arrays of a device."""
    return [n for n in range(len(record.fields)) if is_device_array(record, n) and record.device(n) == device]


def frame_bytes(record: FrameRecord, device: Device) -> int:
    """The bytes of one frame in a device's memory."""
    return sum(
        aligned(type.nbytes) for n in fields_on(record, device) if isinstance(type := record.fields[n][1], TensorType)
    )


def maker_name(c_name: str) -> str:
    """The function that makes a frame of this C type."""
    return f"new_{c_name}"


def frame_maker(record: FrameRecord, c_name: str, fields: Sequence[str], site: int, devices: Sequence[Device]) -> str:
    """The function that takes a frame from the program's store, and memory for its arrays from the device's, or the
    devices'.
    """
    w = Writer()
    w.comment("A frame, and what it has on the device; NULL once `host` holds the report.")
    given = "gpu" if len(devices) == 1 else DEVICES
    with w.block(f"static {c_name} *{maker_name(c_name)}(const Buffers *m, Device *{given}, st_host *host)"):
        w.line(f"{c_name} *const frame = ({c_name} *)st_frames_push(host, m->frames, sizeof({c_name}));")
        used = [device for device in devices if fields_on(record, device)]
        if used:
            with w.block("if (frame == NULL)"):
                w.line("return NULL;")
        else:
            w.line(f"(void){given};")
        if len(devices) > 1 and used:
            w.line(f"Device *gpu = {DEVICES};")
        for device in used:
            if len(devices) > 1:
                with w.block(f"if (use_device(&gpu, &{DEVICES}[{devices.index(device)}]) != cudaSuccess)"):
                    w.line(f'(void)st_fail(host, ST_RUNTIME_ERROR, {site}, "cudaSetDevice(%d) fails", gpu->number);')
                    w.line("return NULL;")
            arrays = "arrays" if len(used) == 1 else f"arrays_{device.index}"
            offset, lines = 0, []
            for number in fields_on(record, device):
                type = record.fields[number][1]
                assert isinstance(type, TensorType)
                lines.append(f"frame->{fields[number]} = ({type.dtype.c_name} *)(void *)({arrays} + {offset});")
                offset += aligned(type.nbytes)
            nbytes = max(frame_bytes(record, device), 1)
            push = f'st_device_push(host, &gpu->{FRAMES}, {site}, {nbytes}, "what calls keep for gradients")'
            w.line(f"unsigned char *const {arrays} = {push};")
            with w.block(f"if ({arrays} == NULL)"):
                w.line("return NULL;")
            for line in lines:
                w.line(line)
        w.line("return frame;")
    return str(w)


def frame_makers(
    records: Sequence[FrameRecord],
    names: Mapping[str, str],
    fields: Mapping[str, Sequence[str]],
    site: int,
    devices: Sequence[Device],
) -> list[str]:
    """These functions for all frames of a program."""
    return [frame_maker(record, names[record.name], fields[record.name], site, devices) for record in records]


def stores_in_use(store: str, devices: Sequence[Device]) -> list[Expr]:
    """The address of one of the stores on each of a program's devices."""
    return [Prefix("&", device_field(device, devices, store)) for device in devices]
