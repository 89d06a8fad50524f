"""A back end of its own: a program becomes Python text, and each op a call of what it declares to mean in NumPy."""

from typing import Any

import numpy as np

from staged.backends.contract import BackEnd, Emitted, Planner
from staged.base.artifact import Artifact, Parameter
from staged.errors import UnsupportedError
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op, Value
from staged.ir.types import DTYPES
from staged.ops.primitive import PRIMITIVES

LOWERING = {"fused", "kind", "name", "nest", "phases", "schedule"}  # attrs of a fused op that its product does not have


class NumpyBackEnd(BackEnd):
    name, devices = "numpy", ("cpu", "gpu")

    def emit(self, function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
        self.names: dict[Value, str] = {}
        head = f"def program({self.named(function.params)}):"
        text = "\n    ".join([head, *self.lines(function.block, "return ")])
        roles = {"input": function.params, "output": function.block.end.operands}
        given = [(v.hint, v.tensor, role) for role, values in roles.items() for v in values]
        parts = (Parameter(f"p{n}", hint, t.dtype.name, t.shape, role) for n, (hint, t, role) in enumerate(given))
        artifact = Artifact(function.name, text, "", tuple(parts), arena_bytes=0, language="python")
        return Emitted(artifact, plan(function, lambda op: (), None))

    def named(self, values: Any) -> str:
        return " ".join(f"{self.names.setdefault(value, f'v{len(self.names)}')}," for value in values)

    def lines(self, block: Block, before: str) -> list[str]:
        """The ops of a block, then its results with `before` in front."""
        ops = [line for op in block.ops for line in self.op(op)]
        return [*ops, before + (self.named(block.end.operands) or "()")]

    def op(self, op: Op) -> list[str]:
        operands, results = self.named(op.operands), self.named(op.results)
        attrs = {name: value for name, value in op.attrs.items() if name not in LOWERING}
        match op.name:
            case "kernel":
                return [f"{self.named(op.blocks[0].params)} = {operands}", *self.lines(op.blocks[0], f"{results} = ")]
            case "contraction":
                a, b, *more = op.operands
                params = op.blocks[0].params
                product = f"call({op.attrs['kind']!r}, {attrs}, [{params[0].tensor.dtype}], {self.named((a, b))})"
                given = f"{self.named(params)} = *{product}, {self.named(more)}"
                return [given, *self.lines(op.blocks[0], f"{results} = ")]
            case "if":
                yes, no = ([f"    {line}" for line in self.lines(block, f"{results or '_'} = ")] for block in op.blocks)
                return [f"if {operands[:-1]}:", *yes, "else:", *no]
            case "copy":  # to another device
                return [f"{results} = {operands}"]
            case "constant":
                type = op.result.tensor
                return [f"{results} = np.full({type.shape}, {attrs['value']!r}, {type.dtype}.numpy),"]
            case name if name in PRIMITIVES and not op.blocks and not op.effects:
                dtypes = [value.tensor.dtype for value in op.results]
                return [f"{results} = call({name!r}, {attrs}, {dtypes}, {operands})"]
        raise UnsupportedError(f"the back end `numpy` cannot write {op.name}", where=op.where)


def call(name: str, attrs: dict[str, Any], dtypes: Any, *operands: Any) -> list[Any]:
    results = PRIMITIVES[name].reference(*operands, **attrs)
    results = results if isinstance(results, tuple) else (results,)
    return [np.asarray(result, dtype.numpy) for result, dtype in zip(results, dtypes, strict=True)]


class PythonProgram:
    def __init__(self, artifact: Artifact) -> None:
        scope: dict[str, Any] = {**DTYPES, "np": np, "call": call}
        exec(artifact.source, scope)
        self.artifact, self.program = artifact, scope["program"]

    def __call__(self, *values: Any) -> Any:
        return self.program(*values)

    def short(self, *given: Any, **known: Any) -> None:
        return None  # no faster way in


class Python:
    def load(self, artifact: Artifact, options: Any = None) -> PythonProgram:
        return PythonProgram(artifact)

    def files_beside(self, artifact: Artifact) -> dict[str, str]:
        return {}
