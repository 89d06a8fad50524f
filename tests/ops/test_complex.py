"""Complex numbers against NumPy's, gradients against torch's: eagerly, in programs, in c64 and c128."""

from __future__ import annotations

import cmath

import numpy as np
import pytest

import staged as st
from staged.testing import compare_trees
from tests.torch_reference import reference

RNG = np.random.default_rng(5)


def draw(*shape: int, scale: float = 1.0) -> np.ndarray:
    return scale * (RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape))


Z, W = draw(3, 4), draw(3, 4)
R = RNG.standard_normal((3, 4))
INDEX = np.array([2, 0, 0])

# of z, w and r: ours, NumPy's
FUNCTIONS = {
    "add": (lambda z, w, r: z + w + r, lambda z, w, r: z + w + r),
    "subtract": (lambda z, w, r: r - z - w, lambda z, w, r: r - z - w),
    "multiply": (lambda z, w, r: z * w * r, lambda z, w, r: z * w * r),
    "divide": (lambda z, w, r: z / w, lambda z, w, r: z / w),
    "divide_by_real": (lambda z, w, r: z / r, lambda z, w, r: z / r),
    "divide_real": (lambda z, w, r: r / z, lambda z, w, r: r / z),
    "literals": (lambda z, w, r: 2j * z + (1 - 3j), lambda z, w, r: 2j * z + (1 - 3j)),
    "of_real": (lambda z, w, r: r * 1j, lambda z, w, r: r * 1j),
    "negative": (lambda z, w, r: -z, lambda z, w, r: -z),
    "abs": (lambda z, w, r: abs(z), lambda z, w, r: abs(z)),
    "angle": (lambda z, w, r: st.angle(z), lambda z, w, r: np.angle(z)),
    "conj": (lambda z, w, r: st.conj(z), lambda z, w, r: z.conj()),
    "real": (lambda z, w, r: z.real, lambda z, w, r: z.real),
    "imag": (lambda z, w, r: z.imag, lambda z, w, r: z.imag),
    "sign": (lambda z, w, r: st.sign(z), lambda z, w, r: z / abs(z)),
    "power": (lambda z, w, r: z**w, lambda z, w, r: z**w),
    "power_3": (lambda z, w, r: z**3, lambda z, w, r: z * z * z),
    "power_half": (lambda z, w, r: z**0.5, lambda z, w, r: np.sqrt(z)),
    "reciprocal": (lambda z, w, r: st.reciprocal(z), lambda z, w, r: 1 / z),
    "square": (lambda z, w, r: st.square(z), lambda z, w, r: z * z),
    "sum": (lambda z, w, r: st.sum(z, 0), lambda z, w, r: z.sum(0)),
    "mean": (lambda z, w, r: st.mean(z, 1), lambda z, w, r: z.mean(1)),
    "prod": (lambda z, w, r: st.prod(z, 1), lambda z, w, r: z.prod(1)),
    "var": (lambda z, w, r: st.var(z, 1), lambda z, w, r: z.var(1)),
    "cumsum": (lambda z, w, r: st.cumsum(z, 1), lambda z, w, r: z.cumsum(1)),
    "cumprod": (lambda z, w, r: st.cumprod(z, 1), lambda z, w, r: z.cumprod(1)),
    "zero_cumprod": (lambda z, w, r: st.cumprod(z * (R > 0), 0), lambda z, w, r: (z * (R > 0)).cumprod(0)),
    "matmul": (lambda z, w, r: z @ w.T, lambda z, w, r: z @ w.T),
    "einsum": (lambda z, w, r: st.einsum("ij,kj->ik", z, w), lambda z, w, r: np.einsum("ij,kj->ik", z, w)),
    "vecdot": (lambda z, w, r: st.vecdot(z, w), lambda z, w, r: (z.conj() * w).sum(-1)),
    "where": (lambda z, w, r: st.where(r > 0, z, w), lambda z, w, r: np.where(r > 0, z, w)),
    "reshape": (lambda z, w, r: st.reshape(z, (2, 6))[:, ::2], lambda z, w, r: z.reshape(2, 6)[:, ::2]),
    "gather": (lambda z, w, r: z[INDEX], lambda z, w, r: z[INDEX]),
    "concat": (lambda z, w, r: st.concat([z, w], 1), lambda z, w, r: np.concatenate([z, w], 1)),
    "pad": (lambda z, w, r: st.pad(z, 1, value=2), lambda z, w, r: np.pad(z, 1, constant_values=2)),
    "astype": (lambda z, w, r: st.astype(r, z.dtype), lambda z, w, r: r.astype(z.dtype)),
    "polar": (lambda z, w, r: st.polar(abs(r), r), lambda z, w, r: abs(r) * np.exp(1j * r)),
    "pairs": (lambda z, w, r: st.view_as_complex(st.view_as_real(z)), lambda z, w, r: z),
    "equal": (lambda z, w, r: z == st.where(r > 0, z, w), lambda z, w, r: z == np.where(r > 0, z, w)),
    "not_equal": (lambda z, w, r: z != w, lambda z, w, r: z != w),
    "isfinite": (lambda z, w, r: st.isfinite(z / st.where(r > 0, 0.0, r)), lambda z, w, r: ~(r > 0)),
}


def of_z(f):
    return lambda z, w, r: f(z)


MATHS = {
    name: (of_z(getattr(st, name)), of_z(getattr(np, other)))
    for name, other in {
        **{name: name for name in "exp expm1 log log1p log2 log10 sqrt sin cos tan sinh cosh tanh".split()},
        **{f"a{name}": f"arc{name}" for name in "sin cos tan sinh cosh tanh".split()},
    }.items()
}
TABLE = {**FUNCTIONS, **MATHS}
FLAT = {"equal", "not_equal", "isfinite", "astype", "of_real", "polar"}


def given(dtype):
    return Z.astype(dtype), W.astype(dtype), R.astype(np.zeros(0, dtype).real.dtype)


@st.function
def everything(z, w, r):
    return {name: ours(z, w, r) for name, (ours, _) in TABLE.items()}


@pytest.mark.parametrize("mode", ["eager", "program"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.complex64, 1e-5), (np.complex128, 1e-13)])
def test_functions_agree_with_numpy(mode, dtype, tolerance):
    z, w, r = given(dtype)
    if mode == "eager":
        with st.eager():
            found = everything(z, w, r)
    else:
        found = everything(z, w, r)
    for name, (_, numpys) in TABLE.items():
        expected = np.asarray(numpys(z, w, r))
        got = np.asarray(found[name])
        assert got.dtype == expected.dtype, name
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def weights(value):
    """Weights of the value's own dtype, so that the loss is real and sees both parts."""
    n = np.arange(int(np.prod(value.shape))).reshape(value.shape)
    return np.cos(n), np.sin(n + 1.0)


@st.function
def gradients(z, w):
    found = {}
    for name, (ours, _) in TABLE.items():
        if name in FLAT:
            continue

        def loss(z, w, ours=ours):
            value = ours(z, w, R)
            re, im = weights(value)
            return st.sum(st.real(value) * re) + st.sum(st.imag(value) * im)

        found[name] = st.grad(loss, argnums=(0, 1))(z, w)
    return found


def torch_gradients(torch, z, w):
    same = {"conj": lambda z, w, r: z.conj(), "angle": lambda z, w, r: torch.angle(z)}
    found = []
    r = torch.tensor(R)
    theirs = {
        **{name: of_z(getattr(torch, name)) for name in MATHS},
        **{name: ours for name, (ours, _) in FUNCTIONS.items()},
        **same,
        "sign": lambda z, w, r: torch.sgn(z),
        "reciprocal": lambda z, w, r: 1 / z,
        "square": lambda z, w, r: z * z,
        "sum": lambda z, w, r: z.sum(0),
        "mean": lambda z, w, r: z.mean(1),
        "prod": lambda z, w, r: z.prod(1),
        "var": lambda z, w, r: torch.var(z, 1, correction=0),
        "cumsum": lambda z, w, r: z.cumsum(1),
        "cumprod": lambda z, w, r: z.cumprod(1),
        "zero_cumprod": lambda z, w, r: (z * (r > 0)).cumprod(0),
        "einsum": lambda z, w, r: torch.einsum("ij,kj->ik", z, w),
        "vecdot": lambda z, w, r: (z.conj() * w).sum(-1),
        "where": lambda z, w, r: torch.where(r > 0, z, w),
        "reshape": lambda z, w, r: z.reshape(2, 6)[:, ::2],
        "gather": lambda z, w, r: z[torch.tensor(INDEX)],
        "concat": lambda z, w, r: torch.cat([z, w], 1),
        "pad": lambda z, w, r: torch.nn.functional.pad(z, (1, 1, 1, 1)),
        "pairs": lambda z, w, r: z + 0,
    }
    for name in TABLE:
        if name in FLAT:
            continue
        zs, ws = torch.tensor(z, requires_grad=True), torch.tensor(w, requires_grad=True)
        value = theirs[name](zs, ws, r)
        re, im = map(torch.tensor, weights(value))
        loss = (value.real * re).sum()
        if value.is_complex():
            loss = loss + (value.imag * im).sum()
        made = torch.autograd.grad(loss, [zs, ws], allow_unused=True, materialize_grads=True)
        found += [torch.view_as_real(one.resolve_conj()) for one in made]
    return found


def test_gradients_agree_with_torchs_convention():
    with st.eager():
        eager = gradients(Z, W)
    program = gradients(Z, W)
    expected = iter(reference(torch_gradients, Z, W))
    for name in eager:
        for number in (0, 1):
            wanted = next(expected)
            wanted = wanted[..., 0] + 1j * wanted[..., 1]
            for found in (eager, program):
                np.testing.assert_allclose(np.asarray(found[name][number]), wanted, rtol=1e-9, atol=1e-10, err_msg=name)


def test_second_derivatives_and_forward_mode_agree_with_differences():
    @st.function
    def run(z, d):
        def loss(z):
            return st.sum(st.abs(st.exp(z) / (z + 2.0)) ** 2)

        _, tangent = st.jvp(st.grad(loss), (z,), (d,))
        return st.jvp(loss, (z,), (d,))[1], st.grad(loss)(z), tangent

    z, d = draw(3), draw(3)
    with st.eager():
        eager = run(z, d)
    slope, gradient, tangent = run(z, d)
    compare_trees(eager, (slope, gradient, tangent), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(slope, (gradient.conj() * d).real.sum(), rtol=1e-12)
    h = 1e-6
    difference = (run(z + h * d, d)[1] - run(z - h * d, d)[1]) / (2 * h)
    np.testing.assert_allclose(tangent, difference, rtol=1e-6, atol=1e-6)


def test_the_slope_by_an_exponent_of_zero_is_the_logarithm():
    z = np.array([2.0, 3.0j, -1.0 + 1.0j])
    slopes = st.function(lambda w: st.jvp(lambda w: z**w, (w,), (np.ones(3, complex),))[1])
    np.testing.assert_allclose(np.asarray(slopes(np.zeros(3, complex))), np.log(z), rtol=1e-14)


def test_control_flow_variables_and_numbers_carry_complex_values():
    weight = st.Variable(Z[0].astype(np.complex64))

    @st.function
    def run(n, s, t):
        history = []
        for _ in st.range(n):
            weight.value = weight.value * s
            t = t * s + weight.value[0]
            if st.abs(t) > 1.5:
                t = t / 2
        history.append(t)
        return history, st.vmap(lambda row: row * row.conj())(weight.value[None])

    def plain(n, s, t):
        held = Z[0].astype(np.complex64)
        for _ in range(n):
            held = held * s
            t = t * s + held[0]
            if abs(t) > 1.5:
                t = t / 2
        return [t], held[None] * held[None].conj()

    expected = plain(5, np.complex64(0.9 + 0.3j), 0.5 + 1j)
    found = run(5, np.complex64(0.9 + 0.3j), np.complex64(0.5 + 1j))
    compare_trees(found, expected, rtol=1e-5, atol=1e-6)


def test_gradient_through_a_loop_keeps_complex_residuals():
    @st.function
    def run(z, n):
        def loss(z):
            w = z
            for _ in st.range(n):
                w = st.sin(w) * z + 0.5j
            return st.sum(st.abs(w))

        return st.grad(loss)(z)

    z = draw(4, scale=0.5)
    with st.eager():
        expected = run(z, 4)
    np.testing.assert_allclose(run(z, 4), expected, rtol=1e-10)


def test_dtypes_promote_as_the_standard_says():
    pairs = [
        (st.f32, st.c64, st.c64), (st.f64, st.c64, st.c128), (st.f32, st.c128, st.c128), (st.i64, st.c64, st.c64),
        (st.c64, st.c128, st.c128), (st.bool_, st.c64, st.c64),
    ]  # fmt: skip
    for a, b, both in pairs:
        assert st.result_type(a, b) is both is st.result_type(b, a)
    assert (st.asarray(np.zeros(2, np.float32)) * 1j).dtype is st.c64
    assert (st.asarray(np.zeros(2)) * 1j).dtype is st.c128
    assert (st.asarray(np.zeros(2, np.int32)) * 1j).dtype is st.c64
    assert st.asarray([1, 2j]).dtype is st.c64 is st.complex64
    assert st.isdtype(st.c128, "complex floating") and st.finfo(st.c64).bits == 32


def test_division_and_roots_keep_to_the_range():
    big, small = 1e300, 1e-300
    for z, w in [(big + big * 1j, big - big * 1j), (small, small * 1j), (1 + 1j, small + 0j)]:
        np.testing.assert_allclose(complex(st.divide(np.complex128(z), np.complex128(w))), z / w, rtol=1e-14)
    for z in (big * (1 + 1j), small * (3 - 4j), -4 + 0j, complex(-4, -0.0), 0j, -1e-310 + 0j):
        np.testing.assert_allclose(complex(st.sqrt(np.complex128(z))), cmath.sqrt(z), rtol=1e-14)
    for z in (1 + 1e-9j, 1e-9 - 1j):  # the unit circle, where the real part is small
        np.testing.assert_allclose(complex(st.log(np.complex128(z))).real, cmath.log(z).real, rtol=1e-12)
    for z in (1000 + 1j, -1000 + 0.5j, 2 - 1.5707963267948966j):
        np.testing.assert_allclose(complex(st.tanh(np.complex128(z))), cmath.tanh(z), rtol=1e-13, atol=1e-300)


def test_derivative_of_abs_at_zero_is_zero():
    assert np.asarray(st.grad(lambda z: st.abs(z))(np.complex64(0))) == 0


@pytest.mark.parametrize(
    "name",
    [
        "floor",
        "max",
        "argmin",
        "sort",
        "maximum",
        "erf",
        "relu",
        "less",
        "floor_divide",
        "logaddexp",
        "sigmoid",
        "hypot",
    ],
)
def test_functions_without_a_complex_meaning_are_refused(name):
    function = getattr(st, name)
    operands = (Z, W) if name in ("maximum", "less", "floor_divide", "logaddexp", "hypot") else (Z,)

    @st.function
    def run(*operands):
        return function(*operands)

    with pytest.raises(st.DTypeError, match="not defined for complex numbers") as error:
        run(*operands)
    assert "test_complex.py" in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: st.max_pool2d(x, 2, ceil_mode=True),
        lambda x: st.grid_sample(x, np.zeros((1, 2, 2, 2), np.float32), padding_mode="reflection"),
    ],
    ids=["a pool over the edge", "places that are reflected"],
)
def test_calls_that_pass_by_a_type_rule_are_refused(call):
    with pytest.raises(st.DTypeError, match="not defined for complex numbers") as error:
        call(np.ones((1, 2, 5, 5), np.complex64))
    assert "test_complex.py" in str(error.value)


def test_what_would_lose_the_imaginary_part_is_refused():
    with pytest.raises(st.DTypeError, match="imaginary part would be lost"):
        st.astype(Z, st.f64)
    with pytest.raises(st.DTypeError, match="it is complex"):
        st.full((2,), 1j, st.f32)
    with pytest.raises(st.GradientError, match="needs a real number"):
        st.grad(lambda z: st.sum(z))(Z)

    @st.function
    def told(z):
        st.callback(print, z)

    with pytest.raises(st.DTypeError, match="takes real numbers") as error:
        told(Z)
    assert "test_complex.py" in str(error.value)


def test_arrays_are_numpys_in_memory_and_in_c():
    @st.function
    def twice(z):
        return z * 2.0

    program = twice.stage(Z.astype(np.complex64))
    assert "const float *z;" in program.header and "c64 (3, 4)" in program.header
    assert twice(np.asfortranarray(Z)).dtype == np.complex128
    with pytest.raises(st.DTypeError, match="must be c64, got complex128"):
        program.runnable([Z])


def test_torchs_resolve_functions_change_no_element_and_logsumexp_of_a_number_is_refused():
    """They were taken for the conjugate, and a number's imaginary part for that of the logarithm of its exponential."""
    z = st.asarray(Z)
    compare_trees([z.resolve_conj(), z.resolve_neg()], [Z, Z], rtol=0)
    with pytest.raises(st.DTypeError, match="logsumexp is not defined for complex numbers"):
        st.logsumexp(z[0, 0])
