"""Kernels are one where nothing but their own names, comments and line breaks differ."""

from __future__ import annotations

from staged.backends.c_family.kernel_shape import shape_of

SCALE = """\
// model.py:3  y = x * 2
static void y(const float *x, float *y, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
        const float x_i = x[i];
        y[i] = st_exp_f32(x_i) * 2.0f;
    }
}
"""


def renamed(text: str, **names: str) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def test_own_names_comments_and_breaks_do_not_count() -> None:
    other = renamed(SCALE, x_i="loaded", model="mlp", begin="first").replace("float *y, ", "float *y,\n        ")
    assert shape_of(other)[0] == shape_of(SCALE)[0]


def test_what_is_called_and_computed_counts() -> None:
    assert shape_of(renamed(SCALE, st_exp="st_log"))[0] != shape_of(SCALE)[0]
    assert shape_of(SCALE.replace("2.0f", "3.0f"))[0] != shape_of(SCALE)[0]
    assert shape_of(SCALE.replace("float", "double"))[0] != shape_of(SCALE)[0]


def test_names_change_places_with_what_they_stand_for() -> None:
    swapped = SCALE.replace("x[i]", "y[i]")
    assert shape_of(swapped)[0] != shape_of(SCALE)[0]


def test_kernels_of_a_device_are_renamed_too_but_no_members() -> None:
    one = 'extern "C" __global__ void __launch_bounds__(32) x_kernel(float *x) { x[threadIdx.x] = 0.0f; }'
    shape, numbered = shape_of(one)
    assert shape == shape_of(one.replace("x_kernel", "h_kernel").replace("float *x) { x[", "float *h) { h["))[0]
    assert "threadIdx.x" in shape and numbered("x * 4") == "$1 * 4"
