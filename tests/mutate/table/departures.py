"""Planted faults of calls that return before their work on a device is over."""

from tests.mutate.mutant import Mutant

TESTS = "tests/runtime/test_cuda_departures.py"


def case(words: str, file: str = TESTS) -> tuple[str, ...]:
    return (file, "-k", words)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a call does not wait for the call before it that uses the same arrays",
        "runtime.cuda.departures:Departures.depart",
        "if isinstance(copy, DeviceCopy):\n"
        "    copy.arrival = departure",
        "pass",
        case("streams_of_their_own or used_again"),
    ),
    Mutant(
        "memory of a result is used again while another program reads it",
        "runtime.native:NativeProgram._run",
        "place.arrival is not None and place.arrival not in events",
        "False",
        case("still_reads"),
    ),
    Mutant(
        "memory of a batch is overwritten while a call reads it",
        "runtime.cuda.arriving:Arrivals.put",
        "if copy.arrival is not None:\n"
        "    copy.arrival.hold(self._stream)",
        "",
        case("batches_of_a_loader"),
    ),
    Mutant(
        "the host overwrites a Variable that a call still reads",
        "runtime.cuda.departures:Departures.upload",
        "if copy.arrival is not None:\n"
        "    copy.arrival.hold(ffi.NULL)",
        "",
        case("streams_of_their_own"),
    ),
    Mutant(
        "a value is copied before the call that computes it is over",
        "runtime.cuda.departures:Departures.read",
        "each.hold(ffi.NULL)",
        "pass",
        case("streams_of_their_own"),
    ),
    Mutant(
        "the caller may not change an array of the host after the call",
        "backends.cublas_cudnn.structure:CudaBody.emit_copy",
        "self.uploaded.add(self.fields[self.plan.place[root_of(value)]])",
        "pass",
        case("host_may_change"),
    ),
    Mutant(
        "pinned memory is written again before the program has copied it",
        "runtime.cuda.departures:Departures.depart",
        "piece.last = departure",
        "piece.last = None",
        case("host_may_change"),
    ),
    Mutant(
        "an error that Python does not ask for is lost",
        "runtime.cuda.departures:Departures.end",
        "self.tell(self._made)",
        "",
        case("end_of_the_region"),
    ),
    Mutant(
        "the failure of a call is lost when the call is forgotten",
        "runtime.cuda.departures:Departures._note_over",
        "error is not None",
        "error is not None and self._made == each.number",
        case("cites_the_call"),
    ),
    Mutant(
        "results of later calls are used after a failure",
        "runtime.cuda.departures:_Failure.covers",
        "self.first <= number and (self.last is None or number <= self.last)",
        "self.first == number",
        case("cites_the_call"),
    ),
    Mutant(
        "a failure makes the results of all further calls void",
        "runtime.cuda.departures:Departures.tell",
        "self._made",
        "10**9",
        case("cites_the_call"),
    ),
    Mutant(
        "a void result is an argument of the next call",
        "call.residency:_input_place",
        "value.remote.check()",
        "",
        case("cites_the_call"),
    ),
    Mutant(
        "a print overtakes the error of an earlier call",
        "call.runnable:Runnable.departed",
        "self.tells",
        "False",
        case("overtake"),
    ),
    Mutant(
        "an error replaces Ctrl-C",
        "frontend.devices.resident:leave_region",
        "leaving is None or isinstance(leaving, Exception)",
        "True",
        case("end_of_the_region"),
    ),
    Mutant(
        "a program does not report the failure of a kernel",
        "backends.cublas_cudnn.structure:CudaBody.depart",
        'self.check(end.where, call("cudaMemcpyAsync", *report))',
        "",
        case("cites_the_call"),
    ),
    Mutant(
        "a report has the failure of an earlier call",
        "runtime.cuda.departures:Departures._new_report",
        "ffi.memmove(report, bytes(REPORT_BYTES), REPORT_BYTES)",
        "",
        case("has_waited"),
    ),
    Mutant(
        "a call with an array of another library does not wait",
        "call.runnable:Runnable.departed",
        "if any((isinstance(value, BorrowedArray) for value in given)):\n"
        "    departures.settle()",
        "if any((isinstance(value, BorrowedArray) for value in given)):\n"
        "    pass",
        case("dlpack_offers", "tests/runtime/test_cuda_borrowed.py"),
    ),
    Mutant(
        "a program keeps its memory on the device for the Variables that it has used",
        "runtime.cuda.departures:Departures._note_over",
        "program, each.program = each.program, None",
        "program = each.program",
        case("a_loop_gives", "tests/test_prefetch_on_device.py"),
    ),
    Mutant(
        "a result is the host's when the region ends",
        "passes.placement.place:place",
        "placement.kept or None",
        "None",
        case("copies_its_arrays_once"),
    ),
    Mutant(
        "an exported program departs",
        "call.program:Program.export",
        "replace(function.options, keeps_results=False)",
        "function.options",
        case("exported"),
    ),
    Mutant(
        "a result is traced again in place of an array that the region names",
        "frontend.calls.arguments:_leaf",
        "type(given) in _ON_DEVICE.classes",
        "False",
        case("no_other_trace"),
    ),
    Mutant(
        "graphs of loops keep the addresses of results",
        "passes.memory.plan:_Planner.join_outputs",
        "device != CPU and self.called is None and value.producer and value.producer.declared.is_loop",
        "False",
        case("the_graph_of_a_loop"),
    ),
)
