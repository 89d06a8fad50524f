"""Faults planted in what ops declare, and in what asks the declarations."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_MAPPED = ("tests/batching/test_ops.py", "-k", "every_primitive or composites")
_ROWS = ("tests/backends/test_rows.py", "-k", "told")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a mapped reduction keeps its axes",
        "staged/ops/primitive.py",
        '{**attrs, "axes": tuple(axis + 1 for axis in attrs["axes"])}',
        '{**attrs, "axes": tuple(attrs["axes"])}',
        _MAPPED,
    ),
    Mutant(
        "a mapped slice leaves the first element out",
        "staged/ops/shape.py",
        '"start": (0, *attrs["start"]),',
        '"start": (1, *attrs["start"]),',
        _MAPPED,
    ),
    Mutant(
        "a mapped composite counts its axes as one element does",
        "staged/ops/composites.py",
        "    jvp=_log_softmax_jvp,\n    shift=next_axis,",
        "    jvp=_log_softmax_jvp,\n    shift=lambda attrs, size: attrs,",
        _MAPPED,
    ),
    Mutant(
        "a quotient runs where its branch was not taken",
        "staged/ops/elementwise.py",
        'IEEE: 1 / 0 is inf, 0 / 0 is NaN.",',
        'IEEE: 1 / 0 is inf, 0 / 0 is NaN.", harmless=True,',
        ("tests/batching",),
    ),
    Mutant(
        "an infinity has no share of itself",
        "staged/ops/elementwise.py",
        "gap = select(x == y, zeros_of(y), x - y)",
        "gap = x - y",
        ("tests/ops/test_special_points.py",),
    ),
    Mutant(
        "two equal infinities have a gap",
        "staged/backends/c_family/support/math.py",
        "twice = x + {v.number(math.log(2.0))};",
        "twice = top + rest;",
        ("tests/backends/c_family/test_scalars.py", "-k", "logaddexp"),
    ),
    Mutant(
        "exp of minus infinity underflows",
        "staged/backends/c_family/support/math.py",
        '_EXP_RANGE = {"f32": (-176.0, 89.0)',
        '_EXP_RANGE = {"f32": (-104.0, 89.0)',
        ("tests/runtime/test_support.py", "-k", "minus_infinity"),
    ),
    Mutant(
        "exp leaves out numbers that do not round to 0",
        "staged/backends/c_family/support/math.py",
        '_EXP_ZERO = {"f32": -104.0',
        '_EXP_ZERO = {"f32": -103.0',
        ("tests/backends/support/test_math.py", "-k", "test_unary and exp and f32"),
    ),
    Mutant(
        "NumPy's function of the same name is not ours",
        "staged/ops/public.py",
        "(name,) if hasattr(np, name) else ()",
        "()",
        ("tests/ops/test_numpy_map.py",),
    ),
    Mutant(
        "a row that is missing is found by the C compiler",
        "staged/backends/c_family/scalars.py",
        'if f"{name}_{dtype}" not in snippets():',
        "if False:",
        _ROWS,
    ),
    Mutant(
        "what gathers elements is copied into every kernel that reads them",
        "staged/ir/declaration.py",
        'return self.elements in ("viewed", "moved")',
        'return self.elements in ("viewed", "moved", "gathered")',
        ("tests/kernels/test_groups.py",),
    ),
    Mutant(
        "a cheap op is kept for the reverse",
        "staged/autodiff/residuals.py",
        "op.declared.kind in _CHEAP_KINDS and not op.declared.expensive",
        "op.declared.kind in _CHEAP_KINDS and op.declared.expensive",
        ("tests/autodiff/test_residuals.py",),
    ),
)
