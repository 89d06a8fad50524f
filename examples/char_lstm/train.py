"""Train a character LSTM; the whole of training, and the text that it writes, is one generated C program.

python -m examples.char_lstm.train                    # the Zen of Python, offline
python -m examples.char_lstm.train --data FOLDER      # FOLDER/input.txt, such as tinyshakespeare
python -m examples.char_lstm.train --letters          # Lantern's setting: the letters a to z alone
python -m examples.char_lstm.train --show             # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/char_lstm/train.py`

from examples.char_lstm.model import CharLSTM
from examples.char_rnn.train import main

if __name__ == "__main__":
    main(CharLSTM, __doc__, Path(__file__).parent / "out")
