"""The benchmark harness: its protocol, its tables, and that a wrong result cannot pass as a fast one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import calls, dynamic_sizes, report, size_rows
from benchmarks.__main__ import OURS
from benchmarks.call_rows import CALLS
from benchmarks.rows import ROWS, data_of, digest, digests_agree, operands, parameters, training_data, tree_data
from benchmarks.timing import Timing, measure
from benchmarks.worker import data_for

ROOT = Path(__file__).parent.parent.parent


def cell(framework: str, row: str, seconds: float, result: float = 1.0, **more: Any) -> report.Cell:
    timing = {"median": seconds, "minimum": seconds, "spread": 0.0, "foreign_cores": 0.0}
    return {
        "framework": framework,
        "row": row,
        "threads": 1,
        "cold": "",
        "timing": timing,
        "digest": [result, result**2],
    } | more


def test_time_is_per_call_and_blocks_are_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, now = [], 0.0

    def run(count: int) -> None:
        nonlocal now
        calls.append(count)
        now += 0.002 * count

    monkeypatch.setattr(time, "perf_counter", lambda: now)

    timing = measure(run, min_time=0.05, patience=0.0)
    assert timing.median == pytest.approx(0.002)
    assert timing.minimum <= timing.median
    assert timing.blocks >= 5
    assert timing.calls_per_block == calls[-1] >= 5


def test_spread_is_between_quartiles() -> None:
    timing = Timing.of([1.0, 2.0, 3.0, 4.0, 5.0], 1, 0.0)
    assert (timing.median, timing.minimum, timing.spread) == (3.0, 1.0, pytest.approx(2 / 3))


def test_ratio_is_to_the_best_peer_of_the_same_threads() -> None:
    cells = [cell("staged", "softmax", 2e-3), cell("numpy", "softmax", 8e-3), cell("jax", "softmax", 4e-3)]
    cells.append(cell("jax", "softmax", 1e-3, threads=2))
    assert report.warm_table(cells, 1)[-1] == "| softmax | 2.00 ms | 8.00 ms | 4.00 ms | jax | **0.50** |"


def test_wrong_result_counts_neither_for_us_nor_for_a_peer() -> None:
    cells = [cell("staged", "softmax", 1e-6, result=1.1), cell("numpy", "softmax", 8e-3), cell("jax", "softmax", 4e-3)]
    assert [c["framework"] for c in report.mark_wrong_results(cells)] == ["staged"]
    assert report.warm_table(cells, 1)[-1] == "| softmax | 8.00 ms | 4.00 ms | jax | - |"
    cells = [cell("staged", "softmax", 2e-3), cell("numpy", "softmax", 8e-3), cell("jax", "softmax", 1e-6, result=2.0)]
    report.mark_wrong_results(cells)
    assert "**0.25**" in report.warm_table(cells, 1)[-1]


def test_disturbed_failed_and_absent_cells_say_so() -> None:
    assert report.time_cell(cell("numpy", "softmax", 0.5) | {"failed": "no"}) == "failed"
    assert report.time_cell({"absent": "not installed: jax"}) == "-"
    busy = cell("numpy", "softmax", 0.5)
    busy["timing"] |= {"foreign_cores": 0.5, "minimum": 0.25, "spread": 0.2}
    assert report.time_cell(busy) == "500 ms (min 250 ms) ±10%*"
    gone = [{"framework": "jax", "row": "softmax", "threads": 1, "absent": "not installed: jax"}]
    assert report.absences(gone) == ["- jax: not installed: jax"]


def test_page_keeps_its_text_around_the_results(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.write_into(page, report.section([cell("numpy", "softmax", 1.0)], {"processor": "some"}, "2026-01-02"))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| softmax | 1.00 s |" in text
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="lacks the two marks"):
        report.write_into(page, "")


def test_the_real_page_has_the_marks() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert text.index(report.BEGIN) < text.index(report.END)
    for row in ROWS:
        assert f"`{row}`" in text, f"docs/benchmarks.md does not say what {row} is"


def test_the_real_page_has_the_marks_and_rows_of_calls() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert text.index(calls.BEGIN) < text.index(calls.END)
    for row in CALLS:
        assert f"`{row}`" in text, f"docs/benchmarks.md does not say what {row} is"


def test_the_ratio_of_a_call_is_that_of_the_staged_function_to_the_best_peer() -> None:
    made = [cell("staged", "call_add", 3e-6), cell("program", "call_add", 2e-6), cell("torch-eager", "call_add", 4e-6)]
    table = report.warm_table(made, 1, rows=CALLS, ours=OURS)
    assert table[-1] == "| call_add | 3.00 us | 2.00 us | 4.00 us | torch-eager | **0.75** |"


def test_guards_cost_what_a_call_takes_more_than_its_program() -> None:
    rows = [{"objects": 10, "call": {"median": 5e-6}, "program": {"median": 2e-6}}]
    assert calls.guard_table(rows)[-1] == "| 10 | 5.00 us | 2.00 us | 3.00 us |"
    from benchmarks.frameworks.calls_ours import calling, guarded

    function, arguments = guarded(3)
    call, program = calling(function, arguments), calling(function.stage(*arguments[0]), arguments)
    assert call.run(3).tolist() == program.run(1).tolist() == (arguments[0][0] + 3.0).tolist()
    assert [entry.calls for entry in function.programs] == [3]


def test_dynamic_sizes_are_compared_with_static_programs() -> None:
    found = dynamic_sizes.figures("doubled", (2, 5), 1e-3)
    assert len(found["compilers"]) == 3 and [*found["ratio"]] == [*found["static"]] == [2, 5]
    assert all(0.1 < ratio < 10 for ratio in found["ratio"].values())
    found = {"ratio": {2: 1.0, 5: 1.25}, "static": {2: 1e-3, 5: 2e-3}, "compilers": [0.5, 0.2, 0.4]}
    assert dynamic_sizes.line("doubled", found) == (
        "| 2 x: elements | 2: 1.00, 5: **1.25** | 1.00 ms to 2.00 ms | 500 ms | 300 ms |"
    )


def test_the_real_page_has_the_rows_of_dynamic_sizes() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    assert text.index(dynamic_sizes.BEGIN) < text.index(dynamic_sizes.END)
    for row in size_rows.ROWS.values():
        assert f"| {row.what} |" in text


@pytest.mark.parametrize("row", ["call_control", "call_block_1"])
def test_calls_of_the_frameworks_compute_the_same(row: str, library: Any) -> None:
    library("torch")
    from benchmarks.frameworks import calls_ours, calls_pytorch

    data = data_for(CALLS[row])
    ours = calls_ours.build("staged", CALLS[row], 1, data)
    peer = calls_pytorch.build("torch-eager", CALLS[row], 1, data)
    for count in (1, 3):
        assert float(peer.read(peer.run(count))) == pytest.approx(float(ours.read(ours.run(count))), rel=1e-4)


def test_digest_tells_a_wrong_element_from_a_rounded_one() -> None:
    (x,) = operands(ROWS["softmax"])
    right = digest(x)
    assert digests_agree(right, digest(x * (1 + 1e-5)))
    assert not digests_agree(right, digest(x * 1.05))
    assert not digests_agree(right, digest(x.T))
    assert not digests_agree(right, [float("nan"), *right[1:]])
    assert not digests_agree(right, right[:-1])


def test_data_is_the_same_for_everybody() -> None:
    row = ROWS["mlp_mnist"]
    images, labels = training_data(row)
    assert (images.shape, labels.shape) == ((16, 64, 784), (16, 64))
    assert (training_data(row)[0] == images).all()
    assert abs(parameters(row)["fc1.bias"]).max() <= 1 / 28


def test_worker_prints_one_line_of_figures() -> None:
    command = [sys.executable, "-m", "benchmarks.worker", "--framework", "numpy", "--row", "sgemm_64"]
    done = subprocess.run(
        [*command, "--min-time", "0.05", "--patience", "0"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    answer = json.loads(line)
    assert answer["timing"]["median"] > 0
    assert answer["peak_rss_bytes"] > 2**20
    a, b = operands(ROWS["sgemm_64"])
    assert digests_agree(answer["digest"], digest(a @ b))


def test_worker_says_what_a_framework_does_not_have() -> None:
    command = [sys.executable, "-m", "benchmarks.worker", "--framework", "numpy", "--row", "cnn_mnist"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"absent": "no such row in this framework"}


@pytest.mark.live
@pytest.mark.parametrize("row", ["char_rnn", "char_lstm"])
def test_recurrent_rows_train_the_same_network_in_every_way(row: str) -> None:
    from benchmarks.frameworks import ours_recurrent, pytorch_recurrent

    data = data_of(ROWS[row])
    ours = ours_recurrent.build(ROWS[row], data)
    peers = [pytorch_recurrent.build(name, ROWS[row], 1, data) for name in ("torch-eager", "torch-cells")]
    for steps in (1, 3):
        loss = ours.read(ours.run(steps))
        for peer in peers:
            assert peer.read(peer.run(steps)) == pytest.approx(float(loss), rel=1e-4)


@pytest.mark.live
@pytest.mark.parametrize("name", ["treelstm", "treelstm_levels"])
def test_the_tree_rows_train_the_same_network(name: str) -> None:
    from benchmarks.frameworks import ours_recurrent, pytorch_recurrent

    row, data = ROWS[name], data_of(ROWS[name])
    ours, peer = ours_recurrent.build(row, data), pytorch_recurrent.build("torch-eager", row, 1, data)
    assert peer.read(peer.run(1)) == pytest.approx(float(ours.read(ours.run(1))), rel=1e-3)


def test_trees_are_whole_and_of_the_treebanks_size() -> None:
    trees = tree_data()
    inner = trees.lefts >= 0
    sizes = np.diff(trees.starts)
    assert len(sizes) == 64 and 30 < sizes.mean() < 45 and (sizes % 2 == 1).all()
    assert ((trees.words >= 0) == ~inner).all() and (trees.lefts[inner] < np.flatnonzero(inner)).all()
    children = np.sort(np.concatenate([trees.lefts[inner], trees.rights[inner], trees.starts[1:] - 1]))
    assert (children == np.arange(len(trees.labels))).all()  # every node once: below another, or a root
