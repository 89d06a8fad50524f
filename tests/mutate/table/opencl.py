"""Faults planted in the OpenCL back end, and in what it shares with that of CUDA."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

_PROGRAMS = "tests/backends/opencl/test_programs.py"
_GPU_FUNC = "tests/backends/opencl/test_gpu_func.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an atomic sum forgets what was there",
        "backends.opencl.dialect:find_snippet",
        '"was.value + value"',
        '"value"',
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "what a kernel of the user's does not write is not there",
        "backends.gpu.thread_kernels:begin_launch",
        "structure.copy(output, inputs[number], op.operands[number].tensor)",
        "pass",
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "blocks of a kernel of the user's are rows",
        "code.printer:Printer.head",
        "function.block or (function.threads, 1, 1)",
        "(function.threads, 1, 1)",
        (_GPU_FUNC, "-k", "threads_in_python"),
    ),
    Mutant(
        "storage that grows on the device loses what it has kept",
        "backends.opencl.file:_STACKS",
        Text("OCL_CHECK(site, st_ocl_copy(gpu->device, data, stack->data, used));"),
        "",
        (_PROGRAMS, "-k", "gives_what_the_host_gives"),
    ),
    Mutant(
        "a NaN on the device stops nothing",
        "backends.opencl.structure:OpenClBody.emit_finite_check",
        'self.leave_if(Prefix("!", is_finite))',
        "",
        (_PROGRAMS, "-k", "a_nan"),
    ),
    Mutant(
        "drivers are found only beside what is linked",
        "runtime.opencl:_built",
        '"-Wl,--disable-new-dtags,-rpath,"',
        '"-Wl,-rpath,"',
        (_PROGRAMS, "-k", "loader"),
    ),
    Mutant(
        "a name bound behind `and` is bound anyway",
        "frontend.constructs.boolean:_connect",
        "attempt.has_bound()",
        "False",
        ("tests/frontend/test_boolean.py",),
    ),
    Mutant(
        "a guard does not see what its pattern binds",
        "frontend.constructs.match_:convert_match",
        "both if bound else guard",
        "guard",
        ("tests/frontend/test_match.py",),
    ),
)
