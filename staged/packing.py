"""Sequences of different lengths as one padded array: torch's functions of `nn.utils.rnn`.

Tested by `tests/nn/test_recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from staged.base.other_names import no_attribute
from staged.ir.sizes import largest
from staged.library.sequences.lengths import checked_lengths, without_padding
from staged.ops.array import Array
from staged.ops.checks import known_extent, stop_unless
from staged.ops.dimension import size_number
from staged.ops.joining import stack
from staged.ops.promote import as_array, check_argument, shape_error
from staged.ops.shape import pad, slice_axis, swapaxes


class PackedSequence(NamedTuple):
    """Sequences of different lengths, in the order that they were given in: torch's `PackedSequence`.

    The data stays padded, since no array has as many elements as the program finds: `padded` is (T, N, ...), `lengths`
    is (N,). `packed._replace(padded=f(packed.padded))` has sequences of the same lengths with other elements.
    """

    padded: Any
    lengths: Any

    def __getattr__(self, name: str) -> Any:
        answer = ""
        if name in ("data", "batch_sizes", "sorted_indices", "unsorted_indices"):
            answer = ": its data stays padded: use `.padded` (T, N, ...) and `.lengths`"
        raise no_attribute("a PackedSequence has", name, answer)


def pack_padded_sequence(
    input: Any, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """The sequences of an array that is padded to T steps, for a recurrent layer. torch `nn.utils.rnn`.

    Shapes: input (T, N, ...), or (N, T, ...) with `batch_first`; lengths (N,), from 1 to T. Results of the layer keep T
    steps, those beyond a length are 0.
    Raises: a length that is out of range, or longer than the one before it if `enforce_sorted`, stops the program with
    the line.
    """
    x = _steps_first("pack_padded_sequence", as_array(input), batch_first)
    numbers = checked_lengths("pack_padded_sequence", lengths, x)
    if enforce_sorted:
        message = "a length is larger than the one before it: `enforce_sorted=False` takes any order"
        stop_unless(numbers[1:] <= numbers[:-1], f"pack_padded_sequence: {message}")
    return PackedSequence(x, numbers)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Array, Array]:
    """(the padded array, the lengths) of packed sequences, with `padding_value` beyond each. torch `nn.utils.rnn`.

    The array has the number of steps that it was packed with, or `total_length`. torch's default is the largest length,
    which the program alone knows.
    Raises: a sequence that is longer than `total_length` stops the program with the line.
    """
    check_argument(
        isinstance(sequence, PackedSequence),
        f"pad_packed_sequence takes a PackedSequence, got {type(sequence).__name__}",
    )
    x, lengths = as_array(sequence.padded), as_array(sequence.lengths)
    if total_length is not None:
        total = known_extent("pad_packed_sequence", "total_length", total_length)
        if total > x.shape[0]:
            x = _longer(x, total, "right", 0.0)
        elif total < x.shape[0]:
            stop_unless(lengths <= total, f"pad_packed_sequence: a sequence is longer than total_length={total}")
            x = slice_axis(x, 0, 0, total)
    x = without_padding(x, lengths, padding_value)
    return (swapaxes(x, 0, 1) if batch_first else x), lengths


def pad_sequence(
    sequences: Sequence[Any], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Array:
    """Arrays (length, ...) as one (T, N, ...), padded to the largest length; (N, T, ...) with `batch_first`.

    `padding_side` is "right" or "left". torch `nn.utils.rnn`.
    """
    check_argument(padding_side in ("left", "right"), f'padding_side is "left" or "right", got {padding_side!r}')
    arrays = [as_array(sequence) for sequence in sequences]
    check_argument(bool(arrays), "pad_sequence takes at least one sequence")
    for array in arrays:
        if array.ndim == 0 or array.shape[1:] != arrays[0].shape[1:]:
            raise shape_error(
                "pad_sequence needs arrays (length, ...) that differ in their length alone",
                *arrays,
                hint="the first axis is the steps: transpose other arrays, `x.mT`",
            )
    longest = largest(*(array.shape[0] for array in arrays))
    return stack([_longer(array, longest, padding_side, padding_value) for array in arrays], 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Any], enforce_sorted: bool = True) -> PackedSequence:
    """Arrays (length, ...) as packed sequences: `pad_sequence`, and their lengths. torch `nn.utils.rnn`."""
    x = pad_sequence(sequences)
    lengths = stack([as_array(size_number(as_array(sequence).shape[0])) for sequence in sequences])
    return pack_padded_sequence(x, lengths, enforce_sorted=enforce_sorted)


def _steps_first(name: str, x: Array, batch_first: bool) -> Array:
    if x.ndim < 2:
        raise shape_error(
            f"{name} needs an array ({'N, T' if batch_first else 'T, N'}, ...), got {x.type}",
            x,
            hint="pad arrays (length, ...) by `nn.utils.rnn.pad_sequence(arrays)`",
        )
    return swapaxes(x, 0, 1) if batch_first else x


def _longer(x: Array, steps: Any, side: str, value: float) -> Array:
    """x with elements of `value` at one end of its first axis, so that it has `steps`."""
    more = steps - x.shape[0]
    return pad(x, [(0, more) if side == "right" else (more, 0), *[(0, 0)] * (x.ndim - 1)], value=value)
