"""The language: primitives, declared once, and the public functions that are one primitive or a few.

Importing this package declares the primitives. `primitive.PRIMITIVES` and `composite.COMPOSITES` hold the declarations
by name, `array.METHODS` the public functions by name. Functions that are written with these are in `staged/library`.
"""

from staged.ops import (  # noqa: F401  (declare primitives)
    choice,
    comparisons,
    contraction,
    convolution,
    dimension,
    elementwise,
    index,
    joining,
    numpy_map,
    pooling,
    reduction,
    shape,
    sorting,
    source,
    subscript,
    torch_words,
)
