"""Planted faults of the way of a call into C: arrays of other libraries, memory of Variables, batches fetched ahead."""

from tests.mutate.mutant import Mutant, Text

INTERCHANGE = "tests/ops/test_interchange.py"
STEP = "tests/guards/test_step.py"
DEVICE = "tests/guards/test_calls_on_device.py"
LOADER = "tests/test_prefetch.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an input that shares memory with a variable is read while that is written",
        "runtime.guard:_SOURCE",
        Text("binding->variable_count, binding->inputs, binding->input_count) < 0;"),
        "binding->variable_count, binding->inputs, binding->input_count) < INT32_MAX;",
        (STEP, "-k", "share_memory"),
    ),
    Mutant(
        "an interrupt is lost after a library put our handler back outside of a call",
        "runtime.guard:_SOURCE",
        Text("(void)raise(number);"),
        "(void)number;",
        ("tests/runtime/test_native.py", "-k", "library_changes_handlers"),
    ),
    Mutant(
        "a program holds the Variables of its last call",
        "runtime.native:NativeProgram.bind_variables",
        "map(weakref.ref, arrays)",
        "((lambda array=array: array) for array in arrays)",
        (STEP, "-k", "given_back"),
    ),
    Mutant(
        "the host takes its own elements of a Variable that a device has written since",
        "frontend.values.variable:host_buffers",
        "variable._remote is None and variable._trace is None and type(variable._kept) is np.ndarray",
        "variable._trace is None and type(variable._kept) is np.ndarray",
        (DEVICE, "-k", "of_the_host"),
    ),
    Mutant(
        "a tensor's own stream is not waited for",
        "frontend.devices.resident:BorrowedArray.__init__",
        'interface.get("stream", _LEGACY_STREAM if is_unnamed else None)',
        "None",
        (DEVICE, "-k", "work_on_the_stream"),
    ),
    Mutant(
        "a Variable keeps Fortran's order",
        "frontend.values.variable:Variable.__init__",
        'np.array(value if isinstance(value, np.ndarray) else np.asarray(array), dtype=dtype.numpy, order="C")',
        "np.array(value if isinstance(value, np.ndarray) else np.asarray(array), dtype=dtype.numpy)",
        (STEP, "-k", "fortran"),
    ),
    Mutant(
        "an array of C's that is closed over is read once",
        "frontend.trace.context:TraceContext.note_offered",
        "is_of_python(type(array))",
        "True",
        (INTERCHANGE, "-k", "outer_tensor"),
    ),
    Mutant(
        "bytes of the other order are taken for numbers",
        "ops.interchange:elements",
        "array.astype",
        "array.view",
        (INTERCHANGE, "-k", "layout and order"),
    ),
    Mutant(
        "an array of another library is taken without a look at its shape",
        "call.guards.arguments:_write_input",
        'writer.refuse(f"{text}.shape != {array.shape!r}")',
        "",
        (INTERCHANGE, "-k", "not_traced_again"),
    ),
    Mutant(
        "an error of an argument is located in the text of a call",
        "runtime.prepared:_FILE",
        'os.path.join(os.path.dirname(os.path.abspath(__file__)), "<prepared call>")',
        '"<prepared call>"',
        (INTERCHANGE, "-k", "cannot_be_read"),
    ),
    Mutant(
        "the thread of a loader sees nothing of the blocks around the loop",
        "call.prefetch:_Ahead.__init__",
        "copy_context() if current_trace() is None else Context()",
        "Context()",
        (LOADER, "-k", "blocks_around"),
    ),
    Mutant(
        "pieces of a mapped file are read by the program",
        "call.prefetch:_fetch",
        "_read(item)",
        "item",
        (LOADER, "-k", "mapped"),
    ),
    Mutant(
        "a loader goes on after its loop has ended",
        "call.prefetch:_fetch",
        "if stop.is_set():\n"
        "    return",
        "",
        (LOADER, "-k", "generator_ends"),
    ),
    Mutant(
        "calls that write the same variables do not wait for each other",
        "runtime.writers:Writers._others",
        "not held.isdisjoint(variables)",
        "False",
        ("tests/runtime/test_native.py", "-k", "same_variable or inside_its_own"),
    ),
)
