"""Functions of layers that differ in sizes and buffers, as one function with these as parameters.

    update_layer1:  ST_SHARE(host->team, 64, 2, scale, m->layer1_x, args->layer1_weight);
    update_layer2:  ST_SHARE(host->team, 128, 4, scale, m->layer2_x, args->layer2_weight);
    update_layer:   ST_SHARE(host->team, items, chunk, scale, x, weight);

Functions with equal kernels can share: numbers, fields of `args` and `m`, and arrays that a function accepts become
parameters. Those with equal values in each call are one parameter.

Tested by `tests/backends/host/test_equal_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from staged.backends.host.outlining import Outlined
from staged.code.common_names import common_words
from staged.code.expr import Call, Cast, Expr, Infix, Literal, Member, Name, Prefix, Sizeof, Variable
from staged.code.printer import print_body
from staged.code.rebuild import rebuilt
from staged.code.scopes import declared_within, renamed
from staged.code.sizes import derived
from staged.code.tree import Assign, Comment, Declare, Do, For, ForAny, Statement
from staged.code.types import INDEX, CType
from staged.code.unused import names_used

MOST = 40
"""Parameters of a function that several layers share."""
STATE = ("args", "m")
HOST = "host"
COUNTER = CType("int64_t *", is_pointer=True)
LAST = "last"
"""The role of the end of a loop over layers, which has nothing in common with sizes."""
Types = Mapping[str, CType]
Choose = Callable[[Expr, Variable], Expr]
"""The expression in the place of a leaf. The variable has its type and the name that a parameter has."""
Column = tuple[Expr, ...]


@dataclass(frozen=True)
class Shape:
    """A function with its leaves, in order of appearance."""

    function: Outlined
    text: tuple[object, ...]
    """Equal for functions that differ only in leaves, comments and names."""
    leaves: tuple[Expr, ...]
    roles: tuple[Variable, ...]
    kept: tuple[int, ...]
    """The numbers of the parameters that are not leaves."""

    def parameter(self, first: Shape, number: int) -> Variable:
        """The parameter that is used as one of the first function of equal shape."""
        return self.function.parameters[self.number(first, number)]

    def number(self, first: Shape, number: int) -> int:
        """The number of a parameter of the first function of equal shape."""
        return self.kept[first.kept.index(number)] if number in first.kept else number


class EqualFunctions:
    """Merges the functions of a program. `fields` are the types of `args->x` and `m->x`, `kernels` the parameters of
    kernels: types and names.
    """

    def __init__(
        self,
        fields: Types,
        kernels: Mapping[str, Sequence[tuple[str, str]]],
        fresh: Callable[[str], str],
        local: Callable[[str], str],
    ) -> None:
        self.fields, self.kernels = fields, kernels
        self.fresh, self.local = fresh, local
        """Return new names of functions, and of parameters."""

    def merged(
        self, functions: Sequence[Outlined], rest: tuple[Statement, ...]
    ) -> tuple[list[Outlined], tuple[Statement, ...]]:
        """The functions, each behind those that it calls, and the statements of their caller, with merged functions."""
        left = list(functions)
        shapes: dict[Outlined, Shape] = {}
        tried = set[tuple[str, ...]]()
        while True:
            groups: dict[tuple[object, ...], list[Shape]] = {}
            for each in left:
                shape = shapes.get(each) or shapes.setdefault(each, self.shape(each))
                groups.setdefault(shape.text, []).append(shape)
            for users in (part for group in groups.values() for part in _parts(group)):
                names = tuple(user.function.name for user in users)
                if len(users) > 1 and names not in tried:
                    tried.add(names)
                    made = self.merge(users)
                    if made is not None:
                        break
            else:
                return left, rest
            function, calls = made
            left[left.index(users[0].function)] = function
            left = [each for each in left if each is function or each.name not in calls]
            left = [replace(each, body=body) if (body := with_calls(each.body, calls)) is not each.body else each
                    for each in left]  # fmt: skip
            rest = with_calls(rest, calls)

    def shape(self, function: Outlined) -> Shape:
        """The leaves of a function, and what is left."""
        found: list[tuple[Expr, Variable]] = []

        def note(leaf: Expr, role: Variable) -> Expr:
            found.append((leaf, role))
            return Name(f"#{role.type.text}")

        body = self.with_leaves(function, note)
        used = names_used(body)
        kept = tuple(number for number, each in enumerate(function.parameters) if each.text in used)
        parameters = [function.parameters[number] for number in kept]
        numbers = {each.text: f"${number}" for number, each in enumerate(parameters)}
        for name in declared_within(body):
            numbers.setdefault(name, f"${len(numbers)}")
        lines = [line for line in print_body(renamed(body, numbers)) if not line.lstrip().startswith("//")]
        types = tuple(each.type.text for each in parameters)
        result = function.result.type.text if function.result is not None else ""
        leaves, roles = zip(*found, strict=True) if found else ((), ())
        return Shape(function, (types, function.can_fail, result, *lines), leaves, roles, kept)

    def with_leaves(self, function: Outlined, choose: Choose) -> tuple[Statement, ...]:
        """The statements of a function with what is chosen in place of their leaves."""
        arrays = {each.text: f"${number}" for number, each in enumerate(function.parameters) if _is_array(each)}
        if arrays:
            others = names_used(self.rewritten(function, arrays, lambda leaf, role: Literal("0")))
            arrays = {name: argument for name, argument in arrays.items() if name not in others}
        return self.rewritten(function, arrays, choose)

    def rewritten(self, function: Outlined, arrays: Mapping[str, str], choose: Choose) -> tuple[Statement, ...]:
        """The statements of a function with other leaves, `arrays` among them."""
        changed: tuple[Statement, ...] = _Rewriter(self.fields, self.kernels, arrays, choose).part(function.body)
        return changed

    def merge(self, users: Sequence[Shape]) -> tuple[Outlined, dict[str, Call]] | None:
        """One function for several of equal shape, and its call in place of each; None if that is not shorter."""
        first = users[0].function
        own = common_words([user.function.name for user in users])
        parameters: dict[Column, Variable] = {}
        hints: dict[Column, str] = {}
        chosen: list[Expr] = []
        written: dict[Variable, CType] = {}

        def parameter(column: Column, type: CType, labels: Sequence[str]) -> Variable:
            if column not in parameters:
                hints[column] = _without(own, common_words(labels)) or "values"
                parameters[column] = Variable(hints[column], type)
            elif "const" not in type.text:
                written[parameters[column]] = type
            return parameters[column]

        for number, role in enumerate(users[0].roles):
            column = tuple(user.leaves[number] for user in users)
            labels = [user.roles[number].text for user in users]
            known = (
                _derived(column, other, each)
                for other, each in parameters.items()
                if each.type == role.type and (role.text == LAST) == (hints[other] == LAST)
            )
            if len(set(column)) == 1:
                chosen.append(_own(first, column[0]))
            elif column not in parameters and (value := next(filter(None, known), None)) is not None:
                chosen.append(value)
            elif (structs := self.structs_of(column)) is not None:
                type = self.fields[str(structs[0])]
                struct = parameter(structs, type, [str(each).rpartition("->")[2] for each in structs])
                chosen.append(Member(struct, labels[0]))
            else:
                chosen.append(parameter(column, role.type, labels))
        if len(parameters) > MOST:
            return None
        parameters = dict(sorted(parameters.items(), key=lambda item: not item[1].type.is_pointer))
        final = {
            each: Variable(self.local(hints[column]), written.get(each, each.type))
            for column, each in parameters.items()
        }
        values = iter(chosen)
        body = self.with_leaves(first, lambda leaf, role: _with_variables(next(values), final))
        used = names_used(body)
        kept = [number for number, each in enumerate(first.parameters) if each.text in used]
        named = {number: self.common_name([user.parameter(users[0], number) for user in users]) for number in kept}
        old = tuple(replace(first.parameters[number], text=name) for number, name in named.items())
        body = renamed(body, {first.parameters[number].text: name for number, name in named.items()})
        wish = "_".join(own) or first.name
        name = wish if first.name == wish else self.fresh(wish)
        function = replace(first, name=name, parameters=(*old, *final.values()), body=body)
        rows = list(zip(*parameters, strict=True)) or [() for _ in users]
        calls = {
            user.function.name: Call(
                function.name, (*(Name(f"${user.number(users[0], number)}") for number in kept), *row)
            )
            for user, row in zip(users, rows, strict=True)
        }
        before = sum(len(print_body(user.function.body)) for user in users)
        after = len(print_body(body)) + sum(len(print_body([Do(each)])) for each in calls.values())
        return (function, calls) if after < before else None

    def common_name(self, parameters: Sequence[Variable]) -> str:
        """The name of a parameter of several functions: `by_vx` for `x_by_vx` and `y_by_vx`."""
        names = [each.text for each in parameters]
        words = common_words(names)
        return names[0] if len({*names}) == 1 or not words else self.local("_".join(words))

    def structs_of(self, column: Column) -> Column | None:
        """The addresses of the structs that have the fields of a column, if these are equal fields of equal structs."""
        found = list[Expr]()
        for place in column:
            if not isinstance(place, Member) or "." not in place.field:
                return None
            found.append(Prefix("&", Member(place.base, place.field.partition(".")[0])))
        fields = {place.field.partition(".")[2] for place in column if isinstance(place, Member)}
        types = {self.fields.get(str(each)) for each in found}
        return tuple(found) if len(fields) == len(types) == 1 and None not in types else None


class _Rewriter:
    """Rebuilds statements with other leaves."""

    def __init__(
        self,
        fields: Types,
        kernels: Mapping[str, Sequence[tuple[str, str]]],
        arrays: Mapping[str, str],
        choose: Choose,
    ) -> None:
        self.fields, self.kernels, self.choose = fields, kernels, choose
        self.arrays = arrays
        """By parameter of the function with an array, the argument of a call."""

    def part(self, node: Any) -> Any:
        match node:
            case Variable() | Comment():
                return node
            case Declare(variable, Literal() as value, is_const=False):
                return replace(node, value=self.choose(value, Variable(f"first_{variable}", variable.type)))
            case Call("ST_SHARE", (team, items, chunk, Name(kernel) as name, *arguments)):
                shared = self.number(items, "items"), self.number(chunk, "chunk"), name
                return Call("ST_SHARE", (team, *shared, *self.arguments(kernel, arguments)))
            case Call("st_parallel", (team, items, chunk, *arguments)):
                return Call("st_parallel", (team, self.number(items, "bytes"), chunk, *map(self.part, arguments)))
            case Call(function, arguments) if function in self.kernels:
                return Call(function, (*self.arguments(function, arguments),))
            case For(_, start, stop, body):
                begin, end = (self.number(each, "layers") for each in (start, stop))
                return replace(node, start=begin, stop=end, body=self.part(body))
            case Assign(Prefix("*", Member() as place), Literal() as value) if self.fields.get(str(place)) == COUNTER:
                return replace(node, target=self.part(node.target), value=self.number(value, _label(place)))
            case ForAny(_, start):
                return replace(rebuilt(node, self.part), start=self.number(start, LAST))
            case Infix("*", Literal() as count, Sizeof()):
                size = self.number(count, "size")
                return node if size is count else replace(node, left=Cast("size_t", size))
            case Infix("+", left, right) if _root(left) is not None:
                return replace(node, left=self.part(left), right=self.offset(right))
            case Infix("<", Variable(type=type), Literal() as last) if type == INDEX:
                return replace(node, right=self.number(last, LAST))
            case Member(Name("args" | "m")) if (field := self.fields.get(str(node))) is not None:
                return self.choose(node, Variable(_label(node), field))
        return rebuilt(node, self.part)

    def arguments(self, kernel: str, given: Sequence[Expr]) -> list[Expr]:
        """The arguments of a kernel, which has the types of leaves among them."""
        found = list[Expr]()
        for argument, (text, name) in zip(given, self.kernels[kernel], strict=False):
            type = CType(text.replace("restrict", "").strip(), is_pointer="*" in text)
            match argument:
                case Literal():
                    is_address = argument.text.startswith("&")
                    name = argument.text.removeprefix("&") if is_address else {"end": "count"}.get(name, name)
                    found.append(self.choose(argument, Variable(name, INDEX if type.text == INDEX.text else type)))
                case Member(Name("m"), "scratch"):
                    found.append(argument)
                case Member(Name("args" | "m")) if type.is_pointer and str(argument) in self.fields:
                    found.append(self.choose(argument, Variable(_label(argument), type)))
                case Name(text) if type.is_pointer and text in self.arrays:
                    found.append(self.choose(Name(self.arrays[text]), Variable(text, type)))
                case _:
                    found.append(self.part(argument))
        return found

    def offset(self, e: Expr) -> Expr:
        """A number of elements behind a pointer."""
        match e:
            case Literal():
                return self.number(e, "stride")
            case Infix("*" | "+" as op, left, right):
                return Infix(op, self.offset(left), self.offset(right))
        other: Expr = self.part(e)
        return other

    def number(self, e: Expr, role: str) -> Expr:
        is_number = isinstance(e, Literal) and e.text.isdigit()
        found: Expr = self.choose(e, Variable(role, INDEX)) if is_number else self.part(e)
        return found


def _is_array(parameter: Variable) -> bool:
    return parameter.type.is_pointer and parameter.text not in (*STATE, HOST)


def _own(function: Outlined, leaf: Expr) -> Expr:
    """A leaf inside of a function: a parameter in place of its argument."""
    match leaf:
        case Name(text) if text.startswith("$"):
            return function.parameters[int(text.removeprefix("$"))]
    return leaf


def _parts(users: list[Shape]) -> Iterator[list[Shape]]:
    """All functions of equal shape, then all but one of them, whose parameters may be too many."""
    yield users
    for other in users if len(users) > 2 else ():
        yield [each for each in users if each is not other]


def _root(e: Expr) -> Expr | None:
    """The field that an address begins with."""
    while isinstance(e, Infix):
        e = e.left
    return e if isinstance(e, Member) and isinstance(e.base, Name) and e.base.text in STATE else None


def _label(place: Expr) -> str:
    """The name of a field without the struct that it is in."""
    assert isinstance(place, Member)
    return place.field.rpartition(".")[2]


def _without(own: Sequence[str], words: Sequence[str]) -> str:
    """The name of a parameter without the words of the function's name that it begins with."""
    rest = list(words)
    while rest and rest[0] in own:
        rest.pop(0)
    return "_".join(rest or words[-1:])


def _derived(column: Column, known: Column, parameter: Variable) -> Expr | None:
    """A column computed from that of a parameter: `counter + 1`, or half of its negative."""
    made = tuple(each for each in column if isinstance(each, Literal))
    given = tuple(each for each in known if isinstance(each, Literal))
    pairs = [(a.text, b.text) for a, b in zip(made, given, strict=False)]
    if len(made) < len(column) or len(given) < len(known):
        return None
    if parameter.type == INDEX:
        value = derived(made, given, parameter)
        shares = {int(b) // int(a) for a, b in pairs if int(a) > 0 and int(b) % int(a) == 0}
        if value is None and len(shares) == 1 and all(int(b) == int(a) * min(shares) for a, b in pairs):
            value = Infix("/", parameter, Literal(str(min(shares))))
        if value is None and all(int(a) == int(b) - 1 for a, b in pairs):
            value = Infix("-", parameter, Literal("1"))
        is_clear = isinstance(value, Infix) and (value.op != "+" or value.left is parameter)
        return value if is_clear else None
    if parameter.type.text == "double" and all(float(a) == -0.5 * float(b) for a, b in pairs):
        return Infix("/", Prefix("-", parameter), Literal("2.0"))
    return None


def _with_variables(tree: Any, found: Mapping[Variable, Variable]) -> Any:
    if isinstance(tree, Variable):
        return found.get(tree, tree)
    return rebuilt(tree, lambda part: _with_variables(part, found))


def with_calls(tree: Any, calls: Mapping[str, Call]) -> Any:
    """Statements with calls of merged functions."""
    if isinstance(tree, Call) and tree.function in calls:
        new = calls[tree.function]
        given = {f"${number}": each for number, each in enumerate(tree.arguments)}
        arguments = [given.get(each.text, each) if isinstance(each, Name) else each for each in new.arguments]
        return Call(new.function, tuple(arguments))
    return tree if isinstance(tree, Variable) else rebuilt(tree, lambda part: with_calls(part, calls))
