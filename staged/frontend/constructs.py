"""The constructs of Python: each file registers its rules, operators and calls as it is imported; a new one is a line
here.
"""

from __future__ import annotations

from staged.frontend import (  # noqa: F401  (imported for what they register)
    assert_,
    assign,
    attributes,
    boolean,
    builtins_,
    calls,
    cleanup,
    clocks,
    exits,
    files,
    flow,
    for_,
    function,
    if_,
    match_,
    math_,
    operands,
    print_,
    staged_calls,
    stores,
    strings,
    try_,
    while_,
    with_,
)
