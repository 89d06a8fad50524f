"""Text as tokens: by GPT-2's own files where the user has them, else character by character."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from os import PathLike
from pathlib import Path

import numpy as np

ENDINGS = re.compile("'(?:s|t|re|ve|m|ll|d)")
PIECES = re.compile(r" ?L+| ?N+| ?O+|\s+(?!\S)|\s+")


def pieces(text: str) -> list[str]:
    """The text cut as GPT-2 cuts it: endings such as 's, and runs of letters, of digits, of other signs, each with a
    space before it, and what is left of the space.

    Source: the pattern in `encoder.py` of GPT-2; here each character stands for its class of Unicode.
    """
    kinds = "".join(kind(character) for character in text)
    found, begin = [], 0
    while begin < len(text):
        match = ENDINGS.match(text, begin) or PIECES.match(kinds, begin)
        assert match is not None, "every character has a class"
        found.append(text[begin : match.end()])
        begin = match.end()
    return found


@cache
def kind(character: str) -> str:
    """L for a letter, N for a digit, space for itself, O for others."""
    if character.isspace():
        return character
    return {"L": "L", "N": "N"}.get(unicodedata.category(character)[0], "O")


def letters_of_bytes() -> dict[int, str]:
    """The printable letter that stands for each byte in GPT-2's files."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + n) for n, byte in enumerate(others)}}


class BytePairs:
    """GPT-2's tokens: pieces of bytes, of which the pair that was merged first in training is merged first.

    Source: Sennrich et al., Neural machine translation of rare words with subword units, 2016.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        lines = (Path(folder) / "vocab.bpe").read_text(encoding="utf-8").split("\n")
        self.tokens: dict[str, int] = json.loads((Path(folder) / "encoder.json").read_text(encoding="utf-8"))
        self.ranks = {tuple(line.split()): rank for rank, line in enumerate(lines[1:]) if line}
        self.letters = letters_of_bytes()
        self.known: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    def encode(self, text: str) -> np.ndarray:
        """The tokens of `text`, (n,) i64."""
        for piece in set(pieces(text)) - self.known.keys():
            self.known[piece] = [self.tokens[part] for part in self.merged(piece)]
        return np.array([token for piece in pieces(text) for token in self.known[piece]], np.int64)

    def merged(self, piece: str) -> list[str]:
        """The parts of a piece, when nothing more can be merged."""
        parts = [self.letters[byte] for byte in piece.encode("utf-8")]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:], strict=False))
            first = min(pairs, key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if first not in self.ranks:
                break
            place, joined = 0, []
            while place < len(parts):
                is_pair = tuple(parts[place : place + 2]) == first
                joined.append(parts[place] + parts[place + 1] if is_pair else parts[place])
                place += 2 if is_pair else 1
            parts = joined
        return parts

    def spelling(self) -> tuple[np.ndarray, np.ndarray]:
        """See `Characters.spelling`. A token that is a part of a character is written as the replacement character."""
        bytes_of = {letter: byte for byte, letter in self.letters.items()}
        words = sorted(self.tokens, key=self.tokens.__getitem__)
        # A token outside of the bytes' letters is one of the marks, such as <|endoftext|>.
        texts = [
            bytes(bytes_of[letter] for letter in word).decode("utf-8", errors="replace")
            if all(letter in bytes_of for letter in word)
            else word
            for word in words
        ]
        return spelled(texts)


class Characters:
    """Each character of a text is a token: its place among those that occur."""

    def __init__(self, alphabet: np.ndarray) -> None:
        self.alphabet = alphabet

    @property
    def size(self) -> int:
        """The number of tokens."""
        return len(self.alphabet)

    def encode(self, text: str) -> np.ndarray:
        """The tokens of `text`, (n,) i64. Raises: ValueError for a character that the alphabet lacks."""
        places = {code: place for place, code in enumerate(self.alphabet.tolist())}
        missing = sorted({character for character in text if ord(character) not in places})
        if missing:
            raise ValueError(f"the text that was read has no {', '.join(map(repr, missing))}")
        return np.array([places[ord(character)] for character in text], np.int64)

    def spelling(self) -> tuple[np.ndarray, np.ndarray]:
        """(codes, edges): the characters of all tokens one after another; those of token t are edges[t] .. edges[t + 1]."""
        return spelled([chr(code) for code in self.alphabet])


def spelled(texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """(codes, edges) of texts one after another."""
    codes = np.array([ord(character) for text in texts for character in text], np.int64)
    return codes, np.cumsum([0, *(len(text) for text in texts)], dtype=np.int64)
