"""Mutants fit their sources after changes that keep the code, and a message explains when a mutant does not fit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutate.anchor import planted
from tests.mutate.mutant import Mutant, Text
from tests.mutate.sources import MisfitError, Sources

SHAPES = '''
LIMITS = (1, 2)


class Box:
    size = 3

    def area(self, width, height=1):
        if width < 0 or height < 0:
            raise ValueError(f"the sizes are {width} and {height}")
        return width * (height + self.size)  # a comment


def total(boxes):
    result = 0
    for box in boxes:
        if box is not None:
            result += box.area(1)
        else:
            result += 1
    return sum(x for x in (result, 1))


def number(word):
    try:
        return int(word)
    except ValueError:
        return None


def kind(value):
    match value:
        case int() | float():
            return "number"
        case _:
            return """
    int n = 2;
    call(n);
"""
'''


def project(folder: Path, **files: str) -> Sources:
    for name, text in files.items():
        (folder / "staged").mkdir(exist_ok=True)
        (folder / "staged" / f"{name}.py").write_text(text, encoding="utf-8")
    return Sources(folder)


def faulty(sources: Sources, target: str, before: str, after: str) -> str:
    return planted(sources, Mutant("a fault", target, before, after, ()))[1]


@pytest.mark.parametrize(
    ("target", "before", "after", "old", "new"),
    [
        ("shapes:Box.area", "width*( height+self.size )", "width", "width * (height + self.size)", "width"),
        ("shapes:Box.area", "height + self.size", "height - 1", "(height + self.size)", "((height - 1))"),
        ("shapes:Box.area", "width < 0", "False", "width < 0", "False"),
        ("shapes:Box.area", "if width < 0 or height < 0: ...", "if width < 0: ...", "width < 0 or height < 0", "(width < 0)"),
        ("shapes:Box.area", "def area(self, width, height=1): ...", "def area(self, width, height=2): ...", "=1", "=2"),
        ("shapes:total", "result += 1", "", "result += 1", "pass"),
        ("shapes:total", "if box is not None: ...", "if True: ...", "box is not None", "True"),
        ("shapes:total", "result = 0", "result = 0\nboxes = boxes[1:]", "result = 0", "result = 0\n    boxes = boxes[1:]"),
        ("shapes:total", "(x for x in (result, 1))", "[result]", "(x for x in (result, 1))", "([result])"),
        ("shapes:kind", "case int() | float(): ...", "case int(): ...", "int() | float()", "int()"),
        ("shapes:number", "except ValueError: ...", "except TypeError: ...", "except ValueError", "except TypeError"),
        ("shapes:kind", Text("call(n);"), "", "    call(n);\n", ""),
        ("shapes:kind", Text("int n\n =   2;"), "int n = 3;", "int n = 2;", "int n = 3;"),
        ("shapes:Box.area", Text("{width} and"), "{height} and", "{width} and", "{height} and"),
        ("shapes:Box.size", "3", "4", "size = 3", "size = 4"),
        ("shapes:", "LIMITS = (1, 2)", "LIMITS = (1,)", "(1, 2)", "(1,)"),
    ],
)
def test_a_match_is_replaced_and_the_rest_of_the_file_stays(
    tmp_path: Path, target: str, before: str, after: str, old: str, new: str
) -> None:
    sources = project(tmp_path, shapes=SHAPES)
    assert SHAPES.count(old) == 1
    assert faulty(sources, target, before, after) == SHAPES.replace(old, new)


def test_an_ambiguous_match_is_an_error(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES)
    message = "`before` matches {} times in {} of staged/shapes.py; it must match once"
    for name, before, count in (("Box.area", "width", 3), ("Box.area", "0", 2), ("Box", "height", 3)):
        with pytest.raises(MisfitError, match=message.format(count, name)):
            faulty(sources, f"shapes:{name}", before, "1")


def test_an_expression_inside_an_f_string_is_replaced(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes="def f(x):\n    return f'{x + 1} and {x}', 1\n")
    result = faulty(sources, "shapes:f", "x + 1", "x + 2")
    assert ast.dump(ast.parse(result)) == ast.dump(ast.parse("def f(x):\n    return f'{x + 2} and {x}', 1\n"))


def test_a_statement_of_another_kind_keeps_its_blocks(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES)
    result = faulty(sources, "shapes:total", "if box is not None: ...", "while box: ...")
    assert ast.unparse(ast.parse(result)) == ast.unparse(ast.parse(SHAPES.replace("if box is not None", "while box")))
    text = "def f(x):\n    def g():\n        '''A\n        b.'''\n        return x\n    return g\n"
    sources = project(tmp_path, nested=text)
    result = faulty(sources, "nested:f", "def g(): ...", "@staticmethod\ndef g(): ...")
    assert ast.dump(ast.parse(result)) == ast.dump(ast.parse(text.replace("    def g", "    @staticmethod\n    def g")))


def test_local_names_may_be_renamed(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES.replace("boxes", "items").replace("box", "item"))
    assert "result += item.area(2)" in faulty(sources, "shapes:total", "box.area(1)", "box.area(2)")
    assert "for item in items[1:]:" in faulty(sources, "shapes:total", "for box in boxes: ...", "for box in boxes[1:]: ...")
    # One name for two, a name that has another meaning, and an attribute are no renaming.
    for before in ("sum(x for y in (result, 1))", "box.space(1)", "len.area(1)", "LIMITS.area(1)"):
        with pytest.raises(MisfitError, match="`before` does not match in total of staged/shapes.py"):
            faulty(sources, "shapes:total", before, "1")


def test_a_name_that_only_after_has_must_exist(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES.replace("boxes", "items"))
    with pytest.raises(MisfitError, match="`after` has a name that shapes:total does not have: boxes"):
        faulty(sources, "shapes:total", "result = 0", "result = boxes")


def test_code_may_move_to_another_file(tmp_path: Path) -> None:
    sources = project(tmp_path, other="x = 1\n", moved=SHAPES)
    for module in ("shapes", "other"):
        file, text = planted(sources, Mutant("a fault", f"{module}:Box.area", "width < 0", "False", ()))
        assert file == Path("staged/moved.py") and text == SHAPES.replace("width < 0", "False")
    sources = project(tmp_path, again=SHAPES)
    message = "there is no module shapes, and 2 files do: staged/again.py, staged/moved.py"
    with pytest.raises(MisfitError, match=message):
        faulty(sources, "shapes:Box.area", "width < 0", "False")
    with pytest.raises(MisfitError, match="there is no module shapes$"):
        faulty(sources, "shapes:", "width < 0", "False")


def test_a_message_names_the_closest_function(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES, other="def first(y):\n    return y / 3\n")
    message = "staged/shapes.py does not define Box.areas, nor does another file; the closest name is Box.area of staged/shapes.py"
    with pytest.raises(MisfitError, match=message):
        faulty(sources, "shapes:Box.areas", "width < 0", "False")
    with pytest.raises(MisfitError, match="`before` does not match in kind of staged/shapes.py; it matches in Box.area of st"):
        faulty(sources, "shapes:kind", "width < 0", "False")
    with pytest.raises(MisfitError, match="`before` does not match in kind of .*; it matches in first of staged/other.py"):
        faulty(sources, "shapes:kind", "y / 3", "y / 2")


def test_a_text_must_be_there_once(tmp_path: Path) -> None:
    sources = project(tmp_path, shapes=SHAPES)
    for text, count in (("int n = 3;", 0), ("n", 4)):
        with pytest.raises(MisfitError, match=f"`before` is in the text of shapes:kind {count} times; it must be there once"):
            faulty(sources, "shapes:kind", Text(text), "")
    (tmp_path / "a.cpp").write_text("int f() {\n    return g(1,\n             2);\n}\n")
    assert faulty(sources, "a.cpp", "g(1, 2)", "0") == "int f() {\n    return 0;\n}\n"
    with pytest.raises(MisfitError, match="there is no file b.cpp"):
        faulty(sources, "b.cpp", "g(1, 2)", "0")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("width <", "False", "`before` is not Python: "),
        ("", "False", "`before` is empty"),
        ("width < 0", "(width<0)", "`after` is `before`"),
        ("if width < 0 or height < 0: ...", "while True:\n    ...\nelse: ...", "`after` has more blocks `...` than `before`"),
    ],
)
def test_a_wrong_row_is_an_error(tmp_path: Path, before: str, after: str, message: str) -> None:
    with pytest.raises(MisfitError, match=message):
        faulty(project(tmp_path, shapes=SHAPES), "shapes:Box.area", before, after)
