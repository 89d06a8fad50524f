"""The promises of the README on a generated program, each shown on a real training program."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import staged as st
from examples.mnist.models import MLP
from staged import nn, optim
from tests.programs import promises

RNG = np.random.default_rng(0)


class Small(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc1 = nn.Linear(36, 16)
        self.norm = nn.LayerNorm(16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        h = st.max_pool2d(st.relu(self.conv(x)), 2)
        h = st.reshape(h, (h.shape[0], 36))
        return self.fc2(st.dropout(self.norm(st.tanh(self.fc1(h))), 0.1))


@st.function
def train(images, labels, epochs):
    model = Small()
    opt = optim.Adam(model.parameters(), lr=0.01)

    def loss_fn(x, y):
        return st.cross_entropy(model(x), y)

    for epoch in st.range(epochs):
        total = 0.0
        for x, y in st.batches(images, labels, size=10, shuffle=True):
            loss, grads = st.value_and_grad(loss_fn, wrt=model)(x, y)
            opt.step(grads)
            total += loss
        print(f"epoch {epoch}: loss {total:.5f}")
    return model.state_dict()


IMAGES = RNG.standard_normal((50, 1, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 10, 50).astype(np.int32)


ARRAYS = {"images": IMAGES, "labels": LABELS}


# ---- the exported folder ------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["portable", "native"])
def test_the_exported_folder_builds_strictly_and_prints_what_python_prints(target, tmp_path, capsys):
    program = train.stage(IMAGES, LABELS, 3)
    program.export(tmp_path, target=target)
    promises.build(tmp_path, promises.STRICT + (" -march=native" if target == "native" else ""))
    alone = promises.run(tmp_path, "train", ARRAYS, ["--epochs", "3", "--out", "."])
    weights = st.function(train.__wrapped__, target=target)(IMAGES, LABELS, 3)
    assert capsys.readouterr().out == alone.output and alone.output.count("loss") == 3
    for name, value in weights.items():
        np.testing.assert_array_equal(np.load(tmp_path / f"result.{name}.npy"), value)


def test_the_exported_program_is_clean_under_the_sanitizers(tmp_path):
    train.stage(IMAGES, LABELS, 3).export(tmp_path, target="portable")
    promises.build(tmp_path, promises.STRICT + " -g -fsanitize=address,undefined -fno-sanitize-recover=all")
    command = promises.command(tmp_path, "train", ARRAYS, ["--epochs", "3"])
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr == ""


def test_ten_thousand_steps_allocate_nothing_after_the_start(tmp_path):
    train.stage(IMAGES, LABELS, 3).export(tmp_path, target="portable")
    promises.build(tmp_path)
    # 5 and 10,000 steps
    runs = [promises.run(tmp_path, "train", ARRAYS, ["--epochs", epochs]) for epochs in ("1", "2000")]
    assert runs[0].allocations == runs[1].allocations > 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_is_flat_over_ten_thousand_calls():
    @st.function
    def f(x):
        return st.softmax(x @ x.T)

    program = f.stage(np.ones((8, 8), np.float32))
    x = np.ones((8, 8), np.float32)
    for _ in range(500):
        program(x)
    before = resident_bytes()
    for _ in range(10_000):
        program(x)
    assert resident_bytes() - before < 1 << 20


# ---- size and staging time ----------------------------------------------------------------------


def nested(outer: int, inner: int):
    @st.function
    def f(x):
        def loss(x):
            total = st.zeros(4)
            for _ in st.range(outer):
                for _ in st.range(inner):
                    total = st.tanh(total + x)
            return st.sum(total)

        return st.value_and_grad(loss)(x)

    return f


def test_lines_and_staging_time_do_not_depend_on_trip_counts():
    x = np.linspace(0, 1, 4, dtype=np.float32)
    lines, seconds = [], []
    for trips in ((10, 10), (100_000, 10), (10, 100_000)):
        best = []
        for _ in range(5):
            begin = time.process_time()  # other work on the machine does not count
            program = nested(*trips).stage(x)
            source = program.source
            best.append(time.process_time() - begin)
        lines.append(len(source.splitlines()))
        seconds.append(min(best))
    assert len(set(lines)) == 1
    assert max(seconds) < 3.0 * min(seconds) + 0.005  # the trip counts differ by 10,000


def test_the_same_program_gives_the_same_bytes_in_any_process(tmp_path):
    text = """
        import sys
        sys.path[:0] = [ROOT]
        import numpy as np
        from tests.programs.test_promises import IMAGES, LABELS, train
        program = train.stage(IMAGES, LABELS, 3)
        sys.stdout.write(program.source + program.header)
    """
    root = str(Path(__file__).parents[2])
    outputs = set()
    for number, seed in enumerate(("0", "1", "12345")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "stage.py").write_text(textwrap.dedent(text).replace("ROOT", repr(root)))
        result = subprocess.run(
            [sys.executable, "stage.py"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "STAGED_NUM_THREADS": "2"},
        )
        outputs.add(result.stdout)
    assert len(outputs) == 1 and "epoch" in outputs.pop()


# ---- stopping -----------------------------------------------------------------------------------


def test_ctrl_c_stops_a_long_run_and_leaves_variables_whole():
    text = """
        import sys, time
        sys.path[:0] = [ROOT]
        import numpy as np
        import staged as st
        from tests.interrupts import interrupt_after
        a, b = st.Variable(np.zeros(1000), name="a"), st.Variable(np.zeros(1000), name="b")

        @st.function
        def forever():
            while True:
                a.value = a.value + 1.0
                b.value = b.value + 1.0

        program = forever.stage().compile()
        try:
            _, sent = interrupt_after(0.5)
            forever()
        except KeyboardInterrupt:
            took = time.process_time() - sent[0]
            assert took < 1.0, took
            assert a.numpy()[0] > 10 and np.array_equal(a.numpy(), b.numpy())
            print("stopped")
    """
    code = textwrap.dedent(text).replace("ROOT", repr(str(Path(__file__).parents[2])))
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"staged_stop_{os.getpid()}.py"
    path.write_text(code)
    try:
        result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300)
    finally:
        path.unlink()
    assert result.stdout == "stopped\n", result.stderr


def test_nan_checks_name_the_line_that_made_it():
    @st.function(check_nan=True)
    def f(x):
        y = x - 1.0
        z = st.log(y)  # here
        return z + 1.0

    f(np.full(3, 2.0, np.float32))
    with pytest.raises(FloatingPointError, match="NaN") as caught:
        f(np.zeros(3, np.float32))
    assert "test_promises.py" in str(caught.value)


def test_the_memory_report_names_buffers_and_the_peak():
    program = train.stage(IMAGES, LABELS, 3)
    memory = program.memory
    assert memory.peak <= memory.arena <= memory.total and memory.bounded
    assert "bytes" in str(memory) and any(row.line.startswith("test_promises.py") for row in memory.rows)


def test_models_are_shared_with_the_example():
    assert MLP().named_parameters().keys() == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "fc3.weight", "fc3.bias"]


def test_threads_may_call_one_function_at_once():
    from concurrent.futures import ThreadPoolExecutor

    @st.function
    def f(x, n):
        for _ in st.range(n):
            x = st.sin(x) + 1.0
        return x

    inputs = [np.full(100, value, np.float64) for value in np.linspace(0, 1, 16)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: f(x, 50), inputs))
    for x, y in zip(inputs, together, strict=True):
        for _ in range(50):
            x = np.sin(x) + 1.0
        np.testing.assert_allclose(y, x, rtol=1e-12)


def test_a_step_called_from_python_keeps_its_parameters_in_place():
    model = nn.Linear(3, 2, dtype=st.f64)
    opt = optim.SGD(model.parameters(), lr=0.5)  # converges from any start: the start depends on what ran before
    buffer = model.weight.buffer()

    @st.function
    def step(x, y):
        loss, grads = st.value_and_grad(lambda: st.mse_loss(model(x), y), wrt=model)()
        opt.step(grads)
        return loss

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.standard_normal((20, 2))
    losses = [float(step(x, y)) for _ in range(200)]
    assert losses[-1] < losses[0] and model.weight.buffer() is buffer
    design = np.column_stack([x, np.ones(20)])
    best = np.linalg.lstsq(design, y, rcond=None)[0]
    np.testing.assert_allclose(np.asarray(model.weight), best[:3].T, atol=1e-3)
