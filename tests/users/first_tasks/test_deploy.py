"""A trained model, exported and called from an own `main.c`.

Follows README.md#deploy-without-python and docs/guide.md#looking-at-the-program, and the README of the exported folder.
"""

import subprocess

import numpy as np

import staged as st
from staged import nn

MAIN = r"""
#include <stdio.h>
#include <string.h>

#include "predict.h"
#include "predict_weights.h"

PREDICT_STATIC_ARENA(arena);
static st_host host;

int main(void) {
    float x[PREDICT_X_SIZE] = {0.5f, -1.0f, 2.0f, 0.25f, 1.0f, 3.0f, -2.0f, 0.0f};
    float result[PREDICT_RESULT_SIZE];
    predict_args args;
    memset(&args, 0, sizeof args);
    args.x = x;
    args.result = result;
    void *weights = NULL;
    const char *const problem = predict_weights_load(".", &args, &weights);
    if (problem != NULL) {
        fprintf(stderr, "%s\n", problem);
        return 1;
    }
    const int status = predict(&args, arena, &host);
    if (status != ST_OK) {
        fprintf(stderr, "%s\n", host.message);
        return status;
    }
    for (int i = 0; i < PREDICT_RESULT_SIZE; ++i) {
        printf("%.9g\n", (double)result[i]);
    }
    predict_weights_free(weights);
    return 0;
}
"""
X = np.array([[0.5, -1.0, 2.0, 0.25], [1.0, 3.0, -2.0, 0.0]], np.float32)


def test_an_own_main_has_the_weights_of_the_model(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    @st.function
    def predict(x):
        return st.softmax(model(x), axis=-1)

    predict.stage(X).export(tmp_path)
    (tmp_path / "own.c").write_text(MAIN)
    texts = ["own.c", "predict.c", "predict_weights.c", "predict_library.c"]
    flags = ["-std=c11", "-O0", "-Wall", "-Wextra", "-Werror"]
    built = subprocess.run(
        ["cc", *flags, *texts, "-o", "own", "-lm", "-pthread"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run(["./own"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

    state = {name: np.asarray(value) for name, value in model.state_dict().items()}
    hidden = np.maximum(X @ state["0.weight"].T + state["0.bias"], 0)
    shares = np.exp(hidden @ state["2.weight"].T + state["2.bias"])
    expected = shares / shares.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(done.stdout.split(), float).reshape(2, 3), expected, rtol=1e-5)
