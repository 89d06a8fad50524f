"""Optimisers whose state is in pieces: each rank updates its piece of the parameters (ZeRO, stage 1).

The gradients are summed piece by piece, each rank updates its piece, and all ranks receive the new parameters. Small
parameters share a message. Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter
Models, 2020.

Tested by `tests/ranks/test_sharded_optimizers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import staged as st
from staged.saving.pieces import Split

BUCKET = 4 << 20
"""Bytes: parameters that are smaller share a message of at least this size."""


class ParamPiece:
    """The piece of a parameter that this rank updates."""

    def __init__(self, param: Any, split: Split, piece: Any) -> None:
        self.param, self.name, self.dtype = param, param.name, param.dtype
        self.shape: tuple[int, ...] = (split.size(param.shape),)
        self.value: Any = piece


def computed_in(param: Any) -> Any:
    """The dtype in which an update is computed, and the state of a parameter kept: f32 for f16 and bf16."""
    return st.f32 if param.dtype.is_half else param.dtype


class Widened:
    """An f16 or bf16 parameter in its update: f32, which is rounded once when the update writes it."""

    dtype = st.f32

    def __init__(self, param: Any) -> None:
        self.param, self.name, self.shape = param, param.name, param.shape

    @property
    def value(self) -> Any:
        """The value in f32."""
        return st.astype(self.param.value, st.f32)

    @value.setter
    def value(self, value: Any) -> None:
        self.param.value = st.astype(value, self.param.dtype)


def take_pieces(split: Split, params: Sequence[Any], grads: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The pieces of the parameters and of their gradients."""
    taken: dict[int, Any] = {}
    for bucket in _buckets(params, grads):
        pieces = split.pieces([grads[index] for index in bucket])
        taken |= dict(zip(bucket, pieces, strict=True))
    own = [ParamPiece(param, split, split.piece(param.value)) for param in params]
    return own, [taken[index] for index in range(len(params))]


def give_pieces(split: Split, pieces: Sequence[Any]) -> None:
    """Write the new values of all pieces to the parameters of all ranks."""
    for bucket in _buckets(pieces, [piece.param for piece in pieces]):
        params = [pieces[index].param for index in bucket]
        arrays = split.whole([pieces[index].value for index in bucket], [param.shape for param in params])
        for param, array in zip(params, arrays, strict=True):
            param.value = array


def _buckets(params: Sequence[Any], arrays: Sequence[Any]) -> list[list[int]]:
    """The indices of arrays that share a message: a bucket is closed when it has `BUCKET` bytes."""
    buckets: list[list[int]] = []
    last: dict[Any, tuple[list[int], int]] = {}
    for index, (param, array) in enumerate(zip(params, arrays, strict=True)):
        nbytes = math.prod(array.shape) * param.dtype.itemsize
        key = param.dtype, array.dtype
        bucket, size = last.get(key, ([], BUCKET))
        if nbytes >= BUCKET:
            buckets.append([index])
            continue
        if size >= BUCKET:
            bucket, size = [], 0
            buckets.append(bucket)
        bucket.append(index)
        last[key] = bucket, size + nbytes
    return buckets
