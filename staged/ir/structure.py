"""The structured ops (all ops that are not primitives), each declared once.

    FOR = structured("for", operands="start: index, stop: index, step: index, *initial", ...)

A declaration lists the operands, blocks, results, attributes and effects of an op. The verifier checks every op against
it, and `docs/structured_ops.md` is generated from it. Its properties (`is_loop`, `is_opaque`, ...; see
`ir/declaration.py`) are queried by passes and back ends. The parts of an op are read through the views of
`ir/views.py`.
"""

from __future__ import annotations

from staged.ir.nodes import Label, VariableRef
from staged.ir.signature import ANYTHING, structured, yield_elsewhere, yield_outputs
from staged.ir.sizes import Size
from staged.ir.types import Device

# ---- control flow -------------------------------------------------------------------------------

IF = structured(
    "if",
    operands="condition: condition",
    blocks=["then()", "else()"],
    results="*yielded",
    is_control=True,
    is_carrier=True,
    doc="One of two blocks, by a bool. A branch may leave by another end instead of yielding.",
)
FOR = structured(
    "for",
    operands="start: index, stop: index, step: index, *initial",
    blocks=["body(index: index, *carried)"],
    results="*carried_or_collected",
    attributes={"label": Label, "collected?": int, "by_index?": bool, "layer?": tuple},
    yields=yield_elsewhere,
    is_control=True,
    is_loop=True,
    is_carrier=True,
    doc="Iterations `start, start + step, ...` before `stop`. The body yields the next carried values, then one "
    "element for each of the `collected` sequences, which are the last results. `by_index`: an element is collected "
    "at the index of its iteration; the loop then has each index of the sequences once. `layer`: of a loop over "
    "layers, the name of the list that they are in, or an empty one, and the number of the first, for errors.",
)
WHILE = structured(
    "while",
    operands="*initial",
    blocks=["condition(*carried)", "body(*carried)"],
    results="*carried_or_collected",
    attributes={"label": Label, "collected?": int, "bound?": int},
    yields=yield_elsewhere,
    is_control=True,
    is_loop=True,
    is_carrier=True,
    doc="Iterations as long as the condition holds, at most `bound` of them. Its body yields as that of a `for` does.",
)
SCOPE = structured(
    "scope",
    blocks=["body()"],
    results="*left_with",
    attributes={"label": Label},
    is_control=True,
    is_carrier=True,
    doc="A block that can be left from inside: its results are what the body yields, or what a `break` to its "
    "label passes.",
)

# ---- functions of the program ---------------------------------------------------------------------

CALL = structured(
    "call",
    operands="*arguments",
    results="*returned",
    attributes={"function": str, "in_place?": tuple, "devices?": tuple},
    effects="read write io fail comm",
    is_carrier=True,
    doc="A call of the program's function of this name; functions call each other and themselves. `in_place` "
    "lists pairs (argument, result) that are one buffer for caller and callee, `devices` says where each "
    "result is.",
)
CALL_BEGIN = structured(
    "call_begin",
    attributes={"function": str, "call": int},
    doc="Opens the ops recorded inline for a call. `outline_functions` may turn the range into a function. `call` "
    "matches the `call_end`.",
)
CALL_END = structured(
    "call_end", attributes={"call": int, "names": tuple}, doc="Closes the range; `names` are those of the parameters."
)

# ---- transforms, and derivatives that are given -----------------------------------------------------

VJP = structured(
    "vjp",
    operands="*captures_then_cotangents",
    blocks=["primal(*captures)"],
    results="*primal_results_then_cotangents",
    attributes={"wrt": tuple, "outputs": int, "of": tuple},
    effects="read write io fail comm",
    yields=yield_outputs,
    is_transform=True,
    is_closed=True,
    doc="The block's `outputs` results, then one cotangent for each capture in `wrt`. The last operands are the "
    "cotangents of the results in `of`.",
)
JVP = structured(
    "jvp",
    operands="*captures_then_tangents",
    blocks=["primal(*captures)"],
    results="*primal_results_then_tangents",
    attributes={"wrt": tuple, "outputs": int},
    effects="read write io fail comm",
    yields=yield_outputs,
    is_transform=True,
    is_closed=True,
    doc="The block's `outputs` results, then one tangent for each float one. The last operands are the tangents "
    "of the captures in `wrt`.",
)
VMAP = structured(
    "vmap",
    operands="*captures",
    blocks=["element(*captures)"],
    results="*batched",
    attributes={"mapped": tuple, "size": (int, Size), "outputs": int, "whole": tuple},
    effects="read write io fail comm",
    yields=yield_elsewhere,
    is_transform=True,
    is_closed=True,
    doc="The block for each of `size` elements of the captures that are `mapped` (the others are whole in each); "
    "results have a leading axis, and those in `whole` may depend on no element.",
)
CHECKPOINT = structured(
    "checkpoint",
    operands="*captures",
    blocks=["body(*captures)"],
    results="*yielded",
    attributes={"again?": bool},
    effects="read write io fail comm",
    is_transform=True,
    is_closed=True,
    doc="The block, of which the reverse keeps nothing: it is recomputed there, by a `checkpoint` marked `again`.",
)
CUSTOM_VJP = structured(
    "custom_vjp",
    operands="*captures",
    blocks=["primal(*captures)", "forward(*captures)", "backward(*residuals_then_cotangents)"],
    results="*yielded",
    attributes={"name": str, "outputs": int, "wrt": tuple},
    effects="read write io fail comm",
    yields=yield_elsewhere,
    is_transform=True,
    is_closed=True,
    doc="The primal, with a reverse of the user's: `forward` yields the `outputs` results and residuals, "
    "`backward` one cotangent for each capture in `wrt`.",
)
COMPOSITE = structured(
    "composite",
    operands="*operands",
    blocks=["body(*operands)"],
    results="*yielded",
    attributes={"name": str} | ANYTHING,
    effects="fail",
    is_closed=True,
    is_opaque=True,
    doc="A function over primitives with a name and perhaps a derivative of its own (`ops/composite.py`), and its "
    "static arguments.",
)

# ---- frames, sequences, absent values ---------------------------------------------------------------

FRAME_SAVE = structured(
    "frame_save",
    operands="*fields",
    results="frame: frame",
    is_carrier=True,
    is_of_frames=True,
    doc="What a call in differentiated code leaves for its reverse. Frames live as long as anything may read "
    "them: a back end gives their memory back where an iteration, or a call, passes none of them on.",
)
FRAME_LOAD = structured(
    "frame_load",
    operands="frame: frame",
    results="*fields",
    attributes={"devices?": tuple},
    is_carrier=True,
    is_of_frames=True,
    doc="The fields of a frame; `devices` says where each is.",
)
FRAME_NULL = structured(
    "frame_null",
    results="frame: frame",
    is_carrier=True,
    is_of_frames=True,
    doc="The frame of a call that did not happen.",
)
SEQUENCE_EMPTY = structured(
    "sequence_empty",
    results="sequence: sequence",
    is_carrier=True,
    is_of_sequences=True,
    doc="A sequence of no elements.",
)
SEQUENCE_ZEROS = structured(
    "sequence_zeros",
    operands="like: sequence",
    results="sequence: sequence",
    is_carrier=True,
    is_of_sequences=True,
    doc="As many elements as `like` has, all of them zeros.",
)
SEQUENCE_GET = structured(
    "sequence_get",
    operands="sequence: sequence, index: index",
    results="element",
    named_after_operand=True,
    is_carrier=True,
    is_of_sequences=True,
    doc="One element.",
)
SEQUENCE_ADD = structured(
    "sequence_add",
    operands="sequence: sequence, index: index, term",
    results="sequence: sequence",
    is_carrier=True,
    is_of_sequences=True,
    doc="The sequence with `term` added to one element.",
)
SEQUENCE_SUM = structured(
    "sequence_sum",
    operands="sequence: sequence, other: sequence",
    results="sequence: sequence",
    is_carrier=True,
    is_of_sequences=True,
    doc="Two sequences of one length, added element by element.",
)
ABSENT = structured(
    "absent",
    results="value",
    harmless=True,
    doc="An array that a branch does not have, because only the reverse of the other branch reads it: passed on, "
    "never computed with.",
)

# ---- Variables, the world outside -------------------------------------------------------------------

VARIABLE_READ = structured(
    "variable_read",
    operands="*index",
    results="value",
    attributes={"variable": VariableRef, "note?": str},
    effects="read",
    doc="The value that a Variable has now, or that the member `index` of a family has; without an index, a family "
    "gives the sequence of all of them. `note` is a comment for the generated program.",
)
VARIABLE_WRITE = structured(
    "variable_write",
    operands="value: tensor, *index",
    attributes={"variable": VariableRef},
    effects="write",
    doc="A Variable's new value, or that of the member `index` of a family.",
)
COMPARE_RANKS = structured(
    "compare_ranks",
    attributes={"program": int, "vector_bytes": int, "place": str},
    effects="comm fail",
    doc="Stops the first call if a rank runs another program, whose digest differs from `program`, or has vectors of "
    "another width. `place` is the Python line of the program.",
)
PRINT = structured(
    "print",
    operands="*values",
    attributes={"parts": tuple, "end": str, "file": str, "by?": str},
    effects="io fail",
    doc="Text: `parts` are texts and places of operands with their formats. To a `file`, the last operand is its "
    'number. In a program of several ranks, `by` is "first" if rank 0 prints, or "each".',
)
ASSERT = structured(
    "assert",
    operands="condition: condition, *values",
    attributes={"parts": tuple, "kind": str},
    effects="fail",
    doc="Stops the program where the condition does not hold, with an error of this `kind` and a message of `parts`.",
)
RAISE = structured(
    "raise",
    operands="*values",
    attributes={"parts": tuple, "kind": str},
    effects="fail",
    doc="Says why the program stops at the `raise` that ends the block.",
)
CLOCK = structured(
    "clock", results="time: tensor", attributes={"clock": str}, effects="io", doc="The time on one of Python's clocks."
)
FILE_OPEN = structured(
    "file_open",
    operands="*values",
    results="file: index",
    attributes={"parts": tuple, "mode": str, "by?": str},
    effects="io fail",
    doc="Opens the file whose path is the text of `parts`; the result is its number. `by` as for `print`.",
)
FILE_CLOSE = structured(
    "file_close",
    operands="file: index",
    attributes={"by?": str},
    effects="io fail",
    doc="Closes it; once more does nothing. `by` as for `print`.",
)
CALLBACK = structured(
    "callback",
    operands="*arguments",
    results="*returned",
    attributes={"number": int, "python": object},
    effects="io fail",
    doc="Calls a function of Python's (`python`: see `staged/call/callbacks.py`), which the text knows by `number`. "
    "A derivative through it is refused.",
)
MOST_SAVED_AXES = 32
"""Axes of an array that `SAVE` writes: generated C has memory for this number of sizes."""
SAVED_DTYPES = "BOOL U8 I8 I16 U16 F16 BF16 I32 U32 F32 C64 F64 I64 U64".split()
"""The names of dtypes in the safetensors format. Its library writes the last one first."""
SAVED_TREE = "staged.tree"
"""The key of the metadata under which a file has its tree."""
SAVE = structured(
    "save",
    operands="*values_then_arrays",
    attributes={"parts": tuple, "arrays": tuple, "tree": str, "by?": str, "pieces?": tuple},
    effects="io fail",
    doc="Writes a safetensors file whose path is the text of `parts`: the last operands, each with its name and the "
    "format's word for its dtype in `arrays`. `tree` is JSON, and empty for a plain dict of arrays. `by` as for "
    "`print`. `pieces` are (number, shape of the whole) for each array of which a rank has its piece.",
)
PROGRESS_START = structured(
    "progress_start",
    operands="total: index, *values",
    attributes={"id": int, "parts": tuple},
    effects="io",
    doc="A progress bar appears, with this label; a total below 0 is unknown.",
)
PROGRESS_UPDATE = structured(
    "progress_update",
    operands="done: index, *values",
    attributes={"id": int, "parts": tuple},
    effects="io",
    doc="One iteration is done; `parts` are the values displayed.",
)
PROGRESS_END = structured(
    "progress_end",
    attributes={"id": int, "leave": bool},
    effects="io",
    doc="The bar ends; what it says is left where `leave`.",
)

# ---- what passes make -------------------------------------------------------------------------------

REDUCE_START = structured(
    "reduce_start",
    operands="*arrays",
    results="message: index, *sent",
    attributes={"by": str},
    effects="comm",
    doc="Starts a reduction over ranks, by `by`. The arrays belong to MPI until the `reduce_wait` of the message.",
)
REDUCE_WAIT = structured(
    "reduce_wait",
    operands="message: index, *sent",
    results="*reduced",
    effects="comm",
    doc="Waits until the reduction is complete.",
)

COPY = structured(
    "copy",
    named_after_operand=True,
    operands="value: tensor",
    results="value: tensor",
    attributes={"source": Device, "what": str, "why": str},
    doc="A value of the device `source`, on the op's device. `what` and `why` are shown to users only.",
)
KERNEL = structured(
    "kernel",
    operands="*inputs",
    blocks=["body(*inputs)"],
    results="*yielded",
    attributes={"name": str, "fused": str} | ANYTHING,
    effects="fail",
    is_closed=True,
    is_opaque=True,
    doc="Ops that share loops, with their loop nest and its schedule (`kernels/`).",
)
CONTRACTION = structured(
    "contraction",
    operands="left: tensor, right: tensor, *others",
    blocks=["epilogue(product: tensor, *others)"],
    results="*yielded",
    attributes={"kind": str, "name": str, "fused": str} | ANYTHING,
    effects="fail",
    is_closed=True,
    is_opaque=True,
    doc="A product or a convolution, the primitive called `kind`, with the ops that are computed as its elements "
    "are stored.",
)
LIBRARY = structured(
    "library",
    operands="*arrays",
    results="*made",
    attributes={"call": str} | ANYTHING,
    effects="fail",
    is_opaque=True,
    doc="A `call` of a back end's library; only that back end makes such ops.",
)
