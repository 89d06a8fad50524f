"""`program.memory`: the buffers of a program with their lifetimes, and peak memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from staged.ir.buffers import Buffer, Plan
from staged.ir.sizes import Extent, Size, at_bounds, dims_in, largest, product
from staged.ir.types import CPU, Device, TensorType, shape_text


@dataclass(frozen=True)
class Row:
    """One buffer: name, shape, bytes, offset in the arena, first and last position of its life, the Python line.

    The arena is the host's, or that of a `device`. If the size depends on dimensions, `nbytes` is the size at their
    bounds, and `formula` the size.
    """

    name: str
    shape: str
    nbytes: int
    offset: int
    first: int
    last: int
    line: str
    device: str = ""
    formula: str = ""


@dataclass(frozen=True)
class MemoryReport:
    """The memory plan of a program, in bytes.

    `arena` is the host memory of a call (buffers share it), `peak` the most that is live at once, `total` the size
    without sharing. `bounded` is false if a loop without a bound keeps residuals that grow with its iterations.
    `devices` and `device_peaks` are arenas and peaks of other devices; `beside` is memory there for libraries: None if
    the library reports its size only when the program first runs. By recursive function (and device), `stack` and
    `calls` are the memory of each open call; by frame, `kept` is the memory that each call leaves for its gradient.

    In a program with dimensions, all sizes are those at the `bounds`, such as `N <= 512`. By device, `formulas` are the
    sizes that depend on dimensions at the peak.
    """

    name: str
    rows: tuple[Row, ...]
    arena: int
    peak: int
    total: int
    bounded: bool
    stack: tuple[tuple[str, int], ...] = ()
    devices: tuple[tuple[str, int], ...] = ()
    calls: tuple[tuple[str, str, int], ...] = ()
    kept: tuple[tuple[str, str, int], ...] = ()
    device_peaks: tuple[tuple[str, int], ...] = ()
    beside: tuple[tuple[str, str, int | None], ...] = ()
    bounds: str = ""
    formulas: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(plan: Plan, name: str) -> MemoryReport:
        """The report for a plan."""
        buffers = sorted(
            plan.arena_buffers(),
            key=lambda buffer: (_shown(buffer.device), buffer.offset, buffer.intervals[0][0]),
        )
        sizes = {buffer: _size_of(buffer) for buffer in buffers}
        dims = dict.fromkeys(dim for size in sizes.values() for dim in dims_in(size))
        rows = tuple(
            Row(
                buffer.name,
                shape_text(buffer.type.shape),
                buffer.nbytes,
                buffer.offset,
                buffer.intervals[0][0],
                buffer.intervals[-1][1],
                buffer.where.short if buffer.where else "",
                _shown(buffer.device),
                str(sizes[buffer]) if isinstance(sizes[buffer], Size) else "",
            )
            for buffer in buffers
        )
        total = sum(buffer.nbytes for buffer in buffers if buffer.device == CPU)
        bounded = not plan.stacks and not plan.keeps_frames
        return MemoryReport(
            name,
            rows,
            plan.arena_bytes,
            plan.peak_bytes,
            total,
            bounded,
            tuple(plan.stack_bytes.items()),
            tuple((str(device), nbytes) for device, nbytes in plan.device_bytes.items()),
            _by_device(plan.calls_on_devices),
            _by_device(plan.kept_on_devices),
            tuple((str(device), plan.device_peaks.get(device, 0)) for device in plan.device_bytes),
            tuple((str(device), what, nbytes) for device, found in plan.beside.items() for what, nbytes in found),
            ", ".join(f"{dim} <= {dim.max}" for dim in dims),
            _formulas(sizes),
        )

    def __str__(self) -> str:
        on_host = " of the host" if self.devices else ""
        sizes = f"arena{on_host} {self.arena:,} bytes, peak {self.peak:,}, without sharing {self.total:,}"
        lines = [f"memory of `{self.name}`: {sizes}{f', for {self.bounds}' * bool(self.bounds)}"]
        for device, formula in self.formulas:
            lines.append(f"peak{f' on {device}' * bool(device)}: {formula} bytes")
        if not self.bounded:
            lines.append(
                "what loops without a bound and calls keep for gradients comes on top and grows with their number"
            )
        for name, nbytes in self.stack:
            lines.append(f"each call of `{name}` takes {nbytes:,} bytes of the program's stack for its buffers")
        for device, nbytes in self.devices:
            sharing = sum(row.nbytes for row in self.rows if row.device == device)
            peak = dict(self.device_peaks)[device]
            lines.append(f"arena on {device}: {nbytes:,} bytes, peak of values {peak:,}, without sharing {sharing:,}")
        for device, what, beside in self.beside:
            size = f"{beside:,} bytes" if beside is not None else "as many bytes as the library asks for"
            lines.append(f"beside it on {device}: {size}, {what}")
        for name, device, nbytes in self.calls:
            lines.append(f"each call of `{name}` takes {nbytes:,} bytes on {device} for its buffers")
        for name, device, nbytes in self.kept:
            lines.append(f"each `{name}` keeps {nbytes:,} bytes on {device} for the gradient")
        for device in ("", *(device for device, _ in self.devices)):
            lines += self.table(device)
        return "\n".join(lines)

    def table(self, device: str) -> list[str]:
        """The lines of the host's buffers, or of a device's."""
        heading = f"buffer on {device}" if device else "buffer of the host" if self.devices else "buffer"
        lines = [f"{'offset':>10} {'bytes':>10}  {'alive':>11}  {heading}"]
        for row in self.rows:
            if row.device == device:
                alive = f"{row.first:>5}-{row.last:<5}"
                formula = f": {row.formula} bytes" if row.formula else ""
                about = f"{row.name} {row.shape}{formula} {row.line}".rstrip()
                lines.append(f"{row.offset:>10} {row.nbytes:>10}  {alive}  {about}")
        return lines if len(lines) > 1 or not device else []


def _size_of(buffer: Buffer) -> Extent:
    """The bytes of a buffer: of the largest value that it holds."""
    types = [buffer.type, *(value.tensor for value in buffer.values if isinstance(value.type, TensorType))]
    sizes = [product(type.shape) * type.dtype.size for type in types]
    return largest(*sizes) if any(isinstance(size, Size) for size in sizes) else buffer.nbytes


def _formulas(sizes: Mapping[Buffer, Extent]) -> tuple[tuple[str, str], ...]:
    """By device: the sizes of the values that are alive when the most are, if they depend on dimensions."""
    found = []
    for device in dict.fromkeys(buffer.device for buffer in sizes):
        own = [buffer for buffer in sizes if buffer.device == device]

        def alive(position: int, own: list[Buffer] = own) -> Extent:
            return sum(
                sizes[buffer] for buffer in own if any(first <= position <= last for first, last in buffer.intervals)
            )

        peak = max((alive(first) for buffer in own for first, _ in buffer.intervals), key=at_bounds, default=0)
        if isinstance(peak, Size):
            found.append((_shown(device), str(peak)))
    return tuple(found)


def _shown(device: Device) -> str:
    """A device in words; nothing for the host."""
    return "" if device == CPU else str(device)


def _by_device(sizes: Mapping[str, Mapping[Device, int]]) -> tuple[tuple[str, str, int], ...]:
    return tuple(
        (name, str(device), found[device]) for name, found in sizes.items() for device in sorted(found, key=str)
    )
