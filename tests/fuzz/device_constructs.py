"""Statements of random programs about what a GPU has a library, or a form of kernels, of its own for.

Written as those of `constructs.py` are. A third of the layers is computed in f32, since libraries have more for it.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.constructs import Construct
    from tests.fuzz.generator import Generator, Shape


def made(g: Generator, shape: Shape, dtype: str = "st.f64") -> str:
    """An expression of an array of any shape, that depends on what is around it."""
    if 0 < prod(shape) <= 12 and g.likely(40):
        text = f"({g.array(shape, 1)} + 0.0 * a0_sum)"
    else:
        rate = g.pick("0.7", "1.3", "2.1")
        text = f"st.reshape(st.sin(st.arange({prod(shape)}, dtype=st.f64) * {rate} + {g.scalar(1)} + 0.0 * a0_sum), {shape})"
    return text if dtype == "st.f64" else f"st.astype({text}, {dtype})"


def float_dtype(g: Generator) -> str:
    return g.pick("st.f32", "st.f64", "st.f64")


def bind(g: Generator, text: str, shape: Shape, factor: str = "1.0") -> None:
    """A new float array of f64, from what may be f32 or a whole number."""
    name = g.fresh("v")
    g.line(f"{name} = {factor} * st.astype({text}, st.f64) + 0.0 * a0_sum")
    g.scope.floats.append((name, shape))


def local(g: Generator, text: str) -> str:
    """A name for a value that only the next lines use."""
    name = g.fresh("l")
    g.line(f"{name} = {text}")
    return name


def positions(g: Generator, count: int, extent: int) -> str:
    """An array of indices in range, some of them negative."""
    numbers = ", ".join(str(g.chance.randrange(-extent, extent)) for _ in range(count))
    if g.likely(50):
        return f"(st.asarray([{numbers}]) + {g.integer(1)}) % {extent}"
    return f"st.asarray([{numbers}])"


# ---- layers -------------------------------------------------------------------------------------


def write_convolution(g: Generator, depth: int) -> None:
    """A convolution with or without what may be part of its call."""
    dtype = float_dtype(g)
    groups = g.chance.choice((1, 1, 2))
    B, C, F = g.chance.choice((1, 2)), 2, g.chance.choice((2, 4))
    height, width = g.chance.choice((3, 4, 5)), g.chance.choice((3, 4, 6))
    kernel = (g.chance.choice((1, 2, 3)), g.chance.choice((1, 3)))
    stride, padding = g.chance.choice((1, 1, 2)), g.chance.choice((0, 1))
    room = min(height + 2 * padding - 2 * kernel[0], width + 2 * padding - 2 * kernel[1]) + 1
    dilation = g.chance.choice((1, 1, 2)) if room >= 0 else 1
    x = local(g, made(g, (B, C, height, width), dtype))
    w = local(g, made(g, (F, C // groups, *kernel), dtype))
    bias = f", {made(g, (F,), dtype)}" if g.likely(60) else ""
    options = f"stride={stride}, padding={padding}, dilation={dilation}, groups={groups}"
    text = f"st.conv2d({x}, {w}{bias}, {options})"
    if g.likely(15):
        text = f"st.conv_transpose2d({x}, st.permute_dims({w}, (1, 0, 2, 3)), stride={stride})" if groups == 1 else text
    if g.likely(50):
        text = f"st.relu({text})"
    bind(g, f"st.mean({text}, axis=(2, 3))", (B, F))


def write_pooling(g: Generator, depth: int) -> None:
    shape = (g.chance.choice((1, 2)), 2, g.chance.choice((3, 4)), g.chance.choice((4, 5)))
    x = made(g, shape, float_dtype(g))
    kind, size = g.pick("avg_pool2d", "max_pool2d"), g.chance.choice((2, 3))
    options = f"{size}, stride={g.chance.choice((1, 2))}, padding={g.chance.choice((0, 1))}"
    bind(g, f"st.sum(st.sin(st.{kind}({x}, {options})), axis=(2, 3))", shape[:2], "0.3")


def write_norm(g: Generator, depth: int) -> None:
    dtype = float_dtype(g)
    shape = g.chance.choice(((2, 2, 3, 2), (3, 4), (4, 2, 3)))
    x = local(g, made(g, shape, dtype))
    channels = f"{made(g, (shape[1],), dtype)}, {made(g, (shape[1],), dtype)}" if g.likely(70) else ""
    form = g.chance.randrange(5)
    if form <= 1:
        normed, mean, var = g.fresh("l"), g.fresh("l"), g.fresh("l")
        g.line(f"{normed}, {mean}, {var} = st.batch_norm_training({x}{', ' if channels else ''}{channels})")
        text = f"{normed} + st.mean({mean} + {var})"
    elif form == 2:
        statistics = f"{made(g, (shape[1],), dtype)}, 0.5 + st.square({made(g, (shape[1],), dtype)})"
        text = f"st.batch_norm({x}, {statistics}{', ' if channels else ''}{channels})"
    elif form == 3:
        text = f"st.layer_norm({x}, {shape[-1:]})"
    else:
        text = f"st.group_norm({x}, 2)" if shape[1] % 2 == 0 else f"st.rms_norm({x}, {shape[-1:]}, eps=1e-3)"
    bind(g, f"st.sum(st.sin({text} * {made(g, shape, dtype)}), axis={tuple(range(2, len(shape)))})", shape[:2], "0.2")


def write_linear(g: Generator, depth: int) -> None:
    """A product with a bias and an activation."""
    dtype = float_dtype(g)
    B, D, F = g.chance.choice((1, 2, 5)), g.chance.choice((1, 3, 4)), g.chance.choice((1, 2, 8))
    x = made(g, (B, D), dtype) if g.likely(70) else f"{made(g, (D, B), dtype)}.T"
    w = made(g, (D, F), dtype) if g.likely(70) else f"{made(g, (F, D), dtype)}.T"
    text = f"{x} @ {w}"
    if g.likely(30):
        text = f"{g.number()} * ({text})"
    if g.likely(70):
        text = f"{text} + {made(g, g.chance.choice(((F,), (B, F), (1, F))), dtype)}"
    text = g.pick("st.relu({})", "st.gelu({}, approximate='tanh')", "st.gelu({})", "st.tanh({})", "({})").format(text)
    bind(g, f"st.sin({text})", (B, F))


def write_loss(g: Generator, depth: int) -> None:
    dtype = float_dtype(g)
    B, C = g.chance.choice((1, 3)), g.chance.choice((2, 5, 33))
    x = local(g, made(g, (B, C), dtype))
    labels = ", ".join(str(g.chance.randrange(C)) for _ in range(B))
    form = g.chance.randrange(4)
    if form == 0:
        bind(g, f"st.cross_entropy({x}, st.asarray([{labels}]))", (), "0.3")
    elif form == 1:
        bind(g, f"st.log_softmax({x}, axis={g.pick('0', '1')})", (B, C), "0.2")
    elif form == 2:
        bind(g, f"st.logsumexp({x}, axis=1)", (B,), "0.2")
    else:
        bind(g, f"st.mse_loss({x}, {made(g, (B, C), dtype)})", (), "0.3")


def write_recurrent(g: Generator, depth: int) -> None:
    dtype = float_dtype(g)
    T, N, D, H = g.chance.choice((1, 2, 4)), g.chance.choice((1, 2)), 2, g.chance.choice((1, 3))
    kind, gates = g.chance.choice((("lstm", 4), ("gru", 3), ("rnn", 1)))
    state = local(g, made(g, (N, H), dtype))
    given = f"({state}, {state} * 0.5)" if kind == "lstm" else state
    weights = f"{made(g, (gates * H, D), dtype)}, {made(g, (gates * H, H), dtype)}"
    if g.likely(60):
        weights += f", {made(g, (gates * H,), dtype)}, {made(g, (gates * H,), dtype)}"
    ys, last = g.fresh("l"), g.fresh("l")
    g.line(f"{ys}, {last} = st.{kind}({made(g, (T, N, D), dtype)}, {given}, {weights}, reverse={g.pick('True', 'False')})")
    end = f"{last}[1]" if kind == "lstm" else last
    bind(g, f"st.sum(st.sin({ys}), axis=0) + {end}", (N, H), "0.5")


# ---- moving elements ----------------------------------------------------------------------------


def write_scatter(g: Generator, depth: int) -> None:
    """Elements read and written by arrays of indices, some of which come twice."""
    rows, columns, count = g.chance.choice((3, 5)), g.chance.choice((1, 2, 4)), g.chance.choice((1, 2, 4))
    x = local(g, made(g, (rows, columns)))
    where = positions(g, count, rows)
    form = g.chance.randrange(6)
    if form == 0:
        bind(g, f"st.scatter_add({x}, {where}, {made(g, (count, columns))})", (rows, columns))
    elif form == 1:
        bind(g, f"{x}[{where}]", (count, columns))
    elif form == 2:
        g.line(f"{x}[{where}] += {made(g, (count, columns))}")
        bind(g, x, (rows, columns))
    elif form == 3:
        bind(g, f"st.take_along_axis({x}, st.argmax({x}, axis=0, keepdims=True), axis=0)", (1, columns))
    elif form == 4:
        g.line(f"{x}[{x} > {g.number()}] = {g.scalar(0)}")
        bind(g, x, (rows, columns))
    else:
        at = local(g, f"({g.integer(1)}) % {rows}")
        g.line(f"{x} = st.dynamic_update_slice({x}, {made(g, (1, columns))}, {at})")
        bind(g, x, (rows, columns))


def write_layout(g: Generator, depth: int) -> None:
    """Transposes of tiles' size, concatenations of several, padding, triangles."""
    rows, columns = g.chance.choice((2, 33)), g.chance.choice((3, 34))
    x = local(g, made(g, (rows, columns)))
    form = g.chance.randrange(5)
    if form == 0:
        bind(g, f"st.mean(st.sin({x}.T + {made(g, (columns, rows))}), axis=1)", (columns,))
    elif form == 1:
        bind(g, f"st.mean(st.concat([{x}, {x} * {g.scalar(1)}, {made(g, (1, columns))}], axis=0), axis=1)", (2 * rows + 1,))
    elif form == 2:
        bind(g, f"st.sum(st.sin(st.pad({x}, ((1, 0), (2, 1)), value=0.5)), axis=0)", (columns + 3,), "0.2")
    elif form == 3:
        bind(g, f"st.mean(st.tril({x}, {g.pick('-1', '0', '1')}) + {made(g, (columns,))}, axis=0)", (columns,))
    else:
        bind(g, f"st.{g.pick('max', 'min', 'mean')}({x}, axis={g.pick('0', '1', '(0, 1)')}, keepdims=True) * {x}", (rows, columns))


def write_whole_numbers(g: Generator, depth: int) -> None:
    """Arrays of whole numbers: their arithmetic, totals and positions."""
    dtype, count = g.pick("st.i32", "st.i64", "st.u8"), g.chance.choice((1, 5, 40))
    x = local(g, f"st.astype(st.floor(4.0 + 3.0 * {made(g, (count,))}) % 8.0, {dtype})")
    y = local(g, f"{x} {g.pick('+', '*', '//', '%', '^')} {g.pick('2', '3', '7')}")
    form = g.chance.randrange(4)
    if form == 0:
        bind(g, f"st.{g.pick('sum', 'max', 'min', 'argmax', 'argmin', 'count_nonzero')}({y})", (), "0.01")
    elif form == 1:
        bind(g, f"st.where({x} < {y}, {x}, {y})", (count,), "0.05")
    elif form == 2:
        name = g.fresh("k")
        g.line(f"{name} = st.astype(st.sum({y}), st.i64) % 7 + n * 0")
        g.scope.integers.append(name)
    else:
        bind(g, f"st.sum(st.one_hot(st.astype({x}, st.i64), 8), axis=0)", (8,), "0.1")


def write_random(g: Generator, depth: int) -> None:
    """Random numbers, which are the host's bits wherever they are drawn."""
    shape = g.chance.choice(((3,), (2, 3), (17,), (0, 3), ()))
    form = g.chance.randrange(6)
    if form == 0:
        bind(g, f"st.random.uniform({shape}, dtype={float_dtype(g)})", shape)
    elif form == 1:
        bind(g, f"st.random.normal({shape}, dtype=st.f64)", shape)
    elif form == 2:
        bind(g, f"st.random.bernoulli(0.4, {shape})", shape)
    elif form == 3:
        bind(g, f"st.random.permutation({g.pick('1', '9', '40')})[:1]", (1,), "0.1")
    elif form == 4:
        bind(g, f"st.random.integers(-3, 4 + n, {shape})", shape, "0.1")
    else:
        shape = shape or (5,)
        bind(g, f"st.dropout({made(g, shape)}, {g.pick('0.3', '0.5')})", shape)


# ---- loops --------------------------------------------------------------------------------------


def write_steps(g: Generator, depth: int) -> None:
    """A loop with several products an iteration and nothing that the host must wait for: what becomes a graph."""
    dtype = float_dtype(g)
    size = g.chance.choice((2, 3))
    x = local(g, made(g, (size, size), dtype))
    w = local(g, made(g, (size, size), dtype))
    hidden, turn = g.fresh("l"), g.fresh("i")
    g.line(f"{hidden} = {x} * 0.5")
    g.line(f"for {turn} in st.range({g.pick('3', '5', 'n + 2', 'n + 4')}):")
    lines = [
        f"{hidden} = st.tanh({hidden} @ {w})",
        f"{hidden} = {hidden} + st.sum({w}, axis={g.pick('0', '1')}, keepdims=True) * 0.1",
        f"{w} = {w} * 0.9 + 0.1 * ({x} @ {hidden})",
        f"{w} = st.sin({w} + 0.1 * {turn})",
        f"{x}[{turn} % {size}] = {hidden}[0] * 0.5",
        f"{hidden} = st.softmax({hidden} @ {x}, axis=-1)",
        f"{x}, {w} = {w}, {x}",
    ]
    if not g.pure:
        lines.append(f"{hidden} = {hidden} + 0.1 * st.random.uniform(({size}, {size}), dtype={dtype})")
        g.printed = True  # draws are effects too
    for text in g.chance.sample(lines, g.chance.randint(3, 5)):
        g.line(f"    {text}")
    if g.likely(20):
        g.line(f"    if {g.condition(0)}:")
        g.line(f"        {w} = {w} * 0.5")
    bind(g, f"st.sin({hidden} + {w})", (size, size))


def write_training(g: Generator, depth: int) -> None:
    """An optimiser's steps on Variables made here."""
    if not g.in_program or g.depth > 1:  # no Variable is made in a loop
        return g.write_bind(depth)
    dtype = float_dtype(g)
    D, F = g.chance.choice((1, 3)), g.chance.choice((1, 2))
    weight, bias, optimiser = g.fresh("s"), g.fresh("s"), g.fresh("l")
    x = local(g, made(g, (4, D), dtype))
    y = local(g, made(g, (4, F), dtype))
    g.line(f"{weight} = st.Variable({made(g, (D, F), dtype)})")
    g.line(f"{bias} = st.Variable(st.zeros(({F},), dtype={dtype}))")
    kind = g.pick("SGD({}, lr=0.1)", "SGD({}, lr=0.1, momentum=0.9)", "Adam({}, lr=0.05)", "AdamW({}, lr=0.05)")
    g.line(f"{optimiser} = optim.{kind.format(f'[{weight}, {bias}]')}")
    loss, slopes = g.fresh("l"), g.fresh("l")
    g.line(f"for {g.fresh('i')} in st.range({g.pick('1', '3', 'n', 'n + 2')}):")
    value = f"st.mean((st.{g.pick('relu', 'tanh')}({x} @ {weight} + {bias}) - {y}) ** 2)"
    g.line(f"    {loss}, {slopes} = st.value_and_grad(lambda: {value}, wrt=[{weight}, {bias}])()")
    g.line(f"    {optimiser}.step({slopes})")
    if g.likely(30):
        g.line(f"    print({loss} > 0.4)")
    bind(g, f"st.sin({weight} + {bias})", (D, F))
    if OPTIM not in g.headers:
        g.headers.append(OPTIM)
    return None


def write_batches(g: Generator, depth: int) -> None:
    """A loop over batches of an array, shuffled or not."""
    rows, size = g.chance.choice((4, 7)), g.chance.choice((1, 2, 3))
    x = local(g, made(g, (rows, 3), float_dtype(g)))
    total, batch = g.fresh("v"), g.fresh("l")
    g.line(f"{total} = 0.0 * a0_sum")
    g.line(f"for {batch} in st.batches({x}, size={size}, shuffle={g.pick('True', 'False')}):")
    g.line(f"    {total} = st.sin({total} + st.sum(st.astype({batch} * {batch}, st.f64) * {g.scalar(1)}))")
    g.scope.floats.append((total, ()))


# ---- what stops or prints -----------------------------------------------------------------------


def write_shown(g: Generator, depth: int) -> None:
    """A print of floats, rounded so far that last bits do not show."""
    known = [(name, shape) for name, shape in g.scope.floats + g.scope.fixed + g.scope.variables if shape != ()]
    if known and g.likely(40):
        name, _ = g.chance.choice(known)
        g.line(f'print(f"{{st.sum({name}):.3f}}", {name}.shape)')
    else:
        g.line(f'print(f"{{{g.scalar(1)}:.3f}}")')


def write_checked(g: Generator, depth: int) -> None:
    """An assert, or an index, which now and then does not hold."""
    rare = g.pick("0.0", "0.0", "0.0", "1.0")
    form = g.chance.randrange(3)
    if form == 0:
        g.line(f"assert {g.scalar(1)} < 40.0 - 60.0 * {rare}, 'too large'")
    elif form == 1:
        x = local(g, made(g, (4, 2)))
        step = "3 * n" if rare == "1.0" else "n"
        bind(g, f"({x}[{step} - {g.pick('0', '1')}, {g.pick('0', '1')}] if n < 4 else {x}[0, 0])", ())
    else:
        x = local(g, made(g, (4,)))
        last = g.pick("3", "3", "3", "n + 1")
        bind(g, f"{x}[st.asarray([0, 1]) + ({last}) % 6 - 1]", (2,))


def write_kernel(g: Generator, depth: int) -> None:
    """A launch of a kernel of the user's, which has no derivative here."""
    count = g.chance.choice((1, 5, 40))
    dtype = float_dtype(g)
    result = g.fresh("l")
    g.line("with st.with_backend(st.GPU):")
    x = f"st.sin({made(g, (count,), dtype)})"
    kernel = g.pick(
        f"doubled_kernel[{-(-count // 8)}, 8]({x}, st.zeros({count}, dtype={dtype}))",
        f"totals_kernel[3, 32]({x}, st.zeros(3, dtype={dtype}))",
    )
    g.line(f"    {result} = st.sum({kernel.replace(x, f'st.stop_gradient({x})')})")
    bind(g, result, (), "0.1")
    if KERNELS not in g.headers:
        g.headers.append(KERNELS)


KERNELS = '''\
@st.gpu_func
def doubled_kernel(x, out):
    i = st.cuda.global_index.x
    if i < len(x):
        out[i] = x[i] * 2.0 + i


@st.gpu_func
def totals_kernel(x, sums):
    parts = st.cuda.shared(32, x.dtype)
    t = st.cuda.thread_index.x
    total = x[0] * 0.0
    for i in range(st.cuda.global_index.x, len(x), st.cuda.global_size.x):
        total += x[i]
    parts[t] = total
    st.cuda.syncthreads()
    half = 16
    while half > 0:
        if t < half:
            parts[t] += parts[t + half]
        st.cuda.syncthreads()
        half //= 2
    if t == 0:
        sums[st.cuda.block_index.x] = parts[0]


'''
"""The first lines of a program that launches kernels of its own."""

OPTIM = "from staged import optim\n\n\n"
"""The first lines of a program that has optimisers."""

PURE: dict[str, tuple[Construct, int]] = {
    "convolution": (write_convolution, 0),
    "pooling": (write_pooling, 0),
    "norm": (write_norm, 0),
    "linear": (write_linear, 0),
    "loss": (write_loss, 0),
    "recurrent": (write_recurrent, 0),
    "scatter": (write_scatter, 0),
    "layout": (write_layout, 0),
    "whole numbers": (write_whole_numbers, 0),
    "steps": (write_steps, 0),
}
"""The constructs that may stand in mapped code too."""

EFFECTS: dict[str, tuple[Construct, int]] = {
    "random": (write_random, 0),
    "training": (write_training, 1),
    "batches": (write_batches, 1),
    "shown": (write_shown, 0),
    "checked": (write_checked, 0),
    "kernel": (write_kernel, 0),
}
"""The constructs that may not."""
