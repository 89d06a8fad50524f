"""Count: `python -m tests.torch_samples`."""

from tests.torch_samples.survey import survey

if __name__ == "__main__":
    found = survey(0, 1)
    print("\n".join(found.failures + found.unneeded))
    print(f"{found.mapped} of {found.records} records are ours; {found.agree} samples agree, {found.excused} are excused")
