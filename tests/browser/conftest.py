"""One Chromium for all browser tests."""

import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "The browser tests need Chromium: sudo apt-get install chromium (see the README)."
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[
            "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync",
            "--disable-component-update",
        ])
        yield chromium
        chromium.close()
