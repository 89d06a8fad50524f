"""The text of the calls of cuDNN's attention: a plan for each distinct size, made when the device is opened.

If cuDNN does not have an engine for it, the program's own kernels of attention run.

Tested by `tests/backends/cublas_cudnn/test_attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from staged.backends.cublas_cudnn.device import DevicePart, Field, destroy
from staged.backends.cublas_cudnn.library import attention_graphs, operation_graphs
from staged.backends.cublas_cudnn.library.attention import BACKWARD, FORWARD, sizes_of
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.cudnn import by, handle_part, workspace_part
from staged.backends.cublas_cudnn.library.instead import KernelsInstead, computed, where_missing
from staged.backends.gpu.attention import sizes as own
from staged.code.expr import literal
from staged.code.writer import Writer
from staged.ir.declaration import prims
from staged.ir.loops import Accumulate, Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Reduction, Statement, Store
from staged.ir.nodes import Op, Value
from staged.ir.products import cast_to
from staged.ir.types import TensorType, bound, f32

_HALVES = {"f16": "CUDNN_DATA_HALF", "bf16": "CUDNN_DATA_BFLOAT16"}
_ALIGNED = 256
"""Bytes that what lies behind a plan's own workspace is aligned to."""


class _Call:
    """Shared by the calls of one attention."""

    def __init__(self, op: Op, site: int) -> None:
        self.op, self.site = op, site
        q, k, v = (operand.tensor for operand in op.operands[:3])
        sizes = sizes_of([q, k, v])
        assert sizes is not None, "a call of an attention that cuDNN does not take"
        self.sizes, self.dtype, self.causal = sizes, q.dtype, bool(op.attrs["causal"])
        self.is_reverse = op.attrs["call"] == BACKWARD
        self.is_ordered = bool(op.attrs["deterministic"])

    @property
    def plan(self) -> str:
        """The field with the plan."""
        s = self.sizes
        shapes = (
            by((s.batch, s.heads, s.rows, s.width)),
            by((s.k_heads, s.columns, s.v_heads, s.v_width)),
        )
        kind = "attention_backward" if self.is_reverse else "attention"
        return f"{kind}_{self.dtype}_{'_'.join(shapes)}{'_causal' if self.causal else ''}"

    def __str__(self) -> str:
        s = self.sizes
        q, k = (s.batch, s.heads, s.rows, s.width), (s.batch, s.k_heads, s.columns, s.width)
        v = (s.batch, s.v_heads, s.columns, s.v_width)
        return f"attention of {self.dtype}, q {q}, k {k}, v {v}{', causal' if self.causal else ''}"

    # ---- what has to be there before the call ----

    def behind(self) -> list[tuple[str, int]]:
        """The arrays that lie behind the plan's own workspace, and the bytes of each."""
        if not self.is_reverse:
            return []
        rows = self.sizes.batch * self.sizes.heads * self.sizes.rows
        found = [("offset", rows * f32.size)]
        return found if self.is_ordered else [*found, ("d_q_sums", rows * self.sizes.width * f32.size)]

    def parts(self) -> list[DevicePart]:
        """All of it."""
        return [handle_part(self.site), self.plan_part(), workspace_part(self.site)]

    def plan_part(self) -> DevicePart:
        """The plan, and its share of the workspace."""
        s, plan = self.sizes, f"gpu->{self.plan}"
        numbers = (s.batch, s.heads, s.rows, s.width, s.columns, s.k_heads, s.v_heads, s.v_width)
        causal = "true" if self.causal else "false"
        which = "plan_attention_backward" if self.is_reverse else "plan_attention"
        ordered = "true" if self.is_ordered else "false"
        bytes_ = sum(_aligned(nbytes) for _, nbytes in self.behind())
        needed = f"{plan}.bytes + {bytes_}" if bytes_ else f"{plan}.bytes"
        graph_texts = (
            operation_graphs.GRAPH,
            attention_graphs.ATTENTION,
            attention_graphs.BACKWARD if self.is_reverse else attention_graphs.FORWARD,
        )
        return DevicePart(
            (Field(f"GraphPlan {self.plan};", "", operation_graphs.PLAN_BYTES),),
            (
                "{",
                f"    const AttentionSizes sizes = {{{_HALVES[self.dtype.name]}, {', '.join(map(str, numbers))}, "
                f"{causal}}};",
                f"    {which}(gpu, host, {self.site}, &sizes, {ordered}, &{plan});",
                f"    if ({needed} > gpu->cudnn_workspace_bytes) {{",
                f"        gpu->cudnn_workspace_bytes = {needed};",
                "    }",
                "}",
            ),
            (
                *destroy(f"{plan}.plan", f"cudnnBackendDestroyDescriptor({plan}.plan)"),
                *destroy(f"{plan}.config", f"cudnnBackendDestroyDescriptor({plan}.config)"),
            ),
            ("stdbool.h",),
            checks=(attention_graphs.ATTENTION_NUMBERS, operation_graphs.RUN_PLAN),
            helpers=graph_texts,
            order=1,
        )

    # ---- statements ----

    def write(self, w: Writer, arrays: Mapping[str, str]) -> None:
        """The plan's run, on these arrays by their numbers, and those that every plan has besides."""
        given = dict(arrays)
        w.line(f"const float scale = {literal(self.op.attrs['scale'], f32)};")
        given["SCALE"] = "&scale"
        if self.is_reverse:
            w.line("const float one = 1.0f;")
            given["ONE"] = "&one"
        if self.causal:
            w.line("const float hidden = -INFINITY;")
            given["HIDDEN"] = "&hidden"
        if self.behind():
            w.line("unsigned char *const workspace = (unsigned char *)gpu->cudnn_workspace;")
            w.line(f"unsigned char *const behind = workspace + gpu->{self.plan}.bytes;")
        place = 0
        for name, nbytes in self.behind():
            given[name.upper()] = f"behind + {place}" if place else "behind"
            place += _aligned(nbytes)
        _write_list(w, "const int64_t ids[]", [f"ATTENTION_{name}" for name in given])
        _write_list(w, "const void *const arrays[]", list(given.values()))
        arguments = [f"gpu->{self.plan}.plan", str(len(given)), "ids", "arrays", "gpu->cudnn_workspace"]
        write_call(w, "CUDNN_CHECK", "run_plan(gpu->cudnn", arguments)

    # ---- in place of cuDNN ----

    def write_kernels(self, w: Writer, kernels: KernelsInstead) -> None:
        """The program's own kernels, if there is no plan."""
        op, own_attrs = self.op, {"parts": "", "p": 0.0, "blocks": (1, 1)}
        types = [result.tensor for result in op.results]
        with where_missing(w, f"gpu->{self.plan}.plan == NULL", "cuDNN"):
            if not self.is_reverse:
                arguments = ["q", "k", "v", "out", "lse"]
                kernels.launch_call(w, op, own.FORWARD, op.operands, types, arguments, **own_attrs)
                return
            q, k, v, d_out, out, lse = op.operands
            offset = Value(lse.tensor)
            operands, arguments = [q, k, v, d_out, lse, offset], ["q", "k", "v", "d_out", "lse", "offset"]
            w.line("float *const offset = (float *)gpu->cudnn_workspace;")
            kernels.launch_nest(w, op, offset_nest(d_out.tensor), [d_out, out], ["d_out", "out", "offset"], lse.tensor)
            queries, keys = [*arguments, "d_q"], [*arguments, "d_k", "d_v"]
            kernels.launch_call(w, op, own.BACKWARD_QUERIES, operands, types[:1], queries, **own_attrs)
            kernels.launch_call(w, op, own.BACKWARD_KEYS, operands, types[1:], keys, **own_attrs)


def offset_nest(type: TensorType) -> Nest:
    """The loops of the sums of d_out * out over the values' axis, in f32; `type` is that of both."""
    *lead, depth = map(bound, type.shape)
    rows = prod(lead)
    row, column = Axis("row", rows), Axis("column", depth)
    d_out, out = (ArrayRef(name, type.dtype, rows * depth, "input") for name in ("d_out", "out"))
    offset = ArrayRef("offset", f32, rows, "output")
    at = Affine.of(row, depth) + Affine.of(column)
    body: list[Statement] = []
    factors = []
    for array in (d_out, out):
        element = Local(array.name, array.dtype)
        casts, factor = cast_to(element, f32)
        body += [Load(element, array, at), *casts]
        factors.append(factor)
    total = Reduction(Local("total", f32), prims.SUM)
    body.append(Accumulate(total, computed(body, prims.MULTIPLY, *factors)))
    sums = Loop(column, tuple(body), (total,))
    whole = Loop(row, (sums, Store(offset, Affine.of(row), total.target)))
    return Nest("attention_offset", (d_out, out), (offset,), (), (whole,), rows)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNED) * _ALIGNED


def _write_list(w: Writer, head: str, items: Sequence[str]) -> None:
    """An array of items, broken where it is long."""
    lines = [f"{head} = {{{items[0]}"]
    for item in items[1:]:
        if len(lines[-1]) + len(item) + 10 > 116:
            lines[-1] += ","
            lines.append(f"    {item}")
        else:
            lines[-1] += f", {item}"
    for line in (*lines[:-1], f"{lines[-1]}}};"):
        w.line(line)


def emit_forward(op: Op, name: str, site: int, kernels: KernelsInstead) -> LibraryCall:
    """An attention."""
    call = _Call(op, site)

    def body(w: Writer) -> None:
        call.write_kernels(w, kernels)
        call.write(w, {"Q": "q", "K": "k", "V": "v", "OUT": "out", "LSE": "lse"})

    made = whole_call(op, name, ["q", "k", "v"], ["out", "lse"], [str(call)], body, call.parts())
    return replace(made, kernels=kernels.taken())


def emit_backward(op: Op, name: str, site: int, kernels: KernelsInstead) -> LibraryCall:
    """Its gradients."""
    call = _Call(op, site)
    order = "with one order of sums" if call.is_ordered else "with sums in any order"

    def body(w: Writer) -> None:
        call.write_kernels(w, kernels)
        arrays = {"Q": "q", "K": "k", "V": "v", "D_OUT": "d_out", "OUT": "out", "LSE": "lse"}
        call.write(w, {**arrays, "D_Q": "d_q", "D_K": "d_k", "D_V": "d_v"})

    operands = ["q", "k", "v", "d_out", "out", "lse"]
    comments = [f"gradients of {call}", order]
    made = whole_call(op, name, operands, ["d_q", "d_k", "d_v"], comments, body, call.parts())
    return replace(made, kernels=kernels.taken())


EMITTERS: Mapping[str, Callable[[Op, str, int, KernelsInstead], LibraryCall]] = {
    FORWARD: emit_forward,
    BACKWARD: emit_backward,
}
