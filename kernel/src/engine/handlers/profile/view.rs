//! The view of a profile in a notebook: a table and a judgement for each loop, and a chart of the last steps.

use ferrotune_display::{Bundle, escape, table};
use ferrotune_profile::{Interval, LoopReport, Part, Profile};
use ferrotune_results::chart::{Axis, Bar, Chart, Colour, Layer, Marks, Panel, Scale};

/// The largest number of steps, and of bars in those steps, in the chart of the last steps.
const MOST_STEPS: usize = 20;
const MOST_BARS: usize = 400;

/// The rows of the chart: the steps, the host and the device.
const STEPS: usize = 0;
const HOST: usize = 1;
const DEVICE: usize = 2;

pub(super) fn of(profile: &Profile) -> Vec<Bundle> {
    let report = profile.report();
    if report.loops.is_empty() {
        let text = "no loop with two steps was recorded: a step is a batch of a Dataset, or begins where ferrotune::profile::step() is \
                    called";
        return vec![Bundle::text(text)];
    }
    let mut bundles: Vec<Bundle> = report.loops.iter().map(|of| of_loop(of, profile.is_cut)).collect();
    bundles.extend(timeline(profile).map(|chart| chart.bundle()));
    bundles
}

fn of_loop(report: &LoopReport, is_cut: bool) -> Bundle {
    let milliseconds = |nanoseconds: f64| format!("{:.3}", nanoseconds / 1e6);
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let row = |name: &str, nanoseconds: f64| {
        vec![name.to_owned(), milliseconds(nanoseconds), percent(nanoseconds / report.mean.max(1.0))]
    };
    let mut rows: Vec<Vec<String>> = report.parts.iter().map(|(part, mean)| row(part.name(), *mean)).collect();
    rows.push(row(report.rest_name(), report.rest));
    rows.push(row("a step", report.mean));
    let table = table(&["part", "ms", "share"], &rows);
    let heading = format!(
        "{}: {} step{} after a first one of {} ms; the median is {} ms{}",
        report.place,
        report.steps,
        if report.steps == 1 { "" } else { "s" },
        milliseconds(report.first),
        milliseconds(report.median),
        if is_cut { "; later steps were not recorded" } else { "" },
    );
    let (sentence, advice) = (report.sentence(), report.advice());
    let text = |key: &str| table.data.get(key).and_then(|text| text.as_str()).unwrap_or_default();
    let plain =
        format!("{heading}\n\n{}\n\n{sentence}\nto change: {}", text("text/plain"), advice.join("\n           "));
    let items: String = advice.iter().map(|advice| format!("<li>{}</li>", escape::html(advice))).collect();
    let html = format!(
        "<p>{}</p>{}<p><b>{}</b></p><ul>{items}</ul>",
        escape::html(&heading),
        text("text/html"),
        escape::html(&sentence)
    );
    Bundle::text(plain).with("text/html", html)
}

/// The chart of the last steps, in milliseconds since the first of these steps.
fn timeline(profile: &Profile) -> Option<Chart> {
    let last = profile.steps.last()?.time.to;
    let in_step = |from: u64, time: &Interval| time.to > from && time.from < last;
    let bars = |from: u64| {
        profile.spans.iter().filter(|span| in_step(from, &span.time)).count()
            + profile.runs.iter().filter(|run| in_step(from, run)).count()
    };
    let starts = profile.steps.iter().rev().take(MOST_STEPS).map(|step| step.time.from);
    let from = starts.take_while(|from| bars(*from) <= MOST_BARS).last()?;
    let shown = profile.steps.iter().filter(|step| step.time.from >= from).count();
    let bar = |time: Interval, row: usize, what: &str| {
        // The trace of a trial is untrusted and may have steps in any order.
        let (begin, end) = (time.from.saturating_sub(from), time.to.min(last).saturating_sub(from));
        let label = format!("{what}, {:.3} ms", time.nanoseconds() as f64 / 1e6);
        Bar { from: begin as f64 / 1e6, to: end as f64 / 1e6, row, label }
    };
    let first_number = profile.steps.len() - shown;
    let steps = profile.steps[first_number..].iter().zip(first_number..);
    let steps: Vec<Bar> = steps.map(|(step, number)| bar(step.time, STEPS, &format!("step {number}"))).collect();
    let of_part = |part: Part| {
        let spans = profile.spans.iter().filter(|span| span.part == part && in_step(from, &span.time));
        (part.name(), spans.map(|span| bar(span.time, HOST, part.name())).collect::<Vec<Bar>>())
    };
    let runs = profile.runs.iter().filter(|run| in_step(from, run));
    let runs: Vec<Bar> = runs.map(|run| bar(*run, DEVICE, "program")).collect();
    let mut names = vec!["steps".to_owned(), "host".to_owned()];
    if !runs.is_empty() {
        names.push(profile.device.clone());
    }
    let groups = [("step", steps)].into_iter().chain(Part::ALL.map(of_part)).chain([("program", runs)]);
    let layers = groups.enumerate().filter(|(_, (_, bars))| !bars.is_empty()).map(|(colour, (name, bars))| Layer {
        name: name.to_owned(),
        colour: Colour::Series(colour),
        marks: Marks::Bars(bars),
    });
    let high = (last.saturating_sub(from) as f64 / 1e6).max(1e-3);
    let x = Axis::new(format!("ms since step {first_number}"), Scale::Linear { low: 0.0, high });
    let panel = Panel { x, y: Axis::new("", Scale::Names(names)), layers: layers.collect() };
    let note = (first_number > 0)
        .then(|| format!("the last {shown} of the {} steps that were recorded are drawn", profile.steps.len()));
    Some(Chart { title: "steps".to_owned(), panels: vec![panel], shades: None, note })
}
