"""The copies that `program.transfers()` lists, compared with the copies that the emulated device counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from staged.call.program import Program
from staged.ir.nodes import Block, Op, walk_blocks, walk_ops
from staged.ir.structure import CALL, FOR
from staged.ir.trips import static_trip_count
from staged.ir.types import CPU, dims_of

COUNTED = ("copies_to_device", "copies_to_host", "copies_between_devices", "bytes_to_device", "bytes_to_host")


def listed_copies(program: Program, is_first: bool = False) -> dict[str, int] | None:
    """The copies of a call; None if a value decides how many there are.

    The first call also copies constants, which stay. Variables are left out.
    """
    times = list(_times(program))
    listed = [each for each in program.transfers() if each.why != "resident"]
    opening = [each for each in listed if (each.why, each.where) == ("constant", None)]
    listed = [each for each in listed if each not in opening]
    assert len(listed) == len(times), "an op has a copy that is not listed"
    if is_first:
        listed, times = [*opening, *listed], [*([1] * len(opening)), *times]
    found = dict.fromkeys(COUNTED, 0)
    for transfer, count in zip(listed, times, strict=True):
        if transfer.why == "message":
            continue  # of a program that stops
        if count is None:
            return None
        if transfer.source == transfer.target:
            continue
        if CPU not in (transfer.source, transfer.target):
            found["copies_between_devices"] += count
            continue
        side = "device" if transfer.source == CPU else "host"
        found[f"copies_to_{side}"] += count
        found[f"bytes_to_{side}"] += count * transfer.nbytes
    return found


def check_copies(program: Program, seen: Any, is_first: bool = False) -> bool:
    """Compare with the counts of a call. Returns False if a value decides how many copies there are.

    Raises: AssertionError if the call made other copies than `program.transfers()` lists.
    """
    listed = listed_copies(program, is_first)
    if listed is None:
        return False
    counted = {name: getattr(seen, name) for name in COUNTED}
    function = program._built.emitted.function
    assert function is not None
    if any(op.name == "copy" and dims_of(op.operands[0].type) for op in walk_ops(function.block)):
        # The list has the bytes of the largest sizes.
        for name in ("bytes_to_device", "bytes_to_host"):
            assert counted[name] <= listed[name]
            counted[name] = listed[name]
    text = "\n".join(map(str, program.transfers()))
    words = f"counted {counted}, listed {listed}:\n{text}"
    # A Variable that Python has written since, and an array that a region names, are copied by the next call.
    kept = [each.nbytes for each in program.transfers() if each.why == "resident"]
    traced = program._traced.function
    kept += [
        param.tensor.nbytes
        for param, device in zip(traced.params, traced.param_devices, strict=False)
        if device != CPU
    ]
    again = counted["copies_to_device"] - listed["copies_to_device"]
    assert 0 <= again <= len(kept), words
    assert again == 0 or 0 < counted["bytes_to_device"] - listed["bytes_to_device"] <= sum(kept), words
    if again == 0:
        assert counted == listed, words
    assert all(counted[name] == listed[name] for name in COUNTED if "to_device" not in name), words
    return True


def _times(program: Program) -> Iterator[int | None]:
    """Yield the number of times that a call makes each of its copies, in the order of `program.transfers()`."""
    emitted = program._built.emitted
    function = emitted.function
    assert function is not None
    returns = sum(block.end.kind == "return" for block in walk_blocks(function.block))
    for each in (function, *function.functions):
        times = 1 if each is function and returns == 1 else None
        for at, count in _visits(each.block, times):
            if isinstance(at, Op) and at.name == "copy" and at.operands[0].tensor.nbytes:
                yield count
            yield from [count] * len(emitted.own_copies.get(at, ()))


def _visits(block: Block, times: int | None) -> Iterator[tuple[Any, int | None]]:
    """Each op and end in program order, and how often a call reaches it; None if a value decides."""
    for op in block.ops:
        yield op, times
        if op.declared.is_opaque or op.declared is CALL:
            continue
        inner = None
        if op.declared is FOR and times is not None and _always_ends(op):
            trips = static_trip_count(op)
            inner = None if trips is None else times * trips
        for each in op.blocks:
            yield from _visits(each, inner)
    yield block.end, times


def _always_ends(loop: Op) -> bool:
    return all(each.end.kind == "yield" for body in loop.blocks for each in walk_blocks(body, into_opaque=False))
