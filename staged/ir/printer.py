"""IR as text, for golden tests, cache keys and people (`program.ir`).

    func train(images: f32 (8000, 784), n: i64 ()):
      loss: f32 () = constant {value=0.0}
      total: f32 () = for(0, n, 1, loss) {label=i} (i: i64 (), total: f32 ()):
        ...
        yield(total_2)

Names come from the user's hints, made unique; the same program prints the same text in every process.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence

from staged.base.depth import goes_deep
from staged.ir.nodes import Block, FrameRecord, Function, Label, Op, Value, VariableRef
from staged.ir.types import CPU, Device


class _Names(dict[Value, str]):
    """Names of values, assigned on first use. Every trace is printed, so few calls per op matter."""

    def __init__(self, without: Collection[str] = (), local: Container[Value] = ()) -> None:
        super().__init__()
        self.local = local
        """The values that are printed as local."""
        self.without = without
        """Attributes of ops that are not printed."""
        self.used: dict[str, int] = {}
        self.labels: dict[Label, str] = {}
        self.types: dict[int, str] = {}
        """The text of types by their identity; the program keeps them alive."""

    def __missing__(self, value: Value) -> str:
        base = value.hint or "t"
        count = self.used.get(base, 0) + 1
        self.used[base] = count
        made = self[value] = base if count == 1 else f"{base}_{count}"
        return made

    def typed(self, value: Value) -> str:
        """The name and the type."""
        text = self.types.get(id(value.type))
        if text is None:
            text = self.types[id(value.type)] = str(value.type)
        return f"{self[value]}: {text}{' local' if self.local and value in self.local else ''}"

    def listed(self, values: Sequence[Value]) -> str:
        """The names of several values."""
        return ", ".join(map(self.__getitem__, values))

    def label(self, label: Label) -> str:
        if label not in self.labels:
            base = f"@{label.name}"  # no value's
            count = self.used.get(base, 0) + 1
            self.used[base] = count
            self.labels[label] = base if count == 1 else f"{base}_{count}"
        return self.labels[label]


@goes_deep
def print_function(
    function: Function, positions: bool = False, without: Collection[str] = (), local: Container[Value] = ()
) -> str:
    """The whole function, after those it calls, but for the attributes `without`; with `positions` each op is followed
    by its Python line. The values in `local`, and parameters and Variables that are declared local, are marked.
    """
    local = local or {function.params[number] for number in function.local_params}
    frames = "".join(f"{_frame(record)}\n" for record in function.frames)
    called = "".join(f"{_print_one(other, positions, without, local)}\n" for other in function.functions)
    return frames + called + _print_one(function, positions, without, local)


def _frame(record: FrameRecord) -> str:
    return f"frame {record.name}({', '.join(f'{name}: {type}' for name, type in record.fields)})"


def _print_one(function: Function, positions: bool, without: Collection[str], local: Container[Value]) -> str:
    names = _Names(without, local)
    devices = function.param_devices or (CPU,) * len(function.params)
    params = ", ".join(f"{names.typed(p)}{_device(device)}" for p, device in zip(function.params, devices, strict=True))
    lines = [f"func {function.name}({params}):"]
    lines += [f"  device: {function.options}"] if str(function.options) else []
    lines += [
        f"  variable {v.name}: {v.type}{' outer' if v.outer else ''}{' local' if v.local else ''}{_device(v.device)}"
        for v in function.variables
    ]
    _print_block(function.block, names, lines, 1, positions)
    return "\n".join(lines) + "\n"


def print_op(op: Op) -> str:
    """One op, without its blocks."""
    return _op_line(op, _Names())


def _print_block(block: Block, names: _Names, lines: list[str], depth: int, positions: bool) -> None:
    indent = "  " * depth
    for op in block.ops:
        where = f"   # {op.where.short}" if positions and op.where else ""
        lines.append(indent + _op_line(op, names) + (":" if op.blocks else "") + where)
        for number, inner in enumerate(op.blocks):
            if len(op.blocks) > 1 or inner.params:
                params = ", ".join(map(names.typed, inner.params))
                lines.append(f"{indent} block {number}({params})")
            _print_block(inner, names, lines, depth + 1, positions)
    end = block.end
    target = f" {names.label(end.target)}" if end.target is not None else ""
    lines.append(f"{indent}{end.kind}{target}({names.listed(end.operands)})")


def _op_line(op: Op, names: _Names) -> str:
    text = f"{op.name}({names.listed(op.operands)})"
    if op.attrs:
        attrs = [f"{key}={_attr(value, names)}" for key, value in sorted(op.attrs.items()) if key not in names.without]
        text += f" {{{', '.join(attrs)}}}" if attrs else ""
    if op.results:
        text = f"{', '.join(map(names.typed, op.results))} = {text}"
    return text if op.device is CPU else text + _device(op.device)


def _device(device: Device) -> str:
    return "" if device == CPU else f" on {device}"


_PLAIN = frozenset((int, bool, float, complex, str, type(None)))
"""Types that are written as in Python, in tuples too."""


def _attr(value: object, names: _Names) -> str:
    if type(value) in _PLAIN or (type(value) is tuple and _PLAIN.issuperset(map(type, value))):
        return repr(value)
    if isinstance(value, Label):
        return names.label(value)
    if isinstance(value, VariableRef):
        return f"${value.name}"
    if isinstance(value, tuple):
        return "(" + ", ".join(_attr(item, names) for item in value) + ("," if len(value) == 1 else "") + ")"
    return repr(value) if isinstance(value, str | float | complex) else str(value)
