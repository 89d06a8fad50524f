"""The random numbers of readings: Philox4x32-10 word by word, as docs/guide.md and Salmon et al. (2011) define it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.plain.core import plain

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
STEPS = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF


class Numbers:
    """The seed, and how many draws there were since it was set."""

    seed = 0
    count = 0


def seed(value: Any) -> None:
    Numbers.seed, Numbers.count = int(plain(value).a), 0


class Generator:
    """Numbers of one's own."""

    def __init__(self, seed: Any = 0) -> None:
        self.seed, self.count = int(plain(seed).a), 0


def from_generator(draw: Callable[..., Any]) -> Callable[..., Any]:
    """`draw` with a keyword `generator`: its numbers stand for the default ones while it draws."""

    def found(*args: Any, generator: Generator | None = None, **kwargs: Any) -> Any:
        if generator is None:
            return draw(*args, **kwargs)
        kept = Numbers.seed, Numbers.count
        Numbers.seed, Numbers.count = generator.seed, generator.count
        try:
            return draw(*args, **kwargs)
        finally:
            generator.count = Numbers.count
            Numbers.seed, Numbers.count = kept

    return found


def block(number: int, draw: int, key: int, stream: int = 0) -> list[int]:
    """The four words of one block of a draw."""
    a, b, c, d = number & MASK, stream, draw & MASK, draw >> 32
    low, high = key & MASK, key >> 32 & MASK
    for _ in range(ROUNDS):
        first, second = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = second >> 32 ^ b ^ low, second & MASK, first >> 32 ^ d ^ high, first & MASK
        low, high = low + STEPS[0] & MASK, high + STEPS[1] & MASK
    return [a, b, c, d]


def words(count: int) -> Any:
    """The first words of the next draw."""
    draw = Numbers.count
    Numbers.count += 1
    found = [word for number in range(-(-count // 4)) for word in block(number, draw, Numbers.seed)]
    return np.array(found[:count], np.uint64)
