"""Planted faults of the alignment of arrays on a device."""

from __future__ import annotations

from tests.mutate.mutant import Mutant


def case(words: str) -> tuple[str, ...]:
    """A test of arrays that begin late, by words of its name."""
    return ("tests/backends/cublas_cudnn/test_alignment.py", "-k", words)


def of_values(words: str) -> tuple[str, ...]:
    """A test of what is known about values, by words of its name."""
    return ("tests/backends/gpu/test_alignment.py", "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a parameter keeps the alignment of a buffer, whatever the calls pass",
        "backends.gpu.alignment:Alignments.__init__",
        "min(self._parameters[param], self.of(operand))",
        "max(self._parameters[param], self.of(operand))",
        of_values("minimum_over_all_calls"),
    ),
    Mutant(
        "an argument that is passed on counts as aligned",
        "backends.gpu.alignment:Alignments.__init__",
        "known, False",
        "known, True",
        of_values("minimum_over_all_calls"),
    ),
    Mutant(
        "the offset of a view is not scaled by its rows",
        "backends.gpu.alignment:_offsets",
        "[step * stride for step, stride in zip(steps, strides, strict=True)]",
        "[step * strides[0] for step in steps]",
        of_values("offsets_add_up"),
    ),
    Mutant(
        "a size that the program finds is taken for its bound",
        "backends.gpu.alignment:_stride",
        "prod(behind) if len(behind) == type.ndim - axis - 1 else 1",
        "prod(map(bound, type.shape[axis + 1 :]))",
        of_values("size_that_the_program_finds"),
    ),
    Mutant(
        "a misaligned array of another library is read in place",
        "runtime.cuda.borrowed:BorrowedPlace.__init__",
        "nbytes > 0 and address % alignment != 0",
        "False",
        case("copied_once_per_call"),
    ),
    Mutant(
        "the program does not wait for the copy of a misaligned array",
        "runtime.cuda.borrowed:BorrowedPlace.__init__",
        "is_misaligned or stream == _LEGACY_STREAM",
        "stream == _LEGACY_STREAM and not is_misaligned",
        case("follows_the_work"),
    ),
    Mutant(
        "an address between elements is read",
        "call.residency:_input_place",
        "max(parameter.alignment, value.dtype.itemsize)",
        "parameter.alignment",
        case("between_elements"),
    ),
    Mutant(
        "callers in C are not checked",
        "backends.cublas_cudnn.entry:CudaEntry.begin",
        "self.add_check_of_addresses(code)",
        "",
        case("caller_in_c"),
    ),
    Mutant(
        "arguments that reach kernels through functions are not checked",
        "backends.cublas_cudnn.arguments:aligned_arguments",
        "calls.setdefault(Call(op).function, []).append((body, op))",
        "calls.setdefault(Call(op).function, [])",
        case("reach_kernels_through_functions"),
    ),
    Mutant(
        "a misaligned bias is passed to cublasLt",
        "backends.cublas_cudnn.library.alignment:_vectors",
        "(op.operands[operand_of(bias)],)",
        "()",
        case("bias_of_an_epilogue"),
    ),
    Mutant(
        "misaligned operands are passed to a plan of cuDNN",
        "backends.cublas_cudnn.library.alignment:_vectors",
        'if op.declared is LIBRARY and op.attrs["call"] in _PLANS:\n'
        "    return op.operands",
        "",
        case("operands_of_attention"),
    ),
    Mutant(
        "the algorithm of a product is chosen for aligned matrices",
        "backends.cublas_cudnn.library.alignment:_Aligner.op",
        'op.attrs if known == ALIGNED else {**op.attrs, "alignment": known}',
        "op.attrs",
        case("algorithm_of_a_product"),
    ),
    Mutant(
        "a copied operand ends the graph of a loop",
        "backends.cublas_cudnn.runs:_goes_on",
        'bool(op.attrs["source"] == op.device)',
        "False",
        case("part_of_the_graph"),
    ),
    Mutant(
        "a program that only copies from a device is written for the host",
        "passes.placement.place:place",
        "all(op.device == CPU for op in ops) and not _reads_a_device(program)",
        "all(op.device == CPU for op in ops)",
        case("only_copies"),
    ),
    Mutant(
        "the stand-in for cublasLt accepts a misaligned bias",
        "cuda_emulator/cuda_emulator/cublaslt/matmul.cpp",
        "uintptr_t(d.bias) % VECTOR_MULTIPLE == 0",
        "uintptr_t(d.bias) % 4 == 0",
        ("cuda_emulator/tests/test_cublaslt.py", "-k", "does_not_fit"),
    ),
    Mutant(
        "a single pack has a loop",
        "backends.gpu.packs:packed",
        "exact_quotient(axis.size, width) is None or part.items == width",
        "exact_quotient(axis.size, width) is None",
        ("tests/backends/gpu/test_packs.py", "-k", "single_pack"),
    ),
)
