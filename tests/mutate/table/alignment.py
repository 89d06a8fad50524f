"""Planted faults of the alignment of arrays on a device."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

FAMILY = "staged/backends/gpu_family/"
CUDA = "staged/backends/cublas_cudnn/"


def case(words: str) -> tuple[str, ...]:
    """A test of arrays that begin late, by words of its name."""
    return ("tests/backends/cublas_cudnn/test_alignment.py", "-k", words)


def of_values(words: str) -> tuple[str, ...]:
    """A test of what is known about values, by words of its name."""
    return ("tests/backends/gpu_family/test_alignment.py", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a parameter keeps the alignment of a buffer, whatever the calls pass",
        f"{FAMILY}alignment.py",
        "known := min(self._parameters[param], self.of(operand))",
        "known := max(self._parameters[param], self.of(operand))",
        of_values("minimum_over_all_calls"),
    ),
    Mutant(
        "an argument that is passed on counts as aligned",
        f"{FAMILY}alignment.py",
        "self._parameters[param], is_settled = known, False",
        "self._parameters[param], is_settled = known, True",
        of_values("minimum_over_all_calls"),
    ),
    Mutant(
        "the offset of a view is not scaled by its rows",
        f"{FAMILY}alignment.py",
        "return [step * stride for step, stride in zip(steps, strides, strict=True)]",
        "return [step * strides[0] for step in steps]",
        of_values("offsets_add_up"),
    ),
    Mutant(
        "a size that the program finds is taken for its bound",
        f"{FAMILY}alignment.py",
        "return prod(behind) if len(behind) == type.ndim - axis - 1 else 1",
        "return prod(map(bound, type.shape[axis + 1 :]))",
        of_values("size_that_the_program_finds"),
    ),
    Mutant(
        "a misaligned array of another library is read in place",
        "staged/runtime/cuda/borrowed.py",
        "is_misaligned = nbytes > 0 and address % alignment != 0",
        "is_misaligned = False",
        case("copied_once_per_call"),
    ),
    Mutant(
        "the program does not wait for the copy of a misaligned array",
        "staged/runtime/cuda/borrowed.py",
        "if is_misaligned or stream == _LEGACY_STREAM:",
        "if stream == _LEGACY_STREAM and not is_misaligned:",
        case("follows_the_work"),
    ),
    Mutant(
        "an address between elements is read",
        "staged/residency.py",
        "alignment = max(parameter.alignment, value.dtype.itemsize)",
        "alignment = parameter.alignment",
        case("between_elements"),
    ),
    Mutant(
        "callers in C are not checked",
        f"{CUDA}entry.py",
        "        self.add_check_of_addresses(code)\n",
        "",
        case("caller_in_c"),
    ),
    Mutant(
        "arguments that reach kernels through functions are not checked",
        f"{CUDA}arguments.py",
        "calls.setdefault(Call(op).function, []).append((body, op))",
        "calls.setdefault(Call(op).function, [])",
        case("reach_kernels_through_functions"),
    ),
    Mutant(
        "a misaligned bias is passed to cublasLt",
        f"{CUDA}library/alignment.py",
        "        return (op.operands[operand_of(bias)],)\n",
        "        return ()\n",
        case("bias_of_an_epilogue"),
    ),
    Mutant(
        "misaligned operands are passed to a plan of cuDNN",
        f"{CUDA}library/alignment.py",
        '    if op.declared is LIBRARY and op.attrs["call"] in _PLANS:\n        return op.operands\n',
        "",
        case("operands_of_attention"),
    ),
    Mutant(
        "the algorithm of a product is chosen for aligned matrices",
        f"{CUDA}library/alignment.py",
        'attrs = op.attrs if known == ALIGNED else {**op.attrs, "alignment": known}',
        "attrs = op.attrs",
        case("algorithm_of_a_product"),
    ),
    Mutant(
        "a copied operand ends the graph of a loop",
        f"{CUDA}runs.py",
        'return bool(op.attrs["source"] == op.device)',
        "return False",
        case("part_of_the_graph"),
    ),
    Mutant(
        "a program that only copies from a device is written for the host",
        "staged/passes/placement/place.py",
        "if all(op.device == CPU for op in ops) and not _reads_a_device(program):",
        "if all(op.device == CPU for op in ops):",
        case("only_copies"),
    ),
    Mutant(
        "the stand-in for cublasLt accepts a misaligned bias",
        "staged/runtime/cuda_emulator/cublaslt/matmul.cpp",
        "uintptr_t(d.bias) % VECTOR_MULTIPLE == 0",
        "uintptr_t(d.bias) % 4 == 0",
        ("tests/runtime/test_cuda_cublaslt.py", "-k", "does_not_fit"),
    ),
    Mutant(
        "a single pack has a loop",
        f"{FAMILY}packs.py",
        "if axis.factor % width or part.items == width:",
        "if axis.factor % width:",
        ("tests/backends/gpu_family/test_packs.py", "-k", "single_pack"),
    ),
)
