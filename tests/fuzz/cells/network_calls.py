"""Calls of functions of networks: softmax, norms, convolution, pooling, recurrent layers, losses."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import Draw, NotACell


def _along(name: str) -> Call:
    return lambda d: (
        f"st.{name}({d.new(shape := d.shape(ranks=(1, 2, 3)), values='small')}"
        f"{d.axis(len(shape), several=False, none=False) if d.likely(60) else ''})"
    )


for _name in ("softmax", "log_softmax"):
    CALLS[_name] = _along(_name)
CALLS["logsumexp"] = lambda d: (
    f"st.logsumexp({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}"
    f"{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)})"
)
CALLS["normalize"] = lambda d: (
    f"st.normalize({d.new(shape := d.shape(ranks=(1, 2)), values='nonzero')}"
    f"{d.axis(len(shape), several=False, none=False)}{d.keyword('eps', 1e-12, 1e-3)})"
)
CALLS["norm"] = lambda d: (
    f"st.norm({d.new(shape := d.shape(ranks=(0, 1, 2)), values='finite' if d.is_float else 'small')}"
    f"{d.axis(len(shape))}{d.keyword('keepdims', True, percent=30)}"
    f"{d.keyword('ord', 1, 2, 3, 0, 0.5, 'np.inf', '-np.inf')})"
)


def _few(d: Draw, rank: int) -> tuple[int, ...]:
    """A shape for what is costly: a block is one of some hundred elements."""
    if d.kind == "block" and rank >= 3:
        return {3: (5, 8, 33), 4: (2, 4, 13, 12)}[rank]
    shape = d.shape(rank)
    return tuple(min(extent, 67) for extent in shape)


def _weights(d: Draw, count: tuple[int, ...], names: tuple[str, ...] = ("weight", "bias")) -> str:
    text = ""
    for name in names:
        if d.likely(90 if d.both else 50):
            d.keywords.add(name)
            text += f", {name}={d.new(count, values='nonzero')}"
    return text


@call("layer_norm")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    if shape[-1] == 1 and d.smooth:
        pass
    x = d.new(shape, values="small")
    count = d.chance.randint(1, len(shape))
    d.keywords.add("normalized_shape")
    given = shape[-count:]
    if count == 1 and d.likely(60):
        text = d.pick("", f", {given[0]}")
    else:
        text = f", {given!r}"
    return f"st.layer_norm({x}{text}{_weights(d, given if text else shape[-1:])}{d.keyword('eps', 1e-5, 0.1)})"


@call("rms_norm")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    x = d.new(shape, values="nonzero")
    given = shape[-d.chance.randint(1, len(shape)) :]
    text = d.pick("", f", normalized_shape={given!r}")
    return f"st.rms_norm({x}{text}{_weights(d, given if text else shape[-1:], ('weight',))}{d.keyword('eps', 1e-5, 0.1, None)})"


@call("batch_norm")
def _(d: Draw) -> str:
    shape = _few(d, d.pick(2, 3, 4))
    x = d.new(shape, values="small")
    mean, var = d.new(shape[1:2], values="small"), d.new(shape[1:2], values="positive")
    return f"st.batch_norm({x}, {mean}, {var}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


@call("batch_norm_training")
def _(d: Draw) -> str:
    shape = _few(d, d.pick(2, 3, 4))
    x = d.new(shape, values="nonzero")
    rest = d.keyword("eps", 1e-5, 0.1) + d.keyword("correction", 0, 1, percent=30)
    return f"st.batch_norm_training({x}{_weights(d, shape[1:2])}{rest})"


@call("group_norm")
def _(d: Draw) -> str:
    shape = _few(d, d.pick(2, 3, 4))
    groups = d.pick(*[g for g in (1, 2, 3, 4, shape[1]) if g and not shape[1] % g] or [1])
    return f"st.group_norm({d.new(shape, values='nonzero')}, {groups}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


@call("instance_norm")
def _(d: Draw) -> str:
    shape = _few(d, d.pick(3, 4))
    return f"st.instance_norm({d.new(shape, values='nonzero')}{_weights(d, shape[1:2])}{d.keyword('eps', 1e-5, 0.1)})"


# ---- convolution and pooling --------------------------------------------------------------------


def _image(d: Draw, groups: int, rank: int) -> tuple[int, ...]:
    """(N, C, H, W) or (N, C, L), with no batch where it is empty."""
    if d.kind == "scalar":
        raise NotACell
    sizes = {"empty": (5, 6), "one": (1, 1), "vector": (5, 15), "odd": (7, 9), "block": (13, 21)}[d.kind]
    batch = 0 if d.kind == "empty" else 1 if d.kind == "one" else d.pick(1, 2, 3)
    channels = groups if d.kind == "one" else groups * d.pick(1, 2)
    return (batch, channels, *sizes[-rank:])


@call("conv2d")
def _(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = _image(d, groups, 2)
    kernel = (1, 1) if d.kind == "one" else d.pick((3, 3), (1, 1), (2, 3), (3, 1))
    weight = (groups * d.pick(1, 2, 3), image[1] // groups, *kernel)
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "(1, 0)", "'valid'", "'same'", "(2, 1)")
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2, "(2, 1)")
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, 2, "(1, 2)", percent=30))
    return f"st.conv2d({x}, {w}{rest}, groups={groups})"


@call("conv1d")
def _(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = _image(d, groups, 1)
    weight = (groups * d.pick(1, 2), image[1] // groups, 1 if d.kind == "one" else d.pick(1, 2, 3))
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "'valid'", "'same'", 2)
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2)
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, 2, percent=30))
    return f"st.conv1d({x}, {w}{rest}, groups={groups})"


@call("conv_transpose2d")
def _(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    image = _image(d, groups, 2)
    image = (*image[:2], *(min(extent, 5) for extent in image[2:]))
    kernel = d.pick((3, 3), (1, 1), (2, 3))
    weight = (image[1], d.pick(1, 2), *kernel)
    x, w = d.new(image, values="small"), d.new(weight, values="small")
    rest = f", {d.new((weight[1] * groups,), values='small')}" if d.likely(40) else ""
    stride = d.pick(1, 2, "(2, 3)")
    d.keywords |= {"groups", "padding", "bias", "stride", "output_padding"}
    rest += f", stride={stride}" + (
        "" if kernel == (1, 1) else d.keyword("padding", 0, "(1, 0)" if kernel[0] > 2 else "(0, 1)")
    )
    rest += d.keyword("output_padding", 0, 1 if stride != 1 else 0, percent=30) + d.keyword(
        "dilation", 1, 2, percent=25
    )
    return f"st.conv_transpose2d({x}, {w}{rest}, groups={groups})"


def _pooled(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        image = _image(d, 1, rank)
        size = 1 if d.kind == "one" else d.pick(2, 3) if rank == 1 else d.pick(2, 3, "(2, 3)", "(3, 2)")
        rest = d.keyword("stride", 1, 2, 3)
        if size != 1:
            rest += d.keyword("padding", 0, 1)
        rest += d.keyword("ceil_mode", True, False)
        if name.startswith("avg"):
            rest += d.keyword("count_include_pad", True, False)
        if name == "avg_pool2d":
            rest += d.keyword("divisor_override", 1, 3, -2, percent=30)
        return f"st.{name}({d.new(image, values='small' if name.startswith('avg') else 'any')}, {size}{rest})"

    return text


for _name, _rank in (("max_pool2d", 2), ("avg_pool2d", 2), ("max_pool1d", 1), ("avg_pool1d", 1)):
    CALLS[_name] = _pooled(_name, _rank)
CALLS["adaptive_avg_pool2d"] = lambda d: (
    f"st.adaptive_avg_pool2d({d.new(_image(d, 1, 2), values='small')}, {d.pick(1, '(2, 3)', '(1, 2)', '(None, 2)')})"
)
CALLS["adaptive_max_pool2d"] = lambda d: (
    f"st.adaptive_max_pool2d({d.new(_image(d, 1, 2))}, {d.pick(1, '(2, 3)', '(1, 2)')})"
)

# ---- recurrent layers ---------------------------------------------------------------------------


def _recurrent(name: str, gates: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        t, n, i, h = {
            "empty": d.pick((3, 0, 2, 2), (0, 2, 3, 2)),
            "one": (1, 1, 1, 1),
            "vector": (3, 2, 7, 15),
            "odd": (3, 5, 3, 7),
            "block": (3, 4, 17, 19),
        }[d.kind]
        x = d.new((t, n, i), values="small")
        if d.likely(30):
            state = "None"
        elif name == "lstm":
            state = f"({d.new((n, h), values='small')}, {d.new((n, h), values='small')})"
        else:
            state = d.new((n, h), values="small")
        d.keywords |= {"state", "b_ih", "b_hh"}
        rest = f", {d.new((gates * h, i), values='unit')}, {d.new((gates * h, h), values='unit')}"
        if d.likely(60):
            rest += f", {d.new((gates * h,), values='unit')}, {d.new((gates * h,), values='unit')}"
        rest += d.keyword("reverse", True, False)
        if name == "rnn":
            rest += d.keyword("nonlinearity", repr("tanh"), repr("relu"))
        last = d.pick("[0]", "[1][0]", "[1][1]") if name == "lstm" else d.pick("[0]", "[1]")
        return f"st.{name}({x}, {state}{rest}){last}"

    return text


for _name, _gates in (("lstm", 4), ("gru", 3), ("rnn", 1)):
    CALLS[_name] = _recurrent(_name, _gates)

# ---- attention ----------------------------------------------------------------------------------


@call("scaled_dot_product_attention")
def _(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    heads, rows, cols, width, wide = {
        "empty": d.pick((2, 0, 3, 2, 2), (0, 2, 3, 2, 1), (2, 3, 0, 2, 2)),
        "one": (1, 1, 1, 1, 1),
        "vector": (2, 7, 15, 4, 3),
        "odd": (4, 5, 9, 3, 7),
        "block": (2, 17, 33, 16, 5),
    }[d.kind]
    groups = 2 if heads % 2 == 0 and heads and d.likely(20) else 1
    d.keywords |= {"attn_mask", "enable_gqa", "is_causal", "scale", "query"}
    k, v = ((heads // groups, cols, extent) for extent in (width, wide))
    text = f"{d.new((heads, rows, width), values='small')}, {d.new(k, values='small')}, {d.new(v, values='small')}"
    if d.likely(30):
        text += f", {d.new(d.pick((rows, cols), (heads, 1, cols), (rows, 1)), values='small')}"
    text += d.keyword("is_causal", True, percent=40) + d.keyword("scale", 0.5, 1.0)
    text += d.keyword("dropout_p", 0.0, 1.0, percent=30) + d.keyword("generator", None, percent=40)
    return f"st.scaled_dot_product_attention({text}{', enable_gqa=True' if groups == 2 else ''})"


@call("rotary")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(2, 3))
    x = d.new((*shape[:-1], 2 * min(shape[-1], 9)), values="small")
    d.keywords |= {"positions"}
    places = d.pick("", f", st.arange({shape[-2]}) * 3")
    return f"st.rotary({x}{places}{d.keyword('base', 100.0)}{d.keyword('interleaved', True)})"


@call("alibi")
def _(d: Draw) -> str:
    if d.dtype not in ("f32", "f64") or d.kind == "scalar":
        raise NotACell
    d.keywords |= {"heads", "queries", "keys"}
    x = d.new((heads := d.pick(1, 2, 3, 6), 4, 5), values="small")
    return f"{x} + st.alibi({heads}, 4, 5, dtype=st.{d.dtype})"


# ---- losses -------------------------------------------------------------------------------------


def _reduction(d: Draw) -> str:
    return d.keyword("reduction", repr("mean"), repr("sum"), repr("none"), percent=60)


def _paired(name: str, first: str, second: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        rest = _reduction(d)
        if name == "huber_loss":
            rest += d.keyword("delta", 0.5, 1.0, 2.0)
        if name == "smooth_l1_loss":
            rest += d.keyword("beta", 0.5, 1.0, 2.0)
        x, y = d.new(shape, values=first), d.new(shape, values=second)
        if name == "binary_cross_entropy_with_logits" and d.likely(40):
            d.keywords.add("pos_weight")
            rest += f", pos_weight={d.new(d.pick(shape, shape[-1:], ()), values='positive')}"
        return f"st.{name}({x}, {y}{rest})"

    return text


for _name, _first, _second in (
    ("mse_loss", "small", "small"),
    ("l1_loss", "small", "small"),
    ("huber_loss", "small", "small"),
    ("smooth_l1_loss", "small", "small"),
    ("binary_cross_entropy", "prob", "prob"),
    ("binary_cross_entropy_with_logits", "small", "prob"),
):
    CALLS[_name] = _paired(_name, _first, _second)


@call("kl_div")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    rest = d.keyword("reduction", *map(repr, ("mean", "sum", "none", "batchmean")))
    if d.likely(30):
        d.keywords.add("log_target")
        return f"st.kl_div({d.new(shape, values='small')}, {d.new(shape, values='small')}{rest}, log_target=True)"
    return f"st.kl_div({d.new(shape, values='small')}, {d.new(shape, values='prob')}{rest})"


def _of_classes(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(2)
        if d.kind == "block":
            shape = d.pick((33, 37), (1031, 3))
        elif d.kind == "empty":
            shape = (0, 3)
        rows, classes = shape
        rest, at = _reduction(d), 1
        if d.likely(40):
            d.keywords.add("axis")
            shape, at = d.pick((shape, 1), ((classes, rows), 0), ((rows, classes, 2), 1), ((rows, 2, classes), 2))
            rest += f", axis={d.pick(at, at - len(shape))}"
        x = d.new(shape, values="small")
        if d.likely(35):
            d.keywords.add("weight")
            rest += f", weight={d.new((classes,), values='positive')}"
        rest += d.keyword("ignore_index", 0, 1, -100, percent=35)
        if name == "cross_entropy":
            rest += d.keyword("label_smoothing", 0.0, 0.1, 1.0, percent=35)
        limit = min(classes, 100)
        labels = d.new((*shape[:at], *shape[at + 1 :]), d.pick("i64", "i32", "u8"), f"below {limit}")
        return f"st.{name}({x}, {labels}{rest})"

    return text


for _name in ("cross_entropy", "nll_loss"):
    CALLS[_name] = _of_classes(_name)


@call("ctc_loss")
def _(d: Draw) -> str:
    if d.kind in ("scalar",):
        raise NotACell
    t, n, c, s = {
        "empty": (4, 0, 3, 2),
        "one": (1, 1, 2, 1),
        "vector": (7, 2, 15, 3),
        "odd": (5, 3, 5, 2),
        "block": (9, 5, 33, 4),
    }[d.kind]
    x = d.new((t, n, c), values="unit")
    if d.likely(60):
        x = f"st.log_softmax({x})"
    blank = d.pick(0, c - 1)
    labels = d.new((n, s), d.pick("i64", "i32"), f"below {c - 1}")
    if blank == 0:
        labels = f"({labels} + 1)"
    steps = d.new((n,), "i64", f"below {t}")
    sizes = d.new((n,), "i64", f"below {s + 1}")
    rest = d.keyword("reduction", *map(repr, ("mean", "sum", "none"))) + d.keyword("zero_infinity", True, False)
    d.keywords.add("blank")
    return f"st.ctc_loss({x}, {labels}, {steps} + 1, {sizes}, blank={blank}{rest})"
