"""Faults planted in the OpenCL back end, and in what it shares with that of CUDA."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_PROGRAMS = "tests/backends/opencl/test_programs.py"
_GPU_FUNC = "tests/backends/opencl/test_gpu_func.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an atomic sum forgets what was there",
        "staged/backends/opencl/dialect.py",
        '"was.value + value"',
        '"value"',
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "what a kernel of the user's does not write is not there",
        "staged/backends/gpu_family/thread_kernels.py",
        "            structure.copy(output, inputs[number], op.operands[number].tensor)\n",
        "            pass\n",
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "blocks of a kernel of the user's are rows",
        "staged/backends/c_family/code/printer.py",
        "*(function.block or (function.threads, 1, 1))",
        "*(function.threads, 1, 1)",
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "storage that grows on the device loses what it has kept",
        "staged/backends/opencl/file.py",
        "        OCL_CHECK(site, st_ocl_copy(gpu->device, data, stack->data, used));\n",
        "",
        (_PROGRAMS, "-k", "gives_what_the_host_gives"),
    ),
    Mutant(
        "a NaN on the device stops nothing",
        "staged/backends/opencl/structure.py",
        '            self.leave_if(Prefix("!", is_finite))\n',
        "",
        (_PROGRAMS, "-k", "a_nan"),
    ),
    Mutant(
        "drivers are found only beside what is linked",
        "staged/runtime/opencl/__init__.py",
        "-Wl,--disable-new-dtags,-rpath,",
        "-Wl,-rpath,",
        (_PROGRAMS, "-k", "loader"),
    ),
    Mutant(
        "a name bound behind `and` is bound anyway",
        "staged/frontend/constructs/boolean.py",
        "        if attempt.has_bound():\n",
        "        if False:\n",
        ("tests/frontend/test_boolean.py",),
    ),
    Mutant(
        "a guard does not see what its pattern binds",
        "staged/frontend/constructs/match_.py",
        "both if bound else guard",
        "guard",
        ("tests/frontend/test_match.py",),
    ),
)
