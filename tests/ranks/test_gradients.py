"""Derivatives of programs with collectives on several ranks: first and second order, both modes."""

from __future__ import annotations

import pytest

from tests.ranks import jobs

PLAIN = "tests.ranks.gradient_cases"
CONTROL_FLOW = "tests.ranks.control_flow_cases"
pytestmark = pytest.mark.ranks


@pytest.mark.core
@pytest.mark.parametrize("case", jobs.names_of(PLAIN))
def test_derivatives_of_collectives_are_those_of_differences(case):
    jobs.results_of(PLAIN, 3)[case]


@pytest.mark.core
@pytest.mark.parametrize("case", jobs.names_of(CONTROL_FLOW))
def test_derivatives_of_control_flow_are_those_of_differences(case):
    jobs.results_of(CONTROL_FLOW, 2)[case]
