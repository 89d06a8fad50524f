"""Assignment: plain, annotated, augmented, unpacking, to attributes and elements; `del`; `:=`.

Arrays are values: `x[i] = v` gives the name `x` a new array. Lists, dicts and attributes are Python state: changed now,
logged (see `mutation`). What the converted code calls is in `stores`.
"""

from __future__ import annotations

import ast
from typing import Literal

from staged.frontend.syntax.converter import Converter, expression, place, statement, text
from staged.frontend.syntax.names import subscript_root


@statement(ast.Assign)
def convert_assign(converter: Converter, node: ast.Assign) -> list[ast.stmt]:
    value = converter.expr(node.value)
    if len(node.targets) == 1:
        return assign(converter, node.targets[0], value, node)
    name = converter.fresh("value")
    out: list[ast.stmt] = [place(ast.Assign([ast.Name(name, ast.Store())], value), node)]
    for target in node.targets:
        out += assign(converter, target, ast.Name(name, ast.Load()), node)
    return out


@statement(ast.AnnAssign)
def convert_annotated(converter: Converter, node: ast.AnnAssign) -> list[ast.stmt]:
    if node.value is None:
        return []
    return assign(converter, node.target, converter.expr(node.value), node)


def assign(converter: Converter, target: ast.expr, value: ast.expr, where: ast.AST) -> list[ast.stmt]:
    """The statements that store `value` (converted) into `target` (not converted)."""
    match target:
        case ast.Name(id=name):
            home = converter.resolve(name)
            if home is None and not converter.scopes[-1].is_class:
                value = converter.call("outer_write", text(name), value)
            store = ast.Name(name, ast.Store()) if home is None else _attribute(home, name)
            return [place(ast.Assign([store], value), where)]
        case ast.Attribute(value=owner, attr=name):
            call = converter.call("set_attribute", converter.expr(owner), text(converter.mangle(name)), value)
            return [place(ast.Expr(place(call, where)), where)]
        case ast.Subscript():
            return _store(converter, target, "store", [value], where)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            stars = [index for index, part in enumerate(parts) if isinstance(part, ast.Starred)]
            count = text(-1 if stars else len(parts))
            unpacked = converter.call("unpack", value, count)
            names = [converter.fresh("part") for _ in parts]
            stores: list[ast.expr] = [
                ast.Starred(ast.Name(name, ast.Store()), ast.Store()) if index in stars else ast.Name(name, ast.Store())
                for index, name in enumerate(names)
            ]
            out: list[ast.stmt] = [place(ast.Assign([ast.Tuple(stores, ast.Store())], place(unpacked, where)), where)]
            for name, part in zip(names, parts, strict=True):
                inner = part.value if isinstance(part, ast.Starred) else part
                taken: ast.expr = ast.Name(name, ast.Load())
                if isinstance(part, ast.Starred):
                    taken = place(converter.call("made", taken), where)
                out += assign(converter, inner, taken, where)
            return out
    raise converter.refuse(target, "this assignment cannot be staged")


def _attribute(home: str, name: str) -> ast.expr:
    return ast.Attribute(ast.Name(home, ast.Load()), name, ast.Store())


def _store(
    converter: Converter,
    target: ast.Subscript,
    kind: Literal["store", "augment"],
    arguments: list[ast.expr],
    where: ast.AST,
) -> list[ast.stmt]:
    """`root[k1][k2] = v`: a call that gives the new root, assigned back where the root is a name or attribute."""
    keys: list[ast.expr] = []
    node: ast.expr = target
    while isinstance(node, ast.Subscript):
        keys.insert(0, converter.expr(node.slice))
        node = node.value
    root = subscript_root(target)
    key_tuple = ast.Tuple(keys, ast.Load())
    if isinstance(root, ast.Name) and (home := converter.resolve(root.id)) is not None:
        call = converter.call(kind, converter.load(root.id), text(root.id), key_tuple, *arguments)
        return [place(ast.Assign([_attribute(home, root.id)], place(call, where)), where)]
    if isinstance(root, ast.Attribute):
        call = converter.call(
            f"{kind}_attribute", converter.expr(root.value), text(converter.mangle(root.attr)), key_tuple, *arguments
        )
        return [place(ast.Expr(place(call, where)), where)]
    call = converter.call(f"{kind}_nowhere", converter.expr(root), key_tuple, *arguments)
    return [place(ast.Expr(place(call, where)), where)]


@statement(ast.AugAssign)
def convert_augmented(converter: Converter, node: ast.AugAssign) -> list[ast.stmt]:
    name = text(type(node.op).__name__)
    match node.target:
        case ast.Name(id=target):
            value = converter.call("augmented", converter.load(target), name, converter.expr(node.value))
            return assign(converter, node.target, place(value, node), node)
        case ast.Attribute(value=owner, attr=attribute):
            call = converter.call(
                "augment_attribute",
                converter.expr(owner),
                text(converter.mangle(attribute)),
                name,
                converter.lambda_(node.value),
            )
            return [place(ast.Expr(place(call, node)), node)]
        case ast.Subscript():
            return _store(converter, node.target, "augment", [name, converter.lambda_(node.value)], node)
    raise AssertionError("Python has no other augmented target")


@statement(ast.Delete)
def convert_delete(converter: Converter, node: ast.Delete) -> list[ast.stmt]:
    out: list[ast.stmt] = []
    for target in node.targets:
        match target:
            case ast.Name(id=name) if converter.resolve(name) is not None:
                home = converter.resolve(name)
                assert home is not None
                gone: ast.stmt = ast.Delete([ast.Attribute(ast.Name(home, ast.Load()), name, ast.Del())])
            case ast.Subscript(value=owner, slice=key):
                gone = ast.Expr(converter.call("delete_item", converter.expr(owner), converter.expr(key)))
            case ast.Attribute(value=owner, attr=name):
                gone = ast.Expr(converter.call("delete_attribute", converter.expr(owner), text(converter.mangle(name))))
            case _:
                raise converter.refuse(target, "this `del` cannot be staged")
        out.append(place(gone, node))
    return out


@expression(ast.NamedExpr)
def convert_walrus(converter: Converter, node: ast.NamedExpr) -> ast.expr:
    value = converter.expr(node.value)
    home = converter.resolve(node.target.id)
    if home is None:
        raise converter.refuse(node, f"`:=` to the outer name `{node.target.id}` cannot be staged")
    return converter.call("walrus", ast.Name(home, ast.Load()), text(node.target.id), value)


@expression(ast.Subscript)
def convert_subscript(converter: Converter, node: ast.Subscript) -> ast.expr:
    return converter.call("get_item", converter.expr(node.value), converter.expr(node.slice))


@expression(ast.Slice)
def convert_slice(converter: Converter, node: ast.Slice) -> ast.expr:
    parts = [text(None) if part is None else converter.expr(part) for part in (node.lower, node.upper, node.step)]
    return converter.call("slice_", *parts)


@expression(ast.List, ast.Dict, ast.Set)
def convert_display(converter: Converter, node: ast.expr) -> ast.expr:
    return converter.call("made", converter.children(node))
