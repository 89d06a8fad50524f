"""Names of the functions that kernels become: the layers and functions that a kernel computes, else a verb and values.

    y = relu(self.bn2(self.conv2(y)))     # `layer1_conv2_bn2_relu`
    h1 = max_pool2d(x)                    # `max_pool2d_h1`
    x = images[rows]                      # `gather_x`
    scores = h @ w                        # `compute_scores`; in the backward pass `d_h` and `d_w`

Tested by `tests/kernels/test_kernel_names.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.names import as_name, has_name, inside, is_users_name, name_of
from staged.ir.nodes import Block, Op, Value
from staged.ir.nouns import verb_of
from staged.ir.types import Type
from staged.kernels.kinds import is_inlined
from staged.source import called_function

LONGEST = 44
"""Characters of a name from which its middle is left out."""
LONG_WORD = 16
"""Characters from which the name of a function inside of a layer gives way to the value that it computes."""
MOST_STEPS = 3
"""The most layers and functions in a name."""
Signature = tuple[tuple[str, ...], tuple[Type, ...]]


class KernelNames:
    """The names of the kernels of one function: different kernels have different names."""

    def __init__(self, block: Block) -> None:
        self.taken: dict[str, Signature] = {}
        """By name, what the kernels of this name compute."""
        self.containers: set[str] = set()
        """The layers that have layers inside."""
        self._trained: set[Value] = set()
        """The values that lead to the backward pass."""
        self._trains = False
        parts: set[str] = set()
        self._visit(block, parts)
        for part in parts:
            while (part := part.rpartition(".")[0]) and part not in self.containers:
                self.containers.add(part)

    def _visit(self, block: Block, parts: set[str]) -> None:
        for op in reversed(block.ops):
            if any(result in self._trained for result in op.results):
                self._trained.update(value for inner in op.blocks for value in inner.end.operands)
            for inner in op.blocks:
                self._visit(inner, parts)
            backward = op.where is not None and op.where.phase == "backward"
            self._trains = self._trains or backward
            if backward or any(result in self._trained for result in op.results):
                self._trained.update(op.operands)
            if op.where is not None:
                parts.add(op.where.part)

    def is_evaluation(self, ops: Sequence[Op]) -> bool:
        """Return whether the function trains, but not with the values of these ops."""
        return self._trains and not any(value in self._trained for op in ops for value in op.results)

    def unique(self, name: str, ops: Sequence[Op], results: Sequence[Value], is_forward: bool) -> str:
        """The name, or a longer one if kernels that compute something else have it."""
        computed = _computed(ops)
        signature = tuple(op.name for op in computed), tuple(value.type for value in results)
        names = [name]
        if is_forward and self.is_evaluation(ops):
            name = f"evaluate_{name.removeprefix('compute_')}"
            names.append(name)
        if len(computed) == 1 and (verb := verb_of(computed[0])) and verb not in name:
            names.append(f"{verb}_{name}")
        made = [str(value.hint) for value in results if is_users_name(value.hint)]
        read = [name_of(operand) for op in computed for operand in op.operands]
        parts = name.removeprefix("d_").split("_")
        for word in [*made[-1:], *read[:1]]:
            if word and not {*word.removeprefix("d_").split("_")} & {*parts}:
                names.append(f"{name}_{word}")
        names.append(_joined([name, *list(dict.fromkeys(op.name for op in computed))[-MOST_STEPS:]]))
        found = next((each for each in names if self.taken.get(each, signature) == signature), names[-1])
        self.taken.setdefault(found, signature)
        return found

    def forward(self, ops: Sequence[Op], made: Sequence[str]) -> str:
        """The name of a kernel for those of its ops that it is named after; `made` are the user's names of results."""
        steps, layers = self._steps(_computed(ops), made)
        if layers:
            return _joined(steps)
        named = [op for op in ops if verb_of(op) and is_users_name(op.results[0].hint)]
        moved = {called_function(op.where) for op in named if op.where}
        functions = [step for step in steps if step not in {*moved, *made}]
        if named:
            return _joined([*_once([f"{verb_of(op)}_{op.results[0].hint}" for op in named]), *functions])
        verbs = [verb for op in ops if (verb := verb_of(op))]
        if made:
            verb = "draw" if "draw" in verbs else verb_of(ops[-1])
            verb = verb or (functions[0] if len(functions) == 1 else "compute")
            return "_".join([verb, *made[-MOST_STEPS:]])
        if verbs and len(_computed(ops)) == 1:
            own = [str(value.hint) for value in ops[-1].results if has_name(value.hint)]
            read = [*own, *functions, *(name_of(operand) for operand in ops[-1].operands)]
            return f"{verbs[0]}_{read[0]}" if read and read[0] else ""
        return _joined(steps)

    def backward(self, ops: Sequence[Op], made: Sequence[str]) -> str:
        """The name of a kernel that computes gradients."""
        gradients = [word for word in made if word.startswith("d_")]
        steps, layers = self._steps(_computed(ops), [word.removeprefix("d_") for word in made])
        last = ops[-1].where
        whole = f"d_{as_name(last.part)}_" if last is not None and last.part else ""
        own = next((word for word in reversed(gradients) if whole and word.startswith(whole)), "")
        if len(steps) > 1:
            return _joined(["d", *steps, *([own.removeprefix(whole)] if own else [])])
        if own or (gradients and not layers and not (steps and len(gradients[-1]) == len("d_x"))):
            return own or gradients[-1]
        return _joined(["d", *steps]) if steps else ""

    def _steps(self, ops: Sequence[Op], made: Sequence[str]) -> tuple[list[str], bool]:
        """The layers and functions that some ops belong to, in order, and whether one is a layer."""
        found: dict[str, str] = {}
        layers = False
        for op in ops:
            if op.where is None:
                continue
            part, called = as_name(op.where.part), called_function(op.where)
            if op.name.endswith("_backward"):
                called = op.name.removesuffix("_backward")
            word = str(op.results[0].hint).removeprefix("d_") if op is ops[-1] and op.results else ""
            word = word if word in made else ""
            if op.where.part in self.containers:
                verb = verb_of(op)
                what = called if 0 < len(called) <= LONG_WORD else made[-1] if made else ""
                if verb and what != called:
                    what = f"{verb}_{name_of(op.operands[1]) if verb == 'store' else what}"
                layers = layers or bool(what)
                whole = f"{part}_{what}"
                step = whole if what and (not found or whole in found) else what
            else:
                layers = layers or bool(part)
                step = part or called or word
            if step:
                found[step] = step
        steps = [*found]
        return [step if not place else inside(step, steps[0]) for place, step in enumerate(steps)], layers


def _computed(ops: Sequence[Op]) -> Sequence[Op]:
    """The ops that a kernel is named after: not those that only read elements elsewhere."""
    return [op for op in ops if not is_inlined(op)] or ops[-1:]


def _once(moves: Sequence[str]) -> list[str]:
    """`gather_x`, `gather_y` -> `gather_x`, `y`."""
    return [
        move if not place or move.partition("_")[0] != moves[place - 1].partition("_")[0] else move.partition("_")[2]
        for place, move in enumerate(moves)
    ]


def _joined(words: Sequence[str]) -> str:
    """The parts as one name, without the middle ones if it is too long."""
    kept = list(dict.fromkeys(words))
    while len(kept) > 2 and (len(kept) > MOST_STEPS + 1 or len("_".join(kept)) > LONGEST):
        del kept[len(kept) // 2]
    return "_".join(kept)
