"""The fuzzer's small functions: a few programs of each sort, and faults planted in `staged` that its oracles must see."""

from __future__ import annotations

import ast
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged.ir.nodes import Value
from staged.ops.primitive import PRIMITIVES
from tests import rows
from tests.fuzz import plain
from tests.fuzz.cells import check, report
from tests.fuzz.cells.asking import is_taken
from tests.fuzz.cells.check import LEVELS, check_program
from tests.fuzz.cells.device import check_cells_on_device
from tests.fuzz.cells.draw import DTYPES, NotACell
from tests.fuzz.cells.memory import places
from tests.fuzz.cells.piece import TRANSFORMS, Cell, Piece, cells
from tests.fuzz.cells.programs import Program, all_cells, drawn, program_of
from tests.fuzz.cells.public import missing, public_names
from tests.fuzz.cells.reduce import reproduction
from tests.fuzz.cells.report import asked, keywords_of, remaining, undrawn
from tests.fuzz.cells.scenes import Scene, algebra, counters, views
from tests.fuzz.cells.training_scene import training
from tests.fuzz.check import Failure
from tests.rows import ROWS


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_of_small_functions_agree(seed: int) -> None:
    assert check_program(program_of(seed), LEVELS["light"]) > 0


def test_a_random_program_of_small_functions_agrees_on_a_device(emulated_device: Emulator) -> None:
    assert check_cells_on_device(program_of(2)) > 0


def test_a_seed_is_a_program() -> None:
    assert program_of(4).source() == program_of(4).source()
    assert program_of(4).source() != program_of(6).source()


FILES = {"": "<its family>", "nn": "layers", "nn.init": "first_values"}
"""The file in tests/rows with the functions of a module of `st`, if it does not have the module's name."""


def test_every_public_function_has_a_row() -> None:
    modules = {name: name.rpartition(".")[0] for name in missing()}
    files = {name: f"tests/rows/{FILES.get(module, module)}.py" for name, module in modules.items()}
    assert not files, f"write `row(name, draw, reading)` in these files: {files}"


def test_a_new_public_function_is_a_cell_that_stays_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st.nn, "__all__", [*st.nn.__all__, "Parameters"])
    monkeypatch.setattr(st.nn, "Parameters", st.nn.Linear, raising=False)
    public_names.cache_clear()
    try:
        assert missing() == ["nn.Parameters"]
        (cell,) = [cell for cell in cells() if cell[0] == "nn.Parameters" and cell[1:] == ("f32", "odd", "plain")]
        monkeypatch.setattr(report, "all_cells", lambda: [cell])
        assert report.remaining(set(), lambda program: None) == ([cell], {})
        text, empty = report.report(set(), set(), Counter(), lambda program: None)
        assert empty == 1
        assert "1 empty" in text
    finally:
        public_names.cache_clear()


def test_dtypes_are_those_that_the_declarations_take() -> None:
    taken = {name: [dtype for dtype in DTYPES if is_taken(name, dtype)] for name in ("bitwise_or", "conv1d", "nn.Linear")}
    assert taken["bitwise_or"] == ["bool", "u8", "i8", "u16", "i16", "i32", "u32", "i64", "u64"]
    assert taken["conv1d"] == taken["nn.Linear"] == ["f32", "f64", "f16", "bf16"]
    assert is_taken("fft.fft", "c64")


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_every_function_is_drawn_as_python(transform: str) -> None:
    chance, known = random.Random(1), set(all_cells())
    for name in sorted(ROWS):
        for dtype in ("i64", "f64"):
            cell = (name, dtype, "odd", transform)
            piece = drawn(cell, chance) if cell in known else None
            assert piece is None or ast.parse(piece.text)


def test_the_reading_shares_no_code_with_staged() -> None:
    paths = [path for package in (plain, rows) for path in Path(package.__file__).parent.glob("*.py")]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "staged"], path
    for module in [sys.modules[f"{rows.__name__}.{path.stem}"] for path in paths if path.parent.name == "rows" and path.stem[0] != "_"]:
        shared = [name for name, value in vars(module).items() if str(getattr(value, "__module__", "")).startswith("staged")]
        assert not shared, f"{module.__name__} holds {shared}"


def test_consecutive_seeds_meet_every_cell() -> None:
    from tests.fuzz.cells.programs import _STRIDE

    assert len({number * _STRIDE % len(all_cells()) for number in range(len(all_cells()))}) == len(all_cells())


def test_what_a_type_rule_refuses_is_no_cell() -> None:
    assert "integers" in asked(("bitwise_or", "f32", "odd", "plain"))[1]
    assert asked(("matmul", "f32", "scalar", "plain")) == (None, "no such shape")
    piece, words = asked(("floor", "f64", "odd", "plain"))
    assert piece is not None
    assert not words


def test_every_keyword_of_every_function_is_drawn() -> None:
    written: set[str] = set()
    for number, cell in enumerate(cell for cell in all_cells() if cell[1] in ("f64", "i32") and cell[3] == "plain"):
        for seed in range(3):
            piece = drawn(cell, random.Random(f"{number} {seed}"))
            if piece is not None:
                written |= {f"{cell[0]}.{keyword}" for keyword in keywords_of(piece)}
    assert not undrawn(written)


def test_cells_that_the_seeds_did_not_meet_are_checked_afterwards() -> None:
    met = set(all_cells()) - {("floor", "f64", "odd", "plain"), ("bitwise_or", "f32", "odd", "plain")}
    checked: list[Program] = []
    failed, reasons = remaining(met, checked.append)
    assert not failed
    assert [piece.cell for program in checked for piece in program.pieces] == [("floor", "f64", "odd", "plain")]
    assert sum(reasons.values()) == 1


def test_a_reproduction_is_a_script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    piece = Piece("def piece(x0):\n    return x0 + 1.0\n", {"x0": np.array([1.0, np.inf])}, label="planted")
    exec(compile(reproduction(Program(0, [piece])), "reproduction", "exec"), {})
    assert capsys.readouterr().out.count("inf") >= 2


# ---- planted faults -----------------------------------------------------------------------------


def found(pieces: Callable[[random.Random], Piece | None], count: int) -> str:
    """The failure that so many pieces show; '' for none."""
    chance = random.Random(0)
    for _ in range(count):
        try:
            piece = pieces(chance)
        except NotACell:
            continue
        if piece is None:
            continue
        try:
            check_program(Program(0, [piece]), LEVELS["light"])
        except Failure as failure:
            return failure.key
    return ""


def calls(*cells: Cell) -> Callable[[random.Random], Piece | None]:
    return lambda chance: drawn(chance.choice(cells), chance)


@pytest.fixture
def fresh_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No program comes from the cache: it would be the right one."""
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path))


Plant = Callable[..., None]


@pytest.fixture
def plant(fresh_programs: None) -> Iterator[Plant]:
    """`plant("tanh", vjp=...)` changes a declaration, wherever it is held, until the test is over."""
    before: list[tuple[object, str, object]] = []

    def change(name: str, **fields: object) -> None:
        for field, value in fields.items():
            before.append((PRIMITIVES[name], field, getattr(PRIMITIVES[name], field)))
            object.__setattr__(PRIMITIVES[name], field, value)

    yield change
    for declared, field, value in before:
        object.__setattr__(declared, field, value)


@pytest.mark.parametrize("rule", ["vjp", "jvp"])
def test_a_wrong_derivative_in_one_mode_is_found_by_the_other(rule: str, plant: Plant) -> None:
    wrong = {
        "vjp": {"vjp": lambda ct, y, x: [ct * (1.0 - y)]},
        "jvp": {"jvp": lambda tangents, y, operands: tangents[0] * (1.0 - y)},
    }[rule]
    drawn_from = calls(("tanh", "f64", "odd", "grad"), ("tanh", "f32", "one", "jvp"))
    assert found(drawn_from, 4) == ""
    plant("tanh", **wrong)
    assert "forward and reverse mode differ" in found(drawn_from, 4)


@pytest.mark.parametrize("transform", ["grads", "jvps", "shared"])
def test_a_derivative_by_two_operands_that_forgets_one_is_found(transform: str, plant: Plant) -> None:
    drawn_from = calls(("multiply", "f64", "odd", transform))
    assert found(drawn_from, 3) == ""
    plant("multiply", vjp=lambda ct, y, a, b: [ct * b, ct * 0.0])
    assert "forward and reverse mode differ" in found(drawn_from, 12)


def test_a_derivative_that_is_wrong_in_both_modes_is_found_by_differences(plant: Plant) -> None:
    plant("cosh", vjp=lambda ct, y, x: [ct * y], jvp=lambda tangents, y, operands: tangents[0] * y)
    assert "not what differences say" in found(calls(("cosh", "f64", "odd", "grad")), 4)


def test_a_result_of_halves_that_is_off_by_two_units_is_found(plant: Plant) -> None:
    drawn_from = calls(("tanh", "bf16", "odd", "plain"), ("tanh", "f16", "vector", "plain"))
    assert found(drawn_from, 4) == ""
    reference = PRIMITIVES["tanh"].reference
    plant("tanh", reference=lambda x: reference(x) * np.float32(1.02))
    assert "not what NumPy reads" in found(drawn_from, 4)


def test_a_conjugated_gradient_is_found(plant: Plant) -> None:
    drawn_from = calls(("imag", "c128", "odd", "grad"), ("imag", "c64", "one", "grad"))
    assert found(drawn_from, 4) == ""
    plant("imag_part", vjp=lambda ct, y, z: [st.complex(ct * 0.0, -ct)])
    assert "forward and reverse mode differ" in found(drawn_from, 4)


def test_differences_say_nothing_where_numbers_are_equal_at_a_point_alone() -> None:
    assert found(calls(("nn.Parameter", "f64", "block", "jvps")), 8) == ""


def test_a_wrong_meaning_is_found_by_numpy(plant: Plant) -> None:
    plant("round", reference=lambda x: np.floor(x + 0.5))
    assert "not what NumPy reads" in found(
        calls(("round", "f64", "odd", "plain"), ("round", "f32", "block", "plain")), 20
    )


@pytest.mark.usefixtures("fresh_programs")
def test_a_wrong_spelling_in_c_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from staged.code import scalars

    monkeypatch.setitem(scalars.LIBM, "floor", "trunc")
    assert "the compiled program is not eager mode" in found(calls(("floor", "f64", "scalar", "plain")), 8)


def scenes(scene: Scene) -> Callable[[random.Random], Piece | None]:
    return lambda chance: scene(chance)


@pytest.mark.usefixtures("fresh_programs")
@pytest.mark.parametrize("scene", [views, counters, algebra, places, training])
def test_scenes_agree(scene: Scene) -> None:
    assert found(scenes(scene), 2) == ""


@pytest.mark.usefixtures("fresh_programs")
def test_a_wrong_range_is_found_by_loops_with_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    from staged.ir.ranges import Ranges

    def totals(chance: random.Random) -> Piece | None:
        piece = counters(chance)
        # A wrong range of an index would read foreign memory: loops without indices show it, too.
        return piece if "out" not in piece.text and "seen" not in piece.text else None

    usual = Ranges.of_index

    def narrow(self: Ranges, bounds: list[Value]) -> tuple[int, int] | None:
        span = usual(self, bounds)
        return span and (span[0], span[0])

    monkeypatch.setattr(Ranges, "of_index", narrow)
    assert "counters" in found(totals, 200)


def test_a_fill_that_is_forgotten_is_found_by_views_of_views(plant: Plant) -> None:
    reference = PRIMITIVES["pad"].reference
    plant("pad", reference=lambda x, **attrs: reference(x, **{**attrs, "value": type(attrs["value"])(0)}))
    assert "views" in found(scenes(views), 20)


def test_programs_with_variables_are_run_in_their_exported_folders() -> None:
    programs = (program_of(seed) for seed in range(1000))
    program = next(each for each in programs if any(piece.variables for piece in each.pieces))
    accepted, expected = check.in_eager_mode(program, {})
    found = check.run_in_folder(accepted)
    assert found and all(not check.difference(a, b, piece) for a, b, piece in zip(found, expected, accepted.pieces, strict=True))
