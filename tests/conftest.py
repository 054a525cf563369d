"""Runs before every test: helpers are imported first (they set up Triton), and GPU tests are skipped without a GPU."""

import os

import pytest

from helpers import mode

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    # The long ones first: processes that share the tests then end at about the same time.
    items.sort(key=lambda item: "browser" not in item.keywords and "notebook" not in item.keywords)
    if mode.is_live():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {mode.usable_gpu() or 'recorded mode is forced'}"))


@pytest.fixture
def device():
    return mode.device()
