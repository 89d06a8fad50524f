"""Programs with late slices: a few of `python -m tests.fuzz --gpu --late`, and what the rule finds."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from cuda_emulator import Emulator
from staged.backends.cublas_cudnn.library import alignment
from tests.fuzz.__main__ import late_program_of
from tests.fuzz.cells.device import check_cells_on_device, late_form
from tests.fuzz.cells.piece import Piece
from tests.fuzz.cells.programs import Program
from tests.fuzz.check import Failure
from tests.fuzz.late import Lent, late_operands


@pytest.mark.parametrize("seed", range(8))
def test_programs_with_late_slices_agree_on_a_device(seed: int, emulated_device: Emulator) -> None:
    assert check_cells_on_device(late_program_of(seed), is_late=True) > 0


def test_every_kind_of_late_slice_is_drawn() -> None:
    forms = [late_form(late_program_of(seed)) for seed in range(40)]
    assert any(form.late.lent for form in forms)
    assert any(form.late.views and not form.late.lent for form in forms)
    assert any("again" in form.source("st.with_backend(st.GPU)") for form in forms)


def test_a_piece_that_creates_a_generator_is_not_called_by_a_recursive_function() -> None:
    """Such a function would be an error, because its calls would share the generator's state."""
    arrays = {"x0": np.ones((5, 3), np.float32)}

    def sources(text: str) -> list[str]:
        piece = Piece(f"def piece(x0):\n    {text}\n", arrays, label="piece")
        return [late_form(Program(seed, [piece])).source("st.with_backend(st.GPU)") for seed in range(40)]

    assert any("again" in source for source in sources("return x0 + x0"))
    drawn = "noise = st.random.Generator(3)\n    return st.random.normal((5, 3), generator=noise) * x0"
    assert not any("again" in source for source in sources(drawn))


def test_a_late_slice_has_the_elements_of_its_array(emulated_device: Emulator) -> None:
    array = np.arange(6, dtype=np.float16).reshape(2, 3)
    late = late_operands(random.Random(0), dict.fromkeys("abcdef", array), is_lent=True)
    assert late.views
    assert late.lent
    for name in late.lent:
        lent = late.given(name, array)
        assert isinstance(lent, Lent)
        assert lent.address % 16 == 2
    for name in late.views:
        np.testing.assert_array_equal(late.given(name, array)[1:], array.reshape(-1))
        assert late.text(name) == f"st.reshape({name}[1:], (2, 3))"


@pytest.mark.usefixtures("misuse")
def test_an_operand_that_is_not_copied_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, emulated_device: Emulator
) -> None:
    shape = (1, 2, 8, 8)
    arrays = {name: np.ones(shape, np.float16) for name in "qkv"}
    text = "def piece(q, k, v):\n    return st.scaled_dot_product_attention(q, k, v)\n"
    program = Program(1, [Piece(text, arrays, label="attention", loose=True)])
    assert check_cells_on_device(program, is_late=True) == 1
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path))  # else the right program is found there
    monkeypatch.setattr(alignment, "_vectors", lambda op: ())
    with pytest.raises(Failure, match="CUDNN_STATUS_BAD_PARAM"):
        check_cells_on_device(program, is_late=True)
