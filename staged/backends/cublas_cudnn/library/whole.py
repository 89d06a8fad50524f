"""The choice of ops that a library computes as a whole, besides contractions: batch norms, means over windows,
recurrent layers, CTC losses and attention of halves by cuDNN, factors of matrices by cuSOLVER, triangular systems by
cuBLAS.

What is not here is better off in kernels. A softmax is one kernel, which takes along what is around it; activations
join what makes their operand. Dropout draws the same bits as on the host, which cuDNN's does not. Of maxima over
windows see `pooling.py`.

Tested by `tests/backends/cublas_cudnn/test_batch_norm.py`, `tests/backends/cublas_cudnn/test_recurrent.py` and
`tests/backends/cublas_cudnn/test_attention.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.cublas_cudnn.library import (
    attention_calls,
    batch_norm_calls,
    ctc_calls,
    factors_calls,
    pooling,
    recurrent_calls,
    sums,
)
from staged.backends.cublas_cudnn.library.attention import Attention
from staged.backends.cublas_cudnn.library.batch_norm import BatchNorms
from staged.backends.cublas_cudnn.library.call import LibraryCall
from staged.backends.cublas_cudnn.library.ctc import Ctc
from staged.backends.cublas_cudnn.library.factors import Factors
from staged.backends.cublas_cudnn.library.instead import KernelsInstead
from staged.backends.cublas_cudnn.library.recurrent import Recurrent
from staged.backends.cublas_cudnn.library.sums import WeightGradients
from staged.backends.gpu.attention.ways import AttentionKernels
from staged.ir.nodes import Block, Function, Op
from staged.ir.options import DeviceOptions
from staged.ir.structure import COMPOSITE
from staged.ir.types import CPU
from staged.ir.users import users_of
from staged.ops.library_calls import FindWay, Way, is_sized

EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {
    **batch_norm_calls.EMITTERS,
    **ctc_calls.EMITTERS,
    **factors_calls.EMITTERS,
    **pooling.EMITTERS,
    **recurrent_calls.EMITTERS,
}
"""By the attr `call` of a `library` op: its function, of this name, with the number of its Python line for errors."""
WITH_KERNELS: Mapping[str, Callable[[Op, str, int, KernelsInstead], LibraryCall]] = {
    **attention_calls.EMITTERS,
    **sums.EMITTERS,
}
"""The same for calls that kernels replace if the library does not support them on the device."""


def find_ways(function: Function, options: DeviceOptions) -> FindWay:
    """Finds the ways of a function's ops, in program order: what one has kept, a later one may use."""
    users = users_of(function.block)
    ways: Mapping[str, FindWay] = {
        **Attention(options).ways,
        **BatchNorms(function, users).ways,
        **Ctc(function, users).ways,
        **Factors(users, options).ways,
        **pooling.WAYS,
        **Recurrent(function, users, options).ways,
        **WeightGradients(users, options).ways,
    }

    own = AttentionKernels(users, CUDA_GPU).ways

    def find(op: Op, block: Block) -> Way | None:
        if op.device == CPU:
            return None
        name = op.attrs["name"] if op.declared is COMPOSITE else op.name
        # What no library takes may have kernels of our own. Only pooling accepts sizes that the program finds.
        tables = (pooling.WAYS,) if is_sized(op) else (ways, own)
        found = (table[name](op, block) for table in tables if name in table)
        return next((way for way in found if way is not None), None)

    return find
