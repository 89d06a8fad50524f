"""A scene of training: a random model, a random optimiser, a few steps of gradients by all parameters."""

from __future__ import annotations

import random
import textwrap

from tests.fuzz.cells.draw import Draw
from tests.fuzz.cells.piece import Piece
from tests.rows.draws import dtype_keyword, seeded
from tests.rows.optim import OPTIONS


def _model(d: Draw, inputs: int, outputs: int) -> str:
    """Layers one after the other, from (rows, inputs) to (rows, outputs)."""
    parts, width = [], inputs
    for _ in range(d.pick(0, 1, 2)):
        wider = d.pick(3, 5, 8)
        parts.append(f"st.nn.Linear({width}, {wider}{d.pick('', ', bias=False')}, {dtype_keyword(d)})")
        width = wider
        if d.likely(40):
            parts.append(
                d.pick(
                    f"st.nn.LayerNorm({width}, {dtype_keyword(d)})",
                    f"st.nn.BatchNorm1d({width}, {dtype_keyword(d)})",
                    f"st.nn.RMSNorm({width}, {dtype_keyword(d)})",
                )
            )
        parts.append(f"st.nn.{d.pick('Tanh()', 'ReLU()', 'GELU()', 'SiLU()', 'Dropout(0.3)', 'Sigmoid()')}")
    return ", ".join([*parts, f"st.nn.Linear({width}, {outputs}, {dtype_keyword(d)})"])


def training(chance: random.Random) -> Piece:
    """Steps of an optimiser along gradients by a model; the loss and all parameters come out."""
    d = Draw(chance, chance.choice(("f32", "f64")), "odd")
    rows, inputs, outputs = d.pick(3, 7), d.pick(2, 5), d.pick(2, 3)
    x = d.new((rows, inputs), values="unit")
    seeded(d)
    if d.likely(50):
        y, loss = d.new((rows,), "i64", f"below {outputs}"), "st.cross_entropy(model(x), y)"
    else:
        y, loss = d.new((rows, outputs), values="unit"), f"st.{d.pick('mse_loss', 'huber_loss')}(model(x), y)"
    name = chance.choice(sorted(OPTIONS))
    # A bias before a norm has the gradient 0 but for rounding, which a step of its size alone would make a step of 1.
    options = d.pick(*OPTIONS[name]) if name == "SGD" else ", eps=0.1"
    step = ["value, grads = st.value_and_grad(loss, wrt=model)(" + f"{x}, {y})"]
    if d.likely(25):
        step.append("grads, norm = st.optim.clip_grad_norm(grads, 0.5)")
    step += ["opt.step(grads)", "total = total + value"]
    schedule = []
    if d.likely(25):
        kind = d.pick("StepLR(opt, 1, 0.5)", "LinearLR(opt, 0.5, 1.0, 3)", "CosineAnnealingLR(opt, 4)", "ExponentialLR(opt, 0.9)")
        schedule = [f"schedule = st.optim.lr_scheduler.{kind}"]
        step.append("schedule.step()")
    if d.likely(25):  # the first layer, then the others
        loss = loss.replace("model(x)", "model[1:](model[:1](x))")
    body = [
        *d.setup,
        f"model = st.nn.Sequential({_model(d, inputs, outputs)})",
        f"opt = st.optim.{name}(model.parameters(){options})",
        *schedule,
        "def loss(x, y):",
        f"    return {loss}",
        f"total = st.zeros((), {dtype_keyword(d)})",
        f"for i in st.range({d.pick(1, 2, 3)}):",
        *(f"    {line}" for line in step),
        "return total, [p.value for p in model.parameters()]",
    ]
    text = f"def piece({', '.join(d.arrays)}):\n{textwrap.indent(chr(10).join(body), '    ')}\n"
    return Piece(text, d.arrays, label=f"training {d.dtype}", loose=True, read=False)
