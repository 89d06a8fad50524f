"""The functions that `array.functions` has when the program runs, for type checkers."""

from staged.library import *  # noqa: F403
from staged.library.statistics.quantiles import lower_median as lower_median
from staged.ops.choice import stop_gradient as stop_gradient
from staged.ops.numpy_map import numpy_function as numpy_function
from staged.ops.numpy_map import numpy_ufunc as numpy_ufunc
from staged.ops.shape import item as item
from staged.ops.sorting import sort_with_places as sort_with_places
from staged.ops.subscript import get_item as get_item
