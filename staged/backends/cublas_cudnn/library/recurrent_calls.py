"""The text of the calls of cuDNN's recurrent layers.

    (w_ih, w_hh, b_ih, b_hh)  ->  one weight space, where cuDNN has them
    cudnnRNNForward           ->  ys and the last states; in training also the reserve space
    cudnnRNNBackwardData_v8, cudnnRNNBackwardWeights_v8, and the gradients out of the weight space

A layer is one of cuDNN's with a single direction. The order of gates is cuDNN's own (and torch's), so each of the four
arrays is copied in one piece; where they begin is asked once, when the device is opened.

Tested by `tests/backends/cublas_cudnn/test_recurrent.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from staged.backends.cublas_cudnn.device import WORD, DevicePart, Field, check, destroy
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call, write_call
from staged.backends.cublas_cudnn.library.cudnn import (
    DATA_TYPES,
    by,
    descriptor_part,
    handle_part,
    math_type,
    three_axes_part,
    workspace_part,
)
from staged.backends.cublas_cudnn.library.recurrent import BACKWARD, FORWARD
from staged.code.writer import Writer
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.types import DType, bound

_MODES = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN_TANH"}
_GATES = {"lstm": 4, "gru": 3, "rnn": 1}
_WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh")

_FIND_WEIGHTS = """\
// Where the weights of a layer begin in its weight space, in bytes: w_ih, w_hh, b_ih, b_hh. `gate` is what a gate takes
// of each.
static int find_weights(Device *gpu, st_host *host, int site, cudnnRNNDescriptor_t layer, size_t space, int gates,
        const size_t *gate, size_t *places) {
    for (int linear = 0; linear < 2 * gates; ++linear) {
        void *matrix = NULL;
        void *bias = NULL;
        CUDNN_CHECK(site, cudnnGetRNNWeightParams(gpu->cudnn, layer, 0, space, gpu->recurrent_weights, linear,
                                                  gpu->gate_matrix, &matrix, gpu->gate_bias, &bias));
        void *const found[2] = {matrix, bias};
        for (int kind = 0; kind < 2; ++kind) {
            const int which = 2 * kind + (linear >= gates);
            if (gate[which] == 0) {
                continue;  // a layer without biases
            }
            const size_t place = (size_t)((unsigned char *)found[kind] - gpu->recurrent_weights);
            const size_t number = (size_t)(linear % gates);
            if (number == 0) {
                places[which] = place;
            } else if (place != places[which] + number * gate[which]) {
                return st_fail(host, ST_RUNTIME_ERROR, site, "cuDNN keeps the gates of a recurrent layer apart");
            }
        }
    }
    return ST_OK;
}
"""


class _Layer:
    """Shared by the calls of one layer. x is (T, N, I), states are (N, H)."""

    def __init__(self, op: Op, site: int) -> None:
        self.op, self.site = op, site
        x = op.operands[0].tensor
        self.dtype: DType = x.dtype
        self.steps, self.batch, self.inputs = (bound(extent) for extent in x.shape)
        self.mode = str(op.attrs["mode"])
        self.biases = int(op.attrs["biases"])
        self.states = 2 if self.mode == "lstm" else 1
        state = op.operands[1 if op.attrs["call"] == FORWARD else 3].tensor
        self.hidden = bound(state.shape[1])
        self.reserve = str(op.attrs["reserve"])
        self.math = math_type(DeviceOptions(tf32=bool(op.attrs["tf32"])))

    @property
    def name(self) -> str:
        """The field with the layer's descriptor."""
        ending = "" if self.biases else "_unbiased"
        return f"{self.mode}_{self.dtype}_{self.inputs}x{self.hidden}{ending}"

    @property
    def plan(self) -> str:
        """The field with the workspace that it needs for these sequences."""
        return f"{self.name}_{self.steps}x{self.batch}{'_training' if self.reserve else ''}_workspace"

    @property
    def weights(self) -> tuple[str, ...]:
        return _WEIGHTS[: 2 + self.biases]

    @property
    def initial(self) -> tuple[str, ...]:
        """The names of the initial states."""
        return ("h0", "c0")[: self.states]

    def elements(self, weight: str) -> int:
        """The number of elements of one of the weights."""
        columns = {"w_ih": self.inputs, "w_hh": self.hidden}.get(weight, 1)
        return _GATES[self.mode] * self.hidden * columns

    def __str__(self) -> str:
        kind = self.mode.replace("_", " of ")
        return f"{kind}, {self.steps} steps of ({self.batch}, {self.inputs}), {self.hidden} states"

    # ---- what has to be there before the call ----

    def parts(self) -> list[DevicePart]:
        """All of it."""
        site = self.site
        no_dropout = "cudnnSetDropoutDescriptor(gpu->no_dropout, gpu->cudnn, 0.0f, NULL, 0, 0)"
        found = [
            handle_part(site),
            descriptor_part(site, "no_dropout", "Dropout", no_dropout),
            descriptor_part(site, "gate_matrix", "Tensor"),
            descriptor_part(site, "gate_bias", "Tensor"),
            self.layer_part(),
            self.sequence_part(self.inputs),
            self.sequence_part(self.hidden),
            self.states_part()[1],
            self.plan_part(),
            self.weights_part(),
            self.places_part(),
            workspace_part(site),
        ]
        return [*found, self.reserve_part()] if self.reserve else found

    def layer_part(self) -> DevicePart:
        """The layer's descriptor, and how much its weights take."""
        data_type = DATA_TYPES[self.dtype.name]
        described = ", ".join(
            [
                "CUDNN_RNN_ALGO_STANDARD", f"CUDNN_{_MODES[self.mode]}",
                "CUDNN_RNN_DOUBLE_BIAS" if self.biases else "CUDNN_RNN_NO_BIAS", "CUDNN_UNIDIRECTIONAL",
                "CUDNN_LINEAR_INPUT", data_type, data_type, self.math, str(self.inputs), str(self.hidden),
                str(self.hidden), "1", "gpu->no_dropout", "CUDNN_RNN_PADDED_IO_ENABLED",
            ]
        )  # fmt: skip
        part = descriptor_part(
            self.site,
            self.name,
            "RNN",
            f"cudnnSetRNNDescriptor_v8(gpu->{self.name}, {described})",
            f"cudnnGetRNNWeightSpaceSize(gpu->cudnn, gpu->{self.name}, &gpu->{self.name}_bytes)",
        )
        largest = (
            f"if (gpu->{self.name}_bytes > gpu->recurrent_bytes) {{",
            f"    gpu->recurrent_bytes = gpu->{self.name}_bytes;",
            "}",
        )
        size = Field(f"size_t {self.name}_bytes;", "of its weight space")
        return DevicePart((*part.fields, size), (*part.opens, *largest), part.closes)

    def sequence(self, width: int) -> str:
        return f"sequence_{self.dtype}_{by((self.steps, self.batch, width))}"

    def sequence_part(self, width: int) -> DevicePart:
        """The descriptor of a batch of sequences, all of one length."""
        name, site = self.sequence(width), self.site
        layout = f"{DATA_TYPES[self.dtype.name]}, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED"
        setting = (
            f"cudnnSetRNNDataDescriptor(gpu->{name}, {layout}, {self.steps}, {self.batch}, {width}, lengths, NULL)"
        )
        return DevicePart(
            (Field(f"cudnnRNNDataDescriptor_t {name};"),),
            (
                check("CUDNN_CHECK", site, f"cudnnCreateRNNDataDescriptor(&gpu->{name})"),
                "{",
                f"    int lengths[{self.batch}];",
                f"    for (int sequence = 0; sequence < {self.batch}; ++sequence) {{",
                f"        lengths[sequence] = {self.steps};",
                "    }",
                "    " + check("CUDNN_CHECK", site, setting),
                "}",
            ),
            destroy(f"gpu->{name}", f"cudnnDestroyRNNDataDescriptor(gpu->{name})"),
        )

    def states_part(self) -> tuple[str, DevicePart]:
        """The descriptor of a state, (layers, N, H): its field, and the part."""
        return three_axes_part(self.site, "states", self.dtype, (1, self.batch, self.hidden))

    @property
    def state(self) -> str:
        return self.states_part()[0]

    def plan_part(self) -> DevicePart:
        """The part that holds the sizes of its workspace and its reserve."""
        mode = "TRAINING" if self.reserve else "INFERENCE"
        size = (
            f"cudnnGetRNNTempSpaceSizes(gpu->cudnn, gpu->{self.name}, CUDNN_FWD_MODE_{mode}, "
            f"gpu->{self.sequence(self.inputs)}, &gpu->{self.plan}, &gpu->{self.plan}_kept)"
        )
        return DevicePart(
            (
                Field(f"size_t {self.plan};"),
                Field(f"size_t {self.plan}_kept;", "what the reverse needs, of each call" if self.reserve else ""),
            ),
            (
                check("CUDNN_CHECK", self.site, size),
                f"if (gpu->{self.plan} > gpu->cudnn_workspace_bytes) {{",
                f"    gpu->cudnn_workspace_bytes = gpu->{self.plan};",
                "}",
            ),
            (),
            order=1,
        )

    def reserve_part(self) -> DevicePart:
        """The part that holds the residuals of one call."""
        kept = f"gpu->{self.plan}_kept"
        return DevicePart(
            (Field(f"void *{self.reserve};", "what a call of cuDNN keeps for its reverse"),),
            (
                f"if ({kept} > 0) {{",
                "    " + check("CUDA_CHECK", self.site, f"cudaMalloc(&gpu->{self.reserve}, {kept})"),
                "}",
            ),
            (f"(void)cudaFree(gpu->{self.reserve});",),
            order=2,
            beside=(("what a recurrent layer of cuDNN keeps for its reverse", None),),
        )

    def weights_part(self) -> DevicePart:
        """The weight space, of the largest layer: one call after the other uses it."""
        return DevicePart(
            (
                Field("size_t recurrent_bytes;"),
                Field("unsigned char *recurrent_weights;", "of the layer that is running, or their gradients"),
            ),
            (
                "{",
                "    void *space = NULL;",
                "    " + check("CUDA_CHECK", self.site, "cudaMalloc(&space, gpu->recurrent_bytes)"),
                "    gpu->recurrent_weights = (unsigned char *)space;",
                "}",
            ),
            ("(void)cudaFree(gpu->recurrent_weights);",),
            order=2,
            beside=(("the weights of a recurrent layer as cuDNN has them", None),),
        )

    def places_part(self) -> DevicePart:
        """The part that holds the offset of each weight."""
        sizes = [0] * 4
        for number, weight in enumerate(self.weights):
            sizes[number] = self.elements(weight) // _GATES[self.mode] * self.dtype.size
        gates = ", ".join(map(str, sizes))
        named = f"gpu->{self.name}, gpu->{self.name}_bytes, {_GATES[self.mode]}, gate, gpu->{self.name}_places"
        return DevicePart(
            (Field(f"size_t {self.name}_places[4];", "where its weights begin in the space", 4 * WORD),),
            (
                "{",
                f"    const size_t gate[4] = {{{gates}}};",
                f"    if (find_weights(gpu, host, {self.site}, {named}) != ST_OK) {{",
                "        return host->error_kind;",
                "    }",
                "}",
            ),
            (),
            helpers=(_FIND_WEIGHTS,),
            order=3,  # cuDNN gives addresses: the space must be there
        )

    # ---- statements ----

    def copies(self, w: Writer, gradients: bool) -> None:
        """The weights into the weight space, or their gradients out of it."""
        for number, weight in enumerate(self.weights):
            size = f"{self.elements(weight)} * sizeof({self.dtype.c_name})"
            place = f"gpu->recurrent_weights + gpu->{self.name}_places[{number}]"
            target, source = (f"d_{weight}", place) if gradients else (place, weight)
            write_call(
                w, "CUDA_CHECK", f"cudaMemcpyAsync({target}", [source, size, "cudaMemcpyDeviceToDevice", "gpu->stream"]
            )

    def spaces(self) -> list[str]:
        """Weight space, workspace and reserve space, as all functions take them."""
        reserve = [f"gpu->{self.plan}_kept", f"gpu->{self.reserve}"] if self.reserve else ["0", "NULL"]
        return [
            f"gpu->{self.name}_bytes", "gpu->recurrent_weights",
            "gpu->cudnn_workspace_bytes", "gpu->cudnn_workspace", *reserve,
        ]  # fmt: skip

    def described_states(self, *arrays: str) -> list[str]:
        """A descriptor and arrays of h, and of c where the layer has it; the names begin with that letter, or end in
        it.
        """
        cells = [f"gpu->{self.state}", *(array.replace("h", "c") for array in arrays)]
        return [f"gpu->{self.state}", *arrays, *(cells if self.states == 2 else ["NULL"] * (1 + len(arrays)))]


def emit_forward(op: Op, name: str, site: int) -> LibraryCall:
    """A layer over a whole sequence."""
    layer = _Layer(op, site)
    mode = "TRAINING" if layer.reserve else "INFERENCE"

    def body(w: Writer) -> None:
        layer.copies(w, gradients=False)
        arguments = [
            f"gpu->{layer.name}", f"CUDNN_FWD_MODE_{mode}", "NULL", f"gpu->{layer.sequence(layer.inputs)}", "x",
            f"gpu->{layer.sequence(layer.hidden)}", "ys", *layer.described_states("h0", "h"), *layer.spaces(),
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnRNNForward(gpu->cudnn", arguments)

    comments = [f"{layer}: {'with what its reverse needs' if layer.reserve else 'nothing is kept'}"]
    results = ["ys", *("h", "c")[: layer.states]]
    return whole_call(op, name, ["x", *layer.initial, *layer.weights], results, comments, body, layer.parts())


def emit_backward(op: Op, name: str, site: int) -> LibraryCall:
    """The gradients of a layer, after the forward that has filled the same reserve space."""
    layer = _Layer(op, site)
    given = [f"d_{letter}" for letter in "hc"[: layer.states] if letter in op.attrs["given"]]

    def body(w: Writer) -> None:
        layer.copies(w, gradients=False)
        # No cotangent of a state is one of zeros.
        states = []
        for letter in "hc"[: layer.states]:
            cotangent = f"d_{letter}" if f"d_{letter}" in given else "NULL"
            states += [f"gpu->{layer.state}", f"{letter}0", cotangent, f"d_{letter}0"]
        states += ["NULL"] * (8 - len(states))
        arguments = [
            f"gpu->{layer.name}", "NULL", f"gpu->{layer.sequence(layer.hidden)}", "ys", "d_ys",
            f"gpu->{layer.sequence(layer.inputs)}", "d_x", *states, *layer.spaces(),
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnRNNBackwardData_v8(gpu->cudnn", arguments)
        w.comment("cuDNN adds to what is there.")
        zero = f"cudaMemsetAsync(gpu->recurrent_weights, 0, gpu->{layer.name}_bytes, gpu->stream)"
        w.line(f"CUDA_CHECK(site, {zero});")
        arguments = [
            f"gpu->{layer.name}", "CUDNN_WGRAD_MODE_ADD", "NULL", f"gpu->{layer.sequence(layer.inputs)}", "x",
            f"gpu->{layer.state}", "h0", f"gpu->{layer.sequence(layer.hidden)}", "ys", *layer.spaces(),
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnRNNBackwardWeights_v8(gpu->cudnn", arguments)
        layer.copies(w, gradients=True)

    results = ["d_x", *(f"d_{state}" for state in layer.initial), *(f"d_{weight}" for weight in layer.weights)]
    operands = ["x", "ys", "d_ys", *layer.initial, *layer.weights, *given]
    return whole_call(op, name, operands, results, [f"{layer}: gradients"], body, layer.parts())


EMITTERS: Mapping[str, Callable[[Op, str, int], LibraryCall]] = {FORWARD: emit_forward, BACKWARD: emit_backward}
