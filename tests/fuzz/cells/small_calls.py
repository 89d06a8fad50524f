"""Calls of functions that are a few others: element by element, of diagonals, without NaN, of differences and products."""

from __future__ import annotations

from tests.fuzz.cells.calls import CALLS, DOMAINS, Call, _binary, _reduction, _unary, call
from tests.fuzz.cells.draw import Draw, NotACell

DOMAINS |= {
    "logit": "prob", "acosh": "above 1", "atanh": "unit", "reciprocal": "nonzero", "fmod": "nonzero", "exp2": "small",
    "deg2rad": "finite", "rad2deg": "finite", "sinc": "small", "asinh": "finite", "mish": "small", "selu": "small",
    "tanhshrink": "small",
}  # fmt: skip

for _name in (
    "exp2 reciprocal deg2rad rad2deg asinh acosh atanh frac signbit relu6 hardsigmoid hardswish mish "
    "selu softsign tanhshrink positive conj real imag angle"
).split():
    CALLS[_name] = _unary(_name)
for _name in ("logaddexp2", "hypot", "fmod", "copysign", "nextafter", "fmax", "fmin"):
    CALLS[_name] = _binary(_name)


def _noted(of: Call, *keywords: str) -> Call:
    """A call that gives these arguments by place."""

    def text(d: Draw) -> str:
        d.keywords |= set(keywords)
        return of(d)

    return text


CALLS["heaviside"] = _noted(_binary("heaviside"), "values")
for _name in ("isclose", "allclose"):
    CALLS[_name] = lambda d, name=_name: (
        f"{_binary(name)(d)[:-1]}{d.keyword('rtol', 1e-3)}{d.keyword('atol', 0.1)}{d.keyword('equal_nan', True)})"
    )
for _name in ("nansum", "nanprod", "nanmean", "nanvar", "nanstd"):
    CALLS[_name] = _reduction({"nanmean": "mean", "nanvar": "var", "nanstd": "std", "nanprod": "prod"}.get(_name, "sum"))
    CALLS[_name] = lambda d, of=CALLS[_name], name=_name: _renamed(of(d), name)
for _name in ("nanmax", "nanmin", "ptp", "aminmax"):
    CALLS[_name] = lambda d, name=_name: _of_extremes(d, name)
for _name in ("var_mean", "std_mean"):
    CALLS[_name] = lambda d, name=_name: _renamed(_reduction("var")(d), name)


for _name, _parts in (("complex", ("real", "imag")), ("polar", ("abs", "angle"))):
    CALLS[_name] = _noted(
        lambda d, name=_name: (
            f"st.view_as_real(st.{name}({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}))"
        ),
        *_parts,
    )
CALLS["view_as_real"] = lambda d: (
    f"st.view_as_real(st.complex({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}))"
)
CALLS["view_as_complex"] = lambda d: (
    f"st.view_as_real(st.conj(st.view_as_complex({d.new((*d.shape(ranks=(0, 1, 2)), 2), values='small')})))"
)
CALLS["is_complex"] = lambda d: f"st.where(st.is_complex({d.new(d.shape(ranks=(0, 1, 2)))}), 1, 2)"


def _renamed(text: str, name: str) -> str:
    """The same call of another function: `st.sum(x)` and `x.sum()` become `st.nansum(x)`."""
    head, _, rest = text.partition("(")
    owner, _, _ = head.rpartition(".")
    return f"st.{name}({rest}" if owner == "st" else f"st.{name}({owner}{', ' if rest != ')' else ''}{rest}"


def _of_extremes(d: Draw, name: str) -> str:
    if d.dtype == "bool":
        raise NotACell
    shape = d.shape(ranks=(0, 1, 2))
    x = d.new(shape, values="small" if name == "ptp" else "any")
    return f"st.{name}({x}{d.axis(len(shape), several=name != 'aminmax')}{d.keyword('keepdims', True, percent=30)})"


CALLS["sinc"] = lambda d: f"st.sinc({d.new(d.shape(ranks=(0, 1, 2)), values='small')})"
CALLS["nan_to_num"] = lambda d: (
    f"st.nan_to_num({d.new(d.shape(ranks=(0, 1, 2)))}"
    + (d.keyword("nan", 1.5) + d.keyword("posinf", 7.0) + d.keyword("neginf", -7.0) if d.is_float else "")
    + ")"
)
CALLS["hardtanh"] = lambda d: (
    f"st.hardtanh({d.new(d.shape(ranks=(0, 1, 2)))}{d.keyword('min_val', -0.5)}{d.keyword('max_val', 2.0)})"
)
CALLS["logit"] = lambda d: f"st.logit({d.new(d.shape(ranks=(0, 1, 2)), values='prob')}{d.keyword('eps', 0.01, 0.2)})"
CALLS["xlogy"] = _noted(
    lambda d: f"st.xlogy({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='positive')})", "y"
)
CALLS["lerp"] = lambda d: (
    f"st.lerp({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}, "
    f"{d.pick(0.25, 0.75, d.new(shape, values='prob'))})"
)
for _name in ("addcmul", "addcdiv"):
    CALLS[_name] = lambda d, name=_name: (
        f"st.{name}({d.new(shape := d.shape(ranks=(0, 1, 2)), values='small')}, {d.new(shape, values='small')}, "
        f"{d.new(shape, values='nonzero')}{d.keyword('value', 2, 1)})"
    )
CALLS["array_equal"] = lambda d: f"st.array_equal({d.new(shape := d.shape(ranks=(1, 2)))}, {d.new(shape)})"
CALLS["celu"] = lambda d: f"st.celu({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('alpha', 0.5, 2.0)})"
for _name in ("hardshrink", "softshrink"):
    CALLS[_name] = lambda d, name=_name: (
        f"st.{name}({d.new(d.shape(ranks=(0, 1, 2)), values='small')}{d.keyword('lambd', 0.25, 1.25)})"
    )
CALLS["threshold"] = _noted(
    lambda d: f"st.threshold({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {d.pick(0, 1)}, {d.pick(0, 2)})",
    "threshold",
)


@call("glu")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    axis = d.chance.randrange(len(shape))
    return f"st.glu({d.new((*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), values='small')}, axis={axis})"


CALLS["softmin"] = lambda d: (
    f"st.softmin({d.new(shape := d.shape(ranks=(1, 2, 3)), values='small')}{d.axis(len(shape), several=False, none=False)})"
)

# ---- special functions --------------------------------------------------------------------------

DOMAINS |= {"lgamma": "positive", "digamma": "positive", "erfinv": "prob", "i0": "small", "cbrt": "nonzero"}
for _name in ("lgamma", "digamma", "erfinv", "i0", "cbrt"):
    CALLS[_name] = _unary(_name)
CALLS["polygamma"] = _noted(
    lambda d: f"st.polygamma({d.pick(0, 1, 2)}, {d.new(d.shape(ranks=(0, 1, 2)), values='above 1')})", "n"
)
CALLS["mvlgamma"] = _noted(
    lambda d: f"st.mvlgamma({d.new(d.shape(ranks=(0, 1, 2)), values='above 1')}, {d.pick(1, 2)})", "p"
)
for _name in ("gcd", "lcm"):
    CALLS[_name] = _binary(_name)
def _spaced(name: str, *ends: str) -> Call:
    def text(d: Draw) -> str:
        if not d.is_float:
            raise NotACell
        d.keywords |= {"dtype", "endpoint", "num", *(["base"] if name == "logspace" else [])}
        extent = d.extent()
        base = d.keyword("base", 2.0, 10.0) if name == "logspace" else ""
        dtype = ", dtype=st.f64" if d.dtype == "f64" else ""
        return f"(st.{name}({d.pick(*ends)}, {extent}{base}{dtype}{d.keyword('endpoint', True, False)}), {d.new((extent,))})"

    return text


CALLS["logspace"] = _spaced("logspace", "0, 1", "-2, 0.5", "3, 3")
CALLS["geomspace"] = _spaced("geomspace", "1, 8", "-4, -0.5", "3, 3")

# ---- shapes and diagonals -----------------------------------------------------------------------


def _moved(name: str, *ranks: int) -> Call:
    return lambda d: f"st.{name}({d.new(d.shape(ranks=ranks))})"


for _name, _ranks in {
    "fliplr": (2, 3), "flipud": (1, 2), "atleast_1d": (0, 1, 2), "atleast_2d": (0, 1, 2), "atleast_3d": (0, 1, 2, 3),
}.items():  # fmt: skip
    CALLS[_name] = _moved(_name, *_ranks)
for _name in ("hstack", "vstack", "dstack", "column_stack"):
    CALLS[_name] = lambda d, name=_name: f"st.{name}([{d.new(shape := d.shape(ranks=(1, 2)))}, {d.new(shape)}])"
CALLS["rot90"] = lambda d: (
    f"st.rot90({d.new(d.shape(ranks=(2, 3)))}{d.keyword('k', 0, 1, 2, 3, -1)}{d.keyword('axes', (0, 1), (1, 0), (0, -1))})"
)
CALLS["diagonal"] = lambda d: (
    f"st.diagonal({d.new(d.shape(ranks=(2, 3)))}{d.keyword('offset', 0, 1, -1, 2)}"
    f"{d.pick('', ', axis1=1, axis2=0', ', axis1=-1, axis2=-2')})"
)
CALLS["trace"] = lambda d: f"st.trace({d.new(d.shape(ranks=(2, 3)), values='small')}{d.keyword('offset', 0, 1, -1)})"


@call("diag")
def _(d: Draw) -> str:
    x = d.new((min(d.extent(), 40),)) if d.likely(60) else d.new(d.shape(2))
    return f"st.diag({x}{d.keyword('k', 0, 1, -2)})"


CALLS["diagflat"] = lambda d: f"st.diagflat({d.new((2, 3) if d.likely(60) else (3,))}{d.keyword('k', 0, 1, -2)})"
CALLS["block_diag"] = lambda d: f"st.block_diag({d.new((2, 3))}, {d.new((d.pick(1, 2), 2))}, {d.new((3,))})"

# ---- along an axis, and products ----------------------------------------------------------------


@call("diff")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2, 3))
    rest = d.keyword("n", 0, 1, 2) + d.axis(len(shape), several=False, none=False)
    if d.dtype != "bool":
        rest += d.keyword("prepend", 1) + d.keyword("append", 2)
    return f"st.diff({d.new(shape, values='small')}{rest})"


CALLS["trapezoid"] = _noted(
    lambda d: (
        f"st.trapezoid({d.new(shape := d.shape(ranks=(1, 2)), values='small')}{d.keyword('dx', 0.5)}"
        f"{d.axis(len(shape), several=False, none=False)})"
    ),
    "y",
)


@call("average")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(1, 2))
    x, weights = d.new(shape, values="small"), d.new(shape, values="positive")
    return f"st.average({x}{d.axis(len(shape), several=False)}, weights={weights}{d.keyword('keepdims', True)})"


for _name in ("cov", "corrcoef"):
    CALLS[_name] = lambda d, name=_name: _of_rows(d, name)


def _of_rows(d: Draw, name: str) -> str:
    if not d.is_float or d.kind not in ("odd", "block"):
        raise NotACell
    rest = d.keyword("correction", 0, 1) if name == "cov" else ""
    return f"st.{name}({d.new((3, 9), values='positive')}{d.keyword('rowvar', True)}{rest})"


CALLS["inner"] = lambda d: f"st.inner({d.new(shape := d.shape(ranks=(1, 2)), values='small')}, {d.new(shape, values='small')})"
CALLS["kron"] = lambda d: (
    f"st.kron({d.new(d.pick((2, 3), (3,), (1, 4)), values='small')}, {d.new(d.pick((2,), (2, 2)), values='small')})"
)
CALLS["cross"] = lambda d: (
    f"st.cross({d.new((*(shape := d.shape(ranks=(0, 1))), 3), values='small')}, {d.new((*shape, 3), values='small')}"
    f"{d.keyword('axis', -1, len(shape))})"
)
CALLS["mv"] = lambda d: f"st.mv({d.new((3, n := d.extent()), values='small')}, {d.new((n,), values='small')})"
CALLS["addmm"] = lambda d: (
    f"st.addmm({d.new((3, 4), values='small')}, {d.new((3, n := d.extent()), values='small')}, "
    f"{d.new((n, 4), values='small')}{d.keyword('beta', 0, 1, 2)}{d.keyword('alpha', 1, 2)})"
)
CALLS["addr"] = lambda d: (
    f"st.addr({d.new((3, n := d.extent()), values='small')}, {d.new((3,), values='small')}, {d.new((n,), values='small')}"
    f"{d.keyword('beta', 0, 1, 2)})"
)


@call("einsum")
def _(d: Draw) -> str:
    n = d.extent()
    text, *shapes = d.pick(
        ("ij,jk", (2, n), (n, 3)), ("...i,...i->...", (2, n), (1, n)), ("bij,bkj->bik", (2, 3, n), (2, 4, n)),
        ("ij,jk,kl->il", (2, n), (n, 3), (3, 2)), ("ii->i", (3, 3)), ("ij->j", (n, 3)), ("i,j", (n,), (3,)),
    )  # fmt: skip
    d.keywords.add("subscripts")
    how = d.keyword("optimize", True, False, repr("greedy"), percent=30)
    return f"st.einsum({text!r}, {', '.join(d.new(shape, values='small') for shape in shapes)}{how})"


def _running(name: str) -> Call:
    def text(d: Draw) -> str:
        if d.dtype == "bool" and name in ("cummax", "cummin"):
            raise NotACell
        shape = d.shape(ranks=(1, 2, 3))
        x = d.new(shape, values="nonzero" if "prod" in name else "small" if name == "logcumsumexp" else "finite")
        is_numpys = name in ("cumsum", "cumprod")
        rest = d.axis(len(shape), several=False, none=is_numpys)
        if name.startswith("cumulative"):
            rest += d.keyword("include_initial", True, False)
        if (is_numpys or name.startswith("cumulative")) and not (d.smooth and "prod" in name):
            rest += d.keyword("dtype", *(["st.f64", "st.f32"] if d.is_float else ["st.i64", "st.f64"]), percent=25)
        return f"st.{name}({x}{rest})"

    return text


for _name in "cumsum cumprod cumulative_sum cumulative_prod logcumsumexp cummax cummin".split():
    CALLS[_name] = _running(_name)


def _integer(d: Draw, shape: tuple[int, ...], below: int) -> str:
    return d.new(shape, dtype="i64", values=f"below {below}")


def _keys(d: Draw) -> str:
    if d.dtype == "bool":
        raise NotACell
    return d.pick("[-1, 0, 2]", "[0]", "[-3, -1, 0, 0, 1, 2, 3]")


@call("searchsorted")
def _(d: Draw) -> str:
    keys, x = _keys(d), d.new(d.shape(ranks=(0, 1, 2)), values="small")
    how = d.keyword("right", True, False) or d.keyword("side", "'left'", "'right'", percent=90)
    how += d.keyword("sorter", f"st.argsort({keys})", percent=30)
    return f"st.searchsorted({keys}, {x}{how})"


CALLS["bucketize"] = lambda d: (
    f"st.bucketize({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('right', True, False)})"
)
CALLS["digitize"] = lambda d: (
    f"st.digitize({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('right', True, False)})"
)
CALLS["isin"] = lambda d: (
    f"st.isin({d.new(d.shape(ranks=(0, 1, 2)), values='small')}, {_keys(d)}{d.keyword('invert', True, False)})"
)


@call("bincount")
def _(d: Draw) -> str:
    d.keywords.add("length")
    x, weights = _integer(d, (n := d.extent(),), 6), d.keyword("weights", d.new((n,), values="small"))
    return f"st.bincount({x}{weights}, length={d.pick(1, 4, 9)})"


@call("histogram")
def _(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords.add("range")
    x = d.new((n := d.extent(),), values="small")
    how = d.keyword("density", True, False, percent=40)
    # The weights of a density add up to no number near 0, by which all are divided.
    weights = d.keyword("weights", d.new((n,), values="positive" if "True" in how else "small"))
    return f"st.histogram({x}{d.keyword('bins', 1, 4)}, range=(-8.0, 8.0){weights}{how})[0]"


@call("nonzero")
def _(d: Draw) -> str:
    d.keywords.add("size")
    return f"st.nonzero({d.new(d.shape(ranks=(1, 2)))}, size={d.pick(1, 3, 40)}{d.keyword('fill_value', -1, 0)})"


@call("flatnonzero")
def _(d: Draw) -> str:
    d.keywords.add("size")
    return f"st.flatnonzero({d.new(d.shape(ranks=(1, 2)))}, size={d.pick(1, 3, 40)}{d.keyword('fill_value', -1, 0)})"


@call("interp")
def _(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"xp", "fp"}
    x, values = d.new(d.shape(ranks=(0, 1, 2)), values="small"), d.new((4,), values="small")
    if d.likely(30):
        return f"st.interp({x}, [0.125, 2.25, 4.5, 1.0], {values}{d.keyword('period', 5.0, percent=100)})"
    ends = d.keyword("left", -1.0) + d.keyword("right", 7.0)
    return f"st.interp({x}, [-2.125, -0.375, 0.25, 4.5], {values}{ends})"


@call("masked_select")
def _(d: Draw) -> str:
    x = d.new(shape := d.shape(ranks=(1, 2)))
    d.keywords |= {"size", "mask"}
    return f"st.masked_select({x}, {_integer(d, shape, 2)} == 1, size={d.pick(1, 3, 40)}{d.keyword('fill_value', 1, 0)})"

# ---- scatters with reductions -----------------------------------------------------------------------


def _numbers(d: Draw) -> None:
    if d.dtype == "bool":
        raise NotACell


@call("scatter_reduce")
def _(d: Draw) -> str:
    _numbers(d)
    d.keywords |= {"axis", "src", "reduce"}
    n, width = d.pick(1, 3), d.extent()
    x, u = d.new((4, width), values="unit"), d.new((n, width), values="unit")
    own = d.keyword("include_self", False)
    reduce = d.pick("sum", "prod", "amax", "amin", "mean")
    return f"st.scatter_reduce({x}, 0, {_integer(d, (n, width), 4)}, {u}, reduce={reduce!r}{own})"


@call("index_reduce")
def _(d: Draw) -> str:
    _numbers(d)
    d.keywords |= {"axis", "source", "reduce"}
    width = d.extent()
    x, u = d.new((width, 4), values="unit"), d.new((width, 3), values="unit")
    own = d.keyword("include_self", False)
    return f"st.index_reduce({x}, 1, {_integer(d, (3,), 4)}, {u}, reduce={d.pick('sum', 'prod', 'amax', 'amin', 'mean')!r}{own})"


def _segment(name: str) -> Call:
    def text(d: Draw) -> str:
        _numbers(d)
        d.keywords |= {"data", "segment_ids", "num_segments"}
        n = d.extent()
        data = d.new(d.pick((n,), (n, 3)), values="unit")
        return f"st.segment_{name}({data}, {_integer(d, (n,), 6)} - 1, num_segments={d.pick(1, 4, 5)})"

    return text


for _name in ("sum", "prod", "max", "min", "mean"):
    CALLS[f"segment_{_name}"] = _segment(_name)


@call("embedding_bag")
def _(d: Draw) -> str:
    if not d.is_float:
        raise NotACell
    d.keywords |= {"weight", "offsets"}
    table, padding = d.new((5, d.extent()), values="small"), d.keyword("padding_idx", 1, -2)
    mode = d.pick("sum", "mean", "max")
    n = d.pick(1, 4)
    if d.likely(50):
        ends = d.keyword("include_last_offset", True)
        return f"st.embedding_bag({_integer(d, (n,), 5)}, {table}, [0, 0, {n}], mode={mode!r}{ends}{padding})"
    shares = d.keyword("per_sample_weights", d.new((2, n), values="small")) if mode == "sum" else ""
    d.keywords.add("mode")
    return f"st.embedding_bag({_integer(d, (2, n), 5)}, {table}, mode={mode!r}{shares}{padding})"


CALLS["tensor_split"] = lambda d: (
    f"st.tensor_split({d.new(shape := d.shape(ranks=(1, 2)))}, {d.pick(1, 2, 3, (1, 2))}"
    f"{d.axis(len(shape), several=False, none=False)})"
)
CALLS["addbmm"] = lambda d: (
    f"st.addbmm({d.new((3, 4), values='small')}, {d.new((2, 3, n := d.extent()), values='small')}, "
    f"{d.new((2, n, 4), values='small')}{d.keyword('beta', 0, 1, 2)}{d.keyword('alpha', 1, 2)})"
)
CALLS["vdot"] = lambda d: f"st.vdot({d.new(shape := d.shape(ranks=(1, 2)), values='small')}, {d.new(shape, values='small')})"
CALLS["diag_embed"] = lambda d: (
    f"st.diag_embed({d.new(d.shape(ranks=(1, 2)))}{d.keyword('offset', -1, 2)}{d.keyword('dim1', 0)}{d.keyword('dim2', 1)})"
)
CALLS["index_select"] = lambda d: f"st.index_select({d.new((4, d.extent()))}, 0, {_integer(d, (3,), 4)})"
CALLS["index_copy"] = lambda d: (
    f"st.index_copy({d.new((4, n := d.extent()))}, 0, {_integer(d, (3,), 4)}, {d.new((3, n))})"
)
CALLS["index_fill"] = lambda d: f"st.index_fill({d.new((4, d.extent()))}, 0, {_integer(d, (3,), 4)}, {d.pick(0, 1)})"
CALLS["index_add"] = lambda d: (
    f"st.index_add({d.new((4, n := d.extent()), values='small')}, 0, {_integer(d, (3,), 4)}, "
    f"{d.new((3, n), values='small')}{d.keyword('alpha', 1, 2)})"
)

for _name, _keyword in {
    "searchsorted": "v", "bucketize": "boundaries", "digitize": "bins", "isin": "test", "index_select": "axis", "index_add": "axis",
    "index_copy": "axis", "index_fill": "axis",
}.items():  # fmt: skip
    CALLS[_name] = _noted(CALLS[_name], _keyword)
