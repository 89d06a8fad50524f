"""Scalar C of every elementwise op against its reference, extreme numbers included."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staged.code.expr import Name
from staged.code.scalars import literal, scalar_expression
from staged.code.support.library import render
from staged.errors import StagedError
from staged.ir.nodes import Op, Value
from staged.ir.numbers import fits, limits
from staged.ir.types import ALL_DTYPES, STORED_DTYPES, DType, TensorType, bool_, f32, i64
from staged.ops import elementwise  # noqa: F401  declares the ops
from staged.ops.primitive import PRIMITIVES

FLAGS = "-std=c11 -O1 -ffp-contract=off -fno-math-errno -Wall -Wextra -Wconversion -Werror -shared -fPIC".split()


NO_EXPRESSION = {"index_check", "accumulate", "from_parts", "real_part", "imag_part"}
"""The first is a statement, the others have become `add`, or the parts of complex numbers, before any text is written."""


class Program:
    """Collects what the expressions need."""

    def __init__(self) -> None:
        self.snippets: set[str] = {"fail"}

    def need(self, *names: str) -> None:
        self.snippets.update(names)

    def site_of(self, where: object) -> int:
        return 3


def numbers(dtype: DType) -> list[Any]:
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        return [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-3, 7e8, -7e8, np.inf, -np.inf, np.nan]
    info = np.iinfo(dtype.numpy)
    return sorted(
        {0, 1, 2, 3, 7, 40, int(info.max), int(info.max) - 1, int(info.min), *([-1, -2, -7] if info.min else [])}
    )


def cases() -> list[tuple[str, tuple[DType, ...], DType, dict[str, Any]]]:
    found = []
    for name, primitive in PRIMITIVES.items():
        if primitive.kind != "elementwise" or name in NO_EXPRESSION:
            continue
        for dtype in STORED_DTYPES if primitive.is_of_storage else ALL_DTYPES:
            targets: list[dict[str, Any]] = [{"dtype": t} for t in STORED_DTYPES] if name in ("cast", "fit") else [{}]
            for attrs in targets:
                count = len(primitive.samples[0].operands)
                types = (bool_, dtype, dtype) if name == "select" else (dtype,) * count
                try:
                    (result,) = primitive.result_types([TensorType(t) for t in types], attrs)
                except StagedError:
                    continue
                assert isinstance(result, TensorType)
                found.append((name, types, result.dtype, attrs))
    return found


CASES = cases()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    program = Program()
    functions = []
    for number, (name, types, result, attrs) in enumerate(cases()):
        operands = [Value(TensorType(dtype)) for dtype in types]
        effects = PRIMITIVES[name].effects_on([operand.type for operand in operands], attrs)
        op = Op(name, operands, [TensorType(result)], attrs=attrs, effects=effects)
        text = scalar_expression(op, [Name(f"x{n}") for n in range(len(types))], program)
        parameters = ", ".join(f"{dtype.c_name} x{n}" for n, dtype in enumerate(types))
        functions.append(
            f"{result.c_name} f{number}(st_host *host, {parameters}) {{ (void)host; const {result.c_name} y = {text}; return y; }}"
        )
    includes, support = render(program.snippets)
    source = "\n".join([*includes, "#include <stdint.h>", "#include <stdbool.h>", support, *functions])
    folder = tmp_path_factory.mktemp("scalars")
    (folder / "s.c").write_text(source)
    done = subprocess.run(
        ["gcc", *FLAGS, str(folder / "s.c"), "-o", str(folder / "s.so"), "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[:3000]
    return ctypes.CDLL(str(folder / "s.so"))


def test_every_op_has_scalar_text() -> None:
    spelled = {name for name, *_ in cases()}
    assert (
        spelled == {name for name, primitive in PRIMITIVES.items() if primitive.kind == "elementwise"} - NO_EXPRESSION
    )


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}-{CASES[n][1][-1]}-{CASES[n][2]}")
def test_scalar_ops_are_their_references(library: ctypes.CDLL, number: int) -> None:
    name, types, result, attrs = CASES[number]
    function = getattr(library, f"f{number}")
    bits = [np.dtype(np.uint16) if dtype.is_half else dtype.numpy for dtype in (*types, result)]
    ctype = [np.ctypeslib.as_ctypes_type(dtype) for dtype in bits]
    function.restype = ctype[-1]
    host = ctypes.create_string_buffer(16384)
    grid = np.meshgrid(*(np.array(numbers(dtype), dtype.numpy) for dtype in types), indexing="ij")
    rows = [tuple(axis.reshape(-1)[n] for axis in grid) for n in range(grid[0].size)]
    for row in rows:
        if name in ("floor_divide", "remainder") and types[0].is_integer and row[1] == 0:
            continue
        if name == "fit" and not fits((int(row[0]), int(row[0])), result):
            continue
        if name == "pow" and (types[0].is_integer and row[1] < 0 or types[0].is_float and row == (-np.inf, 0.5)):
            continue  # stops the program; NumPy takes a square root, C does not
        if name == "cast" and types[0].is_float and result.kind == "u" and not abs(float(row[0])) < 100:
            continue  # out of an unsigned integer's range NumPy leaves the result open
        if name == "cast" and types[0].is_float and result.kind == "u" and row[0] < 0:
            continue
        with np.errstate(all="ignore"):
            want = np.asarray(PRIMITIVES[name].reference(*(np.asarray(x) for x in row), **attrs), result.numpy)
        given = [of(np.asarray(x).view(dtype).item()) for of, dtype, x in zip(ctype, bits, row, strict=False)]
        got = np.asarray(function(host, *given), bits[-1]).view(result.numpy)
        if result.is_half:
            got, want = got.astype(np.float32), want.astype(np.float32)
        tolerance = 1e-5 if result is f32 else 1e-13
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=0, err_msg=f"{name}{row}")
        if result.is_float and name in ("negative", "abs", "remainder", "floor_divide", "multiply", "round", "trunc"):
            if not np.isnan(want):
                assert np.signbit(got) == np.signbit(want), f"{name}{row}"


@pytest.mark.parametrize("name, a, b", [("floor_divide", 5, 0), ("remainder", 5, 0), ("pow", 2, -1)])
def test_what_python_refuses_stops_the_program(library: ctypes.CDLL, name: str, a: int, b: int) -> None:
    number = next(n for n, case in enumerate(CASES) if case[0] == name and case[2].name == "i64")
    host = ctypes.create_string_buffer(16384)
    getattr(library, f"f{number}")(host, ctypes.c_int64(a), ctypes.c_int64(b))
    assert (b"by zero" if name != "pow" else b"negative integer power") in host.raw


@pytest.mark.parametrize("number", [n for n, case in enumerate(CASES) if case[0] == "fit"], ids=lambda n: str(CASES[n][2]))
def test_a_number_just_beyond_a_dtype_stops_the_program(library: ctypes.CDLL, number: int) -> None:
    dtype = CASES[number][2]
    low, high = limits(dtype)
    for given in (low - 1, high + 1, -(2**63)):
        if fits((given, given), i64):
            host = ctypes.create_string_buffer(16384)
            getattr(library, f"f{number}")(host, ctypes.c_int64(given))
            assert f"{given} does not fit {dtype} ({low} to {high})".encode() in host.raw


@pytest.mark.parametrize("dtype", [dtype for dtype in STORED_DTYPES if dtype.is_integer], ids=str)
def test_arithmetic_of_two_numbers_wraps_in_its_own_dtype(dtype: DType, tmp_path: Path) -> None:
    """`0u - 2u` is of 32 bits: as an i64 it would be 4294967294."""
    info = np.iinfo(dtype.numpy)
    numbers = {0, 1, 2, 7, 255, 2**31 - 1, 2**31, 2**32 - 1, int(info.max), int(info.min), -2}
    edges = sorted(number for number in numbers if info.min <= number <= info.max)
    program, texts, wanted = Program(), [], []
    for name in ("add", "subtract", "multiply", "negative", "square", "bitwise_xor", "bitwise_invert"):
        count = len(PRIMITIVES[name].samples[0].operands)
        for given in itertools.product(edges, repeat=count):
            op = Op(name, [Value(TensorType(dtype)) for _ in given], [TensorType(dtype)])
            texts.append(str(scalar_expression(op, [literal(number, dtype) for number in given], program)))
            with np.errstate(all="ignore"):
                wanted.append(PRIMITIVES[name].reference(*(np.asarray(number, dtype.numpy) for number in given)))
    includes, support = render(program.snippets)
    lines = "".join(f"y[{number}] = {text};\n" for number, text in enumerate(texts))
    function = f"void fill({dtype.c_name} *y) {{\n{lines}}}"
    (tmp_path / "s.c").write_text("\n".join([*includes, "#include <stdint.h>", support, function]))
    command = ["gcc", "-std=c11", "-shared", "-fPIC", str(tmp_path / "s.c"), "-o", str(tmp_path / "s.so"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]
    got = np.zeros(len(texts), dtype.numpy)
    ctypes.CDLL(str(tmp_path / "s.so")).fill(ctypes.c_void_p(got.ctypes.data))
    np.testing.assert_array_equal(got, np.asarray(wanted, dtype.numpy))
