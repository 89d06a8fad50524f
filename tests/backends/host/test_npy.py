"""The reader of `.npy` files in exported folders: a thousand damaged files, beside what NumPy's own reader makes of them."""

import random
import subprocess
import warnings

import numpy as np
import pytest

from staged.backends.host.standalone.npy import npy_header

X = np.arange(6, dtype=np.float32).reshape(2, 3)
DRIVER = r"""
#include "t_npy.h"
// One line for each file named on standard input: what the array's elements come to, or why it was refused.
int main(void) {
    const npy_row row = {"x", "f32", "<f4", "F32", sizeof(float), 2, {2, 3}, 0, 0, 1, -1, NPY_INPUT, NULL, NULL};
    char path[4096];
    while (fgets(path, sizeof path, stdin) != NULL) {
        path[strcspn(path, "\n")] = '\0';
        npy_array array;
        const char *problem = npy_read(path, &row, &array);
        if (problem != NULL) {
            printf("refused: %s\n", problem);
            continue;
        }
        const unsigned char *bytes = array.data;
        printf("taken: ");
        for (int i = 0; i < 24; ++i) {
            printf("%02x", bytes[i]);
        }
        printf("\n");
        npy_free(&array);
    }
    return 0;
}
"""
TOKENS = b"""' " { } ( ) , : [ ] # \\ \\x27 L u'' b'' True False None 0 1 2 3 6 -2 03 2.0 0x2 1e1 99999999999999999999999 < > = | f f4
'descr' 'shape' 'fortran_order' 'descr': '<f4', 'shape': (2,3), (2,3) (2,) () (6) \xff \x80 \r \f \t \v""".split() + [
    b" ", b"\n", b"\0", b"\n ", b"\r", b"\t", b"\f",
]  # fmt: skip


def header_file(text, version=(1, 0), length=None):
    """A `.npy` file with this text as its header."""
    digits = 2 if version[0] == 1 else 4
    return (
        b"\x93NUMPY"
        + bytes(version)
        + (len(text) if length is None else length).to_bytes(digits, "little")
        + text
        + X.tobytes()
    )


def numpy_reads(path):
    """The elements as NumPy reads them; None where it refuses the file, or the array is not the expected one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = np.load(path)
    except Exception:
        return None
    expected = isinstance(array, np.ndarray) and array.dtype == np.dtype("<f4") and array.shape == (2, 3)
    return array.tobytes().hex() if expected else None


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """The reader's words on files, all in one process under AddressSanitizer."""
    folder = tmp_path_factory.mktemp("npy")
    (folder / "t_npy.h").write_text(npy_header("t"))
    (folder / "driver.c").write_text(DRIVER)
    flags = "-std=c11 -g -O1 -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
    subprocess.run(["cc", *flags.split(), "driver.c", "-o", "driver"], cwd=folder, check=True)

    def said(contents):
        paths = [folder / f"{number}.npy" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        listed = "".join(f"{path}\n" for path in paths)
        done = subprocess.run(["./driver"], cwd=folder, input=listed, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return list(zip(paths, done.stdout.splitlines(), strict=True))

    return said


def saved():
    """The file that np.save writes, and the same array in the other versions of the format and with fewer spaces."""
    plain = b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    padded = plain + b" " * 58 + b"\n"
    return [
        header_file(padded),
        header_file(padded, (2, 0)),
        header_file(padded, (3, 0)),
        header_file(plain),
    ]


def test_what_numpy_writes_is_taken_in_every_version(read):
    for path, said in read(saved()):
        assert said == f"taken: {X.tobytes().hex()}"
        assert numpy_reads(path) == X.tobytes().hex()


REFUSED = {
    "a header that ends at 'descr':": header_file(b"{'descr':"),
    "a header that ends at 'shape':": header_file(b"{'fortran_order': False, 'descr': '<f4', 'shape':"),
    "a header that ends in a string": header_file(b"{'fortran_order': False, 'descr': '<f4"),
    "a header that ends in an extent": header_file(b"{'fortran_order': False, 'descr': '<f4', 'shape': (2"),
    "an empty header": header_file(b""),
    "version 255.255": header_file(saved()[0][10:127], (255, 255)),
    "version 1.1": header_file(saved()[0][10:127], (1, 1)),
    "version 0.0": header_file(saved()[0][10:127], (0, 0)),
    "a length beyond the file": header_file(b"{}", (2, 0), 2**32 - 1),
    "a header of more than 10000 bytes": header_file(saved()[3][10:69] + b" " * 10000, (2, 0)),
    "a key more": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}"),
    "a key less": header_file(b"{'descr': '<f4', 'shape': (2, 3)}"),
    "words in a string": header_file(b"{'a': \"'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)\"}"),
    "text behind it": header_file(saved()[3][10:69] + b"x"),
    "no dictionary": header_file(b"'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)"),
    "a missing comma": header_file(b"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3)}"),
    "two commas": header_file(b"{'descr': '<f4',, 'fortran_order': False, 'shape': (2, 3)}"),
    "a number for the shape": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (6)}"),
    "an extent with a leading zero": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (02, 3)}"),
    "an extent below zero": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-2, 3)}"),
    "an extent that overflows": header_file(
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551618, 3)}"
    ),
    "33 axes": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (" + b"1," * 33 + b")}"),
    "a number for the order": header_file(b"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3)}"),
    "Falsehood for the order": header_file(b"{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (2, 3)}"),
    "a descr beyond a byte's sign": header_file(b"{'descr': '\xff4', 'fortran_order': False, 'shape': (2, 3)}"),
    "a long descr": header_file(b"{'descr': '" + b"f" * 5000 + b"', 'fortran_order': False, 'shape': (2, 3)}"),
    "a byte of zero": header_file(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\0"),
    "half an element less": saved()[0][:-2],
    "nothing": b"",
    "a magic string alone": b"\x93NUMPY",
    "half a length": b"\x93NUMPY\x02\x00\x01\x00",
}


def test_headers_that_numpy_refuses_are_refused(read):
    for (path, said), what in zip(read(list(REFUSED.values())), REFUSED, strict=True):
        assert said.startswith("refused: "), what
        assert numpy_reads(path) is None, what


def test_a_key_given_twice_is_refused_though_python_takes_the_last(read):
    twice = header_file(b"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}")
    assert read([twice])[0][1].startswith("refused: ")


TRUTHS = r"""
#include "t_npy.h"
int main(void) {
    const npy_row row = {"x", "bool", "|b1", "BOOL", sizeof(bool), 1, {6}, 0, 0, 1, -1, NPY_INPUT, NULL, NULL};
    npy_array array;
    if (npy_read("truths.npy", &row, &array) != NULL) {
        return 1;
    }
    for (int i = 0; i < 6; ++i) {
        printf("%d", (int)((const bool *)array.data)[i]);
    }
    npy_free(&array);
    return 0;
}
"""


def test_of_bytes_that_say_yes_or_no_any_but_0_is_true(tmp_path):
    """NumPy's reader has them as they are, and its functions take them so; in C a bool of another byte is undefined."""
    np.save(tmp_path / "truths.npy", np.array([0, 1, 2, 128, 255, 0], np.uint8).view(bool))
    (tmp_path / "t_npy.h").write_text(npy_header("t"))
    (tmp_path / "truths.c").write_text(TRUTHS)
    strict = "cc -std=c11 -g -Wall -Wextra -Wconversion -Werror -fsanitize=undefined -fno-sanitize-recover=all truths.c -o truths"
    subprocess.run(strict.split(), cwd=tmp_path, check=True)
    assert subprocess.run(["./truths"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "011110"


def damaged(rng, content):
    """A file with one to three small damages, most of them in the header."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(min(len(data), 75) if rng.random() < 0.9 else len(data))
        match rng.randrange(6):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at : at + 1] = rng.choice(TOKENS)
            case 2:
                data[at:at] = rng.choice(TOKENS)
            case 3:
                del data[at : at + rng.choice((1, 1, 2, 5))]
            case 4:
                end = rng.randrange(at, min(len(data), at + 30))
                data[at:at] = data[at:end]
            case 5 if rng.random() < 0.3:
                del data[at:]
                break
    if rng.random() < 0.7 and len(data) > 12 and data[:6] == b"\x93NUMPY":
        # The length is mended: else the damage is seldom in what the parser sees.
        size = len(data) - 24 - (10 if data[6] == 1 else 12)
        if size > 0:
            data[8 : 10 if data[6] == 1 else 12] = size.to_bytes(2 if data[6] == 1 else 4, "little")
    return bytes(data)


def test_of_a_thousand_damaged_files_none_is_taken_that_numpy_refuses_and_nothing_is_read_beyond_the_buffer(read):
    rng = random.Random(1)
    originals = saved()
    files = [damaged(rng, rng.choice(originals)) for _ in range(1000)]
    taken = refused_by_both = 0
    for path, said in read(files):
        theirs = numpy_reads(path)
        if said.startswith("taken: "):
            taken += 1
            assert said == f"taken: {theirs}", path.read_bytes()
        elif theirs is None:
            refused_by_both += 1
    assert taken > 100 and refused_by_both > 500, (taken, refused_by_both)


def test_a_header_in_another_spelling_is_refused_with_both_headers(read):
    for header in (b'{"shape":(2,3,),"descr":"<f4","fortran_order":False}', b"{'descr': '<f8', 'shape': (6,), }"):
        (_, said), *_ = read([header_file(header)])
        expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
        assert said.startswith(f"refused: expected {expected}, the file has {header.decode()}; ")
