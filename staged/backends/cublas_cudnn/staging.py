"""Copies of a loop's next batch to the device while it works on the batch before.

    for x, y in batches:                  # on the host
        with with_backend(GPU, x, y):     # a copy each, in every iteration
            ...

Memory that is not pinned is copied when the driver sees fit, which may be after all work before it. So in a loop an
array goes by way of two pieces of pinned memory, on a stream of its own, to two places on the device; the program's
stream waits for its arrival alone, and takes it from there to where the program has it. The host waits only where it is
two iterations ahead.

    iteration i      host: memcpy   copies: ==to the device==>             program: wait, take, work on it ......
    iteration i + 1  host: memcpy   copies: ==to the device==> wait, take, ...
"""

from __future__ import annotations

from dataclasses import dataclass, field

from staged.backends.cublas_cudnn.device import WORD, DevicePart, Field, check
from staged.code.expr import Expr, Prefix, call, member
from staged.code.writer import Names
from staged.ir.buffers import DEVICE_ALIGNMENT, aligned

TYPE = """\
// How an array of the host reaches the device in every turn of a loop: by two pieces of pinned memory, one turn's and
// the next one's, and two places on the device.
typedef struct {
    unsigned char *pinned[2];
    unsigned char *arrived[2];
    cudaEvent_t copied[2];  // from then on the pinned memory may be written again
    cudaEvent_t taken[2];   // from then on the device's place may be
    int next;
} Staging;
"""
_TYPE_BYTES = 9 * WORD

_OPEN = """\
static int open_staging(Staging *staging, st_host *host, int site, unsigned char *places, size_t bytes, size_t apart) {
    for (int k = 0; k < 2; ++k) {
        void *pinned = NULL;
        CUDA_CHECK(site, cudaMallocHost(&pinned, bytes));
        staging->pinned[k] = (unsigned char *)pinned;
        staging->arrived[k] = places + (size_t)k * apart;
        CUDA_CHECK(site, cudaEventCreateWithFlags(&staging->copied[k], cudaEventDisableTiming));
        CUDA_CHECK(site, cudaEventCreateWithFlags(&staging->taken[k], cudaEventDisableTiming));
    }
    return ST_OK;
}

static void close_staging(Staging *staging) {
    for (int k = 0; k < 2; ++k) {
        if (staging->copied[k] != NULL) {
            (void)cudaEventDestroy(staging->copied[k]);
        }
        if (staging->taken[k] != NULL) {
            (void)cudaEventDestroy(staging->taken[k]);
        }
        if (staging->pinned[k] != NULL) {
            (void)cudaFreeHost(staging->pinned[k]);
        }
    }
}

// To the device, beside what it does: the host goes on at once, and `source` may change. Work that follows finds
// `target` filled.
static int copy_beside(const Device *gpu, st_host *host, int site, Staging *staging, void *target, const void *source,
        size_t bytes) {
    const int k = staging->next;
    staging->next = 1 - k;
    CUDA_CHECK(site, cudaEventSynchronize(staging->copied[k]));  // of two turns ago
    memcpy(staging->pinned[k], source, bytes);
    CUDA_CHECK(site, cudaStreamWaitEvent(gpu->copies, staging->taken[k], 0));
    CUDA_CHECK(site, cudaMemcpyAsync(staging->arrived[k], staging->pinned[k], bytes, cudaMemcpyHostToDevice,
            gpu->copies));
    CUDA_CHECK(site, cudaEventRecord(staging->copied[k], gpu->copies));
    CUDA_CHECK(site, cudaStreamWaitEvent(gpu->stream, staging->copied[k], 0));
    CUDA_CHECK(site, cudaMemcpyAsync(target, staging->arrived[k], bytes, cudaMemcpyDeviceToDevice, gpu->stream));
    CUDA_CHECK(site, cudaEventRecord(staging->taken[k], gpu->stream));
    return ST_OK;
}
"""


@dataclass(frozen=True, slots=True)
class _Staged:
    name: str
    """The field of `Device`."""
    nbytes: int


@dataclass(slots=True)
class Stagings:
    """The arrays that a program's loops copy to the device."""

    names: Names = field(default_factory=Names)
    arrays: list[_Staged] = field(default_factory=list)

    def call(self, site: int, hint: str, target: Expr, source: Expr, nbytes: int, size: Expr) -> Expr:
        """The call that copies an array of `nbytes`, which are `size` in C.

        Exact: bytes are copied, in the order of the iterations: the host's array may change when the call is over; a
        piece of pinned memory is written again when the copy of two iterations ago has read it, a place when the
        program has taken what was there.
        """
        name = self.names.fresh(f"{hint or 'array'}_staging")
        self.arrays.append(_Staged(name, nbytes))
        return call("copy_beside", "gpu", "host", site, Prefix("&", member("gpu", name)), target, source, size)

    @property
    def nbytes(self) -> int:
        """Of the device's arena: two places for each array."""
        return sum(2 * aligned(each.nbytes, DEVICE_ALIGNMENT) for each in self.arrays)

    def types(self) -> list[str]:
        """The types that `Device` uses."""
        return [TYPE] if self.arrays else []

    def parts(self, site: int, offset: int) -> list[DevicePart]:
        """The second stream and the memory, with places in the device's arena from `offset` on.

        Exact: no two places overlap, those of one array's two iterations neither; the stream ends before its memory is
        given back.
        """
        if not self.arrays:
            return []
        fields, opens, closes = (
            [Field("cudaStream_t copies;", "of what comes from the host in the turns of loops")],
            [],
            [],
        )
        opens.append(check("CUDA_CHECK", site, "cudaStreamCreateWithFlags(&gpu->copies, cudaStreamNonBlocking)"))
        closes += [
            "if (gpu->copies != NULL) {",
            "    (void)cudaStreamSynchronize(gpu->copies);  // it may still read what is freed",
        ]
        closes += ["    (void)cudaStreamDestroy(gpu->copies);", "}"]
        for each in self.arrays:
            apart = aligned(each.nbytes, DEVICE_ALIGNMENT)
            fields.append(Field(f"Staging {each.name};", "", _TYPE_BYTES))
            place = f"&gpu->{each.name}, host, {site}, gpu->memory + {offset}, {each.nbytes}, {apart}"
            opens += [f"if (open_staging({place}) != ST_OK) {{", "    return host->error_kind;", "}"]
            closes.append(f"close_staging(&gpu->{each.name});")
            offset += 2 * apart
        return [DevicePart(tuple(fields), tuple(opens), tuple(closes), helpers=(_OPEN,))]
