"""The machine that this process runs on: vector width, caches, and the number of threads for a program."""

from __future__ import annotations

import hashlib
import math
import os
import platform
from functools import cache
from pathlib import Path

from staged.base.launcher import this_job
from staged.errors import StagedError
from staged.ir.machine import PORTABLE, Machine

_CPU_FOLDER = Path("/sys/devices/system/cpu")


@cache
def native_machine() -> Machine:
    """The machine this process runs on, for text that is compiled with `-march=native`.

    Unknown properties keep the portable values. `cores` is `default_threads()`.
    """
    architecture = platform.machine()
    features = _cpu_features()
    vector_bytes, registers, fma = PORTABLE.vector_bytes, PORTABLE.vector_registers, PORTABLE.fma
    if {"avx512f", "avx512vl", "avx512dq", "avx512bw"} <= features:
        vector_bytes, registers, fma = 64, 32, True
    elif {"avx2", "fma"} <= features:
        vector_bytes, registers, fma = 32, 16, True
    elif architecture in ("aarch64", "arm64"):
        vector_bytes, registers, fma = 16, 32, True
    caches = _cache_sizes()
    return Machine(
        name="native",
        cores=default_threads(),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        l1=caches.get(1, PORTABLE.l1),
        l2=caches.get(2, PORTABLE.l2),
        l3=caches.get(3, PORTABLE.l3),
        fma=fma,
        march="native",
    )


def default_threads() -> int:
    """The number of threads of a program: `$STAGED_NUM_THREADS`, else the cores that this process may use.

    Counts physical cores (two threads of one core share its multipliers) among those that the process may run on, and
    at most what its control group allows. The ranks of this node share them, unless each has its own.
    """
    asked = os.environ.get("STAGED_NUM_THREADS", "").strip()
    if asked:
        if not asked.isascii() or not asked.isdigit() or int(asked) < 1:
            raise StagedError(
                f"STAGED_NUM_THREADS is {asked!r}, which is no number of threads",
                hint="set it to a whole number of at least 1, or unset it",
            )
        return int(asked)
    return max(1, _usable_cores() // (1 if _is_bound() else this_job().local_ranks))


@cache
def cpu_signature() -> str:
    """A digest of the CPU's model and features: code compiled for `native` is only valid where it is the same."""
    lines = [platform.machine(), platform.processor()]
    for line in _cpuinfo().split("\n\n")[0].splitlines():
        key = line.partition(":")[0].strip()
        if key in (
            "vendor_id",
            "cpu family",
            "model",
            "model name",
            "flags",
            "Features",
            "CPU part",
            "CPU implementer",
        ):
            lines.append(line)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""


def _cpu_features() -> set[str]:
    for line in _cpuinfo().splitlines():
        key, _, values = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(values.split())
    return set()


def _cache_sizes() -> dict[int, int]:
    """Bytes of the data cache that one core sees, by level."""
    sizes: dict[int, int] = {}
    for index in sorted(_CPU_FOLDER.glob("cpu0/cache/index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            size = (index / "size").read_text().strip()
            level = int((index / "level").read_text())
            sizes[level] = int(size.rstrip("KMG")) << {"K": 10, "M": 20, "G": 30}.get(size[-1:], 0)
        except (OSError, ValueError):
            continue
    return {level: size for level, size in sizes.items() if size > 0}


def _usable_cores() -> int:
    try:
        cpus = os.sched_getaffinity(0)
    except AttributeError:  # not on this system
        cpus = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        try:
            cores.add((_CPU_FOLDER / f"cpu{cpu}/topology/thread_siblings_list").read_text())
        except OSError:
            cores.add(str(cpu))
    return max(1, min(len(cores), _group_limit()))


def _is_bound() -> bool:
    """Return whether the launcher, which is the parent of this process, has bound the rank to some of its cores."""
    try:
        return os.sched_getaffinity(0) < os.sched_getaffinity(os.getppid())
    except (AttributeError, OSError):
        return False


def _group_limit() -> int:
    """The number of cores that the control group's quota amounts to."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        return 1 << 30
