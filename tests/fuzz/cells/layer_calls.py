"""The layers of `st.nn`, made and called: with their own first values (seeded), or with parameters that are written."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import Draw, NotACell, Shape
from tests.fuzz.cells.network_calls import _few, _image
from tests.fuzz.cells.training_calls import dtype_of, seeded


def made(d: Draw, name: str, given: str, dtype: bool = True) -> None:
    """The layer, made before what is transformed."""
    seeded(d)
    arguments = ", ".join(part for part in (given, dtype_of(d) if dtype else "") if part)
    d.setup.append(f"layer = st.nn.{name}({arguments})")


def written(d: Draw, shape: Shape, name: str = "weight", percent: int = 35) -> None:
    """A parameter that is written where the layer is called."""
    if d.likely(90 if d.both else percent):
        d.lines.append(f"layer.{name}.value = {d.new(shape, values='nonzero')}")


# ---- without parameters -------------------------------------------------------------------------


def _activation(name: str, *options: str, ranks: tuple[int, ...] = (0, 1, 2)) -> Call:
    def text(d: Draw) -> str:
        x = d.new(d.shape(ranks=ranks), values="small")
        made(d, name, d.pick("", *options), dtype=False)
        return f"layer({x})"

    return text


for _name, _options, _ranks in (
    ("ReLU", (), (0, 1, 2)),
    ("Sigmoid", (), (0, 1, 2)),
    ("Tanh", (), (0, 1, 2)),
    ("SiLU", (), (0, 1, 2)),
    ("Softplus", (), (0, 1, 2)),
    ("Identity", ("3, unused=4",), (0, 1, 2)),
    ("GELU", ("'tanh'", "approximate='none'"), (0, 1, 2)),
    ("ELU", ("0.5", "alpha=2.0"), (0, 1, 2)),
    ("LeakyReLU", ("0.2", "negative_slope=0.0"), (0, 1, 2)),
    *((name, (), (0, 1, 2)) for name in ("ReLU6", "Hardsigmoid", "Hardswish", "Mish", "SELU")),
    *((name, (), (0, 1, 2)) for name in ("Softsign", "Tanhshrink", "LogSigmoid")),
    ("Hardtanh", ("-0.5, 0.25", "max_val=2.0"), (0, 1, 2)),
    ("Hardshrink", ("0.25", "lambd=1.0"), (0, 1, 2)),
    ("Softshrink", ("0.25", "lambd=1.0"), (0, 1, 2)),
    ("CELU", ("0.5", "alpha=2.0"), (0, 1, 2)),
    ("Softmin", ("0", "dim=-1"), (1, 2, 3)),
    ("Dropout", ("0.25", "p=0.0"), (0, 1, 2)),
    ("Softmax", ("0", "dim=-1"), (1, 2, 3)),
    ("LogSoftmax", ("0", "dim=-1"), (1, 2, 3)),
    ("Flatten", ("0", "0, 1"), (2, 3)),
):
    CALLS[f"nn.{_name}"] = _activation(_name, *_options, ranks=_ranks)


@call("nn.Threshold")
def _(d: Draw) -> str:
    x = d.new(d.shape(ranks=(0, 1, 2)), values="small")
    made(d, "Threshold", d.pick("0.25, -1.0", "0.5, value=2.0"), dtype=False)
    return f"layer({x})"


@call("nn.GLU")
def _(d: Draw) -> str:
    x = d.new((d.pick(1, 3), d.pick(2, 4)), values="small")
    made(d, "GLU", d.pick("", "1", "dim=-1"), dtype=False)
    return f"layer({x})"


def _pool(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        x = d.new(_image(d, 1, rank), values="small")
        if name.startswith("Adaptive"):
            made(d, name, d.pick("1", "(2, 3)", "(1, 2)"), dtype=False)
            return f"layer({x})"
        size = "1" if d.kind == "one" else d.pick("2", "3") if rank == 1 else d.pick("2", "(2, 3)")
        rest = d.pick("", ", 1", ", stride=2") + ("" if size == "1" else d.pick("", ", padding=1"))
        if name.startswith("Max"):
            rest += d.pick("", ", dilation=2")
        made(d, name, size + rest + d.pick("", ", ceil_mode=True"), dtype=False)
        return f"layer({x})"

    return text


for _name, _rank in (
    ("MaxPool1d", 1),
    ("MaxPool2d", 2),
    ("AvgPool1d", 1),
    ("AvgPool2d", 2),
    ("AdaptiveAvgPool2d", 2),
    ("AdaptiveMaxPool2d", 2),
):
    CALLS[f"nn.{_name}"] = _pool(_name, _rank)


def _loss(name: str, second: str, *options: str) -> Call:
    def text(d: Draw) -> str:
        reduction = d.pick("", "reduction='sum'", "reduction='none'")
        made(d, name, ", ".join(part for part in (reduction, d.pick("", *options)) if part), dtype=False)
        if second == "labels":
            shape = (0, 3) if d.kind == "empty" else (33, 5) if d.kind == "block" else d.shape(2)
            labels = d.new(shape[:1], "i64", f"below {max(shape[1], 1)}")
            d.main = ""
            return f"layer({d.new(shape, values='small')}, {labels})"
        shape = d.shape(ranks=(0, 1, 2))
        first = "prob" if name == "BCELoss" else "small"
        return f"layer({d.new(shape, values=first)}, {d.new(shape, values=second)})"

    return text


for _name, _second, _options in (
    ("MSELoss", "small", ()),
    ("L1Loss", "small", ()),
    ("HuberLoss", "small", ("delta=0.5",)),
    ("SmoothL1Loss", "small", ("beta=0.5",)),
    ("BCELoss", "prob", ()),
    ("BCEWithLogitsLoss", "prob", ()),
    ("KLDivLoss", "prob", ()),
    ("CrossEntropyLoss", "labels", ("label_smoothing=0.1", "ignore_index=0")),
    ("NLLLoss", "labels", ("ignore_index=0",)),
):
    CALLS[f"nn.{_name}"] = _loss(_name, _second, *_options)


@call("nn.CTCLoss")
def _(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    t, n, c, s = {"empty": (4, 0, 3, 2), "one": (1, 1, 2, 1), "odd": (5, 3, 5, 2)}.get(d.kind, (6, 2, 7, 3))
    x = d.new((t, n, c), values="unit")
    made(d, "CTCLoss", d.pick("", "reduction='sum'", "zero_infinity=True"), dtype=False)
    labels, steps = d.new((n, s), "i64", f"below {c - 1}"), d.new((n,), "i64", f"below {t}")
    sizes = d.new((n,), "i64", f"below {s + 1}")
    return f"layer(st.log_softmax({x}), {labels} + 1, {steps} + 1, {sizes})"


# ---- with parameters ----------------------------------------------------------------------------


@call("nn.Linear")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    width = min(shape[-1], 67)
    shape = (*shape[:-1], width)
    out = d.pick(1, 3, 5, 0)
    x = d.new(shape, values="small")
    bias = d.pick("", ", bias=False")
    made(d, "Linear", f"{width}, {out}{bias}")
    written(d, (out, width))
    if not bias:
        written(d, (out,), "bias")
    return f"layer({x})"


@call("nn.Embedding")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x = d.new(shape, "i64" if d.is_float else d.dtype, "below 4")
    width = d.pick(1, 3, 16)
    seeded(d)
    d.setup.append(f"layer = st.nn.Embedding(4, {width}{', ' + dtype_of(d) if d.is_float else ''})")
    if d.is_float:
        written(d, (4, width), percent=80 if d.smooth else 30)
    return f"layer({x})"


@call("nn.EmbeddingBag")
def _(d: Draw) -> str:
    x = d.new((d.pick(1, 3), d.pick(1, 4)), "i64" if d.is_float else d.dtype, "below 4")
    width, mode = d.pick(1, 3, 16), d.pick("sum", "mean", "max")
    seeded(d)
    padding = d.pick("", ", padding_idx=2", ", include_last_offset=True")
    d.setup.append(f"layer = st.nn.EmbeddingBag(4, {width}, mode={mode!r}{padding}{', ' + dtype_of(d) if d.is_float else ''})")
    if d.is_float:
        written(d, (4, width), percent=80 if d.smooth else 30)
    return f"layer({x})"


def _convolution(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        groups = d.pick(1, 1, 2)
        image = _image(d, groups, rank)
        if name == "ConvTranspose2d":
            image = (*image[:2], *(min(extent, 5) for extent in image[2:]))
        x = d.new(image, values="small")
        out = groups * d.pick(1, 2)
        kernel = 1 if d.kind == "one" else d.pick(1, 2, 3)
        rest = d.pick("", ", stride=2", ", bias=False") + ("" if kernel == 1 else d.pick("", ", padding=1"))
        made(d, name, f"{image[1]}, {out}, {kernel}{rest}, groups={groups}")
        sizes = (image[1], out // groups) if name == "ConvTranspose2d" else (out, image[1] // groups)
        written(d, (*sizes, *(kernel,) * rank))
        return f"layer({x})"

    return text


for _name, _rank in (("Conv1d", 1), ("Conv2d", 2), ("ConvTranspose2d", 2)):
    CALLS[f"nn.{_name}"] = _convolution(_name, _rank)


def _norm(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2, 3))
        x = d.new(shape, values="nonzero")
        count = d.chance.randint(1, len(shape))
        given = shape[-count:]
        made(d, name, f"{given[0] if count == 1 else given!r}{d.pick('', ', eps=0.1', ', 0.1')}")
        written(d, given)
        return f"layer({x})"

    return text


for _name in ("LayerNorm", "RMSNorm"):
    CALLS[f"nn.{_name}"] = _norm(_name)


def _channel_norm(name: str, ranks: tuple[int, ...]) -> Call:
    def text(d: Draw) -> str:
        rank = d.pick(*ranks)
        shape = _few(d, min(rank, 4))
        shape = (*shape, *(2,) * (rank - len(shape)))
        channels = shape[1]
        groups = f"{d.pick(*[g for g in (1, 2, 3, channels) if g and not channels % g] or [1])}, " if name == "GroupNorm" else ""
        has_weight = not name.startswith("Instance") or d.likely(50)
        options = ", affine=True" if name.startswith("Instance") and has_weight else d.pick("", ", eps=0.1")
        if name.startswith("Batch"):
            options += d.pick("", ", momentum=None", ", momentum=0.5", ", track_running_stats=False")
        x = d.new(shape, values="nonzero")
        made(d, name, f"{groups}{channels}{options}")
        if has_weight:
            written(d, (channels,))
            written(d, (channels,), "bias")
        if not name.startswith("Batch") or "track" in options:
            return f"layer({x})"
        if d.likely(30):
            d.setup.append("layer.eval()")
        if d.smooth or d.likely(50):
            return f"layer({x})"
        return f"(layer({x}), layer.running_mean.value, layer.running_var.value)"

    return text


for _name, _ranks in (
    ("GroupNorm", (2, 3, 4)),
    ("BatchNorm1d", (2, 3)),
    ("BatchNorm2d", (4,)),
    ("BatchNorm3d", (5,)),
    ("InstanceNorm1d", (3,)),
    ("InstanceNorm2d", (4,)),
    ("InstanceNorm3d", (5,)),
):
    CALLS[f"nn.{_name}"] = _channel_norm(_name, _ranks)


# ---- recurrent layers ---------------------------------------------------------------------------


def _recurrent(name: str, gates: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        t, n, i, h = {"empty": (3, 0, 2, 2), "one": (1, 1, 1, 1), "odd": (3, 5, 3, 7)}.get(d.kind, (3, 2, 7, 15))
        layers, both = d.pick((1, False), (2, False), (1, True))
        rest = d.pick("", ", bias=False") + ("" if layers == 1 else ", num_layers=2") + (", bidirectional=True" if both else "")
        if name == "RNN":
            rest += d.pick("", ", nonlinearity='relu'")
        shape = d.pick((t, n, i), (t, n, i), (t, i))
        first = len(shape) == 3 and d.likely(30)
        if first:
            shape, rest = (n, t, i), rest + ", batch_first=True"
        made(d, name, f"{i}, {h}{rest}")
        x = d.new(shape, values="small")
        state = (layers * (2 if both else 1), *((n,) if len(shape) == 3 else ()), h)
        written(d, (gates * h, h), "weight_hh_l0")
        return f"layer({', '.join([x, *_states(d, name, state)])}){d.pick(*_ends(name))}"

    return text


def _states(d: Draw, name: str, shape: Shape) -> list[str]:
    """Its first value, where one is given."""
    if d.likely(50):
        return []
    if name.startswith("LSTM"):
        return [f"({d.new(shape, values='small')}, {d.new(shape, values='small')})"]
    return [d.new(shape, values="small")]


def _ends(name: str) -> tuple[str, ...]:
    return ("[0]", "[1][0]", "[1][1]") if name == "LSTM" else ("[0]", "[1]")


def _cell(name: str, gates: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        n, i, h = {"empty": (0, 2, 2), "one": (1, 1, 1), "odd": (5, 3, 7)}.get(d.kind, (2, 7, 15))
        shape = (n, i) if d.likely(70) else (i,)
        made(d, name, f"{i}, {h}{d.pick('', ', bias=False')}")
        written(d, (gates * h, i), "weight_ih")
        x = d.new(shape, values="small")
        d.main = x
        called = f"layer({', '.join([x, *_states(d, name, (*shape[:-1], h))])})"
        return called + (d.pick("[0]", "[1]") if name == "LSTMCell" else "")

    return text


for _name, _gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
    CALLS[f"nn.{_name}"] = _recurrent(_name, _gates)
    CALLS[f"nn.{_name}Cell"] = _cell(f"{_name}Cell", _gates)


# ---- attention ----------------------------------------------------------------------------------


def _sequences(d: Draw) -> tuple[int, int, int, int]:
    """The lengths of two sequences, the batch and the features, which two heads share."""
    if d.kind == "scalar":
        raise NotACell
    return {"empty": (3, 4, 0, 4), "one": (1, 1, 1, 4), "odd": (3, 5, 3, 6)}.get(d.kind, (3, 5, 2, 8))


@call("nn.MultiheadAttention")
def _(d: Draw) -> str:
    rows, cols, n, e = _sequences(d)
    made(d, "MultiheadAttention", f"{e}, 2{d.pick('', ', bias=False')}")
    written(d, (3 * e, e), "in_proj_weight")
    x = d.new((rows, n, e), values="small")
    if d.likely(40):
        return f"layer({x}, {x}, {x}){d.pick('[0]', '[1]')}"
    other = d.new((cols, n, e), values="small")
    return f"layer({x}, {other}, {other}, None, {d.pick('True)[1]', 'True)[0]', 'False)[0]')}"


def _transformer(name: str) -> Call:
    def text(d: Draw) -> str:
        rows, cols, n, e = _sequences(d)
        first = d.pick("", ", norm_first=True")
        common = f"{e}, 2{', 1, 1' if name == 'Transformer' else ''}, 5, 0.0, 'gelu'{first}, {dtype_of(d)}"
        seeded(d)
        if name.endswith("coder"):
            d.setup.append(f"layer = st.nn.{name}(st.nn.{name}Layer({common}), 2)")
        else:
            d.setup.append(f"layer = st.nn.{name}({common})")
        x = d.new((rows, n, e), values="small")
        return f"layer({x})" if "Encoder" in name else f"layer({x}, {d.new((cols, n, e), values='small')})"

    return text


for _name in ("EncoderLayer", "Encoder", "DecoderLayer", "Decoder", ""):
    CALLS[f"nn.Transformer{_name}"] = _transformer(f"Transformer{_name}")


# ---- containers ---------------------------------------------------------------------------------


def _container(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(1, 2))
        width = min(shape[-1], 67)
        x = d.new((*shape[:-1], width), values="small")
        linear = f"st.nn.Linear({width}, 3, {dtype_of(d)})"
        act = d.pick("st.nn.Tanh()", "st.nn.ReLU()", "st.nn.GELU()")
        seeded(d)
        if name == "Sequential":
            rest = d.pick("", f", st.nn.LayerNorm(3, {dtype_of(d)})", f", st.nn.Linear(3, 2, {dtype_of(d)})")
            d.setup.append(f"layer = st.nn.Sequential({linear}, {act}{rest})")
            return f"layer({x})"
        if name == "ModuleList":
            d.setup.append(f"layer = st.nn.ModuleList([{linear}, {act}])")
            return f"layer[1](layer[0]({x}))"
        d.setup.append(f"layer = st.nn.ModuleDict({{'one': {linear}, 'two': {act}}})")
        return f"layer['two'](layer['one']({x}))"

    return text


for _name in ("Sequential", "ModuleList", "ModuleDict"):
    CALLS[f"nn.{_name}"] = _container(_name)
