"""`st.autocast`: products, convolutions and attention of f32 in f16 or bf16, reductions, losses and norms in f32.

Which functions do which is torch's list (docs.pytorch.org, Automatic Mixed Precision, op-specific behaviour). All
others compute in the dtype that their operands have together.
"""

from __future__ import annotations

from contextlib import ContextDecorator
from contextvars import ContextVar, Token
from typing import Any

from staged.errors import DTypeError
from staged.ir.types import DType, bf16, dtype_of
from staged.source import here

_lowered: ContextVar[DType | None] = ContextVar("staged_autocast", default=None)

lowered_to = _lowered.get
"""The dtype of products in the `autocast` around; None where there is none."""

IN_LOW_PRECISION = frozenset(
    """addbmm addmm addr bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d dot einsum gru
    inner linalg.matrix_power linalg.multi_dot lstm matmul mv outer rnn scaled_dot_product_attention tensordot vdot
    vecdot""".split()
)
"""Functions that convert f32 operands."""
IN_F32 = frozenset(
    """acos asin average cosh cumprod cumsum erfinv exp expm1 group_norm layer_norm log log10 log1p log2 log_softmax
    logsumexp mean norm normalize pow prod reciprocal rms_norm rsqrt sinh softmax softmin softplus std std_mean sum tan
    var var_mean""".split()
)
"""Functions whose results stay f32; so do those of `IN_F32_MODULES`."""
IN_F32_MODULES = frozenset(("ctc", "cumulative", "losses", "margins", "normalization"))


class autocast(ContextDecorator):
    """Inside `with st.autocast(st.bf16):` matrix products, convolutions, recurrent layers and attention round their f32
    operands to `dtype`, add up in f32, and return `dtype`; sums, losses, softmax and norms take these and return f32.

    Weights stay f32, and so do their gradients. For f16 scale the loss: `optim.GradScaler`. Arguments as torch's, whose
    first may name a kind of device, which changes nothing: `st.autocast("cuda", dtype=st.f16)`. `enabled=False` turns
    it off in a part. Raises DTypeError for a dtype that is not f16 or bf16.
    """

    def __init__(
        self, device_type: Any = None, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        wanted = device_type if dtype is None and device_type not in ("cpu", "cuda", "gpu", None) else dtype
        found = bf16 if wanted is None else dtype_of(wanted)
        if found is None or not found.is_half:
            raise DTypeError(
                f"autocast computes in f16 or bf16, got {wanted}", where=here(), hint="`with st.autocast(st.bf16):`"
            )
        self.dtype = found
        self.enabled = enabled
        self._tokens: list[Token[DType | None]] = []

    @staticmethod
    def dtype_here() -> DType | None:
        """The dtype of products in the `autocast` around; None outside of any."""
        return _lowered.get()

    def __enter__(self) -> autocast:
        self._tokens.append(_lowered.set(self.dtype if self.enabled else None))
        return self

    def __exit__(self, *error: object) -> None:
        _lowered.reset(self._tokens.pop())
