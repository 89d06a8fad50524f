"""The step of the times: that both sides compute the same, predictions, jobs that die or fail, and the table."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from tests.gpu_check import times
from tests.gpu_check.setting import MARGIN, Setting
from tests.gpu_check.times import FRAMEWORKS, Job
from tests.gpu_check.timing import clock, kernels, model, steps

H100 = {
    "cudaDevAttrMultiProcessorCount": 132, "cudaDevAttrClockRate": 1_830_000, "cudaDevAttrMemoryClockRate": 2_619_000,
    "cudaDevAttrGlobalMemoryBusWidth": 5120, "75": 9,
}  # fmt: skip
SMALL_JOB = Job("staged", ("kernel softmax f32", "kernel sum f32", "kernel transpose f32"))


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    monkeypatch.setattr("tests.gpu_check.setting.PREPARED", tmp_path / "prepared")
    return Setting(tmp_path, rehearsed=True)


# ---- both sides compute the same --------------------------------------------------------------------


@pytest.mark.parametrize("name", kernels.KERNELS)
def test_kernels_compute_the_same_in_pytorch(name: str, torch: Any) -> None:
    kernel = kernels.KERNELS[name]
    function, arguments = kernels.ours(kernel, "f32", small=True)
    with st.eager():
        ours = np.asarray(function(*arguments, 3))
    theirs = kernels.torchs(kernel, "f32", True, lambda body: body)(3)
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("name", steps.NETWORKS)
def test_networks_have_the_losses_of_pytorch(name: str, torch: Any) -> None:
    network = steps.NETWORKS[name]
    function, arguments = steps.ours(network, "f32", small=True)
    with st.eager():
        ours = float(function(*arguments, 3))
    theirs = steps.torchs(network, "f32", True, lambda forward: forward)(3)
    assert ours == pytest.approx(float(theirs), rel=1e-4)


def test_layers_draw_nothing_while_a_model_is_created() -> None:
    with steps.without_draws():
        assert not st.nn.Linear(3, 4).weight.numpy().any()
    assert st.nn.Linear(3, 4).weight.numpy().any()
    assert steps.weight("h.0.ln_1.weight", (3,)).tolist() == [1.0] * 3 and not steps.weight("fc.bias", (3,)).any()
    assert 0.5 < steps.weight("fc.weight", (300, 400)).std() * 20 < 2


# ---- predictions ------------------------------------------------------------------------------------


def test_the_model_predicts_from_the_facts_of_a_device() -> None:
    device = model.device_of({"attributes": H100})
    assert isinstance(device, model.Device)
    assert device.bandwidth == pytest.approx(3.35e12, rel=0.01) and device.flops["bf16"] == pytest.approx(989e12, rel=0.01)
    softmax = kernels.KERNELS["softmax"].work("f32", small=False)
    assert device.seconds(softmax, "f32") == pytest.approx(2 * 8192 * 4096 * 4 / 3.35e12, rel=0.03)
    step = steps.NETWORKS["gpt2"].full.work()
    assert 6.0e12 < step.flop < 8.0e12 and 0.09 < device.seconds(step, "f32") < 0.2 > device.seconds(step, "bf16")


def test_without_facts_there_is_a_reason_in_place_of_a_prediction() -> None:
    assert "cudaDevAttrClockRate" in str(model.device_of({}))
    assert model.device_of({"attributes": {**H100, "75": 7}}) == "compute capability 7.x has no peaks in the model"
    assert model.device_of({"rehearsed": True, "attributes": H100}) == "the emulated device has no peaks"


# ---- measuring --------------------------------------------------------------------------------------


def test_the_time_of_an_iteration_leaves_out_the_call() -> None:
    def seconds(work: Any) -> float:
        return 5.0 + 0.25 * work()

    found = clock.time_of(lambda turns: turns, seconds, clock.FULL)
    assert found == {"seconds": 0.25, "pairs": [0.25] * 3}


def test_one_process_at_a_time_holds_a_lock(tmp_path: Path) -> None:
    order: list[str] = []

    def other() -> None:
        with clock.locked(tmp_path, "device"):
            order.append("other")

    with clock.locked(tmp_path, "device"):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.1)
        order.append("first")
        with clock.locked(tmp_path, "large", 2), clock.locked(tmp_path, "large", 2):
            order.append("two places")
    thread.join()
    assert order == ["first", "two places", "other"]


@pytest.mark.usefixtures("emulated_device")
def test_rows_are_measured_on_the_device_and_failures_are_rows(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = (Job("staged", ("copy", "kernel sum f32", "step mlp f32")),)
    monkeypatch.setattr(times, "JOBS", jobs)
    monkeypatch.setattr(times, "ROWS", jobs[0].rows)
    (setting.folder / "facts.json").write_text(json.dumps({"attributes": H100}))
    monkeypatch.setenv("STAGED_CUDA_EMULATOR", "memory=700K")  # room for the arrays of the kernel, not for the network
    result = times.run(setting)
    assert result.state == "failed" and result.summary.startswith("2 of 3 rows measured") and not result.unfinished
    assert result.details[0].startswith("step mlp f32: ProgramMemoryError")
    rows = json.loads((setting.folder / times.FILE).read_text())["rows"]
    assert rows["kernel sum f32"]["staged"]["calls"]["kernels"] == 2 and rows["kernel sum f32"]["predicted"] > 0
    # Run again, only the failed row is measured.
    monkeypatch.delenv("STAGED_CUDA_EMULATOR")
    (setting.folder / times.FILE).rename(setting.folder / "before.json")
    earlier = setting.folder / "earlier"
    earlier.mkdir()
    (setting.folder / "before.json").rename(earlier / times.FILE)
    again = times.measured_before(earlier)
    assert times.without(jobs[0], again) == Job("staged", ("step mlp f32",))
    assert times.measured_before(None) == times.measured_before(setting.folder) == {}


def test_a_job_whose_process_dies_continues_with_the_next_row(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    journal = setting.folder / "0.jsonl"

    def run_within(command: list[str], limit: float, *others: Any) -> Any:
        rows = [word for word in command if word.startswith("kernel")]
        asked.append(rows)
        with journal.open("a") as file:
            done = rows[: 1 if len(asked) == 1 else None]
            file.writelines(json.dumps({"row": row, "framework": "staged", "seconds": 1.0}) + "\n" for row in done)
        return subprocess.CompletedProcess(command, -11 if len(asked) == 1 else 0, "first\nmisaligned address\n")

    monkeypatch.setattr(times, "run_within", run_within)
    times.run_job(SMALL_JOB, journal, setting)
    assert asked == [list(SMALL_JOB.rows), [SMALL_JOB.rows[2]]]
    cells = times.collected(setting.folder, {})
    assert cells["kernel sum f32"]["staged"] == {"failed": "exit status -11: first / misaligned address"}
    assert cells["kernel transpose f32"]["staged"] == {"seconds": 1.0}
    times.run_job(SMALL_JOB, journal, Setting(setting.folder, limit=MARGIN + 1.0))
    assert len(asked) == 2  # no time was left


# ---- the result -------------------------------------------------------------------------------------


def test_other_values_than_pytorchs_are_a_failure() -> None:
    def cells(*values: float) -> dict[str, Any]:
        return {name: {"seconds": 1.0, "value": [value]} for name, value in zip(FRAMEWORKS, values, strict=False)}

    assert times.disagreement("step mlp f32", cells(2.0, 2.001)) is None
    assert times.disagreement("step mlp f32", cells(2.0, 2.1)) == "[2.0] in place of [2.1]"
    assert times.disagreement("step mlp bf16", cells(2.0, 2.05)) is None
    assert times.disagreement("step mlp f32", cells(float("nan"), 2.0)) is not None
    assert times.disagreement("step mlp f32", cells(2.0)) is None


def test_the_table_has_every_row_and_what_was_not_run(setting: Setting) -> None:
    rows: dict[str, dict[str, Any]] = {row: {} for row in times.ROWS}
    rows["copy"] = {"staged": {"seconds": 1e-3, "bytes_per_second": 3e12}}
    rows["step mlp f32"] = {
        "predicted": 5e-5, "staged": {"seconds": 1e-4}, "torch-eager": {"seconds": 4e-4}, "torch-graphs": {"seconds": 2e-4},
    }  # fmt: skip
    on_device = Setting(setting.folder)
    result = times.result_of(rows, on_device)
    assert (result.state, result.unfinished) == ("passed", True)
    assert result.summary.startswith(f"2 of {len(times.ROWS)} rows measured; a copy moves 3.00 TB/s; steps take 0.50 to 0.50")
    table = {row[0]: row[1:] for row in result.table}
    assert table["step mlp f32"] == ["50.0 us", "100.0 us", "400.0 us", times.OVER, "200.0 us"]
    assert table["copy"] == ["", "1.00 ms", "", "", ""] and len(table) == len(times.ROWS) + 1
    rows["step mlp f32"]["staged"]["wrong"] = "[2.0] in place of [2.1]"
    assert times.result_of(rows, on_device).details == ["step mlp f32: other values than PyTorch: [2.0] in place of [2.1]"]


def test_every_precision_of_every_network_is_compared() -> None:
    asked = [(row, job.framework) for job in times.JOBS for row in job.rows]
    assert len(set(asked)) == len(asked)
    for name in steps.NETWORKS:
        for precision in steps.PRECISIONS:
            assert {(f"step {name} {precision}", framework) for framework in FRAMEWORKS} <= set(asked)
    assert {row for row, framework in asked if framework == "staged"} == set(times.ROWS)
