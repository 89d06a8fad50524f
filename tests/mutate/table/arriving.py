"""Planted faults of what a loader copies to a device beside its work."""

from tests.mutate.mutant import Mutant

ARRIVING = "staged/runtime/cuda/arriving.py"
NATIVE = "staged/runtime/native.py"
ENTRY = "staged/backends/cublas_cudnn/entry.py"
PREFETCH = "staged/prefetch.py"
TESTS = "tests/test_prefetch_on_device.py"
MEMORY = "tests/runtime/test_cuda_arriving.py"


def case(words: str, file: str = TESTS) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a program is not told of the events that its inputs arrive with",
        NATIVE,
        "                    events.append(value.arrival)",
        "                    pass",
        case("a_loop_gives"),
    ),
    Mutant(
        "one of two devices alone waits for what arrives",
        ENTRY,
        "        for device in self.program.devices:\n            stream = ",
        "        for device in self.program.devices[:1]:\n            stream = ",
        case("each_of_two_devices"),
    ),
    Mutant(
        "pinned memory is written while it is copied",
        ARRIVING,
        "            self.last.wait()\n",
        "",
        case("written_again", MEMORY),
    ),
    Mutant(
        "the host reads an array before it has arrived",
        "staged/runtime/cuda/resident.py",
        "        self._settle()\n        if self.arrival is not None:\n            self.arrival.wait()\n        copy = self",
        "        self._settle()\n        copy = self",
        case("written_again", MEMORY),
    ),
    Mutant(
        "the host waits for each copy",
        ARRIVING,
        "        piece.last = arrival\n",
        "        piece.last = arrival\n        arrival.wait()\n",
        case("waits_for_no_copy"),
    ),
    Mutant(
        "a place on the device is not used again",
        ARRIVING,
        '            return capacity, ffi.cast("void *", address), self._uses.pop(address)\n',
        "",
        case("thousand"),
    ),
    Mutant(
        "what is held longer than the loop stays on the device for ever",
        ARRIVING,
        "            if self._is_closed:  # else",
        "            if False:  # else",
        case("outlives"),
    ),
    Mutant(
        "places of other sizes do not make room",
        ARRIVING,
        "            self._free_idle()  # places",
        "            pass  # places",
        case("make_room", MEMORY),
    ),
    Mutant(
        "the stream of a loop is never given back",
        ARRIVING,
        '        self._runtime.function("cudaStreamDestroy", "int (*)(void *)")(stream)\n',
        "",
        case("leaves_nothing"),
    ),
    Mutant(
        "an error keeps the stream and the pinned memory",
        PREFETCH,
        "            if arrivals is not None:\n                arrivals.close()",
        "            if arrivals is not None and stop.is_set():\n                arrivals.close()",
        case("errors_come"),
    ),
    Mutant(
        "arrays that the region names are copied again",
        PREFETCH,
        "        kept = find_kept(leaf, device)",
        "        kept = None",
        case("other_leaves"),
    ),
    Mutant(
        "a loader in eager mode puts arrays on the device",
        PREFETCH,
        "        if context_or_none() is not None or not takes",
        "        if not takes",
        case("eager_mode"),
    ),
    Mutant(
        "arrays without axes go to the device",
        PREFETCH,
        "array.ndim > 0 and",
        "array.ndim >= 0 and",
        case("other_leaves"),
    ),
    Mutant(
        "an argument may have the name of the field of what arrives",
        "staged/artifact.py",
        "    while name in taken:",
        "    while False:",
        case("the_header"),
    ),
    Mutant(
        "places are for arrays of exactly one size",
        ARRIVING,
        "self._idle[at][0] <= 2 * capacity",
        "self._idle[at][0] <= capacity",
        case("many_sizes", MEMORY),
    ),
    Mutant(
        "small arrays take the places of large ones",
        ARRIVING,
        "self._idle[at][0] <= 2 * capacity",
        "True",
        case("small_arrays", MEMORY),
    ),
    Mutant(
        "copies go to the device that the thread used last",
        ARRIVING,
        "        choose_device(self._runtime, self._device)  # what",
        "        pass  # what",
        case("chosen_another_device", MEMORY),
    ),
    Mutant(
        "the host waits for copies that are over",
        ARRIVING,
        "        if self.is_over():\n            return\n",
        "",
        case("two_pieces", MEMORY),
    ),
    Mutant(
        "a retry leaves CUDA's error for others to find",
        ARRIVING,
        "            _forget_error(self.runtime)\n",
        "",
        case("make_room", MEMORY),
    ),
    Mutant(
        "a region takes a loaded array to the host to know it again",
        "staged/frontend/devices/resident.py",
        "                if leaf.origin is not None:\n                    self.arrays[id(leaf.origin)] = leaf",
        "                self.arrays[id(leaf.host)] = leaf",
        case("used_as_any"),
    ),
    Mutant(
        "a loaded array cannot be copied",
        "staged/frontend/devices/resident.py",
        "        return DeviceArray, (self.host, self.device)",
        "        return object.__reduce__(self)",
        case("used_as_any"),
    ),
    Mutant(
        "a loader outside of a region heeds no device",
        PREFETCH,
        "ambient_device() if self.device is None else self.device",
        "ambient_device()",
        case("outside_of_a_region"),
    ),
    Mutant(
        "a loader copies arrays to CUDA's memory for any back end",
        PREFETCH,
        " or not takes_cuda_arrays(device, device_options(ambient_options())):",
        ":",
        case("leaves_arrays_on_the_host", "tests/backends/test_contract.py"),
    ),
    Mutant(
        "programs of the host are to make places on a device",
        "staged/residency.py",
        'if not hasattr(program, "place_on"):',
        "if False:",
        case("nothing_on_the_device"),
    ),
    Mutant(
        "pieces of a mapped file that stay on the host are not read",
        PREFETCH,
        "            leaves[place] = _in_memory(leaf)",
        "            pass",
        case("mapped_file"),
    ),
    Mutant(
        "Python ends threads of loaders in the middle of a call",
        PREFETCH,
        "        thread.join(max(end - monotonic(), 0.0))",
        "        pass",
        case("process_may_end"),
    ),
    Mutant(
        "a program's folder does not compile without warnings",
        "staged/backends/c_family/standalone/main.py",
        "free_on_device((void *)args.",
        "free_on_device(args.",
        case("strict_flags", "tests/backends/cublas_cudnn/test_export.py"),
    ),
)
