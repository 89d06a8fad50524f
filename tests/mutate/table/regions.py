"""Planted faults of regions in plain Python."""

from tests.mutate.mutant import Mutant

WORK = "staged/frontend/devices/region_work.py"
REGIONS = "staged/frontend/constructs/regions.py"
TESTS = ("tests/frontend/test_unstaged_regions.py",)

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
)
