"""Runs before every test: helpers are imported first (they set up Triton), and GPU tests are skipped without a GPU."""

import os
import zlib

import hypothesis
import pytest
import torch

from helpers import mode

os.environ.setdefault("OMP_NUM_THREADS", "1")
# The same examples in every run: a failure here is one that everybody sees, and no run is green by luck.
hypothesis.settings.register_profile("course", derandomize=True)
hypothesis.settings.load_profile("course")


def pytest_collection_modifyitems(items):
    # The long ones first: processes that share the tests then end at about the same time.
    items.sort(key=lambda item: "browser" not in item.keywords and "notebook" not in item.keywords)
    if mode.is_live():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {mode.usable_gpu() or 'recorded mode is forced'}"))


@pytest.fixture(autouse=True)
def same_inputs_every_run(request):
    """Seeds torch by the test's name, so that its inputs depend neither on the order of tests nor on the process."""
    torch.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def device():
    return mode.device()
