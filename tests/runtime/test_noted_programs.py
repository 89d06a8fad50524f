"""CUDA's compiler on the programs of tests that `--rest` leaves out, which a run with `--note` has kept."""

from __future__ import annotations

import pytest

from tests.cuda_toolchain import check_for_gpus
from tests.noted import KeptProgram
from tests.plugin import notes_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    programs = notes_of(config).programs() if config.getoption("--all") and config.getoption("--rest") else ()
    metafunc.parametrize("kept", [pytest.param(kept, id=f"{kept.artifact.name} of {kept.test}") for kept in programs])


@pytest.mark.usefixtures("needs_nvrtc")
def test_a_program_compiles_for_gpus(kept: KeptProgram, full: bool) -> None:
    check_for_gpus(kept.artifact, full)
