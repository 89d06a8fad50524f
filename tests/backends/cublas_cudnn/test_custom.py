"""`st.custom_op` with a form for CUDA: kernels given as text, and functions of libraries that work on a stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import INCLUDE
from staged import CPU, GPU, with_backend
from staged.errors import ProgramError
from staged.runtime.compiler import compile_text
from staged.runtime.cuda import emulator
from staged.runtime.cuda.custom import check_kernel
from tests.cuda_toolchain import check_host_part, check_kernels
from tests.test_custom_ops import ARGUMENTS, RESULTS, ROW, SOURCE, X, bend_vjp, the_bend

pytestmark = pytest.mark.usefixtures("emulated_device")

KERNEL = """\
__device__ double curve(double x) {
    return tanh(x);
}

// A thread for each element.
__global__ void bend_kernel(const double *x, int64_t rows, int64_t columns, const double *row, int64_t size,
                            double scale, double *out) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < rows * columns) {
        out[i] = curve(scale * x[i]) + row[i % size];
    }
}
"""


def cover(x: Any, *others: Any) -> tuple[int, int]:
    """Blocks of 8 threads, a thread for each element."""
    return (int(np.prod(x)) + 7) // 8, 8


bend = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE, vjp=bend_vjp, cuda_source=KERNEL, launch=cover)
device_bend = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=KERNEL, launch=cover)
extremes = st.custom_op(
    "extremes",
    [(st.f32, 1), (st.bool_, 1), st.i32],
    [st.f32, (st.f32, 1), (st.i64, 0)],
    shapes=lambda x, mask, n: [(), (2,), ()],
    cuda_source="""\
extern "C" __global__ void extremes_kernel(const float *x, int64_t n, const bool *mask, int64_t m, int32_t most,
                                           float *low, float *both, int64_t *chosen) {
    *chosen = 0;
    *low = both[0] = both[1] = x[0];
    for (int64_t i = 0; i < n && i < most; ++i) {
        *chosen += mask[i];
        *low = fminf(*low, x[i]);
        both[0] = *low;
        both[1] = fmaxf(both[1], x[i]);
    }
}
""",
    launch=lambda *shapes: (1, 1),
)


def on_gpu(f: Any) -> Any:
    """The function with a region around all of it."""

    def g(*args: Any) -> Any:
        with with_backend(GPU):
            y = f(*args)
        return y

    return st.function(target="portable")(g)


def test_a_region_launches_the_kernel_and_copies_no_array() -> None:
    f = on_gpu(lambda x, row: bend(x * 2.0, row, 0.5) * 3.0)
    np.testing.assert_allclose(f(X, ROW), 3 * the_bend(2 * X), rtol=1e-14)
    program = f.stage(X, ROW)
    assert [copy.why for copy in program.transfers()] == ["input", "input", "result"]
    assert "int bend(" not in program.source  # the host's form is not part of it


def test_the_text_reads_as_it_was_given(golden: Any) -> None:
    source = on_gpu(lambda x, row: bend(x, row, st.sum(row))).stage(X, ROW).source
    kernel = source[source.index("// ---- `bend`") :]
    launch = source[source.index("static cudaError_t launch_bend") :]
    golden(
        kernel[: kernel.index("using bend_text")] + launch[: launch.index("\n}\n") + 3]
        + "\n".join(line for line in source.splitlines() if "launch_bend(gpu" in line),
        suffix=".cu",
    )  # fmt: skip


def test_both_forms_in_one_program() -> None:
    """Helpers of one name are in both texts."""

    @st.function
    def f(x: Any, row: Any) -> Any:
        y = bend(x, row, 0.5)
        with with_backend(GPU, row):
            z = bend(y, row, 0.5)
            with with_backend(CPU):
                w = bend(z, row, 0.5)
        return w

    np.testing.assert_allclose(f(X, ROW), the_bend(the_bend(the_bend(X))), rtol=1e-14)


def test_numbers_of_the_device_are_passed_by_value_and_results_stay_there() -> None:
    def f(x: Any, mask: Any, n: Any) -> Any:
        low, both, chosen = extremes(x, mask, st.astype(st.sum(mask) + n, st.i32))
        return low * both, chosen + 1

    x = np.array([3, -1, 4, -9], np.float32)
    mask = np.array([True, False, True, False])
    staged = on_gpu(f)
    scaled, chosen = staged(x, mask, 1)
    np.testing.assert_array_equal(scaled, [1, -4])
    assert int(chosen) == 3
    why = [copy.why for copy in staged.stage(x, mask, 1).transfers() if copy.target == CPU]
    assert why == ["value", "result", "result"]


def test_in_loops_branches_and_functions_that_recurse() -> None:
    def f(x: Any, n: Any) -> Any:
        for i in st.range(n):
            if i % 2 == 0:
                x = device_bend(x, ROW, 0.5)
        return x

    np.testing.assert_allclose(on_gpu(f)(X, 3), the_bend(the_bend(X)), rtol=1e-14)

    @st.function
    def deep(x: Any, n: Any) -> Any:
        if n > 0:
            with with_backend(GPU, x):
                y = device_bend(deep(x, n - 1), ROW, 0.5)
            return y
        return x

    np.testing.assert_allclose(deep(X, 2), the_bend(the_bend(X)), rtol=1e-14)


def test_the_derivative_is_the_given_one() -> None:
    def loss(x: Any, row: Any, scale: Any) -> Any:
        for _ in st.range(2):
            x = bend(x, row, scale)
        return st.sum(x**2)

    gradient = st.grad(loss, argnums=(0, 1, 2))
    found = on_gpu(gradient)(X, ROW, np.float64(0.7))
    for got, want in zip(found, st.function(gradient)(X, ROW, np.float64(0.7)), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12)
    text = on_gpu(gradient).stage(X, ROW, np.float64(0.7)).source
    assert "launch_bend" in text and "int bend(" not in text


def test_without_a_vjp_a_derivative_is_refused_with_the_line() -> None:
    with pytest.raises(st.GradientError, match="cannot differentiate through `bend`") as caught:
        on_gpu(st.grad(lambda x: st.sum(device_bend(x, ROW, 0.5))))(X)
    assert "device_bend(x, ROW, 0.5)" in str(caught.value)


def test_vmap_launches_it_for_each_element_or_takes_the_given_rule() -> None:
    scales = np.array([0.5, 1.0, -2.0])
    wanted = np.stack([the_bend(X, ROW, scale) for scale in scales])

    def together(x: Any, row: Any, scale: Any) -> Any:
        return st.tanh(scale[:, None, None] * x) + row[:, None, :]

    ruled = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=KERNEL, launch=cover, vmap=together)
    for op, launches in ((bend, True), (device_bend, True), (ruled, False)):
        f = on_gpu(st.vmap(lambda scale, op=op: op(X, ROW, scale)))
        np.testing.assert_allclose(f(scales), wanted, rtol=1e-14)
        assert ("bend_kernel" in f.stage(scales).source) == launches
    counted = st.custom_op(
        "counted",
        [(st.f64, 1)],
        [st.f64],
        shapes=lambda x: (),
        cuda_source="__global__ void counted_kernel(const double *x, int64_t n, double *y) { *y = x[0] + n; }",
        launch=lambda x: (1, 1),
        vmap=lambda x: x[:, 0] + 5.0,
    )
    np.testing.assert_array_equal(on_gpu(st.vmap(counted))(X), X[:, 0] + 5)


def test_a_grid_without_blocks_launches_nothing_and_other_sizes_are_refused() -> None:
    empty = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=KERNEL, launch=cover)
    assert on_gpu(lambda x, row: empty(x, row, 0.5))(X[:0], ROW).shape == (0, 5)
    for launch, error, words in (
        (lambda *shapes: 3, st.ArgumentError, "the `launch` of `bend` gives 3"),
        (lambda *shapes: (1, 2048), st.StagingError, "`bend` asks for blocks of 2048 x 1 x 1 threads"),
        (lambda *shapes: (1.5, 1), st.StagingError, "the grid of `bend` is 1.5"),
    ):
        wrong = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=KERNEL, launch=launch)
        with pytest.raises(error, match=words) as caught:
            on_gpu(lambda x, wrong=wrong: wrong(x, ROW, 0.5))(X)
        assert "wrong(x, ROW, 0.5)" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (KERNEL.replace("double scale", "float scale"), "overloaded"),
        ('extern "C" ' + KERNEL[KERNEL.index("__global__") :].replace("double scale", "float scale"), "conflicting"),
        (KERNEL.replace("scale * x[i]", "scale * absent"), "absent"),
    ],
)
def test_a_text_that_does_not_define_it_is_refused_with_the_line(source: str, words: str) -> None:
    wrong = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=source, launch=cover)
    with pytest.raises(st.CompilerError, match=f"(?s)the CUDA source of `bend` does not compile.*{words}") as caught:
        on_gpu(lambda x: wrong(x, ROW, 0.5))(X)
    assert "wrong(x, ROW, 0.5)" in str(caught.value)
    assert f"`__global__ void bend_kernel({wrong.function.parameters})`" in str(caught.value)


@pytest.mark.usefixtures("needs_nvrtc")
def test_nvidia_s_compiler_takes_and_refuses_the_same_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = on_gpu(lambda x, row: bend(x, row, 0.5)).stage(X, ROW)._artifact
    check_host_part(artifact)
    check_kernels(artifact)
    monkeypatch.setenv("STAGED_CUDA", "")
    for source in (KERNEL.replace("double scale", "float scale"), KERNEL.replace("x[i]", "absent")):
        wrong = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=source, launch=cover)
        with pytest.raises(st.CompilerError, match="the CUDA source of `bend` does not compile"):
            on_gpu(lambda x, wrong=wrong: wrong(x, ROW, 0.5)).stage(X)
    check_kernel("one", "one_kernel", "", 'extern "C" __global__ void one_kernel() {}')


def test_declarations_that_are_none() -> None:
    given = {"cuda_source": KERNEL, "launch": cover}
    for wrong, words in (
        ({"cuda_source": KERNEL}, "has a `cuda_source` and no `launch`"),
        ({"launch": cover, "source": SOURCE}, "has a `launch` and no `cuda_source`"),
        ({"launch": cover, "cuda_library": "x.so"}, "has a `launch` and no `cuda_source`"),
        ({**given, "cuda_library": "x.so"}, "one of the two"),
        ({**given, "source": SOURCE, "has_effects": True}, "has effects: it has no form for CUDA"),
        ({**given, "cuda_source": "#include <math.h>\n" + KERNEL}, "has an `#include`"),
        ({**given, "cuda_source": KERNEL.replace("bend_kernel", "bend")}, "defines no kernel `bend_kernel`"),
    ):
        with pytest.raises(st.ArgumentError, match=words):
            st.custom_op("bend", ARGUMENTS, RESULTS, **wrong)


def test_one_for_cuda_alone_is_called_in_regions_alone() -> None:
    def eagerly(f: Any) -> Any:
        with st.eager():
            return on_gpu(f)(X)

    def call(x: Any) -> Any:
        return device_bend(x, ROW, 0.5)

    for run in (lambda: call(X), lambda: st.function(call)(X), lambda: eagerly(call)):
        with pytest.raises(st.ArgumentError, match="`bend` has a form for CUDA alone") as caught:
            run()
        assert "return device_bend(x, ROW, 0.5)" in str(caught.value)


def test_a_program_of_opencl_runs_it_on_the_host() -> None:
    def f(x: Any, op: Any) -> Any:
        with with_backend(GPU, x, using="opencl"):
            y = op(x * 2.0, ROW, 0.5)
        return y

    text = st.function(lambda x: f(x, bend)).stage(X).source
    assert "int bend(" in text + st.function(lambda x: f(x, bend)).stage(X)._artifact.support
    assert "bend_kernel" not in text
    with pytest.raises(st.ArgumentError, match="has a form for CUDA alone"):
        st.function(lambda x: f(x, device_bend)).stage(X)


def test_two_texts_of_one_name_in_a_program_are_refused() -> None:
    other = st.custom_op("bend", ARGUMENTS, RESULTS, cuda_source=KERNEL + "// changed\n", launch=cover)
    with pytest.raises(st.ArgumentError, match="two CUDA functions called `bend`"):
        on_gpu(lambda x: other(device_bend(x, ROW, 0.5), ROW, 0.5))(X)


def test_names_of_the_kernel_are_not_taken_by_the_program() -> None:
    def f(x: Any) -> Any:
        bend_kernel = st.tanh(x)
        bend_text = bend(bend_kernel, ROW, 0.5) * 2.0
        return st.sum(bend_text, axis=0)

    np.testing.assert_allclose(on_gpu(f)(X), 2 * the_bend(np.tanh(X)).sum(axis=0), rtol=1e-12)


def test_a_text_that_was_edited_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    script = """
import numpy as np, staged as st
twice = st.custom_op("twice", [(st.f64, 1)], [(st.f64, 1)], launch=lambda x: (1, x[0]),
    cuda_source="__global__ void twice_kernel(const double *x, int64_t n, double *y)"
                " {{ y[threadIdx.x] = {factor} * x[threadIdx.x]; }}")
def f(x):
    with st.with_backend(st.GPU, x):
        y = twice(x)
    return y
print(st.function(f)(np.ones(2)))
"""
    path = tmp_path / "edited.py"
    # Installed packages may be in a folder of PYTHONPATH.
    own = {"PYTHONPATH": os.pathsep.join([str(Path(st.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    for factor, wanted in ((2.0, "[2. 2.]"), (4.0, "[4. 4.]")):
        path.write_text(script.format(factor=factor))
        run = subprocess.run([sys.executable, path], env={**os.environ, **own}, capture_output=True, text=True)
        assert run.stdout.strip() == wanted, run.stderr


# ---- libraries ------------------------------------------------------------------------------------

LAUNCHER = """\
#include <cuda_runtime_api.h>
#include <stdint.h>

int same_cuda(const float *x, int64_t n, float scale, float *out, cudaStream_t stream) {
    if (scale != 1.0f) {
        return 9;
    }
    return (int)cudaMemcpyAsync(out, x, (size_t)n * sizeof *x, cudaMemcpyDeviceToDevice, stream);
}
"""


@pytest.fixture
def same(emulated_device: Any) -> Any:
    """A library that is linked to the emulated device as one of NVIDIA's compiler is to CUDA."""
    flags = ("-isystem", str(INCLUDE), "-Wl,--no-as-needed", str(emulator().path))
    library = compile_text("same", LAUNCHER, flags=flags)
    return st.custom_op("same", [(st.f32, 1), st.f32], [(st.f32, 1)], cuda_library=library)


def test_a_function_of_a_library_works_on_the_stream(same: Any) -> None:
    x = np.arange(5, dtype=np.float32)

    def f(x: Any, n: Any) -> Any:
        for _ in st.range(n):
            x = same(x * 2.0, 1.0) + 1.0
        return x

    staged = on_gpu(f)
    np.testing.assert_array_equal(staged(x, 3), 8 * x + 7)
    text = staged.stage(x, 3).source
    assert re.search(r"same_cuda\(d->\w+, 5, 1\.0f, d->\w+, gpu->stream\)", text)
    assert same.function.cuda.library in staged.stage(x, 3)._artifact.link
    check_host_part(staged.stage(x, 3)._artifact)


def test_one_that_fails_stops_the_program_with_the_line(same: Any) -> None:
    with pytest.raises(ProgramError, match="`same` has returned 9") as caught:
        on_gpu(lambda x: same(x, 2.0) * 2.0)(np.ones(3, np.float32))
    assert "same(x, 2.0) * 2.0" in str(caught.value)


def test_a_library_without_it_is_refused_with_the_line(same: Any) -> None:
    for name, library, words in (
        ("other", same.function.cuda.library, "has no function `other_cuda`"),
        ("same", "/absent.so", "cannot be loaded"),
    ):
        wrong = st.custom_op(name, [(st.f32, 1)], [(st.f32, 1)], cuda_library=library)
        with pytest.raises(st.CompilerError, match=words) as caught:
            on_gpu(lambda x, wrong=wrong: wrong(x))(np.ones(3, np.float32))
        assert "wrong(x)" in str(caught.value)


def test_a_c_function_of_a_library_is_linked_to_a_program_with_a_region() -> None:
    text = "#include <stdint.h>\nint thrice(const float *x, int64_t n, float *out) "
    text += "{ for (int64_t i = 0; i < n; ++i) { out[i] = 3 * x[i]; } return 0; }\n"
    thrice = st.custom_op("thrice", [(st.f32, 1)], [(st.f32, 1)], library=compile_text("thrice", text))
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(on_gpu(lambda x: thrice(x * 2.0) + 1.0)(x), 6 * x + 1)


def test_c_that_is_no_cpp_is_taken_in_a_program_with_a_region() -> None:
    """The word `restrict`."""
    text = "int twice(const float *restrict x, int64_t n, float *restrict out) "
    text += "{ for (int64_t i = 0; i < n; ++i) { out[i] = 2 * x[i]; } return 0; }\n"
    twice = st.custom_op("twice", [(st.f32, 1)], [(st.f32, 1)], source=text)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(on_gpu(lambda x: twice(x * 2.0) + 1.0)(x), 4 * x + 1)
    np.testing.assert_array_equal(st.function(lambda x: twice(x))(x), 2 * x)


def test_an_exported_folder_has_the_kernel_and_names_the_libraries(same: Any, tmp_path: Path) -> None:
    on_gpu(lambda y: same(y * 2.0, 1.0)).stage(np.ones(3, np.float32)).export(tmp_path)
    makefile = (tmp_path / "Makefile").read_text()
    assert f"\nOWN_LIBRARIES ?= {same.function.cuda.library} -Xlinker -rpath=" in makefile
    assert makefile.count(" $(OWN_LIBRARIES)") == 4

    @st.function
    def g(x: Any, row: Any) -> Any:
        with with_backend(GPU, x):
            y = bend(x, row, 0.5)
        return y

    g.stage(X, ROW).export(tmp_path)
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "row.npy", ROW)
    built = subprocess.run(["make", "-s", "emu"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0 and "warning" not in built.stderr, built.stderr
    subprocess.run(["./g_emu", "--x", "x.npy", "--row", "row.npy", "--out", "."], cwd=tmp_path, check=True)
    np.testing.assert_allclose(np.load(tmp_path / "result.npy"), the_bend(X), rtol=1e-14)
