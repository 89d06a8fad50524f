"""Planted faults of the way of a call into C: arrays of other libraries, memory of Variables, batches fetched ahead."""

from tests.mutate.mutant import Mutant

INTERCHANGE = "tests/ops/test_interchange.py"
STEP = "tests/guards/test_step.py"
DEVICE = "tests/guards/test_calls_on_device.py"
LOADER = "tests/test_prefetch.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an input that shares memory with a variable is read while that is written",
        "staged/runtime/guard.py",
        "binding->variable_count, binding->inputs, binding->input_count) < 0;",
        "binding->variable_count, binding->inputs, binding->input_count) < INT32_MAX;",
        (STEP, "-k", "share_memory"),
    ),
    Mutant(
        "an interrupt is lost after a library put our handler back outside of a call",
        "staged/runtime/guard.py",
        "(void)raise(number);",
        "(void)number;",
        ("tests/runtime/test_native.py", "-k", "library_changes_handlers"),
    ),
    Mutant(
        "a program holds the Variables of its last call",
        "staged/runtime/native.py",
        "slot.bound = tuple(map(weakref.ref, arrays))",
        "slot.bound = tuple((lambda array=array: array) for array in arrays)",
        (STEP, "-k", "given_back"),
    ),
    Mutant(
        "the host takes its own elements of a Variable that a device has written since",
        "staged/frontend/values/variable.py",
        "if variable._remote is None and variable._trace",
        "if variable._trace",
        (DEVICE, "-k", "of_the_host"),
    ),
    Mutant(
        "a tensor's own stream is not waited for",
        "staged/frontend/devices/resident.py",
        'self.stream = interface.get("stream", _LEGACY_STREAM if is_unnamed else None)',
        "self.stream = None",
        (DEVICE, "-k", "work_on_the_stream"),
    ),
    Mutant(
        "a Variable keeps Fortran's order",
        "staged/frontend/values/variable.py",
        'dtype=dtype.numpy, order="C"\n                )\n            return',
        "dtype=dtype.numpy\n                )\n            return",
        (STEP, "-k", "fortran"),
    ),
    Mutant(
        "an array of C's that is closed over is read once",
        "staged/frontend/trace/context.py",
        "        if is_of_python(type(array)):",
        "        if True:",
        (INTERCHANGE, "-k", "outer_tensor"),
    ),
    Mutant(
        "bytes of the other order are taken for numbers",
        "staged/ops/interchange.py",
        'array.astype(array.dtype.newbyteorder("="))',
        'array.view(array.dtype.newbyteorder("="))',
        (INTERCHANGE, "-k", "layout and order"),
    ),
    Mutant(
        "an array of another library is taken without a look at its shape",
        "staged/dispatch.py",
        '        writer.refuse(f"{text}.shape != {taken.shape!r}")\n',
        "",
        (INTERCHANGE, "-k", "not_traced_again"),
    ),
    Mutant(
        "an error of an argument is located in the text of a call",
        "staged/runtime/prepared.py",
        '_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "<prepared call>")',
        '_FILE = "<prepared call>"',
        (INTERCHANGE, "-k", "cannot_be_read"),
    ),
    Mutant(
        "the thread of a loader sees nothing of the blocks around the loop",
        "staged/prefetch.py",
        "around = copy_context() if current_trace() is None else Context()",
        "around = Context()",
        (LOADER, "-k", "blocks_around"),
    ),
    Mutant(
        "pieces of a mapped file are read by the program",
        "staged/prefetch.py",
        "_read(item) if arrivals is None",
        "item if arrivals is None",
        (LOADER, "-k", "mapped"),
    ),
    Mutant(
        "a loader goes on after its loop has ended",
        "staged/prefetch.py",
        "                if stop.is_set():\n                    return\n",
        "",
        (LOADER, "-k", "generator_ends"),
    ),
    Mutant(
        "calls that write the same variables do not wait for each other",
        "staged/runtime/writers.py",
        "if not held.isdisjoint(variables)",
        "if False",
        ("tests/runtime/test_native.py", "-k", "same_variable or inside_its_own"),
    ),
)
