"""Planted faults of what goes between programs and files, Python and C: checkpoints, callbacks, functions in C, data."""

from tests.mutate.mutant import Mutant

CUDA_OPS = "tests/backends/cublas_cudnn/test_custom.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a checkpoint replaces the one before although it is cut off",
        "staged/backends/c_family/support/save.py",
        "if (is_saved && rename(beside, path) != 0) {",
        "if (rename(beside, path) != 0) {",
        ("tests/test_checkpoints.py", "-k", "exported"),
    ),
    Mutant(
        "a checkpoint replaces a device",
        "staged/backends/c_family/support/save.py",
        "!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)",
        "S_ISREG(there.st_mode) && S_ISDIR(there.st_mode)",
        ("tests/test_checkpoints.py", "-k", "device_or_pipe"),
    ),
    Mutant(
        "a path ends at a zero character",
        "staged/frontend/constructs/files.py",
        'isinstance(part, str) and "\\0" in part',
        "False",
        ("tests/test_checkpoints.py", "tests/frontend/test_files.py", "-k", "zero_character"),
    ),
    Mutant(
        "a checkpoint is sorted by name alone",
        "staged/safetensors.py",
        "key=lambda n: (-ORDER.index(found[n][1]), found[n][0].encode())",
        "key=lambda n: found[n][0].encode()",
        ("tests/test_checkpoints.py", "-k", "every_dtype"),
    ),
    Mutant(
        "the numbers of a checkpoint are f32",
        "staged/checkpoints.py",
        "stack([cast(number, dtype) for number in numbers])",
        "stack(numbers)",
        ("tests/test_checkpoints.py", "-k", "as_it_was"),
    ),
    Mutant(
        "what is printed comes after what a callback prints",
        "staged/backends/c_family/support/callback.py",
        "    st_flush(host);  // what has been printed stands before what the function prints\n",
        "",
        ("tests/test_callbacks.py", "-k", "order"),
    ),
    Mutant(
        "a C function's names are taken by the program",
        "staged/backends/c_family/program.py",
        "        self.names.used |= names_in(own)\n",
        "",
        ("tests/test_custom_ops.py", "-k", "not_taken"),
    ),
    Mutant(
        "the user's rule of `vmap` is left out",
        "staged/batching/rules.py",
        "    if function.batched is None:\n",
        "    if True:\n",
        ("tests/test_custom_ops.py", "-k", "vmap"),
    ),
    Mutant(
        "a C function may return anything",
        "staged/backends/c_family/custom.py",
        'Infix("!=", status, Literal("0"))',
        'Infix("<", status, Literal("0"))',
        ("tests/test_custom_ops.py", "-k", "fails"),
    ),
    Mutant(
        "a kernel given as text takes the address of a number of the device",
        "staged/ops/custom.py",
        "        takes_host_numbers=True,\n",
        "",
        (CUDA_OPS, "-k", "passed_by_value"),
    ),
    Mutant(
        "the form for CUDA is no part of a cached program's key",
        "staged/program_cache.py",
        "(custom, custom.cuda) if custom.cuda is not None else (custom,)",
        "(custom,)",
        (CUDA_OPS, "-k", "edited"),
    ),
    Mutant(
        "a kernel given as text may have any parameters",
        "staged/backends/cublas_cudnn/custom.py",
        "typedef decltype(&{name}) Declared;",
        "",
        (CUDA_OPS, "-k", "does_not_define_it"),
    ),
    Mutant(
        "a program of OpenCL gets kernels of CUDA",
        "staged/custom_ops.py",
        'return not using or using == "cublas_cudnn"',
        "return True",
        (CUDA_OPS, "-k", "opencl"),
    ),
    Mutant(
        "a library of the user's is not linked to a program with a region",
        "staged/runtime/cuda/emulated.py",
        'return [flag for flag in flags if not flag.startswith("-l")]',
        "return []",
        (CUDA_OPS, "-k", "c_function_of_a_library"),
    ),
    Mutant(
        "samples of 24 bits begin at the lower end",
        "staged/data/sound.py",
        "wide[:, 4 - width :] =",
        "wide[:, :width] =",
        ("tests/data/test_readers.py", "-k", "every_width"),
    ),
    Mutant(
        "all images of a batch are cropped at one height",
        "staged/data/augment.py",
        "full_height - height + 1, (n, 1)",
        "full_height - height + 1, (1, 1)",
        ("tests/data/test_augment.py", "-k", "padded"),
    ),
    Mutant(
        "a callback in eager mode is a constant for derivatives",
        "staged/callbacks.py",
        "if any(type.dtype.is_float for type in types) and any(",
        "if False and any(",
        ("tests/test_callbacks.py", "-k", "derivative_through"),
    ),
)
