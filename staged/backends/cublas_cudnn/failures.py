"""Errors in kernels that stop the program: the first failing thread writes a record on the device.

The host looks at it where it waits for the device anyway, and then raises what the same program on the CPU would have.
A kernel that has failed, and those behind it, still run to their end, with valid addresses and in place of an index out
of range with the first one, so that what depends on it stays within its bounds; their results are never used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staged.backends.gpu.failures import OTHERWISE, explain
from staged.code.support.library import SupportFunction
from staged.code.writer import Writer, c_string
from staged.ir.types import DType

FAIL = SupportFunction(
    "void",
    "st_fail",
    """\
(st_device_failure *failed, int kind, int site, int64_t value, int64_t limit) {
    if (atomicCAS(&failed->claim, 0u, 16u * (unsigned int)site + (unsigned int)kind + 1u) == 0u) {
        failed->value = (unsigned long long)value;
        failed->limit = limit;
    }
}
""",
    comment="// The first failure stands.\n",
)

FAIL_NOT_FINITE = SupportFunction(
    "void",
    "st_fail_not_finite",
    """\
(st_device_failure *failed, int check, unsigned int turn,
        int64_t position,
                                                 bool is_nan) {
    const unsigned int mine = 16u * (unsigned int)check + ST_DEVICE_NOT_FINITE + 1u;
    const unsigned int before = atomicCAS(&failed->claim, 0u, mine);
    if (before == 0u || before == mine) {
        const unsigned long long place = 2ull * (unsigned long long)position + is_nan;
        atomicMax(&failed->value, ~((unsigned long long)turn << ST_DEVICE_PLACE_BITS | place));
    }
}
""",
    comment="""\
// The first check that finds something stands, and of its numbers that are not finite the one at the lowest position.
// `check` says which check of the text it is, `turn` how many have been made before: later turns of a loop are not
// asked.
""",
)

_WAIT = """\
// Waits for the device, and stops the program if a kernel has found that it must not go on.
static int wait_for_device(const Device *gpu, st_host *host, int waiting_site) {
    st_device_failure failed;
    CUDA_CHECK(waiting_site, cudaMemcpyAsync(&failed, gpu->failed, sizeof failed, cudaMemcpyDeviceToHost, gpu->stream));
    CUDA_CHECK(waiting_site, cudaStreamSynchronize(gpu->stream));
"""
_WAIT_FOR_ONE = """\
// Waits for one of the devices, and stops the program if a kernel has found that it must not go on: one of its own, or
// one of another device, whose work it may have waited for.
static int wait_for_device(const Device *gpu, st_host *host, int waiting_site) {{
    st_device_failure failed, records[{count}];
    for (int each = 0; each < {count}; ++each) {{
        CUDA_CHECK(waiting_site, cudaMemcpyAsync(&records[each], gpu->records[each], sizeof failed,
                                                 cudaMemcpyDeviceToHost,
                                                 gpu->stream));
    }}
    CUDA_CHECK(waiting_site, cudaStreamSynchronize(gpu->stream));
    failed = records[0];
    for (int each = 1; each < {count} && failed.claim == 0; ++each) {{
        failed = records[each];
    }}
"""
_EXPLAIN = """\
// The error of a call that has returned before a kernel failed, from its report; ST_OK if no kernel failed.
int {name}(const void *report, st_host *host) {{
    st_device_failure failed;
    memcpy(&failed, report, sizeof failed);
"""
_FINITE = """\
// Looks for a NaN or an infinity in an array: the difference of such a number with itself is not zero.
extern "C" __global__ void __launch_bounds__({threads}) {name}(const {c_type} *x, int64_t count, int check,
                                                        unsigned int turn, st_device_failure *failed) {{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
        if (!(x[i] - x[i] == 0)) {{
            st_device_fail_not_finite(failed, check, turn, i, x[i] != x[i]);
            return;
        }}
    }}
}}
"""

_LAUNCH_FINITE = """\
// A thread for each element, up to {most} blocks, whose threads then take further ones
static cudaError_t launch_{name}(Device *gpu, const {c_type} *x, int64_t count, int check) {{
    unsigned int turn = gpu->finite_checks;
    gpu->finite_checks += turn < {most_checks};
    const int64_t blocks = (count + {last}) / {threads};
    void *values[] = {{&x, &count, &check, &turn, (void *)&gpu->failed}};
    const dim3 grid = st_dim3(blocks < {most} ? (unsigned int)blocks : {most});
    return cudaLaunchKernel(KERNEL({name}), grid, st_dim3({threads}), values, 0, gpu->stream);
}}
"""
_FINITE_BLOCKS = 1024
_FINITE_THREADS = 256


def finite_check_name(dtype: DType) -> str:
    """The kernel that looks for what is not finite in arrays of a dtype."""
    return f"check_finite_{dtype}_kernel"


def finite_check_kernel(dtype: DType) -> str:
    """The text of that kernel."""
    return _FINITE.format(name=finite_check_name(dtype), c_type=dtype.c_name, threads=_FINITE_THREADS)


def finite_check_launcher(dtype: DType) -> str:
    """The host function `launch_...(gpu, x, count, check)` that starts it."""
    return _LAUNCH_FINITE.format(
        name=finite_check_name(dtype),
        c_type=dtype.c_name,
        threads=_FINITE_THREADS,
        last=_FINITE_THREADS - 1,
        most=_FINITE_BLOCKS,
        most_checks=(1 << 24) - 1,
    )


def wait_for_device(checked: Sequence[tuple[int, str]], devices: int, snippets: Iterable[str], explainer: str) -> str:
    """The host function that waits and looks, in a program with so many devices, whose kernels use these snippets;
    `checked`: site and name of each array that is checked for NaN. A program that departs also has the function
    `explainer`, for the report that it leaves.
    """
    w = Writer()
    if checked:
        w.comment("What is checked for NaN and infinity, by the number of the check.")
        rows = ", ".join(f"{{{site}, {c_string(name)}}}" for site, name in checked)
        w.line(f"static const struct {{ int site; const char *name; }} checked[] = {{{rows}}};")
        w.line()
    if explainer:
        w.text(_EXPLAIN.format(name=explainer))
        _write_explanation(w, checked, snippets)
        w.line()
        w.text(_WAIT.replace("static int", "__attribute__((unused)) static int"))
        w.line(f"    return {explainer}(&failed, host);")
        w.line("}")
        return str(w)
    w.text(_WAIT if devices == 1 else _WAIT_FOR_ONE.format(count=devices))
    _write_explanation(w, checked, snippets)
    return str(w)


def _write_explanation(w: Writer, checked: Sequence[tuple[int, str]], snippets: Iterable[str]) -> None:
    """The end of a function that has the record in `failed`."""
    w.text(explain(snippets))
    if checked:
        w.line("    case ST_DEVICE_NOT_FINITE: {")
        w.line("        // The position, doubled, and whether it is NaN.")
        w.line("        const unsigned long long key = ~failed.value & ((1ull << ST_DEVICE_PLACE_BITS) - 1);")
        w.line('        return st_fail(host, ST_NAN_ERROR, checked[site].site, "`%s` has %s at position %lld",')
        w.line(
            '                       checked[site].name, key % 2 != 0 ? "NaN" : "an infinity", (long long)(key / 2));'
        )
        w.line("    }")
    w.text(OTHERWISE)
