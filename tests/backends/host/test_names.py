"""Names: nothing that the headers of any program define can break a name of the user's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.host.standalone import main
from staged.backends.host.standalone.main_ranks import CORES_OF_RANK, RANKS
from staged.backends.host.standalone.main_text import ARRAYS, CORES, DEVICES, ENDING, FLAGS, FOLDER, NUMBERS, SET_SIZE
from staged.backends.host.standalone.npy import NPY_SIZES, NPY_TEXT
from staged.backends.host.standalone.words import TARGETS, TO_COMPILERS
from staged.code.header_words import WORDS
from staged.code.writer import c_identifier, has_header_shape
from staged.testing import assert_backends_agree
from tests.backends.host.header_names import Language, candidates, languages, macros, refused

USUAL = """x y z w w1 W1 b B X Xs h i j k n N T t loss total grads images labels epoch step_size learning_rate lr d_w1 X_train W_ih
hidden_state model weights bias mean var sigma mu theta alpha beta scale offset shift state tolerance precision element half diff
leaf buf conv64 x32 so_far sx clock_rate memory_size program_text timer_value count size first last left right up down key value
name data item items row column tree node depth parent child velocity position force mass energy temperature pressure score
accuracy batch target output input result f g fib train step predict forward backward update solve a_very_long_name_of_a_person
""".split()


def test_usual_names_stay_as_they_are() -> None:
    assert [name for name in USUAL if c_identifier(name) != name] == []


@pytest.mark.parametrize("language", languages(), ids=lambda language: language.name)
def test_no_name_of_the_headers_can_be_the_name_of_anything(language: Language) -> None:
    """The preprocessor's own list of macros, and every word of the headers, as the name of a variable of the file."""
    names = macros(language) | candidates(language)
    assert len(names) > 1000
    made = {c_identifier(name) for name in names}
    assert not made & macros(language)
    assert refused(language, made) == {}


def test_the_compiler_refuses_names_that_are_taken() -> None:
    """The test above could see a fault: the compiler's words are understood."""
    for language in languages():
        assert set(refused(language, ["BUFSIZ", "index", "stdin", "my_own"])) == {"BUFSIZ", "index", "stdin"}, (
            language.name
        )


def test_functions_of_complex_numbers_are_no_names_of_kernels() -> None:
    """Compilers know them without their header."""
    header = subprocess.run(
        ["cc", "-std=c11", "-E", "-x", "c", "-"], input="#include <complex.h>\n", capture_output=True, text=True
    )
    names = set(re.findall(r"\b(c[a-z0-9]+) *\(", header.stdout))
    assert {"conj", "cabs", "csqrtf"} <= names
    text = "".join(f"void {c_identifier(name)}(float *x) {{ *x = 0; }}\n" for name in sorted(names))
    done = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-fsyntax-only", "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


def test_a_numbered_name_is_no_name_of_a_header() -> None:
    """`Names.fresh` puts `_2` behind: no word of the headers ends so, but for those that begin with capitals."""
    assert [word for word in WORDS if word[-1].isdigit() and word.rstrip("0123456789").endswith("_")] == []


@pytest.mark.parametrize(
    "name", ["BUFSIZ", "INT64_C", "__FILE__", "SIG_ATOMIC_MAX", "uint128_t", "pthread_foo_np", "cudaFoo"]
)
def test_the_shape_of_a_header_s_name_is_enough(name: str) -> None:
    assert has_header_shape(name.strip("_")) and c_identifier(name) == name.strip("_") + "_"


X = np.arange(4.0)


def hostile(BUFSIZ: Any, INT64_MIN: Any, FILE: Any, __FILE__: Any, stdin: Any, norm: Any) -> Any:
    UINT32_MAX = BUFSIZ + 1.0
    for INT64_C in st.range(INT64_MIN):
        UINT32_MAX = UINT32_MAX * norm + st.sum(UINT32_MAX) * FILE + INT64_C
    HUGE_VAL, SIGINT = UINT32_MAX * 2.0, UINT32_MAX + __FILE__
    EXIT_SUCCESS = st.where(HUGE_VAL > stdin, HUGE_VAL, SIGINT)
    index = time = signal = si_pid = sched_priority = EXIT_SUCCESS[0]
    return HUGE_VAL, SIGINT, EXIT_SUCCESS, index + time + signal + si_pid + sched_priority


def test_macros_are_names_of_parameters_locals_indices_and_results() -> None:
    assert_backends_agree(hostile, X, 3, 0.5, 1.5, 2.0, 0.25)


@st.function
def HUGE_VAL(n: Any, x: Any) -> Any:
    return x if n < 1 else HUGE_VAL(n - 1, x * 0.5) + x


@st.function
def allocate(n: Any, stop: Any) -> Any:
    return HUGE_VAL(n, stop)


@st.function
def error(args: Any, out: Any) -> Any:
    error = args + out
    return error, args


@st.function
def daylight(host: Any) -> Any:
    return host * 2.0


@pytest.mark.parametrize(
    "function", [HUGE_VAL, allocate, error, daylight], ids=["macro", "main's own", "main's local", "variable"]
)
def test_a_function_with_a_name_of_the_headers_or_of_main_is_exported(function: Any, tmp_path: Path) -> None:
    arguments = {allocate: (3, 1.5), HUGE_VAL: (3, 1.5), error: (1.0, 2.0), daylight: (X,)}[function]
    function.stage(*arguments).export(tmp_path, target="portable")
    strict = "-std=c11 -O0 -Wall -Wextra -Wpedantic -Werror"
    (program,) = (path.name.removesuffix("_library.c") for path in tmp_path.glob("*_library.c"))
    done = subprocess.run(
        ["make", "-s", f"CFLAGS={strict}", program, "example"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_words_of_main_are_those_of_its_text() -> None:
    texts = ENDING, FLAGS, *NUMBERS.values(), ARRAYS, DEVICES, CORES, FOLDER, NPY_TEXT, NPY_SIZES, SET_SIZE, RANKS, CORES_OF_RANK
    text = re.sub(r"^[@!+-]+", "", "\n".join(texts), flags=re.MULTILINE)
    functions = re.findall(r"^(?:__attribute__.*)?static [^=;{]*?(\w+)\(", text, re.MULTILINE)
    variables = re.findall(r"^static [^=;({]*?(\w+)(?:\[.*)?(?: =.*)?;", text, re.MULTILINE)
    types = re.findall(r"^} (\w+);", text, re.MULTILINE)
    written = "flag flags npy_role npy_size npy_sizes paths set_sizes".split()  # for each program
    assert main._AT_THE_TOP == {*functions, *variables, *types, *written}
    assert main._AT_THE_TOP < main.words_of_main()


@st.function
def step_v3(n: Any, x: Any) -> Any:
    return x if n < 1 else step_v3(n - 1, x * 0.5) + x


@st.function
def step(n: Any, step_args: Any, words: Any) -> Any:
    arena_bytes = np.arange(100, dtype=np.float32)
    level = st.exp(step_args) + st.sum(step_args)
    level = level * st.sum(level)
    step_words = level * st.sum(words["in"]) + words["lambda"]
    return level, step_words, st.sum(arena_bytes) + step_v3(n, 1.5), {"is": step_words + step_args}


@st.function
def aligned(words: Any) -> Any:
    return {"is": words["in"] + words["lambda"]}


@st.function
def clean(x: Any) -> Any:
    return x + 2.0


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (step, (3, X, {"in": X, "lambda": X})),
        (aligned, ({"in": X, "lambda": X},)),
        (clean, (X,)),
        (st.function(lambda x: x + 3.0), (X,)),  # fmt: skip
    ],
    ids=["names of the folder", "a compiler's word", "a target of make", "a keyword of Python"],
)
def test_no_name_breaks_the_folder_for_every_processor(function: Any, arguments: Any, tmp_path: Path) -> None:
    function.stage(*arguments).export(tmp_path)
    (program,) = (path.name.removesuffix("_library.c") for path in tmp_path.glob("*_library.c"))
    strict = "CFLAGS=-std=c11 -O0 -Wall -Wextra -Wpedantic -Werror"
    for command in (
        ["make", "-s", strict],
        ["make", "-s", strict, "lib", "example"],
        [f"./{program}", "--help"],
        [f"./{program}_example"],
        [sys.executable, f"{program}_example.py"],
    ):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_every_word_to_compilers_and_every_target_is_known() -> None:
    paths = (path for folder in ("backends", "code") for path in (Path(st.__file__).parent / folder).rglob("*.py"))
    texts = "\n".join(path.read_text() for path in paths if "opencl" not in path.parts)  # which exports no folders
    attributes = " ".join(re.findall(r"__attribute__\(\((.*?)\)\)", re.sub(r"\{[^{}]*\}", "", texts)))
    words = set(re.findall(r"\b[a-z_]+\b", attributes))
    assert {"unused", "aligned", "vector_size"} <= words and words <= TO_COMPILERS | WORDS
    targets = {target for line in re.findall(r"\.PHONY: ([a-z ]+)", texts) for target in line.split()}
    assert {"lib", "emu"} <= targets <= TARGETS
