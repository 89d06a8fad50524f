"""Each module of `kernels`, `backends` and `passes` has a test file of its name, or says where it is tested."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("kernels", "backends", "passes")

UNTESTED = frozenset(
    """
    backends/c_family/body.py
    backends/c_family/calls.py
    backends/c_family/code/dialect.py
    backends/c_family/code/tree.py
    backends/c_family/code/types.py
    backends/c_family/contraction/conv2d.py
    backends/c_family/contraction/conv2d_columns.py
    backends/c_family/contraction/conv2d_weight.py
    backends/c_family/contraction/items.py
    backends/c_family/contraction/matmul.py
    backends/c_family/contraction/matmul_plan.py
    backends/c_family/contraction/operands.py
    backends/c_family/contraction/planes.py
    backends/c_family/contraction/skinny.py
    backends/c_family/contraction/spec.py
    backends/c_family/contraction/tile.py
    backends/c_family/contraction/vectors.py
    backends/c_family/contraction_call.py
    backends/c_family/cpu_nest/epilogue.py
    backends/c_family/cpu_nest/kernel.py
    backends/c_family/cpu_nest/vector_loops.py
    backends/c_family/cpu_nest/vector_statements.py
    backends/c_family/cpu_nest/vector_totals.py
    backends/c_family/cpu_nest/vectors.py
    backends/c_family/file.py
    backends/c_family/header_words.py
    backends/c_family/interface.py
    backends/c_family/kernel_library.py
    backends/c_family/messages.py
    backends/c_family/nest/loops.py
    backends/c_family/nest/lowering.py
    backends/c_family/nest/statements.py
    backends/c_family/nest/totals.py
    backends/c_family/nest/value.py
    backends/c_family/program.py
    backends/c_family/progress.py
    backends/c_family/residuals.py
    backends/c_family/standalone/build.py
    backends/c_family/standalone/library.py
    backends/c_family/standalone/main.py
    backends/c_family/standalone/words.py
    backends/c_family/structure.py
    backends/c_family/support/arithmetic.py
    backends/c_family/support/checks.py
    backends/c_family/support/clock.py
    backends/c_family/support/files.py
    backends/c_family/support/format.py
    backends/c_family/support/host.py
    backends/c_family/support/lanes.py
    backends/c_family/support/library.py
    backends/c_family/support/own_stack.py
    backends/c_family/support/progress.py
    backends/c_family/support/team.py
    backends/c_family/support/variety.py
    backends/c_family/support/vectors.py
    backends/c_family/unused.py
    backends/c_family/value_uses.py
    backends/cublas_cudnn/backend.py
    backends/cublas_cudnn/description.py
    backends/cublas_cudnn/device.py
    backends/cublas_cudnn/dialect.py
    backends/cublas_cudnn/emit.py
    backends/cublas_cudnn/entry.py
    backends/cublas_cudnn/graph_text.py
    backends/cublas_cudnn/launches.py
    backends/cublas_cudnn/library/batch_norm_calls.py
    backends/cublas_cudnn/library/call.py
    backends/cublas_cudnn/library/contraction.py
    backends/cublas_cudnn/library/convolution.py
    backends/cublas_cudnn/library/ctc_calls.py
    backends/cublas_cudnn/library/cublas.py
    backends/cublas_cudnn/library/cublaslt.py
    backends/cublas_cudnn/library/cudnn.py
    backends/cublas_cudnn/library/form.py
    backends/cublas_cudnn/library/recurrent_calls.py
    backends/cublas_cudnn/library/reverses.py
    backends/cublas_cudnn/library/running.py
    backends/cublas_cudnn/library/sums.py
    backends/cublas_cudnn/library/whole.py
    backends/cublas_cudnn/peers.py
    backends/cublas_cudnn/permutation_text.py
    backends/cublas_cudnn/program.py
    backends/cublas_cudnn/runs.py
    backends/cublas_cudnn/sequences.py
    backends/cublas_cudnn/spelling.py
    backends/cublas_cudnn/stacks.py
    backends/cublas_cudnn/structure.py
    backends/cublas_cudnn/thread_support.py
    backends/gpu_family/dialect.py
    backends/gpu_family/nest/kernel.py
    backends/gpu_family/nest/statements.py
    backends/gpu_family/nest/tiles.py
    backends/gpu_family/permutations.py
    backends/gpu_family/plan.py
    backends/gpu_family/support.py
    backends/gpu_family/thread_expressions.py
    backends/gpu_family/thread_kernels.py
    backends/gpu_family/thread_variables.py
    backends/gpu_family/tiles.py
    backends/gpu_family/windows.py
    backends/native/backend.py
    backends/opencl/backend.py
    backends/opencl/dialect.py
    backends/opencl/file.py
    backends/opencl/program.py
    backends/opencl/structure.py
    backends/registry.py
    kernels/axes.py
    kernels/clone.py
    kernels/epilogue.py
    kernels/indices.py
    kernels/kinds.py
    passes/algebra.py
    passes/comparisons.py
    passes/memory/frames.py
    passes/memory/groups.py
    passes/memory/liveness.py
    passes/memory/staging.py
    passes/partial_sums.py
    passes/placement/copies.py
    passes/placement/device_reads.py
    passes/placement/devices.py
    passes/transposes.py
    """.split()
)
"""Modules that still lack a test file and the line: only removals are allowed."""


def named_tests(text: str) -> list[str]:
    """The files in the sentence `Tested by ...` of a module's docstring."""
    sentence = re.search(
        r"^Tested by ([^.]*(?:\.py`[^.]*)+)\.$", ast.get_docstring(ast.parse(text)) or "", re.MULTILINE
    )
    return re.findall(r"`([^`]+)`", sentence[1]) if sentence else []


def lacking(modules: Iterable[Path], root: Path) -> set[str]:
    """The modules without a test file of their name in the tests of their folder, and without the sentence."""
    found = set()
    for module in modules:
        folder = module.relative_to(root / "staged").parts[0]
        own = (root / "tests" / folder).rglob(f"test_{module.stem}.py")
        if module.name != "__init__.py" and not any(own) and not named_tests(module.read_text()):
            found.add(str(module.relative_to(root / "staged")))
    return found


def modules(root: Path) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((root / "staged" / folder).rglob("*.py"))]


def test_each_module_has_a_test_file_or_names_one() -> None:
    found = lacking(modules(ROOT), ROOT)
    assert not found - UNTESTED, "write `tests/<folder>/test_<module>.py`, or `Tested by ...` in the docstring"
    assert not UNTESTED - found, "these have a test now: remove them from the list"


def test_named_test_files_exist() -> None:
    missing = [
        f"{module.relative_to(ROOT)} names {name}"
        for module in modules(ROOT)
        for name in named_tests(module.read_text())
        if not (ROOT / name).is_file() or not Path(name).name.startswith("test_")
    ]
    assert not missing


def test_a_module_without_a_test_is_found(tmp_path: Path) -> None:
    for folder in ("staged/passes", "tests/passes/deeper"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "staged/passes/__init__.py").write_text("")
    (tmp_path / "staged/passes/own.py").write_text('"""Has a file."""')
    (tmp_path / "tests/passes/deeper/test_own.py").write_text("")
    (tmp_path / "staged/passes/other.py").write_text(
        '"""Names one.\n\nTested by `tests/a/test_b.py` and `tests/test_c.py`.\n"""'
    )
    (tmp_path / "staged/passes/alone.py").write_text('"""Is tested by chance."""')
    assert lacking(modules(tmp_path), tmp_path) == {"passes/alone.py"}
    assert named_tests((tmp_path / "staged/passes/other.py").read_text()) == ["tests/a/test_b.py", "tests/test_c.py"]
