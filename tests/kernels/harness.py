"""Record ops, fuse them, compile every kernel, run it, and compare with the ops' references."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from staged.backends.cpu.contraction_call import emit_contraction
from staged.backends.cpu.nest.kernel import emit_kernel
from staged.code.kernel_text import KernelText
from staged.code.support.library import render
from staged.code.writer import Names
from staged.ir.builder import Builder
from staged.ir.loops import Loop, Tile
from staged.ir.machine import X86_64_V4, Machine
from staged.ir.nodes import Function, Op, Value
from staged.ir.types import TensorType, dtype_of
from staged.kernels.fuse import fuse
from staged.ops.context import use_context
from staged.ops.primitive import PRIMITIVES
from staged.ops.record import RecordContext

MACHINE = X86_64_V4.with_cores(2)
FLAGS = """-std=c11 -O1 -ffp-contract=off -fno-math-errno -fno-trapping-math -Wall -Wextra -Wconversion -Werror
-Wno-unused-function""".split()
_CACHE = Path(tempfile.mkdtemp(prefix="staged-kernels-"))
atexit.register(shutil.rmtree, _CACHE, ignore_errors=True)


def record(f: Callable[..., Any], *types: TensorType, hints: Sequence[str] = ()) -> Function:
    """The IR of a Python function on array handles."""
    builder = Builder()
    context = RecordContext(builder, locate=lambda: None)
    names = list(hints) or list(f.__code__.co_varnames[: len(types)])
    with builder.block(types, names) as body, use_context(context):
        results = f(*(context.handle(param) for param in body.params))
        results = results if isinstance(results, tuple) else (results,)
        builder.end("return", [context.value_of(result) for result in results])
    return Function(f.__name__, body.block)


def fused(f: Callable[..., Any], *types: TensorType, machine: Machine = MACHINE) -> Function:
    return fuse(record(f, *types), machine)


def kernels(function: Function) -> list[Op]:
    return [op for op in function.block.ops if op.name in ("kernel", "contraction")]


def emit(op: Op, machine: Machine, names: Names) -> KernelText:
    name = names.fresh(str(op.attrs["name"]) + "_kernel")
    if op.name == "contraction":
        return emit_contraction(op, name, machine, lambda where: 7, f"{name}_sizes")
    return emit_kernel(op, name, machine, lambda where: 7)


def source(*functions: Function, machine: Machine = MACHINE) -> tuple[str, list[KernelText]]:
    """One C file with all kernels of some functions."""
    names = Names()
    texts = [emit(op, machine, names) for function in functions for op in kernels(function)]
    snippets = {name for text in texts for name in text.snippets} | {"fail"}
    includes, support = render(snippets - {"memcpy"})
    standard = ["#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>"]
    lines = list(dict.fromkeys([*includes, *standard]))
    body = "\n".join(part.text for text in texts for part in (*text.functions, text))
    for name in dict.fromkeys(name for text in texts for name in (text.name, *tables(text))):
        body += f"\nvoid *const {name}_entry = (void *)(uintptr_t)&{name};\n"
    shared = dict.fromkeys(snippet.text for text in texts for snippet in text.support)
    return "\n".join([*lines, "", support, *shared, body]), texts


def tables(text: KernelText) -> list[str]:
    """The names of the tables whose addresses a call passes."""
    return [number.text.removeprefix("&") for number in text.numbers]


def compile_c(text: str, flags: Sequence[str]) -> ctypes.CDLL:
    key = hashlib.sha256((text + " ".join(flags)).encode()).hexdigest()[:24]
    library = _CACHE / f"{key}.so"
    if not library.exists():
        path = _CACHE / f"{key}.c"
        path.write_text(text)
        command = ["gcc", *flags, "-shared", "-fPIC", str(path), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[:4000] + "\n" + text[-6000:]
    return ctypes.CDLL(str(library))


class Host(ctypes.Structure):
    """Large enough for `st_host`."""

    _fields_ = [("bytes", ctypes.c_char * 16384)]


class Program:
    """A fused function whose kernels are compiled; the rest is interpreted with the ops' references."""

    def __init__(self, function: Function, machine: Machine = MACHINE, flags: Sequence[str] = ()) -> None:
        self.function = function
        self.text, self.kernels = source(function, machine=machine)
        march = [f"-march={machine.march}"] if machine.march else []
        self.library = compile_c(self.text, [*FLAGS, *march, *flags])
        self.pieces = 1
        self.in_place = False

    @classmethod
    def many(
        cls, functions: Sequence[Function], machine: Machine = MACHINE, flags: Sequence[str] = ()
    ) -> list[Program]:
        """Programs that share one compilation."""
        text, texts = source(*functions, machine=machine)
        march = [f"-march={machine.march}"] if machine.march else []
        library = compile_c(text, [*FLAGS, *march, *flags])
        programs = []
        left = iter(texts)
        for function in functions:
            program = cls.__new__(cls)
            program.function, program.text, program.library = function, "", library
            program.kernels = [next(left) for _ in kernels(function)]
            program.pieces, program.in_place = 1, False
            programs.append(program)
        return programs

    def __call__(self, *arguments: Any) -> tuple[np.ndarray[Any, Any], ...]:
        values: dict[Value, Any] = {}
        for param, argument in zip(self.function.params, arguments, strict=True):
            values[param] = np.array(argument, param.tensor.dtype.numpy, order="C")
        texts = iter(self.kernels)
        for op in self.function.block.ops:
            operands = [values[operand] for operand in op.operands]
            if op.name in ("kernel", "contraction"):
                results = self.run(op, next(texts), operands)
            else:
                results = reference(op, operands)
            values.update(zip(op.results, results, strict=True))
        return tuple(values[value] for value in self.function.block.end.operands)

    def run(self, op: Op, text: KernelText, operands: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        arguments: list[Any] = []
        aliases = dict(text.may_alias) if self.in_place else {}
        taken: set[int] = set()
        results = []
        operands = [operand.copy() for operand in operands]
        for number, result in enumerate(op.results):
            dtype, shape = result.tensor.dtype.numpy, result.tensor.shape
            other = aliases.get(number)
            if other is not None and other not in taken and operands[other].shape == shape:
                taken.add(other)
                results.append(operands[other])
            else:
                results.append(np.full(shape, 77).astype(dtype) if shape else np.zeros((), dtype))
        for operand in operands:
            if operand.shape == ():
                arguments.append(np.ctypeslib.as_ctypes_type(operand.dtype)(operand.item()))
            else:
                arguments.append(operand.ctypes.data_as(ctypes.c_void_p))
        arguments += [result.ctypes.data_as(ctypes.c_void_p) for result in results]
        assert len(arguments) == len(op.operands) + len(op.results)
        arguments += [self.address(table) for table in tables(text)]
        scratch = aligned_buffer(text.scratch_bytes)
        if text.scratch_bytes:
            arguments.append(scratch.ctypes.data_as(ctypes.c_void_p))
        host = Host()
        if text.can_fail:
            arguments.append(ctypes.byref(host))
        pieces = min(self.pieces, max(1, text.items))
        bounds = [*(self.first_item(op, text.items * piece // pieces) for piece in range(pieces)), text.items]
        for begin, end in zip(bounds, bounds[1:], strict=False):
            self.entry(text.name)(*arguments, ctypes.c_int64(begin), ctypes.c_int64(end))
        if text.can_fail and b"index" in bytes(host):
            raise IndexError("index out of range")
        if text.can_fail and b"modulo by zero" in bytes(host):
            raise ZeroDivisionError("integer division or modulo by zero")
        return results

    def first_item(self, op: Op, item: int) -> int:
        """The first item of a thread's piece: one of a whole vector, as in programs."""
        if op.name != "kernel":
            return item
        nest, schedule = op.attrs["nest"], op.attrs["schedule"]
        by_vectors = {s.axis for s in nest.body if isinstance(s, Loop | Tile)} & {s.axis for s in schedule.vectorised}
        return item - item % schedule.lanes if by_vectors else item

    def entry(self, name: str) -> Any:
        address = self.address(name).value
        assert address is not None
        return ctypes.CFUNCTYPE(None)(address)

    def address(self, name: str) -> ctypes.c_void_p:
        return ctypes.c_void_p.in_dll(self.library, f"{name}_entry")


def aligned_buffer(nbytes: int) -> np.ndarray[Any, Any]:
    raw = np.full(nbytes + 64, 255, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]


def reference(op: Op, operands: Sequence[Any]) -> list[Any]:
    """The meaning of an op, by its declaration."""
    if op.name == "constant":
        type = op.results[0].tensor
        return [np.asarray(op.attrs["value"], type.dtype.numpy).reshape(type.shape)]
    with np.errstate(all="ignore"):
        result = PRIMITIVES[op.name].reference(*operands, **op.attrs)
    results = result if isinstance(result, tuple) else (result,)
    return [np.asarray(r, v.tensor.dtype.numpy) for r, v in zip(results, op.results, strict=True)]


def interpret(function: Function, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """The function by its ops' references."""
    values: dict[Value, Any] = {}
    for param, argument in zip(function.params, arguments, strict=True):
        values[param] = np.asarray(argument, param.tensor.dtype.numpy)
    for op in function.block.ops:
        values.update(zip(op.results, reference(op, [values[o] for o in op.operands]), strict=True))
    return tuple(values[value] for value in function.block.end.operands)


def sample(type: TensorType, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype = type.dtype
    if dtype.is_float:
        return rng.uniform(-2, 2, type.shape).astype(dtype.numpy)
    if dtype.is_bool:
        return rng.integers(0, 2, type.shape).astype(bool)
    return rng.integers(0 if dtype.kind == "u" else -9, 10, type.shape).astype(dtype.numpy)


def check(
    f: Callable[..., Any],
    *types: TensorType,
    arguments: Sequence[Any] | None = None,
    count: int | None = None,
    machine: Machine = MACHINE,
    rtol: float | None = None,
    flags: Sequence[str] = (),
) -> Program:
    """The fused function gives what its references give, whole, in pieces and in place; returns the program."""
    function = record(f, *types)
    rng = np.random.default_rng(5)
    given = arguments if arguments is not None else [sample(type, rng) for type in types]
    expected = interpret(function, given)
    program = Program(fuse(function, machine), machine, flags)
    if count is not None:
        found = [op.attrs["fused"] for op in kernels(program.function)]
        assert len(found) == count, f"{len(found)} kernels: {found}"
    for pieces, in_place in ((1, False), (3, False), (1, True)):
        program.pieces, program.in_place = pieces, in_place
        for got, want in zip(program(*given), expected, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype
            tolerance = rtol or (3e-5 if want.dtype == np.float32 else 1e-12)
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=program.text[-3000:])
    return program


def tensor(dtype: str, *shape: int) -> TensorType:
    found = dtype_of(dtype)
    assert found is not None
    return TensorType(found, shape)


def assert_same_bits(types: Mapping[str, Sequence[Any]], tiles: Sequence[Any], whole: Sequence[Any], machine: Machine) -> None:
    """Nests in tiles give the bits of other functions: run by one thread and by three, and in place. Those of a case with
    `threads` in its name are shared by threads where there are several."""
    programs = Program.many([*tiles, *whole], machine)
    rng = np.random.default_rng(3)
    for name, tile, function in zip(types, programs, programs[len(tiles) :], strict=False):
        given = [sample(type, rng) for type in types[name]]
        expected = [result.tobytes() for result in function(*given)]
        for pieces, in_place in ((1, False), (3, False), (1, True)):
            tile.pieces, tile.in_place = pieces, in_place
            assert [result.tobytes() for result in tile(*given)] == expected, (name, pieces, in_place)
        if "threads" in name and machine.cores > 1:
            assert tile.kernels[0].items > 1 and tile.kernels[0].chunk > 0, name
