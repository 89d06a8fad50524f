"""A simple prediction: bytes over the bandwidth or FLOP over the peak, the larger of both, and a latency per launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PER_CYCLE: dict[int, dict[str, int]] = {
    8: {"f32": 128, "tf32": 1024, "bf16": 2048},
    9: {"f32": 256, "tf32": 2048, "bf16": 4096},
    10: {"f32": 256, "tf32": 4096, "bf16": 8192},
}
"""FLOP of a multiprocessor per cycle, dense, by the major compute capability: NVIDIA's A100, H100 and B200."""
LAUNCH = 1.5e-6
"""Seconds between two dependent kernels of a graph."""
# NVIDIA's numbers of the attributes, for a machine without the bindings that have the names.
ATTRIBUTES = {
    "cudaDevAttrMultiProcessorCount": "16",
    "cudaDevAttrClockRate": "13",
    "cudaDevAttrMemoryClockRate": "36",
    "cudaDevAttrGlobalMemoryBusWidth": "37",
    "cudaDevAttrComputeCapabilityMajor": "75",
}


@dataclass(frozen=True)
class Work:
    """The work of an iteration: FLOP of matmuls and convolutions, bytes that it reads and writes, launches."""

    flop: float = 0.0
    bytes: float = 0.0
    launches: int = 1


@dataclass(frozen=True)
class Device:
    """The peaks of a device: bytes per second, FLOP per second by precision."""

    bandwidth: float
    flops: Mapping[str, float]

    def seconds(self, work: Work, precision: str) -> float:
        """The predicted time."""
        return max(work.flop / self.flops[precision], work.bytes / self.bandwidth) + work.launches * LAUNCH


def device_of(facts: Mapping[str, Any]) -> Device | str:
    """The device of a `facts.json`, or why it has no prediction."""
    if facts.get("rehearsed"):
        return "the emulated device has no peaks"
    attributes = facts.get("attributes", {})
    found = {name: attributes.get(name, attributes.get(number)) for name, number in ATTRIBUTES.items()}
    missing = [name for name, value in found.items() if not value]
    if missing:
        return f"facts.json does not have {', '.join(missing)}"
    processors, clock, memory_clock, width, major = (int(value) for value in found.values())
    if major not in PER_CYCLE:
        return f"compute capability {major}.x has no peaks in the model"
    # Clocks are in kHz; memory transfers twice per cycle, `width` bits at a time.
    flops = {name: count * processors * clock * 1e3 for name, count in PER_CYCLE[major].items()}
    return Device(2 * memory_clock * 1e3 * width / 8, flops)
