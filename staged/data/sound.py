"""Sound: WAV files, and lists of utterances with their texts."""

from __future__ import annotations

import json
import struct
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


class Utterance(NamedTuple):
    """A recording and what is said in it."""

    name: str
    path: Path
    text: str


def read_wav(path: str | PathLike[str]) -> tuple[NDArray[np.float32], int]:
    """A WAV file: `(samples, rate)`, samples (n, channels) f32 in [-1, 1], `rate` of them per second.

    Integers of 8, 16, 24 and 32 bits are divided by the largest magnitude (so -1 can occur, 1 cannot), floats of 32 and
    64 bits are as they are. Raises: DataError if it cannot be read, is cut off, or is compressed.
    Source: Microsoft and IBM, Multimedia Programming Interface and Data Specifications 1.0 (1991).
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise DataError(f"{file} is not a WAV file", hint="convert it, for example with `ffmpeg -i IN OUT.wav`")
    form: tuple[int, int, int, int] | None = None
    at = 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body = data[at + 8 : at + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            code, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if code == _EXTENSIBLE and len(body) >= 26:
                (code,) = struct.unpack_from("<H", body, 24)
            form = code, channels, rate, bits
        elif name == b"data":
            if form is None:
                raise DataError(f"{file} has samples before it says what they are")
            if len(body) < size:
                raise DataError(f"{file} is cut off: {size} bytes of samples, {len(body)} are there")
            return _samples(file, body, *form)
        at += 8 + size + size % 2
    raise DataError(f"{file} has no samples")


def _samples(
    file: Path, body: bytes, code: int, channels: int, rate: int, bits: int
) -> tuple[NDArray[np.float32], int]:
    width = bits // 8
    if (code, bits) not in {(_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)} or not channels:
        raise DataError(
            f"{file} is compressed, or of a form that is not read: code {code}, {bits} bits, {channels} channels",
            hint="convert it, for example with `ffmpeg -i IN -c:a pcm_s16le OUT.wav`",
        )
    if len(body) % (width * channels):
        raise DataError(f"{file} ends inside of a sample")
    if code == _FLOAT:
        samples = np.frombuffer(body, f"<f{width}").astype(np.float32)
    elif bits == 8:
        samples = (np.frombuffer(body, np.uint8).astype(np.float32) - 128) / np.float32(128)
    else:
        # At the upper end of 32 bits: what is missing below is zeros.
        wide = np.zeros((len(body) // width, 4), np.uint8)
        wide[:, 4 - width :] = np.frombuffer(body, np.uint8).reshape(-1, width)
        samples = (wide.view("<i4")[:, 0] / 2.0**31).astype(np.float32)
    return samples.reshape(-1, channels), rate


def librispeech(folder: str | PathLike[str]) -> list[Utterance]:
    """The utterances of a folder in LibriSpeech's layout, by name: `84/121123/84-121123.trans.txt` has a line
    `84-121123-0000 GO DO YOU HEAR` for the recording `84-121123-0000.wav` (or `.flac`) beside it.

    Raises: DataError if there are none, for a line without a text, and for a recording that is not there.
    Source: V. Panayotov, G. Chen, D. Povey, S. Khudanpur, Librispeech (2015).
    """
    found = []
    for manifest in sorted(Path(folder).rglob("*.trans.txt")):
        for number, line in enumerate(manifest.read_text(encoding="utf-8").splitlines(), 1):
            name, _, text = line.strip().partition(" ")
            if not text:
                raise DataError(f"{manifest}, line {number}: expected a name and a text, got {line!r}")
            paths = [manifest.parent / f"{name}{suffix}" for suffix in (".wav", ".flac")]
            path = next((each for each in paths if each.exists()), None)
            if path is None:
                raise DataError(f"{manifest}, line {number}: there is no {paths[0].name} (or .flac) beside it")
            found.append(Utterance(name, path, text))
    if not found:
        raise DataError(f"{folder} has no *.trans.txt", hint="name LibriSpeech's folder, such as `dev-clean`")
    return sorted(found)


def read_manifest(path: str | PathLike[str]) -> list[Utterance]:
    """The utterances of a manifest: a line of JSON each, `{"audio_filepath": "a.wav", "text": "go do you hear"}`.

    Paths are relative to the manifest's folder; further keys are left out. Raises: DataError, with the line, for one
    that is not such an object, and for a recording that is not there.
    """
    file, found = Path(path), []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            audio, text = file.parent / row["audio_filepath"], row["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file}, line {number}: expected an object with audio_filepath and text") from error
        if not audio.exists():
            raise DataError(f"{file}, line {number}: there is no {audio}")
        found.append(Utterance(audio.stem, audio, text))
    return found
