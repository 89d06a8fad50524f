"""Planted faults of regions in plain Python."""

from tests.mutate.mutant import Mutant

TESTS = ("tests/frontend/test_unstaged_regions.py",)
ON_HOST = ("tests/passes/placement/test_host_values.py",)
LISTED = ("tests/backends/cublas_cudnn/test_listed_copies.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a region that only copies arrays for later calls warns",
        "frontend.devices.region_work:RegionWork.end",
        "self.has_copies and not self.has_numpy_work",
        "False",
        TESTS,
    ),
    Mutant(
        "a region warns in each of its runs",
        "frontend.devices.region_work:RegionWork.end",
        "_warned.add((where.file, where.line))",
        "pass",
        TESTS,
    ),
    Mutant(
        "ops of another thread count as the region's work",
        "frontend.devices.region_work:RegionWork.note_numpy_work",
        "self.has_numpy_work = frame is not None",
        "self.has_numpy_work = True",
        TESTS,
    ),
    Mutant(
        "an inner region and the one around it both warn",
        "frontend.constructs.regions:_leave",
        "around.work.where = None",
        "pass",
        TESTS,
    ),
    Mutant(
        "a staged call for the host counts for a region of the GPU",
        "frontend.devices.resident:note_staged_call",
        "region.device == regions[-1].device",
        "True",
        TESTS,
    ),
    Mutant(
        "the function form passes the inputs to a function that does not require arguments",
        "frontend.constructs.regions:_accepts",
        "not required",
        "not places",
        TESTS,
    ),
    Mutant(
        "the host looks at a part of a printed array that a kernel reads",
        "passes.placement.host_values:HostValues.runs_here",
        "any(result in self.read_on_device for result in op.results)",
        "False",
        ON_HOST,
    ),
    Mutant(
        "a decision copies a number that no other op of the host needs",
        "passes.placement.host_values:HostValues.runs_here",
        "len(missing) == 1 and missing <= self.below.get(op, frozenset())",
        "len(missing) == 1",
        ON_HOST,
    ),
    Mutant(
        "a part of a printed array is copied again",
        "passes.placement.host_values:HostValues.runs_here",
        "op.operands[0] not in missing",
        "False",
        ON_HOST,
    ),
    Mutant(
        "a Variable that a loop writes is not read again in the loop",
        "passes.placement.merge_reads:_Merger.op",
        "self.known.pop(variable, None)",
        "pass",
        ON_HOST,
    ),
    Mutant(
        "one record of failed checks is listed for a position with several waits",
        "backends.gpu.failures:read_records",
        "(*body.own_copies.get(op, ()), *read)",
        "tuple(read)",
        (*LISTED, "-k", "two_devices"),
    ),
    Mutant(
        "the constants of the first call are not listed",
        "backends.cublas_cudnn.program:CudaProgram.run",
        "{None: opening, **emitted.own_copies}",
        "emitted.own_copies",
        (*LISTED, "-k", "first_call"),
    ),
)
