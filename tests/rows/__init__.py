"""One row for each public function: a call with drawn arguments, a second reading in NumPy, special values.

The fuzzer, the table of what is supported, and tests of values read these rows. Every file here is a family of functions.
No file here imports `staged`: a reading is a second opinion on eager mode and on the compiled program.
"""

from importlib import import_module
from pkgutil import iter_modules

from tests.rows.table import ROWS, Call, Row, row

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["ROWS", "Call", "Row", "row"]
