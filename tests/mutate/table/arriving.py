"""Planted faults of what a loader copies to a device beside its work."""

from tests.mutate.mutant import Mutant, Text

TESTS = "tests/test_prefetch_on_device.py"
MEMORY = "tests/runtime/test_cuda_arriving.py"


def case(words: str, file: str = TESTS) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a program is not told of the events that its inputs arrive with",
        "runtime.native:NativeProgram._run",
        "events.append(value.arrival)",
        "pass",
        case("a_loop_gives"),
    ),
    Mutant(
        "one of two devices alone waits for what arrives",
        "backends.cublas_cudnn.entry:CudaEntry.add_wait_for_arrivals",
        "for device in self.program.devices: ...",
        "for device in self.program.devices[:1]: ...",
        case("each_of_two_devices"),
    ),
    Mutant(
        "pinned memory is written while it is copied",
        "runtime.cuda.arriving:Pinned.reserve",
        "self.last.wait()",
        "",
        case("written_again", MEMORY),
    ),
    Mutant(
        "the host reads an array before it has arrived",
        "runtime.cuda.resident:DeviceCopy._copy",
        "if self.arrival is not None:\n"
        "    self.arrival.wait()",
        "",
        case("written_again", MEMORY),
    ),
    Mutant(
        "the host waits for each copy",
        "runtime.cuda.arriving:Arrivals.put",
        "piece.last = arrival",
        "piece.last = arrival\n"
        "arrival.wait()",
        case("waits_for_no_copy"),
    ),
    Mutant(
        "a place on the device is not used again",
        "runtime.cuda.arriving:Places.take",
        'return capacity, ffi.cast("void *", address), self._uses.pop(address)',
        "",
        case("thousand"),
    ),
    Mutant(
        "what is held longer than the loop stays on the device for ever",
        "runtime.cuda.arriving:Places.give_back",
        "self._is_closed",
        "False",
        case("outlives"),
    ),
    Mutant(
        "places of other sizes do not make room",
        "runtime.cuda.arriving:Places.take",
        "self._free_idle()",
        "pass",
        case("make_room", MEMORY),
    ),
    Mutant(
        "the stream of a loop is never given back",
        "runtime.cuda.arriving:Arrivals.close",
        'self._runtime.function("cudaStreamDestroy", "int (*)(void *)")(stream)',
        "",
        case("leaves_nothing"),
    ),
    Mutant(
        "an error keeps the stream and the pinned memory",
        "call.prefetch:_fetch",
        "arrivals is not None",
        "arrivals is not None and stop.is_set()",
        case("errors_come"),
    ),
    Mutant(
        "arrays that the region names are copied again",
        "call.prefetch:_placed",
        "find_kept(leaf, device)",
        "None",
        case("other_leaves"),
    ),
    Mutant(
        "a loader in eager mode puts arrays on the device",
        "call.prefetch:Loader.__iter__",
        "context_or_none() is not None or not takes_cuda_arrays(device, device_options(ambient_options()))",
        "not takes_cuda_arrays(device, device_options(ambient_options()))",
        case("eager_mode"),
    ),
    Mutant(
        "arrays without axes go to the device",
        "call.prefetch:_elements",
        "array.ndim > 0",
        "array.ndim >= 0",
        case("other_leaves"),
    ),
    Mutant(
        "an argument may have the name of the field of what arrives",
        "base.artifact:event_fields.free",
        "name in taken",
        "False",
        case("the_header"),
    ),
    Mutant(
        "places are for arrays of exactly one size",
        "runtime.cuda.arriving:Places.take",
        "2 * capacity",
        "capacity",
        case("many_sizes", MEMORY),
    ),
    Mutant(
        "small arrays take the places of large ones",
        "runtime.cuda.arriving:Places.take",
        "self._idle[at][0] <= 2 * capacity",
        "True",
        case("small_arrays", MEMORY),
    ),
    Mutant(
        "copies go to the device that the thread used last",
        "runtime.cuda.arriving:Arrivals.put",
        "choose_device(self._runtime, self._device)",
        "pass",
        case("chosen_another_device", MEMORY),
    ),
    Mutant(
        "the host waits for copies that are over",
        "runtime.cuda.arriving:Arrival.wait",
        "if self.is_over():\n"
        "    return",
        "",
        case("two_pieces", MEMORY),
    ),
    Mutant(
        "a retry leaves CUDA's error for others to find",
        "runtime.cuda.arriving:Places.take",
        "_forget_error(self.runtime)",
        "",
        case("make_room", MEMORY),
    ),
    Mutant(
        "a region takes a loaded array to the host to know it again",
        "frontend.devices.resident:Region.kept",
        "if leaf.origin is not None:\n"
        "    self.arrays[id(leaf.origin)] = leaf",
        "self.arrays[id(leaf.host)] = leaf",
        case("used_as_any"),
    ),
    Mutant(
        "a loaded array cannot be copied",
        "frontend.devices.resident:DeviceArray.__reduce__",
        "DeviceArray, (self.host, self.device)",
        "object.__reduce__(self)",
        case("used_as_any"),
    ),
    Mutant(
        "a loader outside of a region heeds no device",
        "call.prefetch:Loader.__iter__",
        "ambient_device() if self.device is None else self.device",
        "ambient_device()",
        case("outside_of_a_region"),
    ),
    Mutant(
        "a loader copies arrays to CUDA's memory for any back end",
        "call.prefetch:Loader.__iter__",
        "context_or_none() is not None or not takes_cuda_arrays(device, device_options(ambient_options()))",
        "context_or_none() is not None",
        case("leaves_arrays_on_the_host", "tests/backends/test_contract.py"),
    ),
    Mutant(
        "programs of the host are to make places on a device",
        "call.residency:input_places",
        'not hasattr(program, "place_on")',
        "False",
        case("nothing_on_the_device"),
    ),
    Mutant(
        "pieces of a mapped file that stay on the host are not read",
        "call.prefetch:_placed",
        "leaves[place] = _in_memory(leaf)",
        "pass",
        case("mapped_file"),
    ),
    Mutant(
        "Python ends threads of loaders in the middle of a call",
        "call.prefetch:_end_all",
        "thread.join(max(end - monotonic(), 0.0))",
        "pass",
        case("process_may_end"),
    ),
    Mutant(
        "a program's folder does not compile without warnings",
        "backends.host.standalone.main_text:DEVICES",
        Text("static void send_arrays(void *args) {"),
        "static void send_arrays(const void *args) {",
        case("strict_flags", "tests/backends/cublas_cudnn/test_export.py"),
    ),
)
