"""Calls of functions that pad, fold, pool, convolve and resize, and of losses with margins."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import HALVES, Draw, NotACell
from tests.fuzz.cells.network_calls import _image, _reduction
from tests.fuzz.cells.training_calls import seeded

_ONE = CALLS["pad"]


def image(d: Draw, groups: int = 1, rank: int = 2) -> tuple[int, ...]:
    """(N, C, ..) of one to three axes, small."""
    if rank < 3:
        return tuple(min(extent, 13) for extent in _image(d, groups, rank))
    batch, channels, *_ = _image(d, groups, 1)
    sizes = {"empty": (3, 4, 5), "one": (1, 1, 1), "odd": (3, 5, 7), "block": (4, 6, 9)}.get(d.kind, (3, 4, 6))
    return (batch, channels, *sizes)


@call("pad")
def _(d: Draw) -> str:
    if d.likely(40):
        return _ONE(d)
    if d.kind == "empty":
        raise NotACell
    shape = d.shape(ranks=(1, 2))
    modes = ["edge", "reflect", "symmetric", "wrap", "replicate", "circular"]
    mode = repr(d.pick(*modes))
    d.keywords |= {"mode", "pad"}
    if d.likely(50):
        width = d.pick("(1, 2)", "(0, 1)", "(-1, 1)" if shape[-1] > 1 else "(1, 1)")
        return f"st.pad({d.new(shape)}, pad={width}, mode={mode})"
    return f"st.pad({d.new(shape)}, {d.pick('1', '(2, 1)')}, {mode})"


@call("unfold")
def _(d: Draw) -> str:
    kernel = 1 if d.kind == "one" else d.pick(2, "(2, 3)")
    rest = d.keyword("stride", 1, 2) + d.keyword("dilation", 1, "(1, 2)" if kernel != 1 else 1)
    return f"st.unfold({d.new(image(d))}, {kernel}{rest}{d.keyword('padding', 0, 1)})"


@call("fold")
def _(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    batch = 0 if d.kind == "empty" else d.pick(1, 2)
    size, kernel, dilation, padding, stride, count = d.pick(
        ("(4, 5)", "2", "1", "0", "1", 12), ("(5, 4)", "(2, 3)", "(2, 1)", "1", "2", 6), ("4", "2", "1", "0", "2", 4)
    )
    d.keywords |= {"output_size", "kernel_size", "dilation", "padding", "stride"}
    taps = 6 if "," in kernel else 4
    return f"st.fold({d.new((batch, 2 * taps, count), values='small')}, {size}, {kernel}, {dilation}, {padding}, {stride})"


def _factor(name: str, word: str) -> Call:
    def text(d: Draw) -> str:
        if d.kind == "scalar":
            raise NotACell
        batch = 0 if d.kind == "empty" else d.pick(1, 2)
        shape = {"pixel_shuffle": (batch, 8, 3, 2), "channel_shuffle": (batch, 6, 5)}.get(name, (batch, 2, 4, 6))
        d.keywords.add(word)
        return f"st.{name}({d.new(shape)}, {word}=2)"

    return text


for _name, _word in (
    ("pixel_shuffle", "upscale_factor"), ("pixel_unshuffle", "downscale_factor"), ("channel_shuffle", "groups"),
):  # fmt: skip
    CALLS[_name] = _factor(_name, _word)


@call("unflatten")
def _(d: Draw) -> str:
    n = d.extent()
    d.keywords.add("sizes")
    return f"st.unflatten({d.new((n, 6))}, {d.pick('1, (2, 3)', '-1, (-1, 2)', '1, (6, 1)')})"


# ---- convolution --------------------------------------------------------------------------------


@call("conv3d")
def _(d: Draw) -> str:
    groups = d.pick(1, 1, 2)
    shape = image(d, groups, 3)
    kernel = (1, 1, 1) if d.kind == "one" else d.pick((2, 2, 3), (3, 1, 2), (1, 3, 3))
    weight = (groups * d.pick(1, 2), shape[1] // groups, *kernel)
    x, w = d.new(shape, values="small"), d.new(weight, values="small")
    rest = f", {d.new(weight[:1], values='small')}" if d.likely(40) else ""
    padding = d.pick(1, 0, "(1, 0, 1)", "'valid'", "'same'")
    rest += "" if padding == "'same'" else d.keyword("stride", 1, 2, "(2, 1, 1)")
    d.keywords |= {"groups", "padding", "bias"}
    rest += f", padding={padding}" + ("" if d.kind == "one" else d.keyword("dilation", 1, "(2, 1, 1)", percent=30))
    return f"st.conv3d({x}, {w}{rest}, groups={groups})"


def _transposed(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        groups = d.pick(1, 1, 2)
        shape = image(d, groups, rank)
        shape = (*shape[:2], *(min(extent, 4) for extent in shape[2:]))
        kernel = (2, 3, 1)[:rank] if d.likely(70) else (1, 1, 1)[:rank]
        weight = (shape[1], d.pick(1, 2), *kernel)
        x, w = d.new(shape, values="small"), d.new(weight, values="small")
        rest = f", {d.new((weight[1] * groups,), values='small')}" if d.likely(40) else ""
        stride = d.pick(1, 2)
        d.keywords |= {"groups", "padding", "bias", "stride", "output_padding", "dilation"}
        apart = 3 if d.likely(25) else 1
        rest += f", stride={stride}, dilation={apart}" + d.keyword("padding", 0, percent=30)
        rest += d.keyword("output_padding", 0, max(stride, apart) - 1, percent=30)
        return f"st.{name}({x}, {w}{rest}, groups={groups})"

    return text


CALLS["conv_transpose1d"] = _transposed("conv_transpose1d", 1)
CALLS["conv_transpose3d"] = _transposed("conv_transpose3d", 3)

# ---- pooling ------------------------------------------------------------------------------------


def _pool(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        size = 1 if d.kind == "one" else d.pick(2, 3) if rank == 1 else d.pick(2, {2: "(2, 3)", 3: "(2, 1, 3)"}[rank])
        rest = d.keyword("stride", 1, 2)
        if size not in (1, "(2, 1, 3)"):
            rest += d.keyword("padding", 0, 1)
        rest += d.keyword("ceil_mode", True, False)
        values = "any"
        if name.startswith("avg"):
            rest, values = rest + d.keyword("count_include_pad", True, False), "small"
            rest += d.keyword("divisor_override", 1, 3, -2, percent=30)
            return f"st.{name}({d.new(shape, values=values)}, {size}{rest})"
        rest += d.keyword("dilation", 1, 2, percent=30)
        if d.likely(30):
            d.keywords.add("return_indices")
            ending = "[0]" if d.smooth else d.pick("[0]", "[1]")
            return f"st.{name}({d.new(shape, values='small')}, {size}{rest}, return_indices=True){ending}"
        return f"st.{name}({d.new(shape, values=values)}, {size}{rest})"

    return text


for _rank in (1, 2, 3):
    CALLS[f"max_pool{_rank}d"] = _pool(f"max_pool{_rank}d", _rank)
CALLS["avg_pool3d"] = _pool("avg_pool3d", 3)


def _adaptive(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        size = d.pick(1, {1: 2, 2: "(2, 3)", 3: "(2, 1, 3)"}[rank], {1: 3, 2: "(None, 2)", 3: "(2, None, 1)"}[rank])
        rest = "" if "max" not in name else d.pick("", ", return_indices=True")
        d.keywords |= {"return_indices"} if "max" in name else set()
        ending = "" if not rest else "[0]" if d.smooth else d.pick("[0]", "[1]")
        return f"st.{name}({d.new(image(d, 1, rank), values='small')}, {size}{rest}){ending}"

    return text


for _rank in (1, 2, 3):
    CALLS[f"adaptive_max_pool{_rank}d"] = _adaptive(f"adaptive_max_pool{_rank}d", _rank)
    CALLS[f"adaptive_avg_pool{_rank}d"] = _adaptive(f"adaptive_avg_pool{_rank}d", _rank)


def _lp(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        size = 1 if d.kind == "one" else 2
        d.keywords.add("norm_type")
        rest = d.keyword("stride", 1, 2) + d.keyword("ceil_mode", True, False)
        return f"st.{name}({d.new(image(d, 1, rank), values='positive')}, {d.pick(1, 2, 3.0)}, {size}{rest})"

    return text


for _rank in (1, 2, 3):
    CALLS[f"lp_pool{_rank}d"] = _lp(f"lp_pool{_rank}d", _rank)


def _fractional(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        x = d.new(shape, values="small")
        size = "1, " + ("output_size=1" if d.likely(50) else "output_ratio=1.0")
        if d.kind != "one":
            size = "2, " + d.pick("output_size=2", "output_ratio=0.7")
        d.keywords |= {"output_size", "output_ratio", "return_indices", "_random_samples"}
        samples = d.new((*shape[:2], rank), d.dtype if d.dtype in HALVES else "f64", values="prob")
        text = f"st.{name}({x}, {size}, _random_samples=st.stop_gradient({samples}), return_indices=True)"
        return text + ("[0]" if d.smooth else d.pick("[0]", "[1]"))

    return text


def _unpool(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        shape = image(d, 1, rank)
        x = d.new((*shape[:2], *(min(extent, 3) for extent in shape[2:])), values="small")
        sizes = d.arrays[x].shape[2:]
        d.keywords |= {"stride", "padding", "output_size"}
        count = 1
        for size in sizes:
            count *= size
        lead = d.arrays[x].size // count if d.arrays[x].size else 0
        places = d.new(d.arrays[x].shape, "i64", "below 2")
        if lead:
            d.arrays[places] = d.numbers.permuted(
                (d.numbers.permutation(count * 2**rank)[:count])[None].repeat(lead, 0), axis=1
            ).reshape(d.arrays[x].shape)
        given = d.pick("", ", stride=2", f", output_size={tuple(2 * size for size in sizes)}", ", 2, 0")
        return f"st.{name}({x}, {places}, 2{given})"

    return text


for _rank in (1, 2, 3):
    CALLS[f"max_unpool{_rank}d"] = _unpool(f"max_unpool{_rank}d", _rank)
    if _rank > 1:
        CALLS[f"fractional_max_pool{_rank}d"] = _fractional(f"fractional_max_pool{_rank}d", _rank)

# ---- other sizes and places ---------------------------------------------------------------------


@call("interpolate")
def _(d: Draw) -> str:
    rank = d.pick(1, 2, 3)
    mode = d.pick("nearest", "nearest-exact", "area", {1: "linear", 2: "bilinear", 3: "trilinear"}[rank])
    if rank == 2 and d.likely(25):
        mode = "bicubic"
    d.keywords |= {"size", "scale_factor", "mode", "align_corners", "recompute_scale_factor"}
    given = d.pick(f"size={(5, 2, 3)[:rank]}", "scale_factor=2", "scale_factor=1.5", "size=4")
    rest = d.pick("", ", align_corners=True") if "linear" in mode or mode == "bicubic" else ""
    rest += ", recompute_scale_factor=True" if "scale" in given and d.likely(30) else ""
    return f"st.interpolate({d.new(image(d, 1, rank), values='small')}, {given}, mode={mode!r}{rest})"


@call("affine_grid")
def _(d: Draw) -> str:
    n, rank = (0 if d.kind == "empty" else d.pick(1, 2)), d.pick(2, 3)
    if d.kind == "scalar":
        raise NotACell
    d.keywords |= {"theta", "size"}
    size = (n, 2, *(3, 1, 4)[:rank])
    return f"st.affine_grid({d.new((n, rank, rank + 1), values='small')}, {size}{d.keyword('align_corners', True, False)})"


@call("grid_sample")
def _(d: Draw) -> str:
    rank = d.pick(2, 2, 3)
    shape = image(d, 1, rank)
    x = d.new(shape, values="small")
    grid = d.new((shape[0], *(3, 4, 2)[:rank], rank), values="unit" if d.likely(50) else "nonzero")
    d.keywords.add("grid")
    rest = d.keyword("mode", "'bilinear'", "'nearest'") + d.keyword("padding_mode", "'zeros'", "'border'", "'reflection'")
    return f"st.grid_sample({x}, {grid}{rest}{d.keyword('align_corners', True, False)})"


# ---- channels -----------------------------------------------------------------------------------


@call("prelu")
def _(d: Draw) -> str:
    shape = image(d)
    return f"st.prelu({d.new(shape, values='nonzero')}, {d.new((d.pick(1, shape[1]),), values='nonzero')})"


CALLS["rrelu"] = lambda d: (
    f"st.rrelu({d.new(d.shape(ranks=(0, 1, 2)), values='nonzero')}{d.keyword('lower', 0.0, 0.25)}"
    f"{d.keyword('upper', 0.5)}, training={d.pick(True, False)}{_generator(d)})"
)


def _generator(d: Draw) -> str:
    """Numbers of the thread's generator, which begins anew."""
    seeded(d)
    d.keywords.add("generator")
    return ""


@call("local_response_norm")
def _(d: Draw) -> str:
    d.keywords.add("size")
    rest = d.keyword("alpha", 0.5) + d.keyword("beta", 0.5, 1.0) + d.keyword("k", 2.0)
    return f"st.local_response_norm({d.new(image(d), values='nonzero')}, {d.pick(1, 2, 3)}{rest})"


@call("bilinear")
def _(d: Draw) -> str:
    n = min(d.extent(), 67)
    a, b, w = d.new((n, 3), values="small"), d.new((n, 2), values="small"), d.new((4, 3, 2), values="small")
    d.keywords.add("bias")
    return f"st.bilinear({a}, {b}, {w}{', ' + d.new((4,), values='small') if d.likely(40) else ''})"


def _dropping(name: str, rank: int) -> Call:
    def text(d: Draw) -> str:
        _generator(d)
        p = d.pick("", ", 0.25", ", p=0.0", ", 1.0")
        return f"st.{name}({d.new(image(d, 1, rank), values='small')}{p}{d.pick(', training=True', ', training=False')})"

    return text


for _rank in (1, 2, 3):
    CALLS[f"dropout{_rank}d"] = _dropping(f"dropout{_rank}d", _rank)
for _name in ("alpha_dropout", "feature_alpha_dropout"):
    CALLS[_name] = _dropping(_name, 2)

# ---- distances and margins ----------------------------------------------------------------------


def _rows(d: Draw) -> tuple[int, int]:
    if d.kind in ("scalar", "empty"):
        raise NotACell
    return 1 if d.kind == "one" else 33 if d.kind == "block" else d.pick(2, 3), 1 if d.kind == "one" else d.pick(3, 5)


def _signs(d: Draw, shape: tuple[int, ...]) -> str:
    return f"(2 * {d.new(shape, 'i64', 'below 2')} - 1)"


@call("cosine_similarity")
def _(d: Draw) -> str:
    shape = _rows(d)
    rest = d.axis(2, several=False, none=False) + d.keyword("eps", 1e-8, 1e-3)
    return f"st.cosine_similarity({d.new(shape, values='nonzero')}, {d.new(shape, values='nonzero')}{rest})"


@call("pairwise_distance")
def _(d: Draw) -> str:
    shape = _rows(d)
    rest = d.keyword("p", 1.0, 2.0, 3.0) + d.keyword("eps", 1e-6, 1e-3) + d.keyword("keepdims", True, False)
    return f"st.pairwise_distance({d.new(shape, values='small')}, {d.new(shape, values='positive')}{rest})"


CALLS["margin_ranking_loss"] = lambda d: (
    f"st.margin_ranking_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}, "
    f"{_signs(d, shape)}{d.keyword('margin', 0.5)}{_reduction(d)})"
)
CALLS["hinge_embedding_loss"] = lambda d: (
    f"st.hinge_embedding_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {_signs(d, shape)}"
    f"{d.keyword('margin', 0.5, 2.0)}{_reduction(d)})"
)
CALLS["cosine_embedding_loss"] = lambda d: (
    f"st.cosine_embedding_loss({d.new(shape := _rows(d), values='nonzero')}, {d.new(shape, values='nonzero')}, "
    f"{_signs(d, shape[:1])}{d.keyword('margin', 0.25, -0.5)}{_reduction(d)})"
)


def _triplets(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = _rows(d)
        rest = d.keyword("margin", 0.5, 2.0) + d.keyword("swap", True, False) + _reduction(d)
        if name == "triplet_margin_loss":
            rest += d.keyword("p", 2.0, 3.0) + d.keyword("eps", 1e-6, 1e-3)
        else:
            rest += d.keyword("distance_function", "lambda a, b: st.sum((a - b) ** 2, -1)")
        arrays = ", ".join(d.new(shape, values=values) for values in ("small", "positive", "nonzero"))
        return f"st.{name}({arrays}{rest})"

    return text


for _name in ("triplet_margin_loss", "triplet_margin_with_distance_loss"):
    CALLS[_name] = _triplets(_name)


@call("multi_margin_loss")
def _(d: Draw) -> str:
    shape = _rows(d)
    x = d.new(shape, values="small")
    rest = d.keyword("p", 1, 2) + d.keyword("margin", 0.5, 2.0) + _reduction(d)
    if d.likely(30):
        d.keywords.add("weight")
        rest += f", weight={d.new(shape[1:], values='positive')}"
    return f"st.multi_margin_loss({x}, {d.new(shape[:1], 'i64', f'below {shape[1]}')}{rest})"


@call("multilabel_margin_loss")
def _(d: Draw) -> str:
    shape = _rows(d)
    labels = d.new(shape, "i64", f"below {shape[1] + 1}")
    d.main = ""
    return f"st.multilabel_margin_loss({d.new(shape, values='small')}, {labels} - 1{_reduction(d)})"


@call("multilabel_soft_margin_loss")
def _(d: Draw) -> str:
    shape = _rows(d)
    x, y, rest = d.new(shape, values="small"), d.new(shape, values="prob"), _reduction(d)
    if d.likely(30):
        d.keywords.add("weight")
        rest += f", weight={d.new(shape[1:], values='positive')}"
    return f"st.multilabel_soft_margin_loss({x}, {y}{rest})"


CALLS["soft_margin_loss"] = lambda d: (
    f"st.soft_margin_loss({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {_signs(d, shape)}{_reduction(d)})"
)


@call("poisson_nll_loss")
def _(d: Draw) -> str:
    shape, is_log = d.shape(ranks=(0, 1, 2)), d.likely(60)
    x = d.new(shape, values="unit" if is_log else "positive")
    d.keywords.add("log_input")
    rest = f", log_input={is_log}" + d.keyword("full", True, False) + d.keyword("eps", 1e-8, 1e-3) + _reduction(d)
    return f"st.poisson_nll_loss({x}, {d.new(shape, values='positive')}{rest})"


@call("gaussian_nll_loss")
def _(d: Draw) -> str:
    shape = _rows(d)
    a, b = d.new(shape, values="small"), d.new(shape, values="small")
    spread = d.pick("0.5", d.new(d.pick(shape, shape[:1], (shape[0], 1)), values="positive"))
    rest = d.keyword("full", True, False) + d.keyword("eps", 1e-6, 1e-3) + _reduction(d)
    return f"st.gaussian_nll_loss({a}, {b}, {spread}{rest})"
