"""The words of an error without the user's line that it cites.

A table of refusals holds the call and the expected words in one row. The error of that call cites the row, and so holds
the words whatever it says: only what the error says of itself can be compared with them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from staged import StagedError
from staged import function as staged_function


def words_of(error: BaseException) -> str:
    """The message, details and hint of an error of ours, and the text of any other."""
    if not isinstance(error, StagedError):
        return str(error)
    return "\n".join([error.message, *error.details, error.hint or ""])


@contextmanager
def refuses(error: type[BaseException] | tuple[type[BaseException], ...], match: str) -> Iterator[Any]:
    """`pytest.raises(error, match=match)`, whose pattern does not see the line that is cited."""
    with pytest.raises(error) as caught:
        yield caught
    found = words_of(caught.value)
    assert re.search(match, found), f"{match!r} is not in what was said:\n{found}"


def refusals(
    *rows: Any, usual: type[BaseException] | tuple[type[BaseException], ...] = StagedError, given: tuple[Any, ...] = ()
) -> Callable[[str], None]:
    """A test of calls that raise an error with these words, and with the line of the call.

    A row is (call, error, words), or (call, words) of the usual error. Instead of rows there may be a mapping from
    names to rows. If arguments are given, each call is a staged function of them.
    """
    cases = rows[0] if isinstance(rows[0], Mapping) else {f"{number}: {row[-1]}": row for number, row in enumerate(rows)}

    @pytest.mark.parametrize("name", cases)
    def test(name: str) -> None:
        call, *errors, words = cases[name]
        with refuses(*errors or [usual], words) as caught:
            staged_function(call)(*given) if given else call()
        place = f"{Path(call.__code__.co_filename).name}, line"
        assert place in str(caught.value), f"{place} is not in what was said:\n{caught.value}"

    return test
