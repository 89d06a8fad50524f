"""torch's own samples of its ops on our functions of the same names: values, vjp and jvp in eager
mode. What differs is excused in `excused.py`, with a reason; an excuse that is not needed fails.

`python -m tests.torch_samples` counts: records of `op_db`, those that are ours, samples that agree and that are excused.
"""

from __future__ import annotations

from types import ModuleType

import pytest

import staged as st

PARTS = 8
"""All records are divided into so many tests, which run side by side."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_samples_agree_with_torch_or_are_excused(part: int, torch: ModuleType) -> None:
    from tests.torch_samples.survey import survey

    found = survey(part, PARTS)
    assert not found.failures, "\n".join(found.failures[:40])
    assert not found.unneeded, f"excuses that nothing needs: {found.unneeded}"


def test_a_wrong_function_is_seen(torch: ModuleType) -> None:
    from torch.testing._internal.common_methods_invocations import op_db

    from tests.torch_samples.check import check, samples

    record = next(record for record in op_db if record.name == "tanh")
    sample = samples(record, torch.float64)[0]
    assert check(record, sample, st.tanh, torch.float64) is None
    assert str(check(record, sample, st.sin, torch.float64)).startswith("value: differs")
    still = check(record, sample, lambda x: st.stop_gradient(st.tanh(x)), torch.float64)
    assert str(still).startswith("vjp: differs")
