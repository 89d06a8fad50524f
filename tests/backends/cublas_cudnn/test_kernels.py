"""Kernels' use of threads: teams for totals, packs of 16 bytes, tiles for transposes, scatters that gather, shared launches."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import INCLUDE
from staged import GPU, with_backend
from staged.backends.cublas_cudnn import program
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu import scatter
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import on_gpu

pytestmark = pytest.mark.usefixtures("device")
RNG = np.random.default_rng(7)


def check(compute: Callable[..., Any], device: Any, *args: Any, tolerance: float = 2e-5) -> str:
    """The values are eager's, the same bits in any order of threads; returns the program's text."""
    program = on_gpu(compute)
    with st.eager():
        expected = program(*args)
    found = program(*args)
    compare_trees(found, expected, rtol=tolerance, atol=tolerance)
    for order in ("reverse", "shuffled"):
        device.set_thread_order(order, seed=11)
        compare_trees(program(*args), found, rtol=0.0, atol=0.0)
    return str(program.stage(*args).source)


def kernels(text: str) -> list[str]:
    return re.findall(r"((?://.*\n)*)extern \"C\" __global__ void", text)


def totals(x: Any) -> Any:
    """Every reduction, over some of three axes."""
    made = []
    for axis in (None, 0, 1, 2, (0, 1), (0, 2), (1, 2)):
        made += [
            st.sum(x, axis=axis),
            st.max(x, axis=axis),
            st.min(x * 2.0, axis=axis),
            st.prod(x * 0.1 + 1.0, axis=axis),
        ]
        made += [st.any(x > 2.5, axis=axis), st.all(x < 3.0, axis=axis), st.sum(st.astype(x * 9.0, st.i32), axis=axis)]
    made += [st.argmax(x, axis=axis) for axis in (0, 1, 2)] + [st.argmin(x, axis=axis) for axis in (0, 1, 2)]
    return made


# Rows for threads, warps and blocks; columns; long ones, ragged ones, a single one.
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 3, 400), (70, 33, 9), (5, 64, 96), (1, 1, 5000), (1, 700, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_totals_over_any_axes(shape: tuple[int, ...], dtype: Any, device: Any) -> None:
    x = (RNG.normal(size=shape) + 0.5).astype(dtype)
    check(totals, device, x, tolerance=1e-4 if dtype is np.float32 else 1e-10)


def test_totals_of_numbers_that_are_none_and_of_equals(device: Any) -> None:
    x = np.zeros((6, 200), np.float32)
    x[1, 100], x[2, 3], x[3, 7], x[3, 9] = np.nan, -np.inf, 4.0, 4.0
    x[4] = -np.inf

    def ends(x: Any) -> Any:
        return (
            st.max(x, axis=1),
            st.min(x, axis=1),
            st.argmax(x, axis=1),
            st.argmin(x, axis=1),
            st.max(x),
            st.sum(x, axis=1),
        )

    assert "a block of 128 threads each" in check(ends, device, x)
    assert "a warp each" in check(ends, device, x[:, :120].copy())


def softmax(x: Any) -> Any:
    return st.softmax(x, axis=1)


def log_softmax(x: Any) -> Any:
    return st.log_softmax(x, axis=1)


def layer_norm(x: Any) -> Any:
    return st.layer_norm(x, (x.shape[1],))


@pytest.mark.parametrize("compute", [softmax, log_softmax, layer_norm])
@pytest.mark.parametrize(
    ("shape", "how"), [((9, 10), "a thread each"), ((200, 130), "a warp each"), ((9, 3000), "a block of")]
)
def test_rows_are_one_kernel(compute: Any, shape: tuple[int, ...], how: str, device: Any) -> None:
    text = check(compute, device, RNG.normal(size=shape).astype(np.float32))
    (comments,) = kernels(text)
    assert how in comments
    assert ("st_device_f32x4" in text) == (shape == (9, 3000))


def test_rows_too_long_for_shared_memory_have_workspace(device: Any, monkeypatch: Any) -> None:
    x = RNG.normal(size=(7, 9000)).astype(np.float32)
    text = check(softmax, device, x)
    assert "scratch + (int64_t)blockIdx.x * " in text and "__syncthreads();  //" not in text
    monkeypatch.setattr(program, "CUDA_GPU", replace(CUDA_GPU, workspace_bytes=100_000))
    text = check(softmax, device, x[:, 1:].copy())
    assert "i += 2" in text and "before the workspace is used again" in text


def columns(x: Any) -> Any:
    return st.sum(x, axis=0), st.max(x, axis=0)


@pytest.mark.parametrize("width", [32, 50])
def test_columns_are_shared_by_the_warps_of_a_block(width: int, device: Any) -> None:
    text = check(columns, device, RNG.normal(size=(300, width)).astype(np.float32))
    assert "32 threads each, a block for 32 of them" in text


# ---- packs --------------------------------------------------------------------------------------


def chain(x: Any, b: Any) -> Any:
    y = st.maximum(x + b, 0.0)
    return y * 2.0, x > 0.5


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_are_read_and_written_sixteen_bytes_at_once(dtype: Any, device: Any) -> None:
    text = check(chain, device, RNG.normal(size=(64, 128)).astype(dtype), RNG.normal(size=128).astype(dtype))
    width = 16 // np.dtype(dtype).itemsize
    assert f"an item is {width} neighbours along j" in text
    # Rows of another length have no such pieces.
    text = check(chain, device, RNG.normal(size=(64, 127)).astype(dtype), RNG.normal(size=127).astype(dtype))
    assert "neighbours" not in text


def shifted(x: Any) -> Any:
    return x[3:8195] * 2.0, x[4:8196] * 2.0


def test_what_starts_between_packs_is_read_element_by_element(device: Any) -> None:
    text = check(shifted, device, RNG.normal(size=9000).astype(np.float32))
    assert "= args_0[i + u] * 2.0f" in text
    assert "const st_device_f32x4 args_0_4 = *(const st_device_f32x4 *)(args_0_2 + i);" in text


# ---- tiles --------------------------------------------------------------------------------------


def turned(x: Any, y: Any) -> Any:
    return st.permute_dims(x, (0, 2, 1)) * 2.0 + y


@pytest.mark.parametrize("shape", [(2, 64, 96), (3, 40, 37)])
def test_transposes_go_through_shared_memory(shape: tuple[int, ...], device: Any) -> None:
    x = RNG.normal(size=shape).astype(np.float32)
    text = check(turned, device, x, np.swapaxes(x, 1, 2).copy())
    (comments,) = kernels(text)
    assert "a block for each tile of 32 x 32" in comments
    assert ("if (j < 37 && k < 40)" in text) == (shape == (3, 40, 37))


@pytest.mark.parametrize(
    ("shape", "axes", "team"),
    [((4, 6, 300), (0, 2), "a block of"), ((70, 100), (1,), "a warp"), ((300, 45), (0,), "threads each, a block for")],
)
def test_what_a_team_updates_after_its_totals_is_updated_in_its_place(
    shape: tuple[int, ...], axes: tuple[int, ...], team: str, device: Any
) -> None:
    extent = shape[next(axis for axis in range(len(shape)) if axis not in axes)]
    x, start = RNG.normal(size=shape).astype(np.float32), RNG.normal(size=extent).astype(np.float32)

    def train(backend: Any) -> Any:
        b, v = st.Variable(start), st.Variable(start)

        @st.function(target="portable")
        def step(x: Any) -> Any:
            with with_backend(backend, x):
                for _ in st.range(3):
                    v.value = 0.5 * v.value + st.sum(x * st.cos(x), axis=axes)
                    b.value = b.value - 0.1 * v.value
            return b.value, v.value

        return step(x), step.stage(x)

    expected, _ = train(st.CPU)
    for order in ("forward", "reverse", "shuffled"):
        device.set_thread_order(order, seed=5)
        found, program = train(GPU)
        compare_trees(found, expected, rtol=2e-5, atol=2e-5)
    assert "cudaMemcpyDeviceToDevice" not in program.source
    assert any(team in head for head in kernels(program.source)), kernels(program.source)


# ---- scatters -----------------------------------------------------------------------------------


def added(x: Any, k: Any) -> Any:
    return st.grad(lambda x: st.sum(st.take(x, k, axis=0) ** 3))(x), st.grad(
        lambda x: st.sum(st.take(x, k, axis=1) ** 3)
    )(x)


@pytest.mark.parametrize(("count", "rows", "columns"), [(64, 7, 32), (50, 65, 40), (2, 3, 100), (333, 2, 33)])
def test_rows_are_looked_for_by_warps(count: int, rows: int, columns: int, device: Any) -> None:
    """The order of additions is that of the host: the same bits, in f32 too."""
    x = RNG.normal(size=(rows, columns)).astype(np.float32)
    k = RNG.integers(-rows, rows, count)

    def summed(x: Any, k: Any, u: Any) -> Any:
        y = x * 1.0
        y[k] += u
        return y, st.scatter_add(st.zeros((rows, columns)), k, u), st.scatter_add(x, k, u)

    u = RNG.normal(size=(count, columns)).astype(np.float32)
    text = check(summed, device, x, k, u)
    assert text.count("its lanes look for the turns") >= 1 and "__ballot_sync" in text
    expected = summed_by_hand(np.zeros_like(x), k, u)
    for order in ("forward", "shuffled"):
        device.set_thread_order(order, seed=5)
        found = st.function(target="portable")(on_gpu(summed))(x, k, u)
        np.testing.assert_array_equal(np.asarray(found[1]), expected)


def summed_by_hand(x: Any, k: Any, u: Any) -> Any:
    for row, update in zip(k, u, strict=True):
        x[row] += update
    return x


def test_a_label_that_is_no_class_is_named_as_on_the_cpu(device: Any) -> None:
    def losses(x: Any, y: Any) -> Any:
        return st.value_and_grad(st.cross_entropy)(x, y)

    x = RNG.normal(size=(6, 5)).astype(np.float32)
    for label in (-100, 5):
        y = np.array([0, 1, 2, label, 4, 0])
        with pytest.raises(IndexError, match=f"label {label} is out of range for 5 classes .a loss leaves out"):
            st.function(on_gpu(losses))(x, y)


def test_an_index_out_of_range_is_seen_by_the_lane_that_looks(device: Any) -> None:
    def summed(k: Any, u: Any) -> Any:
        return st.scatter_add(st.zeros((5, 32)), k, u)

    k = np.array([0, 4, 5, 1])
    with pytest.raises(IndexError, match="index 5 is out of range for an axis of 5"):
        st.function(target="portable")(on_gpu(summed))(k, np.ones((4, 32), np.float32))


def written(x: Any, k: Any, rows: Any) -> Any:
    y = x * 1.0
    y[k] = rows
    z = x[:, 0] * 1.0
    z[k] = rows[:, 0]
    return y, z


def along(x: Any, k: Any) -> Any:
    return st.grad(lambda x: st.sum(st.take_along_axis(x, k, axis=1) ** 2))(x)


@pytest.mark.parametrize("most", [1 << 20, 0])
def test_scatters_agree_whichever_way_their_threads_go(most: int, device: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(scatter, "MOST_ELEMENTS", most)
    width = 18 if most else 20  # another program: texts are kept
    x = RNG.normal(size=(12, width)).astype(np.float32)
    k = RNG.integers(-12, 12, 50)
    text = check(added, device, x, k)
    assert ("== row" in text) == bool(most)
    check(written, device, x, k, RNG.normal(size=(50, width)).astype(np.float32))
    check(along, device, x, RNG.integers(-18, 18, (12, 40)))


def test_atomics_add_where_a_program_allows_them(device: Any) -> None:
    def summed(x: Any, k: Any, whole: Any, rows: Any) -> Any:
        with with_backend(GPU, x, k, deterministic=False):
            of_rows, of_columns = added(x, k)
            counts = whole * 1
            counts[k] += 1
            last = x * 1.0
            last[k] = rows
        return of_rows, of_columns, counts, last

    program = st.function(target="portable")(summed)
    x, k = RNG.normal(size=(19, 19)).astype(np.float32), RNG.integers(-19, 19, 70)
    arguments = x, k, np.zeros(19, np.int32), RNG.normal(size=(70, 19)).astype(np.float32)
    with st.eager():
        expected = program(*arguments)
    for order in ("forward", "reverse", "shuffled"):
        device.set_thread_order(order, seed=3)
        compare_trees(program(*arguments), expected, rtol=1e-5, atol=1e-5)
    text = program.stage(*arguments).source
    # Whole numbers and values that replace others come out the same in any order only by looking for them.
    assert (
        len([head for head in kernels(text) if "add to the result by atomics" in head])
        == text.count("atomicAdd(&")
        == 2
    )
    assert "atomicAdd(&" not in on_gpu(added).stage(x, k).source
    with pytest.raises(IndexError):
        program(x, np.full(70, 19), *arguments[2:])


# ---- shared launches ----------------------------------------------------------------------------


def test_updates_of_all_parameters_share_launches(device: Any) -> None:
    shapes = [(40, 30), (30,), (30, 7), (7,)]
    values = [RNG.normal(size=shape).astype(np.float32) for shape in shapes]

    def train(backend: Any) -> Any:
        params = [st.Variable(value) for value in values]
        optimizer = st.optim.Adam(params, lr=0.05)

        @st.function
        def step() -> Any:
            with with_backend(backend):
                for _ in st.range(5):
                    optimizer.step([st.sin(param.value) for param in params])
            return [param.value for param in params]

        return step() + step(), step.stage()

    found, program = train(GPU)
    expected, _ = train(st.CPU)
    compare_trees(found, expected, rtol=1e-4, atol=1e-5)
    entry = program.source[program.source.index("\nint step(") :]
    assert len(re.findall(r"CUDA_CHECK\(\d+, launch_", entry)) == 1
    assert "4 parts side by side" in program.source


def test_updates_share_a_launch_after_the_products_of_all_gradients(device: Any) -> None:
    shapes = [(40, 30), (30, 12), (12, 7)]
    values = [RNG.normal(size=shape).astype(np.float32) / 5 for shape in shapes]
    x = RNG.normal(size=(9, 40)).astype(np.float32)

    def train(backend: Any) -> Any:
        @st.function
        def step(x: Any) -> Any:
            with with_backend(backend, x):
                params = [st.Variable(value) for value in values]
                optimizer = st.optim.SGD(params, lr=0.05, momentum=0.9)

                def loss(x: Any) -> Any:
                    for param in params:
                        x = st.tanh(x @ param.value)
                    return st.mean(x * x)

                for _ in st.range(4):
                    _, grads = st.value_and_grad(loss, wrt=params)(x)
                    optimizer.step(grads)
            return [param.value for param in params]

        return step(x), step.stage(x)

    found, program = train(GPU)
    expected, _ = train(st.CPU)
    compare_trees(found, expected, rtol=1e-4, atol=1e-6)
    entry = program.source[program.source.index("\nint step(") :]
    assert len(re.findall(r"CUDA_CHECK\(\d+, launch_update", program.source)) == 1
    assert len(re.findall(r"CUDA_CHECK\(\d+, cudaMemsetAsync\(d->velocity", entry)) == len(values), (
        "zeros need no kernel"
    )
    waits = entry.count("cudaStreamSynchronize") + entry.count("wait_for_device")
    assert waits == 1, "three results come to the host, and the program waits once"


def test_kernels_that_need_each_other_do_not_share_a_launch(device: Any) -> None:
    def chained(x: Any) -> Any:
        y = st.take(x, np.arange(8), axis=0) * 2.0
        z = st.take(y, np.arange(8)[::-1].copy(), axis=0) * 2.0
        return y, z

    check(chained, device, RNG.normal(size=(8, 5)).astype(np.float32))


# ---- other compilers ----------------------------------------------------------------------------


def everything(x: Any, k: Any) -> Any:
    return totals(x.reshape((4, 64, 96))), softmax(x), layer_norm(x), columns(x), chain(x, x[0]), x.T * 2.0, added(x, k)


def test_every_kind_of_kernel_compiles_without_a_word(tmp_path: Path) -> None:
    x, k = RNG.normal(size=(256, 96)).astype(np.float32), RNG.integers(0, 90, 20)
    artifact = on_gpu(everything).stage(x, k)._artifact
    name = artifact.name
    for suffix, text in ((".cu", artifact.source), (".h", artifact.header), ("_support.h", artifact.support)):
        (tmp_path / f"{name}{suffix}").write_text(text)
    warnings = ["-Wall", "-Wextra", "-Werror", "-isystem", str(INCLUDE)]
    commands = [
        ["gcc", "-x", "c", "-std=c11", "-DHOST_ONLY", *warnings, "-c", f"{name}.cu", "-o", "host.o"],
        ["g++", "-x", "c++", "-std=c++17", "-DKERNELS_ONLY", "-include", "cuda_runtime.h", *warnings, "-c", f"{name}.cu",
         "-o", "kernels.o"],
    ]  # fmt: skip
    if shutil.which("nvcc"):
        commands.append(["nvcc", "-arch=sm_90", "-Werror", "all-warnings", "-DKERNELS_ONLY", "-cubin", f"{name}.cu"])
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


# ---- indices and addresses ------------------------------------------------------------------------


def squares(x: Any) -> Any:
    return x * x + 1.0


def test_indices_have_32_bits_where_that_is_enough(device: Any) -> None:
    text = check(squares, device, RNG.normal(size=(33, 7)).astype(np.float32))
    assert re.search(r"const int \w+ = blockIdx.x \* blockDim.x \+ threadIdx.x;", text)
    assert not re.search(r"for \(int64_t|const int64_t \w+ = \(int64_t\)blockIdx", text)
    large = np.broadcast_to(np.float32(0), (3, 1 << 30))  # of three billion elements there is one
    assert "const int64_t pack = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;" in on_gpu(squares).stage(large).source


def test_numbers_that_come_from_indices_are_wider_than_these(device: Any) -> None:
    """Of 64 bits in the program, so also where they are computed with: 99,999 * 99,999 is more than 32 bits hold."""

    def numbers(x: Any) -> Any:
        n = st.arange(100_000)
        return n * n + st.astype(x, st.i64), n * 100_000 - 1

    check(numbers, device, np.ones((100_000,), np.float32))


def parameters_of(text: str) -> dict[str, str]:
    """By kernel: its parameters."""
    found = re.findall(r'extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(([^)]*)\)', text)
    return {name: re.sub(r"\s+", " ", given) for name, given in found}


def test_what_nothing_else_reaches_is_restricted(device: Any) -> None:
    """Only a result that may be written over an operand is not: the memory plan makes use of that."""

    def both(x: Any, w: Any) -> Any:
        y = st.sum(x * w, axis=1)
        for _ in range(2):
            x = x * 0.5 + w
        return x, y

    text = check(both, device, *(RNG.normal(size=(40, 64)).astype(np.float32) for _ in range(2)))
    kernels = parameters_of(text)
    (total,) = (given for given in kernels.values() if "*__restrict__ y" in given)
    assert total.count("__restrict__") == 3
    assert any(given.count("*") > given.count("__restrict__") for given in kernels.values())


def test_what_a_loop_keeps_is_made_in_its_place(device: Any) -> None:
    def through(x: Any) -> Any:
        def loss(x: Any) -> Any:
            total = 0.0
            for k in st.range(4):
                y = st.tanh(x * (k + 1.0))
                total += st.sum(y * y)
            return total

        return st.value_and_grad(loss)(x)

    text = check(through, device, RNG.normal(size=(4, 6)).astype(np.float32))
    assert re.search(r"float \*const y = d->y_history \+ \w+ \* 24;", text)
    assert "cudaMemcpyDeviceToDevice" not in text
    text = check(through, device, RNG.normal(size=(3, 5)).astype(np.float32))
    assert "cudaMemcpyDeviceToDevice" in text  # 60 bytes would leave the next ones where 16 at a time do not fit
