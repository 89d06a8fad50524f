"""The text of the calls of cuDNN's batch norm, in its spatial mode: statistics over all but the channels.

Tested by `tests/backends/cublas_cudnn/test_batch_norm.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from staged.backends.cublas_cudnn.device import filled_part
from staged.backends.cublas_cudnn.library.batch_norm import BACKWARD, INFERENCE, RUNNING, TRAINING, images
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.cudnn import handle_part, tensor_part
from staged.code.expr import literal
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.ir.types import f64


class _Call:
    """Shared by the calls: descriptors, factors, and the function around them."""

    def __init__(self, op: Op, site: int) -> None:
        self.op = op
        x = op.operands[0].tensor
        self.channels, self.dtype = images(x)[1], x.dtype
        x_field, x_part = tensor_part(site, self.dtype, images(x))
        few_field, few_part = tensor_part(site, self.dtype, (1, self.channels, 1, 1))
        self.x, self.few = f"gpu->{x_field}", f"gpu->{few_field}"
        self.parts = [handle_part(site), x_part, few_part]
        self.eps = str(literal(op.attrs["eps"], f64))
        self.site = site

    @property
    def given(self) -> list[str]:
        """The names of the weight and the bias that there are."""
        return [name for name in ("weight", "bias") if name[0] in self.op.attrs["parts"]]

    def per_channel(self, name: str) -> str:
        """The weight or the bias, which cuDNN always wants: where there is none,
        an array that is there from the start."""
        if name in self.given:
            return name
        field, part = filled_part(self.site, self.dtype, self.channels, {"weight": 1.0, "bias": 0.0}[name])
        self.parts.append(part)
        return f"gpu->{field}"

    def write(self, w: Writer, routine: str, arguments: Sequence[str]) -> None:
        """The call, with arguments after the mode and the factors."""
        c_type = self.dtype.c_name
        w.line(f"const {c_type} one = {literal(1.0, self.dtype)};")
        w.line(f"const {c_type} zero = {literal(0.0, self.dtype)};")
        factors = ["&one", "&zero"] * (2 if routine.endswith("Backward") else 1)
        head = f"{routine}(gpu->cudnn, CUDNN_BATCHNORM_SPATIAL"
        write_call(w, "CUDNN_CHECK", head, [*factors, *arguments])

    def function(
        self,
        name: str,
        operands: Sequence[str],
        results: Sequence[str],
        comment: str,
        body: Callable[[Writer], None],
        begins_as: tuple[tuple[int, int], ...] = (),
    ) -> LibraryCall:
        comments = [f"x {self.op.operands[0].tensor.shape}: {comment}"]
        return whole_call(self.op, name, operands, results, comments, body, self.parts, begins_as)


def emit_training(op: Op, name: str, site: int) -> LibraryCall:
    """Training without running statistics: `mean` and `variance` are what these would become from nothing."""
    call = _Call(op, site)
    affine = call.per_channel("weight"), call.per_channel("bias")

    def body(w: Writer) -> None:
        w.comment("What cuDNN adds to running statistics, it multiplies by factor 1: these are the batch's alone.")
        for array in ("mean", "variance"):
            size = f"{call.channels} * sizeof({call.dtype.c_name})"
            w.line(f"CUDA_CHECK(site, cudaMemsetAsync({array}, 0, {size}, gpu->stream));")
        _write_training(w, call, affine, "1.0")

    comment = "batch norm with the statistics of each channel; the variance is over one less than their number"
    return call.function(name, ["x", *call.given], _TRAINING_RESULTS, comment, body)


def emit_running(op: Op, name: str, site: int) -> LibraryCall:
    """Training that brings running statistics up to date, in their place."""
    call = _Call(op, site)
    affine = call.per_channel("weight"), call.per_channel("bias")
    # As the user wrote it, if it went through f32.
    factor = float(str(call.dtype.numpy.type(op.attrs["factor"])))
    comment = "batch norm with the statistics of each channel, which the running ones follow"
    operands = ["x", *call.given, "old_mean", "old_variance"]
    first = operands.index("old_mean")

    def body(w: Writer) -> None:
        _write_training(w, call, affine, str(literal(factor, f64)))

    return call.function(name, operands, _TRAINING_RESULTS, comment, body, ((1, first), (2, first + 1)))


_TRAINING_RESULTS = ["y", "mean", "variance", "saved_mean", "saved_rstd"]


def _write_training(w: Writer, call: _Call, affine: tuple[str, str], factor: str) -> None:
    arguments = [call.x, "x", call.x, "y", call.few, *affine, factor, "mean", "variance"]
    call.write(w, "cudnnBatchNormalizationForwardTraining", [*arguments, call.eps, "saved_mean", "saved_rstd"])


def emit_backward(op: Op, name: str, site: int) -> LibraryCall:
    """The gradients."""
    call = _Call(op, site)
    weight = call.per_channel("weight")

    def body(w: Writer) -> None:
        arguments = [call.x, "x", call.x, "d_y", call.x, "d_x", call.few, weight, "d_weight", "d_bias"]
        call.write(w, "cudnnBatchNormalizationBackward", [*arguments, call.eps, "saved_mean", "saved_rstd"])

    operands = ["x", "d_y", *call.given, "saved_mean", "saved_rstd"]
    return call.function(name, operands, ["d_x", "d_weight", "d_bias"], "gradients of batch norm", body)


def emit_inference(op: Op, name: str, site: int) -> LibraryCall:
    """Statistics that are given."""
    call = _Call(op, site)
    affine = call.per_channel("weight"), call.per_channel("bias")

    def body(w: Writer) -> None:
        arguments = [call.x, "x", call.x, "y", call.few, *affine, "mean", "variance", call.eps]
        call.write(w, "cudnnBatchNormalizationForwardInference", arguments)

    operands = ["x", *call.given, "mean", "variance"]
    return call.function(name, operands, ["y"], "batch norm with given statistics", body)


EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {
    TRAINING: emit_training,
    RUNNING: emit_running,
    BACKWARD: emit_backward,
    INFERENCE: emit_inference,
}
