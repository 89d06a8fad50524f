"""The harness of this folder is imported by its tests as `harness`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
