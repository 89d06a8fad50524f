"""All tests of this clone, those of the emulated device too, have the fixtures and options of `tests/plugin.py`."""

import cuda_emulator  # noqa: F401  (before pytest makes a package of this name from the folder that its tests are in)

pytest_plugins = ["tests.plugin"]
