"""Names and phases of kernels: a kernel is named after the value that it writes, by the user's name.

A value has the user's name, or that of the layer that returns it. A kernel is named after its main result:

- the user's name for it: `h`, `d_h`;
- `update_weight` if it writes a Variable, `initial_weight` if that is the first value;
- without a name of the user's, after the layers and functions that it computes: `linear1_relu`, `cross_entropy`,
  `d_linear3_relu` in the backward pass.

Tested by `tests/test_generated_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from staged.ir.declaration import prims
from staged.ir.names import (
    OWN,
    DerivedName,
    FieldName,
    LibraryName,
    QualifiedName,
    as_name,
    first_named,
    has_name,
    inside,
    is_users_name,
    name_of,
    rank,
    short,
)
from staged.ir.nodes import Block, Function, Op, Value, VariableRef
from staged.ir.nouns import NOUNS, NOUNS_ALONE, noun_of, verb_of
from staged.ir.storage import structural_ops
from staged.ir.structure import FOR, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE, WHILE
from staged.ir.types import TensorType, Type
from staged.ir.views import Loop
from staged.kernels.kernel_names import KernelNames
from staged.kernels.kinds import is_inlined, is_scalar
from staged.kernels.words import of_operand
from staged.source import Position, called_function

Phase = Literal["initial values", "forward", "backward", "update"]
LONG = 24
"""Characters of the name of a Variable from which its last part is enough inside of a kernel."""
MOST_STEPS = 3
"""The most layers and functions in the name of a kernel."""


class Naming:
    """The phases of a function's ops, and the Variables that values are written to."""

    def __init__(self, function: Function) -> None:
        self.written: dict[Value, VariableRef] = {}
        self.initial: set[Value] = set()
        """The first values of Variables that the program creates."""
        self._updates: set[Op] = set()
        self._moved: dict[Value, str] = {}
        """By value: the user's name for the same elements in another shape."""
        self._names: dict[tuple[Value, ...], str] = {}
        self._layers: dict[str, set[str]] = {}
        """By name of the user: the layers that have an array of this name."""
        self._given: set[str] = set()
        """The names that values have before kernels are named."""
        self._carried: dict[str, Type] = {}
        """By name: the type of the array with this name that a loop computes."""
        self._collected: dict[Value, Value] = {}
        """By sequence that a loop leaves: the value of an iteration."""
        self._read_back: dict[Value, list[Value]] = {}
        """By value that a loop collects: the values that read it from the sequence."""
        self._arrays: dict[str, Value] = {}
        """The arrays with a name, by name."""
        self._kernels = KernelNames(function.block)
        has_loops = any(op.declared in (FOR, WHILE) for op in function.block.ops)
        known: set[VariableRef] = set()
        for op in function.block.ops if has_loops else ():
            for write in (op, *(each for inner in op.blocks for each in inner.ops if _is_first(each))):
                ref = write.attrs["variable"] if write.declared is VARIABLE_WRITE else None
                if ref is not None and not ref.outer and (ref not in known or _is_first(write)):
                    known.add(ref)
                    self.initial.add(write.operands[0])
        _name_numbers(function)
        after: set[Value] = set()
        self._follow(function.block, after)
        self._trace_back(function.block, after, set())

    def _follow(self, block: Block, after: set[Value]) -> None:
        """Find the values that depend on a gradient, within one iteration."""
        for op in block.ops:
            for inner in op.blocks:
                self._follow(inner, after)
            if op.declared.is_loop:
                arrays = [value for value in op.results if isinstance(value.type, TensorType) and value.tensor.shape]
                self._carried.update((value.hint, value.type) for value in arrays)
                self._collected.update(zip(Loop(op).collected, Loop(op).elements, strict=True))
            if op.declared is SEQUENCE_GET and op.operands[0] in self._collected:
                self._read_back.setdefault(self._collected[op.operands[0]], []).append(op.result)
            if op.declared is VARIABLE_WRITE:
                self.written.setdefault(op.operands[0], op.attrs["variable"])
            inside = (value for inner in op.blocks for value in inner.end.operands)
            if op.declared.is_move and op.operands and is_users_name(op.result.hint):
                self._moved.setdefault(op.operands[0], op.result.hint)
                self._name_views(op.operands[0], op.result.hint)
            for value in op.results:
                if has_name(value.hint):
                    self._given.add(value.hint)
                if op.where is not None and is_users_name(value.hint) and not is_scalar(value):
                    self._layers.setdefault(value.hint, set()).add(op.where.part)
            if _is_backward(op) or any(value in after for value in (*op.operands, *inside)):
                after.update(op.results)

    def _name_views(self, value: Value, hint: str) -> None:
        """Give the user's name to the views through which a value with that name is read."""
        while (op := value.producer) is not None and op.declared.is_move and op.operands and not value.hint:
            value.hint = hint
            value = op.operands[0]

    def _trace_back(self, block: Block, after: set[Value], leading: set[Value]) -> None:
        """Find the ops that lead from a gradient to a Variable, or to the next iteration of a loop."""
        for op in reversed(block.ops):
            leads = op.declared is VARIABLE_WRITE or any(result in leading for result in op.results)
            for inner in op.blocks:
                if op.declared in (FOR, WHILE) or leads:
                    leading.update(inner.end.operands)
                self._trace_back(inner, after, leading)
            if leads and not _is_backward(op):
                leading.update(op.operands)
                if any(result in after for result in op.results):
                    self._updates.add(op)

    def phase(self, op: Op) -> Phase:
        """The part of a training step that an op belongs to."""
        if _is_backward(op):
            return "backward"
        marked = op.where is not None and op.where.phase == "update"
        return "update" if marked or op in self._updates else "forward"

    def where(self, ops: Sequence[Op]) -> Position | None:
        """The line of a kernel: the last that it computes, of the forward pass if there is one."""
        forward = [op for op in ops if self.phase(op) == "forward" and not is_inlined(op)]
        return (forward or ops)[-1].where if self.phase(ops[-1]) == "backward" else ops[-1].where

    def phases(self, ops: Sequence[Op], results: Sequence[Value]) -> tuple[Phase, ...]:
        """The phases of a kernel's ops, in the order of a training step.

        The mask of a gradient, which the forward pass may compute, does not count.
        """
        if any(result in self.initial for result in results):
            return ("initial values",)
        computed = [op for op in ops if not is_inlined(op)] or list(ops)
        floats = [op for op in computed if any(_is_float(result) for result in op.results)] or computed
        found = {self.phase(op) for op in floats}
        order: tuple[Phase, ...] = ("forward", "backward", "update")
        return tuple(phase for phase in order if phase in found)

    def name(self, ops: Sequence[Op], results: Sequence[Value]) -> str:
        """The name of the kernel that computes `ops` and writes `results`, which get names if they have none."""
        key = tuple(results)
        if key not in self._names:
            kernel = self._kernel(ops, results)
            result = self._chosen(ops, results, kernel)
            self._names[key] = kernel or result
            self._name_results(result, results, self.phases(ops, results), result == _fused(ops))
            layer = as_name(ops[-1].where.part) if ops[-1].where is not None else ""
            if not kernel and result == _fused(ops) and len(ops) == 1 and has_name(results[0].hint):
                self._names[key] = f"compute_{results[0].hint}"
            elif not kernel and layer and not result.startswith((layer, "fill", "repeat")):
                self._names[key] = f"{layer}_{result}"
        return self._names[key]

    def _kernel(self, ops: Sequence[Op], results: Sequence[Value]) -> str:
        """The name of the function of a kernel, before its results get names."""
        if written := self._written(results, self.phases(ops, results)):
            return "fill_with_ones" if _is_ones(ops[-1]) else written
        phases = {self.phase(value.producer) for value in results if value.producer is not None}
        phase = next((each for each in ("forward", "backward") if each in phases), "update")
        named = [op for op in ops if self.phase(op) == phase] or ops
        own = [value for value in results if value.producer and self.phase(value.producer) == phase]
        made = list(dict.fromkeys(hint for value in own if is_users_name(hint := self._hint(value))))
        name = (self._kernels.backward if phase == "backward" else self._kernels.forward)(named, made)
        return self._kernels.unique(name, ops, results, phase == "forward") if name else ""

    def _chosen(self, ops: Sequence[Op], results: Sequence[Value], kernel: str) -> str:
        """The name of what a kernel computes, for its main result; `kernel` is the name of its function."""
        phases = self.phases(ops, results)
        own = [value for value in results if value.producer and self.phase(value.producer) == phases[0]]
        main = self._main(own or results)
        hint = self._hint(main) if main is not None else ""
        before = "d_" if phases[0] == "backward" else ""
        steps = _steps(ops, phases[0], self.phase, results)
        if main is not None and not is_scalar(main) and (is_users_name(hint) or len(steps) < 2):
            return hint
        if main is not None and not steps:
            return f"compute_{hint}"
        in_layer = ops[-1].where is not None and bool(ops[-1].where.part)
        if steps and kernel and in_layer and phases[0] == "forward" and not any(map(verb_of, ops)):
            return kernel
        if steps:
            return before + "_".join(steps[-MOST_STEPS:])
        if ops[-1].declared is prims.BROADCAST_TO and all(map(is_inlined, ops)):
            repeated = name_of(ops[-1].operands[0])
            return f"repeat_{repeated}" if repeated else "fill"
        return _fused(ops)

    def _written(self, results: Sequence[Value], phases: Sequence[Phase]) -> str:
        """The name of a kernel that writes Variables: `update_weight`."""
        first = next((self.written[value] for value in results if value in self.initial), None)
        if first is not None:
            return f"initial_{as_name(first.name)}"
        written = [self.written[value] for value in results if value in self.written]
        if written and (phases[-1] == "update" or len(written) == len(results)):
            return f"update_{as_name(min((ref.name for ref in written), key=len))}"
        return ""

    def _name_results(self, kernel: str, results: Sequence[Value], phases: Sequence[Phase], is_of_ops: bool) -> None:
        """Give names to the results of a kernel that the user has not named; `is_of_ops` if the kernel is named
        after its ops.
        """
        named = [self._hint(value) for value in results if has_name(self._hint(value))]
        free = not named
        written = [as_name(self.written[value].name) for value in results if value in self.written]
        for value in results:
            op = value.producer
            if op is None:
                continue
            if (has_name(value.hint) and value not in self._moved) or is_users_name(value.hint):
                self._qualify(op, value, written)
                continue
            label, word = label_of(op.where), str(value.hint) or noun_of(op, value.index)
            passed = f"{label}_argument" if label in NOUNS else label
            label = "" if label in NOUNS else label
            is_main = free and not is_scalar(value) and (len(results) == 1 or self.phase(op) == phases[0])
            if value in self._moved:
                name = word = self._moved[value]
            elif value in self.written:
                word = as_name(self.written[value].name)
                if value.hint and written.count(word) > 1:  # members of a family
                    word = f"{value.hint}_{word}"
                name = word if value in self.initial else f"new_{word}"
                word = _short_state(word, written, value.hint) if len(word) > LONG else word
                word = word if value in self.initial else f"new_{word}"
            elif value.tensor.dtype.is_bool and named:
                name = word = f"{named[0]}_mask"
            elif self._is_computed_again(op, value) and label:
                name = f"{label}_{word}"
            elif (
                label
                and _is_float(value)
                and self.phase(op) == "backward"
                and any(each in self.written for each in results)
            ):
                name = word = f"d_{label}_{word}"
            elif is_main and (_is_float(value) or len(results) == 1):
                free = False
                name = of_operand(op, value) if is_of_ops or kernel in NOUNS else kernel
                word = str(value.hint) or name
            elif self.phase(op) == "backward" and _is_float(value):
                name = word = f"d_{passed or word}"
                if any(operand.hint == name for operand in op.operands):
                    others = [short(operand.hint) for operand in op.operands if operand.hint not in ("", name)]
                    is_product = op.declared is prims.MULTIPLY and others
                    name = word = f"{name}_times_{others[0]}" if is_product else f"{name}_{noun_of(op, value.index)}"
            else:
                name = of_operand(op, value)
                if label:
                    name = word if label in word.split("_") else f"{label}_{word}"
                elif not value.hint:
                    word = name
            value.hint = LibraryName(name, word=name if word in NOUNS_ALONE and not is_scalar(value) else word)
            self._qualify(op, value, written, new=True)
            for again in self._read_back.get(value, ()):
                again.hint = again.hint if has_name(again.hint) else value.hint

    def _qualify(self, op: Op, value: Value, written: Sequence[str], new: bool = False) -> None:
        """Put the layer or function before the name of an array, if other arrays have this name.

        If this name is taken too, a noun follows the name, or the Variable that the kernel writes, or what the op
        reads. A name that is `new` gives way to the names that values had before.
        """
        hint, word = str(value.hint), short(value.hint)
        if is_scalar(value):
            named = (str(operand.hint) for operand in op.operands if has_name(operand.hint))
            read = next(named, "").removeprefix("d_") or first_named(op).removeprefix("d_")
            if new and read and self._arrays.setdefault(hint, value) is not value:
                value.hint = LibraryName(f"{read}_{noun_of(op, value.index)}", word=word)
            return
        if value in self.written:
            return
        before, rest = ("d_", hint.removeprefix("d_")) if hint.startswith("d_") else ("", hint)
        made = [operand.producer.where for operand in op.operands if operand.producer is not None]
        labels = [as_name(op.where.part), called_function(op.where)] if op.where is not None else []
        labels += [as_name(where.part) for where in made if where is not None]
        names = [f"{before}{label}_{rest}" for label in labels if label and not rest.startswith(label)]
        is_carried = self._carried.get(hint, value.type) != value.type
        if (len(self._layers.get(hint, ())) < 2 and not is_carried) or not any(labels):
            names.insert(0, hint)
        if self.phase(op) == "forward" and self._kernels.is_evaluation([op]):
            names = [each for name in names for each in (name, f"evaluate_{name}")]
        read = min(written, key=len) if written else first_named(op).removeprefix("d_")
        names += [f"{hint}_{noun_of(op, value.index)}", f"{hint}_{read}" if read else hint, hint]
        taken = self._given if new and not before else ()
        name = next((each for each in names if self._arrays.get(each, value) is value and each not in taken), hint)
        self._arrays.setdefault(name, value)
        if name != hint:
            is_own = is_users_name(value.hint)
            value.hint = QualifiedName(name, word) if is_own else LibraryName(name, word=word)

    def _is_computed_again(self, op: Op, value: Value) -> bool:
        """Return whether the backward pass computes a value of the forward pass again."""
        return self.phase(op) == "backward" and type(value.hint) is FieldName and not value.hint.startswith("d_")

    def _hint(self, value: Value) -> str:
        """The name of a result: the user's, or that of a layer."""
        return value.hint if is_users_name(value.hint) else self._moved.get(value, value.hint)

    def _main(self, results: Sequence[Value]) -> Value | None:
        """The main one of some results: the last that has a name."""
        users = [value for value in results if is_users_name(self._hint(value))]
        if users:
            return users[-1]
        named = [value for value in results if has_name(value.hint) and not value.hint.startswith("d_")]
        return named[-1] if named else None


def _name_numbers(function: Function) -> None:
    """Name the numbers that come from a Variable `lr`: `new_lr` is written to it, `next_lr` leads to `new_lr`."""
    ops = list(structural_ops(function.block))
    read = {as_name(op.attrs["variable"].name) for op in ops if op.declared is VARIABLE_READ}
    written = {op.operands[0]: as_name(op.attrs["variable"].name) for op in ops if op.declared is VARIABLE_WRITE}
    for op in ops:
        for value in op.results if op.declared is not VARIABLE_READ else ():
            name = value.hint or written.get(value, "")
            if name in read and is_scalar(value):
                after = DerivedName(f"new_{name}" if value in written else f"next_{name}")
                value.hint = "" if op.declared is prims.CONSTANT else after


def _steps(ops: Iterable[Op], first: Phase, phase: Callable[[Op], Phase], results: Sequence[Value]) -> list[str]:
    """The steps of a kernel, in order: the user's values and, between them, layers and functions of the first phase.

    The numbers that the kernel passes to the host are not in its name: they are variables there.
    """
    found: dict[str, str] = {}
    """By layer, function or name of the user: the step in the name of the kernel."""
    named: set[Position | None] = set()
    """Calls of functions that have a named value inside: the rest of such a call adds nothing to the name."""
    for op in ops:
        users = [v.hint for v in op.results if rank(v.hint) == OWN and not (v in results and is_scalar(v))]
        label = label_of(op.where)
        if users:
            found.pop(label, None)  # the name of the value is more exact
            found[users[-1]] = users[-1]
            named.add(op.where)
        elif label and label not in found and op.where not in named and not is_inlined(op) and phase(op) == first:
            found[label] = inside(label, next(iter(found.values()), ""))
    return list(found.values())


def _short_state(name: str, written: Sequence[str], hint: str) -> str:
    """The last part of the name of a Variable, behind its role if it is the state of an optimiser: `mean_weight`."""
    last = name.rpartition("_")[2]
    role = next((name.removesuffix(other) for other in written if name.endswith(f"_{other}")), "")
    return f"{role}{last}" if role else hint or last


def label_of(where: Position | None) -> str:
    """The layer or the function that is running at a position, as a name."""
    if where is None:
        return ""
    return as_name(where.part) if where.part else called_function(where)


def _fused(ops: Sequence[Op]) -> str:
    """The name of a kernel after its ops: verbs."""
    return "_".join((list(dict.fromkeys(op.name for op in ops if not is_inlined(op))) or [ops[-1].name])[:3])


def _is_first(op: Op) -> bool:
    """Return whether an op writes a first value of a Variable: in the constructor of a layer."""
    made = op.operands[0].producer if op.declared is VARIABLE_WRITE else None
    where = made.where if made is not None else None
    return where is not None and where.function == "__init__" and not where.phase


def _is_ones(op: Op) -> bool:
    """Return whether an op fills an array with 1, such as the first values of several weights."""
    number = op.operands[0].made_by(prims.CONSTANT) if op.declared is prims.BROADCAST_TO else None
    return number is not None and number.attrs["value"] == 1


def _is_backward(op: Op) -> bool:
    return op.where is not None and op.where.phase == "backward"


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_float
