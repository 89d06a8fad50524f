"""Text as numbers: each character by its place in the alphabet."""

from __future__ import annotations

import codecs
import contextlib
import io
from os import PathLike
from pathlib import Path

import numpy as np


def zen() -> str:
    """The Zen of Python, 856 characters that every Python carries; importing the module prints them, so not here."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    return codecs.decode(this.s, "rot13") + "\n"


def read(folder: str | PathLike[str] | None, letters: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(text, alphabet): the file `input.txt` of `folder` (None: the Zen of Python) as places in its alphabet.

    Shapes: text (n,) i64, alphabet (characters,) i64 codes in ascending order. With `letters`, the text is put into
    lower case and everything but a to z is left out, as in Lantern's evaluation.
    """
    text = zen() if folder is None else (Path(folder) / "input.txt").read_text(encoding="utf-8")
    if letters:
        text = "".join(character for character in text.lower() if "a" <= character <= "z")
    alphabet, places = np.unique(np.array([ord(character) for character in text], np.int64), return_inverse=True)
    return places.astype(np.int64), alphabet
