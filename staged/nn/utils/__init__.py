"""`nn.utils`: of torch's, `rnn` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.nn.utils import rnn

__all__ = ["rnn"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("nn.utils", __all__)
