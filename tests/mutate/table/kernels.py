"""Planted faults of fusion, of loop nests, and of how they become loops over vectors."""

from tests.mutate.mutant import Mutant, Text

ON_FUSION = ("tests/kernels/test_groups.py",)
ON_INTEGERS = ("tests/backends/host/test_integers_in_kernels.py", "-k", "host")
ON_REWRITES = ("tests/kernels/test_rewrites.py",)
ON_PROLOGUES = ("tests/kernels/test_prologues.py",)
ON_PRODUCTS = ("tests/kernels/test_products.py",)
ON_CONVOLUTIONS = ("tests/kernels/test_convolution_nests.py",)
ON_PLANES = ("tests/backends/host/test_contraction_conv2d.py", "-k", "padded or many_items")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "compilers may contract the user's products and sums",
        "runtime.compiler:BASE_FLAGS",
        Text("-ffp-contract=off"),
        "-ffp-contract=fast",
        ("tests/programs/test_contraction.py", "-k", "bits"),
    ),
    Mutant(
        "tiles around a loop that carries a total",
        "kernels.tile:_is_crosswise",
        "Loop | Tile | Accumulate",
        "Loop | Tile",
        ("tests/kernels/test_tile.py",),
    ),
    Mutant(
        "what a guard says of a column is taken for the column of a tile",
        "backends.cpu.nest.epilogue:emit_epilogue",
        "low.origins[over_columns.axis] = col",
        "low.origins[over_columns.axis] = ZERO",
        ("tests/backends/host/test_guarded_epilogues.py", "-k", "convolution"),
    ),
    Mutant(
        "the last vector is repeated where a loop reads what it writes",
        "backends.cpu.nest.vector_plan:may_repeat",
        "pays and not read & written",
        "pays",
        ("tests/backends/host/test_vector_plan.py",),
    ),
    Mutant(
        "the lanes of a repeated vector are summed twice",
        "backends.cpu.nest.vector_totals:VectorTotals.accumulate",
        "self.repeated and not s.reduction.op.is_extreme",
        "False",
        ("tests/backends/host/test_vector_plan.py",),
    ),
    Mutant(
        "a repeated vector may lie where its operand does",
        "backends.cpu.nest.kernel:in_place_pairs",
        "nest.outputs[pair[0]] not in stored_twice",
        "nest.outputs[pair[0]] not in ()",
        ("tests/backends/host/test_vector_plan.py",),
    ),
    Mutant(
        "any index counts as the one that is written",
        "kernels.lower:find_in_place",
        "n < stores[0] and not s.guards and same_index(s.index, store.index)",
        "n < stores[0] and not s.guards",
        ON_FUSION,
    ),
    Mutant(
        "an array may be overwritten before it is read",
        "kernels.lower:find_in_place",
        "n < stores[0] and not s.guards and same_index(s.index, store.index)",
        "not s.guards and same_index(s.index, store.index)",
        ("tests/kernels/test_lower.py",),
    ),
    Mutant(
        "a group takes from outside what is made of its own results",
        "kernels.groups:Groups.apart",
        "self.feeds_itself(ops, outside)",
        "False",
        ("tests/regressions/test_fusion.py", "-k", "own_group"),
    ),
    Mutant(
        "two groups become one though another step must run between them",
        "kernels.groups:Groups.obstacle",
        "not self.steps.may_run_together(a, b)",
        "False",
        ON_FUSION,
    ),
    Mutant(
        "every second element is a view",
        "kernels.groups:is_view",
        '(step != 1 for step in op.attrs.get("step", ()))',
        '(step < 1 for step in op.attrs.get("step", ()))',
        ON_FUSION,
    ),
    Mutant(
        "a piece of inner axes is a view",
        "kernels.groups:is_view",
        "after[leading + 1 :] == before[leading + 1 :]",
        "len(after) == len(before)",
        ON_FUSION,
    ),
    Mutant(
        "what may fail is dropped where its result is unused",
        "kernels.groups:Groups.leaving",
        "may_fail(op) and not self.steps.users.get(result)",
        "False",
        ON_FUSION,
    ),
    Mutant(
        "an epilogue takes elements of a product that its tile does not have",
        "kernels.epilogue:_check_accumulator",
        "moved or isinstance(statement, LoadPair) or statement.guards",
        "isinstance(statement, LoadPair)",
        ON_FUSION,
    ),
    Mutant(
        "an epilogue makes what its own product needs",
        "kernels.groups:Groups.join_inputs",
        "needed or feeding.ops[0].device != root.device or len(node.ops) + len(feeding.ops) > MAX_OPS",
        "feeding.ops[0].device != root.device or len(node.ops) + len(feeding.ops) > MAX_OPS",
        ("tests/kernels/test_groups.py", "-k", "only_an_epilogue"),
    ),
    Mutant(
        "a number that is put into an array made of it is not found",
        "kernels.parts:Parts.element",
        "value in self.number",
        "True",
        ("tests/kernels/test_lower_alone.py",),
    ),
    Mutant(
        "a loop over rows of a scan becomes threads of one total",
        "backends.gpu.mapping:_holds_all_effects.visit",
        "case Accumulate(total) | Take(total): ...",
        "case Accumulate(total): ...",
        ("tests/ops/test_cumulative.py", "-k", "on_a_device"),
    ),
    Mutant(
        "running totals of columns are added up in pieces, like sums",
        "ir.rows_of_sums:rows_of",
        "made is not None and made.op is prims.ADD and before in made.operands and read.count(value) == 1",
        "made is not None and made.op is prims.ADD and before in made.operands",
        ("tests/ops/test_cumulative.py", "-k", "many_columns"),
    ),
    Mutant(
        "a long reduction leaves out its first axes",
        "kernels.split:_split",
        "range(first)",
        "range(1, first)",
        ("tests/kernels/test_groups.py", "-k", "long"),
    ),
    Mutant(
        "small integers have no extremes of whole vectors",
        "code.support.lanes:_reduce_snippets",
        "for dtype in _ITEMS: ...",
        'for dtype in ("f32", "f64", "i32", "i64", "u32"): ...',
        ON_INTEGERS,
    ),
    Mutant(
        "the largest of the lanes forgets their upper half",
        "code.support.lanes:_reduce",
        Text(" + {last}"),
        "",
        ON_INTEGERS,
    ),
    Mutant(
        "the result of a product lies where the product reads",
        "kernels.products:product_kernel",
        "operands.count(operands[i]) == 1",
        "operands.count(operands[i]) > 0",
        ON_PRODUCTS,
    ),
    Mutant(
        "sums of floats in vectors, where columns are too few",
        "kernels.candidates:in_vectors",
        "directives: list[Directive] = []\n"
        "if lanes > 1:\n"
        "    width = machine.vector_bytes // vector_lanes(column, machine)\n"
        "    directives.append(Vectorise((column.axis,), lanes, frozenset((column,)), width))\n"
        "elif not is_float:\n"
        "    return (nest, schedule(nest, machine))",
        "directives: list[Directive] = []\n"
        "if lanes > 1:\n"
        "    width = machine.vector_bytes // vector_lanes(column, machine)\n"
        "    directives.append(Vectorise((column.axis,), lanes, frozenset((column,)), width))\n"
        "else:\n"
        "    return (nest, schedule(nest, machine))",
        ON_PRODUCTS,
    ),
    Mutant(
        "the columns of a transposed operand are taken for its rows",
        "ir.products:product_nest",
        "1 if turned_b else n",
        "n",
        ON_PRODUCTS,
    ),
    Mutant(
        "iterations that touch one element change places",
        "ir.rewrites:Reorder.check.keeps",
        "names = [axis.name for axis in free]",
        "return True\n"
        "names = [axis.name for axis in free]",
        ON_REWRITES,
    ),
    Mutant(
        "a total goes on in another loop",
        "ir.rewrites:Divide.apply.change",
        "if loop.reductions: ...",
        "if False: ...",
        ON_REWRITES,
    ),
    Mutant(
        "a padded loop adds to its total",
        "ir.rewrites:Pad.padded",
        "isinstance(s, Accumulate) and s.reduction not in inside",
        "False",
        ON_REWRITES,
    ),
    Mutant(
        "a state is merged with what it has become",
        "code.nest.totals:Totals.take",
        "low.uses[compute.target] = SEVERAL",
        "low.uses[compute.target] = (1, 0)",
        ("tests/kernels/test_attention.py",),
    ),
    Mutant(
        "what is not there is stored",
        "ir.rewrites:Pad.padded",
        "out.append(Guarded((bound,), tuple(rest)))",
        "out.extend(rest)",
        ON_REWRITES,
    ),
    Mutant(
        "a panel is copied without the guards around what is read",
        "ir.storage_rewrites:Pack.packed",
        "(*first.guards, *around)",
        "first.guards",
        ON_REWRITES,
    ),
    Mutant(
        "a strip is not as long as it is said",
        "ir.rewrites:StripMine.apply.change",
        "Affine.of(outer, self.size)",
        "Affine.of(outer, self.size - 1)",
        ON_REWRITES,
    ),
    Mutant(
        "places of totals overlap",
        "ir.named_loops:row_major_over",
        "size * axis.extent",
        "size + axis.extent",
        ON_REWRITES,
    ),
    Mutant(
        "a longer tail does not end with its loop",
        "ir.rewrites:Divide.apply.change",
        "axis.extent - tail",
        "self.at",
        ON_REWRITES,
    ),
    Mutant(
        "an operand is read again where a result was written",
        "ir.rewrites:Divide.check_repeated",
        "array in read or operands.get(array) in read",
        "array in read",
        ON_REWRITES,
    ),
    Mutant(
        "iterations that write one element are items",
        "ir.dependences:_are_apart",
        "max(high for _, high in fixed) - min(low for low, _ in fixed) < abs(step)",
        "max(high for _, high in fixed) < 1 << 40",
        ON_REWRITES,
    ),
    Mutant(
        "columns of the next row are taken for others",
        "ir.dependences:_never_meet",
        "not row or 0 <= low and most < row",
        "True",
        ON_REWRITES,
    ),
    Mutant(
        "the last block of a transposed panel begins after the row's end",
        "backends.cpu.nest.copies:Copies.transpose",
        "extent - lanes",
        "extent - lanes + 1",
        ON_PRODUCTS,
    ),
    Mutant(
        "the planes of an image begin below its padding",
        "backends.cpu.contraction.convolve:_sizes",
        "-window.padding[0]",
        "0",
        ON_PLANES,
    ),
    Mutant(
        "the planes of an image begin beside its padding",
        "backends.cpu.contraction.planes:_fields",
        "first - window.padding[1]",
        "first",
        ON_PLANES,
    ),
    Mutant(
        "loops with gaps between them are fused",
        "ir.rewrites:Fuse.apply.change.without_outer",
        "index.stride(outer) != step * inner.extent",
        "index.stride(outer) < step * inner.extent",
        ON_REWRITES,
    ),
    Mutant(
        "a window that goes back begins where one that goes on does",
        "ir.storage_rewrites:Pack.packed",
        "sum(min(0, far) for far in reach)",
        "0",
        ON_CONVOLUTIONS,
    ),
    Mutant(
        "a window's steps are taken from one index alone",
        "ir.storage_rewrites:Pack.steps",
        "0 in steps or found is not None and steps != found",
        "False",
        ON_REWRITES,
    ),
    Mutant(
        "the prologue of a transposed operand is that of another element",
        "ir.products:product_nest",
        "(matrix, second, first) if is_turned else (matrix, first, second)",
        "(matrix, first, second)",
        ON_PROLOGUES,
    ),
    Mutant(
        "the inputs of two prologues are exchanged",
        "ir.products:product_nest",
        "(each for prologue in prologues if prologue is not None for each in prologue.inputs[1:])",
        "(each for prologue in reversed(prologues) if prologue is not None for each in prologue.inputs[1:])",
        ON_PROLOGUES,
    ),
    Mutant(
        "a row of a spilled tile has no pointers",
        "code.nest.loops:Loops.bases_of_row",
        "frozenset((row.axis,))",
        "frozenset()",
        ("tests/kernels/test_tile_calls.py", "-k", "spilled"),
    ),
    Mutant(
        "equal zeros are copied from one Variable to another",
        "backends.host.variables:Variables.emit_write",
        "fill is not None and fill.device == CPU and is_zero_fill(fill)",
        "fill is not None and False",
        ("tests/backends/native/test_short_kernels.py", "-k", "equal_zeros"),
    ),
    Mutant(
        "the rest of rows of bytes is summed up twice",
        "backends.cpu.contraction.dots:_Emitter.emit_tile",
        'self.emit_step(rows, columns, "k", " & last")',
        'self.emit_step(rows, columns, "k", "")',
        ("tests/backends/host/test_contraction_dots.py", "-k", "exact and native"),
    ),
    Mutant(
        "signs that are turned for an instruction stay turned",
        "backends.cpu.contraction.dots:_Emitter.emit_tile",
        "f\"total[{added(times(columns, 'r'), 's')}] -= offset[s];\"",
        "f\"total[{added(times(columns, 'r'), 's')}] -= 0u * offset[s];\"",
        ("tests/backends/host/test_contraction_dots.py", "-k", "exact and native"),
    ),
    Mutant(
        "sums of bytes do not start below zero by what operands without signs add",
        "backends.cpu.contraction.byte_tiles:_Emitter.emit_panel_copy",
        't.line("start[v] = -sums[v];")',
        't.line("start[v] = 0u * sums[v];")',
        ("tests/backends/host/test_contraction_bytes.py", "-k", "some_sums"),
    ),
    Mutant(
        "the last columns of a block of bytes are left out",
        "code.support.dots:_INTERLEAVE",
        Text("memcpy(target, turned, (size_t)(4 * columns));"),
        "memcpy(target, turned, (size_t)(4 * columns - 4));",
        ("tests/backends/host/test_contraction_bytes.py", "-k", "some_sums"),
    ),
    Mutant(
        "a library takes a transposed operand for a plain one",
        "backends.cpu.contraction.blas:_form",
        "_TRANSPOSED, max(column, rows)",
        "_PLAIN, max(column, rows)",
        ("tests/runtime/test_blas.py", "-k", "forms"),
    ),
    Mutant(
        "an exported folder does not link the library",
        "backends.host.program:ProgramEmitter.run",
        "(*self.link(), *libraries(own), *dict.fromkeys(flag for kernel in ordered for flag in kernel.link))",
        "(*self.link(), *libraries(own))",
        ("tests/runtime/test_blas.py", "-k", "exported"),
    ),
)
