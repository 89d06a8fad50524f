"""Names of values inside kernels: the user's, the library's, else their role in a value with a name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.ir.nouns import NOUNS
from staged.ops.primitive import PRIMITIVES
from tests.generated_names import PROGRAMS

X = np.ones((4, 40), np.float32)
DECLARED = re.compile(r"\b(?:float|double|bool|u?int\d+_t|[fiu]\d+(?:v|x\d+)) (?:\*(?:const )?(?:restrict )?)?(\w+)(?= [=;]|[;,)])")


def source_of(function: Any, *args: Any) -> str:
    return re.sub(r"//.*", "", st.function(function, target="portable").stage(*args).source)


def test_every_primitive_has_a_noun_that_is_not_its_name() -> None:
    computing = [
        name
        for name, op in PRIMITIVES.items()
        if op.kind not in ("source", "size", "launch") and not name.startswith(("to_", "from_", "stop_", "quantized"))
    ]
    assert not [name for name in computing if name not in NOUNS]
    assert not set(NOUNS.values()) & set(PRIMITIVES)


def test_a_part_of_a_value_is_named_after_its_operand() -> None:
    def program(x: Any, y: Any) -> Any:
        mixed = (x * y - 1.0) * st.tanh(x) + (x * y - 1.0) * x
        return mixed, st.sum(mixed)

    source = source_of(program, X, X)
    assert {"x_scaled_difference"} <= {*DECLARED.findall(source)}, source


def test_a_value_of_the_library_has_the_name_that_it_has_there() -> None:
    source = source_of(lambda x: st.layer_norm(x, (40,)), X)
    assert {"centre", "centred", "rstd"} <= {*re.findall(r"\w+", source)}, source


def test_a_function_s_result_has_its_name_and_that_of_its_argument() -> None:
    def program(f: Any, i: Any) -> Any:
        return st.sigmoid(f) * st.sigmoid(i) + st.tanh(st.sigmoid(f) - st.sigmoid(i))

    found = {*DECLARED.findall(source_of(program, X, X))}
    assert {"f_sigmoid", "i_sigmoid"} <= found, found


def test_a_bare_noun_of_the_library_gives_way_to_the_value_that_it_is_a_part_of() -> None:
    source = source_of(lambda x: st.layer_norm(x, (40,)), X)
    assert {"centre_total_v", "rstd_total_v"} <= {*re.findall(r"\w+", source)}, source
    assert not re.search(r"\btotal(_\d+)?\b", source), source


def test_a_checked_index_is_named_after_the_array() -> None:
    source = source_of(lambda tokens, rows: tokens[rows] + tokens[rows + 1], X, np.array([0, 2, 1]))
    assert "tokens_index" in source and "index_" not in source.replace("_index_", ""), source


def test_kernels_that_differ_in_names_alone_are_one() -> None:
    """Kernels that are written in place do not depend on the lengths of names."""

    def program(a: Any) -> Any:
        b = (a + 1.0) * (a - 2.0) / (a * a + 3.0) + (a - 4.0) * (a + 5.0)
        the_elements_of_b_by_size = st.sort(b)
        a = the_elements_of_b_by_size
        c = (a + 1.0) * (a - 2.0) / (a * a + 3.0) + (a - 4.0) * (a + 5.0)
        return b, c

    source = source_of(program, X)
    assert source.count("+ 5.0f") == 1, source


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_value_is_named_after_an_op(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    function, args = PROGRAMS[name].make()
    source = re.sub(r"//.*", "", function.stage(*args).source)
    own = {*PROGRAMS[name].names.split()}
    names = {re.sub(r"(_\d+)+$|_+$", "", each) for each in DECLARED.findall(source)} - own
    assert not names & set(PRIMITIVES), source
    assert not [each for each in names if re.fullmatch(r"(input|value|variable)_\d+", each)], source
