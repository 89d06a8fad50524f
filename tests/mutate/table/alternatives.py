"""Planted faults of what runs if a device's library does not support a call."""

from tests.mutate.mutant import Mutant

LIBRARY = "staged/backends/cublas_cudnn/library/"
TESTS = "tests/backends/cublas_cudnn/"
ALTERNATIVES = f"{TESTS}test_alternatives.py"

MUTANTS = (
    Mutant(
        "a product of cublasLt runs without an algorithm",
        f"{LIBRARY}cublaslt.py",
        "*is_missing = status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS;",
        "*is_missing = false;",
        (f"{TESTS}test_libraries.py", "-k", "addresses_are_multiples"),
    ),
    Mutant(
        "the kernel after a product leaves out gelu",
        f"{LIBRARY}cublaslt.py",
        "if form.activation:",
        "if not form.activation:",
        (f"{TESTS}test_libraries.py", "-k", "addresses_are_multiples"),
    ),
    Mutant(
        "the sums of a matrix are those of the other factor",
        f"{LIBRARY}sums.py",
        'summed = op.operands["ab".index(op.attrs["sums_of"])]',
        "summed = op.operands[0]",
        (f"{TESTS}test_libraries.py", "-k", "gradients_of_weight"),
    ),
    Mutant(
        "only cuDNN's general status means that it does not support an operation",
        f"{LIBRARY}cudnn.py",
        "status / 1000 * 1000 == CUDNN_STATUS_NOT_SUPPORTED",
        "status == CUDNN_STATUS_NOT_SUPPORTED",
        (ALTERNATIVES, "-k", "network or grouped"),
    ),
    Mutant(
        "the kernel of a convolution does not add to its result",
        f"{LIBRARY}convolution.py",
        "    def finished(store: Store) -> list[Statement]:\n        body: list[Statement] = []\n"
        "        value = scaled(body, alpha, store.value)\n        if form.addend is not None:",
        "    def finished(store: Store) -> list[Statement]:\n        body: list[Statement] = []\n"
        "        value = scaled(body, alpha, store.value)\n        if form.bias is not None and form.addend is not None:",
        (ALTERNATIVES, "-k", "in_its_place or added_to"),
    ),
    Mutant(
        "the kernel of a grouped convolution adds the biases of the first group",
        f"{LIBRARY}convolution.py",
        'Affine.of(axes["group"], conv.oc // conv.groups) + Affine.of(axes["o"])',
        'Affine.of(axes["o"])',
        (ALTERNATIVES, "-k", "grouped"),
    ),
    Mutant(
        "a convolution without an algorithm has no note",
        f"{LIBRARY}convolution.py",
        """w.statement(f'st_note(host, site, "{words}", what, why);')""",
        'w.line("(void)why;")',
        (ALTERNATIVES, "-k", "network"),
    ),
    Mutant(
        "the kernels of attention's gradient read sums of squares",
        f"{LIBRARY}attention_calls.py",
        '["d_out", "out", "offset"], lse.tensor)',
        '["out", "out", "offset"], lse.tensor)',
        (ALTERNATIVES, "-k", "attention"),
    ),
    Mutant(
        "a relu of a recurrent layer is cuDNN's",
        f"{LIBRARY}recurrent.py",
        'bool(op.attrs.get("nonlinearity") == "relu")',
        "False",
        (f"{TESTS}test_recurrent.py", "-k", "not_a_number"),
    ),
    Mutant(
        "relu is part of a product of cublasLt",
        f"{LIBRARY}cublaslt.py",
        '(True, ""): "BIAS",',
        '(True, ""): "RELU_BIAS",',
        (f"{TESTS}test_libraries.py", "-k", "not_a_number"),
    ),
)
