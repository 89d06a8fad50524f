"""Planted faults of how kernels are spread over a GPU's threads, and of graphs."""

from tests.mutate.mutant import Mutant, Text

GPU = "staged/backends/cublas_cudnn/"
TESTS = "tests/backends/cublas_cudnn/"
ON_SCATTER = (f"{TESTS}test_scatter.py", "-k", "rows_are_added or keeps_the_sign")
ON_TEAMS = (f"{TESTS}test_teams.py",)
ON_MAPPING = ("tests/backends/gpu/test_mapping.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "teams of threads multiply the totals of a new reduction",
        "backends.cublas_cudnn.reductions:_combined",
        "spell(combine, [dtype, dtype], dtype, [x, other], {}, need)",
        'spell("multiply", [dtype, dtype], dtype, [x, other], {}, need)',
        (f"{TESTS}test_reductions.py", "-k", "new_reduction"),
    ),
    Mutant(
        "a kernel takes the low bits of a number that does not fit",
        "backends.gpu.nest.statements:may_fail",
        "return True",
        "return False",
        (f"{TESTS}test_failures.py", "-k", "errors_are and fitted"),
    ),
    Mutant(
        "a kernel's report of a number names another dtype",
        "backends.gpu.support:_fit_function",
        "_FIT_TEXT.format(record=record, t=dtype.c_name, low=low, high=min(high, limits(i64)[1]), number=number)",
        "_FIT_TEXT.format(record=record, t=dtype.c_name, low=low, high=min(high, limits(i64)[1]), number=0)",
        (f"{TESTS}test_failures.py", "-k", "errors_are and fitted"),
    ),
    Mutant(
        "the emulated cuDNN accepts tensors of 2^31 elements, which NVIDIA's rejects",
        "cuda_emulator/cuda_emulator/cudnn/tensors.cpp",
        "call.supported(last < INT32_MAX,",
        "call.supported(last <= INT32_MAX,",
        ("cuda_emulator/tests/test_cudnn.py", "-k", "device_lacks"),
    ),
    Mutant(
        "headers of CCCL in a folder `cccl` are not found",
        "runtime.cuda.toolkit:_IN",
        '("", "cccl")',
        '("",)',
        ("tests/runtime/test_cuda_wheels.py", "-k", "cccl"),
    ),
    Mutant(
        "a program that calls cublasLt does not get the headers of CCCL",
        "runtime.cuda.toolkit:_INCLUDING_HALVES",
        '{"cublas", "cublasLt", "cusolver"}',
        '{"cublas", "cusolver"}',
        ("tests/runtime/test_cuda_wheels.py", "-k", "without_a_matmul"),
    ),
    Mutant(
        "headers of the emulated device are precompiled with other flags than a program's, and never taken",
        "runtime.cuda.emulated:headers",
        '(*cxx, *CXX_FLAGS, "-fPIC", *flags, "-c")',
        '(*cxx, *CXX_FLAGS, "-fPIC", "-c")',
        ("tests/runtime/test_cuda.py", "-k", "precompiled"),
    ),
    Mutant(
        "a column's total is read from the wrong thread by all but the first warp",
        "backends.cublas_cudnn.reductions:_total_function",
        Text('" return parts[threadIdx.x % 32];\\n"'),
        '"    return parts[threadIdx.x];\\n"',
        (f"{TESTS}test_reductions.py", "-k", "same_total"),
    ),
    Mutant(
        "the place of a column's extreme is that of another column",
        "backends.cublas_cudnn.reductions:_place_function",
        Text('" *place = places[threadIdx.x % 32];\\n"'),
        '"    *place = places[threadIdx.x];\\n"',
        (f"{TESTS}test_reductions.py", "-k", "same_total"),
    ),
    Mutant(
        "a team overwrites an operand that an unsynchronised loop still reads",
        "backends.gpu.teams:may_overwrite",
        "isinstance(s, Loop) and (s.reductions or s is loops[-1])",
        "isinstance(s, Loop)",
        ON_TEAMS,
    ),
    Mutant(
        "a team overwrites an operand whose elements are other threads'",
        "backends.gpu.teams:may_overwrite",
        "len({tuple(axis.extent for axis in chain_of(s)[0]) for s in loops}) == 1",
        "True",
        ON_TEAMS,
    ),
    Mutant(
        "threads share iterations that read what other iterations write",
        "backends.gpu.teams:is_shareable",
        "any(isinstance(t, Load) and t.array in stored for t in walk(inner))",
        "False",
        ON_TEAMS,
    ),
    Mutant(
        "threads share iterations that write one element",
        "backends.gpu.teams:_is_own",
        "all(index.stride(axis) for axis in axes if axis.extent > 1)",
        "True",
        ON_TEAMS,
    ),
    Mutant(
        "a wrong index of an axis without elements stands for its first one",
        "backends.gpu.teams:_is_own",
        "isinstance(extent, int) and extent > 0",
        "isinstance(extent, int)",
        ON_TEAMS,
    ),
    Mutant(
        "a row that is found, of one, has no place",
        "backends.gpu.nest.kernel:DeviceKernel.part",
        "dict.fromkeys(part.axes, ZERO)",
        "{}",
        ON_SCATTER,
    ),
    Mutant(
        "of several rows for one place the first stands",
        "backends.gpu.scatter:scatter_as_gather",
        'Reduction(Local("last", i64), prims.MAX)',
        'Reduction(Local("last", i64), prims.MIN)',
        ON_SCATTER,
    ),
    Mutant(
        "rows that nothing is meant for become zeros",
        "backends.gpu.scatter:scatter_as_gather",
        "(found, update, base)",
        "(found, update, Constant(0.0 if dtype.is_float else 0, dtype))",
        ON_SCATTER,
    ),
    Mutant(
        "every element takes what is meant for any",
        "backends.gpu.scatter:scatter_as_gather",
        "(*head, Guarded(here, tuple(inner)))",
        "(*head, *inner)",
        ON_SCATTER,
    ),
    Mutant(
        "a zero that nothing is added to loses its sign",
        "backends.gpu.scatter:scatter_as_gather",
        "is_sum and read_base and dtype.is_float",
        "is_sum and read_base and not dtype.is_float",
        ON_SCATTER,
    ),
    Mutant(
        "items whose elements overlap are threads",
        "backends.gpu.mapping:_Parts.are_apart",
        "abs(stride) <= span",
        "abs(stride) < 0",
        ON_MAPPING,
    ),
    Mutant(
        "a loop that a total runs through is threads",
        "backends.gpu.mapping:_holds_all_effects.visit",
        "over is axis and reductions",
        "over is axis and not reductions",
        ON_MAPPING,
    ),
    Mutant(
        "pieces that write the same elements run side by side",
        "backends.gpu.mapping:_never_meet",
        "apart and max(high, high_2) - min(low, low_2) < min(steps, default=1 << 62)",
        "max(high, high_2) - min(low, low_2) < min(steps, default=1 << 62)",
        ON_MAPPING,
    ),
    Mutant(
        "sixteen bytes are read at an address that is no multiple",
        "backends.gpu.packs:_is_pack",
        "whole and fits and alignment.get(s.array, 1) % (width * s.array.dtype.size) == 0",
        "whole and fits",
        ("tests/backends/gpu/test_packs.py",),
    ),
    Mutant(
        "a piece that begins between packs is read in packs",
        "backends.gpu.packs:_is_pack",
        "(*steps, s.index.offset)",
        "steps",
        ("tests/backends/gpu/test_packs.py",),
    ),
    Mutant(
        "a permutation follows the steps in another order",
        "backends.cublas_cudnn.permutation_text:_PERMUTATION",
        Text("before = other > step && other < before ? other : before;"),
        "before = other > step ? other : before;",
        (f"{TESTS}test_random.py", "-k", "permutations"),
    ),
    Mutant(
        "kernels that share a launch overwrite what another of them reads",
        "backends.gpu.joining:_in_place",
        "root_of(op.operands[operand]) not in others",
        "True",
        (f"{TESTS}test_joining.py",),
    ),
    Mutant(
        "a kernel joins a launch before what it reads is made",
        "backends.gpu.joining:_Plan.can_be_there",
        "if op is None or made == at or (op.blocks and op.declared is not CONTRACTION) or (not self.is_movable(op, "
        "at)):\n"
        "    return False",
        "if made == at:\n"
        "    return True\n"
        "if op is None or (op.blocks and op.declared is not CONTRACTION) or (not self.is_movable(op, at)):\n"
        "    return False",
        (f"{TESTS}test_joining.py", "-k", "waits or no_member"),
    ),
    Mutant(
        "a read of a Variable moves before a write of it",
        "backends.gpu.joining:_Plan.is_movable",
        'not any(effect.kind == "write" and effect.target in read for o in between for effect in o.effects)',
        "True",
        (f"{TESTS}test_joining.py",),
    ),
    Mutant(
        "a value counts as often as it is read, and a graph has no room",
        "backends.cublas_cudnn.graphs:Graphs.fit",
        'f"{numbers}"',
        'f"{numbers}{step.where}{len(changing)}"',
        (f"{TESTS}test_graphs.py", "-k", "many_calls_read"),
    ),
    Mutant(
        "numbers that change with the iteration are frozen in a graph",
        "backends.cublas_cudnn.graphs:changing_arguments",
        "is_written_out(argument)",
        "True",
        (f"{TESTS}test_graphs.py", "-k", "many_calls_read or hosts"),
    ),
    Mutant(
        "arrays at changing addresses are frozen in a graph",
        "backends.cublas_cudnn.graphs:changing_arguments",
        "is_fixed(argument)",
        "True",
        (f"{TESTS}test_graphs.py", "-k", "hosts"),
    ),
    Mutant(
        "the gradient of a pool leaves out the windows that begin further back",
        "backends.gpu.windows:_Side.__init__",
        "-(-kernel // stride)",
        "max(1, kernel // stride)",
        (f"{TESTS}test_pooling.py", "-k", "same_bits or maxima"),
    ),
    Mutant(
        "the host reads an element of a device's array to give it to a kernel",
        "kernels.fuse:_BlockFuser.emit_kernel",
        "_as_kept(operand)",
        "operand",
        (f"{TESTS}test_fuzzed.py", "-k", "is_read_there"),
    ),
    Mutant(
        "-0.0 that is added to -0.0 makes 0.0",
        "backends.gpu.scatter:_changes",
        "(is_other, is_positive)",
        "(is_other, Constant(True, bool_))",
        ON_SCATTER,
    ),
    Mutant(
        "a number with an infinite reciprocal is not added",
        "backends.gpu.scatter:_changes",
        "(is_other, is_positive)",
        "(is_positive, is_positive)",
        ON_SCATTER,
    ),
)
