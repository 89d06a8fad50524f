"""Planted faults of programs on several ranks: which values are local, where a `vary` belongs, what is an error."""

from tests.mutate.mutant import Mutant

LOCALITY = "tests/passes/ranks/test_locality.py"
WRONG = "tests/ranks/test_wrong_programs.py"
ANALYSIS = "passes.ranks.locality:Locality"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "what runs after a local exit is not under a condition",
        f"{ANALYSIS}.block",
        "control = control or cause",
        "control",
        (WRONG, "-k", "local_continue or local_return"),
    ),
    Mutant(
        "a `return` in a loop leaves its trip count equal",
        f"{ANALYSIS}.loop",
        "if exits and loop.label not in self.left: ...",
        'if ("break", loop.label) in exits and loop.label not in self.left: ...',
        (WRONG, "-k", "local_return_in"),
    ),
    Mutant(
        "a local `continue` leaves the carried values replicated",
        f"{ANALYSIS}.loop",
        "self.passes([end for _, end in loop.ends()], [*loop.final, *loop.collected], inside, skipped)",
        "self.passes([end for _, end in loop.ends()], [*loop.final, *loop.collected], inside)",
        (LOCALITY, "-k", "local_continue"),
    ),
    Mutant(
        "the result of a local branch is replicated if both values are",
        f"{ANALYSIS}.branch",
        "self.passes([end for _, end in Branch(op).ends()], op.results, control, early or inside)",
        "self.passes([end for _, end in Branch(op).ends()], op.results, control)",
        (LOCALITY, "-k", "passed_by_a_local_branch"),
    ),
    Mutant(
        "an array of a local size is replicated",
        f"{ANALYSIS}.plain",
        "self.cause_of(op.operands, control) or self.cause_of_sizes(op)",
        "self.cause_of(op.operands, control)",
        (WRONG, "-k", "sum_over_a_local_size"),
    ),
    Mutant(
        "a time is replicated",
        f"{ANALYSIS}.plain",
        "declared is CLOCK",
        "False",
        (WRONG, "-k", "loop_until_a_time"),
    ),
    Mutant(
        "a shard may be under a local condition",
        f"{ANALYSIS}.check_collective",
        "control is not None",
        "control is not None and op.effects",
        (WRONG, "-k", "shard_in_a_branch"),
    ),
    Mutant(
        "the size of a local argument is equal on all ranks",
        f"{ANALYSIS}.declared",
        "dim not in equal",
        "False",
        (WRONG, "-k", "size_of_a_local_argument"),
    ),
    Mutant(
        "a function's replicated result is not varied",
        f"{ANALYSIS}.passed",
        "(function.name, number) in self.returned",
        "False",
        (LOCALITY, "-k", "recursion_varies"),
    ),
    Mutant(
        "a family of Variables may drift apart",
        f"{ANALYSIS}.write",
        "not variable.outer or variable.local",
        "variable.identity is None or variable.local",
        (WRONG, "-k", "equal_layers"),
    ),
    Mutant(
        "each use of an array has its own sum over ranks",
        "passes.ranks.vary:_Vary.copy",
        "self.copies.get(value, self.value(value))",
        "self.builder.op(prims.VARY, [self.value(value)], [value.type]).result if value in self.copies else self.value(value)",
        (LOCALITY, "-k", "one_vary_for_all_uses"),
    ),
    Mutant(
        "the key of a program does not have its local arguments",
        "ir.fingerprint:_Parts.function",
        "function.local_params",
        "()",
        (LOCALITY, "-k", "different_keys"),
    ),
)
