"""The part `libraries`: the products of programs, cuDNN's answers for a described device, and the calls that need a device."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from staged.base.artifact import Artifact
from staged.runtime.compiler import find_compiler
from staged.runtime.cuda.devices import gpu_count
from tests import cuda_wheels
from tests.cudnn_without_gpu import asking, devices
from tests.cudnn_without_gpu.asking import Libraries, OracleError
from tests.cudnn_without_gpu.questions import FORWARD, ORDERED, Attention, Convolution, from_json, questions_of
from tests.gpu_check import libraries
from tests.gpu_check.examples import EXAMPLES
from tests.gpu_check.libraries import Product
from tests.gpu_check.setting import Setting

FIRST = Convolution("f32", (20, 1, 28, 28), (10, 1, 5, 5), (0, 0), (1, 1), (1, 1), 1, "forward")


@pytest.fixture(scope="module")
def mnist() -> Artifact:
    function, arguments = EXAMPLES[0]
    artifact: Artifact = function.stage(**arguments)._artifact
    return artifact


def test_the_products_of_a_program_are_those_that_it_calls(mnist: Artifact) -> None:
    """Hidden layer of 50, images of 320 features, 10 classes, batches of 20: forward, and both gradients."""
    assert libraries.products_of(mnist.source) >= {
        Product(50, 20, 320, "T", "N"),
        Product(10, 20, 50, "T", "N"),
        Product(320, 50, 20, "N", "T"),
        Product(50, 20, 10, "N", "N"),
    }
    assert FIRST in questions_of(mnist.source)


def test_each_product_is_asked_in_all_types_with_all_epilogues() -> None:
    lines = libraries.lines_of({Product(50, 20, 320, "T", "N")})
    assert len(lines) == len(set(lines)) == 12
    assert {"50 20 320 T N f32 f32 NONE", "50 20 320 T N f32 tf32 RELU_BIAS", "50 20 320 T N bf16 f32 GELU_BIAS"} <= set(lines)


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_the_answers_for_a_described_device_are_in_the_file(mnist: Artifact, tmp_path: Path) -> None:
    description, path = devices.descriptions()[9, 0][1], tmp_path / "libraries.json"
    content = libraries.ask(path, questions_of(mnist.source), libraries.products_of(mnist.source), Libraries.of_wheels(), description)
    assert json.loads(path.read_text()) == content
    assert content["device"] == description and content["failures"] == [] and content["left_out"] == 0
    rows = {from_json(row): row for row in content["graphs"]}
    assert rows[FIRST]["offered"] > 10 and rows[FIRST]["workspace"] >= 0
    # A device is found again among those of the check.
    (tmp_path / "card").mkdir()
    path.rename(tmp_path / "card" / "libraries.json")
    assert devices.descriptions(tmp_path) == {(9, 0): ("card", description)}


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_questions_without_time_are_left_out_and_counted(mnist: Artifact, tmp_path: Path) -> None:
    description, questions = devices.descriptions()[9, 0][1], questions_of(mnist.source)
    content = libraries.ask(tmp_path / "libraries.json", questions, [], Libraries.of_wheels(), description, time.monotonic())
    assert content["left_out"] + len(content["graphs"]) == len(questions)


@pytest.mark.usefixtures("needs_cuda_wheels")
@pytest.mark.skipif(gpu_count()[0] > 0, reason="this machine has a GPU")
def test_without_a_device_cublaslt_and_a_handle_of_cudnn_are_not_initialized(tmp_path: Path) -> None:
    """cublasLt has no algorithms for a described device: it needs a handle, and a handle needs a device."""
    wheels = Libraries.of_wheels()
    program = libraries.build(tmp_path, wheels)
    (said,) = libraries.lines_from(program, "products", "50 20 320 T N f32 f32 BIAS", wheels)
    assert said == {"function": "cublasLtCreate(&handle)", "status": "CUBLAS_STATUS_NOT_INITIALIZED"}
    with pytest.raises(OracleError, match="cuDNN does not describe the device: cudnnCreate.*CUDNN_STATUS_NOT_INITIALIZED"):
        libraries.ask(tmp_path / "libraries.json", [], [], wheels)
    assert json.loads((tmp_path / "libraries.json").read_text())["products"] == [said]


@pytest.mark.parametrize(("network", "precision"), [("mlp", "bf16"), ("cnn", "f32")])
def test_the_file_has_the_graphs_and_products_of_the_networks(network: str, precision: str) -> None:
    """`python -m tests.gpu_check.libraries` writes it again."""
    questions, products = libraries.asked_by(network, precision)
    assert questions <= libraries.asked()[0] and products <= libraries.asked()[1]
    assert products


@pytest.mark.slow
@pytest.mark.parametrize(("network", "precision"), [("resnet50", "f32"), ("gpt2", "bf16")])
def test_the_file_has_those_of_the_large_networks(network: str, precision: str) -> None:
    """GPT-2 in bf16 has attention, and its gradient in one order."""
    test_the_file_has_the_graphs_and_products_of_the_networks(network, precision)
    graphs = {question.graph for question in libraries.asked()[0] if isinstance(question, Attention)}
    assert graphs == {FORWARD, ORDERED}


def test_a_rehearsal_without_the_wheels_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cuda_wheels, "why_none", lambda: "no wheels here")
    result = libraries.run(Setting(tmp_path, rehearsed=True))
    assert (result.state, result.summary) == ("refused", "no wheels here")


@pytest.mark.usefixtures("needs_cuda_wheels")
@pytest.mark.parametrize("source", [Path(libraries.__file__).with_suffix(".c"), asking.HERE / "oracle.c", asking.HERE / "driver.c"])
def test_the_c_sources_compile_without_warnings(source: Path, tmp_path: Path) -> None:
    system = [word for header in Libraries.of_wheels().headers for word in ("-isystem", str(header))]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-c", str(source), "-o", "object.o"]
    asking.run_tool([*find_compiler().command, *system, *flags], tmp_path)
