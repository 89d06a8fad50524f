"""The graphs that programs ask cuDNN for: read from a program's text, from cuDNN's answers, and put into a program of the same graphs.

The names of a program's plans contain all sizes (`attention_f16_2x4x16x32_4x16x4x32_causal`), so a program's text lists its
questions. A program that is made for questions is staged as any other, and the answers to it are compared with the questions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import staged as st
from staged import GPU, with_backend
from staged.base.artifact import Artifact

Shape = tuple[int, ...]
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
FORWARD, ORDERED, UNORDERED = "forward", "gradient in one order", "gradient in any order"
ROUTINES = ("forward", "backward data", "backward filter")


@dataclass(frozen=True, order=True)
class Attention:
    """q (batch, heads, rows, width), k (batch, k_heads, columns, width), v (batch, v_heads, columns, v_width)."""

    dtype: str
    q: Shape
    k: Shape
    v: Shape
    causal: bool
    graph: str
    """FORWARD, ORDERED or UNORDERED."""


@dataclass(frozen=True, order=True)
class Convolution:
    """A convolution of x (N, C, H, W) and w (O, C / groups, kH, kW), or one of its gradients."""

    dtype: str
    x: Shape
    w: Shape
    padding: Shape
    stride: Shape
    dilation: Shape
    groups: int
    routine: str
    """One of ROUTINES."""


Question = Attention | Convolution
_STAGING = threading.Lock()
"""Programs are staged by one thread at a time: the rest of the work is other processes'."""


def digest(question: Question) -> int:
    """A number that depends on the question alone."""
    return int.from_bytes(hashlib.sha256(repr(question).encode()).digest()[:4], "big")


def to_json(question: Question) -> dict[str, Any]:
    """The fields of a question, of which its class is one."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(question).items()}
    return {"kind": type(question).__name__.lower(), **fields}


def from_json(fields: dict[str, Any]) -> Question:
    """The question of these fields; others are left out."""
    kind = {"attention": Attention, "convolution": Convolution}[fields["kind"]]
    given = {field.name: fields[field.name] for field in dataclasses.fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


# ---- from a program's text ----------------------------------------------------------------------

_SIZES = r"\d+(?:x\d+)*"
_ATTENTION = re.compile(rf"GraphPlan (attention(?:_backward)?)_(b?f16)_({_SIZES})_({_SIZES})(_causal)?;")
_ORDER = re.compile(r"plan_attention_backward\(gpu, host, \d+, &sizes, (true|false),\s+&gpu->(\w+)\)")
_CONVOLUTION = re.compile(
    rf"(forward|backward_data|backward_filter)_({_SIZES})_({_SIZES})_(f32|f64)_padding({_SIZES})_stride({_SIZES})"
    rf"(?:_dilation({_SIZES}))?(?:_groups(\d+))?(?:_bytes|_with_bias_\w+)?;"
)
_PLANS = re.compile(
    r"^    (?:GraphPlan|cudnnConvolution\w+Algo_t) \w+;|^    (?:size_t|bool) forward_\w+_(?:bytes|with_bias_\w+);", re.MULTILINE
)


def questions_of(source: str) -> set[Question]:
    """The questions in a program's text. Raises ValueError if its plans have names of another form than here."""
    orders = {name: ordered == "true" for ordered, name in _ORDER.findall(source)}
    found: list[Question] = []
    for plan in _PLANS.findall(source):
        if attention := _ATTENTION.search(plan):
            kind, dtype, first, second, causal = attention.groups()
            batch, heads, rows, width = _sizes(first)
            k_heads, columns, v_heads, v_width = _sizes(second)
            name = plan.split()[-1].rstrip(";")
            graph = FORWARD if kind == "attention" else (ORDERED if orders[name] else UNORDERED)
            shapes = (batch, heads, rows, width), (batch, k_heads, columns, width), (batch, v_heads, columns, v_width)
            found.append(Attention(dtype, *shapes, bool(causal), graph))
        elif convolution := _CONVOLUTION.search(plan):
            routine, x, w, dtype, padding, stride, dilation, groups = convolution.groups()
            sizes = (_sizes(each) for each in (x, w, padding, stride, dilation or "1x1"))
            found.append(Convolution(dtype, *sizes, int(groups or 1), routine.replace("_", " ")))
        else:
            raise ValueError(f"a plan whose name does not tell its sizes: {plan.strip()}")
    return set(found)


def _sizes(words: str) -> Shape:
    return tuple(map(int, words.split("x")))


# ---- from an answer -----------------------------------------------------------------------------

Q, K, V, D_Q, D_Q_SUMS = "1", "2", "3", "7", "11"
"""The numbers that attention's graphs know these arrays by."""


def question_of(answer: dict[str, Any]) -> Question:
    """The question that the oracle's answer is to, by the descriptors that cuDNN got."""
    if answer["graph"] == "convolution":
        return from_json({**answer, "kind": "convolution"})
    arrays = answer["arrays"]
    q, k, v = (arrays[number][1] for number in (Q, K, V))
    is_forward = D_Q not in arrays
    # k is transposed in both, v in the gradient.
    k, v = (k[0], k[1], k[3], k[2]), tuple(v) if is_forward else (v[0], v[1], v[3], v[2])
    graph = FORWARD if is_forward else (UNORDERED if D_Q_SUMS in arrays else ORDERED)
    return Attention(arrays[Q][0], tuple(q), k, v, answer["causal"], graph)


# ---- into programs ------------------------------------------------------------------------------


def programs_of(questions: Iterable[Question]) -> list[Artifact]:
    """Programs that ask cuDNN these questions, and perhaps more: a gradient's program has the forward pass too."""
    every = sorted(set(questions), key=repr)
    ordered = [each for each in every if not (isinstance(each, Attention) and each.graph == UNORDERED)]
    unordered = [each for each in every if each not in ordered]
    return [_staged(group, deterministic) for group, deterministic in ((ordered, True), (unordered, False)) if group]


def _staged(questions: Sequence[Question], deterministic: bool) -> Artifact:
    """A program of all of them: each attention and each convolution once, with its gradients if a question is about one."""
    with_gradients: dict[Question, bool] = {}
    for each in questions:
        if isinstance(each, Attention):
            whole: Question = dataclasses.replace(each, graph=FORWARD)
            is_gradient = each.graph != FORWARD
        else:
            whole = dataclasses.replace(each, routine=ROUTINES[0])
            is_gradient = each.routine != ROUTINES[0]
        with_gradients[whole] = with_gradients.get(whole, False) or is_gradient
    arrays = [_arrays(each) for each in with_gradients]

    def asking(arrays: Any) -> Any:
        results = []
        with with_backend(GPU, arrays, deterministic=deterministic):
            for (question, differentiated), operands in zip(with_gradients.items(), arrays, strict=True):
                *primals, cotangent = operands
                if differentiated:
                    result, pull_back = st.vjp(_function_of(question), *primals)
                    results += [result, *pull_back(cotangent)]
                else:
                    results.append(_function_of(question)(*primals))
        return results

    with _STAGING:
        artifact: Artifact = st.function(target="portable")(asking).stage(arrays)._artifact
    return artifact


def _function_of(question: Question) -> Any:
    if isinstance(question, Attention):
        causal = question.causal
        return lambda q, k, v: st.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    c = question
    return lambda x, w: st.conv2d(x, w, stride=c.stride, padding=c.padding, dilation=c.dilation, groups=c.groups)


def _arrays(question: Question) -> list[np.ndarray[Any, Any]]:
    """Operands and a cotangent of the result."""
    dtype = DTYPES[question.dtype]
    if isinstance(question, Attention):
        result = (*question.q[:3], question.v[3])
        shapes = [question.q, question.k, question.v, result]
    else:
        shapes = [question.x, question.w, extents_of_result(question)]
    return [np.zeros(shape, dtype) for shape in shapes]


def extents_of_result(c: Convolution) -> Shape:
    """The extents of the convolution's result."""
    moved = [
        (x + 2 * padding - dilation * (w - 1) - 1) // stride + 1
        for x, w, padding, stride, dilation in zip(c.x[2:], c.w[2:], c.padding, c.stride, c.dilation, strict=True)
    ]
    return (c.x[0], c.w[0], *moved)
