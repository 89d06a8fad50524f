"""Parts of a program, by which its kernels are named: the ops of an optimiser are an update.

Tested by `tests/test_generated_names.py`.
"""

from __future__ import annotations

from staged.source import begin_part, end_part

__all__ = ["begin_part", "end_part"]
