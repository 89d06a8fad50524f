"""The suite of the Array API standard, `data-apis/array-api-tests`, on `staged`, in eager mode or compiled.

    git clone --recursive https://github.com/data-apis/array-api-tests
    pip install ndindex pytest-json-report
    python -m tests.array_api array-api-tests
    python -m tests.array_api --compiled array-api-tests

Nothing of the suite is in this repository. `plugin` makes it importable, and `expected_failures.txt` lists the tests that
fail, each group with its reason; `compiled` makes each call a program.
"""
