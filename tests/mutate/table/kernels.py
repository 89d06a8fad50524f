"""Planted faults of fusion, of loop nests, and of how they become loops over vectors."""

from tests.mutate.mutant import Mutant

GROUPS = "staged/kernels/groups.py"
LANES = "staged/backends/c_family/support/lanes.py"
PRODUCTS = "staged/kernels/products.py"
ON_FUSION = ("tests/kernels/test_groups.py",)
ON_INTEGERS = ("tests/backends/c_family/test_integers_in_kernels.py", "-k", "host")
ON_REWRITES = ("tests/kernels/test_rewrites.py",)
ON_PRODUCTS = ("tests/kernels/test_products.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "tiles around a loop that carries a total",
        "staged/kernels/tile.py",
        "isinstance(s, Loop | Tile | Accumulate)",
        "isinstance(s, Loop | Tile)",
        ("tests/kernels/test_tile.py",),
    ),
    Mutant(
        "what a guard says of a column is taken for the column of a tile",
        "staged/backends/c_family/cpu_nest/epilogue.py",
        "low.origins[over_columns.axis] = col",
        "low.origins[over_columns.axis] = ZERO",
        ("tests/backends/c_family/test_guarded_epilogues.py", "-k", "plain-70"),
    ),
    Mutant(
        "the last vector is repeated where a loop reads what it writes",
        "staged/backends/c_family/cpu_nest/vector_plan.py",
        "return pays and not read & written",
        "return pays",
        ("tests/backends/c_family/test_vector_plan.py",),
    ),
    Mutant(
        "the lanes of a repeated vector are summed twice",
        "staged/backends/c_family/cpu_nest/vector_totals.py",
        'if self.repeated and op == "sum":',
        'if self.repeated and op == "prod":',
        ("tests/backends/c_family/test_vector_plan.py",),
    ),
    Mutant(
        "a repeated vector may lie where its operand does",
        "staged/backends/c_family/cpu_nest/kernel.py",
        "if nest.outputs[pair[0]] not in stored_twice",
        "if nest.outputs[pair[0]] not in ()",
        ("tests/backends/c_family/test_vector_plan.py",),
    ),
    Mutant(
        "any index counts as the one that is written",
        "staged/kernels/lower.py",
        "not s.guards and same_index(s.index, store.index)",
        "not s.guards",
        ON_FUSION,
    ),
    Mutant(
        "an array may be overwritten before it is read",
        "staged/kernels/lower.py",
        "if all(n < stores[0] and not s.guards",
        "if all(not s.guards",
        ("tests/kernels/test_lower.py",),
    ),
    Mutant(
        "a group takes from outside what is made of its own results",
        GROUPS,
        "if not apart and self.feeds_itself(ops):",
        "if not apart and False:",
        ("tests/regressions/test_fusion.py", "-k", "own_group"),
    ),
    Mutant(
        "two groups become one though another step must run between them",
        GROUPS,
        "if not self.steps.may_run_together(a, b):",
        "if False:",
        ON_FUSION,
    ),
    Mutant(
        "every second element is a view",
        GROUPS,
        'if op.declared is prims.SLICE and any(step != 1 for step in op.attrs.get("step", ())):',
        'if op.declared is prims.SLICE and any(step < 1 for step in op.attrs.get("step", ())):',
        ON_FUSION,
    ),
    Mutant(
        "a piece of inner axes is a view",
        GROUPS,
        "return after[leading + 1 :] == before[leading + 1 :]",
        "return len(after) == len(before)",
        ON_FUSION,
    ),
    Mutant(
        "what may fail is dropped where its result is unused",
        GROUPS,
        "if self.used_outside(result, inside) or (may_fail(op) and not self.steps.users.get(result))",
        "if self.used_outside(result, inside)",
        ON_FUSION,
    ),
    Mutant(
        "an epilogue takes elements of a product that its tile does not have",
        "staged/kernels/epilogue.py",
        "if moved or isinstance(statement, LoadPair) or statement.guards:",
        "if isinstance(statement, LoadPair):",
        ON_FUSION,
    ),
    Mutant(
        "an epilogue makes what its own product needs",
        GROUPS,
        "if needed or feeding.ops[0].device != root.device or",
        "if feeding.ops[0].device != root.device or",
        ("tests/kernels/test_groups.py", "-k", "only_an_epilogue"),
    ),
    Mutant(
        "a number that is put into an array made of it is not found",
        "staged/kernels/lower_alone.py",
        "if value in self.number:\n            held",
        "if True:\n            held",
        ("tests/kernels/test_lower_alone.py",),
    ),
    Mutant(
        "a long reduction leaves out its first axes",
        "staged/kernels/split.py",
        "return [_reduce(op, builder, parts, op.results[0].tensor, tuple(range(first)))]",
        "return [_reduce(op, builder, parts, op.results[0].tensor, tuple(range(1, first)))]",
        ("tests/kernels/test_groups.py", "-k", "long"),
    ),
    Mutant(
        "small integers have no extremes of whole vectors",
        LANES,
        'for dtype in ("f32", "f64", "i32", "i64", "u8", "u32"):',
        'for dtype in ("f32", "f64", "i32", "i64", "u32"):',
        ON_INTEGERS,
    ),
    Mutant(
        "the largest of the lanes forgets their upper half",
        LANES,
        'f"    memcpy(&{high}, (const char *){source} + {last}, {last});",',
        'f"    memcpy(&{high}, (const char *){source}, {last});",',
        ON_INTEGERS,
    ),
    Mutant(
        "the result of a product lies where the product reads",
        PRODUCTS,
        "if operands.count(operands[i]) == 1",
        "if operands.count(operands[i]) > 0",
        ON_PRODUCTS,
    ),
    Mutant(
        "sums of floats in vectors, where columns are too few",
        "staged/kernels/candidates.py",
        "    elif not is_float:",
        "    else:",
        ON_PRODUCTS,
    ),
    Mutant(
        "the columns of a transposed operand are taken for its rows",
        "staged/ir/products.py",
        "Affine.of(inner, 1 if turned_b else n)",
        "Affine.of(inner, n)",
        ON_PRODUCTS,
    ),
    Mutant(
        "iterations that touch one element change places",
        "staged/ir/rewrites.py",
        "def keeps(free: Sequence[Axis]) -> bool:\n",
        "def keeps(free: Sequence[Axis]) -> bool:\n            return True\n",
        ON_REWRITES,
    ),
    Mutant(
        "a total goes on in another loop",
        "staged/ir/rewrites.py",
        '            if loop.reductions:\n                raise illegal(\n                    self, f"the total',
        '            if False:\n                raise illegal(\n                    self, f"the total',
        ON_REWRITES,
    ),
    Mutant(
        "a padded loop adds to its total",
        "staged/ir/rewrites.py",
        "if isinstance(s, Accumulate) and s.reduction not in inside:\n                raise",
        "if False:\n                raise",
        ON_REWRITES,
    ),
    Mutant(
        "a state is merged with what it has become",
        "staged/backends/c_family/nest/totals.py",
        "low.uses[compute.target] = SEVERAL",
        "low.uses[compute.target] = (1, 0)",
        ("tests/kernels/test_attention.py",),
    ),
    Mutant(
        "what is not there is stored",
        "staged/ir/rewrites.py",
        "out.append(Guarded((bound,), tuple(rest)))",
        "out.extend(rest)",
        ON_REWRITES,
    ),
    Mutant(
        "a panel is copied without the guards around what is read",
        "staged/ir/rewrites.py",
        "guards, fill = (*first.guards, *around), first.fill",
        "guards, fill = first.guards, first.fill",
        ON_REWRITES,
    ),
    Mutant(
        "a strip is not as long as it is said",
        "staged/ir/rewrites.py",
        "Affine.of(outer, self.size) + Affine.of(inner)",
        "Affine.of(outer, self.size - 1) + Affine.of(inner)",
        ON_REWRITES,
    ),
    Mutant(
        "places of totals overlap",
        "staged/ir/named_loops.py",
        "index, size = Affine.of(axis, size) + index, size * axis.extent",
        "index, size = Affine.of(axis, size) + index, size + axis.extent",
        ON_REWRITES,
    ),
    Mutant(
        "iterations that write one element are items",
        "staged/ir/dependences.py",
        "- min(low for low, _ in reaches) < abs(step)",
        "< 1 << 40",
        ON_REWRITES,
    ),
)
