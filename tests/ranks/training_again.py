"""Two of the trainings, for a job that runs them again."""

from __future__ import annotations

from tests.ranks.training import case_cnn, case_mlp

__all__ = ["case_cnn", "case_mlp"]
