"""Samples of torch's that are excused: by record, a pattern of what went wrong, and the reason."""

from __future__ import annotations

_NUMBER = "a number has no axis 0 here: the result has the shape of the array, and an index along an axis needs one"
_SIZE = "a size that depends on elements is given by the caller: `size=n`"
_SIGNS = "the signs of such vectors are arbitrary"
_NOTHING = "an axis without elements has none to repeat"
_LAST = "of several values for one place the last stands, and has the derivative; torch gives it to all of them"
_NUMBER_OF_SCORES = "scores have an axis of classes; torch also takes a number"
_ADJUSTED = "torch also takes a vector for each matrix of a batch; here, as in NumPy 2, b is a vector only with one axis"

_SQUARE = "LU is of square matrices"
_MIDDLE = "of an even number the mean of the two middle elements, as in NumPy: torch takes the lower one"
_FRACTIONS = "there is no derivative by the fractions: they are known while staging"

EXCUSED: dict[str, dict[str, str]] = {
    "atleast_1d": {"stack needs": "several arrays are several arguments, as in NumPy; torch also takes a list of them"},
    "atleast_2d": {"stack needs": "several arrays are several arguments, as in NumPy; torch also takes a list of them"},
    "atleast_3d": {"stack needs": "several arrays are several arguments, as in NumPy; torch also takes a list of them"},
    "cat": {"axis 1 does not exist": "torch leaves out empty vectors among matrices"},
    "cov": {"differs by .*e-0[567]": "torch adds up weights of f32 in f32, beside data of f64"},
    "gather": {"axis 0": _NUMBER, "as many axes": "torch takes indices without elements of any number of axes"},
    "index_add": {"axis 0": _NUMBER},
    **{f"index_reduce.{how}": {"axis 0": _NUMBER} for how in ("amax", "amin", "mean", "prod")},
    "index_copy": {"axis 0": _NUMBER},
    "index_fill": {"axis 0": _NUMBER},
    "index_select": {"axis 0": _NUMBER},
    "kthvalue": {"needs an axis": _NUMBER},
    "linalg.cholesky": {"jvp: differs": "torch takes a tangent that is not symmetric for one that is, by its lower triangle"},
    "linalg.diagonal": {"axis1": "the last two axes, as in the Array API: `st.diagonal` takes others"},
    "linalg.eigh": {"value: differs": _SIGNS},
    "linalg.lstsq": {"value: shape": "rank and singular values are NumPy's, torch leaves them out by its driver"},
    "linalg.lstsq.grad_oriented": {"value: shape": "residuals are NumPy's where torch's driver leaves them out"},
    "linalg.solve": {"has not the rows": _ADJUSTED, "value: shape": _ADJUSTED},
    "linalg.svd": {
        "value: differs": _SIGNS,
    },
    "logcumsumexp": {"[vj][jv]p: differs by": "torch's derivative is a difference of two sums, ours sums quotients below 1"},
    "masked_fill": {"does not fit": "a mask does not make an array larger"},
    "median": {"needs an axis": _NUMBER, "value: differs": "of an even number the mean of the two middle elements, as in NumPy"},
    "mode": {"needs an axis": _NUMBER},
    "nn.functional.avg_pool2d": {"an int or a pair of ints": "a size of windows is one number, or one for each axis"},
    "nn.functional.batch_norm": {"needs an input of": "an array of one axis has no channels"},
    "nn.functional.ctc_loss": {"vjp: differs": "torch's derivative is that of log probabilities that are a log_softmax's"},
    "nn.functional.instance_norm": {"running_mean": "no running statistics in the function"},
    "nn.functional.pad.replicate_negative": {"no element to repeat": _NOTHING},
    "nn.functional.feature_alpha_dropout.without_train": {"needs an input of": "an array of one axis has no channels"},
    "nn.functional.max_unpool1d": {"vjp: differs": _LAST},
    "nn.functional.max_unpool2d": {"vjp: differs": _LAST},
    "nn.functional.max_unpool3d": {"vjp: differs": _LAST},
    "nn.functional.multi_margin_loss": {"does not fit": _NUMBER_OF_SCORES},
    "nn.functional.multilabel_margin_loss": {"does not fit": _NUMBER_OF_SCORES},
    "repeat_interleave": {
        "known while staging": "shapes follow from the counts, which are known while staging",
        "output_size": "the size follows from the counts",
    },
    "scatter_add": {"axis is a Python int": "the order of arguments is (x, indices, updates), as in JAX"},
    "argsort": {"needs an axis": _NUMBER},
    "sort": {"needs an axis": _NUMBER},
    "squeeze": {"has extent 5": "an axis that is named has one element, as in NumPy and the Array API"},
    "squeeze.multiple": {"has extent 5": "an axis that is named has one element, as in NumPy and the Array API"},
    "squeeze_copy": {"has extent 5": "an axis that is named has one element, as in NumPy and the Array API"},
    "tensordot": {"differ in extent": "the axes of the second array are in the order of the first's"},
    "topk": {"needs an axis": _NUMBER},
    "transpose": {"axis 0": _NUMBER},
    "transpose_copy": {"axis 0": _NUMBER},
    "__getitem__": {"whose size is not known": _SIZE},
    "argwhere": {"at least one array": _NUMBER},
    "linalg.lu": {"square matrices": _SQUARE},
    "linalg.lu_factor": {"square matrices": _SQUARE},
    "nanmedian": {"takes the lower of two": _MIDDLE, "value: differs": _MIDDLE},
    "nonzero": {"at least one array": _NUMBER, "0 results instead of 1": _NUMBER},
    "nonzero_static": {"at least one array": _NUMBER},
    "quantile": {"cannot become a NumPy array": _FRACTIONS},
    "nanquantile": {"cannot become a NumPy array": _FRACTIONS},
    "unique": {"argument 'axis'": "distinct elements, not rows or columns"},
}

_REAL = "has no complex form here"
_PART = "a cast to a real dtype loses the imaginary part, which torch warns of: `st.real` says which part is meant"
_HERMITIAN = "torch's gradient is not Hermitian where the loss reads imaginary parts of the diagonal; ours is its Hermitian part"

EXCUSED_OF_COMPLEX: dict[str, dict[str, str]] = {
    **dict.fromkeys(
        "corrcoef cov logaddexp logcumsumexp logsumexp sigmoid nn.functional.conv1d nn.functional.conv2d "
        "nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d nn.functional.conv_transpose3d "
        "nn.functional.l1_loss nn.functional.rms_norm nn.functional.silu.complex".split(),
        {"is not defined for complex numbers": _REAL},
    ),
    **dict.fromkeys(
        "bfloat16 byte char double float half int long short to softmax.with_dtype log_softmax.with_dtype "
        "nn.functional.softmin.with_dtype".split(),
        {"a complex array becomes no": _PART},
    ),
    "cholesky": {"vjp: differs": _HERMITIAN},
    "linalg.cholesky": {"vjp: differs": _HERMITIAN},
}
"""Further ones of complex samples."""

_KNOWN = "numbers that shapes or the text of the program follow from are known while staging"

_COUNTED = "the bound that the caller gives is counted here, in elements that are known in eager mode alone"

EXCUSED_IN_PROGRAMS: dict[str, dict[str, str]] = {
    "tensor_split": {"known while staging": _KNOWN},
    **dict.fromkeys(("unique", "nonzero", "argwhere", "masked_select"), {"": _COUNTED}),
    **dict.fromkeys(("quantile", "nanquantile"), {"known while staging": _KNOWN}),
}
"""Samples that agree in eager mode alone, where all numbers are known."""

RANDOM = frozenset(
    "nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.alpha_dropout "
    "nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.fractional_max_pool2d "
    "nn.functional.fractional_max_pool3d empty empty_like".split()
)
"""Records whose elements are random or unset: shapes and dtypes are compared."""
