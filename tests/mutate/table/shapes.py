"""Planted faults of functions that pad, pool, convolve and resize."""

from tests.mutate.mutant import Mutant

FUNCTIONS = "tests/ops/test_shape_functions.py"
LAYERS = "tests/nn/test_layers.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a run of repeated elements goes on as one of neighbours",
        "staged/ops/padding.py",
        "if count > 1 and gap == step:",
        "if count > 1 and gap in (step, 1):",
        (FUNCTIONS, "-k", "mode_of_pad"),
    ),
    Mutant(
        "torch's widths are for the first axis first",
        "staged/ops/padding.py",
        "axis, (low, high) = array.ndim - 1 - place, given[2 * place : 2 * place + 2]",
        "axis, (low, high) = array.ndim - len(given) // 2 + place, given[2 * place : 2 * place + 2]",
        (LAYERS, "-k", "Zero_2d"),
    ),
    Mutant(
        "the gradient of wide windows looks at as many neighbours as they have elements",
        "staged/backends/gpu_family/windows.py",
        '_Side("y", height, rows, apart_y * (ky - 1) + 1, sy, py)',
        '_Side("y", height, rows, ky, sy, py)',
        ("tests/backends/cublas_cudnn/test_pooling.py", "-k", "same_bits"),
    ),
    Mutant(
        "a window of padding alone is pooled",
        "staged/ops/pooling.py",
        "if begin + -(begin // dilation) * dilation >= extent:",
        "if begin >= extent:",
        ("tests/ops/test_pooling.py::test_bad_calls_are_refused_with_the_line",),
    ),
    Mutant(
        "the padding of an output beyond the stride is forgotten",
        "staged/ops/convolution.py",
        "(0, extra[axis] // max(strides[axis], 1))",
        "(0, 0)",
        ("tests/ops/test_convolution.py", "-k", "beyond_the_stride"),
    ),
    Mutant(
        "the last adaptive window reaches one element too far",
        "staged/ops/adaptive_pooling.py",
        "return minimum(window * extent // count + element, ((window + 1) * extent + count - 1) // count - 1)",
        "return minimum(window * extent // count + element, extent - 1)",
        ("tests/ops/test_pooling.py", "-k", "adaptive_max"),
    ),
    Mutant(
        "places in a volume count planes of the pooled image",
        "staged/ops/volumes.py",
        "found = chosen // area * whole + reshape(inner, chosen.shape)",
        "found = chosen // area * area + reshape(inner, chosen.shape)",
        (LAYERS, "-k", "maxima_go_back"),
    ),
    Mutant(
        "a transposed convolution of volumes forgets the distance of its taps",
        "staged/ops/volume_convolution.py",
        "placed = embed(part, wide, (0, tap * dilations[0], 0, 0, 0), (1, strides[0], 1, 1, 1))",
        "placed = embed(part, wide, (0, tap, 0, 0, 0), (1, strides[0], 1, 1, 1))",
        (FUNCTIONS, "-k", "conv_transpose3d"),
    ),
    Mutant(
        "a place on an odd reflection runs forwards",
        "staged/ops/interpolation.py",
        "place = where(is_odd, span - rest, rest) + low",
        "place = rest + low",
        (FUNCTIONS, "-k", "sampled_bilinear_reflection"),
    ),
    Mutant(
        "labels after the first negative number count",
        "staged/ops/margins.py",
        "counts = cumprod(cast(labels >= 0, labels.dtype), 1) > 0",
        "counts = labels >= 0",
        (LAYERS, "-k", "multi_label_margin"),
    ),
)
