"""Planted faults of f16 and bf16: roundings that are lost or wrong, sums that are not f32's."""

from tests.mutate.mutant import Mutant, Text

CONVERSIONS = ("tests/backends/support/test_halves.py::test_floats_are_rounded_once_to_the_nearest_even_half",)
TESTS = "tests/ops/test_halves.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a bf16 between two is always rounded up",
        "code.support.halves:_TO_BF16",
        Text("return (uint16_t)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);"),
        "return (uint16_t)((word + 0x8000u) >> 16);",
        CONVERSIONS,
    ),
    Mutant(
        "vectors of large numbers are no infinities in f16",
        "code.support.halves:_VECTORS",
        Text("is_large = (U)(rest >= 0x47800000u);"),
        "is_large = (U)(rest >= 0x7f800000u);",
        ("tests/backends/support/test_halves.py::test_vectors_are_converted_as_numbers_are",),
    ),
    Mutant(
        "the machine's rounding to bf16 takes subnormal numbers for zeros",
        "code.support.halves:_vector_snippet",
        Text('f" if ({some} == 0) {{'),
        'f"    if ({some} >= 0) {{',
        ("tests/backends/support/test_halves.py::test_vectors_are_converted_as_numbers_are",),
    ),
    Mutant(
        "the last rows of a tile of halves are not converted",
        "backends.cpu.contraction.stored:Stored._copy",
        'f"const int64_t at = half * (count - {some});"',
        'f"const int64_t at = 0 * half * (count - {some});"',
        ("tests/backends/host/test_contraction_halves.py", "-k", "some_products"),
    ),
    Mutant(
        "halves of two dtypes are multiplied as those of one",
        "passes.halves_in_products:_Multiplier.is_read_as_stored",
        "len(dtypes) == 1 and None not in dtypes and (is_small or self.inside[-1].issuperset(casts))",
        "None not in dtypes and (is_small or self.inside[-1].issuperset(casts))",
        ("tests/passes/test_halves_in_products.py", "-k", "two_dtypes"),
    ),
    Mutant(
        "what is converted once for a loop is converted in each iteration",
        "passes.halves_in_products:_Multiplier.is_read_as_stored",
        "self.inside[-1].issuperset(casts)",
        "len(casts) == 2",
        ("tests/passes/test_halves_in_products.py", "-k", "before_a_loop"),
    ),
    Mutant(
        "an f64 is rounded twice",
        "code.support.halves:_FROM_F64",
        Text("word = (word - past) | 1u;"),
        "word = past ? word : word;",
        CONVERSIONS,
    ),
    Mutant(
        "subnormal f16 are zeros",
        "code.support.halves:_TO_F16",
        Text("st_bits_f32(st_real_f32(rest) + 0.5f) - 0x3f000000u"),
        "0u * rest",
        CONVERSIONS,
    ),
    Mutant(
        "a half and what it is rounded from count as the same",
        "passes.algebra:_holds",
        "wide.is_float and wide.size > narrow.size",
        "wide.is_float",
        (f"{TESTS}::test_every_op_of_a_program_rounds_its_result",),
    ),
    Mutant(
        "functions of halves compute op by op",
        "ops.halves:in_f32",
        "name in _MOVING or module in _MOVING_MODULES",
        "name",
        (
            f"{TESTS}::test_a_sum_adds_up_in_f32",
            f"{TESTS}::test_a_function_of_halves_is_that_of_f32_rounded_once[softmax-f16]",
        ),
    ),
    Mutant(
        "f16 and bf16 together are bf16",
        "ops.dtypes:promote_dtypes",
        "(a if a.size > b.size else b) if a.size != b.size else f32",
        "(a if a.size > b.size else b) if a.size != b.size else b",
        (f"{TESTS}::test_dtypes_promote_as_in_the_array_api_and_jax",),
    ),
    Mutant(
        "a program of one autocast is that of another",
        "call.api:StagedFunction.__call__",
        "open_regions() or lowered_to()",
        "open_regions()",
        ("tests/ops/test_autocast.py::test_a_program_is_of_its_autocast",),
    ),
    Mutant(
        "losses in an autocast are of low precision",
        "ops.halves:_widened",
        "stays and lowered_to() is not None",
        "not stays",
        ("tests/ops/test_autocast.py::test_reductions_of_low_precision_are_f32",),
    ),
    Mutant(
        "a step along infinite gradients is taken",
        "optim.grad_scaler:GradScaler.step",
        "is_finite & ~were_found",
        "~were_found",
        ("tests/optim/test_grad_scaler.py::test_scales_and_weights_are_those_of_torch",),
    ),
    Mutant(
        "half parameters are updated in half precision",
        "optim.optimizer:Optimizer._step_all",
        "grad, param = st.astype(grad, st.f32), Widened(param)",
        "pass",
        ("tests/optim/test_grad_scaler.py::test_half_parameters_step_as_f32_rounded_once",),
    ),
    Mutant(
        "numbers of half arguments are cut to integers",
        "runtime.arguments:cell_of",
        '_HalfCell(address, dtype.numpy) if dtype.is_half else ffi.cast(f"{dtype.c_name} *", address)',
        'ffi.cast(f"{dtype.c_name} *", address)',
        (f"{TESTS}::test_numbers_are_arguments_results_and_variables",),
    ),
)
