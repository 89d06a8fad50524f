"""Parts of slopes that are composites, so that their own derivatives do not cancel."""

from __future__ import annotations

from staged.ops.array import Array
from staged.ops.composite import composite
from staged.ops.primitive import Sample


@composite("rest_of_square", slopes=[lambda t, y, x: t * (x * -2.0)], samples=[Sample(((4, 5),))])
def _rest_of_square(x: Array) -> Array:
    return (1.0 - x) * (x + 1.0)


def rest_of_square(x: Array) -> Array:
    """1 - x * x, accurate near 1."""
    return _rest_of_square(x)[0]
