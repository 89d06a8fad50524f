"""Every op of the table through the whole line: one op after another, chained into neighbours, at odd shapes, strictly compiled.

`tests/ops/test_native.py` compares each declared sample by itself; here the same samples meet fusion (something before
and after each op), shapes with 0 and 1, every composite with its gradient, and a C compiler that complains.
"""

from __future__ import annotations

import subprocess

import numpy as np
import pytest

import staged as st
from staged.ops.composite import COMPOSITES
from staged.ops.context import bind_all
from staged.ops.primitive import PRIMITIVES
from staged.testing import compare_trees
from tests.ops.cases import operands_of, smooth_operands

KINDS = sorted({primitive.kind for primitive in PRIMITIVES.values()})
STRICT = "-std=c11 -O2 -ffp-contract=off -Wall -Wextra -Wconversion -Werror"
RNG = np.random.default_rng(0)


def cases_of(kind):
    for primitive in PRIMITIVES.values():
        if primitive.kind == kind and primitive.name != "constant":
            for sample in primitive.samples:
                for dtype in sample.dtypes if sample.operands else sample.dtypes[:1]:
                    yield primitive, sample, operands_of(sample, dtype)


def samples_of(kind):
    cases = list(cases_of(kind))

    @st.function
    def program(groups):
        made = []
        for (primitive, sample, operands), group in zip(cases, groups, strict=True):
            smooth = smooth_operands(primitive, sample, operands)
            # Something before and after, so that fusion has neighbours to join.
            given = [value * 1.0 + 0.0 if index in smooth else value for index, value in enumerate(group)]
            for result in bind_all(primitive, given, **sample.attrs):
                made += [result, st.abs(result) + result if kind != "size" and result.dtype.is_float else result]
        return made

    return program, [tuple(case[2]) for case in cases]


def both(program, *args):
    with st.eager():
        expected = program(*args)
    return program(*args), expected


def close(found, expected) -> None:
    # One tolerance for f32: polynomials of the back end.
    compare_trees(found, expected, rtol=4e-6, atol=4e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_ops_between_neighbours(kind) -> None:
    program, groups = samples_of(kind)
    close(*both(program, groups))


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("kind", KINDS)
def test_strict_compilers_have_nothing_to_say(kind, target, tmp_path) -> None:
    program, groups = samples_of(kind)
    program.stage(groups).export(tmp_path, target=target)
    flags = STRICT.split() + (["-march=native"] if target == "native" else [])
    # The other files of the folder have the program's name with a word behind it.
    source = min((path for path in tmp_path.glob("*.c") if path.name != "main.c"), key=lambda path: len(path.name))
    subprocess.run(["gcc", *flags, "-c", source.name, "-o", "program.o"], cwd=tmp_path, check=True)


def test_a_bytes_complement_may_be_compared(tmp_path) -> None:
    """gcc suspects a comparison with the promoted complement of a byte, whatever it is cast to."""

    @st.function
    def complement(x):
        return ~st.minimum(x, 7) <= 2, ~x > 250

    complement.stage(np.arange(5, dtype=np.uint8)).export(tmp_path, target="native")
    command = ["cc", *STRICT.split(), "-c", "complement.c", "-o", "program.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- composites ---------------------------------------------------------------------------------

LABELS = np.array([2, 0, 1])


def waves(*shape):
    return np.sin(np.arange(1.0, np.prod(shape) + 1.0)).reshape(shape)


CALLS = {
    "binary_cross_entropy_with_logits": lambda x: st.binary_cross_entropy_with_logits(x, st.sigmoid(2.0 * x)),
    "binary_cross_entropy": lambda x: st.binary_cross_entropy(st.sigmoid(x), st.sigmoid(2.0 * x)),
    "cross_entropy": lambda x: st.cross_entropy(x[:3, :3], LABELS) if x.shape[0] >= 3 and x.shape[1] >= 3 else x.sum(),
    "nll_loss": lambda x: st.nll_loss(x[:3, :3], LABELS) if x.shape[0] >= 3 and x.shape[1] >= 3 else x.sum(),
    "huber_loss": lambda x: st.huber_loss(x, 0.5 * x),
    "l1_loss": lambda x: st.l1_loss(x, 0.5 * x),
    "mse_loss": lambda x: st.mse_loss(x, 0.5 * x),
    "layer_norm": lambda x: st.layer_norm(x, (x.shape[1],)),
    "rms_norm": lambda x: st.rms_norm(x),
    "dropout": lambda x: st.dropout(x, 0.0),
    "rnn": lambda x: st.rnn(x[:, None], None, waves(3, x.shape[1]), waves(3, 3))[0],
    "lstm": lambda x: st.lstm(x[:, None], None, waves(12, x.shape[1]), waves(12, 3), waves(12), waves(12))[0],
    "gru": lambda x: st.gru(x[:, None], None, waves(9, x.shape[1]), waves(9, 3), waves(9), waves(9))[0],
    "ctc_loss": lambda x: st.ctc_loss(st.log_softmax(st.concat([x, x], axis=1)), LABELS[2:], x.shape[0], 1),
    "polygamma": lambda x: st.polygamma(1, 0.5 + x * x),
    "batch_norm_training": lambda x: st.batch_norm_training(st.concat([x, 0.5 * x - 1.0]))[0],
}


def applied(name, x):
    return CALLS[name](x) if name in CALLS else getattr(st, name)(x)


def test_composites_as_declared_and_their_gradients() -> None:
    cases = [(one, sample, operands_of(sample, st.f64)) for one in COMPOSITES.values() for sample in one.samples]

    @st.function
    def program(groups):
        made = []
        for (one, sample, _), (x, *rest) in zip(cases, groups, strict=True):

            def first(x, rest=rest, one=one, attrs=sample.attrs):
                return one(st.asarray(x), *map(st.asarray, rest), **attrs)[0]

            made += [first(x)]
            if x.dtype.is_float:
                made += [st.grad(lambda x, first=first: st.sin(first(x)).sum())(x)]
        return made

    found, expected = both(program, [tuple(operands) for _, _, operands in cases])
    compare_trees(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("shape", [(5, 4), (1, 4), (3, 1), (1, 1), (2, 17)])
def test_composites_and_their_gradients_at_odd_shapes(shape) -> None:
    of_one = [
        name for name, one in COMPOSITES.items() if hasattr(st, name) and all(len(s.operands) == 1 for s in one.samples)
    ]
    names = list(dict.fromkeys([*of_one, *CALLS]))
    assert len(names) > 8

    @st.function
    def program(x):
        def loss(x, name):
            made = applied(name, x)
            return (made * np.cos(np.arange(made.size)).reshape(made.shape)).sum()

        return {name: (applied(name, x), st.grad(lambda x, n=name: loss(x, n))(x)) for name in names}

    found, expected = both(program, RNG.uniform(-2.0, 2.0, shape))
    compare_trees(found, expected, rtol=1e-11, atol=1e-11)


# ---- shapes -------------------------------------------------------------------------------------


def walks(x):
    """Reductions over any axes, views and broadcasts of one array of three axes."""
    made = []
    for axis in (None, 0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        for keepdims in (False, True):
            made += [st.sum(x * x, axis=axis, keepdims=keepdims), st.prod(x, axis=axis, keepdims=keepdims)]
            made.append(st.any(x > 0, axis=axis, keepdims=keepdims))
            if x.size:
                made += [st.max(x, axis=axis, keepdims=keepdims), st.mean(st.exp(x), axis=axis, keepdims=keepdims)]
    made += [x - x.sum(axis=axis, keepdims=True) for axis in (0, 1, 2)]
    made += [st.permute_dims(x, order) * 2.0 for order in ((2, 1, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1))]
    made += [st.flip(x, axis=axis) + x for axis in (0, 1, 2)]
    made += [st.concat([x, x[:, ::-1]], axis=axis) for axis in (0, 1, 2)] + [st.stack([x, x], axis=1)]
    made += [st.pad(x, ((1, 0), (0, 2), (1, 1))) + 1.0, st.reshape(st.permute_dims(x, (1, 2, 0)), (x.size,))]
    return made


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 1), (1, 1, 1), (0, 3, 2), (2, 0, 1), (3, 2, 0), (3, 1, 17)])
def test_walks_of_every_shape(shape) -> None:
    @st.function
    def program(x):
        def loss(x):
            return sum((st.sin(made) * made).sum() for made in walks(x) if made.dtype.is_float)

        return walks(x), st.grad(loss)(x)

    found, expected = both(program, RNG.uniform(0.5, 1.5, shape))
    compare_trees(found, expected, rtol=1e-10, atol=1e-10)
