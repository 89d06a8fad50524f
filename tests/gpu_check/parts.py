"""The parts of the check in their order: facts first, then correctness, races, breadth and speed.

A part is a function `run(setting) -> Result` in its own module, which only the part's own process imports. It writes its file
in `setting.folder` while it works, a line or a key at a time, so that the file is useful whenever the process ends. It looks at
`setting.left()`, and with `setting.rehearsed` it does the same work in small sizes on the emulated device.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

from tests.gpu_check.report import Result
from tests.gpu_check.setting import Setting


@dataclass(frozen=True)
class Part:
    """One sentence; `module:function`; the seconds after which the part is ended; its file in the folder of results."""

    what: str
    place: str
    limit: float
    file: str

    def run(self, setting: Setting) -> Result:
        module, _, function = self.place.partition(":")
        result: Result = getattr(importlib.import_module(module), function)(setting)
        return result


PARTS: dict[str, Part] = {
    "machine": Part("the device, versions, attributes", "tests.gpu_check.machine:run", 15, "facts.json"),
    "first": Part("one kernel, loaded and launched", "tests.gpu_check.machine:first", 10, "facts.json"),
    "libraries": Part("answers of cuDNN and cublasLt", "tests.gpu_check.libraries:run", 40, "libraries.json"),
    "probes": Part("fifteen probes, a process each", "tests.gpu_check.probes:run", 75, "probes.jsonl"),
    "sanitizer": Part("memcheck and racecheck on five programs", "tests.gpu_check.sanitizers:run", 100, "sanitizer.txt"),
    "suite": Part("the tests on the device, in 12 processes", "tests.gpu_check.suite:run", 160, "suite.jsonl"),
    "times": Part("times of kernels and steps, next to torch", "tests.gpu_check.times:run", 130, "times.json"),
}
"""Their limits add up to 530 seconds; the runner packs the results in the rest."""
