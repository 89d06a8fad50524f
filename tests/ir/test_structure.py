"""Structured ops are as declared, and no op is known by a string."""

from __future__ import annotations

import ast
import importlib.util
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import pytest

from staged.code import operators
from staged.ir.builder import Builder
from staged.ir.declaration import DECLARED, Declaration, declare, prims
from staged.ir.nodes import IO, Block, End, Function, Label, Op, Value
from staged.ir.ranges import RANGES
from staged.ir.structure import CALL, FOR, FRAME_LOAD, IF, PRINT, SCOPE, WHILE
from staged.ir.types import FrameType, SequenceType, TensorType, bool_, f32, i64
from staged.ir.verifier import VerificationError, verify
from staged.ir.views import Branch, Call, CustomVjp, Derivative, Frame, Loop, is_condition

ROOT = Path(__file__).parent.parent.parent
F, I, B = TensorType(f32), TensorType(i64), TensorType(bool_)  # noqa: E741


def values(*types: TensorType) -> list[Value]:
    return [Value(type) for type in types]


def a_block(*types: TensorType) -> Block:
    return Block(values(*types), [], End("raise"))


@pytest.mark.parametrize(
    ("op", "fault"),
    [
        (Op(IF, values(B), [], blocks=[a_block(), a_block()]), None),
        (Op(IF, values(F), [], blocks=[a_block(), a_block()]), "`condition` is no condition but f32 ()"),
        (Op(IF, [], [], blocks=[a_block(), a_block()]), "0 values for (condition: condition)"),
        (Op(IF, values(B, B), [], blocks=[a_block(), a_block()]), "2 values for (condition: condition)"),
        (Op(IF, values(B), [], blocks=[a_block()]), "1 blocks for 2"),
        (Op(IF, values(B), [], blocks=[a_block(), a_block(F)]), "1 values for ()"),
        (Op(FOR, values(I, I, I), [], attrs={"label": Label("i")}, blocks=[a_block(I)]), None),
        (Op(FOR, values(I, I), [], attrs={"label": Label("i")}, blocks=[a_block(I)]), "2 values for (start: index, "),
        (Op(FOR, values(I, F, I), [], attrs={"label": Label("i")}, blocks=[a_block(I)]), "`stop` is no index but f32"),
        (Op(FOR, values(I, I, I), [], attrs={"label": Label("i")}, blocks=[a_block(F)]), "`index` is no index but f32"),
        (Op(FOR, values(I, I, I), [], blocks=[a_block(I)]), "its attribute `label` is missing"),
        (Op(FOR, values(I, I, I), [], attrs={"label": "i"}, blocks=[a_block(I)]), "its attribute `label` is 'i'"),
        (Op(CALL, [], [], attrs={"function": "f", "inplace": ()}), "an attribute `inplace` that it does not have"),
        (Op(PRINT, [], [], attrs={"parts": (), "end": "", "file": "stdout"}, effects=IO), None),
        (Op(CALL, [], [], attrs={"function": "f"}, effects=IO), None),
        (Op(FRAME_LOAD, values(F), [F]), "`frame` is no frame but f32 ()"),
        (Op(FRAME_LOAD, values(FrameType("f")), [F], effects=IO), "its effect `io`"),
    ],
)
def test_an_op_that_is_not_as_declared_is_told_apart(op: Op, fault: str | None) -> None:
    (found,) = op.declared.faults(op) or [None]
    assert found == fault if fault is None or found is None else fault in found


def test_names_of_ops_are_looked_up_and_declared_once() -> None:
    assert Op("if", [], []).declared is IF and prims.ADD.name == "add"
    with pytest.raises(AssertionError, match="no op is called 'check_index'"):
        Builder().op("check_index", [], [])
    with pytest.raises(AttributeError, match="'check_index', for `prims.CHECK_INDEX`"):
        _ = prims.CHECK_INDEX
    for wrong in ("add", "IF"):  # a primitive is written in capitals, and `if` is none
        with pytest.raises(AttributeError):
            getattr(prims, wrong)
    with pytest.raises(AssertionError, match="declared twice"):
        declare(Declaration(name="if", kind="structured"))


def test_patterns_of_ops_name_declarations() -> None:
    (x,) = values(F)
    inner = Op("negative", [x], [F])
    match Op("negative", [inner.result], [F]):
        case Op(prims.NEGATIVE, (Value(producer=Op(prims.NEGATIVE, (y,))),)):
            assert y is x
        case _:
            raise AssertionError("the pattern does not match")
    assert inner.replace(declared=prims.EXP).name == "exp"


@pytest.mark.parametrize("counting", [True, False])
def test_a_loop_in_its_parts(counting: bool) -> None:
    label, index = Label("i"), values(I)[:counting]
    (carried, asked, made, first), bounds = values(F, F, F, F), values(I, I, I)[: 3 * counting]
    leaving = Block([], [], End("break", (made,), label))
    other = Block([], [], End("yield", ()))
    choice = Op(IF, values(B), [], blocks=[leaving, other])
    body = Block([*index, carried], [choice], End("yield", (made, made)))
    blocks = [body] if counting else [Block([asked], [], End("yield", tuple(values(B)))), body]
    types = [F, SequenceType(F, None)]
    op = Op(FOR if counting else WHILE, [*bounds, first], types, attrs={"label": label, "collected": 1}, blocks=blocks)
    loop = Loop(op)
    assert op.declared.faults(op) == []
    assert loop.label is label and loop.is_for is counting and loop.body is body
    assert loop.bounds == tuple(bounds) and loop.initial == (first,) and loop.indices == tuple(index)
    assert loop.carried == (carried,) and loop.final == op.results[:1] and loop.collected == op.results[1:]
    assert loop.ends() == [(body, body.end), (leaving, leaving.end)]
    assert loop.yields(body) == (F, F)
    if counting:
        assert loop.index is index[0] and loop.condition is None
    else:
        assert loop.carried_in(blocks[0]) == (asked,) and loop.yields(blocks[0]) == (B,)
        assert loop.condition is blocks[0] and is_condition(op, blocks[0]) and not is_condition(op, body)
        with pytest.raises(AssertionError, match="no index"):
            _ = loop.index
    with pytest.raises(AssertionError, match="`if` is no loop"):
        Loop(choice)


def test_branches_calls_and_frames_in_their_parts() -> None:
    label = Label("return")
    given, made = values(F, F)
    leaving = Block([], [], End("break", (given,), label))
    test = Op(IF, values(B), [], blocks=[leaving, Block([], [], End("yield", ()))])
    body = Block([], [test], End("yield", (made,)))
    scope = Op(SCOPE, [], [F], attrs={"label": label}, blocks=[body])
    assert Branch(scope).ends() == [(body, body.end), (leaving, leaving.end)]
    assert Branch(test).ends() == [(test.blocks[1], test.blocks[1].end)]
    call = Op(CALL, [given], [F], attrs={"function": "g", "in_place": ((0, 0),)})
    assert Call(call).function == "g" and Call(call).in_place == ((0, 0),)
    load = Op(FRAME_LOAD, values(FrameType("of_g")), [F, I])
    save = Op("frame_save", load.results, [FrameType("of_g")])
    null = Op("frame_null", [], [FrameType("of_g")])
    assert Frame(load).value is load.operands[0] and Frame(load).fields == load.results
    assert Frame(save).value is save.result and Frame(save).fields == load.results and Frame(null).fields == ()
    assert {Frame(op).record for op in (load, save, null)} == {"of_g"}
    for view, wrong in ((Branch, call), (Call, scope), (Frame, call), (Derivative, call), (CustomVjp, scope)):
        with pytest.raises(AssertionError):
            view(wrong)


def test_derivatives_in_their_parts() -> None:
    captures, directions, params, made = values(F, I), values(F), values(F, I), values(F, B)
    block = Block(params, [], End("yield", tuple(made)))
    attrs = {"wrt": (0,), "outputs": 2, "of": (0,)}
    vjp = Derivative(Op("vjp", [*captures, *directions], [F, B, F], attrs=attrs, blocks=[block]))
    assert vjp.primal is block and vjp.captures == tuple(captures) and vjp.directions == tuple(directions)
    assert vjp.wrt == (0,) and vjp.of == (0,)
    forward, backward = Block(values(F), [], End("yield", tuple(values(F, B)))), Block(values(B, F), [], End("raise"))
    attrs = {"name": "f", "outputs": 1, "wrt": (0,)}
    custom = CustomVjp(Op("custom_vjp", values(F), [F], attrs=attrs, blocks=[block, forward, backward]))
    assert custom.forward is forward and custom.backward is backward and custom.wrt == (0,)
    assert custom.residuals == forward.end.operands[1:]


@pytest.mark.parametrize(
    ("operands", "attrs", "words"),
    [
        ([F, F], {"wrt": (0,), "outputs": 1, "of": (0,)}, None),
        ([I, F], {"wrt": (0,), "outputs": 1, "of": (0,)}, "captures differ in type"),
        ([F], {"wrt": (0,), "outputs": 1, "of": (0,)}, "0 directions"),
        ([F, F, F], {"wrt": (0,), "outputs": 1, "of": (0,)}, "2 directions"),
        ([F, F], {"wrt": (1,), "outputs": 1, "of": (0,)}, "does not have"),
        ([F, F], {"wrt": (0,), "outputs": 2, "of": (0,)}, "yields"),
    ],
)
def test_a_derivative_fits_its_block(operands: list[TensorType], attrs: dict[str, object], words: str | None) -> None:
    builder = Builder()
    with builder.block(operands) as body:
        with builder.block([F]) as primal:
            builder.end("yield", primal.params)
        made = builder.op("vjp", body.params, [F, F], attrs=attrs, blocks=[primal.block])
        builder.end("return", made.results)
    with pytest.raises(VerificationError, match=words) if words else nullcontext():
        verify(Function("f", body.block))


def test_the_page_of_structured_ops_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_structured_ops", ROOT / "docs" / "make_structured_ops.py")
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.PAGE.read_text() == maker.page(), "run `python -m docs.make_structured_ops`"


@cache
def sources() -> list[tuple[Path, ast.AST]]:
    """The nodes of the source that may name an op."""
    found = []
    for path in sorted((ROOT / "staged").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute | ast.Call | ast.Compare | ast.Match | ast.Subscript):
                found.append((path.relative_to(ROOT), node))
    return found


def test_every_declaration_that_the_source_names_is_declared() -> None:
    unknown = [
        f"{path}:{node.lineno}: prims.{node.attr}"
        for path, node in sources()
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr.upper()) == ("prims", node.attr)
        and node.attr.lower() not in DECLARED
    ]
    assert not unknown, unknown


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('METHODS["where"](a, b)', True),
        ('bind(PRIMITIVES["take"], [x])', True),
        ('emit.emit("reshape", [x])', True),
        ('(row,) = emit("reshape", [x], {})', True),
        ('getattr(part, f"emit_{op.name}", None)', True),
        ("METHODS[name](a, b)", False),
        ('emit("call")', False),
        ('binary("add", a, b)', True),
        ('add = binary("add", np.add, NUMBERS, doc="a + b.")', False),
        ("emit(prims.RESHAPE, [x], {})", False),
    ],
)
def test_a_lookup_of_an_op_by_a_string_is_found(text: str, found: bool) -> None:
    assert any(map(is_lookup_by_string, ast.walk(ast.parse(text)))) == found


def is_lookup_by_string(node: ast.AST) -> bool:
    """Whether a node of the source looks up a function, a primitive or an emitter by a string."""
    match node:
        case ast.Subscript(value=ast.Name(table), slice=ast.Constant(str())):
            return table in ("METHODS", "PRIMITIVES", "COMPOSITES", "DECLARED")
        case ast.Call(func=ast.Name("getattr"), args=[_, ast.JoinedStr([ast.Constant(str(text)), *_]), *_]):
            return text.startswith("emit_")
        case ast.Call(func=ast.Name(called) | ast.Attribute(attr=called), args=[ast.Constant(str(name)), *rest]):
            declares = any(word.arg == "doc" for word in node.keywords)
            looks_up = called in ("emit", "bind", "unchecked", "binary", "op", "Op")
            return looks_up and not declares and bool(rest) and name in DECLARED
    return False


def test_the_source_looks_up_no_op_by_a_string() -> None:
    found = [f"{path}:{node.lineno}" for path, node in sources() if is_lookup_by_string(node)]
    assert not found, f"write `prims.NAME`, `functions.NAME` (ops/array.py) or an import: {found}"


def test_tables_by_name_have_names_of_ops() -> None:
    """A row under a name that no op has is never read."""
    tables = {"RANGES": RANGES}
    tables |= {name: getattr(operators, name) for name in ("ARITHMETIC", "LOGICAL", "BITWISE", "COMPARISONS", "EXTREMES")}
    unknown = {name: set(table) - set(DECLARED) for name, table in tables.items()}
    assert not any(unknown.values()), unknown


# Where a name is compared with strings: names of dtypes, which are no ops, and of what is no op at all.
COMPARED_WITH_STRINGS = {
    "staged/backends/host/buffer_structs.py": 2,  # fields
    "staged/backends/host/constants.py": 1,  # dtypes
    "staged/backends/host/program.py": 1,  # a part of the file
    "staged/backends/host/ranks.py": 1,  # dtypes
    "staged/code/expr.py": 3,  # dtypes
    "staged/code/scalars.py": 1,  # dtypes
    "staged/backends/gpu/thread_expressions.py": 1,  # dtypes
    "staged/nn/module.py": 1,  # Variables
    "staged/kernels/kernel_names.py": 1,  # a name for readers
    "staged/runtime/layout.py": 1,  # Python's own
    "staged/ir/sizes.py": 3,  # a minimum or a maximum
    "staged/ir/size_functions.py": 1,  # a maximum
    "staged/frontend/relations.py": 1,  # a minimum
}


def test_no_op_is_known_by_a_string() -> None:
    found: dict[str, int] = {}
    for path, node in sources():
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            parts = [part for side in sides for part in ast.walk(side)]
            strings = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts)
            hit = strings and any(isinstance(side, ast.Attribute) and side.attr == "name" for side in sides)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # `op.name.startswith("sequence_")`
            hit = node.func.attr in ("startswith", "endswith") and ast.unparse(node.func.value).endswith("op.name")
        else:
            hit = isinstance(node, ast.Match) and ast.unparse(node.subject).endswith("op.name")
        if hit:
            found[str(path)] = found.get(str(path), 0) + 1
    assert found == COMPARED_WITH_STRINGS, "compare declarations (staged/ir/declaration.py), or say here why not"
