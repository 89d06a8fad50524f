"""The descriptions of devices in `tests/gpu_check/devices/`: a folder per device, with `libraries.json`.

`device` in that file is the description in cuDNN's own form. After a run on a GPU it comes from a handle, and `source` tells so. The
other files are written by hand. They count only while no real device of the same compute capability has a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "gpu_check" / "devices"
FROM_HANDLE = "a handle on the device"
"""The `source` of a real device's description."""


def descriptions(folder: Path = FOLDER) -> dict[tuple[int, int], tuple[str, dict[str, Any]]]:
    """The (folder's name, description) of each compute capability: of a real device if there is one."""
    found: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}
    known = [(path.parent.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*/libraries.json"))]
    # Real ones later, so that they replace those by hand.
    for name, content in sorted(known, key=lambda each: each[1]["source"] == FROM_HANDLE):
        if "device" in content:  # cuDNN may have answered nothing in a run
            version = int(content["device"]["deviceVer"])
            found[version // 100, version % 100 // 10] = name, content["device"]
    return found
