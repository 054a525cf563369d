"""A reader's first minutes, in a real browser: JupyterLab opens a lesson, runs it all, a slider moves a picture.

COURSE_SCREENSHOT names a PNG file that keeps what is then to be seen (the README's is pictures/jupyterlab.png).
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

from helpers.lesson.store import NOTEBOOKS, readers_environment

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

RUN_ALL_TIMEOUT_MS = 120_000
# Messages of JupyterLab itself that say nothing about the course (the machine may be offline).
NOT_OURS = ("favicon", "net::ERR", "service worker", "Failed to load resource", "WebSocket", "webgl", "deprecat")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """The address of a JupyterLab that serves a copy of the notebooks, with settings and runtime files of its own."""
    root = tmp_path_factory.mktemp("lab")
    shutil.copytree(NOTEBOOKS, root / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    settings = root / "settings" / "@jupyterlab"
    for plugin, chosen in {
        "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
        # All cells in the page, not only those in view: prompts and outputs of the others could not be read.
        "notebook-extension/tracker": {"windowingMode": "none"},
    }.items():
        path = settings / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(chosen))
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = readers_environment("recorded") | {
        "JUPYTERLAB_SETTINGS_DIR": str(root / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(root / "workspaces"), "JUPYTER_RUNTIME_DIR": str(root / "runtime"),
        "JUPYTER_CONFIG_DIR": str(root / "config"),
    }
    log = (root / "lab.log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", f"--port={port}", "--ip=127.0.0.1",
         "--IdentityProvider.token=course", f"--ServerApp.root_dir={root}"],
        env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=root,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/api/status?token=course", timeout=2)
                break
            assert server.poll() is None, (root / "lab.log").read_text()[-2000:]
            time.sleep(0.25)
        else:
            raise AssertionError("JupyterLab did not answer within a minute")
        yield address
    finally:
        server.terminate()
        server.wait(20)
        log.close()


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.errors = []
    page.on("console", lambda m: page.errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: page.errors.append(str(e)))
    yield page
    page.close()


def open_lesson(page, lab, lesson):
    page.goto(f"{lab}/lab/tree/notebooks/{lesson}.ipynb?token=course&reset")
    page.wait_for_selector(".jp-Notebook", timeout=60_000)
    # "Idle" alone appears before the kernel is connected, and Run All would be dropped.
    page.wait_for_function("document.body.innerText.includes('| Idle')", timeout=60_000)


def run_all(page):
    page.locator("li.lm-MenuBar-item", has_text="Run").first.click()
    page.locator('[data-command="runmenu:run-all"]').click()
    page.wait_for_function(
        """() => { const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(e => e.innerText);
                   return prompts.length && prompts.every(p => /^\\[\\d+\\]:/.test(p)); }""",
        timeout=RUN_ALL_TIMEOUT_MS,
    )


def test_a_lesson_runs_and_its_slider_moves_the_picture(page, lab):
    open_lesson(page, lab, "03_gelu")
    run_all(page)
    # JupyterLab shows errors and stderr alike: there must be the lesson's deliberate mistake, and nothing else.
    complaints = page.locator("[data-mime-type='application/vnd.jupyter.stderr']")
    assert complaints.count() == 1 and "NaN at x" in complaints.first.inner_text()
    pictures = page.locator(".jp-OutputArea-output img[alt]")
    assert pictures.count() >= 2 and all(pictures.nth(i).get_attribute("alt") for i in range(pictures.count()))

    slider = page.locator(".widget-hslider [role=slider]").first
    slider.scroll_into_view_if_needed()
    shown = "document.querySelector('.widget-html-content img').src"
    before = page.evaluate(shown)
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"before => {shown} != before", arg=before, timeout=20_000)
    assert not ours(page.errors), ours(page.errors)
    if kept := os.environ.get("COURSE_SCREENSHOT"):
        page.set_viewport_size({"width": 1280, "height": 860})
        page.locator(".jp-OutputArea-output .widget-html-content img").first.scroll_into_view_if_needed()
        page.screenshot(path=kept)


def ours(errors):
    return [text for text in errors if not any(known.lower() in text.lower() for known in NOT_OURS)]
