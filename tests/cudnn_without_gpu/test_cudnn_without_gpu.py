"""cuDNN's answers to the graphs of all tests' programs, for devices that are described: there is a plan for each, as reported."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from staged.base.artifact import Artifact
from tests.cuda_toolchain import check_graphs
from tests.cudnn_without_gpu import asking, devices, report
from tests.cudnn_without_gpu.questions import (
    FORWARD,
    ORDERED,
    ROUTINES,
    UNORDERED,
    Attention,
    Convolution,
    Question,
    from_json,
    programs_of,
    questions_of,
    to_json,
)

HEADS = (2, 4, 24, 16)
ATTENTION = Attention("bf16", HEADS, HEADS, HEADS, True, FORWARD)
CONVOLUTION = Convolution("f32", (2, 4, 9, 9), (8, 2, 3, 3), (1, 1), (2, 1), (1, 2), 2, "forward")


def program_of(*questions: Question) -> Artifact:
    (artifact,) = programs_of(questions)
    return artifact


def planted(artifact: Artifact, old: str, new: str) -> Artifact:
    assert old in artifact.source
    return dataclasses.replace(artifact, source=artifact.source.replace(old, new))


def asked(artifact: Artifact, folder: Path, capability: tuple[int, int] = (9, 0)) -> list[dict[str, Any]]:
    libraries = asking.Libraries.of_wheels()
    return asking.ask(asking.build(artifact, folder, libraries), devices.descriptions()[capability][1], libraries)


# ---- the graphs of all tests --------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "group" in metafunc.fixturenames:
        cases = [
            pytest.param(capability, group, id=f"{report.name_of(capability)}-{number}")
            for capability in (report.ALL, *report.SAMPLED)
            for number, group in enumerate(report.groups(each for each in report.listed() if report.is_asked(each, capability)))
        ]
        metafunc.parametrize(("capability", "group"), cases)


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_cudnn_answers_to_the_graphs_of_the_tests_as_reported(capability: tuple[int, int], group: list[Question]) -> None:
    """A program that opens the device without a plan for a graph uses its alternative, and the report has `"plan": false`."""
    rows = {from_json(entry): entry for entry in report.entries()}
    said = report.answers(group, devices.descriptions()[capability][1], asking.Libraries.of_wheels())
    reported = {question: rows[question].get(report.name_of(capability)) for question in group}
    assert said == reported, "`python -m tests.cudnn_without_gpu` writes the report again"


def test_the_report_lists_each_graph_once() -> None:
    assert len(report.listed()) == len(report.entries())
    assert len(report.listed()) > 100
    kinds = {(question.graph if isinstance(question, Attention) else question.routine) for question in report.listed()}
    assert kinds == {FORWARD, ORDERED, UNORDERED, *ROUTINES}


# ---- questions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        ATTENTION,
        dataclasses.replace(ATTENTION, dtype="f16", q=(1, 4, 9, 8), k=(1, 2, 11, 8), v=(1, 2, 11, 16), graph=UNORDERED),
        dataclasses.replace(ATTENTION, causal=False, graph=ORDERED),
        CONVOLUTION,
        dataclasses.replace(CONVOLUTION, groups=1, w=(8, 4, 3, 3), dilation=(1, 1), routine="backward data"),
        dataclasses.replace(CONVOLUTION, routine="backward filter"),
    ],
    ids=repr,
)
def test_a_program_made_for_a_graph_has_it(question: Question) -> None:
    assert question in questions_of(program_of(question).source)
    assert from_json(json.loads(json.dumps(to_json(question)))) == question


def test_a_plan_whose_name_does_not_tell_its_sizes_is_an_error() -> None:
    source = program_of(ATTENTION).source.replace("GraphPlan attention_", "GraphPlan other_")
    with pytest.raises(ValueError, match="does not tell its sizes: GraphPlan other_bf16"):
        questions_of(source)


# ---- the oracle ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_the_oracle_gets_the_graphs_that_the_program_has() -> None:
    """The descriptors that cuDNN got have the sizes of the program's text."""
    program = program_of(dataclasses.replace(ATTENTION, graph=ORDERED), dataclasses.replace(CONVOLUTION, routine="backward data"))
    said = report.answers_to(program, devices.descriptions()[9, 0][1], asking.Libraries.of_wheels())
    assert set(said) == questions_of(program.source)
    assert all(answer["offered"] > 0 and answer["workspace"] >= 0 for answer in said.values())


@pytest.mark.usefixtures("needs_cuda_wheels")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("graph, CUDNN_POINTWISE_EXP, below", "graph, CUDNN_POINTWISE_SIN, below"),
        ("const int64_t alignment = 16;", "const int64_t alignment = 3;"),
    ],
    ids=["another graph", "alignment"],
)
def test_a_graph_that_cudnn_does_not_know_has_no_plan(old: str, new: str, tmp_path: Path) -> None:
    """The program opens the device all the same: it uses its alternative."""
    *said, end = asked(planted(program_of(ATTENTION), old, new), tmp_path)
    assert end["opened"]
    assert said[0]["engine"] == -1 and report.short(said[0])["plan"] is False
    assert said[0]["offered"] == 0 or said[0]["status"].startswith("CUDNN_STATUS_")


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_a_convolution_with_a_result_of_other_extents_is_an_error(tmp_path: Path) -> None:
    wrong = planted(program_of(CONVOLUTION), "CUDNN_DATA_FLOAT, 2, 8, 5,", "CUDNN_DATA_FLOAT, 2, 8, 6,")
    with pytest.raises(asking.OracleError, match="extents that cuDNN would not give it"):
        asked(wrong, tmp_path)


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_a_device_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    libraries = asking.Libraries.of_wheels()
    asker = asking.build(program_of(CONVOLUTION), tmp_path, libraries)
    description = {**devices.descriptions()[9, 0][1], "deviceVer": 300}
    with pytest.raises(asking.OracleError, match="CUDNN_STATUS"):
        asking.ask(asker, description, libraries)


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_graphs_that_the_report_does_not_list_are_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = program_of(CONVOLUTION)
    monkeypatch.setattr(report, "listed", lambda: frozenset({CONVOLUTION}))
    monkeypatch.setattr(report, "answers_to", lambda *_: pytest.fail("it is listed"))
    check_graphs(artifact)
    monkeypatch.undo()
    monkeypatch.setattr(report, "listed", frozenset)
    check_graphs(artifact)
    # cuDNN itself rejects such a descriptor.
    with pytest.raises(asking.OracleError, match="does not open the device: cudnnSetTensor4dDescriptor.*CUDNN_STATUS_BAD_PARAM"):
        check_graphs(planted(artifact, "CUDNN_DATA_FLOAT, 2, 4, 9,", "CUDNN_DATA_FLOAT, 2, -4, 9,"))


def test_a_description_of_a_real_device_replaces_the_one_by_hand(tmp_path: Path) -> None:
    description = devices.descriptions()[9, 0][1]
    assert {(8, 0), (9, 0), (10, 0)} <= set(devices.descriptions())
    for name, source in (("a", devices.FROM_HANDLE), ("b", "written by hand")):
        (tmp_path / name).mkdir()
        content = {"source": source, "device": {**description, "deviceName": name}}
        (tmp_path / name / "libraries.json").write_text(json.dumps(content))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "libraries.json").write_text(json.dumps({"source": devices.FROM_HANDLE, "products": []}))
    assert devices.descriptions(tmp_path)[9, 0][0] == "a"
