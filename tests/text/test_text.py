"""No text gets worse, and the checker finds what it looks for."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.text.ceilings import SUM, TABLE, carried, failures, parse, recorded, text_of, updated
from tests.text.links import slug_of
from tests.text.prose import Prose, read_markdown, read_python
from tests.text.rules import LONGEST_PAGE, LONGEST_SENTENCE, RATE, WIDEST, WORDS, Found, check

ROOT = Path(__file__).parent.parent.parent


def test_no_file_is_above_its_ceilings() -> None:
    messages = failures(check(ROOT), parse(TABLE.read_text()), ROOT)
    assert not messages, "\n\n".join(["", *messages, "moved text: `python -m tests.text --update` (CONTRIBUTING.md, Text)"])


def test_contributing_states_the_limits() -> None:
    page = " ".join((ROOT / "CONTRIBUTING.md").read_text().split())
    for limit in (
        f"sentences of more than {LONGEST_SENTENCE} words",
        f"pages of more than {LONGEST_PAGE} lines",
        f"lines of more than {WIDEST} columns",
        f"{RATE} awkward expressions per 1,000 words",
    ):
        assert limit in page


# ---- ceilings ------------------------------------------------------------------------------------

HIT = "This function takes an array.\n\n"
GOOD = "Each function accepts several arrays here.\n\n"


@pytest.fixture
def files(tmp_path: Path) -> object:
    def write(**pages: str) -> Found:
        """Check a folder that has these pages and no others."""
        for path in tmp_path.glob("*.md"):
            path.unlink()
        for name, text in pages.items():
            (tmp_path / f"{name}.md").write_text(text)
        return check(tmp_path)

    return write


def test_a_rise_fails_with_line_and_replacement(files, tmp_path: Path) -> None:
    ceilings = recorded(files(a=HIT * 2))
    assert not failures(files(a=HIT * 2), ceilings, tmp_path)
    worse = files(a=HIT * 3)
    for table in (ceilings, updated(worse, ceilings)):
        (message,) = failures(worse, table, tmp_path)
        assert message.startswith("a.md: 3 awkward expressions, at most 2 allowed")
        assert 'a.md:5: "takes"; write instead: accepts' in message


def test_ceilings_only_fall(files, tmp_path: Path) -> None:
    ceilings = updated(files(a=HIT), recorded(files(a=HIT * 3)))
    assert ceilings["a.md"]["words"] == ceilings[SUM]["words"] == 1
    assert failures(files(a=HIT * 2), ceilings, tmp_path)
    assert updated(files(a=HIT * 2), ceilings) == ceilings


def test_text_that_moves_or_is_split_or_merged_carries_its_ceilings(files, tmp_path: Path) -> None:
    before = {"a": HIT * 6, "b": HIT * 2}
    ceilings = recorded(files(**before))
    for after in (
        {"new": HIT * 6, "b": HIT * 2},
        {"a": HIT * 2, "b": HIT * 2, "new": HIT * 4},
        {"one": HIT * 3, "two": HIT * 3, "b": HIT * 2},
        {"both": HIT * 8},
    ):
        found = files(**after)
        assert failures(found, ceilings, tmp_path)
        table = updated(found, ceilings)
        assert not failures(found, table, tmp_path)
        assert table[SUM]["words"] == 8
        assert {path for path in table if path != SUM} == {f"{name}.md" for name in after}
    worse = files(new=HIT * 7, b=HIT * 2)
    assert failures(worse, updated(worse, ceilings), tmp_path)


def test_text_that_moves_to_a_file_with_ceilings_is_carried_by_name(files, tmp_path: Path) -> None:
    ceilings = recorded(files(a=HIT * 6, b=HIT * 2))
    for after in ({"a": HIT * 2, "b": HIT * 6}, {"b": HIT * 8}):
        found = files(**after)
        assert failures(found, updated(found, ceilings), tmp_path)
        table = updated(found, carried(found, ceilings, "a.md", "b.md"))
        assert not failures(found, table, tmp_path)
        assert table[SUM]["words"] == 8
    worse = files(a=HIT * 2, b=HIT * 7)
    assert failures(worse, updated(worse, carried(worse, ceilings, "a.md", "b.md")), tmp_path)


def test_a_sum_that_rises_fails(files, tmp_path: Path) -> None:
    ceilings = recorded(files(a=HIT))
    found = files(a=HIT * 2)
    by_hand = {**ceilings, "a.md": Counter(words=2)}
    for table in (by_hand, updated(found, by_hand)):
        (message,) = failures(found, table, tmp_path)
        assert "sum" in message


def test_new_text_has_at_most_four_hits_per_1000_words(files, tmp_path: Path) -> None:
    ceilings = recorded(files())
    thousand = HIT * 4 + GOOD * 163 + "Two more.\n\n"
    four = files(a=thousand)
    assert four.words["a.md"] == 1000 and not failures(four, ceilings, tmp_path)
    for text in (thousand.removesuffix("more.\n\n"), HIT + thousand, HIT):
        found = files(a=text)
        assert failures(found, updated(found, ceilings), tmp_path)


def test_ceilings_of_a_file_that_is_gone_fail(files, tmp_path: Path) -> None:
    ceilings = recorded(files(a=HIT, b=HIT))
    found = files(b=HIT)
    (message,) = failures(found, ceilings, tmp_path)
    assert "a.md" in message
    assert not failures(found, updated(found, ceilings), tmp_path)


def test_a_table_is_read_as_it_was_written(files) -> None:
    ceilings = recorded(files(b=HIT * 2, a="x" * 130))
    assert text_of(ceilings).splitlines()[1:] == ["sum words=2 columns=1", "a.md columns=1", "b.md words=2"]
    assert parse(text_of(ceilings)) == ceilings


# ---- rules ---------------------------------------------------------------------------------------

# A phrase for each expression, in the order of the table.
PHRASES = """\
an op that is refused | the gradient of x by the mask | arrays of halves | the text of a program | the places that count
nobody knows | as they are | of its own | What is trained | So do loops | x has none | it is to be sorted | it wants an array
it stands there | which is no array | numbers of the host | sums up | makes an array | takes an array | the words of an error
the extent of an axis | where an array is empty"""
RIGHT = "What is a region? | it takes 3 seconds | it takes place | it stands for x | x has no gradient | the place of x"


def test_each_expression_finds_its_phrase() -> None:
    phrases = re.split(r" \| |\n", PHRASES)
    for (expression, _), phrase in zip(WORDS, phrases, strict=True):
        assert re.search(expression, phrase), phrase
    for phrase in RIGHT.split(" | "):
        assert not [expression for expression, _ in WORDS if re.search(expression, phrase)], phrase


def test_each_kind_is_found_on_a_page(files) -> None:
    long = "one " * (LONGEST_SENTENCE + 1) + "\nend.\n"
    page = f"# A page\n\n{long}\nA; b; c; d.\n\nA [link](b.md), [another](#a-page), [a third](#a-leaf).\n" + "-" * 121
    assert [(finding.kind, finding.line) for finding in files(a=page).findings["a.md"]] == [
        ("links", 8),
        ("links", 8),
        ("sentences", 3),
        ("semicolons", 6),
        ("columns", 3),
        ("columns", 9),
    ]
    assert files(a="- a\n" * (LONGEST_PAGE + 5)).counts()["a.md"] == {"lines": 5}
    generated = files(a="# A\n\n<!-- Written by a program. -->\n\n" + HIT * 300, b="<!-- b: begin -->\n" + HIT + "<!-- b: end -->\n")
    assert generated.counts() == {"a.md": {}, "b.md": {}}


def test_code_of_a_page_is_not_prose() -> None:
    prose = Prose()
    lines = [
        "Calls `that takes`, `one\ntakes`.",
        "```c\n// takes\n```",
        "<!-- takes -->",
        "",
        "    takes",
        "",
        "- an item",
        "  of two lines\n- another",
        "| a cell | [another](takes.md) |",
        ">>> takes()\ntakes",
    ]
    read_markdown(list(enumerate("\n".join(lines).splitlines(), 1)), prose)
    assert "takes" not in prose.text
    shown = [re.sub("§+", "§", passage.strip()) for passage in prose.text.split(".\n")]
    assert [passage for passage in shown if passage] == [
        "Calls §, §.",
        "- an item of two lines",
        "- another",
        "a cell",
        "[another]§",
    ]


SOURCE = '''\
"""A module that takes 1.

    takes 2
"""
KERNEL = f"""
int f(int takes) {{  // It takes 3
    // It has
    // none 4, of {takes}.
    return takes;
}}
"""
def f(x):
    """Values.

    x : int
        It takes 5 values.
    """
    # takes
    if x == "takes":
        raise ShapeError(
            "f takes "
            f"an axis 6, got {x('takes')}",
            hint="it takes one 7",
        )
    raise DTypeError("f must have an int, got 8")
'''


def test_docstrings_messages_and_comments_of_c_are_read() -> None:
    prose = Prose()
    assert read_python(SOURCE, prose) == [(25, "DTypeError")]
    text = prose.text
    hits = [(match[0], prose.line_of(match.start())) for match in re.finditer(r"takes|none", text)]
    assert hits == [("takes", 1), ("takes", 6), ("none", 8), ("takes", 16), ("takes", 21), ("takes", 23)]
    assert [message[:20] for _, message in prose.messages] == ["f takes an axis 6, g", "it takes one 7", "f must have an int, "]


def test_a_source_is_checked_for_each_kind(tmp_path: Path) -> None:
    (tmp_path / "staged").mkdir()
    message = '    raise ShapeError("an axis is an integer, got 1.5")\n'
    (tmp_path / "staged" / "a.py").write_text(f'"""Returns what it takes."""\nA = "{"a" * WIDEST}"\ndef f():\n{message}')
    counts = check(tmp_path).counts()["staged/a.py"]
    assert counts == {"words": 1, "columns": 1, "got": 1, "hints": 1}


def test_anchors_are_those_of_github() -> None:
    headings = {
        "Names of torch": "names-of-torch",
        "`st.grad`, and *more*: [links](a.md)": "stgrad-and-more-links",
        "A - b_c": "a---b_c",
    }
    assert {heading: slug_of(heading) for heading in headings} == headings
