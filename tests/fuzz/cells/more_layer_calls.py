"""The layers of `st.nn` that pad, fold, pool, resize and drop channels, and the losses with margins."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.cells.layer_calls import made, written
from tests.fuzz.cells.shape_calls import _rows, _signs, image
from tests.fuzz.cells.training_calls import dtype_of, seeded


def _of_image(name: str, rank: int, *options: str, values: str = "small", at_one: str | None = None) -> Call:
    """A layer without parameters on (N, C, ..)."""

    def text(d: Draw) -> str:
        x = d.new(image(d, 1, rank), values=values)
        made(d, name, d.pick(*options) if d.kind != "one" or at_one is None else at_one, dtype=False)
        return f"layer({x})"

    return text


for _rank in (1, 2, 3):
    for _kind in ("Constant", "Zero", "Replication", "Circular", "Reflection"):
        _more = ", 1.5" if _kind == "Constant" else ""
        _given = ("1", str((1, 0) * _rank)) if _kind in ("Reflection", "Circular") else ("1", "2", str((2, 1) * _rank))
        CALLS[f"nn.{_kind}Pad{_rank}d"] = _of_image(f"{_kind}Pad{_rank}d", _rank, *(each + _more for each in _given))
    for _name in (f"MaxPool{_rank}d", f"AvgPool{_rank}d"):
        CALLS[f"nn.{_name}"] = _of_image(_name, _rank, "2", "2, 1", "2, stride=2, padding=1, ceil_mode=True", at_one="1")
    for _name in (f"AdaptiveMaxPool{_rank}d", f"AdaptiveAvgPool{_rank}d"):
        CALLS[f"nn.{_name}"] = _of_image(_name, _rank, "1", str((2, 3, 1)[:_rank]))
    CALLS[f"nn.LPPool{_rank}d"] = _of_image(
        f"LPPool{_rank}d", _rank, "2, 2", "3.0, 2, 1", "1, 2, ceil_mode=True", values="positive", at_one="2, 1"
    )
for _name, _rank, *_options in (
    ("LocalResponseNorm", 2, "2", "3, 0.5, 0.5, 2.0"),
    ("Softmax2d", 2, ""),
    ("Unfold", 2, "1", "1, padding=1"),
    ("Upsample", 2, "scale_factor=2", "4", "(3, 5), mode='bilinear'"),
    ("UpsamplingNearest2d", 2, "scale_factor=2", "(3, 4)"),
    ("UpsamplingBilinear2d", 2, "scale_factor=2", "(3, 4)"),
    *((f"Dropout{rank}d", rank, "", "0.25", "p=0.0") for rank in (1, 2, 3)),
    ("AlphaDropout", 2, "", "0.25"),
    ("FeatureAlphaDropout", 2, "", "0.25"),
    ("RReLU", 2, "", "0.0, 0.5"),
):
    CALLS[f"nn.{_name}"] = _of_image(_name, _rank, *_options, values="nonzero" if _name == "RReLU" else "small")
for _rank in (2, 3):
    CALLS[f"nn.FractionalMaxPool{_rank}d"] = _of_image(
        f"FractionalMaxPool{_rank}d", _rank, "2, output_size=2", "2, output_ratio=0.7", at_one="1, 1"
    )


def _unpool(rank: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind in ("scalar", "empty"):
            raise NotACell
        x = d.new((2, 1, *(2,) * rank), values="small")
        places = d.new((2, 1, *(2,) * rank), "i64", "below 1")
        count = 2**rank
        d.arrays[places] = d.numbers.permutation(count * count)[: 2 * count].reshape(d.arrays[places].shape)
        made(d, f"MaxUnpool{rank}d", d.pick("2", "2, stride=2", "2, 2, 0"), dtype=False)
        return f"layer({x}, {places})"

    return text


for _rank in (1, 2, 3):
    CALLS[f"nn.MaxUnpool{_rank}d"] = _unpool(_rank)


def _shaped(name: str, given: str, *shape: int) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        x = d.new((0 if d.kind == "empty" else d.pick(1, 2), *shape))
        made(d, name, given, dtype=False)
        return f"layer({x})"

    return text


CALLS["nn.PixelShuffle"] = _shaped("PixelShuffle", "2", 8, 3, 2)
CALLS["nn.PixelUnshuffle"] = _shaped("PixelUnshuffle", "2", 2, 4, 6)
CALLS["nn.ChannelShuffle"] = _shaped("ChannelShuffle", "3", 6, 2, 2)
CALLS["nn.Unflatten"] = _shaped("Unflatten", "1, (2, 3)", 6, 2)
CALLS["nn.Fold"] = _shaped("Fold", "(4, 5), 2", 8, 12)


@call("nn.PReLU")
def _(d: Draw) -> str:
    shape = image(d)
    x, count = d.new(shape, values="nonzero"), d.pick(1, shape[1])
    made(d, "PReLU", f"{count}{d.pick('', ', 0.5')}")
    written(d, (count,))
    return f"layer({x})"


@call("nn.Bilinear")
def _(d: Draw) -> str:
    n = min(d.extent(), 67)
    a, b, bias = d.new((n, 3), values="small"), d.new((n, 2), values="small"), d.pick("", ", bias=False")
    made(d, "Bilinear", f"3, 2, 4{bias}")
    written(d, (4, 3, 2))
    return f"layer({a}, {b})"


def _convolution(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        groups = d.pick(1, 1, 2)
        shape = image(d, groups, rank)
        if "Transpose" in name:
            shape = (*shape[:2], *(min(extent, 4) for extent in shape[2:]))
        x, out = d.new(shape, values="small"), groups * d.pick(1, 2)
        kernel = 1 if d.kind == "one" else d.pick(1, 2)
        rest = d.pick("", ", stride=2", ", bias=False") + ("" if kernel == 1 else d.pick("", ", padding=1"))
        made(d, name, f"{shape[1]}, {out}, {kernel}{rest}, groups={groups}")
        sizes = (shape[1], out // groups) if "Transpose" in name else (out, shape[1] // groups)
        written(d, (*sizes, *(kernel,) * rank))
        return f"layer({x})"

    return text


for _name, _rank in (("Conv3d", 3), ("ConvTranspose1d", 1), ("ConvTranspose3d", 3)):
    CALLS[f"nn.{_name}"] = _convolution(_name, _rank)

# ---- distances and margins ----------------------------------------------------------------------


def _loss(name: str, count: int, target: str, *options: str) -> Call:
    """A loss, or a distance, of so many arrays of rows and a target."""

    def text(d: Draw) -> str:
        shape = _rows(d)
        arrays = [d.new(shape, values=("small", "positive", "nonzero")[number]) for number in range(count)]
        if target == "signs":
            arrays.append(_signs(d, shape))
        elif target == "row signs":
            arrays.append(_signs(d, shape[:1]))
        elif target == "labels":
            arrays.append(d.new(shape[:1], "i64", f"below {shape[1]}"))
        elif target == "rows of labels":
            arrays.append(d.new(shape, "i64", f"below {shape[1] + 1}") + " - 1")
        elif target:
            arrays.append(d.new(shape, values=target))
        reduction = d.pick("", "reduction='sum'", "reduction='none'") if name.endswith("Loss") else ""
        made(d, name, ", ".join(part for part in (d.pick("", *options), reduction) if part), dtype=False)
        return f"layer({', '.join(arrays)})"

    return text


for _name, _count, _target, *_options in (
    ("CosineSimilarity", 2, "", "0", "dim=-1"),
    ("PairwiseDistance", 2, "", "1.0", "keepdim=True"),
    ("MarginRankingLoss", 2, "signs", "0.5"),
    ("HingeEmbeddingLoss", 1, "signs", "2.0"),
    ("CosineEmbeddingLoss", 2, "row signs", "0.25"),
    ("TripletMarginLoss", 3, "", "0.5", "swap=True"),
    ("TripletMarginWithDistanceLoss", 3, "", "margin=0.5", "swap=True"),
    ("MultiMarginLoss", 1, "labels", "2", "margin=0.5"),
    ("MultiLabelMarginLoss", 1, "rows of labels"),
    ("MultiLabelSoftMarginLoss", 1, "prob"),
    ("SoftMarginLoss", 1, "signs"),
    ("PoissonNLLLoss", 1, "positive", "True, True", "full=True"),
    ("GaussianNLLLoss", 2, "positive", "full=True", "eps=1e-3"),
):
    CALLS[f"nn.{_name}"] = _loss(_name, _count, _target, *_options)


@call("nn.AdaptiveLogSoftmaxWithLoss")
def _(d: Draw) -> str:
    n = min(d.extent(), 33)
    x = d.new((n, 8), values="small")
    made(d, "AdaptiveLogSoftmaxWithLoss", f"8, 9, [3, 5]{d.pick('', ', div_value=2.0', ', head_bias=True')}")
    labels = d.new((n,), "i64", "below 9")
    if not n:
        raise NotACell
    return f"layer({x}, {labels}){d.pick('[0]', '[1]')}"


def _held(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        x = d.new(shape, values="small")
        seeded(d)
        one = f"st.nn.Parameter(st.full({shape!r}, 0.5, {dtype_of(d)}))"
        if name == "ParameterList":
            d.setup.append(f"layer = st.nn.ParameterList([{one}, {one}])")
            return f"layer[1].value * {x} + layer[0].value"
        d.setup.append(f"layer = st.nn.ParameterDict({{'one': {one}}})")
        return f"layer['one'].value * {x}"

    return text


for _name in ("ParameterList", "ParameterDict"):
    CALLS[f"nn.{_name}"] = _held(_name)
