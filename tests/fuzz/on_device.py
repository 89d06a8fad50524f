"""The promises that hold for a random program with regions, on the emulated device.

1. It gives eager mode's values, prints, gradients and forward derivatives, or eager mode's error, whatever the order of the device's
   work: at once, and as late as the program allows with streams, blocks and threads shuffled.
2. The emulated device finds no misuse, and once the program is gone nothing of it is alive there. What is read before it is
   written is NaN there, so that it shows as a wrong number.
3. Its host part is C11 without warnings, and, where NVRTC is installed, its kernels compile for GPUs.
4. Calls make the copies between host and device that `program.transfers()` lists.
5. What is refused is refused by one of the words in `REFUSALS`: the limits that the documentation speaks of.
"""

from __future__ import annotations

import contextlib
import gc
import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import staged as st
from cuda_emulator import DeviceCounts, Emulator
from staged.call.program import Program
from staged.errors import StagedError
from staged.frontend.values import trees
from staged.frontend.values.generator import numbers_again
from staged.frontend.values.trees import flatten
from staged.runtime import cuda
from staged.runtime.options import CompileOptions
from staged.testing import captured_prints, load_snippet
from tests.cuda_toolchain import check_for_gpus
from tests.fuzz.check import Case, Failure, Outcome, close, failing_at, is_tie
from tests.fuzz.constructs import CONSTRUCTS
from tests.fuzz.device_constructs import EFFECTS, PURE
from tests.fuzz.generator import Generator
from tests.fuzz.regions import ONE_GPU, TWO_GPUS, with_regions
from tests.listed_copies import check_copies

UNOPTIMISED = CompileOptions("0", (), ("-g0", "-w"))

VARIANTS = ("whole", "around", "called", "regions", "regions", "regions", "two", "kept")
"""The variant of a seed, by its rest.

`whole`: a region around the whole of `f`, and derivatives taken through it. `around`: a region around the derivatives. `called`:
plain Python's region, with arrays that are on the device. `regions`: regions around runs of statements. `two`: the same on two devices.
`kept`: the same as `regions`, in a region of plain Python, where results stay on the device.
"""

REFUSALS = ("is a kernel of a GPU, and what stands here runs on the CPU",)
"""Words of the errors that say what a region cannot have, or what cannot be outside of one: limits that the documentation has."""


@dataclass(frozen=True)
class DeviceCase(Case):
    """A program with regions, by its variant."""

    variant: str = "whole"
    check_nan: bool = False

    @property
    def devices(self) -> int:
        return 2 if self.variant == "two" else 1

    def source(self) -> str:
        derivatives, head = self.derivatives("f"), ""
        if self.variant == "whole":
            given = ", ".join(f"a{number}" for number in range(len(self.shapes)))
            head = textwrap.dedent(f"""

                def in_region({given}, n):
                    with st.with_backend(st.GPU, {given}):
                        result = f({given}, n)
                    return result
                """)
            derivatives = self.derivatives("in_region")
        elif self.variant == "around":
            *inside, returned = derivatives.splitlines()
            derivatives = "\n".join(["with st.with_backend(st.GPU):", *(f"    {line}" for line in inside), returned]) + "\n"
        return f"{self.text}\n{head}\ndef everything({self.parameters}):\n{textwrap.indent(derivatives, '    ')}"

    def reproduction(self) -> str:
        """A script that runs the check again."""
        more = "".join(f", {name}=True" for name in ("second", "check_nan") if getattr(self, name))
        return (
            "from tests.fuzz.on_device import DeviceCase, check_on_device\n\n"
            f"TEXT = '''\\\n{self.text}'''\n\n"
            f"check_on_device(DeviceCase(TEXT, {self.shapes!r}, seed={self.seed}, n={self.n}{more}, variant={self.variant!r}))\n"
        )


def device_case_of(seed: int) -> DeviceCase:
    """The program, the arguments and the variant of a seed."""
    chance = random.Random(f"device {seed}")
    variant = VARIANTS[seed % len(VARIANTS)]
    # A few of the device's constructs in each program: those that are left out make room for what the others meet then.
    several = {**PURE, **EFFECTS}
    names = chance.sample(sorted(several), chance.choice((0, 2, 3, 4, 6)))
    generator = Generator(chance, {**CONSTRUCTS, **{name: several[name] for name in names}})
    generator.unmapped = {*generator.unmapped, *EFFECTS}
    text, shapes = generator.program()
    if variant in ("regions", "two", "kept"):
        text = with_regions(text, chance, TWO_GPUS if variant == "two" else ONE_GPU)
    return DeviceCase(
        text,
        tuple(shapes),
        seed,
        chance.choice((0, 1, 2, 3, 4)),
        second=chance.randrange(8) == 0,
        variant=variant,
        check_nan=chance.randrange(16) == 0,
    )


def orders(case: DeviceCase) -> tuple[str, ...]:
    """The orders of a device's work that a program is run in, in the words of `STAGED_CUDA_EMULATOR`."""
    devices = f" devices={case.devices}"
    return (f"eager forward{devices}", f"lazy shuffled seed={case.seed + 1}{devices}", f"lazy reverse seed={case.seed + 2}{devices}")


def check_on_device(case: Case) -> str:
    """The outcome: an `Outcome` or 'refused' and the words. Raises Failure unless all that must hold holds."""
    assert isinstance(case, DeviceCase)
    device = cuda.emulator()
    gc.collect()
    device.configure(f"devices={case.devices}")
    before = device.counts()
    try:
        word = _compared(case, device)
    finally:
        device.configure()
    gc.collect()  # the program goes, and gives back what it had
    left = device.counts() - before
    if left.violations:
        raise Failure("the emulated device found a misuse", device.last_violation())
    alive = [name for name in DeviceCounts.__slots__ if name.startswith("live_") and getattr(left, name)]
    if alive:
        raise Failure(f"alive after the program: {', '.join(alive)}", "\n".join(device.live_objects()))
    return word


def _compared(case: DeviceCase, device: Emulator) -> str:
    module = load_snippet(case.source(), "fuzz")
    arrays = [*case.arguments(), *case.tangents()]
    staged = st.function(check_nan=case.check_nan)(module.everything)
    staged.options = UNOPTIMISED
    single = "st.f32" in case.text
    with contextlib.ExitStack() as stack:
        stack.enter_context(np.errstate(all="ignore"))
        with st.eager():
            expected, error, printed = _outcome(staged, [*arrays, case.n])
        if error is None and not all(np.all(np.isfinite(leaf)) for leaf in flatten(expected)[0]):
            return Outcome.NOT_FINITE.value
        given: Sequence[Any] = arrays
        if case.variant == "called":
            given = stack.enter_context(st.with_backend(st.GPU, *arrays))
        elif case.variant == "kept":
            stack.enter_context(st.with_backend(st.GPU))
        try:
            program = staged.stage(*given, case.n)
            assert program.source
        except StagedError as refusal:
            return refused(refusal)
        except Exception as fault:
            raise failing_at("staging", fault) from fault
        try:
            if program._artifact.language == "cuda":  # nothing may be left for the device
                check_for_gpus(program._artifact, full=True)
            program.compile()
        except Exception as fault:
            raise failing_at("compiling", fault) from fault
        for number, words in enumerate(orders(case)):
            device.configure(words)
            order = " ".join(words.split()[:2])
            before = device.counts()
            run = _outcome(program, [*given, case.n])
            keeps = case.variant in ("called", "kept")  # reading the results has copied them
            if number and run[1] is None and program._artifact.language == "cuda" and not keeps:
                device.configure(words)  # after all copies
                _check_listed(program, device.counts() - before)
            try:
                _same(order, run, (expected, error, printed), 1e-4 if single else 1e-9)
            except Failure:
                if case.check_nan and isinstance(run[1], FloatingPointError):
                    return Outcome.NOT_FINITE.value
                if error is None and is_tie(staged, [*arrays, case.n], expected, printed, 1e-6 if single else 1e-14):
                    return Outcome.TIE.value
                raise
    return Outcome.ROUNDED.value if single else Outcome.AGREE.value


def _check_listed(program: Program, seen: DeviceCounts) -> None:
    """Raises Failure unless a call, not the first, made the copies that `program.transfers()` lists."""
    try:
        check_copies(program, seen)
    except AssertionError as fault:
        raise Failure("other copies than program.transfers() lists", str(fault)) from fault


def refused(error: StagedError) -> str:
    """'refused' and the words of one of the limits in `REFUSALS`. Raises Failure for what is none."""
    for words in REFUSALS:
        if re.search(words, error.message):
            return f"refused {re.sub(r'`[^`]*`', '#', error.message)[:80].strip()}"
    raise failing_at("staging", error) from error


def _outcome(function: Any, given: list[Any]) -> tuple[Any, Exception | None, str]:
    """The result or the error, and what was printed."""
    with captured_prints() as printed, numbers_again():
        try:
            result = function(*given)
            # An error of a kernel comes when a result is read.
            read = trees.map_leaves(lambda leaf: leaf.numpy() if isinstance(leaf, st.DeviceArray) else leaf, result)
            return read, None, printed.text
        except Exception as error:
            return None, error, printed.text


def _same(order: str, found: tuple[Any, Exception | None, str], wanted: tuple[Any, Exception | None, str], tolerance: float) -> None:
    """Raises Failure unless a run did what eager mode did."""
    result, fault, text = found
    expected, error, printed = wanted
    if error is None:
        if fault is not None:
            raise failing_at(f"running {order}", fault) from fault
        close(f"eager mode and the device, {order}", result, expected, tolerance)
        same_text = text == printed
    else:
        if fault is None or not isinstance(fault, _kind(error)) or _words(fault) != _words(error):
            where = failing_at(f"eager mode stops, and the device, {order}, does not stop alike", error)
            raise Failure(where.key, f"{fault!r} instead of {where}") from fault
        # What a kernel fails at is noticed when the host waits for it next: the host may have printed more by then.
        same_text = text.startswith(printed)
    if not same_text:
        words = f"eager mode and the device, {order}, differ in what they print"
        raise Failure(words, f"{words}:\n{text}\ninstead of\n{printed}")


def _kind(error: Exception) -> type[Exception]:
    """Python's own kind of an error."""
    builtin = (kind for kind in type(error).__mro__ if kind.__module__ == "builtins")
    return next(builtin)


def _words(error: Exception) -> str:
    """The words of an error, without its numbers: of several threads that fail, any may be the first."""
    return re.sub(r"-?\d+", "#", error.message if isinstance(error, StagedError) else str(error))
