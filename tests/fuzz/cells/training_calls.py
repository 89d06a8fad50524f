"""Calls of random numbers, first values, optimisers and clipping: seeded, so that what is drawn is the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.cells.calls import CALLS, Call, call
from tests.fuzz.cells.draw import HALVES, Draw, NotACell, Shape

SEEDS = (0, 3, 2**40 + 7, -5)


def seeded(d: Draw) -> None:
    d.setup.append(f"st.seed({d.pick(*SEEDS)})")


def generator(d: Draw) -> str:
    """The text of a keyword for numbers of one's own, or of none."""
    if d.likely(70):
        return ""
    if d.likely(50):
        d.setup.append(f"noise = st.random.Generator({d.pick(*SEEDS)})")
        return ", generator=noise"
    return f", generator=st.random.Generator({d.pick(*SEEDS)})"


def dtype_of(d: Draw) -> str:
    return f"dtype=st.{'bool_' if d.dtype == 'bool' else d.dtype}"


# ---- random numbers -----------------------------------------------------------------------------


def _shaped(d: Draw) -> tuple[str, Shape]:
    """A new array and its shape, which is drawn alike."""
    seeded(d)
    shape = d.shape(ranks=(0, 1, 2))
    return d.new(shape, values="small"), shape


@call("random.uniform")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high"}
    bounds = d.pick("", ", low=-1.5, high=2.0", f", low={d.new((), values='small')}, high=7.0" if d.is_float else "")
    return f"st.random.uniform({shape!r}{bounds}, {dtype_of(d)}{generator(d)}) * {x}"


@call("random.normal")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"mean", "std"}
    rest = d.pick("", ", mean=1.0, std=0.5", ", std=0.0") if not d.is_float or d.likely(50) else ""
    if not rest and d.is_float and d.likely(60):
        rest = f", mean={d.new((), values='small')}, std={d.new((), values='positive')}"
    return f"st.random.normal({shape!r}{rest}, {dtype_of(d)}{generator(d)}) + {x}"


@call("random.bits")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    drawn = f"st.random.bits({shape!r}{generator(d)})"
    if d.is_float:
        return f"st.astype({drawn} >> {24 if d.dtype in HALVES else d.pick(12, 20)}, st.{d.dtype}) * {x}"
    return f"({drawn}, {x})" if d.likely(50) or d.dtype == "bool" else f"({drawn} ^ st.astype({x}, st.u32))"


@call("random.bernoulli")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    if shape and not d.smooth and d.likely(30):
        p, given = d.pick((d.new(shape, "f32", "prob"), ""), (d.new(shape[-1:], "f32", "prob"), f", {shape!r}"))
        return f"st.where(st.random.bernoulli({p}{given}{generator(d)}), {x}, {d.new(shape, values='small')})"
    p = d.pick("0.5", "0.0", "1.0", "0.25") if d.likely(70) else d.new((), "f32", "prob")
    return f"st.where(st.random.bernoulli({p}, {shape!r}{generator(d)}), {x}, {d.new(shape, values='small')})"


@call("random.integers")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high", "dtype"}
    if shape and shape[0] and d.likely(40):
        return f"st.take({x}, st.random.integers({shape[0]}, shape=(5,)), axis=0)"
    low = d.pick(0, 2) if d.dtype[0] == "u" else d.pick(0, -3, -100)
    high = d.new((), "i64", "below 9") + " + 3" if d.likely(30) else d.pick(3, 100)
    dtype = "" if d.is_float or d.dtype == "bool" else f", {dtype_of(d)}"
    drawn = f"st.random.integers({low}, {high}, {shape!r}{dtype}{generator(d)})"
    return f"({drawn}, {x})" if d.dtype == "bool" else f"{drawn} * {x}"


@call("random.permutation")
def _(d: Draw) -> str:
    seeded(d)
    shape = d.shape(ranks=(1, 2))
    axis = d.chance.randrange(len(shape))
    if d.likely(30):
        return f"st.random.permutation({d.new(shape)}{generator(d)})"
    return f"st.take({d.new(shape)}, st.random.permutation({shape[axis]}{generator(d)}), axis={axis})"


def _scaled(name: str, *parameters: str) -> Call:
    def text(d: Draw) -> str:
        x, shape = _shaped(d)
        d.keywords |= {*parameters, "dtype"}
        rest = d.pick("", ", scale=0.5", *((", loc=1.0, scale=2.0",) if "loc" in parameters else ()))
        if d.is_float and d.likely(40):
            rest = f", scale={d.new((), values='positive')}"
        return f"st.random.{name}({shape!r}{rest}, {dtype_of(d)}{generator(d)}) * {x}"

    return text


CALLS["random.exponential"] = _scaled("exponential", "scale")
for _name in ("laplace", "logistic", "gumbel", "cauchy"):
    CALLS[f"random.{_name}"] = _scaled(_name, "loc", "scale")


@call("random.truncated_normal")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"low", "high", "mean", "std"}
    rest = d.pick("", ", low=-1.0", ", low=3.0, high=5.0", ", mean=1.0, std=0.5")
    return f"st.random.truncated_normal({shape!r}{rest}, {dtype_of(d)}{generator(d)}) * {x}"


def _rejected(name: str, *parameters: str, given: Callable[[Draw, tuple[int, ...]], str], dtype: bool = True) -> Call:
    """A draw of parameters that are numbers, or an array of the shape of the draws."""

    def text(d: Draw) -> str:
        x, shape = _shaped(d)
        d.keywords |= {*parameters}
        kind = f", {dtype_of(d)}" if dtype and d.likely(70) else ""
        rest = f"{given(d, shape)}{kind}{generator(d)})"
        return f"st.random.{name}({rest} * {x}" if d.is_float and dtype else f"(st.random.{name}({rest}, {x})"

    return text


CALLS["random.gamma"] = _rejected(
    "gamma", "a", "scale", given=lambda d, shape: f"{d.pick('0.5', '1.0', '7.5')}, {shape!r}{d.keyword('scale', 2.0)}"
)
CALLS["random.beta"] = _rejected("beta", "a", "b", given=lambda d, shape: f"{d.pick('0.5', '3.0')}, 2.5, {shape!r}")
CALLS["random.dirichlet"] = _rejected(
    "dirichlet", "alpha", given=lambda d, shape: f"np.linspace(0.5, 3.0, {shape[-1] if shape else 1}), {shape[:-1]!r}"
)
CALLS["random.poisson"] = _rejected(
    "poisson", "rate", given=lambda d, shape: f"{d.pick('0.0', '2.5', '40.0')}, {shape!r}", dtype=False
)
CALLS["random.binomial"] = _rejected(
    "binomial", "n", "p", given=lambda d, shape: f"{d.pick(0, 9, 200)}, {d.pick('0.25', '0.75', '1.0')}, {shape!r}", dtype=False
)
CALLS["random.multivariate_normal"] = _rejected(
    "multivariate_normal", "mean", "cov", given=lambda d, shape: f"np.zeros(2), np.array([[2.0, 0.5], [0.5, 1.0]]), {shape!r}"
)


@call("random.categorical")
def _(d: Draw) -> str:
    x, shape = _shaped(d)
    d.keywords |= {"logits"}
    logits = d.pick("np.zeros(4)", "np.array([[0.5, -1.0, 2.0], [0.0, 0.0, 1.0]])")
    return f"(st.random.categorical({logits}, {shape!r}{generator(d)}), {x})"


@call("random.choice")
def _(d: Draw) -> str:
    seeded(d)
    d.keywords |= {"a", "replace", "p"}
    shape = d.shape(ranks=(1, 2))
    x = d.new(shape, values="small")
    if not shape[0]:
        raise NotACell
    how = d.pick("", f", p=np.arange(1.0, {shape[0] + 1})", ", replace=False")
    return f"st.random.choice({x}, ({1 if 'replace' in how else 3},){how}{generator(d)})"


@call("dropout")
def _(d: Draw) -> str:
    x, _ = _shaped(d)
    d.keywords |= {"p", "training"}
    return f"st.dropout({x}, {d.pick('0.5', 'p=0.0', 'p=0.5, training=False', 'p=1.0', 'p=0.1', '0.75')}{generator(d)})"


# ---- first values -------------------------------------------------------------------------------


def _first(name: str, *options: str, rank: int = 0) -> Call:
    def text(d: Draw) -> str:
        seeded(d)
        shape = d.shape(rank) if rank else d.shape(ranks=(0, 1, 2) if not rank else (rank,))
        x = d.new(shape, values="small")
        d.setup.append(f"p = st.nn.Parameter(st.zeros({shape!r}, {dtype_of(d)}))")
        d.setup.append(f"st.nn.init.{name}(p{d.pick(*options)})")
        return f"p.value + {x}" if d.dtype != "bool" else f"st.logical_xor(p.value, {x})"

    return text


_KAIMING = ("", ", nonlinearity='relu'", ", a=0.2, mode='fan_out'")
for _name, _options, _rank in (
    ("uniform_", ("", ", -1.0, 3.0"), 0),
    ("normal_", ("", ", 2.0, 0.5"), 0),
    ("trunc_normal_", ("", ", std=0.7, a=-1.0"), 0),
    ("constant_", (", 3", ", 1"), 0),
    ("zeros_", ("",), 0),
    ("ones_", ("",), 0),
    ("eye_", ("",), 2),
    ("xavier_uniform_", ("", ", gain=2.0"), 2),
    ("xavier_normal_", ("", ", gain=0.5"), 2),
    ("kaiming_uniform_", _KAIMING, 2),
    ("kaiming_normal_", _KAIMING, 2),
    ("orthogonal_", ("", ", gain=2.0"), 2),
    ("sparse_", (", 0.25", ", sparsity=0.5, std=1.0"), 2),
    ("dirac_", ("",), 3),
):
    CALLS[f"nn.init.{_name}"] = _first(_name, *_options, rank=_rank)


@call("nn.init.calculate_gain")
def _(d: Draw) -> str:
    gain = d.pick("'relu'", "'tanh'", "'leaky_relu', 0.2", "'linear'")
    return f"{d.new(d.shape(ranks=(0, 1, 2)), values='small')} * st.nn.init.calculate_gain({gain})"


@call("nn.Parameter")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, y = d.new(shape, values="small"), d.new(shape, values="small")
    d.lines += [f"p = st.nn.Parameter({x})", f"p.value = {d.pick(y, f'st.where({y} == {y}, {y}, p.value)', 'p.value')}"]
    return f"(p.value, {x})" if d.likely(50) else f"st.where({y} == {x}, p.value, {y})"


# ---- steps --------------------------------------------------------------------------------------

OPTIONS = {
    "SGD": ("", ", lr=0.1", ", lr=0.1, momentum=0.9", ", 0.1, 0.9, weight_decay=0.1, nesterov=True", ", 0.1, 0.5, 0.25"),
    "Adagrad": ("", ", lr=0.1, lr_decay=0.1", ", weight_decay=0.1, initial_accumulator_value=0.5", ", eps=0.1"),
    "Adam": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", eps=0.1"),
    "AdamW": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", weight_decay=0.0, eps=0.1"),
    "Adadelta": ("", ", lr=0.1, rho=0.5", ", weight_decay=0.1, eps=0.1"),
    "RMSprop": ("", ", lr=0.1, alpha=0.5", ", momentum=0.5, centered=True", ", eps=0.1, weight_decay=0.1"),
    "Adamax": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", eps=0.1"),
    "NAdam": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", momentum_decay=0.1, eps=0.1"),
    "RAdam": ("", ", lr=0.1", ", betas=(0.5, 0.6), weight_decay=0.1", ", eps=0.1"),
}
"""The options that are drawn for each optimiser with a smooth step; all take `eps=0.1` but the first."""

BENT = {
    "ASGD": ("", ", lr=0.1, lambd=0.1, alpha=0.5", ", weight_decay=0.1"),
    "Rprop": ("", ", lr=0.1, etas=(0.25, 1.5), step_sizes=(0.001, 1.0)"),
    "Adafactor": ("", ", lr=0.1, beta2_decay=-0.5", ", eps=(0.001, 0.1), d=2.0, weight_decay=0.1"),
    "Lion": ("", ", lr=0.1, betas=(0.5, 0.75)", ", weight_decay=0.1"),
    "Muon": ("", ", lr=0.1, momentum=0.5, nesterov=False", ", ns_steps=3, weight_decay=0.0"),
}
"""Those of the others, which are not differentiated, and have no scene of their own."""


def _optimiser(name: str) -> Call:
    def text(d: Draw) -> str:
        if name in BENT and d.smooth:
            raise NotACell(f"the step of {name} is not smooth")
        shape = d.shape(ranks=(2,) if name == "Muon" else (0, 1, 2))
        x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
        # A step of the size of its gradient's sign bends without end where the gradient is next to 0.
        options = d.pick(*DRAWN[name]) if name == "SGD" or not d.smooth else ", eps=0.1"
        if "lr" not in options and options[:3] != ", 0" and d.likely(40):
            d.keywords.add("lr")
            options += f", lr={d.new((), values='prob')}"
        d.lines.append(f"p = {d.pick('st.nn.Parameter', 'st.Variable')}({x})")
        slopes = (slope,) if name in ("Rprop", "Lion") else (slope, f"{slope} * p.value", f"{slope} + p.value")
        params, given = "[p]", f"[{d.pick(*slopes)}]"
        if len(slopes) > 1 and d.likely(40):
            other = d.new(shape if name == "Muon" else d.pick(shape, (3,)), values="small")
            d.lines.append(f"q = st.Variable({other})")
            params, given = d.pick(
                ("[p, q]", f"{given[:-1]}, q.value]"), ("{'p': p, 'q': q}", f"{{'q': q.value, 'p': {given[1:-1]}}}")
            )
        d.lines.append(f"opt = st.optim.{name}({params}{options})")
        step = f"opt.step({given})"
        d.lines += d.pick([step], [step, step], [f"for i in st.range({d.pick(0, 1, 3)}):", f"    {step}"])
        return "(p.value, q.value)" if params != "[p]" and d.likely(50) else "p.value"

    return text


DRAWN = {**OPTIONS, **BENT}
for _name in DRAWN:
    CALLS[f"optim.{_name}"] = _optimiser(_name)


@call("optim.MultiSteps")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    options = d.pick(*OPTIONS["SGD"])
    d.lines += [f"p = st.Variable({x})", f"opt = st.optim.MultiSteps(st.optim.SGD([p]{options}), {d.pick(1, 2, 3)})"]
    d.lines += [f"for i in st.range({d.pick(1, 3, 4)}):", f"    opt.step([{d.pick(slope, f'{slope} + p.value')}])"]
    return "p.value"


@call("optim.GradScaler")
def _(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    options = d.pick(
        "init_scale=8.0, growth_factor=4.0, growth_interval=2", "'cpu', 16.0, backoff_factor=0.25, enabled=True",
        "device='cpu', init_scale=2.0, growth_interval=1", "enabled=False",
    )  # fmt: skip
    # The derivative of a step that is skipped is 0 times infinity.
    factor = "" if d.smooth else d.pick("", "", " * st.where(i == 1, np.inf, 1.0)")
    d.lines += [f"p = st.Variable({x})", "opt = st.optim.SGD([p], lr=0.25)", f"scaler = st.optim.GradScaler({options})"]
    d.lines += [f"for i in st.range({d.pick(1, 3, 4)}):"]
    if "enabled=False" in options:
        d.lines += [f"    scaler.step(opt, [scaler.scale({slope})])"]
    else:
        d.lines += [f"    grads = [st.astype(scaler.scale({slope}){factor}, {slope}.dtype)]"]
        d.lines += [d.pick("    grads = scaler.unscale(grads)", "    pass"), "    scaler.step(opt, grads)"]
    d.lines += ["    scaler.update()"]
    return "p.value + st.astype(scaler.get_scale(), p.dtype)"


@call("optim.LBFGS")
def _(d: Draw) -> str:
    if d.smooth:
        raise NotACell("the first step of LBFGS has a kink where the gradient's sum is 1")
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    d.keywords |= {"lr", "max_iter"}
    d.lines += [f"p = st.Variable({x})", f"opt = st.optim.LBFGS([p], lr={d.pick(0.5, 1, 0.25)}, max_iter={d.pick(1, 2, 3)})"]
    d.lines += [f"opt.step(lambda: st.sum({slope} * p.value))"]
    return "p.value"


def _clipped(name: str) -> Call:
    def text(d: Draw) -> str:
        shape = d.shape(ranks=(0, 1, 2))
        x, y = d.new(shape, values="nonzero"), d.new(d.pick(shape, (3,)), values="nonzero")
        grads = d.pick(f"[{x}, {y}]", f"{{'a': {x}, 'b': {y}}}", f"[{x}]")
        most = d.pick("0.5", "1000.0", "1.0") if d.likely(70) else d.new((), values="positive")
        key = "'a'" if grads[0] == "{" else "0"
        if name == "clip_grad_value":
            return f"st.optim.{name}({grads}, {most})[{key}]"
        return f"st.optim.{name}({grads}, {most}){d.pick('[1]', f'[0][{key}]')}"

    return text


for _name in ("clip_grad_norm", "clip_grad_value"):
    CALLS[f"optim.{_name}"] = _clipped(_name)
