"""The text of a call of cuDNN's CTC loss.

Tested by `tests/backends/cublas_cudnn/test_ctc.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from staged.backends.cublas_cudnn.device import DevicePart, Field, check
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.ctc import LOSS
from staged.backends.cublas_cudnn.library.cudnn import by, descriptor_part, handle_part, three_axes_part, workspace_part
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.ir.types import bound

_ALGORITHM = "CUDNN_CTC_LOSS_ALGO_DETERMINISTIC"
"""The algorithm, whatever the program allows: the other one is known to give NaN."""


def emit_loss(op: Op, name: str, site: int) -> LibraryCall:
    """The losses of a batch of sequences, and their gradient if it is used."""
    log_probs = op.operands[0].tensor
    steps, batch, classes = (bound(extent) for extent in log_probs.shape)
    longest, is_trained = op.attrs["longest"], len(op.results) == 2
    loss = f"ctc_{longest}"
    # The softmax of logarithms of probabilities is these probabilities.
    setting = (
        f"cudnnSetCTCLossDescriptor_v9(gpu->{loss}, CUDNN_DATA_FLOAT, CUDNN_LOSS_NORMALIZATION_SOFTMAX, "
        f"CUDNN_CTC_ZERO_OOB_GRADIENTS, {longest})"
    )
    activations, activations_part = three_axes_part(site, "activations", log_probs.dtype, (steps, batch, classes))
    gradients = [f"gpu->{activations}", "gradients"] if is_trained else ["NULL", "NULL"]
    workspace = f"{loss}_{by((steps, batch, classes))}{'_training' if is_trained else ''}_workspace"
    parts = [
        handle_part(site),
        descriptor_part(site, loss, "CTCLoss", setting),
        activations_part,
        _size_part(site, workspace, f"gpu->{loss}, gpu->{activations}, {gradients[0]}"),
        workspace_part(site),
    ]

    def body(w: Writer) -> None:
        arguments = [
            _ALGORITHM, f"gpu->{loss}", f"gpu->{activations}", "log_probs", "labels", "label_lengths", "step_counts",
            "costs", *gradients, "gpu->cudnn_workspace_bytes", "gpu->cudnn_workspace",
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnCTCLoss_v8(gpu->cudnn", arguments)

    comment = f"CTC loss of {batch} sequences, {steps} steps over {classes} classes, texts of up to {longest} labels"
    operands = ["log_probs", "labels", "label_lengths", "step_counts"]
    results = ["costs", "gradients"][: len(op.results)]
    return whole_call(
        op, name, operands, results, [comment + (", and its gradient" if is_trained else "")], body, parts
    )


def _size_part(site: int, field: str, described: str) -> DevicePart:
    """The part that holds the size of the loss's workspace."""
    size = f"cudnnGetCTCLossWorkspaceSize_v8(gpu->cudnn, {_ALGORITHM}, {described}, &gpu->{field})"
    return DevicePart(
        (Field(f"size_t {field};"),),
        (
            check("CUDNN_CHECK", site, size),
            f"if (gpu->{field} > gpu->cudnn_workspace_bytes) {{",
            f"    gpu->cudnn_workspace_bytes = gpu->{field};",
            "}",
        ),
        (),
        order=1,
    )


EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {LOSS: emit_loss}
