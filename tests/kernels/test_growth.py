"""The work of staging a long program grows with its length, not with its square: chains of `elif`, which nest as deep as they
are long, and many readers of one array."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.kernels import fuse, steps
from staged.passes import simplify


def chain_of(length: int, folder: Path) -> Any:
    lines = ["import staged as st", "", "@st.function", "def chain(x, k):"]
    for place in range(length):
        lines += [f"    {'elif' if place else 'if'} k == {place}:", f"        y = st.sum(x @ x) * {place}.5 + {place}"]
    lines += ["    else:", "        y = st.sum(x)", "    return y"]
    path = folder / f"chain_{length}.py"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.chain


class Counter:
    """Counts the calls of functions."""

    def __init__(self) -> None:
        self.calls = 0

    def counting(self, f: Any) -> Any:
        def call(*args: Any) -> Any:
            self.calls += 1
            return f(*args)

        return call


def test_what_is_asked_of_ops_grows_with_the_chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    kind_of = counter.counting(steps.kind_of)
    for module in (fuse, steps):
        monkeypatch.setattr(module, "kind_of", kind_of)
    monkeypatch.setattr(simplify, "frozen_attrs", counter.counting(simplify.frozen_attrs))
    counts = []
    for length in (15, 30, 60):
        counter.calls = 0
        chain_of(length, tmp_path).stage(np.ones((3, 3)), 1).report()
        counts.append(counter.calls)
    assert counts[2] - counts[1] <= 2.1 * (counts[1] - counts[0])


def test_what_is_asked_of_the_readers_of_an_array_grows_with_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter()
    monkeypatch.setattr(steps, "extents", counter.counting(steps.extents))
    counts = []
    for count in (70, 140):
        counter.calls = 0

        @st.function
        def stacked(x: Any, count: int = count) -> Any:
            return st.sum(st.stack([x * number for number in range(count)]), axis=0)

        stacked.stage(np.ones(3)).report()
        counts.append(counter.calls)
    assert counts[1] <= 2.5 * counts[0]


def test_every_branch_of_a_chain_gives_its_own(tmp_path: Path) -> None:
    chain = chain_of(12, tmp_path)
    x = np.ones((3, 3), np.float32)
    for k in (0, 1, 7, 11):
        assert chain(x, k) == 27.0 * (k + 0.5) + k
    assert chain(x, 12) == 9.0


def test_an_array_that_inner_branches_read_from_memory_is_made_once_before_them() -> None:
    """In memory is what products read. What a branch makes itself is made in it."""

    @st.function
    def products(x: Any, k: Any) -> Any:
        table = st.reshape(x, (3, 3)) * 1.0
        wide = st.broadcast_to(x[:3], (3, 3))
        y = 0.0
        if k > 0:
            own = st.broadcast_to(x[3:6], (3, 3))
            y = st.sum(table @ wide + own @ wide) if k > 1 else st.sum(wide @ table)
        return y

    x = np.arange(9.0)
    table, wide, own = x.reshape(3, 3), np.broadcast_to(x[:3], (3, 3)), np.broadcast_to(x[3:6], (3, 3))
    for k, right in ((2, table @ wide + own @ wide), (1, wide @ table)):
        assert products(x, k) == right.sum()
    before, inside = products.stage(x, 1).lowered_ir.split("= if(", 1)
    assert before.count("name='broadcast_to_wide'") == 1 and inside.count("name='broadcast_to_wide'") == 0
    assert before.count("name='broadcast_to_own'") == 0 and inside.count("name='broadcast_to_own'") == 1
