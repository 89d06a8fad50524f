"""`st.save` of a program: equal rows are written by loops, and the file has the bytes that eager mode writes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host import outlining
from staged.backends.host.saved import _parts, _repeated
from tests.exported import compile_c


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        self.w1 = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        return x + self.norm(st.tanh(self.w1(x)))


class Deep(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4, bias=False)
        self.blocks = nn.ModuleList([Block(4) for _ in range(12)])

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return x


def test_the_state_of_a_deep_model_is_saved_by_loops_with_the_bytes_of_eager_mode(tmp_path) -> None:
    st.seed(1)
    model = Deep()
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    staged, eager = str(tmp_path / "staged.safetensors"), str(tmp_path / "eager.safetensors")

    def loss_of(x):
        return st.mean(model(x) ** 2)

    @st.function
    def train(x, steps):
        for _ in st.range(steps):
            _, gradients = st.value_and_grad(loss_of, wrt=model.parameters())(x)
            optimizer.step(gradients)
        st.save(staged, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps})
        return steps

    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    train(x, 3)
    st.save(eager, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": 3})
    with open(staged, "rb") as first, open(eager, "rb") as second:
        assert first.read() == second.read()
    source = train.stage(x, 3).source
    save = source[source.index("st_saved saved") :].split("\n}\n")[0]
    assert source.count('"optimizer.state.%d.step"') == 1 and source.count('"model.blocks.%d.w1.weight"') == 1
    assert len(save.splitlines()) < 70, save
    assert all(len(line) <= 120 for line in save.splitlines())
    assert "memcpy(m->mean" not in source, "the state is saved where it is"


def test_a_program_that_saves_equal_rows_compiles_with_all_warnings(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(outlining, "MOST", 20)
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))

    @st.function
    def save(count):
        for linear in model:
            linear.weight.value = linear.weight.value + count
            linear.bias.value = linear.bias.value - count
        tree = {"model": model.state_dict(), "rates": [0.5, count + 1], "is_whole": True}
        st.save(str(tmp_path / "saved.safetensors"), {**tree, "counts": dict.fromkeys(range(5), count)})
        return count

    program = save.stage(2)
    program.export(tmp_path / "folder", target="portable")
    compile_c(tmp_path / "folder", "-fsyntax-only", "-Wconversion", "-Wshadow", "-Wpedantic", "save.c")
    assert re.search(r'^ *saved\[\d+ \+ k\] = \(st_saved\)\{"counts\.%d", k, ', program.source, re.MULTILINE)
    assert re.search(r"^ *memcpy\(&saved\[\d+ \+ 2 \* k\], rows, sizeof rows\);$", program.source, re.MULTILINE)
    assert "\n    const bool numbers_bool[] = {true};" in program.source, "in a function of its own"


NAMES = [
    "a.1.b%d", "a.2.b%d", "a.3.b%d", "a.4.b%d", "it's.1", "it's.2", "it's.3", 'say "1"', 'say "2"', 'say "3"', "x.01",
    "x.02", "x.03", "y.1.1", "y.2.2", "y.3.3", "q.1.2", "q.2.3", "q.3.4", "z.8", "z.9", "z.10", "z.11", "back\\1",
    "back\\2", "back\\3", "é1", "é2", "é3", "w1", "w2", "w4", "w8", "10000000000", "20000000000", "30000000000",
]  # fmt: skip


@pytest.mark.parametrize("nested", [False, True])
def test_any_names_are_those_of_eager_mode(tmp_path, nested: bool) -> None:
    staged, eager = str(tmp_path / "staged.safetensors"), str(tmp_path / "eager.safetensors")
    variable = st.Variable(np.arange(3.0), name="v")

    def tree(count):
        leaves = dict.fromkeys(NAMES, variable.value)
        texts = [f"it's {number} % of \"{number}\"" for number in range(5)]
        numbered = {number: {"n": count, "gap": None} for number in range(7)}
        late = {number + 5: [count, number] for number in range(4)}
        odd = {f"{name} {number}": {"a": variable.value, "b": {name: count}} for name in NAMES for number in range(4)}
        whole = {"leaves": leaves, "texts": texts, "numbered": numbered, "late": late, "odd": odd}
        return whole if nested else leaves

    @st.function
    def save(count):
        st.save(staged, tree(count + 0))
        return count

    save(4)
    st.save(eager, tree(4))
    with open(staged, "rb") as first, open(eager, "rb") as second:
        assert first.read() == second.read()
    loaded, known = st.load(staged), tree(4)
    assert list(loaded) == list(known) or not nested
    assert set(loaded["leaves"] if nested else loaded) == set(NAMES)


def test_equal_parts_of_a_tree_are_one_part() -> None:
    node = {"dict": [["first", None], *([f"h.{k}.w", {"array": f"m.h.{k}.w"}] for k in range(5)), ["last", "50%"]]}
    assert [(part.text, part.first, part.count) for part in _parts({"dict": [["m", node]]})] == [
        ("{'dict':[['m',{'dict':[['first',null]", 0, 1),
        (",~m.;@h.%d.w;", 0, 5),
        (",['last','50%%']]}]]}", 0, 1),
    ]
    whole = _parts({"list": [{"array": f"a.{k}"} for k in range(4)]})
    assert [(part.text, part.first, part.count) for part in whole] == [
        ("{'list':[{'array':'a.0'}", 0, 1),
        (",{'array':'a.%d'}", 1, 3),
        ("]}", 0, 1),
    ]


@pytest.mark.parametrize(
    "units",
    [["a1", "a2"], ["a1", "a2", "a4"], ["a1b1", "a2b2", "a3b4"], ["a1b2", "a2b3", "a3b4"], ["a1", "a1", "a1"]],
)
def test_parts_that_differ_in_more_than_one_number_stay_apart(units: list[str]) -> None:
    assert _repeated(units) is None
