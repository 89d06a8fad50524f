"""Planted faults of functions that pad, pool, convolve and resize."""

from tests.mutate.mutant import Mutant

FUNCTIONS = "tests/ops/test_shape_functions.py"
LAYERS = "tests/nn/test_layers.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a run of repeated elements goes on as one of neighbours",
        "library.pooling.padding:_runs",
        "gap == step",
        "gap in (step, 1)",
        (FUNCTIONS, "-k", "mode_of_pad"),
    ),
    Mutant(
        "torch's widths are for the first axis first",
        "library.pooling.padding:_from_torch",
        "array.ndim - 1 - place",
        "array.ndim - len(given) // 2 + place",
        (LAYERS, "-k", "Zero_2d"),
    ),
    Mutant(
        "the gradient of wide windows looks at as many neighbours as they have elements",
        "backends.gpu.windows:pooling_as_gather",
        "apart_y * (ky - 1) + 1",
        "ky",
        ("tests/backends/cublas_cudnn/test_pooling.py", "-k", "same_bits"),
    ),
    Mutant(
        "a window of padding alone is pooled",
        "library.pooling.pooling:_check_elements",
        "begin + -(begin // dilation) * dilation",
        "begin",
        ("tests/ops/test_pooling.py::test_bad_calls_are_refused_with_the_line",),
    ),
    Mutant(
        "the padding of an output beyond the stride is forgotten",
        "library.pooling.convolution:_spread",
        "more // max(step, 1)",
        "0",
        ("tests/ops/test_convolution.py", "-k", "beyond_the_stride"),
    ),
    Mutant(
        "the last adaptive window reaches one element too far",
        "library.pooling.adaptive_pooling:_even_windows",
        "((window + 1) * extent + count - 1) // count",
        "extent",
        ("tests/ops/test_pooling.py", "-k", "adaptive_max"),
    ),
    Mutant(
        "places in a volume count planes of the pooled image",
        "library.pooling.ranks:pooled",
        "at // (rows * columns) * area",
        "at // (rows * columns) * (rows * columns)",
        (LAYERS, "-k", "maxima_go_back"),
    ),
    Mutant(
        "a transposed convolution of volumes forgets the distance of its taps",
        "library.pooling.convolution:_spread",
        "tap * apart",
        "tap",
        (FUNCTIONS, "-k", "conv_transpose3d"),
    ),
    Mutant(
        "a place on an odd reflection runs forwards",
        "library.pooling.interpolation:_kept",
        "where(is_odd, span - rest, rest)",
        "rest",
        (FUNCTIONS, "-k", "sampled_bilinear_reflection"),
    ),
    Mutant(
        "labels after the first negative number count",
        "library.losses.margins:multilabel_margin_loss",
        "cumprod(cast(labels >= 0, labels.dtype), 1) > 0",
        "labels >= 0",
        (LAYERS, "-k", "multi_label_margin"),
    ),
)
