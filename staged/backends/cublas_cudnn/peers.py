"""Programs with several GPUs: a `Device` for each, one of which is the current one, and copies between them.

    Device *const devices = ...;           // all of them, lowest number first
    Device *gpu = devices;                 // the one that what follows is for; CUDA calls it the current device

Each has a stream of its own. A copy from one to another waits, in the stream of its target, until the source's stream
has made what is copied, and what comes later in the source's stream waits until it has been read: two events, and the
host for nothing.

Tested by `tests/backends/cublas_cudnn/test_two_devices.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.cublas_cudnn.device import DevicePart, Field, check, destroy, write_closes
from staged.backends.host.body import LEAVE, OK
from staged.code.expr import (
    Expr,
    Index,
    Infix,
    Junction,
    Literal,
    Member,
    Name,
    Prefix,
    Sizeof,
    Variable,
    call,
    member,
)
from staged.code.tree import Assign, CodeBuilder
from staged.code.types import SHORT_INDEX
from staged.code.writer import Writer
from staged.ir import structure
from staged.ir.functions import every_function
from staged.ir.nodes import Function
from staged.ir.storage import structural_ops
from staged.ir.types import CPU, Device

USE = """\
// The device of what follows.
static cudaError_t use_device(Device **gpu, Device *wanted) {
    *gpu = wanted;
    return cudaSetDevice(wanted->number);
}
"""

COPY = """\
// Copies from one device to another, in the order of both streams: when the source has been made, and before it is
// overwritten.
static int copy_from_peer(const Device *gpu, const Device *from, st_host *host, int site, void *target,
        const void *source,
                          size_t bytes) {
    CUDA_CHECK(site, cudaEventRecord(from->reached, from->stream));
    CUDA_CHECK(site, cudaStreamWaitEvent(gpu->stream, from->reached, 0));
    CUDA_CHECK(site, cudaMemcpyPeerAsync(target, gpu->number, source, from->number, bytes, gpu->stream));
    CUDA_CHECK(site, cudaEventRecord(gpu->reached, gpu->stream));
    CUDA_CHECK(site, cudaStreamWaitEvent(from->stream, gpu->reached, 0));
    return ST_OK;
}
"""

_ALLOW = """\
// Lets the current device reach the memory of another without the host's, where the two are connected so.
static cudaError_t reach_peer(int own, int other) {
    int can = 0;
    cudaError_t status = cudaDeviceCanAccessPeer(&can, own, other);
    if (status != cudaSuccess || !can) {
        return status;  // copies go through the host's memory then
    }
    status = cudaDeviceEnablePeerAccess(other, 0);
    if (status == cudaErrorPeerAccessAlreadyEnabled) {
        status = cudaSuccess;  // by another program, say
        (void)cudaGetLastError();
    }
    return status;
}
"""

DEVICES = "devices"
"""The structs of a program's devices, where it has several; `gpu` then points to one of them."""
WORDS = (DEVICES, "use_device", "copy_from_peer", "reach_peer")
"""The names that these texts declare."""


def devices_of(function: Function) -> tuple[Device, ...]:
    """The GPUs that a program runs on, or that have its results, lowest number first; those that the host copies from
    if there are none.

    Exact: those of functions that are called, too; the order does not depend on which one the text uses first.
    """
    ops = [op for each in every_function(function) for op in structural_ops(each.block)]
    found = {device for device in (*(op.device for op in ops), *function.result_devices) if device != CPU}
    found = found or {op.attrs["source"] for op in ops if op.declared is structure.COPY}
    assert found, "a program without a device is the native back end's"
    return tuple(sorted(found, key=lambda device: (device.kind, device.index)))


def device_field(device: Device, devices: Sequence[Device], name: str) -> Expr:
    """A field of a device's struct."""
    if len(devices) == 1:
        return member("gpu", name)
    return Member(Index(Name(DEVICES), Literal(str(devices.index(device)))), name, arrow=False)


def peer_part(site: int, device: Device, devices: Sequence[Device]) -> DevicePart:
    """The part of one of several devices for the copies between them.

    Exact: bytes are copied whether or not one device reaches the other's memory; of the events, one keeps the copy
    behind what makes its source, the other keeps what overwrites the source behind the copy.
    """
    made = check("CUDA_CHECK", site, "cudaEventCreateWithFlags(&gpu->reached, cudaEventDisableTiming)")
    allowed = [
        check("CUDA_CHECK", site, f"reach_peer({device.index}, {other.index})") for other in devices if other != device
    ]
    return DevicePart(
        (
            Field("int number;", "what CUDA calls the device"),
            Field("cudaEvent_t reached;", "where its stream is, for another one's"),
        ),
        (f"gpu->number = {device.index};", made, *allowed),
        destroy("gpu->reached", "cudaEventDestroy(gpu->reached)"),
        helpers=(_ALLOW,),
    )


def records_part(count: int) -> DevicePart:
    """The failure records of all devices' kernels, which every wait reads.

    Exact: a device may have waited for another one's work, so that its own record alone does not say whether that is
    right.
    """
    return DevicePart(
        (Field(f"st_device_failure *records[{count}];", "what the kernels of each device report", 8 * count),), (), ()
    )


def opener(device: Device) -> str:
    """The function that opens one of several devices."""
    return f"open_device_{device.index}"


def add_opening(
    code: CodeBuilder, name: str, site: int, devices: Sequence[Device], kernels_may_fail: bool, finite_checks: bool
) -> None:
    """Add statements of the entry point, after `devices`: each is opened by the first call.

    Exact: what an earlier call has reported is forgotten on each of the devices, before any work.
    """
    # The last one first: if there are fewer, nothing has been made yet.
    for place in reversed(range(len(devices))):
        struct = Index(Name(DEVICES), Literal(str(place)))
        code.do("CUDA_CHECK", site, call("cudaSetDevice", devices[place].index))
        fails = Infix("!=", call(opener(devices[place]), Prefix("&", struct), "host"), OK)
        with code.branch(Junction("&&", (Prefix("!", Member(struct, "is_open", arrow=False)), fails))):
            code.do(f"{name}_release", "arena")
            code.add(LEAVE)
    if kernels_may_fail:
        each = Variable("each", SHORT_INDEX)

        def of(index: Expr, name: str) -> Expr:
            return Member(Index(Name(DEVICES), index), name, arrow=False)

        with code.loop(each, Literal("0"), Literal(str(len(devices)))):
            for place in range(len(devices)):
                number = Literal(str(place))
                code.add(Assign(Index(of(each, "records"), number), of(number, "failed")))
            code.do("CUDA_CHECK", site, call("cudaSetDevice", of(each, "number")))
            forget = of(each, "failed"), 0, Sizeof("st_device_failure"), of(each, "stream")
            code.do("CUDA_CHECK", site, call("cudaMemsetAsync", *forget))
            if finite_checks:
                code.add(Assign(of(each, "finite_checks"), Literal("0")))


def write_release_of_all(
    w: Writer, name: str, offset: int, devices: Sequence[Device], parts: Sequence[Sequence[DevicePart]]
) -> None:
    """`NAME_release` for several devices, the last one first; `parts` are those of each."""
    with w.block(f"void {name}_release(void *arena)"):
        w.line(f"Device *const devices = (Device *)(void *)((unsigned char *)arena + {offset});")
        w.comment("Nobody is left to be told of an error.")
        for place in reversed(range(len(devices))):
            with w.block(""):
                w.line(f"Device *const gpu = &devices[{place}];")
                w.line(f"(void)cudaSetDevice({devices[place].index});")
                write_closes(w, parts[place])
                w.line("memset(gpu, 0, sizeof *gpu);")
