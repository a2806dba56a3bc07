"""Crates of crates.io whose values cells show, as docs/display.md says. Their builds need a network and a minute of processor time
each, so only the smallest runs by default: FERROTUNE_TEST_CRATES=1 runs all."""

import base64
import os
import pathlib
import re

import pytest

from test_values import only, shown

PAGE = pathlib.Path(__file__).parent.parent / "docs/display.md"

heavy = pytest.mark.skipif("FERROTUNE_TEST_CRATES" not in os.environ, reason="FERROTUNE_TEST_CRATES=1 builds these crates")


def test_plotters_draws_a_figure(start):
    kernel = start()
    kernel.ok(
        ':dep plotters = { version = "0.3", default-features = false, features = ["evcxr", "line_series"] }\n'
        "use plotters::prelude::*;"
    )
    figure = """evcxr_figure((320, 240), |root| {
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root).build_cartesian_2d(0f64..6.0, -1f64..1.0)?;
    chart.draw_series(LineSeries::new((0..=60).map(|step| step as f64 / 10.0).map(|x| (x, x.sin())), &RED))?;
    Ok(())
})"""
    bundle = only(kernel, figure)
    assert set(bundle) == {"text/html"} and "<polyline" in bundle["text/html"] and bundle["text/html"].endswith("</div>")
    # A figure is a value like others.
    assert shown(kernel, f"let figure = {figure};\nfigure") == [bundle]
    assert shown(kernel, "&figure") == [bundle]


@heavy
def test_plotly_gives_its_own_plot_to_the_front_end(start):
    kernel = start()
    kernel.ok(':dep plotly = { version = "0.14", default-features = false }\nuse plotly::{Plot, Scatter};')
    kernel.ok('let mut plot = Plot::new();\nplot.add_trace(Scatter::new(vec![1, 2, 3], vec![4.0, 2.0, 8.0]).name("loss"));')
    bundle = only(kernel, "plot")
    (trace,) = bundle["application/vnd.plotly.v1+json"]["data"]
    assert (trace["name"], trace["y"]) == ("loss", [4.0, 2.0, 8.0])


@heavy
def test_charming_renders_a_page(start):
    kernel = start()
    (cell,) = re.findall(r"^```rust\n(:dep charming.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    # The line `:dep` shows its progress first.
    *_, bundle = shown(kernel, cell)
    assert bundle["text/html"].startswith("<iframe") and "echarts" in bundle["text/html"]


@heavy
def test_image_is_written_as_a_file(start):
    kernel = start()
    kernel.ok(':dep image = { version = "0.25", default-features = false, features = ["png"] }')
    bundle = only(
        kernel,
        "let picture = image::RgbImage::from_fn(32, 16, |x, y| image::Rgb([8 * x as u8, 16 * y as u8, 0]));\n"
        "let mut file = std::io::Cursor::new(vec![]);\n"
        "picture.write_to(&mut file, image::ImageFormat::Png)?;\n"
        "ferrotune::display::png(file.get_ref());",
    )
    assert base64.b64decode(bundle["image/png"])[:4] == b"\x89PNG"
