"""torch's own samples of its ops on our functions of the same names: values, vjp and jvp in eager mode, of floats and of complex
numbers, and compiled programs. What differs is excused in `excused.py`, with a reason; an excuse that is not needed fails.

`make test-all` checks a sample of the samples, `make test-full` all of them. `python -m tests.torch_samples` counts: records of
`op_db`, those that are ours, samples that agree and that are excused; `--programs 8` compiles so many of each, with `--complex`
they are complex.
"""

from __future__ import annotations

from types import ModuleType

import pytest

import staged as st

PARTS = 8
"""All records are divided into so many tests, which run side by side."""
MOST, MOST_FULL = 12, 0
"""Samples of a record in eager mode, in `make test-all` and in `make test-full` (0: all samples)."""
MOST_COMPLEX, MOST_COMPLEX_FULL = 4, 32
"""Those of complex numbers, which differ from the others in their elements alone."""
IN_A_PROGRAM = 2
"""Samples of each record that are compiled: one of f32 and one of f64 with other options, as a rule."""
COMPILED = 4
"""In `make test-all` the samples of one record in so many are compiled, by the digest of its name."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_samples_agree_with_torch_or_are_excused(part: int, torch: ModuleType, full: bool) -> None:
    from tests.torch_samples.survey import survey

    found = survey(part, PARTS, most=MOST_FULL if full else MOST)
    assert not found.failures, "\n".join(found.failures[:40])
    assert not found.unneeded, f"excuses that nothing needs: {found.unneeded}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_complex_samples_agree_with_torch_or_are_excused(part: int, torch: ModuleType, full: bool) -> None:
    from tests.torch_samples.check import COMPLEX
    from tests.torch_samples.survey import survey

    found = survey(part, PARTS, most=MOST_COMPLEX_FULL if full else MOST_COMPLEX, dtypes=COMPLEX)
    assert not found.failures, "\n".join(found.failures[:40])
    assert not found.unneeded, f"excuses that nothing needs: {found.unneeded}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_programs_agree_with_torch_or_are_excused(part: int, torch: ModuleType, full: bool) -> None:
    from tests.torch_samples.survey import survey

    found = survey(part, PARTS, IN_A_PROGRAM, one_in=1 if full else COMPILED)
    assert not found.failures, "\n".join(found.failures[:40])
    assert found.agree > found.mapped


def test_a_wrong_function_is_seen(torch: ModuleType) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.torch_samples.check import check, samples

    record = next(record for record in op_db if record.name == "tanh")
    sample = samples(record, torch.float64)[0]
    assert check(record, sample, st.tanh, torch.float64) is None
    assert str(check(record, sample, st.sin, torch.float64)).startswith("value: differs")
    still = check(record, sample, lambda x: st.stop_gradient(st.tanh(x)), torch.float64)
    assert str(still).startswith("vjp: differs")


@pytest.mark.parametrize(
    ("wrong", "failure"),
    [
        (lambda x: st.tanh(x), None),
        (lambda x: st.sin(x), "program's value: differs"),
        (lambda x: st.stop_gradient(st.tanh(x)), "program's vjp: differs"),
        (lambda x: st.full(x.shape, float(x), dtype=x.dtype), "program: StagedValueError"),
    ],
)
def test_a_wrong_program_is_seen(wrong, failure, torch: ModuleType) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.torch_samples.check import samples
    from tests.torch_samples.compiled import Case, failures

    record = next(record for record in op_db if record.name == "tanh")
    case = Case(record, samples(record, torch.float64)[0], torch.float64, True)
    found = [str(each) for _, each in failures([case, case], wrong)]
    assert found == [] if failure is None else len(found) == 2 and all(each.startswith(failure) for each in found)
