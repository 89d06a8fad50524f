"""The functions that a program calls: signatures, buffers, and text.

A recursive function has its buffers in a struct of its own (`own`), one for each call, on the program's stack. The
buffers of the others are in the program's arena, behind those of their callers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from staged.backends.host.body import BodyEmitter
from staged.backends.host.calls import Signature
from staged.code.expr import Expr, Literal, Member, Name, Prefix, Variable, call, member
from staged.code.printer import print_body
from staged.code.tree import Declare, If, Jump, Statement, Unused
from staged.code.types import word
from staged.code.unused import drop_unused_locals, names_used
from staged.code.writer import WIDTH, Names, Writer, broken, c_string, with_comment
from staged.ir.buffers import Buffer, Called, Plan, aligned
from staged.ir.functions import callees, components, every_function, function_table, recursive_functions, result_types
from staged.ir.nodes import Function, Value
from staged.ir.storage import is_tensor, structural_blocks, structural_ops
from staged.ir.structure import CALL
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, Type, shape_text
from staged.ir.views import Call

Pairs = tuple[tuple[int, int], ...]

OWN, OWN_ON_DEVICE = "own", "own_d"
"""The structs of what one call works on, in the text."""


@dataclass(frozen=True)
class CFunction:
    """One function of the program on its way to C."""

    signature: Signature
    plan: Plan
    structure: BodyEmitter
    offset: int
    """The offset of its buffers in the arena."""
    locals_type: str
    """The struct of one call's buffers; empty where it has none."""


def with_functions(plan: Plan, functions: Collection[CFunction]) -> Plan:
    """The plan of a program's entry, with the buffers and the peaks of its functions."""
    buffers = list(plan.buffers)
    for made in functions:
        for buffer in made.plan.arena_buffers():
            name = f"{made.signature.name}.{buffer.name}"
            buffers.append(replace(buffer, name=name, offset=made.offset + buffer.offset))
    plans = [made.plan for made in functions]
    device_peaks = {
        device: plan.device_peaks.get(device, 0) + max((each.device_peaks.get(device, 0) for each in plans), default=0)
        for device in {*plan.device_peaks, *(device for each in plans for device in each.device_peaks)}
    }
    return replace(
        plan,
        device_peaks=device_peaks,
        buffers=buffers,
        peak_bytes=plan.peak_bytes + max((each.peak_bytes for each in plans), default=0),
        stack_bytes={
            made.signature.name: sum(aligned(slot[0].nbytes) for slot in made.plan.unions)
            for made in functions
            if made.signature.recursive
        },
        calls_on_devices={made.signature.name: made.plan.local_bytes for made in functions if made.plan.local_bytes},
    )


def called_functions(program: Function) -> dict[str, Called]:
    """The calls of each function of the program, summarised; callees first."""
    recursive = recursive_functions(program)
    in_place: dict[str, set[Pairs]] = {}
    for function in every_function(program):
        for op in structural_ops(function.block):
            if op.declared is CALL:
                pairs = tuple(pair for pair in Call(op).in_place if is_tensor(op.operands[pair[0]]))
                in_place.setdefault(Call(op).function, set()).add(pairs)
    found = {}
    for group in components(program):
        for name in sorted(group):
            ways = in_place.get(name, {()})
            assert len(ways) == 1, f"calls of `{name}` differ in what they make in place"
            found[name] = Called(name in recursive, next(iter(ways)))
    return found


def make_signature(
    function: Function,
    called: Called,
    name: str,
    names: Names,
    frames: Mapping[str, str],
    state: tuple[tuple[str, str], ...],
) -> tuple[Signature, Names]:
    """The signature of the function that C calls `name`, and the names inside it."""
    local = Names(names)
    local.used |= {OWN, OWN_ON_DEVICE}
    in_place = {result: param for param, result in called.in_place}
    params = []
    for number, param in enumerate(function.params):
        path = function.param_paths[number] if number < len(function.param_paths) else param.hint
        params.append((_c_type(param.type, number in in_place.values(), frames), local.fresh(path or "x")))
    results = []
    paths = function.result_paths
    for number, type in enumerate(result_types(function)):
        if number in in_place:
            results.append(params[in_place[number]])
        else:
            results.append((_pointer(type, frames), local.fresh(paths[number] if number < len(paths) else "result")))
    return Signature(name, function, tuple(params), tuple(results), in_place, called.recursive, state), local


def _c_type(type: Type, written: bool, frames: Mapping[str, str]) -> str:
    """A parameter's C type, up to its name."""
    if isinstance(type, FrameType):
        return f"const {frames[type.name]} *"
    if isinstance(type, SequenceType):
        return "st_sequence "
    if type.shape:
        return f"{'' if written else 'const '}{type.dtype.c_name} *"
    return f"{type.dtype.c_name} "


def _pointer(type: Type, frames: Mapping[str, str]) -> str:
    """The C type of a pointer for a result, up to its name."""
    if isinstance(type, FrameType):
        return f"const {frames[type.name]} **"
    if isinstance(type, SequenceType):
        return "st_sequence *"
    return f"{type.dtype.c_name} *"


def arena_offsets(
    program: Function, plans: Mapping[str, Plan], entry: Plan, device: Device = CPU
) -> tuple[dict[str, int], int]:
    """The offset of each function's buffers in a device's arena, and the end of all: behind those of all possible
    callers.
    """
    table = function_table(program)

    def size(plan: Plan) -> int:
        return plan.arena_bytes if device == CPU else plan.device_bytes.get(device, 0)

    ends: dict[str, int] = {}
    offsets: dict[str, int] = {}
    behind = dict.fromkeys(callees(program.block), size(entry))
    total = size(entry)
    for group in reversed(components(program)):
        start = max((behind[name] for name in group if name in behind), default=0)
        end = start + sum(size(plans[name]) for name in group)
        for name in group:
            offsets[name], ends[name] = start, end
            for callee in callees(table[name].block):
                behind[callee] = max(behind.get(callee, 0), end)
        total = max(total, end)
    return offsets, total


# ---- text ---------------------------------------------------------------------------------------


def place_values(structure: BodyEmitter, signature: Signature, plan: Plan) -> None:
    """Set the expressions by which the body accesses its parameters, results and locals."""
    for param, (_, name) in zip(signature.function.params, signature.params, strict=True):
        if not is_tensor(param):
            structure.scalars[param] = Name(name)
    structure.results = [Name(name) for _, name in signature.results]
    members = {OWN: Names(), OWN_ON_DEVICE: Names()}
    for buffer in plan.buffers:
        place: Expr | None = None
        if buffer.kind == "input":
            place = Name(signature.params[buffer.index][1])
        elif buffer.kind == "output":
            place = structure.results[buffer.index]
        elif buffer.kind == "local":
            own = OWN if buffer.device == CPU else OWN_ON_DEVICE
            place = Member(Name(own), members[own].fresh(buffer.name), arrow=False)
        if place is not None:
            structure.places[buffer] = place


def declaration(signature: Signature, static: str = "static int") -> str:
    """`static int f(...)`, broken into lines where it is long."""
    parts = [f"{type}{name}" for type, name in signature.declared()]
    return "\n".join(broken(f"{static} {signature.name}(", parts, ")", WIDTH))


def write_locals(w: Writer, made: CFunction, align: str) -> None:
    """The struct of what one call of a recursive function works on; `align` is how its arrays are aligned."""
    if not made.locals_type:
        return
    w.comment(f"What one call of `{made.signature.name}` works on; it lies on the program's own stack.")
    with w.block("typedef struct", f" {made.locals_type};"):
        for slot in made.plan.unions:
            if len(slot) == 1:
                _write_members(w, made, slot[0], align)
                continue
            with w.block("union", ";"):
                for number, buffer in enumerate(slot):
                    if buffer.parts:
                        with w.block("struct", ";"):
                            _write_members(w, made, buffer, align)
                    else:
                        _write_members(w, made, buffer, "" if number else align)


def _write_members(w: Writer, made: CFunction, buffer: Buffer, align: str) -> None:
    """The fields of a buffer, or of each part of a region. Aligned parts are adjacent, as one message needs them."""
    for part in buffer.parts or (buffer,):
        w.line(_member(made, part, align, w.depth))


def _member(made: CFunction, buffer: Buffer, align: str, depth: int) -> str:
    name = str(made.structure.places[buffer]).removeprefix(f"{OWN}.")
    c_type = buffer.type.dtype.c_name
    where = f"  {buffer.where.short}  {buffer.where.text}" if buffer.where else ""
    count = max(1, -(-buffer.nbytes // buffer.type.dtype.size))
    return with_comment(f"{align}{c_type} {name}[{count}];", shape_text(buffer.type.shape) + where, depth)


def write_function(w: Writer, made: CFunction, body: Sequence[Statement]) -> None:
    """Write the C function with these statements, after a comment that says where it comes from and what it takes."""
    signature, function = made.signature, made.signature.function
    where = function.where
    if where is not None:
        w.comment(f"{where.short}  {where.text}")
    for line in _described(signature):
        w.comment(line)
    lines = declaration(signature).split("\n")
    for line in lines[:-1]:
        w.line(line)
    with w.block(lines[-1]):
        w.lines += print_body(body)


def function_body(made: CFunction, site: int) -> tuple[Statement, ...]:
    """The statements of a function, after those that no op makes."""
    signature, where = made.signature, made.signature.function.where
    begin: list[Statement] = []
    if signature.recursive:
        # By the user's name: what a derivative made of a function recurses as deep as the function.
        name = Literal(c_string(where.function if where is not None and where.function else signature.name))
        stack = member("m", "stack")
        ends = Jump("return", value=call("st_recursion_ends", "host", stack, site, name))
        begin.append(If(Prefix("!", call("st_may_recurse", "host", stack)), (ends,)))
    if made.locals_type:
        begin.append(Declare(Variable(OWN, word(made.locals_type)), is_const=False))
    used = names_used([*begin, *made.structure.code.body])
    unused = [Unused((Name(name),)) for _, name in signature.declared() if name not in used]
    return drop_unused_locals([*begin, *unused, *made.structure.code.body])


def _described(signature: Signature) -> list[str]:
    """The signature for people: `h f32 (150,), w f32 (150, 300) -> result f32 (150,)`."""
    types = result_types(signature.function)
    taken = [
        _said(name, value.type) for (_, name), value in zip(signature.params, signature.function.params, strict=True)
    ]
    given = [
        _said(name, type) + (", in place" if index in signature.in_place else "")
        for index, ((_, name), type) in enumerate(zip(signature.results, types, strict=True))
    ]
    words = [f"{part}{',' if part is not taken[-1] else ''}" for part in taken]
    words += ["->", *(f"{part}{',' if part is not given[-1] else ''}" for part in given)] if given else []
    lines, line = [], ""
    for each in words:
        if len(line) + len(each) > WIDTH - 4:
            lines.append(line)
            line = "    "
        line += each if not line.strip() else f" {each}"
    return [*lines, line] if line.strip() else lines


def _said(name: str, type: Type) -> str:
    if not isinstance(type, TensorType):
        return f"{name} {type}"
    return f"{name} {type.dtype}" + (f" {shape_text(type.shape)}" if type.shape else "")


def prototypes(program: Function, made: Mapping[str, CFunction]) -> list[str]:
    """Declarations of the functions that call one another."""
    texts = []
    for group in components(program):
        if len(group) > 1:
            texts += [declaration(made[name].signature) + ";" for name in sorted(group)]
    return texts


def stack_bytes(made: Sequence[CFunction]) -> int:
    """The most that one call of a recursive function keeps on the stack in buffers."""
    return max((sum(slot[0].nbytes + 64 for slot in each.plan.unions) for each in made), default=0)


def returned_values(function: Function) -> list[Value]:
    """The returned values of a function, on all of its paths."""
    ends = [block.end for block in structural_blocks(function.block) if block.end.kind == "return"]
    return [value for end in ends for value in end.operands]
