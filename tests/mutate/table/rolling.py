"""Planted faults of loops over layers: what may be rolled, families of Variables, updates in the backward loop."""

from tests.mutate.mutant import Mutant

GROUPS = "tests/kernels/test_groups.py"
REGIONS = "tests/backends/cublas_cudnn/test_layers.py"
ROLL = "tests/passes/rolling/test_roll.py"
UPDATES = "tests/passes/rolling/test_updates.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a family may have a Variable twice",
        "passes.rolling.families:_again",
        "if ref in since: ...",
        "if False: ...",
        (ROLL, "-k", "another_order and loop"),
    ),
    Mutant(
        "complex Variables make a family",
        "passes.rolling.pieces:may_be_family",
        "not first.part and not first.members and not first.type.dtype.is_complex",
        "not first.part and not first.members",
        (ROLL, "-k", "complex_weights and equal"),
    ),
    Mutant(
        "a row of reads need not be a family",
        "passes.rolling.families:Planner._reads",
        "len(set(refs)) > 1 and not may_be_family(refs)",
        "False",
        (ROLL, "-k", "complex_weights and equal"),
    ),
    Mutant(
        "a member of a family is computed where the number of its place is not known yet",
        "backends.host.body:BodyEmitter.member",
        "self.scalar(number) if known is None else Literal(str(known))",
        "self.scalar(number)",
        (ROLL, "-k", "program_computes and bits"),
    ),
    Mutant(
        "the caller passes no members of families to a program with functions",
        "ir.functions:with_call_effects",
        "if function is program: ...",
        "if False: ...",
        (ROLL, "-k", "recursive_function and bits"),
    ),
    Mutant(
        "a Variable is written before a loop that may stop the program",
        "passes.memory.variables:_may_leave",
        "_leaves(op) or _may_stop(op) or any(map(_may_stop, _inside(op)))",
        "_leaves(op) or _may_stop(op)",
        (ROLL, "-k", "before_the_write_stops"),
    ),
    Mutant(
        "a kernel may read a weight in any order and write it",
        "passes.memory.variables:_is_place_free",
        "meets and stop == begin",
        "stop == begin",
        (ROLL, "-k", "read_backwards and bits"),
    ),
    Mutant(
        "a loop copies the next value, since the value is read late",
        "kernels.steps:Steps.read_before_replaced",
        "self.order(node, maker)",
        "pass",
        (GROUPS, "-k", "takes_its_place"),
    ),
    Mutant(
        "what needs the next value too runs before it",
        "kernels.steps:Steps.read_before_replaced",
        "node is not None and not node.before >> maker.number & 1",
        "node is not None",
        (GROUPS, "-k", "with_the_next_one"),
    ),
    Mutant(
        "a loop behind a step never stops at Ctrl-C",
        "backends.host.structure:step_of",
        "range(first, writes[-1] + 1)",
        "range(first, len(block.ops))",
        (ROLL, "-k", "ctrl_c"),
    ),
    Mutant(
        "an update joins a loop that counts other numbers than layers",
        "passes.rolling.updates:_is_by_layer",
        '[constant_of(bound) for bound in loop.bounds] == [0, len_of(op), 1]',
        'True',
        (UPDATES, "-k", "counts_its_layers"),
    ),
    Mutant(
        "an update joins no loop that scales gradients",
        "passes.rolling.updates:_is_by_layer",
        'loop.by_index or is_whole',
        'loop.by_index',
        (UPDATES, "-k", "counts_its_layers"),
    ),
    Mutant(
        "a read comes before a write of its Variable",
        "passes.rolling.updates:_may_move",
        'op in early and _targets([op], "read") & written',
        'False',
        (UPDATES, "-k", "rate_that_is_written"),
    ),
    Mutant(
        "a weight is updated before it is read",
        "passes.rolling.updates:_pair",
        '(*early, *rest)',
        'early',
        (UPDATES, "-k", "weight_that_is_read"),
    ),
    Mutant(
        "what two updates need early is there twice",
        "passes.rolling.updates:_pair",
        '[op for op in ops[number + 1 : later] if op not in moved]',
        'ops[number + 1 : later]',
        (UPDATES, "-k", "share"),
    ),
    Mutant(
        "reads of all layers are a loop of copies",
        "passes.rolling.families:is_layered",
        'all(op.declared is VARIABLE_READ for op in chain.pieces[0])',
        'False',
        ("tests/backends/host/test_saved.py", "-k", "deep"),
    ),
    Mutant(
        "layers with numbers of their own become loops in a region",
        "passes.rolling.roll:_has_numbers",
        "any(not type.shape for type in types)",
        "False",
        (REGIONS, "-k", "batch_norm and equal"),
    ),
    Mutant(
        "layers on the host become loops in a program with a device",
        "passes.rolling.roll:_is_on_host",
        "inner.device == CPU and inner.results",
        "False",
        (REGIONS, "-k", "two_devices"),
    ),
    Mutant(
        "a counter of random numbers counts in the loop",
        "passes.rolling.roll:_Roller.step_of",
        "not self.has_device or not isinstance(first.type, TensorType) or first.type != TensorType(i64)",
        "True",
        (REGIONS, "-k", "one_graph"),
    ),
    Mutant(
        "a member of an array of the device begins at a multiple of 16 bytes",
        "backends.gpu.alignment:Alignments.of",
        "family is not None and family.outer",
        "family is not None",
        ("tests/backends/gpu/test_alignment.py", "-k", "member"),
    ),
    Mutant(
        "members of a family have one value for a device",
        "passes.placement.merge_reads:_Merger.op",
        "op.operands in known",
        "known",
        ("tests/passes/placement/test_host_values.py", "-k", "members"),
    ),
    Mutant(
        "addresses of layers are not known to graphs",
        "backends.cublas_cudnn.graphs:Graphs.known",
        '{f"known_{name}": name for name in self.arguments if name in arrays}',
        "{}",
        (REGIONS, "-k", "know_where"),
    ),
)
