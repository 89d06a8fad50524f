"""Planted faults of how kernels are spread over a GPU's threads, and of graphs."""

from tests.mutate.mutant import Mutant

GPU = "staged/backends/cublas_cudnn/"
FAMILY = "staged/backends/gpu_family/"
TESTS = "tests/backends/cublas_cudnn/"
ON_SCATTER = (f"{TESTS}test_scatter.py", "-k", "rows_are_added or keeps_the_sign")
ON_TEAMS = (f"{TESTS}test_teams.py",)
ON_MAPPING = ("tests/backends/gpu_family/test_mapping.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a column's total is read from the wrong thread by all but the first warp",
        f"{GPU}reductions.py",
        '"    return parts[threadIdx.x % 32];\\n"',
        '"    return parts[threadIdx.x];\\n"',
        (f"{TESTS}test_reductions.py", "-k", "same_total"),
    ),
    Mutant(
        "the place of a column's extreme is that of another column",
        f"{GPU}reductions.py",
        '"    *place = places[threadIdx.x % 32];\\n"',
        '"    *place = places[threadIdx.x];\\n"',
        (f"{TESTS}test_reductions.py", "-k", "same_total"),
    ),
    Mutant(
        "a team overwrites an operand that an unsynchronised loop still reads",
        f"{FAMILY}teams.py",
        "if not all(isinstance(s, Loop) and (s.reductions or s is loops[-1]) for s in reading):",
        "if not all(isinstance(s, Loop) for s in reading):",
        ON_TEAMS,
    ),
    Mutant(
        "a team overwrites an operand whose elements are other threads'",
        f"{FAMILY}teams.py",
        "return len({tuple(axis.extent for axis in chain_of(s)[0]) for s in loops}) == 1",
        "return True",
        ON_TEAMS,
    ),
    Mutant(
        "threads share iterations that read what other iterations write",
        f"{FAMILY}teams.py",
        "if any(isinstance(t, Load) and t.array in stored for t in walk(inner)):",
        "if False:",
        ON_TEAMS,
    ),
    Mutant(
        "threads share iterations that write one element",
        f"{FAMILY}teams.py",
        "return all(index.stride(axis) for axis in axes if axis.extent > 1)",
        "return True",
        ON_TEAMS,
    ),
    Mutant(
        "a wrong index of an axis without elements stands for its first one",
        f"{FAMILY}teams.py",
        "return isinstance(extent, int) and extent > 0",
        "return isinstance(extent, int)",
        ON_TEAMS,
    ),
    Mutant(
        "a row that is found, of one, has no place",
        f"{FAMILY}nest/kernel.py",
        "low.axes.update(dict.fromkeys(part.axes, ZERO))",
        "low.axes.update({})",
        ON_SCATTER,
    ),
    Mutant(
        "of several rows for one place the first stands",
        f"{FAMILY}scatter.py",
        'total = Reduction(Local("last", i64), "max")',
        'total = Reduction(Local("last", i64), "min")',
        ON_SCATTER,
    ),
    Mutant(
        "rows that nothing is meant for become zeros",
        f"{FAMILY}scatter.py",
        'end.append(Compute(result, "select", (found, update, base), {}))',
        'end.append(Compute(result, "select", (found, update, Constant(0.0 if dtype.is_float else 0, dtype)), {}))',
        ON_SCATTER,
    ),
    Mutant(
        "every element takes what is meant for any",
        f"{FAMILY}scatter.py",
        "Loop(loop.axis, (*head, Guarded(here, tuple(inner))), tuple(totals)),",
        "Loop(loop.axis, (*head, *inner), tuple(totals)),",
        ON_SCATTER,
    ),
    Mutant(
        "a zero that nothing is added to loses its sign",
        f"{FAMILY}scatter.py",
        "if is_sum and read_base and dtype.is_float:",
        "if is_sum and read_base and not dtype.is_float:",
        ON_SCATTER,
    ),
    Mutant(
        "items whose elements overlap are threads",
        f"{FAMILY}mapping.py",
        "if met and abs(stride) <= span:",
        "if met and abs(stride) < 0:",
        ON_MAPPING,
    ),
    Mutant(
        "a loop that a total runs through is threads",
        f"{FAMILY}mapping.py",
        "if over is axis and reductions:",
        "if over is axis and not reductions:",
        ON_MAPPING,
    ),
    Mutant(
        "pieces that write the same elements run side by side",
        f"{FAMILY}mapping.py",
        "return apart and max(high, high_2) - min(low, low_2) < min(steps, default=1 << 62)",
        "return max(high, high_2) - min(low, low_2) < min(steps, default=1 << 62)",
        ON_MAPPING,
    ),
    Mutant(
        "sixteen bytes are read at an address that is no multiple",
        f"{FAMILY}packs.py",
        "return whole and fits and alignment.get(s.array, 1) % (width * s.array.dtype.size) == 0",
        "return whole and fits",
        ("tests/backends/gpu_family/test_packs.py",),
    ),
    Mutant(
        "a piece that begins between packs is read in packs",
        f"{FAMILY}packs.py",
        "fits = all(step % width == 0 for step in (*steps, s.index.offset))",
        "fits = all(step % width == 0 for step in steps)",
        ("tests/backends/gpu_family/test_packs.py",),
    ),
    Mutant(
        "a permutation follows the steps in another order",
        f"{GPU}permutation_text.py",
        "before = other > step && other < before ? other : before;",
        "before = other > step ? other : before;",
        (f"{TESTS}test_random.py", "-k", "permutations"),
    ),
    Mutant(
        "kernels that share a launch overwrite what another of them reads",
        f"{FAMILY}joining.py",
        "if root_of(op.operands[operand]) not in others:",
        "if True:",
        (f"{TESTS}test_joining.py",),
    ),
    Mutant(
        "a kernel joins a launch before what it reads is made",
        f"{FAMILY}joining.py",
        "if op is None or made == at or",
        "if made == at:\n            return True\n        if op is None or",
        (f"{TESTS}test_joining.py", "-k", "waits or no_member"),
    ),
    Mutant(
        "a read of a Variable moves before a write of it",
        f"{FAMILY}joining.py",
        'return not any(effect.kind == "write" and effect.target in read for o in between for effect in o.effects)',
        "return True",
        (f"{TESTS}test_joining.py",),
    ),
    Mutant(
        "a value counts as often as it is read, and a graph has no room",
        f"{GPU}graphs.py",
        'changing |= {(factor, f"{numbers}") for factor in kernel.factors}',
        'changing |= {(factor, f"{numbers}{step.where}{len(changing)}") for factor in kernel.factors}',
        (f"{TESTS}test_graphs.py", "-k", "many_calls_read"),
    ),
    Mutant(
        "numbers that change with the iteration are frozen in a graph",
        f"{GPU}graphs.py",
        'if not (is_fixed(argument) if c_type.endswith("*") else is_written_out(argument))',
        'if not (is_fixed(argument) if c_type.endswith("*") else True)',
        (f"{TESTS}test_graphs.py", "-k", "many_calls_read or hosts"),
    ),
    Mutant(
        "arrays at changing addresses are frozen in a graph",
        f"{GPU}graphs.py",
        'if not (is_fixed(argument) if c_type.endswith("*") else is_written_out(argument))',
        'if not (True if c_type.endswith("*") else is_written_out(argument))',
        (f"{TESTS}test_graphs.py", "-k", "hosts"),
    ),
    Mutant(
        "the gradient of a pool leaves out the windows that begin further back",
        f"{FAMILY}windows.py",
        "over = -(-kernel // stride)",
        "over = max(1, kernel // stride)",
        (f"{TESTS}test_pooling.py", "-k", "same_bits or maxima"),
    ),
    Mutant(
        "the host reads an element of a device's array to give it to a kernel",
        "staged/kernels/fuse.py",
        "direct = {_as_kept(operand) for op in ops for operand in op.operands}",
        "direct = {operand for op in ops for operand in op.operands}",
        (f"{TESTS}test_fuzzed.py", "-k", "is_read_there"),
    ),
    Mutant(
        "-0.0 that is added to -0.0 makes 0.0",
        f"{FAMILY}scatter.py",
        "(is_other, is_positive)",
        "(is_other, Constant(True, bool_))",
        ON_SCATTER,
    ),
    Mutant(
        "a number with an infinite reciprocal is not added",
        f"{FAMILY}scatter.py",
        "(is_other, is_positive)",
        "(is_positive, is_positive)",
        ON_SCATTER,
    ),
)
