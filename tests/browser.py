"""JupyterLab in headless Chromium: starts both, opens notebooks, and acts as a user does, by keys and menus.

Chromium is that of the machine. As root on Debian and Ubuntu it is installed if it is missing; elsewhere Playwright's own
one is put under `target/`. If neither is possible, the tests that need it are skipped with the reason.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import debian
from session import TARGET, descendants, is_alive, wait_for

INSTALL_TIMEOUT_S = 240
START_TIMEOUT_S = 60
END_TIMEOUT_S = 120
# How long a server may take after its kernels.
EXIT_TIMEOUT_S = 10
SCREENSHOTS = TARGET / "browser"
# The pictures of the guide: `FERROTUNE_PICTURES=1` takes them anew.
GUIDE = pathlib.Path(__file__).parent.parent / "docs/pictures"
NAMES = ("chromium", "chromium-browser", "google-chrome")

# What JupyterLab would ask, fetch or leave out of the page while a test looks at it.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none", "scrollPastEnd": False},
}


class NoBrowser(Exception):
    """Chromium is neither there nor can be installed; says why."""


def find_chromium():
    """The path of a Chromium, which is installed if that is possible."""
    if path := _on_search_path():
        return path
    reasons = []
    if reason := debian.install("chromium"):
        reasons.append(reason)
    if path := _on_search_path():
        return path
    folder = TARGET / "chromium"
    install = [sys.executable, "-m", "playwright", "install", "--only-shell", "chromium"]
    reasons += _failure(install, {"PLAYWRIGHT_BROWSERS_PATH": str(folder)})
    for path in sorted(folder.glob("chromium*/*/*headless*shell")):
        if not (reason := _failure([path, "--version"], {})):
            return str(path)
        reasons += reason
    raise NoBrowser("Chromium is not there and cannot be installed: " + "; ".join(reasons))


def _on_search_path():
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _failure(command, environment):
    """Runs a command; returns a list with the last line of its error, or an empty one."""
    name = f"{pathlib.Path(command[0]).name} {command[-1]}"
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, env={**os.environ, **environment}
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        return [f"{name}: {error}"]
    lines = [line.strip() for line in (ran.stderr or ran.stdout).splitlines() if line.strip()]
    return [] if ran.returncode == 0 else [f"{name}: {lines[-1] if lines else ran.returncode}"]


@contextlib.contextmanager
def jupyterlab(folder, home):
    """A JupyterLab whose files are in `folder`; gives its address. `home` is for its settings."""
    settings = home / "settings"
    for name, values in SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    environment = {
        **os.environ,
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
    command += ["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={folder}"]
    with (home / "jupyterlab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield _address(server, home)
        finally:
            server.terminate()
            _end(server)


def _end(server):
    """Waits for a server that ends its kernels first. It may stay after that for as long as a thread of anyio has a connection."""
    try:
        wait_for(lambda: not any(map(is_alive, descendants(server.pid))), "end of JupyterLab's kernels", END_TIMEOUT_S)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=EXIT_TIMEOUT_S)
    finally:
        server.kill()
        server.wait()


def _address(server, home):
    runtime = home / "runtime"

    def written():
        assert server.poll() is None, (home / "jupyterlab.log").read_text()
        # The file is there before its text is.
        return [text for path in runtime.glob("jpserver-*.json") if (text := path.read_text()).rstrip().endswith("}")]

    wait_for(written, "JupyterLab", START_TIMEOUT_S)
    (text,) = written()
    return json.loads(text)["url"]


class Notebook:
    """A notebook that is open in JupyterLab, as one page of a browser."""

    def __init__(self, browser, address, name):
        self.name = name
        self.page = browser.new_page(viewport={"width": 1100, "height": 900})
        self.page.set_default_timeout(START_TIMEOUT_S * 1000)
        # What the browser's console has said of errors.
        self.errors = []
        self.page.on("console", lambda said: said.type == "error" and self.errors.append(said.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{address}lab/workspaces/{name}/tree/{name}.ipynb?reset")
        self.page.locator(".jp-Notebook").wait_for()
        self.code_cells = self.page.locator(".jp-Notebook .jp-CodeCell")
        self.wait_until_idle()

    def wait_until_idle(self, seconds=START_TIMEOUT_S):
        """Waits until the kernel is there and runs no cell."""
        self.page.get_by_text("Rust (Ferrotune) | Idle").wait_for(timeout=seconds * 1000)

    def menu(self, menu, entry):
        """Chooses an entry of the menu bar."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=menu).first.click()
        self.page.locator(".lm-Menu-itemLabel", has_text=entry).first.click()

    def run_all(self, seconds):
        """Runs all cells, and waits until the last one has ended."""
        self.menu("Run", "Run All Cells")
        number = "cells => cells.every(cell => /\\[\\d+\\]/.test(cell.querySelector('.jp-InputPrompt').textContent))"
        deadline = time.monotonic() + seconds
        while not self.code_cells.evaluate_all(number):
            prompts = self.code_cells.locator(".jp-InputPrompt").all_inner_texts()
            assert time.monotonic() < deadline, f"{self.name} still runs after {seconds} s: {prompts}"
            self.page.wait_for_timeout(100)

    def cell(self, source):
        """The one code cell that begins with `source`."""
        found = self.code_cells.filter(has=self.page.locator(".cm-line:first-child", has_text=source))
        assert found.count() == 1, (source, found.count())
        return found

    def type(self, source):
        """Types the first code cell anew, key by key, and leaves the cursor at its end."""
        self.code_cells.first.locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.press("Delete")
        self.page.keyboard.type(source)

    def typed(self):
        """The source of the first code cell."""
        return "\n".join(self.code_cells.first.locator(".cm-line").all_inner_texts())

    def run(self, source):
        """Types the first code cell anew and starts it; returns the place of its outputs."""
        self.type(source)
        self.page.keyboard.press("Control+Enter")
        return self.code_cells.first.locator(".jp-OutputArea-output")

    def theme(self, name):
        """Chooses one of JupyterLab's themes, and waits until the page has its colours."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text="Settings").first.click()
        self.page.locator(".lm-Menu-itemLabel", has_text="Theme").first.hover()
        self.page.locator(f".lm-Menu-item[data-command='apputils:change-theme'] >> text='{name}'").first.click()
        self.page.locator(f"body[data-jp-theme-name='{name}']").wait_for(state="attached")
        # The menu leaves with the next click.
        self.page.keyboard.press("Escape")

    def screenshot(self, name):
        """Keeps a picture of the page as it is."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png")

    def start(self, cell):
        """Starts a cell; returns the place of its outputs."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+Enter")
        # The frame of the cell that is edited goes.
        self.page.keyboard.press("Escape")
        return cell.locator(".jp-OutputArea-output")

    def picture(self, name, cell):
        """Keeps a picture of a cell and its outputs, which is one of the guide's where they are taken anew."""
        folder = GUIDE if "FERROTUNE_PICTURES" in os.environ else SCREENSHOTS
        folder.mkdir(parents=True, exist_ok=True)
        cell.screenshot(path=folder / f"{name}.png")

    def screenshot_in_both_themes(self, name):
        """Keeps pictures of the whole notebook in the light and the dark theme."""
        size = self.page.viewport_size
        panel = self.page.locator(".jp-WindowedPanel-outer")
        height = panel.evaluate("panel => panel.scrollHeight") + 150
        self.page.set_viewport_size({"width": size["width"], "height": height})
        for theme in ("Dark", "Light"):
            self.theme(f"JupyterLab {theme}")
            panel.evaluate("panel => panel.scrollTo(0, 0)")
            # Vega draws again in the new size and colours, and says nothing when it has.
            self.page.wait_for_timeout(500)
            self.screenshot(f"{name}-{theme.lower()}")
        self.page.set_viewport_size(size)
