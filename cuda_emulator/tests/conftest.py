"""The emulated cuDNN, for the tests that call it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cudnn_library import Cudnn


@pytest.fixture(scope="module")
def loaded_cudnn() -> Cudnn:
    return Cudnn()


@pytest.fixture
def cudnn(loaded_cudnn: Cudnn) -> Iterator[Cudnn]:
    with loaded_cudnn.session():
        yield loaded_cudnn
