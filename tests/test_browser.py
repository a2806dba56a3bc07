"""A user's day in JupyterLab with a real browser: run, complete, inspect, interrupt, restart, and look at results.

Pictures of the pages are kept under `target/browser`, in the light and in the dark theme. With `FERROTUNE_PICTURES=1` the pictures of
the guide are taken anew, in `docs/pictures`.
"""

import os
import pathlib
import re
import time

import nbformat
import pytest
from playwright.sync_api import sync_playwright

import browser
import notebook_run

NOTEBOOKS = pathlib.Path(__file__).parent.parent / "notebooks"
QUICKSTART_TIMEOUT_S = 150
# What JupyterLab makes of an error, and of what a cell writes to its standard error.
ERROR = "[data-mime-type='application/vnd.jupyter.stderr']"

GALLERY = [
    """%%tune --oracle random --objective loss:min --max-trials 8 --seed 3 --project gallery
|trial| {
    let lr: f64 = trial.float("lr", 1e-4..=1e-1).log().get()?;
    let units: usize = trial.int("units", 16..=128).step(16).get()?;
    for epoch in trial.epochs(4) {
        trial.report(epoch, [("loss", (lr - 0.01).abs() + 1.0 / (units as f64 * (epoch + 1) as f64))])?;
    }
    trial.best("loss")
}""",
    "%trials",
    "%plot history",
    "%plot intermediate",
    """#[derive(Debug)] struct Planet { name: &'static str, radius_km: f64 }
vec![Planet { name: "Mercury", radius_km: 2439.7 }, Planet { name: "Earth", radius_km: 6371.0 }]""",
    "candle_core::Tensor::arange(0f32, 12f32, &candle_core::Device::Cpu)?.reshape((3, 4))?",
    """ferrotune::display::svg("<svg xmlns='http://www.w3.org/2000/svg' width='60' height='30'><rect width='60' height='30' fill='teal'/></svg>");""",
    'let count: u32 = "seven";',
]

BACKGROUND = """%%tune --background --oracle random --objective loss:min --max-trials 1000 --project reloaded
|trial| {
    let lr: f64 = trial.float("lr", 1e-4..=1e-1).get()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    Ok(lr)
}"""

# The cells whose pictures the guide has, by the pictures' names.
GUIDE = {
    "search": """%%tune --objective loss:min --max-trials 12 --seed 3 --project pictures --overwrite
|trial| {
    let lr: f64 = trial.float("lr", 1e-4..=1e-1).log().get()?;
    let units: usize = trial.int("units", 16..=128).step(16).get()?;
    for epoch in trial.epochs(10) {
        std::thread::sleep(std::time::Duration::from_millis(40));
        let loss = (lr - 0.01).abs() + 1.0 / (units as f64 * (epoch + 1) as f64);
        trial.report(epoch, [("loss", loss)])?;
    }
    trial.best("loss")
}""",
    "plot": "%plot intermediate",
    "values": """use candle_core::{Device, Tensor};
#[derive(Debug)]
struct Planet { name: &'static str, radius_km: f64 }

let numbers = Tensor::arange(0f32, 12., &Device::Cpu)?.reshape((3, 4))?;
ferrotune::show!(numbers);
vec![
    Planet { name: "Mercury", radius_km: 2439.7 },
    Planet { name: "Earth", radius_km: 6371.0 },
]""",
    "image": """let pixels = (0..6 * 28 * 28).map(|at| {
    let (wave, y, x) = (at / 784 + 1, at / 28 % 28, at % 28);
    0.5 + 0.5 * ((x * x + y * y) as f32 * wave as f32 / 400.0).cos()
});
let batch = Tensor::from_iter(pixels, &Device::Cpu)?.reshape((6, 1, 28, 28))?;
ferrotune::display::image(&batch)?;""",
    "progress": """for epoch in ferrotune::progress(0..10).named("epochs") {
    for batch in ferrotune::progress(0..20).named("batches") {
        std::thread::sleep(std::time::Duration::from_millis(15));
    }
}""",
    "error": 'let count: u32 = "seven";',
    "widgets": """use ferrotune::widget;
let epochs = widget::int_slider("epochs", 1..=50, 10)?;
let rate = widget::float_box("learning rate", 1e-3)?;
epochs.show();
rate.show();""",
    "profile": """%%profile
for number in &slow {
    number?;
    sleep(Duration::from_millis(3));
}""",
}
# What the cell of the picture of a profile needs.
SLOW = """use ferrotune::data::Dataset;
use std::{thread::sleep, time::Duration};
let slow = Dataset::from_iter(0..40u32).map(1, |number| {
    sleep(Duration::from_millis(9));
    Ok(number)
});"""
# Pictures that are taken while the cell runs, when its output has this text.
RUNNING = {"search": re.compile(r"\b[4-9]/12 trials"), "progress": re.compile(r"\b[4-7]/10")}

# How many colours a plot has: an empty one has one or two.
COLOURS = """plot => new Set([...plot.querySelectorAll('path, text, rect')].flatMap(
    part => [part.getAttribute('fill'), part.getAttribute('stroke')]
)).size"""

# The least contrast between a plot's texts and the page, by WCAG 2.1, which asks for 4.5.
CONTRAST = """plot => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const page = numbers(getComputedStyle(plot.closest('.jp-Notebook')).backgroundColor);
    const luminance = colour => [0.2126, 0.7152, 0.0722].reduce((sum, weight, at) => {
        const value = colour[at] / 255;
        return sum + weight * (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    }, 0);
    const contrast = text => {
        const [red, green, blue, alpha = 1] = numbers(getComputedStyle(text).fill);
        const mixed = [red, green, blue].map((value, at) => alpha * value + (1 - alpha) * page[at]);
        const [low, high] = [luminance(mixed), luminance(page)].sort((one, other) => one - other);
        return (high + 0.05) / (low + 0.05);
    };
    return Math.min(...[...plot.querySelectorAll('text')].map(contrast));
}"""


@pytest.fixture(scope="module")
def chromium():
    """A running Chromium; the tests are skipped where there can be none."""
    try:
        path = browser.find_chromium()
    except browser.NoBrowser as reason:
        pytest.skip(str(reason))
    # Chromium's sandbox refuses to run as root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as library:
        running = library.chromium.launch(executable_path=path, args=arguments)
        yield running
        running.close()


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    """Opens a notebook of a JupyterLab by its name."""
    folder = notebook_run.copy_of(NOTEBOOKS, tmp_path_factory.mktemp("lab"))
    write_notebook(folder / "gallery.ipynb", GALLERY)
    # An error ends a run of all cells.
    write_notebook(folder / "guide.ipynb", [SLOW, *sorted(GUIDE.values(), key=lambda source: source == GUIDE["error"])])
    write_notebook(folder / "scratch.ipynb", [""])
    write_notebook(folder / "background.ipynb", [BACKGROUND, "// stop"])
    with browser.jupyterlab(folder, tmp_path_factory.mktemp("home")) as address:
        yield lambda name: browser.Notebook(chromium, address, name)


def write_notebook(path, sources):
    kernel = {"name": "ferrotune", "display_name": "Rust (Ferrotune)", "language": "rust"}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)


@pytest.fixture(scope="module")
def scratch_page(lab):
    return lab("scratch")


@pytest.fixture
def scratch(scratch_page):
    """A notebook with one empty cell and a kernel that has one variable."""
    scratch_page.type("")
    yield scratch_page
    assert scratch_page.errors == []


def test_quickstart_runs_to_its_end(lab):
    notebook = lab("01_quickstart")
    assert notebook.page.locator(".lm-TabBar-tab.jp-mod-dirty").count() == 0, "opening a notebook changes it"
    notebook.run_all(QUICKSTART_TIMEOUT_S)
    assert notebook.page.locator(ERROR).count() == 0
    assert notebook.cell("%best 3").locator("table tr").count() >= 4
    drawn = notebook.cell("let loaded").locator("img").evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert min(drawn) > 200, drawn
    notebook.screenshot_in_both_themes("quickstart")
    assert notebook.errors == []


def test_results_are_drawn_in_both_themes(lab):
    notebook = lab("gallery")
    notebook.page.set_viewport_size({"width": 1000, "height": 900})
    notebook.run_all(60)
    plots = [notebook.cell(f"%plot {kind}").locator("svg.marks") for kind in ("history", "intermediate")]
    for plot in plots:
        plot.wait_for()
        assert plot.evaluate(COLOURS) > 3
        # Nothing is cut, neither the legend nor the menu.
        output = plot.locator("xpath=ancestor::*[contains(@class, 'jp-OutputArea-output')][1]")
        assert output.evaluate("output => output.scrollWidth <= output.clientWidth")
    error = notebook.cell("let count").locator(ERROR)
    assert "expected `u32`, found `&str`" in error.inner_text()
    # JupyterLab makes bold red a red that is too dark for its dark theme.
    assert error.locator(".ansi-red-fg").count() > 0 and error.locator(".ansi-red-intense-fg").count() == 0
    for theme in ("Dark", "Light"):
        notebook.theme(f"JupyterLab {theme}")
        assert min(plot.evaluate(CONTRAST) for plot in plots) >= 4.5, theme
    notebook.screenshot_in_both_themes("gallery")
    assert notebook.errors == []


def test_the_guide_has_a_picture_of_each_kind_of_output(lab):
    notebook = lab("guide")
    notebook.page.set_viewport_size({"width": 1120, "height": 1300})
    notebook.run_all(120)
    for name, source in GUIDE.items():
        cell = notebook.cell(source.splitlines()[0])
        if text := RUNNING.get(name):
            notebook.start(cell).filter(has_text=text).first.wait_for()
        notebook.picture(name, cell)
        notebook.wait_until_idle()
    assert {path.stem for path in browser.GUIDE.glob("*.png")} == set(GUIDE)
    assert notebook.errors == []


def accept_completion(notebook):
    """Presses Tab until there is a list, and takes its first entry; returns all entries."""
    entries = notebook.page.locator(".jp-Completer-item")
    for _ in range(10):
        notebook.page.keyboard.press("Tab")
        # JupyterLab shows no completions that come after more than a second, and the first ones of a kernel need three.
        notebook.page.wait_for_timeout(2000)
        if entries.count() > 0:
            break
    entries.first.wait_for()
    found = entries.locator(".jp-Completer-match").all_inner_texts()
    notebook.page.keyboard.press("Enter")
    entries.first.wait_for(state="hidden")
    return found


def test_tab_completes_a_method(scratch):
    assert scratch.run("let mut numbers = vec![3, 1, 2]; numbers.len()").inner_text() == "3"
    scratch.type("numbers.sor")
    found = accept_completion(scratch)
    assert all(entry.startswith("sort") for entry in found), found
    assert scratch.typed().startswith("numbers.sort"), scratch.typed()


def test_tab_completes_an_option_and_keeps_the_line(scratch):
    scratch.type("%%tune --objective acc:max --orac")
    assert accept_completion(scratch) == ["--oracle"]
    assert scratch.typed().rstrip() == "%%tune --objective acc:max --oracle"


def test_shift_tab_shows_the_documentation(scratch):
    scratch.type("Vec::<u8>::with_capacity")
    scratch.page.keyboard.press("Shift+Tab")
    tooltip = scratch.page.locator(".jp-Tooltip")
    tooltip.wait_for()
    scratch.screenshot("inspection")
    assert "fn with_capacity(capacity: usize)" in tooltip.inner_text()
    scratch.page.keyboard.press("Escape")


def test_a_page_that_is_loaded_anew_goes_on_showing_a_search(lab):
    notebook = lab("background")
    search = notebook.cell("%%tune --background")
    shown = search.locator(".widget-html-content")
    notebook.run_all(60)
    shown.filter(has_text="trials").wait_for()
    notebook.page.keyboard.press("Control+s")
    notebook.page.locator(".lm-TabBar-tab.jp-mod-dirty").wait_for(state="hidden")
    notebook.page.reload()
    notebook.wait_until_idle()
    for number in range(2):
        before = shown.filter(has_text="trials").inner_text()
        notebook.page.wait_for_function("([before]) => document.querySelector('.widget-html-content').innerText != before", arg=[before])
    notebook.screenshot("reloaded")
    notebook.cell("// stop").locator(".cm-content").click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.type("%tune stop")
    notebook.page.keyboard.press("Control+Enter")
    shown.filter(has_text=", stopped").wait_for()
    assert notebook.errors == []


def test_interrupt_stops_a_cell(scratch):
    output = scratch.run('println!("asleep"); std::thread::sleep(std::time::Duration::from_secs(60));')
    output.filter(has_text="asleep").wait_for()
    scratch.page.locator("[data-jp-item-name=interrupt]").click()
    output.and_(scratch.page.locator(ERROR)).filter(has_text="Interrupted").wait_for(timeout=10_000)


def test_restart_forgets_variables(scratch):
    output = scratch.run('let kept = 5; println!("kept is {kept}");')
    output.filter(has_text="kept is 5").wait_for()
    scratch.menu("Kernel", "Restart Kernel…")
    scratch.page.locator(".jp-Dialog .jp-mod-accept").click()
    scratch.page.locator(".jp-Dialog").wait_for(state="hidden")
    scratch.wait_until_idle()
    output = scratch.run("kept")
    output.and_(scratch.page.locator(ERROR)).filter(has_text="cannot find value `kept`").wait_for()
    assert scratch.code_cells.first.locator(".jp-InputPrompt").inner_text() == "[1]:"
