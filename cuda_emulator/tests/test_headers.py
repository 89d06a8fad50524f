"""The emulator's headers say what NVIDIA's say: enumerators, structs and prototypes, where those headers are installed.

They come with the wheels nvidia-cublas, nvidia-cusolver, nvidia-cudnn-cu13, nvidia-cuda-runtime, nvidia-cuda-crt and
nvidia-cuda-cccl, which `tests/cuda_wheels.py` installs; no GPU is needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pycparser  # type: ignore[import-untyped]
import pytest
from pycparser import c_ast, c_generator

from cuda_emulator import INCLUDE, declarations, find_compiler
from tests import cuda_wheels

HEADERS = ["cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cusolverDn.h"]
CUDA_13 = 13000
# What cffi knows by itself and a parser of C does not.
BUILT_IN = "typedef unsigned long size_t; typedef int int32_t; typedef long int64_t; typedef unsigned char uint8_t;\n"
BUILT_IN += "typedef unsigned int uint32_t; typedef unsigned long uint64_t;\n"


def _folders() -> Iterator[Path]:
    """The places where NVIDIA's headers may be: in wheels, and in a toolkit."""
    if not cuda_wheels.why_none():
        yield from sorted(cuda_wheels.nvidia().glob("*/include"))
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or [] if spec else []:
        yield from sorted(Path(root).glob("*/include"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if name in os.environ:
            yield Path(os.environ[name]) / "include"
    yield Path("/usr/local/cuda/include")


def _includes(header: str) -> list[str]:
    """The folders for a header of NVIDIA's; the test is skipped where it is not installed."""
    folders = [folder for folder in _folders() if folder.is_dir()]
    for needed in (header, "cuda_runtime_api.h", "crt/host_defines.h"):
        if not any((folder / needed).exists() for folder in folders):
            pytest.skip(f"NVIDIA's {needed} is not installed (wheels nvidia-cublas, nvidia-cudnn-cu13, nvidia-cuda-*)")
    runtime = next(folder for folder in folders if (folder / "cuda_runtime_api.h").exists())
    version = re.search(r"#define CUDART_VERSION\s+(\d+)", (runtime / "cuda_runtime_api.h").read_text(encoding="utf-8"))
    if version is None or int(version[1]) < CUDA_13:
        pytest.skip("the headers that are installed are older than CUDA 13")
    return [f"-I{folder}" for folder in folders]


def _compiles(tmp_path: Path, header: str, text: str, *flags: str) -> None:
    (tmp_path / "check.cpp").write_text(f"#include <stddef.h>\n#include <{header}>\n{text}", encoding="utf-8")
    command = [*find_compiler()[0], "-std=c++17", "-fsyntax-only", *_includes(header), *flags, "check.cpp"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def _parsed(header: str) -> list[c_ast.Node]:
    """The declarations of one of our headers that are NVIDIA's too."""
    tree = pycparser.CParser().parse(BUILT_IN + declarations(header))
    return [node for node in tree.ext if "emulator" not in (getattr(node, "name", None) or "")]


def _enumerators(nodes: list[c_ast.Node]) -> list[tuple[str, int]]:
    found = []
    for node in nodes:
        kind = getattr(getattr(node, "type", None), "type", None)
        kind = kind if isinstance(kind, c_ast.Enum) else getattr(node, "type", None)
        if isinstance(kind, c_ast.Enum) and kind.values:
            for each in kind.values.enumerators:
                if not each.name.startswith("EMULATOR_"):
                    found.append(
                        (each.name, int(c_generator.CGenerator().visit(each.value).strip("()").rstrip("U"), 0))
                    )
    return found


def _structs(nodes: list[c_ast.Node]) -> Iterator[tuple[str, c_ast.Struct]]:
    for node in nodes:
        if isinstance(node, c_ast.Typedef) and isinstance(kind := node.type.type, c_ast.Struct) and kind.decls:
            yield node.name, kind


@pytest.mark.parametrize("header", HEADERS)
def test_enumerators_have_the_same_numbers(header: str, tmp_path: Path) -> None:
    pairs = _enumerators(_parsed(header))
    assert len(pairs) > 10
    checks = [f'static_assert((long long){name} == {value}LL, "{name}");' for name, value in pairs]
    _compiles(tmp_path, header, "\n".join(checks))


@pytest.mark.parametrize("header", HEADERS)
def test_functions_have_the_same_prototypes(header: str, tmp_path: Path) -> None:
    write = c_generator.CGenerator().visit
    functions = [
        node for node in _parsed(header) if isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl)
    ]
    assert len(functions) > 10
    # A second declaration with other parameters is an overload in C++, which the C linkage of the first forbids.
    _compiles(tmp_path, header, 'extern "C" {\n' + "".join(f"{write(node)};\n" for node in functions) + "}\n")


@pytest.mark.parametrize("header", HEADERS)
def test_structs_have_the_same_fields_and_sizes(header: str, tmp_path: Path) -> None:
    compiler = find_compiler()[0]
    fields = [f"offsetof({name}, {field.name})" for name, kind in _structs(_parsed(header)) for field in kind.decls]
    sizes = [f"sizeof({name})" for name, _ in _structs(_parsed(header))]
    if not sizes:
        pytest.skip("it has no structs")
    ours = tmp_path / "ours.cpp"
    lines = "".join(f'    printf("%zu\\n", {each});\n' for each in [*fields, *sizes])
    ours.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "{header}"\nint main() {{\n{lines}}}\n', encoding="utf-8"
    )
    program = tmp_path / "ours"
    subprocess.run([*compiler, f"-I{INCLUDE}", str(ours), "-o", str(program)], check=True)
    numbers = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split()
    checks = [
        f'static_assert({each} == {number}, "");' for each, number in zip([*fields, *sizes], numbers, strict=True)
    ]
    _compiles(tmp_path, header, "\n".join(checks))


@pytest.mark.parametrize("header", ["cublas_v2.h"])
def test_the_names_that_programs_write_lead_to_the_same_functions(header: str, tmp_path: Path) -> None:
    macros = re.findall(r"#define (cublas\w+) (cublas\w+)\n", (INCLUDE / header).read_text(encoding="utf-8"))
    assert len(macros) > 10
    checks = [f'static_assert({plain} == {real}, "{plain}");' for plain, real in macros]
    _compiles(tmp_path, header, "\n".join(checks))


def test_a_wrong_number_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="CUBLAS_OP_T"):
        _compiles(tmp_path, "cublas_v2.h", 'static_assert(CUBLAS_OP_T == 2, "CUBLAS_OP_T");')


def test_a_wrong_prototype_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="cublasCreate_v2"):
        _compiles(tmp_path, "cublas_v2.h", 'extern "C" cublasStatus_t cublasCreate_v2(cublasHandle_t handle);')
