"""Planted faults of regions in plain Python."""

from tests.mutate.mutant import Mutant

WORK = "staged/frontend/devices/region_work.py"
REGIONS = "staged/frontend/constructs/regions.py"
TESTS = ("tests/frontend/test_unstaged_regions.py",)
HOST = "staged/passes/placement/host_values.py"
ON_HOST = ("tests/passes/placement/test_host_values.py",)
LISTED = ("tests/backends/cublas_cudnn/test_listed_copies.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a region that only copies arrays for later calls warns",
        WORK,
        "self.has_copies and not self.has_numpy_work",
        "False",
        TESTS,
    ),
    Mutant(
        "a region warns in each of its runs",
        WORK,
        "_warned.add((where.file, where.line))",
        "pass",
        TESTS,
    ),
    Mutant(
        "ops of another thread count as the region's work",
        WORK,
        "self.has_numpy_work = frame is not None",
        "self.has_numpy_work = True",
        TESTS,
    ),
    Mutant(
        "an inner region and the one around it both warn",
        REGIONS,
        "around.work.where = None",
        "pass",
        TESTS,
    ),
    Mutant(
        "a staged call for the host counts for a region of the GPU",
        "staged/frontend/devices/resident.py",
        "if region.device == regions[-1].device:",
        "if True:",
        TESTS,
    ),
    Mutant(
        "the function form passes the inputs to a function that does not require arguments",
        REGIONS,
        "if not required and not takes_any:",
        "if not places and not takes_any:",
        TESTS,
    ),
    Mutant(
        "the host looks at a part of a printed array that a kernel reads",
        HOST,
        "if any(result in self.read_on_device for result in op.results):",
        "if False:",
        ON_HOST,
    ),
    Mutant(
        "a decision copies a number that no other op of the host needs",
        HOST,
        "len(missing) == 1 and missing <= self.below.get(op, frozenset())",
        "len(missing) == 1",
        ON_HOST,
    ),
    Mutant(
        "a part of a printed array is copied again",
        HOST,
        "return op.operands[0] not in missing",
        "return False",
        ON_HOST,
    ),
    Mutant(
        "a Variable that a loop writes is not read again in the loop",
        "staged/passes/placement/merge_reads.py",
        "self.known.pop(variable, None)",
        "pass",
        ON_HOST,
    ),
    Mutant(
        "one record of failed checks is listed for a position with several waits",
        "staged/backends/gpu_family/failures.py",
        "(*body.own_copies.get(op, ()), *read)",
        "tuple(read)",
        (*LISTED, "-k", "two_devices"),
    ),
    Mutant(
        "the constants of the first call are not listed",
        "staged/backends/cublas_cudnn/program.py",
        "own_copies={None: opening, **emitted.own_copies}",
        "own_copies=emitted.own_copies",
        (*LISTED, "-k", "first_call"),
    ),
)
