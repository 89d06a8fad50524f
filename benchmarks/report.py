"""Raw figures become the tables of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import ROWS, digests_agree

BEGIN, END = "<!-- results: begin (written by `python -m benchmarks`) -->", "<!-- results: end -->"
DISTURBED = 0.1  # cores of foreign work above which a cell is marked

# One measured cell: its framework, row, number of threads, and what the worker printed.
Cell = dict[str, Any]


def table_of(cells: Sequence[Cell]) -> dict[tuple[str, str, int], Cell]:
    return {(cell["framework"], cell["row"], cell["threads"]): cell for cell in cells if not cell.get("cold")}


def time_of(cell: Cell | None) -> float | None:
    return cell["timing"]["median"] if cell and "timing" in cell and not cell.get("wrong") else None


def mark_wrong_results(cells: Sequence[Cell]) -> list[Cell]:
    """Mark and return the cells whose result differs from the row's reference: NumPy's, else PyTorch's, else JAX's."""
    reference: dict[str, list[float]] = {}
    for framework in ("numpy", "torch-eager", "jax"):
        for cell in cells:
            if cell["framework"] == framework and "digest" in cell:
                reference.setdefault(cell["row"], cell["digest"])
    wrong = []
    for cell in cells:
        if "digest" in cell and cell["row"] in reference and not digests_agree(cell["digest"], reference[cell["row"]]):
            cell["wrong"] = True
            wrong.append(cell)
    return wrong


def seconds(value: float) -> str:
    """Three figures and a unit: `12.3 us`, `1.50 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{_three(value / size)} {unit}"
    return f"{_three(value / 1e-6)} us"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def time_cell(cell: Cell | None) -> str:
    if cell is None or "absent" in cell:
        return "-"
    if "failed" in cell:
        return "failed"
    if cell.get("wrong"):
        return "WRONG"
    timing = cell["timing"]
    text = seconds(timing["median"])
    if timing["minimum"] < 0.95 * timing["median"]:
        text += f" (min {seconds(timing['minimum'])})"
    if timing["spread"] >= 0.1:
        text += f" ±{50 * timing['spread']:.0f}%"
    return text + "*" * (timing["foreign_cores"] > DISTURBED)


def warm_table(
    cells: Sequence[Cell], threads: int, rows: Iterable[str] = ROWS, ours: Sequence[str] = ("staged",)
) -> list[str]:
    """Seconds per step or call, and our time over the best peer's in the same run: below 1 we are faster.

    The ratio is that of the first of `ours`; the others are no peers.
    """
    table = table_of(cells)
    frameworks = [
        name
        for name in _in_order(cells)
        if any(k[0] == name and k[2] == threads and time_of(c) for k, c in table.items())
    ]
    peers = [name for name in frameworks if name not in ours]
    lines = [
        f"| row | {' | '.join(frameworks)} | best peer | staged / best peer |",
        "|---|" + "---|" * (len(frameworks) + 2),
    ]
    for row in rows:
        found = {name: table.get((name, row, threads)) for name in frameworks}
        timed = {name: time_of(found[name]) for name in peers}
        times = {name: value for name, value in timed.items() if value is not None}
        if not times and time_of(found.get(ours[0])) is None:
            continue
        best = min(times, key=lambda name: times[name], default="-")
        taken = time_of(found.get(ours[0]))
        ratio = f"**{taken / times[best]:.2f}**" if taken is not None and times else "-"
        lines.append(f"| {row} | {' | '.join(time_cell(found[name]) for name in frameworks)} | {best} | {ratio} |")
    return lines


def cold_table(cells: Sequence[Cell]) -> list[str]:
    """Import to the first trained step with an empty and with a full cache, its parts, and the peak memory of a run."""
    table = table_of(cells)
    heads = ["row", "framework", "cold start", "cold start, full cache", "import", "staging", "compile"]
    heads += ["compile, full cache", "first step", "first step, full cache", "peak memory"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for cell in cells:
        if cell.get("cold") != "empty" or "cold_s" not in cell:
            continue
        key = cell["framework"], cell["row"], cell["threads"]
        again = next(
            (c for c in cells if c.get("cold") == "full" and (c["framework"], c["row"], c["threads"]) == key), {}
        )
        warm = table.get(key, {})
        figures = [cell["cold_s"], again.get("cold_s"), cell["import_s"], cell.get("staging_s")]
        figures += [cell.get("compile_s"), again.get("compile_s")]
        figures += [cell["first_call_s"], again.get("first_call_s")]
        words = ["-" if figure is None else seconds(figure) for figure in figures]
        memory = f"{warm['peak_rss_bytes'] / 2**20:.0f} MiB" if "peak_rss_bytes" in warm else "-"
        lines.append(f"| {cell['row']} | {cell['framework']} | {' | '.join(words)} | {memory} |")
    return lines if len(lines) > 2 else []


def _in_order(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(cell["framework"] for cell in cells))


def absences(cells: Sequence[Cell]) -> list[str]:
    """The cells that are not in the tables, and why: a framework that is not installed, a cell that failed."""
    missing = {(c["framework"], c["absent"]) for c in cells if c.get("absent", "").startswith("not installed")}
    failed = [f"- {c['framework']}, {c['row']}, {c['threads']} threads: {c['failed']}" for c in cells if "failed" in c]
    return sorted(f"- {framework}: {reason}" for framework, reason in missing) + failed


def section(cells: Sequence[Cell], machine: dict[str, str], date: str) -> str:
    """The generated part of docs/benchmarks.md."""
    words = ", ".join(f"{key} {value}" for key, value in machine.items())
    lines = [f"Measured on {date}: {words}.", ""]
    for threads in sorted({cell["threads"] for cell in cells}):
        pinned = ", pinned to one core" if threads == 1 else ""
        lines += [f"### {threads} thread{'s' * (threads > 1)}{pinned}", "", *warm_table(cells, threads), ""]
    cold = cold_table(cells)
    if cold:
        most = max(cell["threads"] for cell in cells)
        lines += [f"### From import to the first trained step, {most} threads", "", *cold, ""]
    gone = absences(cells)
    if gone:
        lines += ["Not measured:", "", *gone, ""]
    return "\n".join(lines)


def write_into(page: Path, generated: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace what lies between two marks of `page`."""
    text = page.read_text()
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not (mark and closing):
        raise SystemExit(f"{page} lacks the two marks between which the results go:\n{begin}\n{end}")
    page.write_text(f"{before}{begin}\n\n{generated}\n{end}{after}")
