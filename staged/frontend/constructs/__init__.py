"""The constructs of Python. Each file registers its rules, operators and calls as it is imported; a new one is a line
here.
"""

from __future__ import annotations

# Imported for what they register.
from staged.frontend.calls import call, definitions, staged_calls  # noqa: F401
from staged.frontend.constructs import (  # noqa: F401
    assert_,
    attributes,
    boolean,
    breakpoints,
    builtins_,
    clocks,
    files,
    for_,
    if_,
    match_,
    math_,
    print_,
    simple_statements,
    stores,
    strings,
    try_,
    while_,
    with_,
)
from staged.frontend.exits import cleanup, statements  # noqa: F401
from staged.frontend.syntax import assign  # noqa: F401
from staged.frontend.values import operands  # noqa: F401
