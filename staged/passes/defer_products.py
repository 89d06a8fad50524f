"""Weight gradients of recursive functions: many products of two vectors become a few products of matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from staged.ir.builder import Builder
from staged.ir.declaration import Declaration, prims
from staged.ir.functions import components, function_table, recursive_functions, with_call_effects
from staged.ir.nodes import Block, Effect, Function, Op, Value, VariableRef, walk_blocks, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import CALL, FOR, IF, SCOPE, VARIABLE_READ, VARIABLE_WRITE, WHILE
from staged.ir.types import CPU, TensorType, bool_, i64
from staged.ir.views import Call
from staged.source import Position

ROWS = 32
"""Products that are put off before they are added together: enough for the sum to be read from memory rarely."""
LEAST_ELEMENTS = 1 << 14
"""Elements of a sum for which it pays: a smaller one stays in the cache next to the core."""

Port = tuple[str, int]
"""A parameter that is a running sum: the function's name, the parameter's number."""


def defer_products(program: Function) -> Function:
    """In recursive functions: sum + a' b  ->  a and b are rows of two matrices A and B; once these are full, sum + A' B

    Why: adding the product of two vectors to a matrix moves all of the matrix through the processor for one
    multiplication per element. For a sum that is handed from call to call and only ever added to, the order does not
    matter. On a GPU launches dominate: two for the rows, one for the product. Leaves: A, B and the number
    of rows as Variables of the program; a call of the recursion from outside adds what is left.
    """
    recursive = recursive_functions(program)
    groups = [group for group in components(program) if set(group) <= recursive]
    table = function_table(program)
    queues: dict[Port, _Queue] = {}
    for group in groups:
        queues.update(_Sums({name: table[name] for name in group}).queues())
    if not queues:
        return program
    made = list(dict.fromkeys(queues.values()))
    names = [queue.name for queue in made]
    for number, queue in enumerate(made):
        queue.make_variables("" if names.count(queue.name) == 1 else f"_{number + 1}")
    functions = tuple(_Deferrer(function, queues).run() for function in program.functions)
    entry = _Deferrer(program, queues, made).run()
    variables = (*program.variables, *(variable for queue in made for variable in queue.variables))
    changed = entry.replace(
        functions=[function.replace(variables=variables) for function in functions],
        frames=program.frames,
        variables=variables,
    )
    return with_call_effects(changed).replace(variables=variables)


@dataclass(eq=False)
class _Queue:
    """The products that are put off for one sum."""

    type: TensorType
    name: str
    products: dict[Op, Op] = field(default_factory=dict)
    """By `add`, the product that it adds."""
    variables: tuple[VariableRef, ...] = ()

    def make_variables(self, suffix: str) -> None:
        rows, columns = self.type.shape
        left, right = TensorType(self.type.dtype, (ROWS, rows)), TensorType(self.type.dtype, (ROWS, columns))
        where = next(iter(self.products)).where
        purpose = f"rows put off: {ROWS} outer products are added to `{self.name}` as one product of matrices"
        self.variables = (
            VariableRef(f"{self.name}_left{suffix}", left, False, where=where, purpose=purpose),
            VariableRef(
                f"{self.name}_right{suffix}", right, False, where=where, purpose="the other factors of these rows"
            ),
            VariableRef(
                f"{self.name}_rows{suffix}", TensorType(i64), False, where=where, purpose="how many rows are put off"
            ),
        )


class _Sums:
    """Finds the running sums of functions that call one another which are unused until the outermost call returns."""

    def __init__(self, group: dict[str, Function]) -> None:
        self.group = group
        self.members: dict[Value, Port] = {}
        self.above: dict[Port, Port] = {}
        self.products: dict[Port, dict[Op, Op]] = {}
        self.in_place: dict[Port, int] = {}
        self.refused: set[Port] = set()
        for function in group.values():
            for op in walk_ops(function.block):
                if op.declared is CALL and Call(op).function in group:
                    for param, result in Call(op).in_place:
                        self.in_place[Call(op).function, param] = result

    def queues(self) -> dict[Port, _Queue]:
        for name, function in self.group.items():
            for number, param in enumerate(function.params):
                port = (name, number)
                if port in self.in_place and _is_large(param.type):
                    self.above[port] = port
                    self.members[param] = port
        for function in self.group.values():
            self.follow(function.block, function.name)
        for function in self.group.values():
            self.check(function)
        refused = {self.find(port) for port in self.refused}
        found: dict[Port, _Queue] = {}
        result: dict[Port, _Queue] = {}
        for port in self.above:
            top = self.find(port)
            if top in refused:
                continue
            param = self.group[top[0]].params[top[1]]
            queue = found.setdefault(top, _Queue(param.tensor, param.hint or "sum"))
            queue.products.update(self.products.get(port, {}))
            result[port] = queue
        return {port: queue for port, queue in result.items() if queue.products}

    def find(self, port: Port) -> Port:
        while self.above[port] != port:
            port = self.above[port]
        return port

    def follow(self, block: Block, name: str) -> None:
        """Note what the sums become on their way; a value of two sums refuses both."""
        for op in block.ops:
            if op.declared is prims.ADD:
                left, right = (self.members.get(operand) for operand in op.operands)
                if left is not None and right is not None:
                    self.refused |= {left, right}
                port = left if left is not None else right
                if port is not None:
                    self.members[op.result] = port
                    other = op.operands[1 if left is not None else 0]
                    if _is_outer(other) and other.producer is not None and other.producer.device == CPU:
                        self.products.setdefault(port, {})[op] = other.producer
            elif op.declared is CALL and Call(op).function in self.group:
                for param, result in Call(op).in_place:
                    taken = (Call(op).function, param)
                    port = self.members.get(op.operands[param])
                    if taken not in self.above:
                        continue
                    if port is None:
                        self.refused.add(taken)
                        continue
                    self.above[self.find(port)] = self.find(taken)
                    self.members[op.results[result]] = port
            elif op.declared is IF:
                for inner in op.blocks:
                    self.follow(inner, name)
                for number, result_value in enumerate(op.results):
                    given = [b.end.operands[number] for b in op.blocks if b.end.kind == "yield"]
                    ports = {self.members.get(value) for value in given}
                    if len(ports) == 1 and None not in ports:
                        self.members[result_value] = ports.pop()  # type: ignore[assignment]
                    else:
                        self.refused |= {port for port in ports if port is not None}

    def check(self, function: Function) -> None:
        """Refuse a sum that is read, or that goes where it is not followed."""

        def refuse(values: Any) -> None:
            self.refused |= {self.members[value] for value in values if value in self.members}

        for op in walk_ops(function.block):
            if op.declared is CALL and Call(op).function in self.group:
                pairs = {param for param, _ in Call(op).in_place}
                refuse(value for number, value in enumerate(op.operands) if number not in pairs)
            elif op.declared is not prims.ADD:
                refuse(op.operands)
            if op.declared in (FOR, WHILE, SCOPE):
                for inner in op.blocks:
                    for block in walk_blocks(inner):
                        refuse(operand for each in block.ops for operand in each.operands)
                        refuse(block.end.operands)
        for block in walk_blocks(function.block):
            if block.end.kind == "return":
                for number, value in enumerate(block.end.operands):
                    for port in [port for port in self.above if port[0] == function.name]:
                        if (self.in_place[port] == number) != (self.members.get(value) == port):
                            self.refused.add(port)
            elif block.end.kind != "yield":
                refuse(block.end.operands)


def _is_large(type: Any) -> bool:
    return isinstance(type, TensorType) and type.ndim == 2 and type.is_static and type.size >= LEAST_ELEMENTS


def _is_outer(value: Value) -> bool:
    """Return whether a value is the product of a column and a row."""
    product = value.made_by(prims.MATMUL)
    if product is None:
        return False
    left, right = (operand.tensor for operand in product.operands)
    inner = (
        left.shape[-2 if product.attrs.get("transpose_a", False) else -1] if left.ndim == 2 and right.ndim == 2 else 0
    )
    return inner == 1


class _Deferrer(Copier):
    """Copies a function: products join their queue,
    and calls from outside of a recursion are followed by what is left."""

    def __init__(self, function: Function, queues: dict[Port, _Queue], begin: list[_Queue] | None = None) -> None:
        super().__init__(Builder())
        self.function = function
        self.queues = queues
        self.begin = begin
        self.own = {queue for (name, _), queue in queues.items() if name == function.name and begin is None}
        self.adds = {op: (queue, product) for queue in self.own for op, product in queue.products.items()}
        self.where: Position | None = None

    def run(self) -> Function:
        with self.builder.block(
            [p.type for p in self.function.params], [p.hint for p in self.function.params]
        ) as opened:
            self.values.update(zip(self.function.params, opened.params, strict=True))
            for queue in self.begin or ():
                for variable in queue.variables:
                    self.write(variable, self.zeros(variable.type))
            self.contents(self.function.block)
            self.end(self.function.block)
        return self.function.with_block(opened.block)

    def op(self, op: Op) -> None:
        self.where = op.where
        deferred = self.adds.get(op)
        if deferred is not None:
            queue, product = deferred
            total = next(operand for operand in op.operands if operand is not product.result)
            self.values[op.result] = self.put_off(queue, self.value(total), product)
            self.values[op.result].hint = op.result.hint
            return
        super().op(op)
        if op.declared is CALL:
            self.where = op.where
            for param, result in Call(op).in_place:
                queue_of = self.queues.get((Call(op).function, param))
                if queue_of is not None and queue_of not in self.own:
                    self.values[op.results[result]] = self.add_rest(queue_of, self.values[op.results[result]])

    # ---- what takes the place of a product ----

    def put_off(self, queue: _Queue, total: Value, product: Op) -> Value:
        """One more row of both matrices; where they are full, the sum of the products."""
        left, right, rows = queue.variables
        note = f"a product of vectors is put off: one more row, and at {ROWS} rows one product of matrices"
        row, zero = self.read(rows, note), self.number(0)
        for variable, operand in zip((left, right), product.operands, strict=True):
            vector = self.emit(
                prims.RESHAPE, [self.value(operand)], TensorType(variable.type.dtype, (1, variable.type.shape[1]))
            )
            before = self.read(variable)
            self.write(variable, self.emit(prims.DYNAMIC_UPDATE, [before, vector, row, zero], variable.type))
        more = self.emit(prims.ADD, [row, self.number(1)], rows.type)
        more.hint = "rows"
        full = self.emit(prims.EQUAL, [more, self.number(ROWS)], TensorType(bool_))
        total, count = self.choose(full, lambda: [self.summed(queue, total), self.number(0)], lambda: [total, more])
        count.hint = "rows"
        self.write(rows, count)
        return total

    def add_rest(self, queue: _Queue, total: Value) -> Value:
        """Add the products that are left when the outermost call has returned."""
        rows = queue.variables[2]
        count = self.read(rows, f"what is left of the products that were put off for {queue.name}")
        some = self.emit(prims.GREATER, [count, self.number(0)], TensorType(bool_))

        def then() -> list[Value]:
            made = self.summed(queue, total)
            self.write(rows, self.number(0))
            return [made]

        (found,) = self.choose(some, then, lambda: [total])
        found.hint = total.hint
        return found

    def summed(self, queue: _Queue, total: Value) -> Value:
        """The sum with all rows added; rows that come after start from zero."""
        left, right, _ = queue.variables
        attrs = {"transpose_a": True, "transpose_b": False}
        product = self.emit(prims.MATMUL, [self.read(left), self.read(right)], queue.type, attrs)
        made = self.emit(prims.ADD, [total, product], queue.type)
        made.hint = total.hint
        self.write(left, self.zeros(left.type))
        return made

    # ---- small pieces ----

    def choose(
        self, condition: Value, then: Callable[[], list[Value]], other: Callable[[], list[Value]]
    ) -> tuple[Value, ...]:
        blocks = []
        for branch in (then, other):
            with self.builder.block() as opened:
                self.builder.end("yield", branch())
            blocks.append(opened.block)
        types = [value.type for value in blocks[0].end.operands]
        return self.builder.op(IF, [condition], types, blocks=blocks, where=self.where).results

    def emit(
        self, primitive: Declaration, operands: list[Value], type: TensorType, attrs: dict[str, Any] | None = None
    ) -> Value:
        attrs = {"shape": type.shape} if primitive is prims.RESHAPE else attrs or {}
        return self.builder.op(primitive, operands, [type], attrs=attrs, where=self.where).result

    def number(self, value: int) -> Value:
        return self.builder.op(prims.CONSTANT, [], [TensorType(i64)], attrs={"value": value}, where=self.where).result

    def zeros(self, type: TensorType) -> Value:
        if not type.shape:
            return self.number(0)
        zero = self.builder.op(
            prims.CONSTANT, [], [TensorType(type.dtype)], attrs={"value": 0.0}, where=self.where
        ).result
        return self.emit(prims.BROADCAST_TO, [zero], type, {"shape": type.shape, "axes": ()})

    def read(self, variable: VariableRef, note: str = "") -> Value:
        """The Variable's value; with a note for people who read the program."""
        attrs, effects = {"variable": variable} | ({"note": note} if note else {}), (Effect("read", variable),)
        op = self.builder.op(VARIABLE_READ, [], [variable.type], attrs=attrs, effects=effects, where=self.where)
        op.result.hint = variable.name
        return op.result

    def write(self, variable: VariableRef, value: Value) -> None:
        attrs, effects = {"variable": variable}, (Effect("write", variable),)
        self.builder.op(VARIABLE_WRITE, [value], [], attrs=attrs, effects=effects, where=self.where)
