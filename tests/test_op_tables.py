"""The tables that files enter themselves in: each structured op has its rules there, or a reason why it needs none."""

from __future__ import annotations

import pytest

import staged.autodiff.fulfil
import staged.batching.vmap  # noqa: F401  (they fill the tables)
from staged.autodiff.activity import ACTIVE
from staged.autodiff.copiers import EXTENDED
from staged.autodiff.forward import FORWARDS
from staged.autodiff.reverse import REVERSES
from staged.backends.host.structure import EMITS
from staged.batching.batch import BATCHED, CONTROL_FLOW
from staged.batching.spread import SPREADS
from staged.ir import structure as s
from staged.ir.declaration import Declaration, prims
from staged.ir.op_table import OpTable
from staged.ir.signature import STRUCTURED

BEFORE = {
    "transforms inside are fulfilled first": {s.VJP, s.JVP, s.VMAP},
    "calls in place are functions by then, or gone": {s.CALL_BEGIN, s.CALL_END},
}
AFTER = {
    "made by later passes": {s.COPY, s.KERNEL, s.CONTRACTION, s.LIBRARY, s.REDUCE_START, s.REDUCE_WAIT},
    "at the entry of a program, outside of all transforms": {s.COMPARE_RANKS},
}
OUTSIDE = {
    "no float depends on what it takes": {
        s.ABSENT, s.VARIABLE_READ, s.VARIABLE_WRITE, s.PRINT, s.ASSERT, s.RAISE, s.CLOCK, s.FILE_OPEN, s.FILE_CLOSE,
        s.PROGRESS_START, s.PROGRESS_UPDATE, s.PROGRESS_END, s.SAVE,
    },
    "refused where a derivative would go through it": {s.CALLBACK},
}  # fmt: skip
REFUSED = {
    "refused where its operands are mapped": {
        s.VARIABLE_READ, s.VARIABLE_WRITE, s.PRINT, s.RAISE, s.CLOCK, s.FILE_OPEN, s.FILE_CLOSE, s.PROGRESS_START,
        s.PROGRESS_UPDATE, s.PROGRESS_END, s.SAVE, s.CALLBACK,
    }
}  # fmt: skip

EXITS = {"exits are flags by then": {s.SCOPE}}
OF_OPERANDS = {"depends on every operand": {s.FRAME_LOAD, s.FRAME_NULL, s.SEQUENCE_GET, s.SEQUENCE_EMPTY}}
DECLARED = {"differentiated by its own rules, or opened": {s.COMPOSITE}}

FULFILLED = {
    "transforms are fulfilled, and blocks of one op are opened": {s.VJP, s.JVP, s.VMAP, s.CHECKPOINT, s.CUSTOM_VJP, s.COMPOSITE},
    "calls in place are functions by then, or gone": {s.CALL_BEGIN, s.CALL_END},
}
OPAQUE = {"called as functions of the program": {s.KERNEL, s.CONTRACTION, s.LIBRARY}}

CASES: dict[str, tuple[list[OpTable], list[dict[str, set]]]] = {
    "reverse mode": ([REVERSES], [BEFORE, AFTER, OUTSIDE, DECLARED]),
    "forward mode": ([FORWARDS], [BEFORE, AFTER, OUTSIDE, EXITS]),
    "activity": ([ACTIVE], [BEFORE, AFTER, OUTSIDE, EXITS, OF_OPERANDS, {"linear": {s.SEQUENCE_ADD, s.SEQUENCE_SUM}}]),
    "mapping": ([BATCHED, CONTROL_FLOW], [BEFORE, AFTER, REFUSED, EXITS]),
    "emission": ([EMITS], [FULFILLED, OPAQUE]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_structured_op_has_a_rule_or_a_reason(case: str) -> None:
    tables, excused = CASES[case]
    ruled = {op for table in tables for op in table}
    reasons = {op: why for each in excused for why, ops in each.items() for op in ops}
    missing = [op.name for op in STRUCTURED if op not in ruled and op not in reasons]
    assert not missing, f"{case} has no rule for {missing}: write `@{_name_of(tables[-1])}.rule({missing[0].upper()})`"
    both = [op.name for op in ruled if op in reasons]
    assert not both, f"{case} has rules for {both}, which are excused"


def _name_of(table: OpTable) -> str:
    names = {"REVERSES": REVERSES, "FORWARDS": FORWARDS, "ACTIVE": ACTIVE, "CONTROL_FLOW": CONTROL_FLOW, "EMITS": EMITS}
    return next(name for name, each in names.items() if each is table)


def test_what_may_have_extra_results_has_a_reverse() -> None:
    assert set(EXTENDED) <= set(REVERSES)
    assert set(SPREADS) <= {*BATCHED, *CONTROL_FLOW}


def test_an_op_has_one_rule() -> None:
    table: OpTable[str] = OpTable()
    assert table.rule(s.FOR, s.WHILE)("loops") == "loops"
    table.rule(prims.ADD)("sums")
    assert (table[s.FOR], table[s.WHILE], table[prims.ADD], table.get(s.IF)) == ("loops", "loops", "sums", None)
    with pytest.raises(AssertionError, match=r"\['while'\] have a rule already"):
        table.rule(s.IF, s.WHILE)("again")
    op: Declaration = s.IF
    assert op not in table
