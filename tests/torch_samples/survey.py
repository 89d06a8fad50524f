"""All samples of a part of torch's records, and what became of them."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.sampling import is_sampled
from tests.torch_samples.check import COMPLEX, DTYPES, Failure, arguments, check, samples, tensors
from tests.torch_samples.compiled import Case, failures, spread
from tests.torch_samples.excused import EXCUSED, EXCUSED_IN_PROGRAMS, EXCUSED_OF_COMPLEX, RANDOM
from tests.torch_samples.mapping import ours


@dataclass
class Survey:
    """Counts, failures that no excuse covers, and excuses that cover nothing."""

    records: int = 0
    mapped: int = 0
    agree: int = 0
    excused: int = 0
    failures: list[str] = field(default_factory=list)
    unneeded: list[str] = field(default_factory=list)


def name_of(record: Any) -> str:
    """The record's name, with that of its variant."""
    return f"{record.name}.{record.variant_test_name}" if record.variant_test_name else record.name


def survey(
    part: int, parts: int, programs: int = 0, most: int = 0, dtypes: Sequence[Any] = DTYPES, one_in: int = 1
) -> Survey:
    """Check samples of the records of a part in eager mode, or `programs` of each record in one compiled program.

    In eager mode these are all samples, or of a record with more than `most` so many, chosen at random, the same ones in every run.
    Of the records, one in `one_in` is checked, by the digest of its name.
    """
    found = Survey()
    torch.set_num_threads(1)
    for record in op_db[part::parts]:
        found.records += 1
        function = ours(record)
        if function is None or not is_sampled(name_of(record), one_in):
            continue
        found.mapped += 1
        with warnings.catch_warnings(action="ignore"):
            if programs:
                _compiled(found, record, function, programs, dtypes)
            else:
                _eager(found, record, function, most, dtypes)
    return found


def _cases(record: Any, dtypes: Sequence[Any]) -> Iterator[tuple[Any, Any, bool]]:
    """The samples of a record with their dtype, and whether their elements are certain."""
    for dtype in dtypes:
        for sample in samples(record, dtype) if record.supports_dtype(dtype, "cpu") else ():
            yield sample, dtype, record.name not in RANDOM and not sample.kwargs.get("dropout_p")


def _eager(found: Survey, record: Any, function: Any, most: int, dtypes: Sequence[Any]) -> None:
    name = name_of(record)
    own = EXCUSED_OF_COMPLEX if dtypes is COMPLEX else EXCUSED
    excuses = dict.fromkeys({**own.get(name, {}), **EXCUSED.get(name, {})}, 0)
    cases = list(_cases(record, dtypes))
    is_part = 0 < most < len(cases)
    # By chance: samples are products of options, of which equal steps would see some values alone.
    chosen = sorted(random.Random(name).sample(range(len(cases)), most)) if is_part else range(len(cases))
    for sample, dtype, is_certain in (cases[number] for number in chosen):
        failure = check(record, sample, function, dtype, values=is_certain)
        if failure is None:
            found.agree += 1
        else:
            _note(found, excuses, name, sample, dtype, failure)
    if not is_part:
        found.unneeded += [f"{name}: {pattern}" for pattern in own.get(name, ()) if not excuses[pattern]]


def _compiled(found: Survey, record: Any, function: Any, count: int, dtypes: Sequence[Any]) -> None:
    """Samples that agree in eager mode, of as many signatures as there are."""
    name = name_of(record)
    excuses = dict.fromkeys(EXCUSED_IN_PROGRAMS.get(name, {}), 0)
    several = [Case(record, *case) for case in _cases(record, dtypes)]
    cases = [case for case in spread(several, count) if case.agrees_in_eager_mode(function)]
    failing = failures(cases, function)
    found.agree += len(cases) - len(failing)
    for case, failure in failing:
        _note(found, excuses, name, case.sample, case.dtype, failure)
    if len(cases) == len(several):
        found.unneeded += [f"{name}: {pattern}" for pattern, times in excuses.items() if not times]


def _note(found: Survey, excuses: dict[str, int], name: str, sample: Any, dtype: Any, failure: Failure) -> None:
    excuse = next((pattern for pattern in excuses if re.search(pattern, str(failure))), None)
    if excuse is None:
        shapes = [tuple(tensor.shape) for tensor in tensors(arguments(sample))]
        found.failures.append(f"{name} {dtype} {shapes} {sample.kwargs}: {failure}"[:400])
    else:
        found.excused += 1
        excuses[excuse] += 1
