"""The forward pass of a training step and of an evaluation, as one function.

    forward:   linear(m->x, m->h);  softmax(m->h, loss);    ->    forward:       linear(x, m->h);
    evaluate:  linear(x, m->h);                             ->    compute_loss:  forward(m, m->x);  softmax(m->h, loss);

If only some layers are equal, both functions call a new one for these.

Tested by `tests/backends/host/test_shared_forward.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import product

from staged.backends.host.equal_functions import EqualFunctions, with_calls
from staged.backends.host.outlining import LEAST, LEAST_OF_SECTION, Outlined, Outliner, declared_here, move_origins
from staged.backends.host.sections import VERBS
from staged.code.expr import Call, Name
from staged.code.tree import Comment, Jump, Statement

Body = tuple[Statement, ...]


@dataclass(frozen=True)
class Run:
    """Statements of a function, and those around them."""

    of: Outlined
    start: int
    stop: int

    @property
    def body(self) -> Body:
        return self.of.body[self.start : self.stop]

    @property
    def before(self) -> Body:
        return self.of.body[: self.start]

    @property
    def behind(self) -> Body:
        return self.of.body[self.stop :]

    @property
    def is_whole(self) -> bool:
        """Return whether the function does nothing else."""
        return not self.before and self.of.result is None and all(isinstance(each, Jump) for each in self.behind)


def with_shared_forward(outliner: Outliner, equal: EqualFunctions, rest: Body) -> Body:
    """The statements that call a training step and an evaluation; equal parts become one function of the outliner."""
    while True:
        trainings, evaluations = (
            [each for each in outliner.made if each.section == section] for section in ("forward", "evaluation")
        )
        for pair in product(trainings, evaluations):
            shared = _shared(outliner, equal, rest, *_longest(equal, *pair))
            if shared is not None:
                rest = shared
                break
        else:
            return rest


def _longest(equal: EqualFunctions, training: Outlined, evaluation: Outlined) -> tuple[Run, Run]:
    """The longest equal runs of two functions."""
    first, other = _shapes(equal, training), _shapes(equal, evaluation)
    matcher = SequenceMatcher(None, [*first.values()], [*other.values()], autojunk=False)
    match = matcher.find_longest_match()
    return _run(training, [*first], match.a, match.size), _run(evaluation, [*other], match.b, match.size)


def _shapes(equal: EqualFunctions, function: Outlined) -> dict[int, tuple[object, ...]]:
    """The shapes of the statements that compute something, by their numbers."""
    scope = (*function.parameters, *declared_here(function.body))
    return {
        number: equal.shape(Outlined("", "", scope, (each,), False, None)).text
        for number, each in enumerate(function.body)
        if not isinstance(each, Comment | Jump)
    }


def _run(function: Outlined, numbers: list[int], start: int, size: int) -> Run:
    """A run of statements that compute something, with the comments before them."""
    begin = numbers[start - 1] + 1 if start else 0
    return Run(function, begin, numbers[start + size - 1] + 1 if size else begin)


def _shared(outliner: Outliner, equal: EqualFunctions, rest: Body, *runs: Run) -> Body | None:
    """Make one function of two equal runs; returns the statements of their caller, None if the runs stay apart."""
    made, training = list(outliner.made), runs[0]
    others = [[*run.before, *run.behind] for run in runs]
    label = outliner.sections.part_of_forward(training.body, [each for body in others for each in body])
    is_all = label == VERBS["forward"]
    if outliner.lines(training.body) < (LEAST_OF_SECTION if is_all else LEAST):
        return None
    cuts = _cut(outliner, training, label, training.of.name if is_all else ""), _cut(outliner, runs[1], label)
    outliner.made = made
    shapes = [equal.shape(piece) for piece, _ in cuts if piece is not None]
    merged = equal.merge(shapes) if len({shape.text for shape in shapes}) == 1 < len(shapes) else None
    if merged is None:
        return None
    first = shapes[0].function
    function = replace(merged[0], name=first.name)
    move_origins(outliner.origins, first.body, function.body)
    calls = {name: replace(each, function=first.name) for name, each in merged[1].items()}
    above = dict(calls)
    left = {run.of: None if run.is_whole else outer for run, (_, outer) in zip(runs, cuts, strict=True)}
    outer = left[training.of]
    if is_all and outer is not None:
        loss, comment = outliner.fresh(VERBS["loss"]), outliner.sections.comment(others[0], "loss")
        above[outer.name] = Call(loss, tuple(Name(f"${number}") for number in range(len(outer.parameters))))
        left[training.of] = replace(outer, name=loss, comment=comment, action=VERBS["loss"], section="loss")
    place = min(made.index(of) for of in left)
    behind = (each for old in made[place:] if (each := left.get(old, old)) is not None)
    outliner.made = [*made[:place], function, *(_calling(outliner, each, calls) for each in behind)]
    changed: Body = with_calls(rest, above)
    return changed


def _calling(outliner: Outliner, function: Outlined, calls: Mapping[str, Call]) -> Outlined:
    """A function with other calls."""
    body = with_calls(function.body, calls)
    move_origins(outliner.origins, function.body, body)
    return replace(function, body=body)


def _cut(outliner: Outliner, run: Run, label: str, name: str = "") -> tuple[Outlined | None, Outlined]:
    """A function of a run, None if it has too many parameters, and what is left of the run's function."""
    if run.is_whole:
        return run.of, run.of
    scope = {each.text: each for each in (*run.of.parameters, *declared_here(run.before))}
    calls = outliner.outlined(run.body, run.behind, scope, label, "", 0, name)
    if calls is None:
        return None, run.of
    return outliner.made.pop(), replace(run.of, body=(*run.before, *calls, *run.behind))
