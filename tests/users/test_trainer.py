"""A trainer class with its configuration: accumulation, schedule, early stopping, checkpoints from inside, a notebook's cell."""

import linecache
from dataclasses import dataclass

import numpy as np

import staged as st
from staged import nn, optim


@dataclass(frozen=True)
class Config:
    width: int = 16
    lr: float = 0.05
    epochs: int = 40
    accumulate: int = 2
    patience: int = 3
    batch: int = 16


class Trainer:
    def __init__(self, config, folder):
        self.config, self.folder = config, folder
        self.model = nn.Sequential(nn.Linear(2, config.width), nn.Tanh(), nn.Linear(config.width, 1))
        self.opt = optim.AdamW(self.model.parameters(), lr=config.lr)
        self.schedule = optim.lr_scheduler.ExponentialLR(self.opt, 0.98)
        self.steps = optim.MultiSteps(self.opt, every=config.accumulate)
        self.log = []

    def loss(self, x, y):
        return st.mse_loss(self.model(x)[:, 0], y)

    @st.function
    def fit(self, train, held_out):
        best, bad, last = np.inf, 0, 0
        weights = self.model.state_dict()
        for epoch in st.progress(st.range(self.config.epochs)):
            total = 0.0
            for x, y in st.batches(*train, size=self.config.batch):
                loss, grads = st.value_and_grad(self.loss, wrt=self.model)(x, y)
                if self.steps.step(grads):
                    self.schedule.step()
                total += loss
            score = self.loss(*held_out)
            st.callback(lambda epoch, score: self.log.append((epoch, score)), epoch, score)
            last = epoch
            if score < best:
                best, bad, weights = score, 0, self.model.state_dict()
                st.save(f"{self.folder}/best.safetensors", {"model": self.model, "epoch": epoch})
            else:
                bad += 1
            if bad >= self.config.patience:
                break
        self.model.load_state_dict(weights)
        return best, last + 1


def problem():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (160, 2)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.05 * rng.normal(size=160).astype(np.float32)
    return (x[:128], y[:128]), (x[128:], y[128:])


def test_it_trains_stops_and_keeps_the_best(tmp_path):
    st.seed(0)
    train, held_out = problem()
    trainer = Trainer(Config(), tmp_path)
    best, epochs = trainer.fit(train, held_out)
    scores = np.array([score for _, score in trainer.log])
    assert len(scores) == epochs and [epoch for epoch, _ in trainer.log] == list(range(epochs))
    np.testing.assert_allclose(best, scores.min())
    assert best < 0.03 and (epochs == 40 or np.all(scores[-3:] > scores.min()))
    saved = st.load(tmp_path / "best.safetensors")
    assert saved["epoch"] == scores.argmin()
    for name, value in trainer.model.state_dict().items():
        assert np.allclose(saved["model"][name], value)
    again = Trainer(Config(), tmp_path)
    again.model.load_state_dict(saved["model"])
    np.testing.assert_allclose(st.function(again.loss)(*held_out), best, rtol=1e-6)
    steps = epochs * 8 // 2
    np.testing.assert_allclose(trainer.opt.lr.value, 0.05 * 0.98**steps, rtol=1e-5)


CELL = """
@st.function
def cell(x):
    total = 0.0
    for i in st.range({turns}):
        total += x * i
    return total
"""


def run_cell(turns, number, space):
    """Run a text that is in no file and known to linecache, as a notebook does."""
    text, name = CELL.format(turns=turns), f"<ipython-input-{number}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), space)


def test_a_cell_works_and_may_be_defined_again():
    space = {"st": st}
    run_cell(4, 1, space)
    assert space["cell"](2.0) == 12.0
    run_cell(5, 2, space)
    assert space["cell"](2.0) == 20.0
