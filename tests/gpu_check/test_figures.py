"""Measurements on a GPU: that both sides compute the same, and the tables."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from tests.gpu_check import kernels, training
from tests.gpu_check.kernels import FULL, KERNELS, OVER, Figures
from tests.gpu_check.setting import MARGIN, Setting
from tests.gpu_check.training import result_of as result_of_training


@pytest.mark.parametrize("kernel", kernels.KERNELS, ids=[kernel.name for kernel in kernels.KERNELS])
def test_what_is_timed_computes_the_same_in_pytorch(kernel: kernels.Kernel, torch: Any) -> None:
    x = np.random.default_rng(2).normal(size=(6, 6)).astype(np.float32)
    with st.eager():
        ours = np.asarray(kernel.body(x))
    np.testing.assert_allclose(ours, kernel.torch(torch, torch.from_numpy(x)).numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.usefixtures("emulated_device")
def test_kernels_are_timed_on_the_device() -> None:
    assert kernels.copy_bandwidth(kernels.SMALL) > 0
    assert kernels.seconds_per_iteration(kernels.KERNELS[0], kernels.SMALL) > 0


def test_kernels_are_compared_with_a_copy_and_with_pytorch() -> None:
    copied = 4.0e12
    ours = FULL.bytes / copied / 0.8
    good = Figures(ours, copied, 2 * ours, "RuntimeError: no compiler")
    result = kernels.result_of([good] * len(KERNELS), FULL)
    assert (result.state, result.unfinished) == ("passed", False)
    assert "a copy on the device moves 4.00 TB/s" in result.summary
    name, time, share, eager, compiled = result.table[1]
    assert (name, share, compiled) == ("elementwise", "80%", "RuntimeError: no compiler")
    assert time == f"{ours * 1e6:.1f} us" and eager.endswith("(2.00 x ours)")

    result = kernels.result_of([good, "exit status -11: no", *[good] * (len(KERNELS) - 2)], FULL)
    assert result.state == "failed" and result.summary.endswith("look at softmax")
    assert result.table[2][:2] == ["softmax", "exit status -11: no"]
    result = kernels.result_of([good, *[OVER] * (len(KERNELS) - 1)], FULL)
    assert (result.state, result.unfinished) == ("passed", True)


def test_a_kernel_that_takes_its_process_with_it_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "nothing of this name")
    said = kernels.measured(KERNELS[0], Setting(tmp_path, rehearsed=True))
    assert isinstance(said, str) and said.startswith("exit status 1: ") and "STAGED_CUDA=emulate for" in said
    assert kernels.measured(KERNELS[0], Setting(tmp_path, limit=MARGIN + 1.0)) == OVER


def cell(framework: str, seconds: float, **more: Any) -> dict[str, Any]:
    timing = {"median": seconds, "minimum": seconds, "spread": 0.0, "foreign_cores": 0.0}
    return {"framework": framework, "timing": timing, "cold_s": 3.0, "digest": [1.0, 1.0]} | more


def test_training_is_compared_with_each_framework() -> None:
    peers = [cell("torch-eager", 2e-3), {"framework": "torch-compile", "failed": "no compiler"}]
    result = result_of_training([cell("staged", 1e-3), *peers])
    assert result.state == "passed"
    assert result.summary == "1.00 ms a step; torch-eager takes 2.00 times as long"
    assert result.table[3][1] == "no compiler"
    wrong = result_of_training([cell("staged", 1e-3, wrong=True), *peers])
    assert wrong.state == "failed" and wrong.summary == "a loss that is not PyTorch's"
    failed = result_of_training([{"framework": "staged", "failed": "no", "said": ["why", "no"]}, *peers])
    assert failed.state == "failed" and failed.details == ["why", "no"]


def test_a_part_whose_time_is_over_says_what_it_did_not_begin(tmp_path: Path) -> None:
    late = Setting(tmp_path, limit=MARGIN + 1.0)
    result = training.training("mlp_mnist")(late)
    assert result.unfinished and [row[1] for row in result.table[1:]] == [training.OVER] * 4
    assert math.isinf(Setting(tmp_path).left())
    cells = [cell("staged", 1e-3), training.measured("torch-compile", "treelstm", late)]
    assert training.result_of(cells).table[2][1].startswith("not written: the recursion")
