"""Planted faults of calls that return before their work on a device is over."""

from tests.mutate.mutant import Mutant

DEPARTURES = "staged/runtime/cuda/departures.py"
ARRIVING = "staged/runtime/cuda/arriving.py"
NATIVE = "staged/runtime/native.py"
STRUCTURE = "staged/backends/cublas_cudnn/structure.py"
TESTS = "tests/runtime/test_cuda_departures.py"


def case(words: str, file: str = TESTS) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a call does not wait for the call before it that uses the same arrays",
        DEPARTURES,
        "                if isinstance(copy, DeviceCopy):\n                    copy.arrival = departure",
        "                pass",
        case("streams_of_their_own or used_again"),
    ),
    Mutant(
        "memory of a result is used again while another program reads it",
        NATIVE,
        "                if place.arrival is not None and place.arrival not in events:",
        "                if False:",
        case("still_reads"),
    ),
    Mutant(
        "memory of a batch is overwritten while a call reads it",
        ARRIVING,
        "            if copy.arrival is not None:\n                copy.arrival.hold(self._stream)\n",
        "",
        case("batches_of_a_loader"),
    ),
    Mutant(
        "the host overwrites a Variable that a call still reads",
        DEPARTURES,
        "            if copy.arrival is not None:\n                copy.arrival.hold(ffi.NULL)\n",
        "",
        case("streams_of_their_own"),
    ),
    Mutant(
        "a value is copied before the call that computes it is over",
        DEPARTURES,
        "                        each.hold(ffi.NULL)\n",
        "                        pass\n",
        case("streams_of_their_own"),
    ),
    Mutant(
        "the caller may not change an array of the host after the call",
        STRUCTURE,
        "            self.uploaded.add(self.fields[self.plan.place[root_of(value)]])",
        "            pass",
        case("host_may_change"),
    ),
    Mutant(
        "pinned memory is written again before the program has copied it",
        DEPARTURES,
        "                piece.last = departure\n",
        "                piece.last = None\n",
        case("host_may_change"),
    ),
    Mutant(
        "an error that Python does not ask for is lost",
        DEPARTURES,
        "            self._pieces, self._pages, self._reports, self._places = [], [], [], {}\n        self.tell(self._made)",
        "            self._pieces, self._pages, self._reports, self._places = [], [], [], {}",
        case("end_of_the_region"),
    ),
    Mutant(
        "the failure of a call is lost when the call is forgotten",
        DEPARTURES,
        "            if error is not None:\n                self._failures",
        "            if error is not None and self._made == each.number:\n                self._failures",
        case("cites_the_call"),
    ),
    Mutant(
        "results of later calls are used after a failure",
        DEPARTURES,
        "        return self.first <= number and (self.last is None or number <= self.last)",
        "        return self.first == number",
        case("cites_the_call"),
    ),
    Mutant(
        "a failure makes the results of all further calls void",
        DEPARTURES,
        "                    failure.last = self._made\n",
        "                    failure.last = 10**9\n",
        case("cites_the_call"),
    ),
    Mutant(
        "a void result is an argument of the next call",
        "staged/residency.py",
        "        value.remote.check()\n",
        "",
        case("cites_the_call"),
    ),
    Mutant(
        "a print overtakes the error of an earlier call",
        "staged/runnable.py",
        "        if self.tells:\n",
        "        if False:\n",
        case("overtake"),
    ),
    Mutant(
        "an error replaces Ctrl-C",
        "staged/frontend/devices/resident.py",
        "        if leaving is None or isinstance(leaving, Exception):",
        "        if True:",
        case("end_of_the_region"),
    ),
    Mutant(
        "a program does not report the failure of a kernel",
        STRUCTURE,
        '            self.check(end.where, call("cudaMemcpyAsync", *report))\n',
        "",
        case("cites_the_call"),
    ),
    Mutant(
        "a report has the failure of an earlier call",
        DEPARTURES,
        "        ffi.memmove(report, bytes(REPORT_BYTES), REPORT_BYTES)\n",
        "",
        case("has_waited"),
    ),
    Mutant(
        "a call with an array of another library does not wait",
        "staged/runnable.py",
        "            departures.settle()  # the other library",
        "            pass  # the other library",
        case("dlpack_offers", "tests/runtime/test_cuda_borrowed.py"),
    ),
    Mutant(
        "a program keeps its memory on the device for the Variables that it has used",
        DEPARTURES,
        "            program, each.program = each.program, None  # its memory goes with it",
        "            program = each.program",
        case("a_loop_gives", "tests/test_prefetch_on_device.py"),
    ),
    Mutant(
        "a result is the host's when the region ends",
        "staged/passes/placement/place.py",
        "placement.kept or None, variables",
        "None, variables",
        case("copies_its_arrays_once"),
    ),
    Mutant(
        "an exported program departs",
        "staged/program.py",
        "replace(function.options, keeps_results=False)",
        "function.options",
        case("exported"),
    ),
    Mutant(
        "a result is traced again in place of an array that the region names",
        "staged/dispatch.py",
        "        if type(value) in _ON_DEVICE:\n",
        "        if False:\n",
        case("no_other_trace"),
    ),
    Mutant(
        "graphs of loops keep the addresses of results",
        "staged/passes/memory/plan.py",
        "if device != CPU and self.called is None and value.producer and value.producer.declared.is_loop:",
        "if False:",
        case("the_graph_of_a_loop"),
    ),
)
