"""Planted faults of declared ops, of their views, of the verifier that holds ops to them, and of `match`."""

from tests.mutate.mutant import Mutant

SIGNATURE = "staged/ir/signature.py"
VIEWS = "staged/ir/views.py"
VERIFIER = "staged/ir/verifier.py"
MATCH = "staged/frontend/constructs/match_.py"
STRUCTURE = "tests/ir/test_structure.py"
IR = "tests/ir/test_ir.py"
PROGRAMS = "tests/frontend/test_match.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a missing operand is no fault",
        SIGNATURE,
        "if len(types) < len(fixed) or len(types) > len(fixed) and len(fixed) == len(self.parts):",
        "if len(types) > len(fixed) and len(fixed) == len(self.parts):",
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "attributes that an op does not have are none of the verifier's business",
        SIGNATURE,
        'if "..." not in self.attributes:',
        'if "..." in self.attributes:',
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "an op may have any effect",
        SIGNATURE,
        "for effect in op.effects if effect.kind not in self.effects]",
        "for effect in op.effects if not effect.kind]",
        (STRUCTURE, "-k", "told_apart"),
    ),
    Mutant(
        "no op is held to its declaration",
        VERIFIER,
        "            for fault in op.declared.faults(op):",
        "            for fault in ():",
        (IR, "-k", "broken_invariant"),
    ),
    Mutant(
        "a block may yield anything to a loop",
        VERIFIER,
        "expected = Loop(owner).yields(block) if owner.declared.is_loop else None",
        "expected = None",
        (IR, "-k", "broken_invariant"),
    ),
    Mutant(
        "the directions of a derivative are not counted",
        VERIFIER,
        "if len(derivative.directions) != len(derivative.of if op.declared is VJP else derivative.wrt):",
        "if False:",
        (STRUCTURE, "-k", "derivative_fits"),
    ),
    Mutant(
        "primitives are known in small letters too",
        "staged/ir/declaration.py",
        "found = DECLARED.get(name.lower()) if name == name.upper() else None",
        "found = DECLARED.get(name.lower())",
        (STRUCTURE, "-k", "looked_up"),
    ),
    Mutant(
        "a name that no op has makes one",
        "staged/ir/declaration.py",
        '    assert name in DECLARED, f"no op is called {name!r}"\n    return DECLARED[name]',
        '    return DECLARED.get(name, Declaration(name=name, kind="structured"))',
        (STRUCTURE, "-k", "looked_up"),
    ),
    Mutant(
        "the condition of a `while` yields to its results",
        VIEWS,
        "return op is not None and op.declared is WHILE and block is op.blocks[0]",
        "return False",
        (STRUCTURE, "-k", "loop_in_its_parts"),
    ),
    Mutant(
        "a capture is bound where its pattern does not fit",
        MATCH,
        "        if test is not None:\n            definition, then = converter.raw_function(steps, [], case.pattern)",
        "        if test is not None:\n"
        "            made += [e for n in names for e in assign(converter, n, subject, case.pattern)]\n"
        "            definition, then = converter.raw_function(steps, [], case.pattern)",
        (PROGRAMS, "-k", "guards_and_captures"),
    ),
    Mutant(
        "a case whose guard fails ends the `match`",
        MATCH,
        "converter.propagate(_case(converter, node, case, guard, body, rest), guard)",
        "converter.propagate(_case(converter, node, case, guard, body, text(None)), guard)",
        (PROGRAMS, "-k", "guards_and_captures"),
    ),
    Mutant(
        "the guard is asked before the pattern",
        MATCH,
        '_connected(converter, "and_", test, both if bound else guard)',
        '_connected(converter, "and_", both if bound else guard, test)',
        (PROGRAMS, "-k", "asks_and_stops"),
    ),
    Mutant(
        "`case True` takes what equals 1",
        MATCH,
        "if value.dtype is not bool_:",
        "if False:",
        (PROGRAMS, "-k", "one_is_not_true"),
    ),
    Mutant(
        "a bool that a guard has turned away counts as asked",
        MATCH,
        " if before.guard is None",
        "",
        (PROGRAMS, "-k", "errors_name"),
    ),
)
