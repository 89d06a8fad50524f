"""Calls into hand-written programs: arguments, results, prints, errors, interrupts, threads."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path

import cffi
import numpy as np
import pytest

from staged.base.artifact import Parameter, Site
from staged.errors import (
    DTypeError,
    ProgramAssertionError,
    ProgramError,
    ProgramFileError,
    ProgramIndexError,
    ProgramMemoryError,
    ShapeError,
    StagedError,
)
from staged.runtime.c import load
from staged.runtime.compiler import compile_text
from staged.runtime.native import ERRORS
from staged.runtime.options import CompileOptions
from tests.interrupts import interrupt_when, stays_inside
from tests.runtime.programs import STRICT, given, program, result, size, variable
from tests.threads import run_at_once

CLEAN = CompileOptions(extra=STRICT)

SCALE = program(
    "scale",
    (given("x", "f32", (2, 3)), given("factor", "f32"), result("y", "f32", (2, 3)), result("total", "f64")),
    """
    double total = 0.0;
    for (int i = 0; i < 6; ++i) {
        args->y[i] = args->factor * args->x[i];
        total += (double)args->y[i];
    }
    *args->total = total;
""",
)


@pytest.fixture(scope="module")
def scale():
    return load(SCALE, CLEAN)


def test_a_program_that_cannot_be_loaded_says_why():
    text = """\
import sys
sys.path.insert(0, "ROOT")
from dataclasses import replace
from staged.errors import CompilerError
from staged.runtime.c import load
from tests.runtime.test_native import SCALE
begin = "extern double of_nowhere(void); double total = of_nowhere();"
lost = replace(SCALE, source=SCALE.source.replace("double total = 0.0;", begin))
try:
    load(lost)
except CompilerError as error:
    print(error)
"""
    # In a process of its own, which has loaded nothing before.
    code = text.replace("ROOT", str(Path(__file__).parents[2]))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "undefined symbol: of_nowhere" in result.stdout, result.stderr


# ---- arguments and results ----------------------------------------------------------------------


def test_arrays_and_scalars_go_in_and_fresh_arrays_come_out(scale):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, total = scale(x, 2.0)
    np.testing.assert_array_equal(y, 2 * x)
    assert total.shape == () and total.dtype == np.float64 and total == 30.0
    again, _ = scale(x, 3.0)
    assert not np.shares_memory(y, again)
    np.testing.assert_array_equal(y, 2 * x)


def test_contiguous_inputs_are_read_in_place():
    where = load(
        program("where_is", (given("x", "f32", (4,)), result("at", "i64")), "*args->at = (int64_t)(intptr_t)args->x;")
    )
    x = np.zeros(4, np.float32)
    assert where(x)[0] == x.ctypes.data
    assert where(np.zeros(8, np.float32)[::2])[0] != x.ctypes.data


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[::-1][::-1],
        lambda x: x.astype(">f4"),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(2, 3),
    ],
    ids=["fortran", "strided", "reversed twice", "big-endian", "unaligned"],
)
def test_other_layouts_are_converted(scale, make):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(scale(make(x), 1.0)[0], x)


def test_every_dtype_as_scalar_array_and_result_keeps_its_bits():
    values = {"f32": 1.5, "f64": -2.25, "i32": -(2**31), "i64": 2**63 - 1, "u8": 255, "u32": 2**32 - 1, "bool": True}
    values |= {"i8": -128, "i16": -(2**15), "u16": 2**16 - 1, "u64": 2**64 - 1}
    numpy_names = {"f32": "f4", "f64": "f8", "i32": "i4", "i64": "i8", "u8": "u1", "u32": "u4", "bool": "?"}
    numpy_names |= {"i8": "i1", "i16": "i2", "u16": "u2", "u64": "u8"}
    # Mixed sizes in one struct: the padding must be where C puts it.
    parameters: list[Parameter] = []
    body = []
    for name in values:
        parameters += [given(f"s_{name}", name), given(f"a_{name}", name, (2,)), result(f"r_{name}", name, (2,))]
        body.append(f"args->r_{name}[0] = args->s_{name};\nargs->r_{name}[1] = args->a_{name}[1];")
    echo = load(program("echo", tuple(parameters), "\n".join(body)), CLEAN)
    arguments = []
    for name, value in values.items():
        arguments += [value, np.array([0, value], numpy_names[name])]
    for got, (name, value) in zip(echo(*arguments), values.items(), strict=True):
        assert got.dtype == np.dtype(numpy_names[name])
        assert got.tolist() == [value, value], name
    numpy_scalars = [np.dtype(numpy_names[name]).type(value) for name, value in values.items()]
    arguments[0::2] = numpy_scalars
    assert [got.tolist()[0] for got in echo(*arguments)] == list(values.values())


def test_a_float_beyond_f32_becomes_infinity(scale):
    assert np.isinf(scale(np.ones((2, 3), np.float32), 1e300)[0]).all()


def test_what_does_not_fit_is_refused_by_name(scale):
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(DTypeError, match="`x` must be f32, got float64"):
        scale(x.astype(np.float64), 1.0)
    with pytest.raises(ShapeError, match=r"`x` must have shape \(2, 3\), got \(3, 2\)"):
        scale(x.T.copy(), 1.0)
    with pytest.raises(TypeError, match="takes 2 values, got 1"):
        scale(x)
    with pytest.raises(DTypeError, match="`factor` must be one f32 number"):
        scale(x, "two")
    count = load(program("count_to", (given("n", "i32"), result("m", "i32")), "*args->m = args->n;"))
    with pytest.raises(DTypeError, match="`n` must be one i32 number, got 1.5"):
        count(1.5)
    with pytest.raises(OverflowError, match="`n` must fit i32"):
        count(2**40)
    assert count(np.int64(7))[0] == 7


def test_symbolic_dimensions_follow_the_arguments():
    double = load(
        program(
            "double_rows",
            (size("N"), given("x", "f32", ("N", 2)), result("y", "f32", ("N", 2)), result("z", "f32", ("N",))),
            """
            for (int64_t i = 0; i < 2 * args->N; ++i) { args->y[i] = 2.0f * args->x[i]; }
            for (int64_t i = 0; i < args->N; ++i) { args->z[i] = args->x[2 * i]; }
            """,
        ),
        CLEAN,
    )
    for n in (0, 1, 5):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        y, z = double(n, x)
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(z, x[:, 0])
    pair = load(
        program("pair", (size("N"), given("a", "f32", ("N",)), given("b", "f32", ("N",)), result("c")), "*args->c = 0.0f;")
    )
    with pytest.raises(ShapeError, match="axis 0 of `b` has 3 elements, N is 2"):
        pair(2, np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_arena_is_aligned_and_can_be_poisoned():
    look = program(
        "look",
        (result("misaligned", "i64"), result("first", "f32")),
        """
    *args->misaligned = (int64_t)((uintptr_t)arena % 64);
    *args->first = ((float *)arena)[100];
    ((float *)arena)[100] = 1.0f;
""",
        arena_bytes=4096,
    )
    assert load(look)()[0] == 0
    poisoned = load(look, poison=True)
    for _ in range(2):
        assert np.isnan(poisoned()[1])


def test_more_memory_than_there_is_becomes_our_error():
    huge = load(replace(SCALE, arena_bytes=1 << 60))
    with pytest.raises(ProgramMemoryError, match="needs 1,152,921,504,606,846,976 bytes"):
        huge(np.zeros((2, 3), np.float32), 1.0)
    with pytest.raises(MemoryError):
        huge(np.zeros((2, 3), np.float32), 1.0)


# ---- variables ----------------------------------------------------------------------------------

STEP = program(
    "sgd_step",
    (variable("w", "f32", (3,)), given("g", "f32", (3,)), variable("steps", "i64")),
    """
    for (int i = 0; i < 3; ++i) {
        args->w[i] -= 1.0f;
        args->w[i] -= args->g[i];
    }
    *args->steps += 1;
""",
)


def test_variables_are_written_in_place():
    step = load(STEP, CLEAN)
    w, steps = np.zeros(3, np.float32), np.zeros((), np.int64)
    for _ in range(3):
        assert step(w, np.ones(3, np.float32), steps) == ()
    assert w.tolist() == [-6, -6, -6] and steps == 3


def test_a_strided_variable_is_written_through():
    step = load(STEP)
    whole = np.zeros(6, np.float32)
    step(whole[::2], np.ones(3, np.float32), np.zeros((), np.int64))
    assert whole.tolist() == [-2, 0, -2, 0, -2, 0]


def test_an_input_that_shares_memory_with_a_variable_is_copied():
    step = load(STEP)
    w, steps = np.array([5, 6, 7], np.float32), np.zeros((), np.int64)
    step(w, w, steps)
    assert w.tolist() == [-1, -1, -1]
    whole = np.arange(4, dtype=np.float32)
    step(whole[1:], whole[:3], steps)
    assert whole.tolist() == [0, 0, 0, 0]


def test_two_variables_in_one_memory_are_refused():
    both = load(program("both", (variable("a", "f32", (2,)), variable("b", "f32", (2,))), "args->a[0] = 1.0f;"))
    x = np.zeros(3, np.float32)
    with pytest.raises(StagedError, match="`a` and `b` share memory"):
        both(x[:2], x[1:])
    both(x[:2], np.zeros(2, np.float32))


def test_a_read_only_variable_is_refused():
    w = np.zeros(3, np.float32)
    w.flags.writeable = False
    with pytest.raises(StagedError, match="`w` is read-only"):
        load(STEP)(w, np.ones(3, np.float32), np.zeros((), np.int64))


# ---- prints -------------------------------------------------------------------------------------

PRINTS = program(
    "prints",
    (given("n", "i32"),),
    """
    for (int i = 0; i < args->n; ++i) {
        char line[64];
        const int length = snprintf(line, sizeof line, "line %d \\xc3\\xa9\\n", i);
        st_write(host, line, length);
        if (st_stop_requested(host)) {
            return st_interrupted(host, 0);
        }
    }
    st_write(host, "no end", 6);
""",
    needs=("write", "stop"),
)


def test_prints_reach_sys_stdout_in_order(capsys):
    prints = load(PRINTS, CLEAN)
    print("before")
    prints(2)
    print(" after")
    assert capsys.readouterr().out == "before\nline 0 é\nline 1 é\nno end after\n"


def test_prints_arrive_as_they_happen():
    prints = load(PRINTS)
    pieces = []

    class Stream(io.StringIO):
        def write(self, text):
            pieces.append(text)
            return len(text)

    before, sys.stdout = sys.stdout, Stream()
    try:
        prints(3)
    finally:
        sys.stdout = before
    assert pieces == ["line 0 é\n", "line 1 é\n", "line 2 é\n", "no end"]


def test_a_long_line_keeps_its_characters(capsys):
    text = "é" * 3001  # two bytes each, split at an odd place
    long = program(
        "long_line", (), f'st_write(host, "x", 1);\n    st_write(host, "{text}", {2 * len(text)});', needs=("write",)
    )
    load(long, CLEAN)()
    assert capsys.readouterr().out == "x" + text


def test_an_exception_from_the_stream_stops_the_program_and_comes_out():
    prints = load(PRINTS)

    class Broken(io.StringIO):
        lines = 0

        def write(self, text):
            self.lines += 1
            if self.lines == 3:
                raise BrokenPipeError("gone")
            return len(text)

    stream = Broken()
    before, sys.stdout = sys.stdout, stream
    try:
        with pytest.raises(BrokenPipeError, match="gone"):
            prints(1_000_000)
        assert stream.lines == 3
        prints(1)  # and the program works again
    finally:
        sys.stdout = before
    assert stream.lines == 5


def test_without_a_stream_prints_vanish(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    load(PRINTS)(2)


# ---- errors -------------------------------------------------------------------------------------


def failing(kind: str, sites: tuple[Site, ...] = (), site: int = 0):
    return program(
        "failing",
        (given("n", "i32"),),
        f'    if (args->n < 0) {{\n        return st_fail(host, ST_{kind}, {site}, "n is %d: 100%%", args->n);\n    }}',
        needs=("fail",),
        sites=sites,
    )


def test_a_failed_assert_names_the_python_line(tmp_path):
    user = tmp_path / "user.py"
    user.write_text("def f(n):\n    assert n >= 0\n")
    site = Site(str(user), 2, 4, 17, "f", "assert n >= 0")
    check = load(failing("ASSERTION_ERROR", (site,)), CLEAN)
    check(1)
    for _ in range(2):
        with pytest.raises(AssertionError) as caught:
            check(-5)
    assert isinstance(caught.value, ProgramAssertionError)
    text = str(caught.value)
    assert text.splitlines()[0] == "n is -5: 100%"
    assert "user.py, line 2, in f" in text
    assert "      assert n >= 0\n      ^^^^^^^^^^^^^" in text
    check(1)


def test_a_line_that_cannot_be_read_again_is_shown_from_the_program(tmp_path):
    site = Site(str(tmp_path / "gone.py"), 3, 4, 8, "f", "y = x[i]")
    with pytest.raises(ProgramIndexError, match=r"(?s)gone.py, line 3, in f.*y = x\[i\]"):
        load(failing("INDEX_ERROR", (site,)))(-1)


def test_every_kind_of_error_has_its_exception():
    pairs = {
        "ZERO_DIVISION_ERROR": ZeroDivisionError,
        "VALUE_ERROR": ValueError,
        "NAN_ERROR": FloatingPointError,
        "MEMORY_ERROR": MemoryError,
        "FILE_ERROR": OSError,
        "OVERFLOW_ERROR": OverflowError,
        "RECURSION_ERROR": RecursionError,
        "RUNTIME_ERROR": ProgramError,
        "TYPE_ERROR": TypeError,
        "NOT_IMPLEMENTED_ERROR": NotImplementedError,
    }
    for kind, expected in pairs.items():
        with pytest.raises(expected, match="n is -1: 100%") as caught:
            load(failing(kind))(-1)
        assert isinstance(caught.value, ProgramError)
    assert len(ERRORS) == len(pairs) + 2
    assert str(ProgramFileError("cannot read x.npy")) == "cannot read x.npy"


def test_the_first_of_many_errors_stands():
    twice = program(
        "twice",
        (),
        """
    (void)st_fail(host, ST_VALUE_ERROR, -1, "%s", "first");
    return st_fail(host, ST_INDEX_ERROR, -1, "%s", "second");
""",
        needs=("fail",),
    )
    with pytest.raises(StagedError, match="first"):
        load(twice, CLEAN)()


# ---- interrupts ---------------------------------------------------------------------------------

SPIN = program(
    "spin",
    (variable("turns", "i64"), given("limit", "f64")),
    """
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        *args->turns += 1;
        if (st_stop_requested(host)) {
            return st_interrupted(host, 0);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < args->limit);
""",
    needs=("stop",),
    before="#include <time.h>\n",
)


def interrupt_in(turns: np.ndarray) -> tuple[threading.Thread, list[float]]:
    """Send a Ctrl-C as soon as the program that counts these turns has begun."""
    return interrupt_when(lambda: bool(turns))


@stays_inside()
def test_ctrl_c_raises_within_a_second_and_the_handler_comes_back():
    """A second of the processor's: other work on the machine does not count."""
    spin = load(SPIN)
    turns = np.zeros((), np.int64)
    handler = signal.getsignal(signal.SIGINT)
    _, sent = interrupt_in(turns)
    with pytest.raises(KeyboardInterrupt):
        spin(turns, 60.0)
    assert time.process_time() - sent[0] < 1
    assert signal.getsignal(signal.SIGINT) is handler
    with pytest.raises(KeyboardInterrupt):  # Python's own way works again
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    spin(turns, 0.001)


MEDDLER = r"""
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stddef.h>
#include <string.h>
static struct sigaction found;
static void handle(int number) {
    (void)sigaction(SIGINT, &found, NULL);
    (void)raise(number);
}
void come(void);
void again(void);
void go(void);
void again(void) {
    struct sigaction own;
    memset(&own, 0, sizeof own);
    (void)sigemptyset(&own.sa_mask);
    own.sa_handler = handle;
    own.sa_flags = SA_NODEFER | (int)SA_RESETHAND;
    (void)sigaction(SIGINT, &own, NULL);
}
void come(void) {
    struct sigaction own;
    memset(&own, 0, sizeof own);
    (void)sigemptyset(&own.sa_mask);
    own.sa_handler = handle;
    own.sa_flags = SA_NODEFER | (int)SA_RESETHAND;  // as LLVM does
    (void)sigaction(SIGINT, &own, &found);
}
void go(void) {
    (void)sigaction(SIGINT, &found, NULL);
}
"""
CALLS = program(
    "calls",
    (given("address", "i64"),),
    "    void (*function)(void);\n    memcpy(&function, &args->address, sizeof function);\n    function();\n",
    before="#include <string.h>\n",
)


@pytest.mark.parametrize("order", ["[come] go", "[come]", "come [go]", "[come go]", "[come] go []", "[come] [go]", "[come] again []"])
@stays_inside()
def test_ctrl_c_is_pythons_again_though_a_library_changes_handlers(order):
    """In brackets: during a call, as an OpenCL driver does when it compiles."""
    ffi = cffi.FFI()
    ffi.cdef("void come(void); void again(void); void go(void);")
    library = ffi.dlopen(str(compile_text("meddler", MEDDLER)))
    spin, calls = load(SPIN), load(CALLS)
    inside = False
    try:
        for word in order.split():
            inside = inside or word.startswith("[")
            name = word.strip("[]")
            if not name:
                spin(np.zeros((), np.int64), 0.001)
            elif inside:
                calls(np.int64(int(ffi.cast("intptr_t", ffi.addressof(library, name)))))
            else:
                getattr(library, name)()
            inside = inside and not word.endswith("]")
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            turns = np.zeros((), np.int64)
            interrupt_in(turns)
            with pytest.raises(KeyboardInterrupt):
                spin(turns, 60.0)
    finally:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))


def test_ctrl_c_in_a_process_of_its_own_ends_it_as_python_does(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import threading, time
            import numpy as np
            from staged.runtime.c import load
            from tests.runtime.test_native import SPIN
            spin = load(SPIN)
            turns = np.zeros((), np.int64)

            def announce():
                while not turns:
                    time.sleep(0.001)
                print("runs", flush=True)

            threading.Thread(target=announce).start()
            try:
                spin(turns, 60.0)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                raise
            """
        )
    )
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=50)  # before the program ends by itself
    assert out == "interrupted\n"
    assert "KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT


@stays_inside()
def test_an_ignored_interrupt_stays_ignored():
    spin = load(SPIN)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        turns = np.zeros((), np.int64)
        sender, _ = interrupt_in(turns)
        spin(turns, 0.2)
        sender.join()
    finally:
        signal.signal(signal.SIGINT, before)


@stays_inside()
def test_a_handler_of_the_user_is_called():
    spin = load(SPIN)
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        turns = np.zeros((), np.int64)
        interrupt_in(turns)
        with pytest.raises(KeyboardInterrupt):
            spin(turns, 60.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


@stays_inside()
def test_an_interrupt_while_printing_is_pythons():
    prints = load(PRINTS)
    ended = []

    class Slow(io.StringIO):
        def write(self, text):
            interrupt_when(lambda: True)
            time.sleep(60)
            ended.append(text)
            return len(text)

    before, sys.stdout = sys.stdout, Slow()
    try:
        with pytest.raises(KeyboardInterrupt):
            prints(10)
    finally:
        sys.stdout = before
    assert not ended


# ---- threads ------------------------------------------------------------------------------------


MEETS = program(
    "meets",
    (given("address", "i64"), given("count", "i64"), result("met", "bool")),
    """
    int64_t *arrived;
    memcpy(&arrived, &args->address, sizeof arrived);
    (void)__atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        *args->met = __atomic_load_n(arrived, __ATOMIC_SEQ_CST) >= args->count;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (!*args->met && now.tv_sec - start.tv_sec < 60);
""",
    before="#include <string.h>\n#include <time.h>\n",
)


def test_threads_call_one_program_at_once_without_the_gil():
    """Each call waits in C until all of them have begun."""
    meets = load(MEETS)
    arrived = np.zeros((), np.int64)
    met = []
    run_at_once([lambda: met.append(bool(meets(arrived.ctypes.data, 4)[0]))] * 4)
    assert met == [True] * 4


def test_concurrent_calls_do_not_share_an_arena():
    fill = load(
        program(
            "fill",
            (given("value", "i32"), result("wrong", "i64")),
            """
    int32_t *scratch = arena;
    int64_t wrong = 0;
    for (int turn = 0; turn < 200; ++turn) {
        for (int i = 0; i < 1024; ++i) { ((volatile int32_t *)scratch)[i] = args->value; }
        for (int i = 0; i < 1024; ++i) { wrong += ((volatile int32_t *)scratch)[i] != args->value; }
    }
    *args->wrong = wrong;
""",
            arena_bytes=4096,
        ),
        CLEAN,
    )
    wrong: list[int] = []
    run_at_once(lambda value=value: wrong.extend(int(fill(value)[0]) for _ in range(10)) for value in range(6))
    assert wrong == [0] * 60


def test_calls_that_write_the_same_variable_take_turns():
    slow_add = load(
        program(
            "slow_add",
            (variable("total", "i64"),),
            """
    for (int i = 0; i < 20000; ++i) {
        const int64_t before = *(volatile int64_t *)args->total;
        *(volatile int64_t *)args->total = before + 1;
    }
""",
        )
    )
    total = np.zeros((), np.int64)
    run_at_once([lambda: [slow_add(total) for _ in range(20)]] * 4)
    assert total == 4 * 20 * 20000


def test_a_call_from_inside_its_own_print_is_refused_rather_than_deadlocked():
    shout = load(
        program("shout", (variable("n", "i64"),), 'st_write(host, "x\\n", 2);\n    *args->n += 1;', needs=("write",))
    )
    n = np.zeros((), np.int64)

    class Recursive(io.StringIO):
        def write(self, text):
            shout(n)
            return len(text)

    before, sys.stdout = sys.stdout, Recursive()
    try:
        with pytest.raises(ProgramError, match="called from inside a call"):
            shout(n)
    finally:
        sys.stdout = before
    shout(n)


def test_a_program_with_threads_works_after_a_fork():
    add = load(
        program(
            "forked",
            (given("x", "f32", (1000,)), result("y", "f32", (1000,))),
            "st_parallel(host->team, 1000, 10, add_one, (void *)(uintptr_t)args);",
            before="""
static void add_one(void *context, int64_t begin, int64_t end) {
    const forked_args *args = context;
    for (int64_t i = begin; i < end; ++i) { args->y[i] = args->x[i] + 1.0f; }
}
""",
            needs=("team",),
            threads=3,
        ),
        CLEAN,
    )
    x = np.arange(1000, dtype=np.float32)
    np.testing.assert_array_equal(add(x)[0], x + 1)
    child = os.fork()
    if child == 0:
        ok = all(bool((add(x)[0] == x + 1).all()) for _ in range(3))
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- steady state -------------------------------------------------------------------------------


def resident() -> int:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


def test_memory_is_flat_over_ten_thousand_calls(scale):
    x = np.ones((2, 3), np.float32)
    step = load(STEP)
    w, steps = np.zeros(3, np.float32), np.zeros((), np.int64)

    def calls(count):
        for _ in range(count):
            scale(x, 2.0)
            step(w, w, steps)
            scale(x.T.copy().T, 2.0)

    calls(500)
    gc.collect()
    before = resident()
    calls(10_000)
    gc.collect()
    assert resident() - before < 1 << 20


def test_a_dropped_program_is_unloaded_with_its_threads():
    artifact = program(
        "leaver",
        (),
        "st_parallel(host->team, 10, 1, nothing, arena);",
        before="""
static void nothing(void *context, int64_t begin, int64_t end) {
    (void)context;
    (void)(begin + end);
}
""",
        needs=("team",),
        threads=3,
    )
    leaver = load(artifact)
    leaver()
    path = str(leaver.path)
    assert path in Path("/proc/self/maps").read_text()
    tasks = len(os.listdir("/proc/self/task"))
    del leaver
    gc.collect()
    assert path not in Path("/proc/self/maps").read_text()
    assert len(os.listdir("/proc/self/task")) == tasks - 2


def test_a_program_in_a_cycle_of_garbage_ends_its_threads_before_it_is_unloaded(tmp_path):
    code = """
    import gc
    import numpy as np
    import staged as st

    for turn in range(3):
        def f(x):
            return st.tanh(x) * 2.0
        step = st.function(f)
        step(np.ones((2000, 300), np.float32))
        cycle = [step]
        cycle.append(cycle)
        del step, cycle
        gc.collect()
    print("alive")
    """
    (tmp_path / "cycle.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(tmp_path / "cycle.py")],
        env={**os.environ, "STAGED_NUM_THREADS": "3", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
