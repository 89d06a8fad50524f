"""Printer, verifier, copying, dead code: the IR itself."""

import pytest

from staged.ir.builder import Builder
from staged.ir.functions import components, recursive_functions, with_call_effects
from staged.ir.nodes import Effect, FrameRecord, Function, Label, Op, VariableRef, free_values, walk_ops
from staged.ir.printer import print_function
from staged.ir.rewrite import copy_block, rewrite
from staged.ir.sizes import Dim
from staged.ir.types import FrameType, SequenceType, TensorType, bool_, bound, c64, dtype_of, f32, f64, i64, shape_text
from staged.ir.verifier import VerificationError, verify

F = TensorType(f32)
I = TensorType(i64)  # noqa: E741
V = TensorType(f32, (3,))


def constant(builder, value, type=I):
    return builder.op("constant", [], [type], attrs={"value": value}).result


def summing_loop(end="yield", extra=None):
    builder = Builder()
    with builder.block([F, I], ["x", "n"]) as body:
        x, n = body.params
        zero, one = constant(builder, 0), constant(builder, 1)
        label = Label("i")
        with builder.block([I, F], ["i", "total"]) as inner:
            total = builder.op("add", [inner.params[1], x], [F]).result
            if extra:
                extra(builder, inner, label)
            else:
                builder.end(end, [total], label if end != "yield" else None)
        loop = builder.op("for", [zero, n, one, x], [F], attrs={"label": label}, blocks=[inner.block])
        builder.end("return", [loop.result])
    return Function("f", body.block)


def test_printed_text_is_stable_and_carries_the_users_names():
    text = print_function(summing_loop())
    assert text == print_function(summing_loop())
    assert text == (
        "func f(x: f32 (), n: i64 ()):\n"
        "  t: i64 () = constant() {value=0}\n"
        "  t_2: i64 () = constant() {value=1}\n"
        "  t_3: f32 () = for(t, n, t_2, x) {label=@i}:\n"
        "   block 0(i: i64 (), total: f32 ())\n"
        "    t_4: f32 () = add(total, x)\n"
        "    yield(t_4)\n"
        "  return(t_3)\n"
    )


def test_a_well_formed_loop_passes_the_verifier():
    verify(summing_loop())
    verify(summing_loop("break"))
    verify(summing_loop("continue"))


def _used_before_made():
    builder = Builder()
    with builder.block([F]) as body:
        late = Op("negative", [body.params[0]], [F])
        builder.op("negative", [late.result], [F])
        builder.append(late)
        builder.end("return", [])
    return Function("f", body.block)


def _from_inner_block():
    builder = Builder()
    with builder.block([TensorType(bool_), F]) as body:
        blocks = []
        for _ in range(2):
            with builder.block() as branch:
                inner = builder.op("negative", [body.params[1]], [F]).result
                builder.end("yield", [])
            blocks.append(branch.block)
        builder.op("if", [body.params[0]], [], blocks=blocks)
        builder.end("return", [inner])
    return Function("f", body.block)


def _unknown_variable():
    builder = Builder()
    variable = VariableRef("v", F, False)
    with builder.block() as body:
        builder.op("variable_read", [], [F], attrs={"variable": variable}, effects=(Effect("read", variable),))
        builder.end("return", [])
    return Function("f", body.block)


def _if_on_float():
    builder = Builder()
    with builder.block([F]) as body:
        blocks = []
        for _ in range(2):
            with builder.block() as branch:
                builder.end("yield", [])
            blocks.append(branch.block)
        builder.op("if", [body.params[0]], [], blocks=blocks)
        builder.end("return", [])
    return Function("f", body.block)


def _open_kernel():
    builder = Builder()
    with builder.block([V]) as body:
        with builder.block([V]) as inner:
            builder.end("yield", [body.params[0]])
        attrs = {"name": "copy", "fused": "copy"}
        builder.op("kernel", [body.params[0]], [V], attrs=attrs, blocks=[inner.block])
        builder.end("return", [])
    return Function("f", body.block)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_used_before_made, "used before it is made"),
        (_from_inner_block, "before it is made"),
        (_unknown_variable, "not listed"),
        (_if_on_float, "`condition` is no condition but f32"),
        (_open_kernel, "from outside"),
        (lambda: summing_loop(extra=lambda b, inner, label: b.end("yield", [])), "yields"),
        (lambda: summing_loop(extra=lambda b, inner, label: b.end("break", [inner.params[0]], label)), "passes"),
        (
            lambda: summing_loop(extra=lambda b, inner, label: b.end("break", [inner.params[1]], Label("x"))),
            "not around",
        ),
        (lambda: summing_loop(extra=lambda b, inner, label: b.end("return", [])), "elsewhere"),
    ],
)
def test_each_broken_invariant_is_found_and_the_pass_is_named(make, words):
    with pytest.raises(VerificationError, match=words) as caught:
        verify(make(), "planting")
    assert "after planting" in str(caught.value)


def test_a_copy_is_fresh_and_prints_the_same():
    function = summing_loop()
    copy = function.with_block(copy_block(function.block))
    verify(copy)
    assert print_function(copy) == print_function(function)
    old = {result for op in walk_ops(function.block) for result in op.results}
    assert not old & {result for op in walk_ops(copy.block) for result in op.results}
    assert free_values(copy.block) == ()


def test_a_rule_replaces_ops_inside_loops():
    def double(op, builder):
        return builder.op("multiply", op.operands, [F]).results if op.name == "add" else None

    names = [op.name for op in walk_ops(rewrite(summing_loop(), double).block)]
    assert "multiply" in names and "add" not in names


def test_types_speak_and_symbolic_dimensions_have_bounds():
    n = Dim("N", max=64)
    assert str(TensorType(f64, (n, 3))) == "f64 (N, 3)"
    assert TensorType(f32, (n, 2)).size == 128 and bound(n) == 64
    assert shape_text((3,)) == "(3,)" and shape_text(()) == "()"
    assert str(SequenceType(V, 10)) == "[f32 (3,) x 10]"
    assert dtype_of("float32") is f32 and dtype_of(complex) is c64 and dtype_of(object) is None


# ---- functions that call one another --------------------------------------------------------------


def calling(name, *callees, effects=()):
    """A function of one f32 that calls `callees` in turn on it."""
    builder = Builder()
    with builder.block([F], ["x"]) as body:
        (x,) = body.params
        for effect in effects:
            builder.op("print", [x], [], attrs={"parts": ()}, effects=(effect,))
        for callee in callees:
            x = builder.op("call", [x], [F], attrs={"function": callee}).result
        builder.end("return", [x])
    return Function(name, body.block)


def test_components_come_callees_first_and_recursion_is_found():
    program = calling("main", "even", "twice").replace(
        functions=[calling("even", "odd", "leaf"), calling("odd", "even"), calling("twice", "leaf"), calling("leaf")]
    )
    groups = [set(group) for group in components(program)]
    assert groups.index({"leaf"}) < groups.index({"even", "odd"})
    assert recursive_functions(program) == {"even", "odd"}
    verify(program)


def test_a_call_has_the_effects_of_all_that_it_reaches():
    program = calling("main", "even").replace(
        functions=[calling("even", "odd"), calling("odd", "even", effects=[Effect("io")])]
    )
    made = with_call_effects(program)
    (op,) = [op for op in walk_ops(made.block) if op.name == "call"]
    assert {effect.kind for effect in op.effects} == {"io", "fail"}
    assert "func even(x: f32 ()):" in print_function(made)


def test_calls_and_frames_that_do_not_fit_are_refused():
    with pytest.raises(VerificationError, match="not listed"):
        verify(calling("main", "missing"))
    builder = Builder()
    with builder.block([V], ["x"]) as body:
        made = builder.op("call", body.params, [F], attrs={"function": "leaf"}).result
        builder.end("return", [made])
    with pytest.raises(VerificationError, match="parameters of `leaf`"):
        verify(Function("main", body.block, functions=[calling("leaf")]))
    builder = Builder()
    with builder.block([V], ["x"]) as body:
        frame = builder.op("frame_save", body.params, [FrameType("f")]).result
        fields = builder.op("frame_load", [frame], [F]).results
        builder.end("return", fields)
    with pytest.raises(VerificationError, match="fields differ"):
        verify(Function("main", body.block, frames=[FrameRecord("f", (("x", V),))]))
