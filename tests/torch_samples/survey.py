"""All samples of a part of torch's records, and what became of them."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.torch_samples.check import DTYPES, arguments, check, samples, tensors
from tests.torch_samples.excused import EXCUSED, RANDOM
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


def survey(part: int, parts: int) -> Survey:
    """Check every sample of the records of a part."""
    found = Survey()
    torch.set_num_threads(1)
    for record in op_db[part::parts]:
        found.records += 1
        function = ours(record)
        if function is None:
            continue
        found.mapped += 1
        name = name_of(record)
        excuses = dict.fromkeys(EXCUSED.get(name, {}), 0)
        for dtype in DTYPES:
            for sample in samples(record, dtype) if record.supports_dtype(dtype, "cpu") else ():
                is_certain = record.name not in RANDOM and not sample.kwargs.get("dropout_p")
                with warnings.catch_warnings(action="ignore"):
                    failure = check(record, sample, function, dtype, values=is_certain)
                if failure is None:
                    found.agree += 1
                    continue
                excuse = next((pattern for pattern in excuses if re.search(pattern, str(failure))), None)
                if excuse is None:
                    shapes = [tuple(tensor.shape) for tensor in tensors(arguments(sample))]
                    found.failures.append(f"{name} {dtype} {shapes} {sample.kwargs}: {failure}"[:400])
                else:
                    found.excused += 1
                    excuses[excuse] += 1
        found.unneeded += [f"{name}: {pattern}" for pattern, count in excuses.items() if not count]
    return found
