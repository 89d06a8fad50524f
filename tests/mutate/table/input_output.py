"""Planted faults of what goes between programs and files, Python and C: checkpoints, callbacks, functions in C, data."""

from tests.mutate.mutant import Mutant, Text

CUDA_OPS = "tests/backends/cublas_cudnn/test_custom.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a checkpoint replaces the one before although it is cut off",
        "code.support.save:_SAVE",
        Text("if (fclose(file) == 0 && is_whole && rename(beside, path) == 0) {"),
        "if (fclose(file) == 0 && rename(beside, path) == 0) {",
        ("tests/test_checkpoints.py", "-k", "exported"),
    ),
    Mutant(
        "a checkpoint replaces a device",
        "code.support.save:_SAVE",
        Text("!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)"),
        "S_ISREG(there.st_mode) && S_ISDIR(there.st_mode)",
        ("tests/test_checkpoints.py", "-k", "device_or_pipe"),
    ),
    Mutant(
        "two threads write one temporary file",
        "code.support.save:_SAVE",
        Text('fopen(beside, "wbx")'),
        'fopen(beside, "wb")',
        ("tests/test_checkpoints.py", "-k", "another_machine"),
    ),
    Mutant(
        "a path ends at a zero character",
        "frontend.constructs.files:path_of",
        'isinstance(part, str) and "\\0" in part',
        "False",
        ("tests/test_checkpoints.py", "tests/frontend/test_files.py", "-k", "zero_character"),
    ),
    Mutant(
        "a checkpoint is sorted by name alone",
        "saving.safetensors:ordered",
        "(-SAVED_DTYPES.index(found[n][1]), quoted(found[n][0])[1:-1].encode())",
        "quoted(found[n][0])[1:-1].encode()",
        ("tests/test_checkpoints.py", "-k", "every_dtype"),
    ),
    Mutant(
        "the numbers of a checkpoint are f32",
        "saving.checkpoints:_numbers",
        "[cast(number, dtype) for number in numbers]",
        "numbers",
        ("tests/test_checkpoints.py", "-k", "as_it_was"),
    ),
    Mutant(
        "what is printed comes after what a callback prints",
        "code.support.callback:_CALLBACK",
        Text("st_flush(host); // what has been printed stands before what the function prints"),
        "",
        ("tests/test_callbacks.py", "-k", "order"),
    ),
    Mutant(
        "a C function's names are taken by the program",
        "backends.host.program:ProgramEmitter.run",
        "self.names.used |= names_in(own := functions_of(self.function))",
        "own = functions_of(self.function)",
        ("tests/test_custom_ops.py", "-k", "not_taken"),
    ),
    Mutant(
        "the user's rule of `vmap` is left out",
        "batching.rules:_custom",
        "function.batched is None",
        "True",
        ("tests/test_custom_ops.py", "-k", "vmap"),
    ),
    Mutant(
        "a C function may return anything",
        "backends.host.custom:call_checked",
        'Infix("!=", status, Literal("0"))',
        'Infix("<", status, Literal("0"))',
        ("tests/test_custom_ops.py", "-k", "fails"),
    ),
    Mutant(
        "a kernel given as text takes the address of a number of the device",
        "ops.custom:CUSTOM_LAUNCH",
        'Primitive(name="custom_launch", kind="launch", takes_halves=True, takes_host_numbers=True, is_opaque=True, '
        'infer=_launched_types, reference=_reference, effects=_launch_effects, '
        'why_not_differentiable=CUSTOM_OP.why_not_differentiable)',
        'Primitive(name="custom_launch", kind="launch", takes_halves=True, is_opaque=True, infer=_launched_types, '
        'reference=_reference, effects=_launch_effects, why_not_differentiable=CUSTOM_OP.why_not_differentiable)',
        (CUDA_OPS, "-k", "passed_by_value"),
    ),
    Mutant(
        "the form for CUDA is no part of a cached program's key",
        "call.program_cache:_definition",
        "(custom, custom.cuda) if custom.cuda is not None else (custom,)",
        "(custom,)",
        (CUDA_OPS, "-k", "edited"),
    ),
    Mutant(
        "a kernel given as text may have any parameters",
        "backends.cublas_cudnn.custom:kernel_text",
        Text("typedef decltype(&{name}) Declared;"),
        "",
        (CUDA_OPS, "-k", "does_not_define_it"),
    ),
    Mutant(
        "a program of OpenCL gets kernels of CUDA",
        "call.custom_ops:custom_op._back_end",
        "back_end.takes_cuda_forms",
        "True",
        (CUDA_OPS, "-k", "opencl"),
    ),
    Mutant(
        "a library of the user's is not linked to a program with a region",
        "runtime.cuda.emulated:libraries_of_users",
        '[flag for flag in flags if not flag.startswith("-l")]',
        "[]",
        (CUDA_OPS, "-k", "c_function_of_a_library"),
    ),
    Mutant(
        "samples of 24 bits begin at the lower end",
        "data.sound:_samples",
        "wide[:, 4 - width :]",
        "wide[:, :width]",
        ("tests/data/test_readers.py", "-k", "every_width"),
    ),
    Mutant(
        "all images of a batch are cropped at one height",
        "data.augment:random_crop",
        "st.random.integers(0, full_height - height + 1, (n, 1), generator=generator)",
        "st.random.integers(0, full_height - height + 1, (1, 1), generator=generator)",
        ("tests/data/test_augment.py", "-k", "padded"),
    ),
    Mutant(
        "a callback in eager mode is a constant for derivatives",
        "call.callbacks:callback",
        "any(type.dtype.is_float for type in types)",
        "False",
        ("tests/test_callbacks.py", "-k", "derivative_through"),
    ),
    Mutant(
        "rows of which two numbers differ become a loop",
        "backends.host.saved:_lines",
        'is_one = len(steps) == 1',
        'is_one = True',
        ("tests/backends/host/test_saved.py", "-k", "names"),
    ),
    Mutant(
        "rows one step apart and two steps apart become a loop",
        "backends.host.saved:_run",
        'numbers[count] == tuple(\n    number + count * step for number, step in zip(numbers[0], steps, strict=True)\n)',
        'True',
        ("tests/backends/host/test_saved.py", "-k", "names"),
    ),
    Mutant(
        "parts of a tree whose numbers do not count upwards become one",
        "backends.host.saved:_repeated",
        'numbers != tuple(range(numbers[0], numbers[0] + len(units)))',
        'False',
        ("tests/backends/host/test_saved.py", "-k", "apart"),
    ),
    Mutant(
        "parts of a tree that differ in two numbers become one",
        "backends.host.saved:_repeated",
        'len(columns) != 1',
        'not columns',
        ("tests/backends/host/test_saved.py", "-k", "apart"),
    ),
    Mutant(
        "a percent sign in a name is taken for that of a number",
        "backends.host.saved:_escaped",
        'r"[%\'@#~]"',
        'r"[\'@#~]"',
        ("tests/backends/host/test_saved.py", "-k", "names"),
    ),
)
