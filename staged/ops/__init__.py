"""Every op of the language: primitives, declared once; the public functions over them; composites.

Importing this package declares them all. `PRIMITIVES` and `COMPOSITES` hold the declarations by name, `METHODS` the
public functions (those of `st.random` as `random.uniform`, ...).
"""

from staged.ops import (
    composites,
    contraction,
    convolution,
    elementwise,
    index,
    numpy_map,
    pooling,
    promote,
    random,
    reduction,
    shape,
    source,
)
from staged.ops.array import METHODS, Array, StagedArray
from staged.ops.composite import COMPOSITES, Composite, composite
from staged.ops.primitive import PRIMITIVES, Primitive

__all__ = [
    "COMPOSITES",
    "METHODS",
    "PRIMITIVES",
    "Array",
    "Composite",
    "Primitive",
    "StagedArray",
    "composite",
    "composites",
    "contraction",
    "convolution",
    "elementwise",
    "index",
    "numpy_map",
    "pooling",
    "promote",
    "random",
    "reduction",
    "shape",
    "source",
]
