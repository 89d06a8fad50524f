"""C's operators, by op.

Tested by `tests/kernels/test_kernels.py`.
"""

from __future__ import annotations

COMPARISONS = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
"""C's operators of these ops."""
OPPOSITES = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
ARITHMETIC = {"add": "+", "subtract": "-", "multiply": "*"}
LOGICAL = {"logical_and": "&&", "logical_or": "||", "logical_xor": "!="}
BITWISE = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
EXTREMES = {"maximum": ">", "minimum": "<"}
"""The comparison that a number passes if it is beyond the extreme so far."""
