"""Errors in OpenCL C kernels that stop the program: the first failing thread writes a record on the device."""

from __future__ import annotations

from staged.backends.gpu.failures import KINDS
from staged.code.support.library import SupportFunction

RECORD_TYPE = """\
// What a kernel says when it must not go on. The first to fail claims the record.
typedef struct {
    uint claim;  // 0: nothing has failed; else what, and where: site * 16 + kind + 1
    ulong value;
    long limit;
} st_device_failure;
"""
DECLARATIONS = RECORD_TYPE + KINDS

FAIL = SupportFunction(
    "void",
    "st_fail",
    """\
(__global st_device_failure *failed, int kind, int site, int64_t value, int64_t limit) {
    if (atomic_cmpxchg((volatile __global uint *)&failed->claim, 0u, 16u * (uint)site + (uint)kind + 1u) == 0u) {
        failed->value = (ulong)value;
        failed->limit = limit;
    }
}
""",
    comment="// The first failure stands.\n",
)

WAIT = """\
// Waits for the device, and stops the program if a kernel has found that it must not go on.
static int wait_for_device(const Device *gpu, st_host *host, int waiting_site) {
    st_device_failure failed;
    OCL_CHECK(waiting_site, st_ocl_copy(gpu->device, &failed, gpu->failed, sizeof failed));
"""
