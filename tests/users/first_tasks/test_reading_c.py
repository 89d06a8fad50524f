"""Reading the C of a program: names of the user, and lines of the user above the code.

Follows README.md#the-same-program-in-two-libraries and docs/guide.md#looking-at-the-program.
"""

import re
from pathlib import Path

import numpy as np

import staged as st


@st.function
def descend(points, targets, steps):
    weights = st.zeros(points.shape[1])
    for step in st.range(steps):
        error = points @ weights - targets
        slope = points.T @ error / len(points)
        weights = weights - 0.5 * slope
        if step % 10 == 0:
            print(f"step {step}: {st.max(st.abs(slope)):.3f}")
    return weights


def test_it_cites_the_users_lines_and_keeps_names(capsys):
    points, targets = np.eye(4, 3, dtype=np.float32), np.arange(4, dtype=np.float32)
    source = descend.stage(points, targets, 20).source
    lines = Path(__file__).read_text().splitlines()
    cited = re.findall(r"// test_reading_c\.py:(\d+)  (.*)", source)
    assert cited
    for number, text in cited:
        assert lines[int(number) - 1].strip().startswith(text.removesuffix("...").strip()), (number, text)
    body = source[source.index("int descend(") :]
    assert "for (int64_t step = 0; step < " in body
    for name in ("args->points", "args->targets", "args->steps", "weights", "slope"):
        assert name in body, name
    found = descend(points, targets, 20)
    np.testing.assert_allclose(found, targets[:3] * (1 - 0.875**20), rtol=1e-5)
    assert capsys.readouterr().out == "step 0: 0.500\nstep 10: 0.132\n"
