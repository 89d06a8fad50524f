"""A rank that fails prints its rank and its line once, and all ranks end: at once if one fails, or when one would wait forever."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.ranks import jobs

pytestmark = pytest.mark.ranks

FOLDER = Path(__file__).parent
RUNS = int(os.environ.get("STAGED_INTERRUPTIONS", "1"))
"""Each interruption happens so often, at other moments."""
MOST_SECONDS = 5.0
LEFT = r"rank 1 has ended, and rank \d waits for it in a collective\n"

# By case: the number of ranks, the status (None: any but 0), and patterns of which each is printed once.
ENDINGS: dict[str, tuple[int, int | None, tuple[str, ...]]] = {
    "assertion": (3, 1, (r"rank 1:\nTraceback", r"ProgramAssertionError: .*: planted\n  .*endings.py, line \d+, in total\n")),
    "assertion_on_all": (3, 1, (r"rank \d:\nTraceback", r"ProgramAssertionError: assertion failed: planted")),
    "nan_check": (3, 1, (r"rank [12]:\nTraceback", r"ProgramNanError: .*\n  .*endings.py, line \d+, in root\n")),
    "index": (3, 1, (r"rank 2:\nTraceback", r"ProgramIndexError: .*\n  .*endings.py, line \d+, in picked\n")),
    "exception": (3, 1, (r"rank 1:\nTraceback", r"ValueError: planted")),
    "keyboard": (2, 130, (r"rank 1:\nTraceback", r"\nKeyboardInterrupt\n")),
    "system_exit": (3, 1, (LEFT,)),
    "system_exit_at_the_end": (2, 3, ()),
    "early_return": (2, 1, (LEFT,)),
    "before_the_second_program": (2, 1, (LEFT,)),
    "os_exit": (2, 4, ()),
    "killed": (3, 9, ()),
    "thread": (2, 1, (r"ValueError: planted", LEFT)),
    "caught": (2, 1, (r"caught\n", LEFT)),
    "caught_by_all": (2, 0, ()),
    "own_hook": (2, 1, (r"own hook\n", LEFT)),
    "fork": (2, 0, (r"ValueError: planted",)),
    "slow_rank": (2, 0, ()),
    "exception_after_the_others_have_ended": (3, 1, (r"rank 1:\nTraceback", r"ValueError: planted")),
    "exception_before_mpi": (3, 1, (r"rank 1:\nTraceback", r"ValueError: planted")),
    "mpi4py_before": (2, 0, ()),
    "mpi4py_after": (2, 0, ()),
    "mpi4py_before_and_exit": (2, 1, (LEFT,)),
    "mpi4py_after_and_exception": (2, 1, (r"rank 1:\nTraceback", r"ValueError: planted")),
    "mpi4py_after_and_finalize": (2, 1, (r"rank 1:\nTraceback",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def endings(request):
    """The jobs of the selected cases, two at a time: they wait more than they compute."""
    items = [item for item in request.session.items if "endings" in getattr(item, "fixturenames", ())]
    names = [item.callspec.params["name"] for item in items]
    with ThreadPoolExecutor(2) as pool:
        program = FOLDER / "endings.py"
        yield {name: pool.submit(jobs.run, program, ENDINGS[name][0], name, limit=60) for name in names}


CORE = ("assertion", "assertion_on_all", "system_exit", "mpi4py_before")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.core] if name in CORE else []) for name in ENDINGS]
)
def test_all_ranks_end(endings, name):
    if name.startswith("mpi4py"):
        pytest.importorskip("mpi4py")
    _, status, printed = ENDINGS[name]
    done = endings[name].result()
    text = done.stdout + done.stderr
    assert not done.is_late, text
    assert done.status == status, text
    for pattern in printed:
        assert len(re.findall(pattern, text)) == 1, f"{pattern}\n{text}"


# ---- interruptions at random moments ------------------------------------------------------------


def interrupted(tmp_path: Path, kind: str, seed: int) -> tuple[jobs.Finished, float]:
    """A training run that is interrupted: the finished job, and the seconds from the interruption to the end of all."""
    moment = random.Random(seed)
    step = moment.randrange(20, 400) if kind in ("assertion", "full_disk") else -1
    victim = moment.randrange(3)
    arguments = (kind, str(step), str(victim if kind == "assertion" else 0), str(tmp_path))
    process = jobs.start(FOLDER / "interrupted.py", 3, *arguments)
    try:
        processes = [int((process.stdout.readline() or "0").split()[-1]) for _ in range(3)]
        assert all(processes), process.communicate(timeout=20)
        if step < 0:
            time.sleep(moment.uniform(0.0, 0.5))
            begun = time.monotonic()
            if kind == "kill":
                os.kill(processes[victim], signal.SIGKILL)
            else:
                os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            stdout, stderr = process.communicate(timeout=60)
        else:
            stdout, stderr = process.communicate(timeout=60)
            begun = min(float(text) for path in tmp_path.iterdir() if (text := path.read_text()))
        while any(map(is_alive, processes)) and time.monotonic() < begun + 60:
            time.sleep(0.01)
        seconds = time.monotonic() - begun
        return jobs.Finished(process.returncode, stdout, stderr, seconds, False), seconds
    finally:
        jobs.end(process)


def is_alive(process: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, 0)
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text() if sys.platform == "linux" else True
    return False


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize(
    "kind, printed",
    [
        ("assertion", r"ProgramAssertionError: assertion failed: planted\n  .*interrupted.py, line \d+, in step\n"),
        ("kill", ""),
        ("full_disk", r'ProgramFileError: .* "/dev/full": No space left on device\n  .*interrupted.py, line \d+, in log\n'),
        ("interrupt", r"KeyboardInterrupt"),
    ],
)  # fmt: skip
def test_an_interruption_ends_all_ranks(tmp_path, kind, printed, run):
    seed = run if RUNS == 1 else random.randrange(1 << 30)
    done, seconds = interrupted(tmp_path, kind, seed)
    text = f"seed {seed}\n{done.stdout}\n{done.stderr}"
    assert done.status not in (0, None), text
    assert seconds <= MOST_SECONDS, text
    if printed:
        assert len(re.findall(printed, done.stderr)) == 1, text
        assert len(re.findall(r"^rank \d:$", done.stderr, re.MULTILINE)) == 1, text


# ---- programs and Variables that differ ---------------------------------------------------------

DIFFERENT = """
import os, sys
import numpy as np
import staged as st
rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
case = sys.argv[1]
scale = 2.0 if rank == 2 and case == "program" else 1.0
options = {"target": "x86-64-v3" if rank == 1 else "x86-64-v4"} if case == "width" else {}
w = st.Variable(np.zeros(3), name="w")
v = st.Variable(np.zeros(3), name="v")
own = st.Variable(np.zeros(3), name="own", local=True)

@st.function(**options)
def step(x):
    x = st.shard(x)
    w.value = w.value + scale * st.all_reduce(st.sum(x))
    v.value = v.value + 1.0
    own.value = own.value + st.sum(x)

for k in range(7):
    if case == "drift" and rank == 2 and k == 4:
        v.value = v.numpy() + np.array([0.0, 0.0, 1e-15])
    step(np.arange(18.0).reshape(6, 3))
print("done")
"""


@pytest.mark.parametrize(
    "case, message",
    [
        ("program", r"rank 2 runs another program: train.py, line 14 \(rank 0: "),
        ("width", r"rank 1 has vectors of 32 bytes, rank 0 of 64: use `target=\"portable\"`"),
        ("drift", r"the replicated Variable `v` of rank 2 differs from that of rank 0, after 6 calls of `step`"),
        ("same", ""),
    ],
)
def test_ranks_that_would_differ_are_an_error(case, message, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(DIFFERENT)
    done = jobs.run(program, 3, case, changes={"STAGED_CHECK_RANKS": "3"}, limit=60)
    text = done.stdout + done.stderr
    assert not done.is_late, text
    assert done.status == (1 if message else 0), text
    if message:
        assert len(re.findall(message, text)) == 1, text
    else:
        assert done.stdout == "done\n" * 3


def test_a_number_of_calls_that_is_none_is_explained(tmp_path):
    program = tmp_path / "train.py"
    program.write_text(DIFFERENT)
    done = jobs.run(program, 2, "same", changes={"STAGED_CHECK_RANKS": "often"}, limit=60)
    assert done.status == 1
    assert "STAGED_CHECK_RANKS must be a number of calls, got 'often'" in done.stderr
