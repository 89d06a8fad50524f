"""Train ResNet-50; the whole of training is one generated C program.

python -m examples.resnet50.train                # synthetic images of 32 x 32
python -m examples.resnet50.train --data FOLDER  # CIFAR-10 in its binary form
python -m examples.resnet50.train --size 224     # synthetic images in the size of ImageNet's
python -m examples.resnet50.train --show         # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/resnet50/train.py`

from examples.resnet50.model import ResNet
from examples.squeezenet.train import main

if __name__ == "__main__":
    main(ResNet, __doc__, 1e-3)
