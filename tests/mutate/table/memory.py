"""Planted faults of the memory plan, of placement, and of what derivatives keep."""

from tests.mutate.mutant import Mutant

PLAN = "staged/passes/memory/plan.py"
VARIABLES = "staged/passes/memory/variables.py"
STAGING = "staged/passes/memory/staging.py"
GROUPS = "staged/passes/memory/groups.py"
LIVENESS = "staged/passes/memory/liveness.py"
OFFSETS = "staged/passes/memory/offsets.py"
HOMES = "staged/passes/placement/devices.py"
ON_MEMORY = ("tests/passes/memory/test_plan.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a Variable's own value does not keep others out of its buffer",
        PLAN,
        "group.members += [(interval, variable) for interval in lives[variable]]",
        "group.members += []",
        ON_MEMORY,
    ),
    Mutant(
        "all that is carried on from a written value counts as that value",
        GROUPS,
        "if same is not None and (value_a, value_b) == same[:2] and start_b >= same[2]:",
        "if same is not None and value_b is same[1] and start_b >= same[2]:",
        ("tests/passes/memory/test_plan_of_programs.py", "-k", "keeps_what_was_written and compiled"),
    ),
    Mutant(
        "a written value may be computed while the Variable's old one is needed",
        GROUPS,
        "if same is not None and (value_a, value_b) == same[:2] and start_b >= same[2]:",
        "if same is not None and (value_a, value_b) == same[:2]:",
        ON_MEMORY,
    ),
    Mutant(
        "a value that something else is written over stays in the Variable",
        VARIABLES,
        "if any(start < position <= end for start, end in spans for position in others):",
        "if False:",
        ON_MEMORY,
    ),
    Mutant(
        "results that share the caller's array are not one group",
        PLAN,
        "                    for other in others:\n                        self.groups.merge(group, other)\n",
        "",
        ON_MEMORY,
    ),
    Mutant(
        "a read of a Variable that is written meanwhile is no copy",
        VARIABLES,
        "any(start < write < end for write in writes.get(variable, ()))",
        "any(start > write > end for write in writes.get(variable, ()))",
        ON_MEMORY,
    ),
    Mutant(
        "a loop's buffer is free where an end passes values on",
        PLAN,
        "self.groups.hold(param, position, position)\n                    self.groups.allow(end.operands[index], param, position)",
        "self.groups.allow(end.operands[index], param, position)",
        ON_MEMORY,
    ),
    Mutant(
        "values that change places in a loop are not taken aside",
        STAGING,
        "if source is not None and source is not place[param] and source in targets:",
        "if source is not None and source is not place[param] and source not in targets:",
        ON_MEMORY,
    ),
    Mutant(
        "results that are read from one another's places are not taken aside",
        STAGING,
        "if source in written and source is not outputs[index]:",
        "if source in written and source is outputs[index]:",
        ON_MEMORY,
    ),
    Mutant(
        "an operand may be overwritten though the op reads it in another way too",
        PLAN,
        "if all((result, number) in pairs for number in uses):",
        "if any((result, number) in pairs for number in uses):",
        ON_MEMORY,
    ),
    Mutant(
        "what a loop reads from outside is dead after its first iteration",
        LIVENESS,
        "live.setdefault(value, r.finish[op])",
        "live.setdefault(value, r.start[op])",
        ON_MEMORY,
    ),
    Mutant(
        "lives that meet in a position may share memory",
        OFFSETS,
        "if a[i][1] < b[j][0]:",
        "if a[i][1] <= b[j][0]:",
        ON_MEMORY,
    ),
    Mutant(
        "a frame's field is made where another value is needed later",
        "staged/passes/memory/frames.py",
        "any(end >= saved for (_, end), other in group.members if other is not value):",
        "any(end > groups.live.length for (_, end), other in group.members if other is not value):",
        ON_MEMORY,
    ),
    Mutant(
        "what is carried out of an iteration is made in the iteration's slot",
        "staged/passes/memory/residual_slots.py",
        "if any(start < first or end > last for (start, end), _ in group.members):",
        "if any(start < first and end > last for (start, end), _ in group.members):",
        ("tests/passes/memory/test_residual_slots.py",),
    ),
    Mutant(
        "a write of a Variable does not end the life of its old value",
        "staged/passes/memory/variable_lives.py",
        "value = after & ~self.writes[position] | self.uses[position]",
        "value = after | self.uses[position]",
        ("tests/passes/memory/test_plan.py::test_a_training_step_updates_parameters_in_place_and_reuses_activations",),
    ),
    Mutant(
        "a loop that Ctrl-C ends sees no Variable",
        "staged/passes/memory/variable_lives.py",
        "self.uses[starts[-1]] |= self.at_stop",
        "self.uses[starts[-1]] |= 0",
        ("tests/passes/memory/test_variable_lives.py", "-k", "ctrl_c"),
    ),
    Mutant(
        "a call whose loop Ctrl-C ends sees no Variable",
        "staged/passes/memory/variable_lives.py",
        "self.uses[start] |= self.at_stop  # there may be loops in it",
        "self.uses[start] |= 0",
        ("tests/passes/memory/test_variable_lives.py", "-k", "ctrl_c"),
    ),
    Mutant(
        "an array scattered into itself is changed in place",
        "staged/kernels/parts.py",
        "shared = changed in self.op.operands[1:]",
        "shared = False",
        ("tests/passes/memory/test_plan_of_programs.py", "-k", "scattered_into_itself and host"),
    ),
    Mutant(
        "what may stop the program is made in front of the reverse loop",
        "staged/autodiff/residuals.py",
        "                and not producer.effects\n",
        "",
        ("tests/autodiff/test_loops_that_never_run.py",),
    ),
    Mutant(
        "a branch without a region copies its result to the device and back",
        HOMES,
        "op not in self.run_once or result in self.computed_on_device",
        "True or result in self.computed_on_device",
        ("tests/passes/placement/test_place.py", "-k", "branch"),
    ),
    Mutant(
        "what a loop chooses on a device is copied in every iteration",
        HOMES,
        "op not in self.run_once or result in self.computed_on_device",
        "result in self.computed_on_device",
        ("tests/passes/placement/test_place.py", "-k", "chooses"),
    ),
    Mutant(
        "what a device computes with comes from the host",
        HOMES,
        "result in self.computed_on_device or not isinstance",
        "not isinstance",
        ("tests/passes/placement/test_place.py", "-k", "computes_with"),
    ),
    Mutant(
        "the host's peak has the device's values in it",
        PLAN,
        "peak(buffer for buffer in placed if buffer.device == device)",
        "peak(buffer for buffer in placed)",
        ("tests/backends/cublas_cudnn/test_memory_report.py",),
    ),
)
