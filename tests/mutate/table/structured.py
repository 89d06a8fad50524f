"""Planted faults of declared ops, of their views, of the verifier that holds ops to them, and of `match`."""

from tests.mutate.mutant import Mutant

STRUCTURE = "tests/ir/test_structure.py"
IR = "tests/ir/test_ir.py"
PROGRAMS = "tests/frontend/test_match.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a missing operand is no fault",
        "ir.signature:Parts.fault",
        "len(types) < len(fixed) or len(types) > len(fixed) and len(fixed) == len(self.parts)",
        "len(types) > len(fixed) and len(fixed) == len(self.parts)",
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "attributes that an op does not have are none of the verifier's business",
        "ir.signature:Structured._faults_of_attributes",
        '"..." not in self.attributes',
        '"..." in self.attributes',
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "an op may have any effect",
        "ir.signature:Structured.faults",
        "effect.kind not in self.effects",
        "not effect.kind",
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "no op is held to its declaration",
        "ir.verifier:_Verifier.op",
        "op.declared.faults(op)",
        "()",
        (IR, "-k", "broken_invariant"),
    ),
    Mutant(
        "a block may yield anything to a loop",
        "ir.verifier:_Verifier.end",
        "Loop(owner).yields(block) if owner.declared.is_loop else None",
        "None",
        (IR, "-k", "broken_invariant"),
    ),
    Mutant(
        "the directions of a derivative are not counted",
        "ir.verifier:_Verifier.derivative",
        "len(derivative.directions) != len(derivative.of if op.declared is VJP else derivative.wrt)",
        "False",
        (STRUCTURE, "-k", "derivative_fits"),
    ),
    Mutant(
        "primitives are known in small letters too",
        "ir.declaration:_Primitives.__getattr__",
        "DECLARED.get(name.lower()) if name == name.upper() else None",
        "DECLARED.get(name.lower())",
        (STRUCTURE, "-k", "looked_up"),
    ),
    Mutant(
        "a name that no op has makes one",
        "ir.declaration:declaration_of",
        'assert name in DECLARED, f"no op is called {name!r}"\n'
        "return DECLARED[name]",
        'return DECLARED.get(name, Declaration(name=name, kind="structured"))',
        (STRUCTURE, "-k", "looked_up"),
    ),
    Mutant(
        "the condition of a `while` yields to its results",
        "ir.views:is_condition",
        "op is not None and op.declared is WHILE and block is op.blocks[0]",
        "False",
        (STRUCTURE, "-k", "loop_in_its_parts"),
    ),
    Mutant(
        "a capture is bound where its pattern does not fit",
        "frontend.constructs.match_:convert_match",
        "definition, then = converter.raw_function(steps, [], case.pattern)",
        "made += [e for n in names for e in assign(converter, n, subject, case.pattern)]\n"
        "definition, then = converter.raw_function(steps, [], case.pattern)",
        (PROGRAMS, "-k", "guards_and_captures"),
    ),
    Mutant(
        "a case whose guard fails ends the `match`",
        "frontend.constructs.match_:convert_match",
        "_case(converter, node, case, guard, body, rest)",
        "_case(converter, node, case, guard, body, text(None))",
        (PROGRAMS, "-k", "guards_and_captures"),
    ),
    Mutant(
        "the guard is asked before the pattern",
        "frontend.constructs.match_:convert_match",
        '_connected(converter, "and_", test, both if bound else guard)',
        '_connected(converter, "and_", both if bound else guard, test)',
        (PROGRAMS, "-k", "asks_and_stops"),
    ),
    Mutant(
        "`case True` takes what equals 1",
        "frontend.constructs.match_:is_constant",
        "value.dtype is not bool_",
        "False",
        (PROGRAMS, "-k", "one_is_not_true"),
    ),
    Mutant(
        "a bool that a guard has turned away counts as asked",
        "frontend.constructs.match_:convert_match",
        "{value for before in node.cases[:number] if before.guard is None for value in _bools(before.pattern)}",
        "{value for before in node.cases[:number] for value in _bools(before.pattern)}",
        (PROGRAMS, "-k", "errors_name"),
    ),
)
