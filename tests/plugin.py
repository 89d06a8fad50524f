"""Fixtures of every test folder: real data, optional libraries, golden text, the program cache.

A test that lacks its data or a library of the `test` extra skips with the reason, so that a plain checkout can run the
suite. With `CI=true` in the environment the same absence is a failure: a suite that skipped its way to green proves
nothing.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import emulated_libraries, noted, slow_tests, torch_reference

GOLDEN = Path(__file__).parent / "golden"
WATCH = pytest.StashKey[noted.Watch]()

# What the extras `test` and, for `--all`, `test-all` of pyproject.toml install: without one of these a CI run is not a run.
REQUIRED_LIBRARIES = {"sklearn", "safetensors", "hypothesis", "click", "rich", "matplotlib"}
ALSO_FOR_ALL = {"torch", "cuda"}


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def unavailable(reason: str) -> None:
    """Skip the running test because something is missing; fail it in CI."""
    if in_ci():
        pytest.fail(f"missing in CI: {reason}", pytrace=False)
    pytest.skip(reason)


def forbidden_skip(reason: str) -> bool:
    """True if a skip with this reason must not happen in CI (also when a test calls `importorskip` by itself)."""
    missing = re.search(r"could not import '([\w.]+)'|[Nn]o module named '([\w.]+)'", reason)
    if missing:
        return (missing[1] or missing[2]).split(".")[0] in REQUIRED_LIBRARIES
    return "STAGED_DATA" in reason


# ---- fixtures -----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def data_folder() -> Callable[[str], Path]:
    """`data_folder("mnist")` is that folder of `$STAGED_DATA`; skips (in CI: fails) where it is absent."""

    def find(name: str) -> Path:
        root = os.environ.get("STAGED_DATA")
        if not root:
            unavailable(f"STAGED_DATA is not set, and this test reads its folder `{name}`")
        folder = Path(str(root)) / name
        if not folder.is_dir():
            unavailable(f"STAGED_DATA has no folder `{name}`")
        return folder

    return find


@pytest.fixture(scope="session")
def library() -> Callable[[str], ModuleType]:
    """`library("torch")` imports an optional library; skips (in CI: fails, if the `test` extra has it) without it."""

    def load(name: str) -> ModuleType:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if name.split(".")[0] in REQUIRED_LIBRARIES:
                unavailable(f"could not import '{name}': {error}")
            pytest.skip(f"could not import '{name}': {error}")

    return load


@pytest.fixture(scope="session")
def full(pytestconfig: pytest.Config) -> bool:
    """Whether a test that checks a sample of many cases should check all of them (`--full`)."""
    return bool(pytestconfig.getoption("--full"))


@pytest.fixture(scope="session")
def torch(library: Callable[[str], ModuleType]) -> ModuleType:
    """PyTorch itself: a test that takes it runs with `--all` alone. What is small has a record (see `torch_reference`)."""
    return library("torch")


@pytest.fixture
def emulated_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The emulated device, for programs with GPU regions; a test that misuses it fails, unless its fixtures have `misuse`.

    With `--on-gpu` the test's programs run on the GPU of this machine (see `on_gpu`).
    """
    if request.config.getoption("--on-gpu"):
        from tests.on_gpu import UncountedDevice

        if "misuse" in request.fixturenames:
            pytest.skip("it misuses the device, which a GPU does not forgive a process")
        yield UncountedDevice()
        return
    from staged.runtime import cuda

    monkeypatch.setenv("STAGED_CUDA", "emulate")
    device = cuda.emulator()
    before = device.counts()
    yield device
    device.set_thread_order("forward")
    if "misuse" not in request.fixturenames:
        assert (device.counts() - before).violations == 0, device.last_violation()


@pytest.fixture
def device(emulated_device: Any) -> Any:
    """The emulated device, by the name of files whose tests all run on it."""
    return emulated_device


@pytest.fixture
def two(emulated_device: Any) -> Any:
    """Two emulated devices."""
    emulated_device.configure("devices=2")
    return emulated_device


@pytest.fixture
def misuse() -> None:
    """For a test that misuses the emulated device on purpose."""


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`golden(text)` compares with `tests/golden/<folder>/<module>/<test>.c`; `--update-golden` rewrites the file.

    A second text of one test takes a name: `golden(header, name="header", suffix=".h")`. A failure leaves the actual
    text beside the golden one, as `<file>.actual`.
    """
    module = request.path.relative_to(Path(__file__).parent).with_suffix("")
    folder = GOLDEN / module.parent / module.name.removeprefix("test_")
    test = re.sub(r"[^\w.-]+", "_", request.node.name.removeprefix("test_")).strip("_")

    def compare(text: str, name: str = "", suffix: str = ".c") -> None:
        from staged.testing import check_golden

        path = folder / f"{test}{'.' + name if name else ''}{suffix}"
        check_golden(text, path, update=request.config.getoption("--update-golden"))

    return compare


@pytest.fixture
def needs_nvrtc() -> None:
    """For tests that give texts to NVIDIA's compiler: `make test` leaves them out."""
    from tests.cuda_toolchain import why_no_nvrtc

    if why_no_nvrtc():
        unavailable(why_no_nvrtc())


@pytest.fixture
def needs_cuda_wheels() -> None:
    """For tests that use NVIDIA's headers and libraries: `make test` leaves them out."""
    from tests import cuda_wheels

    if cuda_wheels.why_none():
        unavailable(cuda_wheels.why_none())


@pytest.fixture(autouse=True)
def random_numbers_start_anew() -> None:
    """Random numbers go on from call to call: what a test draws must not depend on those that ran before."""
    import staged as st

    st.seed(0)


@pytest.fixture(scope="session", autouse=True)
def programs_for_the_emulated_device_compile_for_gpus(pytestconfig: pytest.Config) -> Iterator[None]:
    """With `--all`, each program that a test runs on the emulated device is also compiled for GPUs (see `cuda_toolchain`).

    With `--note` it is kept, for a run with `--all --rest` to compile.
    """
    watch = pytestconfig.stash.get(WATCH, None)
    if watch is None and not pytestconfig.getoption("--all"):
        yield
        return
    from staged.runtime.cuda import loading
    from tests.cuda_toolchain import check_for_gpus

    compile_emulated = loading.compile_emulated

    def checked(artifact: Any, options: Any) -> Path:
        if watch is not None:
            watch.notes.keep(watch.test, artifact)
        else:
            check_for_gpus(artifact, pytestconfig.getoption("--full"))
        return compile_emulated(artifact, options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "compile_emulated", checked)
        yield


# ---- hooks --------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files below tests/golden/")
    parser.addoption(
        "--all",
        action="store_true",
        help="slow tests too, PyTorch itself beside its recorded results, and CUDA's compiler on what the emulated device runs",
    )
    parser.addoption("--full", action="store_true", help="all that --all has, and what it only samples (make test-full)")
    parser.addoption(
        "--rest",
        action="store_true",
        help="with --all: leave out what a run without it has tested already, and alike (more of it after one with --note)",
    )
    parser.addoption(
        "--note", action="store_true", help="note what a run with --all --rest after this one need not do again (see noted.py)"
    )
    parser.addoption("--record-references", action="store_true", help="record PyTorch's results anew (make references)")
    parser.addoption(
        "--on-gpu", action="store_true", help="tests of the emulated device run on the GPU, and are marked `gpu`"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--full"):
        config.option.all = True
    if config.getoption("--all"):
        REQUIRED_LIBRARIES.update(ALSO_FOR_ALL)
    # A shell starts its background jobs with Ctrl-C ignored, which processes pass on to the ones that they start: tests of Ctrl-C
    # begin with Python's own handler.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long random examples take depends on what else the machine does.
    with contextlib.suppress(ImportError):
        import hypothesis

        patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
        hypothesis.settings.register_profile("patient", **patient)
        hypothesis.settings.load_profile("patient")
    # The programs that tests compile stay out of the user's own cache. They are kept between runs: a program's key is
    # its text, compiler and flags, so a stale one cannot be met. Set in the environment, for subprocesses too.
    os.environ.setdefault("STAGED_VERIFY", "1")
    cache = os.environ.setdefault("STAGED_CACHE_DIR", str(config.rootpath / ".pytest_cache" / "programs"))
    # The libraries that `staged` builds there have the same keys: tests of the device alone do not build them again.
    os.environ.setdefault("CUDA_EMULATOR_CACHE", str(Path(cache) / "programs"))
    if "STAGED_TEST_RESULTS" not in os.environ:  # in the process that starts the workers: jobs of ranks run once for all
        shared = tempfile.TemporaryDirectory(prefix="staged-results-")
        os.environ["STAGED_TEST_RESULTS"] = shared.name
        config.add_cleanup(shared.cleanup)
        config.add_cleanup(lambda: os.environ.pop("STAGED_TEST_RESULTS"))
    torch_reference.RUNNING = torch_reference.Records(
        config.getoption("--all"), config.getoption("--record-references")
    )
    config.pluginmanager.register(slow_tests.Stopwatch(config))
    if config.getoption("--note") and not config.getoption("--all"):
        take_notes(config, torch_reference.RUNNING)


def notes_of(config: pytest.Config) -> noted.Notes:
    return noted.Notes(config.rootpath / ".pytest_cache" / "noted")


def take_notes(config: pytest.Config, records: torch_reference.Records) -> None:
    watch = noted.Watch(notes_of(config), records)
    if not hasattr(config, "workerinput"):  # in the process that starts the workers, before it does
        watch.notes.begin()
    watch.install()
    config.stash[WATCH] = watch
    config.pluginmanager.register(watch)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    on_gpu = config.getoption("--on-gpu")
    leave_out_what_only_all_has(config, items)
    for item in items if on_gpu else ():
        if "emulated_device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)
    for_gpus = [item for item in items if item.get_closest_marker("gpu")]
    if not for_gpus:
        return
    from staged.runtime.cuda.devices import gpu_count, is_emulated

    count, reason = gpu_count()
    for item in [] if count or on_gpu and is_emulated() else for_gpus:
        item.add_marker(pytest.mark.skip(reason=f"no GPU: {reason}"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was collected, which lives until the end, out of collections of garbage: they take half a second with it."""
    if not (session.config.option.collectonly or session.config.getoption("--on-gpu")):
        emulated_libraries.build_for(session.items)
    gc.collect()
    gc.freeze()


def leave_out_what_only_all_has(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slow tests; without `--all` leave out what is marked, unless a test is named (`file::test`) or `-m` asks."""
    slow_tests.mark_slow(items)
    runs_all = config.getoption("--all")
    if config.getoption("markexpr") or any("::" in word for word in config.args):
        return
    if not config.getoption("--full"):
        deselect(config, items, {item for item in items if item.get_closest_marker("full")})
    if runs_all and not config.getoption("--rest"):
        return

    def is_fast(item: pytest.Item) -> bool:
        marked = any(map(item.get_closest_marker, ("slow", "live", "ranks")))
        return not marked and not {"torch", "needs_nvrtc", "needs_cuda_wheels"}.intersection(getattr(item, "fixturenames", ()))

    alike = notes_of(config).alike() if runs_all else set()

    def has_its_place(item: pytest.Item) -> bool:
        if not runs_all:
            return is_fast(item)
        return not is_fast(item) or (differs_with_all(item.path) and item.nodeid not in alike)

    deselect(config, items, {item for item in items if not has_its_place(item)})


def deselect(config: pytest.Config, items: list[pytest.Item], left_out: set[pytest.Item]) -> None:
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@cache
def differs_with_all(path: Path) -> bool:
    """Return whether fast tests of a module do more with `--all`: beside PyTorch itself, or with CUDA's compiler."""
    return re.search("torch|cuda|gpu|emulated", path.read_text(), re.IGNORECASE) is not None or "cublas_cudnn" in path.parts


def pytest_runtest_setup(item: pytest.Item) -> None:
    assert torch_reference.RUNNING is not None
    torch_reference.RUNNING.begin(item)


def refuse_forbidden_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (report.skipped and in_ci()) or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if forbidden_skip(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where everything it needs must be there: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    refuse_forbidden_skip(report)
    return report  # type: ignore[return-value]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    refuse_forbidden_skip(report)
    return report  # type: ignore[return-value]
