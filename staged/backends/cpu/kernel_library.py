"""The kernels of one program: each gets a name from the user's Python, equal ones share a function.

Tested by `tests/backends/host/test_kernel_library.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from staged.backends.cpu.contraction_call import emit_contraction, sizes_of
from staged.backends.cpu.nest.kernel import emit_kernel, kernel_of
from staged.code.common_names import common_words, usual_words, with_common_names
from staged.code.dialect import C, Dialect
from staged.code.in_place import with_needed_parameters, with_one_parameter
from staged.code.kernel_text import KernelText, common_comments, kernel_comments, parameters_of
from staged.code.named_choices import with_named_choices
from staged.code.printer import print_function
from staged.code.ranges import Ranges, for_ranges
from staged.code.scopes import declared_within, renamed
from staged.code.sizes import MOST, Numbers, Sized, merged
from staged.code.support.library import Snippet
from staged.code.tree import Function
from staged.code.uses import functions_called
from staged.code.writer import Names
from staged.ir.buffers import Buffer
from staged.ir.cascade import cascade_sums
from staged.ir.declaration import prims
from staged.ir.loops import Tile, walk
from staged.ir.machine import Machine
from staged.ir.names import layer_of, name_of, short
from staged.ir.nodes import Op, Value
from staged.ir.nouns import verb_of
from staged.ir.storage import view_of
from staged.ir.structure import CONTRACTION, KERNEL
from staged.source import Position

Pairs = tuple[tuple[int, int], ...]
"""(result, operand) pairs of a kernel."""


@dataclass(frozen=True)
class User:
    """A kernel that may share a function."""

    op: Op
    kernel: KernelText
    sized: Sized

    @property
    def shape(self) -> object:
        """Equal for kernels that can share a function."""
        kernel = self.kernel
        return self.sized.shape, kernel.scratch_bytes > 0, kernel.can_fail, kernel.items_size


class KernelLibrary:
    """Emits each distinct kernel once, in a dialect: equal kernels share a function, whatever lines they come from."""

    def __init__(
        self, machine: Machine, names: Names, site: Callable[[Position | None], int], dialect: Dialect = C
    ) -> None:
        self.machine = machine
        self.dialect = dialect
        self.names = names
        self.site = site
        self.known: dict[object, KernelText] = {}
        """By loop nest and schedule, and by source code without names and comments."""
        self.tables: dict[object, dict[str, Snippet]] = {}
        """By sizes of a contraction, tables by name. An epilogue stores the result itself: its table has less."""
        self.users: dict[str, list[Op]] = {}
        """By function, the kernels that it is for."""

    def kernel(self, op: Op) -> KernelText:
        """The C function for an op that is one step."""
        made = self._known_or_made(op)
        self.users.setdefault(made.name, []).append(op)
        return made

    def _known_or_made(self, op: Op) -> KernelText:
        key = _loops_of(op)
        if key is not None and key in self.known:
            return self.known[key]
        name = _name_of(op)
        name = self.names.fresh(name, others=[_joined(name, short(name_of(operand))) for operand in op.operands])
        made = self.emit(op, name)
        first = self.known.setdefault(_shape_of(made), made)
        if first is not made:
            self.names.used.discard(name)
            made = _as_one(made, first)
        if key is not None:
            self.known[key] = made
        return made

    def shared(self, kernels: Mapping[Op, KernelText], places: Mapping[Value, Buffer]) -> dict[Op, KernelText]:
        """The kernels of a program. Kernels that differ only in numbers have one function.

        An array that a function reads and writes in all of its calls is one parameter; `places` are the buffers.
        """
        joined = self._with_shared_epilogues(kernels, _pairs_in_place(kernels, places))
        kernels = {op: _as_one(kernel, joined.get(kernel.name, kernel)) for op, kernel in kernels.items()}
        groups: dict[object, dict[str, User]] = {}
        for op, kernel in kernels.items():
            if kernel.code is not None:
                user = User(op, kernel, Sized.of(kernel.code, self.dialect))
                groups.setdefault(user.shape, {}).setdefault(kernel.name, user)
        self._join_long_sums(groups)
        made: dict[str, KernelText] = {}
        shared = [each for group in groups.values() for each in _alike(group.values())]
        for users, code, rows in sorted(shared, key=lambda each: -len(each[0])):  # the first choice of names
            made |= self._merged(users, code, rows)
        kernels = {op: _as_one(kernel, made.get(kernel.name, kernel)) for op, kernel in kernels.items()}
        named = self._with_common_names(kernels)
        kernels = {op: _as_one(kernel, named.get(kernel.name, kernel)) for op, kernel in kernels.items()}
        return self._for_calls(kernels, _pairs_in_place(kernels, places), _equal_operands(kernels, places))

    def _with_common_names(self, kernels: Mapping[Op, KernelText]) -> dict[str, KernelText]:
        """By name, the equal kernels with one function, which is named after what their names share."""
        made: dict[str, KernelText] = {}
        for op, kernel in kernels.items():
            ops = self._users_of(kernel, op)
            names = [_name_of(each) for each in ops]
            if kernel.code is None or kernel.numbers or kernel.name in made or len({*names}) == 1:
                continue
            self.names.used.discard(kernel.name)
            verbs, _, variables = zip(*(name.partition("_") for name in names), strict=True)
            if {*verbs} == {"update"}:
                words = [word for word in common_words(variables) if len(word) > 1 and not word.isdigit()]
                ends = len({name.rpartition("_")[2] for name in variables}) > 1
                one = "_".join([*words, "parameter"] if ends else words)
                users = [_named_for(kernel, each, name, one) for each, name in zip(ops, variables, strict=True)]
                name = self.names.fresh(f"update_{one}")
            else:
                users = [kernel.code, *(_named_for(kernel, each) for each in ops[1:])]
                name = self._fresh_common_name(ops, kernel.code)
            code = with_common_names(users[0], users)
            code = replace(code, name=name, comments=common_comments(ops))
            text = print_function(code, self.dialect)
            made[kernel.name] = replace(kernel, name=name, code=code, text=text, parameters=parameters_of(code))
        return made

    def _users_of(self, kernel: KernelText, op: Op) -> list[Op]:
        """The kernels that a function is for, one of each name."""
        return [*{_name_of(each): each for each in reversed(self.users.get(kernel.name, [op]))}.values()][::-1]

    def _fresh_common_name(self, ops: Sequence[Op], code: Function) -> str:
        """A free name for a function that serves these kernels."""
        names = [_name_of(op) for op in ops]
        name = _common_name(ops[0], names)
        return self.names.fresh(name, others=_other_names(name, ops[0], names, code))

    def _for_calls(
        self, kernels: Mapping[Op, KernelText], in_place: Mapping[str, Pairs], equal: Mapping[str, Pairs]
    ) -> dict[Op, KernelText]:
        """The kernels, whose functions are for all their calls: the ranges, and the arrays that they overwrite.

        `equal` are pairs of operands, (other, first), that are one array in all calls.
        """
        ranges: dict[str, Ranges] = {}
        for kernel in kernels.values():
            ranges[kernel.name] = ranges.get(kernel.name, kernel.ranges) | kernel.ranges
        made: dict[str, KernelText] = {}
        for op, kernel in kernels.items():
            if kernel.code is None or kernel.code.name != kernel.name or kernel.name in made:
                continue
            before = kernel.code
            code = for_ranges(before, ranges[kernel.name])
            kernel = replace(kernel, has_range=len(code.parameters) == len(before.parameters) and kernel.has_range)
            if kernel.is_whole:
                pairs = in_place[kernel.name]
                code = with_one_parameter(code, {read: len(op.operands) + result for result, read in pairs})
                kernel = replace(kernel, in_place=pairs)
            again = {read for _, read in kernel.in_place}
            passed = [number for number in range(len(op.operands) + len(op.results)) if number not in again]
            same = {passed.index(a): passed.index(b) for a, b in equal[kernel.name] if not again & {a, b}}
            code, unused = with_needed_parameters(code, len(passed), same)
            kernel = replace(kernel, unused=unused)
            if code is not before:
                code = _with_names_of(before, code)
                needed = {name for snippet in kernel.support for name in snippet.needs}
                dropped = functions_called(before.body) - functions_called(code.body) - needed
                text = print_function(code, self.dialect)
                left = kernel.snippets - dropped
                kernel = replace(kernel, code=code, text=text, snippets=left, parameters=parameters_of(code))
            made[kernel.name] = kernel
        return {
            op: replace(_as_one(kernel, made[kernel.name]), numbers=kernel.numbers) if kernel.name in made else kernel
            for op, kernel in kernels.items()
        }

    def _join_long_sums(self, groups: dict[object, dict[str, User]]) -> None:
        """Move kernels of short sums to the group of kernels that differ only in the length of their sums."""
        for group in list(groups.values()):
            for name, user in list(group.items()):
                other = self._with_long_sums(user)
                if other is not None and other.shape in groups:
                    groups[other.shape][name] = other
                    del group[name]
        guarded: dict[object, dict[str, User]] = {}
        for group in groups.values():
            for name, user in group.items():
                if (other := self._with_long_sums(user, is_guarded=True)) is not None:
                    guarded.setdefault(other.shape, {})[name] = other
        for shape, users in guarded.items():
            own = [group for group in groups.values() if not users.keys().isdisjoint(group)]
            if len(own) > 1:
                groups[shape] = users
                for group in own:
                    for name in users.keys() & group.keys():
                        del group[name]

    def _with_long_sums(self, user: User, *, is_guarded: bool = False) -> User | None:
        """A kernel in the form of one with long sums, with the same bits; None if it has that form or none.

        `is_guarded` is the form of short rows and long ones.
        """
        if user.op.declared is not KERNEL:
            return None
        nest, schedule = before = user.op.attrs["nest"], user.op.attrs["schedule"]
        if not any(isinstance(s, Tile) for s in walk(nest.body)):
            nest, schedule = cascade_sums(nest, schedule, widens_short=True)
        schedule = schedule.guarded() if is_guarded else schedule
        if schedule is None or (nest, schedule) == before:
            return None
        name, comments, layer = user.kernel.name, kernel_comments(user.op), layer_of(user.op)
        made = kernel_of(nest, schedule, name, comments, self.machine, self.site, self.dialect, layer)
        other = User(user.op, made, Sized.of(made.code, self.dialect)) if made.code else None
        return None if other is None or other.shape == user.shape else other

    def _with_shared_epilogues(
        self, kernels: Mapping[Op, KernelText], in_place: Mapping[str, Pairs]
    ) -> dict[str, KernelText]:
        """By name, the products whose epilogues differ only in numbers, with one function for these, and those whose
        epilogues overwrite arrays.
        """
        groups: dict[str, dict[str, User]] = {}
        for op, kernel in kernels.items():
            if kernel.epilogue is not None:
                sized = Sized.of(kernel.epilogue)
                groups.setdefault(sized.shape, {}).setdefault(kernel.name, User(op, kernel, sized))
                if not kernel.is_whole:
                    self.names.used.add(kernel.epilogue.name)
        made: dict[str, KernelText] = {}
        for group in groups.values():
            # Calls in line cost nothing, and a product calls the function in few places.
            for users, code, rows in _alike(group.values(), most=2 * MOST):
                if self._is_one(users):
                    continue
                pairs = _common([in_place[user.kernel.name] for user in users])
                step = gcd(*(user.kernel.column_step for user in users))
                self.names.used -= {user.sized.function.name for user in users}
                common = _common_name(users[0].op, [user.kernel.name for user in users])
                name = self.names.fresh(f"{common}_epilogue")
                code = with_common_names(code, [user.sized.function for user in users])
                says = f"Finishes a tile of {len(users)} kernels: element (row + r, col + s) is `tile[r * ld + s]`."
                body = with_named_choices([parameter.variable for parameter in code.parameters], code.body)
                code = replace(code, name=name, comments=(says,), body=body)
                for user, numbers in zip(users, rows, strict=True):
                    own = user.kernel.name
                    made[own] = self.product(user.op, own, (code, numbers), pairs, step)
        for op, kernel in kernels.items():
            if not kernel.is_whole and kernel.name not in made and (pairs := in_place[kernel.name]):
                made[kernel.name] = self.product(op, kernel.name, in_place=pairs)
        return made

    def _is_one(self, users: Sequence[User]) -> bool:
        """Return whether one function has the statements of the epilogues of these products."""
        codes = [user.kernel.code for user in users if user.kernel.is_whole and user.kernel.code is not None]
        whole = [replace(user, sized=Sized.of(code, self.dialect)) for user, code in zip(users, codes, strict=False)]
        is_alike = len(codes) == len(users) and len({user.shape for user in whole}) == 1
        return is_alike and _function_of(whole, MOST) is not None

    def _merged(self, users: Sequence[User], code: Function, rows: Sequence[Numbers]) -> dict[str, KernelText]:
        """By name, the kernels that share a function, each with its numbers."""
        self.names.used -= {user.kernel.name for user in users}
        ops = [op for user in users for op in self._users_of(user.kernel, user.op)]
        code = with_common_names(code, [user.sized.function for user in users])
        code = replace(code, name=self._fresh_common_name(ops, code), comments=common_comments(ops))
        text = print_function(code, self.dialect)
        kernels = [user.kernel for user in users]
        one = replace(
            kernels[0], name=code.name, code=code, text=text, parameters=parameters_of(code),
            functions=tuple(dict.fromkeys(each for kernel in kernels for each in kernel.functions)),
            support=tuple(dict.fromkeys(each for kernel in kernels for each in kernel.support)),
        )  # fmt: skip
        return {user.kernel.name: replace(one, numbers=numbers) for user, numbers in zip(users, rows, strict=True)}

    def emit(self, op: Op, name: str) -> KernelText:
        """The text of a function of this name."""
        if op.declared is CONTRACTION:
            return self.product(op, name)
        return emit_kernel(op, name, self.machine, self.site, self.dialect)

    def product(
        self, op: Op, name: str, epilogue: tuple[Function, Numbers] | None = None, in_place: Pairs = (), step: int = 0
    ) -> KernelText:
        """A contraction, which has the table of the first one of equal sizes, if their tables are equal."""
        tables = self.tables.setdefault(sizes_of(op), {})
        for table in (*tables, ""):
            table = table or self.names.fresh(name, "_sizes")
            made = emit_contraction(op, name, self.machine, self.site, table, epilogue, in_place, step)
            own = next((each for each in made.functions if each.name == table), None)
            if own is None or tables.setdefault(table, own) == own:
                break
        return made


def _as_one(kernel: KernelText, one: KernelText) -> KernelText:
    """A kernel with the function that it shares."""
    return replace(
        kernel, name=one.name, text=one.text, parameters=one.parameters, code=one.code, numbers=one.numbers,
        functions=one.functions, snippets=one.snippets, support=one.support, in_place=one.in_place,
        is_whole=one.is_whole, has_range=one.has_range, unused=one.unused,
    )  # fmt: skip


def _pairs_in_place(kernels: Mapping[Op, KernelText], places: Mapping[Value, Buffer]) -> dict[str, Pairs]:
    """By function, the results that are in the place of an operand in all calls."""
    found: dict[str, list[Pairs]] = {}
    for op, kernel in kernels.items():
        pairs = [pair for pair in kernel.may_alias if _is_in_place(op, *pair, places)]
        found.setdefault(kernel.name, []).append(tuple(dict(pairs).items()))
    return {name: _common(pairs) for name, pairs in found.items()}


def _with_names_of(before: Function, code: Function) -> Function:
    """A function in which names have no number if the name without it has gone: `first_2` without `first`."""
    old, new = ({*declared_within(each.body), *(p.variable.text for p in each.parameters)} for each in (before, code))
    parts = {name: name.rpartition("_") for name in sorted(new)}
    found = {base: name for name, (base, _, number) in parts.items() if base in old - new and number.isdigit()}
    shorter = {name: base for base, name in found.items()}
    return replace(code, parameters=renamed(code.parameters, shorter), body=renamed(code.body, shorter))


def _equal_operands(kernels: Mapping[Op, KernelText], places: Mapping[Value, Buffer]) -> dict[str, Pairs]:
    """By function, the operands that have the address of an earlier one in all calls."""
    found: dict[str, list[Pairs]] = {}
    for op, kernel in kernels.items():
        first: dict[Buffer, int] = {}
        arrays = {n: places[each] for n, each in enumerate(op.operands) if each in places and _is_whole(each)}
        pairs = [(n, first.setdefault(each, n)) for n, each in arrays.items() if each.kind not in ("frame", "slot")]
        found.setdefault(kernel.name, []).append(tuple(pair for pair in pairs if pair[0] != pair[1]))
    return {name: _common(pairs) for name, pairs in found.items()}


def _is_whole(value: Value) -> bool:
    """Return whether an array is not a part of an array."""
    return view_of(value.behind(prims.RESHAPE)) is None


def _is_in_place(op: Op, result: int, operand: int, places: Mapping[Value, Buffer]) -> bool:
    """Return whether a result has the address of an operand, which is not a part of an array."""
    made, read = op.results[result], op.operands[operand]
    return made in places and places.get(read) is places[made] and _is_whole(read)


def _common(pairs: Sequence[Pairs]) -> Pairs:
    return tuple(pair for pair in pairs[0] if all(pair in each for each in pairs))


def _alike(users: Iterable[User], most: int = MOST) -> Iterator[tuple[list[User], Function, list[Numbers]]]:
    """Of kernels of equal shape those that share a function with few numbers, the function, and the numbers of each.

    A kernel joins the first group that it can join.
    """
    groups: list[list[User]] = []
    for user in users:
        group = next((group for group in groups if _function_of([*group, user], most) is not None), None)
        if group is None:
            groups.append([user])
        else:
            group.append(user)
    for group in groups:
        if len(group) > 1 and (found := _function_of(group, most)) is not None:
            code, rows = found
            yield group, code, rows


def _function_of(users: Sequence[User], most: int) -> tuple[Function, list[Numbers]] | None:
    """The function of kernels of equal shape, and the numbers of each; None if it has too many."""
    kernel, function = users[0].kernel, users[0].sized.function
    own = 0 if function.is_inline else 2 * kernel.has_range + (kernel.scratch_bytes > 0) + kernel.can_fail
    return merged([user.sized for user in users], len(function.parameters) - own, most)


def _common_name(op: Op, names: Sequence[str]) -> str:
    """A name for the work of kernels with these names and the ops of one: their only op, such as `max_pool2d`.

    Else it is the common part of their names, such as `bias_gradient` for `d_fc1_bias` and `d_fc2_bias`, and the op
    that they begin with.
    """
    ops = _steps_of(op)
    kind = [str(op.attrs["kind"])] if op.declared is CONTRACTION else []
    if kind and not ops:
        return kind[0]
    words = common_words(names)
    if "_".join(words) in names:
        return "_".join(words)
    first = ops[0].name if ops and ops[0].declared.kind not in ("elementwise", "reduction", "broadcast") else ""
    verb = verb_of(ops[0]) if first else ""
    first = verb if verb not in ("", "draw") else first
    is_gradient = words[:1] == ["d"]
    words, usual = (
        [word for word in dict.fromkeys(each) if len(word) > 1 and not word.isdigit() and word != "compute"]
        for each in (words, usual_words(names))
    )
    is_in_words = any(first.startswith(word) for word in words)
    if first and len(ops) == 1:
        return "_".join(words) if first in words else first
    words = words or usual or kind or [*dict.fromkeys(each.name for each in ops)][:2] or [names[0]]
    if is_gradient:
        words.append("gradient")
    return "_".join([*words, first] if first and not is_in_words else words)


def _name_of(op: Op) -> str:
    return str(op.attrs.get("name") or op.attrs.get("call") or "kernel")


def _named_for(kernel: KernelText, op: Op, variable: str = "", one: str = "") -> Function:
    """A function with the names that it has for one of its kernels, whose Variable is called `one`."""
    code, again = kernel.code, {read for _, read in kernel.in_place}
    assert code is not None, "kernels with common names have trees"
    own = [short(name_of(operand)) for number, operand in enumerate(op.operands) if number not in again]
    own += [short(result.hint) for result in op.results]
    names = Names()
    pairs = zip(code.parameters, own, strict=False)
    named = ((p.variable.text, name.replace(variable, one) if variable else name) for p, name in pairs)
    found = {old: names.fresh(name or old) for old, name in named}
    for name in dict.fromkeys(declared_within(code.body)):
        owner = max((each for each in found if name.startswith(f"{each}_")), key=len, default="")
        found[name] = names.fresh(found[owner] + name.removeprefix(owner) if owner else name)
    found = {old: new for old, new in found.items() if old != new}  # a variable that stays is the same one
    return replace(code, parameters=renamed(code.parameters, found), body=renamed(code.body, found))


def _steps_of(kernel: Op) -> Sequence[Op]:
    """The ops of a kernel that compute."""
    inside = kernel.blocks[0].ops if kernel.blocks else ()
    return [op for op in inside if not op.declared.is_move and op.declared.kind != "source"] or inside[-1:]


def _other_names(name: str, op: Op, names: Sequence[str], code: Function) -> Iterator[str]:
    """Names for a function if the common name of its kernels is taken: with the part of the program, with the numbers
    of the layers, with the ops, with the first parameter.
    """
    if all(each.startswith("evaluate_") for each in names):
        yield f"evaluate_{name.removeprefix('evaluate_')}"
    yield "_".join(common_words(names, numbered=True))
    yield "_".join([name, *dict.fromkeys(each.name for each in _steps_of(op))][:3])
    for parameter in code.parameters:
        yield "_".join([name, *(word for word in parameter.variable.text.split("_") if word not in name.split("_"))])


def _joined(name: str, operand: str) -> str:
    """The name of a kernel with that of an operand, which may begin with it."""
    return f"{name}_{operand.removeprefix(f'{name}_')}"


def _loops_of(op: Op) -> object:
    """The nest and the schedule that decide the source code of a kernel, except names; None for other ops."""
    if op.declared is not KERNEL:
        return None
    nest = op.attrs["nest"]
    return nest.inputs, nest.outputs, nest.body, op.attrs["schedule"]


def _shape_of(kernel: KernelText) -> object:
    """The identity of a kernel's function: all but comments and its own names, and the way it is called."""
    types = tuple(type for type, _ in kernel.parameters)
    return kernel.shape, types, kernel.scratch_bytes, kernel.can_fail, kernel.items_size
