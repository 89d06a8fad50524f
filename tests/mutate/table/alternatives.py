"""Planted faults of what runs if a device's library does not support a call."""

from tests.mutate.mutant import Mutant, Text

TESTS = "tests/backends/cublas_cudnn/"
ALTERNATIVES = f"{TESTS}test_alternatives.py"

MUTANTS = (
    Mutant(
        "a product of cublasLt runs without an algorithm",
        "backends.cublas_cudnn.library.cublaslt:_CHOOSE",
        Text("*is_missing = status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS;"),
        "*is_missing = false;",
        (f"{TESTS}test_libraries.py", "-k", "addresses_are_multiples"),
    ),
    Mutant(
        "the kernel after a product leaves out gelu",
        "backends.cublas_cudnn.library.cublaslt:epilogue_nest",
        "form.activation",
        "not form.activation",
        (f"{TESTS}test_libraries.py", "-k", "addresses_are_multiples"),
    ),
    Mutant(
        "the sums of a matrix are those of the other factor",
        "backends.cublas_cudnn.library.sums:emit_product.body",
        '"ab".index(op.attrs["sums_of"])',
        "0",
        (f"{TESTS}test_libraries.py", "-k", "gradients_of_weight"),
    ),
    Mutant(
        "only cuDNN's general status means that it does not support an operation",
        "backends.cublas_cudnn.library.cudnn:IS_UNSUPPORTED",
        Text("status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED"),
        "status == CUDNN_STATUS_NOT_SUPPORTED",
        (ALTERNATIVES, "-k", "network or grouped"),
    ),
    Mutant(
        "the kernel of a convolution does not add to its result",
        "backends.cublas_cudnn.library.convolution:convolution_kernel_nest.finished",
        "form.addend is not None",
        "form.bias is not None and form.addend is not None",
        (ALTERNATIVES, "-k", "in_its_place or added_to"),
    ),
    Mutant(
        "the kernel of a grouped convolution adds the biases of the first group",
        "backends.cublas_cudnn.library.convolution:convolution_kernel_nest.finished",
        'Affine.of(axes["group"], conv.oc // conv.groups) + Affine.of(axes["o"])',
        'Affine.of(axes["o"])',
        (ALTERNATIVES, "-k", "grouped"),
    ),
    Mutant(
        "a convolution without an algorithm has no note",
        "backends.cublas_cudnn.library.convolution:choice_text",
        "w.statement(f'st_note(host, site, \"{words}\", what, why);')",
        'w.line("(void)why;")',
        (ALTERNATIVES, "-k", "network"),
    ),
    Mutant(
        "the kernels of attention's gradient read sums of squares",
        "backends.cublas_cudnn.library.attention_calls:_Call.write_kernels",
        '["d_out", "out", "offset"]',
        '["out", "out", "offset"]',
        (ALTERNATIVES, "-k", "attention"),
    ),
    Mutant(
        "a relu of a recurrent layer is cuDNN's",
        "backends.cublas_cudnn.library.recurrent:_has_relu",
        'bool(op.attrs.get("nonlinearity") == "relu")',
        "False",
        (f"{TESTS}test_recurrent.py", "-k", "not_a_number"),
    ),
    Mutant(
        "relu is part of a product of cublasLt",
        "backends.cublas_cudnn.library.cublaslt:_EPILOGUES",
        '{(True, ""): "BIAS", (True, "gelu"): "GELU_BIAS", (False, "gelu"): "GELU"}',
        '{(True, ""): "RELU_BIAS", (True, "gelu"): "GELU_BIAS", (False, "gelu"): "GELU"}',
        (f"{TESTS}test_libraries.py", "-k", "not_a_number"),
    ),
)
