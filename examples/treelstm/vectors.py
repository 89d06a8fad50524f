"""Word vectors: drawn, or from a file in GloVe's text format."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np


def word_vectors(
    vocabulary: Sequence[str], size: int = 300, file: str | PathLike[str] | None = None, seed: int = 0
) -> np.ndarray:
    """A vector for each word, f32 (words, size).

    `file` holds a word and `size` numbers per line, as GloVe's files do; words are looked up as they are, then in lower
    case. Those that it lacks, and without a file all of them, are drawn from N(0, 0.4^2), about as wide as GloVe's, the
    same for the same `seed`.
    """
    vectors = (0.4 * np.random.default_rng(seed).standard_normal((len(vocabulary), size))).astype(np.float32)
    if file is None:
        return vectors
    places: dict[str, list[int]] = {}
    for place, word in enumerate(vocabulary):
        places.setdefault(word, []).append(place)
    lowered: dict[str, list[int]] = {}
    for place, word in enumerate(vocabulary):
        lowered.setdefault(word.lower(), []).append(place)
    exact = set()
    with Path(file).open(encoding="utf-8") as lines:
        for line in lines:
            word, _, numbers = line.partition(" ")
            if word not in lowered and word not in places:
                continue
            vector = np.array(numbers.split(), np.float32)
            if vector.shape != (size,):
                raise SystemExit(f"{file}: `{word}` has {len(vector)} numbers, expected {size}")
            for place in places.get(word, ()):
                vectors[place] = vector
                exact.add(place)
            for place in lowered.get(word, ()):
                if place not in exact:
                    vectors[place] = vector
    return vectors
