"""Readers of data files: each on small files in the true format, and on damaged ones."""

from __future__ import annotations

import json
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

import staged as st
from staged.data import (
    CIFAR10_MEAN,
    CIFAR10_STD,
    FASHION_MEAN,
    FASHION_STD,
    cifar10,
    fashion_mnist,
    librispeech,
    read_csv,
    read_manifest,
    read_npy,
    read_npz,
    read_tokens,
    read_wav,
    tables,
    write_tokens,
)
from staged.errors import DataError


def cifar_files(folder: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The five training files with `count` records each; their images and labels."""
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (5, count, 3073), dtype=np.uint8)
    records[..., 0] %= 10
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(records, 1):
        (folder / f"data_batch_{number}.bin").write_bytes(part.tobytes())
    flat = records.reshape(-1, 3073)
    return flat[:, 1:].reshape(-1, 3, 32, 32), flat[:, 0]


# ---- images ----


def test_cifar_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    raw, labels = cifar_files(tmp_path / "cifar-10-batches-bin", 4)
    for folder in (tmp_path, tmp_path / "cifar-10-batches-bin"):
        images, found = cifar10(folder, normalized=False)
        assert images.dtype == np.uint8 and found.dtype == np.int32
        np.testing.assert_array_equal(images, raw)
        np.testing.assert_array_equal(found, labels)
    images, _ = cifar10(tmp_path)
    wanted = (raw / 255 - np.reshape(CIFAR10_MEAN, (3, 1, 1))) / np.reshape(CIFAR10_STD, (3, 1, 1))
    assert images.dtype == np.float32
    np.testing.assert_allclose(images, wanted, atol=1e-6)


def test_cifar_s_faults_are_named(tmp_path: Path) -> None:
    cifar_files(tmp_path, 2)
    with pytest.raises(DataError, match=r"has no test_batch.bin"):
        cifar10(tmp_path, "test")
    with pytest.raises(DataError, match="no part 'valid'"):
        cifar10(tmp_path, "valid")  # type: ignore[arg-type]
    (tmp_path / "data_batch_3.bin").write_bytes(bytes(3072))
    with pytest.raises(DataError, match=r"data_batch_3.bin has 3072 bytes, expected a number of records of 3073"):
        cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").write_bytes(bytes([11]) + bytes(3072))
    with pytest.raises(DataError, match="holds the label 11"):
        cifar10(tmp_path)
    (tmp_path / "data_batch_3.bin").unlink()
    with pytest.raises(DataError, match=r"has no data_batch_3.bin"):
        cifar10(tmp_path, synthetic=10)  # some of the files are there: this is no case for others
    (tmp_path / "data_batch_1").write_bytes(b"a pickle")
    with pytest.raises(DataError, match="take the binary version"):
        cifar10(tmp_path)


def test_fashion_mnist_has_mnist_s_format(tmp_path: Path) -> None:
    raw = np.random.default_rng(0).integers(0, 256, (3, 28, 28), dtype=np.uint8)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4I", 0x803, 3, 28, 28) + raw.tobytes())
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 3) + bytes([9, 0, 4]))
    images, labels = fashion_mnist(tmp_path, "test")
    np.testing.assert_allclose(images[:, 0], (raw / 255 - FASHION_MEAN) / FASHION_STD, atol=1e-6)
    assert labels.tolist() == [9, 0, 4]


def test_synthetic_images_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for read, shape in ((cifar10, (3, 32, 32)), (fashion_mnist, (1, 28, 28))):
        images, labels = read(tmp_path, "train", normalized=False, synthetic=50)
        assert images.shape == (50, *shape) and images.dtype == np.uint8 and set(labels) <= set(range(10))
        said = capsys.readouterr().out
        assert f"no files in {tmp_path}; 50 synthetic images instead" in said
        again, _ = read(tmp_path, "train", normalized=False, synthetic=50)
        np.testing.assert_array_equal(images, again)
        capsys.readouterr()
        with pytest.raises(DataError):
            read(tmp_path, "train")


# ---- tables ----


@pytest.mark.parametrize("mapped", [False, True])
def test_columns_have_the_dtype_of_their_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool) -> None:
    monkeypatch.setattr(tables, "_CHUNK", 2)
    path = tmp_path / "table.csv"
    text = 'n,x,"a name",text\r\n1,0.5,2,"a, ""b""\r\nc"\r\n-2,,3,d\r\n3,1e3,,e\r\n'
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    table = read_csv(path, mapped=mapped)
    assert all(isinstance(column, np.memmap) != column.flags.writeable == (not mapped) for column in table.values())
    assert list(table) == ["n", "x", "a name", "text"]
    assert table["n"].dtype == np.int64 and table["n"].tolist() == [1, -2, 3]
    np.testing.assert_array_equal(table["x"], [0.5, np.nan, 1000])
    np.testing.assert_array_equal(table["a name"], [2, 3, np.nan])
    assert table["text"].tolist() == ['a, "b"\r\nc', "d", "e"]
    path.write_text("1;2.5;long\n3;NA;7\n-0;1;8\n")
    table = read_csv(path, delimiter=";", header=False, missing="NA", mapped=mapped)
    assert table["0"].tolist() == [1, 3, 0] and np.isnan(table["1"][1])
    assert table["2"].tolist() == ["long", "7", "8"] and table["2"].dtype == "U4"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 fields, expected 2"),
        ("a,a\n1,2\n", "two columns of one name"),
        ("a,b\n", "has no rows"),
        ('a\n"b', "cannot be read as CSV"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.csv").write_text(text)
    for mapped in (False, True):
        with pytest.raises(DataError, match=words):
            read_csv(tmp_path / "t.csv", mapped=mapped)
    with pytest.raises(DataError, match="No such file"):
        read_csv(tmp_path / "missing.csv")


def test_numpy_s_files(tmp_path: Path) -> None:
    x = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, y=x[0])
    np.testing.assert_array_equal(read_npy(tmp_path / "x.npy"), x)
    mapped = read_npy(tmp_path / "x.npy", mapped=True)
    assert isinstance(mapped, np.memmap) and not mapped.flags.writeable
    np.testing.assert_array_equal(st.function(lambda x: x + 1.0)(mapped), x + 1)
    read = read_npz(tmp_path / "x.npz")
    assert list(read) == ["x", "y"]
    np.testing.assert_array_equal(read["y"], x[0])
    with pytest.raises(DataError, match="one array, not several"):
        read_npz(tmp_path / "x.npy")
    with pytest.raises(DataError, match="several arrays"):
        read_npy(tmp_path / "x.npz")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    (tmp_path / "bad.npy").write_bytes(b"no array")
    for name in ("objects.npy", "bad.npy", "missing.npy"):
        with pytest.raises(DataError, match=name):
            read_npy(tmp_path / name)


# ---- sound ----


def wav(code: int, bits: int, channels: int, body: bytes, extra: bytes = b"") -> bytes:
    form = struct.pack("<HHIIHH", code, channels, 16000, 16000 * channels * bits // 8, channels * bits // 8, bits)
    chunks = b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
        for name, data in ((b"LIST", b"odd"), (b"fmt ", form + extra), (b"data", body))
    )
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def test_samples_of_every_width(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    values = np.array([[0.5, -0.25], [-1.0, 0.0], [0.75, 0.125]])
    bodies: dict[tuple[int, int], bytes] = {
        (1, 8): (values * 128 + 128).astype("u1").tobytes(),
        (1, 16): (values * 2**15).astype("<i2").tobytes(),
        (1, 24): b"".join(int(v * 2**23).to_bytes(3, "little", signed=True) for v in values.ravel()),
        (1, 32): (values * 2**31).astype("<i4").tobytes(),
        (3, 32): values.astype("<f4").tobytes(),
        (3, 64): values.astype("<f8").tobytes(),
    }
    for (code, bits), body in bodies.items():
        extensible = struct.pack("<HHIH14s", 22, bits, 3, code, bytes(14))
        for data in (wav(code, bits, 2, body), wav(0xFFFE, bits, 2, body, extensible)):
            path.write_bytes(data)
            samples, rate = read_wav(path)
            assert rate == 16000 and samples.dtype == np.float32
            np.testing.assert_array_equal(samples, values.astype(np.float32))
    with wave.open(str(path), "wb") as file:  # Python's own writer
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([0, 16384, -32768], "<i2").tobytes())
    samples, rate = read_wav(path)
    assert rate == 8000
    np.testing.assert_array_equal(samples, [[0], [0.5], [-1]])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"fLaC", "is not a WAV file"),
        (wav(1, 16, 1, bytes(8))[:-3], "is cut off: 8 bytes of samples, 5"),
        (wav(1, 16, 2, bytes(6)), "inside of a sample"),
        (wav(85, 16, 1, bytes(8)), "compressed"),
        (wav(1, 16, 1, b"")[:20], "no samples"),
    ],
)
def test_sound_that_is_none(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.wav").write_bytes(data)
    with pytest.raises(DataError, match=words):
        read_wav(tmp_path / "a.wav")


def test_utterances_of_librispeech_s_layout(tmp_path: Path) -> None:
    for chapter, names in (("84/2", ["84-2-0001", "84-2-0000"]), ("26/495", ["26-495-0000"])):
        folder = tmp_path / chapter
        folder.mkdir(parents=True)
        for name in names:
            (folder / f"{name}.wav").write_bytes(wav(1, 16, 1, bytes(8)))
        lines = "".join(f"{name} GO DO YOU {number}\n" for number, name in enumerate(names))
        (folder / f"{chapter.replace('/', '-')}.trans.txt").write_text(lines)
    found = librispeech(tmp_path)
    assert [each.name for each in found] == ["26-495-0000", "84-2-0000", "84-2-0001"]
    assert found[2].text == "GO DO YOU 0"
    assert read_wav(found[0].path)[0].shape == (4, 1)
    found[1].path.unlink()
    with pytest.raises(DataError, match=r"84-2.trans.txt, line 2: there is no 84-2-0000.wav"):
        librispeech(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no \*.trans.txt"):
        librispeech(tmp_path / "empty")


def test_manifests_of_json(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(1, 16, 1, bytes(8)))
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"audio_filepath": "a.wav", "duration": 0.1, "text": "héllo"}) + "\n\n")
    (found,) = read_manifest(path)
    assert found == ("a", tmp_path / "a.wav", "héllo")
    for line, words in (("{}", "expected an object"), ("[", "expected an object")):
        path.write_text("\n" + line)
        with pytest.raises(DataError, match=f"line 2: {words}"):
            read_manifest(path)
    path.write_text('{"audio_filepath": "b.wav", "text": ""}')
    with pytest.raises(DataError, match="line 1: there is no"):
        read_manifest(path)


# ---- tokens ----


def test_tokens_are_mapped_into_memory(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 50257, 1000)
    write_tokens(tmp_path / "t.bin", tokens)
    read = read_tokens(tmp_path / "t.bin")
    assert isinstance(read, np.memmap) and read.dtype == np.uint16 and not read.flags.writeable
    np.testing.assert_array_equal(read, tokens)
    windows = st.function(lambda tokens, at: tokens[at : at + 8])
    np.testing.assert_array_equal(windows(read, 500), tokens[500:508])
    np.testing.assert_array_equal(windows(read[100:200], 5), tokens[105:113])
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    (tmp_path / "llm.bin").write_bytes(header.tobytes() + tokens.astype("<u2").tobytes())
    np.testing.assert_array_equal(read_tokens(tmp_path / "llm.bin"), tokens)
    write_tokens(tmp_path / "wide.bin", tokens * 1000, np.uint32)
    np.testing.assert_array_equal(read_tokens(tmp_path / "wide.bin", np.uint32), tokens * 1000)
    write_tokens(tmp_path / "none.bin", np.zeros(0, np.int64))
    assert read_tokens(tmp_path / "none.bin").shape == (0,)


def test_tokens_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="do not fit uint16"):
        write_tokens(tmp_path / "t.bin", [1, 70000])
    with pytest.raises(DataError, match="one row of integers"):
        write_tokens(tmp_path / "t.bin", [[1.0]])
    (tmp_path / "t.bin").write_bytes(bytes(7))
    with pytest.raises(DataError, match="has 7 bytes"):
        read_tokens(tmp_path / "t.bin")
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, 10
    (tmp_path / "t.bin").write_bytes(header.tobytes() + bytes(18))
    with pytest.raises(DataError, match="a header of 10 tokens, and 9 are there"):
        read_tokens(tmp_path / "t.bin")
    with pytest.raises(DataError, match="No such file"):
        read_tokens(tmp_path / "missing")


def test_an_npz_that_is_cut_off_or_damaged_is_named(tmp_path):
    file = tmp_path / "x.npz"
    np.savez(file, a=np.arange(100.0))
    whole = file.read_bytes()
    for broken in (whole[:100], whole[:300] + b"?" + whole[301:]):
        file.write_bytes(broken)
        with pytest.raises(DataError, match=r"x\.npz"):
            read_npz(file)
