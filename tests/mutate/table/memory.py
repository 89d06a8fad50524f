"""Planted faults of the memory plan, of placement, and of what derivatives keep."""

from tests.mutate.mutant import Mutant

ON_MEMORY = ("tests/passes/memory/test_plan.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a Variable's own value does not keep others out of its buffer",
        "passes.memory.plan:_Planner.make_groups",
        "[(interval, variable) for interval in lives[variable]]",
        "[]",
        ON_MEMORY,
    ),
    Mutant(
        "all that is carried on from a written value counts as that value",
        "passes.memory.groups:Groups.interfere",
        "(value_a, value_b) == same[:2]",
        "value_b is same[1]",
        ("tests/passes/memory/test_plan_of_programs.py", "-k", "keeps_what_was_written and compiled"),
    ),
    Mutant(
        "a written value may be computed while the Variable's old one is needed",
        "passes.memory.groups:Groups.interfere",
        "same is not None and (value_a, value_b) == same[:2] and start_b >= same[2]",
        "same is not None and (value_a, value_b) == same[:2]",
        ON_MEMORY,
    ),
    Mutant(
        "a value that something else is written over stays in the Variable",
        "passes.memory.variables:join_variables",
        "any(start < position <= end for start, end in spans for position in others)",
        "False",
        ON_MEMORY,
    ),
    Mutant(
        "results that share the caller's array are not one group",
        "passes.memory.plan:_Planner.join_outputs",
        "for other in others:\n"
        "    self.groups.merge(group, other)",
        "",
        ON_MEMORY,
    ),
    Mutant(
        "a read of a Variable that is written meanwhile is no copy",
        "passes.memory.variables:copied_reads",
        "start < write < end",
        "start > write > end",
        ON_MEMORY,
    ),
    Mutant(
        "a loop's buffer is free where an end passes values on",
        "passes.memory.plan:_Planner.hold_loops",
        "self.groups.hold(param, position, position)",
        "",
        ON_MEMORY,
    ),
    Mutant(
        "values that change places in a loop are not taken aside",
        "passes.memory.staging:staging_buffers",
        "source in targets",
        "source not in targets",
        ON_MEMORY,
    ),
    Mutant(
        "results that are read from one another's places are not taken aside",
        "passes.memory.staging:staging_buffers",
        "source is not outputs[index]",
        "source is outputs[index]",
        ON_MEMORY,
    ),
    Mutant(
        "an operand may be overwritten though the op reads it in another way too",
        "passes.memory.plan:_Planner.allow_touching",
        "all((result, number) in pairs for number in uses)",
        "any((result, number) in pairs for number in uses)",
        ON_MEMORY,
    ),
    Mutant(
        "what a loop reads from outside is dead after its first iteration",
        "passes.memory.liveness:_Backward.loop",
        "r.finish[op]",
        "r.start[op]",
        ON_MEMORY,
    ),
    Mutant(
        "lives that meet in a position may share memory",
        "passes.memory.offsets:overlap",
        "a[i][1] < b[j][0]",
        "a[i][1] <= b[j][0]",
        ON_MEMORY,
    ),
    Mutant(
        "a frame's field is made where another value is needed later",
        "passes.memory.frames:join_frames",
        "end >= saved",
        "end > groups.live.length",
        ON_MEMORY,
    ),
    Mutant(
        "what is carried out of an iteration is made in the iteration's slot",
        "passes.memory.residual_slots:_join_slot",
        "start < first or end > last",
        "start < first and end > last",
        ("tests/passes/memory/test_residual_slots.py",),
    ),
    Mutant(
        "a write of a Variable does not end the life of its old value",
        "passes.memory.variable_lives:_Flow.before",
        "after & ~self.writes[position]",
        "after",
        ("tests/passes/memory/test_plan.py::test_a_training_step_updates_parameters_in_place_and_reuses_activations",),
    ),
    Mutant(
        "a loop that Ctrl-C ends sees no Variable",
        "passes.memory.variable_lives:_Flow.op",
        "self.uses[starts[-1]] |= self.at_stop",
        "self.uses[starts[-1]] |= 0",
        ("tests/passes/memory/test_variable_lives.py", "-k", "ctrl_c"),
    ),
    Mutant(
        "a call whose loop Ctrl-C ends sees no Variable",
        "passes.memory.variable_lives:_Flow.op",
        "if op.declared is CALL:\n"
        "    self.uses[start] |= self.at_stop",
        "if op.declared is CALL:\n"
        "    self.uses[start] |= 0",
        ("tests/passes/memory/test_variable_lives.py", "-k", "ctrl_c"),
    ),
    Mutant(
        "an array scattered into itself is changed in place",
        "kernels.parts:Parts.begin",
        "changed in self.op.operands[1:]",
        "False",
        ("tests/passes/memory/test_plan_of_programs.py", "-k", "scattered_into_itself and host"),
    ),
    Mutant(
        "what may stop the program is made in front of the reverse loop",
        "autodiff.residuals:_Fetcher.is_invariant",
        "not producer.effects",
        "True",
        ("tests/autodiff/test_loops_that_never_run.py",),
    ),
    Mutant(
        "a branch without a region copies its result to the device and back",
        "passes.placement.devices:Placement.meet",
        "op not in self.run_once",
        "True",
        ("tests/passes/placement/test_place.py", "-k", "branch"),
    ),
    Mutant(
        "what a loop chooses on a device is copied in every iteration",
        "passes.placement.devices:Placement.meet",
        "op not in self.run_once or result in self.computed_on_device or not isinstance(result.type, TensorType)",
        "result in self.computed_on_device or not isinstance(result.type, TensorType)",
        ("tests/passes/placement/test_place.py", "-k", "chooses"),
    ),
    Mutant(
        "what a device computes with comes from the host",
        "passes.placement.devices:Placement.meet",
        "op not in self.run_once or result in self.computed_on_device or not isinstance(result.type, TensorType)",
        "op not in self.run_once or not isinstance(result.type, TensorType)",
        ("tests/passes/placement/test_place.py", "-k", "computes_with"),
    ),
    Mutant(
        "the host's peak has the device's values in it",
        "passes.memory.plan:_Planner.finish",
        "(buffer for buffer in placed if buffer.device == device)",
        "(buffer for buffer in placed)",
        ("tests/backends/cublas_cudnn/test_memory_report.py",),
    ),
)
