"""Faults planted in what ops declare, and in what asks the declarations."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

_MAPPED = ("tests/batching/test_ops.py", "-k", "every_primitive or composites")
_ROWS = ("tests/backends/test_rows.py", "-k", "told")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a mapped reduction keeps its axes",
        "ops.primitive:next_axes",
        '(axis + 1 for axis in attrs["axes"])',
        'attrs["axes"]',
        _MAPPED,
    ),
    Mutant(
        "a mapped slice leaves the first element out",
        "ops.shape:_slice_op",
        '(0, *attrs["start"])',
        '(1, *attrs["start"])',
        _MAPPED,
    ),
    Mutant(
        "a mapped composite counts its axes as one element does",
        "library.elementwise.activations:_log_softmax",
        "next_axis",
        "lambda attrs, size: attrs",
        _MAPPED,
    ),
    Mutant(
        "a quotient runs where its branch was not taken",
        "ops.elementwise:divide",
        'binary("divide", np.divide, FLOATS, [lambda t, y, a, b: t / b, lambda t, y, a, b: -(t * (y / b))], '
        'mixes=True, low=0.5, doc="a / b, a float: integers become f32 (Python numbers f64) first. IEEE: 1 / 0 is '
        'inf, 0 / 0 is NaN.", expensive=True, numpy=("true_divide",), torch=("div", "true_divide"))',
        'binary("divide", np.divide, FLOATS, [lambda t, y, a, b: t / b, lambda t, y, a, b: -(t * (y / b))], '
        'mixes=True, low=0.5, doc="a / b, a float: integers become f32 (Python numbers f64) first. IEEE: 1 / 0 is '
        'inf, 0 / 0 is NaN.", harmless=True, expensive=True, numpy=("true_divide",), torch=("div", "true_divide"))',
        ("tests/batching",),
    ),
    Mutant(
        "an infinity has no share of itself",
        "ops.elementwise:_share",
        "select(isinf(y) & (each == y), zeros_of(y), each - y)",
        "each - y",
        ("tests/ops/test_special_points.py",),
    ),
    Mutant(
        "two equal infinities have a gap",
        "code.support.math:_logaddexp",
        Text("twice = x + {v.number(math.log(2.0))};"),
        "twice = top + rest;",
        ("tests/backends/host/test_scalars.py", "-k", "logaddexp"),
    ),
    Mutant(
        "exp of minus infinity underflows",
        "code.support.math:_EXP_RANGE",
        "(-176.0, 89.0)",
        "(-104.0, 89.0)",
        ("tests/runtime/test_support.py", "-k", "minus_infinity"),
    ),
    Mutant(
        "exp leaves out numbers that do not round to 0",
        "code.support.math:_EXP_ZERO",
        '{"f32": -104.0, "f64": -746.0}',
        '{"f32": -103.0, "f64": -746.0}',
        ("tests/backends/support/test_math.py", "-k", "test_unary and exp and f32"),
    ),
    Mutant(
        "NumPy's function of the same name is not ours",
        "ops.public:internal.enter",
        "(name,) if hasattr(np, name) else ()",
        "()",
        ("tests/ops/test_numpy_map.py",),
    ),
    Mutant(
        "a row that is missing is found by the C compiler",
        "code.scalars:_supported",
        'f"{name}_{dtype}" not in snippets()',
        "False",
        _ROWS,
    ),
    Mutant(
        "what gathers elements is copied into every kernel that reads them",
        "ir.declaration:Declaration.is_move",
        '("viewed", "moved")',
        '("viewed", "moved", "gathered")',
        ("tests/kernels/test_groups.py",),
    ),
    Mutant(
        "a cheap op is kept for the reverse",
        "autodiff.residuals:_is_cheap",
        "not op.declared.expensive",
        "op.declared.expensive",
        ("tests/autodiff/test_residuals.py",),
    ),
)
