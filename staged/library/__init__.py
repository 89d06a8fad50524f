"""The library: functions written with the ops of the language. Importing this package declares them all.

`__all__` lists the array functions that `staged` exports: those that `public.public` has entered, in `staged/ops` or
here. `python -m docs.make_ops` writes this file, so that editors and type checkers see them. Functions of `st.random`,
`st.linalg`, `st.fft` and `st.special` are in `array.METHODS` as `random.uniform`, `linalg.cholesky`, `fft.rfft`, ...
"""

from staged.library.draws.distributions import gumbel_softmax
from staged.library.elementwise import complex_functions  # noqa: F401  (declares its functions)
from staged.library.elementwise.activations import (
    celu,
    dropout,
    elu,
    gelu,
    glu,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    logsumexp,
    mish,
    relu,
    relu6,
    selu,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from staged.library.elementwise.channels import (
    alpha_dropout,
    bilinear,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
    local_response_norm,
    prelu,
    rrelu,
)
from staged.library.elementwise.complex_numbers import (
    angle,
    conj,
    imag,
    is_complex,
    polar,
    real,
    view_as_complex,
    view_as_real,
)
from staged.library.elementwise.complex_numbers import (
    complex_ as complex,
)
from staged.library.elementwise.normalization import (
    batch_norm,
    batch_norm_training,
    group_norm,
    instance_norm,
    layer_norm,
    norm,
    normalize,
    rms_norm,
)
from staged.library.fft.signals import convolve, correlate
from staged.library.linalg.diagonals import block_diag, diag, diag_embed, diagflat, diagonal, trace
from staged.library.linalg.einsum import einsum
from staged.library.losses.ctc import ctc_loss
from staged.library.losses.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from staged.library.losses.margins import (
    cdist,
    cosine_embedding_loss,
    cosine_similarity,
    gaussian_nll_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    pairwise_distance,
    poisson_nll_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from staged.library.pooling.adaptive_pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    fractional_max_pool2d,
    fractional_max_pool3d,
)
from staged.library.pooling.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from staged.library.pooling.interpolation import affine_grid, grid_sample, interpolate
from staged.library.pooling.padding import pad
from staged.library.pooling.patches import channel_shuffle, fold, pixel_shuffle, pixel_unshuffle, unflatten, unfold
from staged.library.pooling.pooling import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from staged.library.sequences.attention import scaled_dot_product_attention
from staged.library.sequences.embedding import embedding_bag
from staged.library.sequences.positions import alibi, rotary
from staged.library.sequences.recurrent import gru, lstm, rnn
from staged.library.special.bessel import i0
from staged.library.special.elementary import (
    acosh,
    addcdiv,
    addcmul,
    allclose,
    array_equal,
    asinh,
    atanh,
    copysign,
    deg2rad,
    exp2,
    fmax,
    fmin,
    fmod,
    frac,
    heaviside,
    hypot,
    isclose,
    lerp,
    logaddexp2,
    logit,
    nan_to_num,
    nextafter,
    rad2deg,
    reciprocal,
    signbit,
    sinc,
    xlogy,
)
from staged.library.special.error_functions import erfinv
from staged.library.special.gamma_functions import digamma, lgamma, mvlgamma, polygamma
from staged.library.special.number_theory import gcd, lcm
from staged.library.statistics.counting import (
    bincount,
    bucketize,
    digitize,
    flatnonzero,
    histogram,
    interp,
    isin,
    masked_select,
    nonzero,
    searchsorted,
)
from staged.library.statistics.cumulative import (
    cummax,
    cummin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    logcumsumexp,
)
from staged.library.statistics.distinct import (
    lexsort,
    mode,
    unique,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from staged.library.statistics.products import prod
from staged.library.statistics.quantiles import median, nanmedian, nanpercentile, nanquantile, percentile, quantile
from staged.library.statistics.scatter_reduce import (
    index_reduce,
    scatter_reduce,
    segment_max,
    segment_mean,
    segment_min,
    segment_prod,
    segment_sum,
)
from staged.library.statistics.statistics import (
    aminmax,
    average,
    corrcoef,
    cov,
    diff,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
    ptp,
    std_mean,
    trapezoid,
    var_mean,
)
from staged.ops.choice import astype, where
from staged.ops.comparisons import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    clip,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
)
from staged.ops.contraction import (
    addbmm,
    addmm,
    addr,
    cross,
    dot,
    inner,
    kron,
    matmul,
    mv,
    outer,
    tensordot,
    vdot,
    vecdot,
)
from staged.ops.dynamic_slice import dynamic_slice, dynamic_update_slice
from staged.ops.elementwise import (
    abs_ as abs,
)
from staged.ops.elementwise import (
    acos,
    add,
    asin,
    atan,
    atan2,
    cbrt,
    ceil,
    cos,
    cosh,
    divide,
    erf,
    erfc,
    exp,
    expm1,
    floor,
    floor_divide,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    multiply,
    negative,
    positive,
    remainder,
    rsqrt,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from staged.ops.elementwise import (
    pow_ as pow,
)
from staged.ops.elementwise import (
    round_ as round,
)
from staged.ops.exchange import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    exchange_halo,
    reduce_scatter,
    shard,
    shift_ranks,
)
from staged.ops.index import index_add, index_copy, index_fill, index_select, scatter_add, take, take_along_axis
from staged.ops.joining import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    column_stack,
    concat,
    dstack,
    fliplr,
    flipud,
    hstack,
    repeat,
    roll,
    rot90,
    split,
    stack,
    tensor_split,
    tile,
    unstack,
    vstack,
)
from staged.ops.ranks import rank, ranks
from staged.ops.reduction import (
    all_ as all,
)
from staged.ops.reduction import (
    any_ as any,
)
from staged.ops.reduction import argmax, argmin, count_nonzero, mean, std, var
from staged.ops.reduction import (
    max_ as max,
)
from staged.ops.reduction import (
    min_ as min,
)
from staged.ops.reduction import (
    sum_ as sum,
)
from staged.ops.shape import (
    broadcast_arrays,
    broadcast_to,
    expand_dims,
    flatten,
    flip,
    matrix_transpose,
    moveaxis,
    permute,
    permute_dims,
    reshape,
    squeeze,
    swapaxes,
    transpose,
    unsqueeze,
)
from staged.ops.sorting import argsort, kthvalue, msort, sort, topk
from staged.ops.source import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    geomspace,
    linspace,
    logspace,
    meshgrid,
    one_hot,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from staged.ops.subscript import add_item, set_item

__all__ = [
    "abs", "acos", "acosh", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "add", "add_item", "addbmm", "addcdiv", "addcmul", "addmm", "addr",
    "affine_grid", "alibi", "all", "all_gather", "all_reduce", "all_to_all", "allclose", "alpha_dropout", "aminmax",
    "angle", "any", "arange", "argmax", "argmin", "argsort", "array_equal", "asarray", "asin", "asinh", "astype",
    "atan", "atan2", "atanh", "atleast_1d", "atleast_2d", "atleast_3d", "average", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm", "batch_norm_training", "bilinear", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "bincount", "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "block_diag", "broadcast", "broadcast_arrays", "broadcast_to", "bucketize",
    "cbrt", "cdist", "ceil", "celu", "channel_shuffle", "clip", "column_stack", "complex", "concat", "conj", "conv1d",
    "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolve", "copysign", "corrcoef",
    "correlate", "cos", "cosh", "cosine_embedding_loss", "cosine_similarity", "count_nonzero", "cov", "cross",
    "cross_entropy", "ctc_loss", "cummax", "cummin", "cumprod", "cumsum", "cumulative_prod", "cumulative_sum",
    "deg2rad", "diag", "diag_embed", "diagflat", "diagonal", "diff", "digamma", "digitize", "divide", "dot", "dropout",
    "dropout1d", "dropout2d", "dropout3d", "dstack", "dynamic_slice", "dynamic_update_slice", "einsum", "elu",
    "embedding_bag", "empty", "empty_like", "equal", "erf", "erfc", "erfinv", "exchange_halo", "exp", "exp2",
    "expand_dims", "expm1", "eye", "feature_alpha_dropout", "flatnonzero", "flatten", "flip", "fliplr", "flipud",
    "floor", "floor_divide", "fmax", "fmin", "fmod", "fold", "frac", "fractional_max_pool2d", "fractional_max_pool3d",
    "full", "full_like", "gaussian_nll_loss", "gcd", "gelu", "geomspace", "glu", "greater", "greater_equal",
    "grid_sample", "group_norm", "gru", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "heaviside", "hinge_embedding_loss", "histogram", "hstack", "huber_loss", "hypot", "i0", "imag", "index_add",
    "index_copy", "index_fill", "index_reduce", "index_select", "inner", "instance_norm", "interp", "interpolate",
    "is_complex", "isclose", "isfinite", "isin", "isinf", "isnan", "kl_div", "kron", "kthvalue", "l1_loss",
    "layer_norm", "lcm", "leaky_relu", "lerp", "less", "less_equal", "lexsort", "lgamma", "linspace",
    "local_response_norm", "log", "log10", "log1p", "log2", "log_sigmoid", "log_softmax", "logaddexp", "logaddexp2",
    "logcumsumexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logit", "logspace", "logsumexp",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "lstm", "margin_ranking_loss", "masked_select", "matmul", "matrix_transpose",
    "max", "max_pool1d", "max_pool2d", "max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "maximum", "mean",
    "median", "meshgrid", "min", "minimum", "mish", "mode", "moveaxis", "mse_loss", "msort", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "multiply", "mv", "mvlgamma", "nan_to_num", "nanmax",
    "nanmean", "nanmedian", "nanmin", "nanpercentile", "nanprod", "nanquantile", "nanstd", "nansum", "nanvar",
    "negative", "nextafter", "nll_loss", "nonzero", "norm", "normalize", "not_equal", "one_hot", "ones", "ones_like",
    "outer", "pad", "pairwise_distance", "percentile", "permute", "permute_dims", "pixel_shuffle", "pixel_unshuffle",
    "poisson_nll_loss", "polar", "polygamma", "positive", "pow", "prelu", "prod", "ptp", "quantile", "rad2deg", "rank",
    "ranks", "real", "reciprocal", "reduce_scatter", "relu", "relu6", "remainder", "repeat", "reshape", "rms_norm",
    "rnn", "roll", "rot90", "rotary", "round", "rrelu", "rsqrt", "scaled_dot_product_attention", "scatter_add",
    "scatter_reduce", "searchsorted", "segment_max", "segment_mean", "segment_min", "segment_prod", "segment_sum",
    "selu", "set_item", "shard", "shift_ranks", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh",
    "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "sort", "split",
    "sqrt", "square", "squeeze", "stack", "std", "std_mean", "subtract", "sum", "swapaxes", "take", "take_along_axis",
    "tan", "tanh", "tanhshrink", "tensor_split", "tensordot", "threshold", "tile", "topk", "trace", "transpose",
    "trapezoid", "tril", "triplet_margin_loss", "triplet_margin_with_distance_loss", "triu", "trunc", "unflatten",
    "unfold", "unique", "unique_all", "unique_counts", "unique_inverse", "unique_values", "unsqueeze", "unstack", "var",
    "var_mean", "vdot", "vecdot", "view_as_complex", "view_as_real", "vstack", "where", "xlogy", "zeros", "zeros_like"
]  # fmt: skip
