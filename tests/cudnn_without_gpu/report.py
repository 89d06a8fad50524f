"""The report of the oracle, `docs/results/cudnn_without_gpu.json`: every graph of the tests' programs, with cuDNN's answers.

The report is also the list of graphs that the tests ask again. A graph that cuDNN has no plan for, so that the program uses its
alternative, has `"plan": false`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from staged.base.artifact import Artifact
from tests import cuda_wheels
from tests.cudnn_without_gpu import asking, devices
from tests.cudnn_without_gpu.questions import (
    Attention,
    Question,
    digest,
    from_json,
    programs_of,
    question_of,
    questions_of,
    to_json,
)

PATH = Path(__file__).parent.parent.parent / "docs" / "results" / "cudnn_without_gpu.json"
Capability = tuple[int, int]
ALL: Capability = (9, 0)
SAMPLED: tuple[Capability, ...] = ((8, 0), (10, 0))
ONE_IN = 8
"""The part of the graphs in a sample."""
TOGETHER = 24
"""Graphs that one program asks for."""


def is_asked(question: Question, capability: Capability) -> bool:
    """Return whether the report has an answer for devices of this compute capability."""
    return capability == ALL or digest(question) % ONE_IN == 0


@cache
def entries() -> tuple[dict[str, Any], ...]:
    """The rows of the report; none without one."""
    content = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return tuple(content.get("attention", ())) + tuple(content.get("convolution", ()))


@cache
def listed() -> frozenset[Question]:
    """The graphs of the report."""
    return frozenset(map(from_json, entries()))


def name_of(capability: Capability) -> str:
    return "{}.{}".format(*capability)


def groups(questions: Iterable[Question]) -> list[list[Question]]:
    """Questions that are asked together, in an order that depends on them alone."""
    ordered = sorted(questions, key=lambda each: (digest(each), repr(each)))
    return [ordered[begin : begin + TOGETHER] for begin in range(0, len(ordered), TOGETHER)]


def answers(
    questions: Sequence[Question], description: dict[str, Any], libraries: asking.Libraries
) -> dict[Question, dict[str, Any]]:
    """Ask cuDNN these questions for a device, each by a generated program. Return the answers by question.

    Raises OracleError if a program does not ask a question, or cannot open the device.
    """
    found: dict[Question, dict[str, Any]] = {}
    for artifact in programs_of(questions):
        found.update(answers_to(artifact, description, libraries))
    missing = [question for question in questions if question not in found]
    if missing:
        raise asking.OracleError(f"{len(missing)} graphs were not asked for, of which the first is {missing[0]}")
    return {question: found[question] for question in questions}


def answers_to(
    artifact: Artifact, description: dict[str, Any], libraries: asking.Libraries
) -> dict[Question, dict[str, Any]]:
    """Ask cuDNN about the graphs of a program. Raises OracleError if the program cannot open the device."""
    with tempfile.TemporaryDirectory() as folder:
        *said, end = asking.ask(asking.build(artifact, Path(folder), libraries), description, libraries)
    if not end["opened"]:
        raise asking.OracleError(f"`{artifact.name}`: {end['message']}")
    return {question_of(answer): short(answer) for answer in said}


def short(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of an answer that the report has."""
    counts = {name: answer[name] for name in ("operations", "offered", "fit") if name in answer}
    if answer["engine"] < 0:
        return {**counts, "plan": False}
    fallback = {} if answer["mode"] == "A" else {"mode": answer["mode"]}
    found = {**counts, **fallback, "engine": answer["engine"], "workspace": answer["workspace"]}
    return {**found, **({"v7": answer["v7"]} if "v7" in answer else {})}


def check_program(artifact: Artifact, questions: set[Question]) -> None:
    """Fails if a program has graphs that the report does not list, and cannot open a device of compute capability 9.0 with them."""
    if questions - listed() and not cuda_wheels.why_none():
        answers_to(artifact, devices.descriptions()[ALL][1], asking.Libraries.of_wheels())


# ---- writing ------------------------------------------------------------------------------------


def write(questions: Iterable[Question]) -> None:
    """Ask all questions, and write the report.

    Graphs that no program has are left out: a test may have changed the product to make them.
    """
    described, libraries = devices.descriptions(), asking.Libraries.of_wheels()
    had = set().union(*(questions_of(each.source) for group in groups(questions) for each in programs_of(group)))
    questions = had.intersection(questions)
    tasks = [
        (capability, group)
        for capability in (ALL, *SAMPLED)
        for group in groups(each for each in questions if is_asked(each, capability))
    ]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda task: answers(task[1], described[task[0]][1], libraries), tasks))
    rows: dict[Question, dict[str, Any]] = {}
    for (capability, _), found in zip(tasks, said, strict=True):
        for question, answer in found.items():
            rows.setdefault(question, {})[name_of(capability)] = answer
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text_of(rows), encoding="utf-8")
    for cached in (entries, listed):
        cached.cache_clear()


def text_of(rows: dict[Question, dict[str, Any]]) -> str:
    """The report: a graph in a line."""
    described = devices.descriptions()
    head = {
        "cudnn": cuda_wheels.PINS["nvidia-cudnn-cu13"],
        "devices": {name_of(each): described[each][0] for each in (ALL, *SAMPLED)},
        "graphs": len(rows),
        "answers": sum(map(len, rows.values())),
        "without a plan": sum(not answer.get("plan", True) for each in rows.values() for answer in each.values()),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    for kind in ("attention", "convolution"):
        chosen = sorted(each for each in rows if isinstance(each, Attention) == (kind == "attention"))
        lines += [f' "{kind}": [']
        lines += [f"  {json.dumps({**to_json(each), **rows[each]})}," for each in chosen]
        lines[-1] = lines[-1].rstrip(",")
        lines += [" ],"]
    lines[-1] = " ]"
    return "\n".join(["{", *lines, "}", ""])
