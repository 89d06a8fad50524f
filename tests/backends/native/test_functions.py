"""Functions and recursion as C: what compiles agrees with the interpreter, strictly compiled, and never crashes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.c_family.export import export_files
from staged.ir.nodes import Effect, Function, VariableRef
from staged.ir.types import TensorType, bool_, f32, f64, i64
from staged.pipeline import build
from staged.runtime.compiler import CompileOptions
from staged.runtime.native import load
from staged.system import target
from tests.ir_functions import Functions, assemble, define
from tests.ir_interpreter import Interpreter

INT, REAL, FLAG = TensorType(i64), TensorType(f64), TensorType(bool_)
VECTOR, MATRIX, NODES = TensorType(f32, (5,)), TensorType(f32, (5, 5)), TensorType(i64, (7,))
STRICT = CompileOptions(extra=("-Wall", "-Wextra", "-Wconversion", "-Werror"))


@dataclass(frozen=True)
class Case:
    """A program and arguments for it."""

    name: str
    program: Callable[[], Function]
    arguments: tuple[tuple[Any, ...], ...]


def entry(callee: str, types: list[TensorType], results: list[TensorType], **attrs: Any) -> Function:
    """An entry that only calls."""
    if len(types) == 1:
        return define("main", types, lambda p, a: p.call(callee, [a], results, **attrs))
    if len(types) == 2:
        return define("main", types, lambda p, a, b: p.call(callee, [a, b], results, **attrs))
    return define("main", types, lambda p, a, b, c: p.call(callee, [a, b, c], results, **attrs))


def fibonacci() -> Function:
    def fib(p: Functions, n):
        def other():
            (a,), (b,) = p.call("fib", [n - 1], [INT]), p.call("fib", [n - 2], [INT])
            return (a + b,)

        return p.if_(n < 2, lambda: (n,), other)

    return assemble(entry("fib", [INT], [INT]), define("fib", [INT], fib))


def early_return() -> Function:
    def gcd(p: Functions, a, b):
        p.if_(b == 0, lambda: p.give(a), lambda: ())
        return p.call("gcd", [b, a % b], [INT])

    return assemble(entry("gcd", [INT, INT], [INT]), define("gcd", [INT, INT], gcd))


def ackermann() -> Function:
    def ack(p: Functions, m, n):
        def inner():
            (less,) = p.call("ack", [m, n - 1], [INT])
            return p.call("ack", [m - 1, less], [INT])

        def outer():
            return p.if_(n == 0, lambda: p.call("ack", [m - 1, p.constant(1, INT)], [INT]), inner)

        return p.if_(m == 0, lambda: (n + 1,), outer)

    return assemble(entry("ack", [INT, INT], [INT]), define("ack", [INT, INT], ack))


def mutual() -> Function:
    def even(p: Functions, n):
        return p.if_(n == 0, lambda: (p.constant(True, FLAG),), lambda: p.call("odd", [n - 1], [FLAG]))

    def odd(p: Functions, n):
        return p.if_(n == 0, lambda: (p.constant(False, FLAG),), lambda: p.call("even", [n - 1], [FLAG]))

    return assemble(entry("even", [INT], [FLAG]), define("even", [INT], even), define("odd", [INT], odd))


def tree() -> Function:
    """A vector for each node of a tree, from those of its children: arrays as arguments, results and locals."""

    def encode(p: Functions, node, left, right, values, w):
        (leaf,) = p.handles([p.values([left[node]])[0]])

        def inner():
            a, depth_a = p.call("encode", [left[node], left, right, values, w], [VECTOR, INT])
            b, depth_b = p.call("encode", [right[node], left, right, values, w], [VECTOR, INT])
            h = st.ops.tanh(w @ a + b * values[node])
            return h + a, st.ops.maximum(depth_a, depth_b) + 1

        def outer():
            return values[node] * st.ops.ones(5, dtype=st.f32) if False else w[0] * values[node], p.constant(0, INT)

        return p.if_(leaf < 0, outer, inner)

    values = TensorType(f32, (7,))

    def main(p: Functions, left, right, values, w):
        return p.call("encode", [p.constant(0, INT), left, right, values, w], [VECTOR, INT])

    return assemble(
        define("main", [NODES, NODES, values, MATRIX], main),
        define("encode", [INT, NODES, NODES, values, MATRIX], encode),
    )
