"""`nn.utils.rnn`: sequences of different lengths, by torch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.packing import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence, pad_sequence

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence"]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("nn.utils.rnn", __all__)
