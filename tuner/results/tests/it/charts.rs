//! Tests of charts in their three forms.

use crate::study::{study, two_objectives};
use expect_test::expect;
use ferrotune_journal::Study;
use ferrotune_results::ResultsError;
use ferrotune_results::chart::{Axis, Chart, Marks, Panel, Scale};
use ferrotune_results::plot::{Focus, Plot};
use ferrotune_space::record::State;
use std::collections::BTreeMap;

fn text(study: &Study, plot: &str) -> Result<String, ResultsError> {
    Ok(Plot::named(plot)?.of(study, Focus::default())?.text() + "\n")
}

#[test]
fn history_shows_values_and_the_best_so_far() -> Result<(), ResultsError> {
    expect![[r#"
        history: digits
             ┌accuracy
             │                                 ─────────────────────────────
             │                 ────────────────│               •
             │        ─────────│                                           •
             │        │
         0.9 │  ──────│
             │     •
             │                     •                    •               •
             │                              •        •
             │
        0.85 │                           •        •
             │
             │
             │
             │
             │
         0.8 │                                                    •
             └────────────────────────────────────────────────────────────────
                0              5              10              15
              trial  • trials  ─ best so far
    "#]]
    .assert_eq(&text(&study(20), "history")?);
    Ok(())
}

#[test]
fn parallel_is_a_strip_for_each_axis() -> Result<(), ResultsError> {
    expect![[r#"
        parallel: digits
        accuracy      0.798 o·························oo·····o···ooo··o··o········o·oo··oo·● 0.932
              lr   0.000133 o·····o······o··o······o·o····o····●····o·o····o····o·o··o·o···o 0.0816
            drop        0.1 o···············o··············o················o··············o 0.5
           units         16 o········o········o········o········●········o········o········o 128
            kind      plain ················●·······························o··············· wide
                            ● trial 10: accuracy = 0.931511 (kind=plain, lr=0.004667, units=80)
    "#]]
    .assert_eq(&text(&study(20), "parallel")?);
    Ok(())
}

#[test]
fn importance_and_timeline_are_bars() -> Result<(), ResultsError> {
    expect![[r#"
        importance: digits
           lr │█████████████████████████████████████████████████████████████ 0.578
         drop │████████████████████████████████ 0.296
        units │██████████████ 0.126
         kind │█ 0.000
               share of the importance for accuracy

        timeline: digits
        0 │████████ trial 0: finished, 6.5 s
        1 │          ███████████ trial 1: finished, 9.1 s
        2 │                    ██████████████ trial 2: finished, 11.6 s
        3 │                              ████████ trial 3: finished, 6.1 s
        4 │                                        ▒▒▒▒▒▒▒▒▒▒▒ trial 4: pruned, 8.7 s
        5 │                                                   █████████████ trial 5: finished, 11.2 s
           seconds since the first trial
    "#]]
    .assert_eq(&(text(&study(20), "importance")? + "\n" + &text(&study(6), "timeline")?));
    Ok(())
}

#[test]
fn importance_by_fanova_is_a_share_of_the_variance() -> Result<(), ResultsError> {
    let fanova = Focus { evaluator: Some("fanova"), ..Focus::default() };
    let chart = Plot::Importance.of(&study(120), fanova)?;
    assert_eq!(chart.note.as_deref(), Some("not every trial asks for drop"));
    expect![[r#"
        importance: digits
           lr │█████████████████████████████████████████████████████████████ 0.578
        units │███████████████████████████████████████ 0.368
         kind │█ 0.001
               share of the variance for accuracy
        not every trial asks for drop
    "#]]
    .assert_eq(&(chart.text() + "\n"));
    let chosen = Focus { parameters: Some("kind,units"), ..fanova };
    assert!(!Plot::Importance.of(&study(120), chosen)?.text().contains("lr"));
    Ok(())
}

#[test]
fn terminator_shows_the_bound_and_the_threshold() -> Result<(), ResultsError> {
    let chart = Plot::Terminator.of(&study(120), Focus::default())?;
    let Marks::Points(points) = &chart.panels[0].layers[2].marks else { panic!("points") };
    let finished = study(120).trials.iter().filter(|trial| trial.state() == State::Finished).count();
    assert_eq!(points.len(), (finished - 20) / 5 + 1);
    let text = chart.text();
    assert!(text.starts_with("terminator: digits\n") && text.contains("possible improvement of accuracy"), "{text}");
    let long = Plot::Terminator.of(&study(2_000), Focus::default())?;
    let Marks::Points(points) = &long.panels[0].layers[2].marks else { panic!("points") };
    assert!((20..=40).contains(&points.len()), "{}", points.len());
    Ok(())
}

#[test]
fn model_shows_each_parameter_and_the_next_trial() -> Result<(), ResultsError> {
    let mut study = study(120);
    study.spec.seed = Some(3);
    let chart = Plot::Model.of(&study, Focus { parameters: Some("lr,kind"), ..Focus::default() })?;
    let names = |panel: usize| chart.panels[panel].layers.iter().map(|layer| layer.name.as_str()).collect::<Vec<_>>();
    assert_eq!(names(0), ["95 % bounds, without noise", "expected", "next trial"]);
    let Marks::Lines(lines) = &chart.panels[0].layers[1].marks else { panic!("a line") };
    let best = lines[0].points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|best| best.0.log10());
    assert!(best.is_some_and(|best| (best + 2.5).abs() < 0.4), "the accuracy is best at 10^-2.5: {best:?}");
    let Marks::Points(kinds) = &chart.panels[1].layers[1].marks else { panic!("a point for each kind") };
    assert_eq!(kinds.len(), 2);
    study.spec.seed = None;
    assert_eq!(Plot::Model.of(&study, Focus::default())?.panels[0].layers.len(), 2);
    Ok(())
}

#[test]
fn every_plot_has_all_forms_and_fits_into_a_message() -> Result<(), ResultsError> {
    // jupyter_server drops output beyond a megabyte a second.
    const MOST_BYTES: usize = 1_000_000;
    for study in [two_objectives(40), two_objectives(10_000)] {
        let charts = Plot::all_of(&study);
        assert_eq!(charts.len(), 11);
        for chart in charts {
            let bundle = chart.bundle();
            let svg = bundle.data["image/svg+xml"].as_str().expect("SVG");
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>") && !svg.contains("NaN"), "{}", chart.title);
            assert!(!svg.contains("<b>"), "what a trial said is markup in {}", chart.title);
            let vega = bundle.data["application/vnd.vegalite.v5+json"].to_string();
            let bytes = svg.len() + vega.len() + bundle.data["text/plain"].as_str().map_or(0, str::len);
            assert!(bytes < MOST_BYTES, "{} has {bytes} bytes", chart.title);
        }
    }
    Ok(())
}

#[test]
fn plots_of_one_trial_and_of_equal_values_have_axes() -> Result<(), ResultsError> {
    let mut equal = study(6);
    equal.trials.iter_mut().for_each(|trial| trial.values.fill(0.5));
    for study in [study(1), equal] {
        for chart in Plot::all_of(&study) {
            let svg = chart.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}: {svg}", chart.title);
            assert!(!chart.text().is_empty() && !chart.vega().to_string().contains("null,null"), "{}", chart.title);
        }
    }
    Ok(())
}

#[test]
fn mistakes_name_the_cure() {
    let few = study(3);
    let error = |plot: Plot, focus: Focus<'_>| plot.of(&few, focus).map(drop).expect_err("a mistake").to_string();
    let errors = [
        Plot::named("pie").map(drop).expect_err("no pie").to_string(),
        error(Plot::Slice, Focus { parameters: Some("lr,rate"), ..Focus::default() }),
        error(Plot::Contour, Focus { parameters: Some("lr"), ..Focus::default() }),
        error(Plot::History, Focus { objective: Some("loss"), ..Focus::default() }),
        error(Plot::Intermediate, Focus { objective: Some("f1"), ..Focus::default() }),
        error(Plot::Pareto, Focus::default()),
        error(Plot::Terminator, Focus::default()),
        Plot::Terminator.of(&two_objectives(40), Focus::default()).map(drop).expect_err("two objectives").to_string(),
        error(Plot::Importance, Focus { evaluator: Some("shap"), ..Focus::default() }),
        error(Plot::Edf, Focus { evaluator: Some("fanova"), ..Focus::default() }),
        Plot::Edf.of(&study(0), Focus::default()).map(drop).expect_err("no trial").to_string(),
    ];
    expect![[r#"
        there is no plot pie; choose from history, parallel, slice, contour, importance, intermediate, pareto, edf, timeline, rank, hypervolume, terminator, model
        study digits has no parameter rate; choose from drop, kind, lr, units
        study digits has too little for this plot: it needs two parameters
        study digits has no objective loss; choose from accuracy
        no trial of digits has reported f1; an objective reports by trial.report(step, [("f1", value)])
        study digits has too little for this plot: it needs two objectives; %plot history shows the one
        study digits has too little for this plot: it needs 20 finished trials, after which the terminator judges for the first time
        study digits has too little for this plot: it needs a single objective; %plot hypervolume shows how several improve
        there is no evaluator shap; choose from ped_anova, fanova
        --evaluator measures importance; leave it out, or use %plot importance
        study digits has no finished trial yet; %trials shows what became of the others
    "#]].assert_eq(&(errors.join("\n") + "\n"));
}

/// The labels of an SVG in rows: the height of each row, and the left and right end of each label.
fn rows_of_labels(svg: &str) -> BTreeMap<String, Vec<(f64, f64)>> {
    let mut rows = BTreeMap::<String, Vec<(f64, f64)>>::new();
    let horizontal = |element: &&str| !element.contains("rotate") && element.contains("text-anchor=\"middle\"");
    for (y, place) in svg.split("<text ").skip(1).filter(horizontal).filter_map(place_of_label) {
        rows.entry(y).or_default().push(place);
    }
    rows
}

fn place_of_label(element: &str) -> Option<(String, (f64, f64))> {
    let attribute = |name: &str| element.split_once(&format!("{name}=\""))?.1.split('"').next();
    let label = element.split_once('>')?.1.split('<').next()?;
    let (x, half) = (attribute("x")?.parse::<f64>().ok()?, label.chars().count() as f64 * 3.1);
    Some((attribute("y")?.to_owned(), (x - half, x + half)))
}

/// A chart with narrow panels over fewer than three decades, whose ticks are close together.
fn narrow() -> Chart {
    let axis = || Axis::new("lr", Scale::Log { low: 1.5e-4, high: 0.09 });
    let panel = || Panel { x: axis(), y: axis(), layers: Vec::new() };
    Chart { title: "narrow".to_owned(), panels: vec![panel(), panel()], ..Chart::default() }
}

#[test]
fn no_label_of_a_picture_overlaps_another() {
    let plots = [6, 20, 60].into_iter().flat_map(|trials| Plot::all_of(&study(trials)));
    for plot in plots.chain([narrow()]) {
        let rows = rows_of_labels(&plot.svg());
        assert!(rows.values().any(|row| row.len() > 1), "{}", plot.title);
        for mut row in rows.into_values() {
            row.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(row.windows(2).all(|pair| pair[0].1 < pair[1].0), "{}: {row:?}", plot.title);
        }
    }
}

/// A single plot fits into its size, with its legend. With several panels, the legend is below them, and the axes take up to 60
/// pixels of each.
#[test]
fn plots_and_their_legends_fit_into_an_output_of_560_pixels() {
    for plot in Plot::all_of(&study(20)) {
        let vega = plot.vega();
        let width = |part: &serde_json::Value| part["width"].as_u64().unwrap();
        let whole = match vega["concat"].as_array() {
            None => {
                assert_eq!(vega["autosize"], serde_json::json!({"type": "fit", "contains": "padding"}));
                width(&vega)
            }
            Some(panels) => vega["columns"].as_u64().unwrap() * (width(&panels[0]) + 60),
        };
        assert!(whole <= 522, "{}: {whole}", plot.title);
        assert_eq!(vega["config"]["legend"]["orient"], "bottom");
    }
}

#[test]
fn plots_are_drawn_on_the_page_in_an_ink_for_every_theme() {
    for plot in Plot::all_of(&study(20)) {
        let (svg, vega) = (plot.svg(), plot.vega());
        // A separate picture has a grey that is visible on every page; an SVG in a page has the page's colour.
        let ink = "color=\"#858585\" style=\"max-width:100%;height:auto;color:var(--jp-content-font-color1,#858585)\"";
        assert!(svg.contains(ink) && svg.contains("fill=\"currentColor\""), "{}", plot.title);
        assert!(!svg.contains("white") && !svg.contains("black"), "{}", plot.title);
        assert_eq!(vega["background"], "transparent");
        for (part, key) in
            [("axis", "labelColor"), ("axis", "titleColor"), ("legend", "labelColor"), ("title", "color")]
        {
            assert_eq!(vega["config"][part][key], "currentColor", "{} {part}", plot.title);
        }
    }
}

/// A transparent mark has a different colour on each page, which may be too close to the page's colour.
#[test]
fn marks_are_opaque() {
    for plot in Plot::all_of(&study(60)) {
        let svg = plot.svg();
        let marks = ["<circle ", "<polyline ", "<rect "].into_iter().flat_map(|tag| svg.split(tag).skip(1));
        let transparent = marks.filter(|mark| mark.split('>').next().is_some_and(|mark| mark.contains("opacity")));
        assert_eq!(transparent.count(), 0, "{}", plot.title);
        let layers = plot.vega()["layer"].as_array().cloned().unwrap_or_default();
        // Circles of Vega-Lite are transparent by default.
        let opacity = |layer: &serde_json::Value| layer["mark"]["opacity"].as_f64().unwrap_or(1.0);
        assert!(
            layers.iter().all(|layer| opacity(layer) == 1.0 || layer["mark"]["type"] != "circle"),
            "{}",
            plot.title
        );
    }
}

/// The text of each name on an axis follows the plate below it, and the numbers of an axis are beyond its lines.
#[test]
fn labels_of_parallel_axes_are_not_crossed_by_lines() -> Result<(), ResultsError> {
    let chart = Plot::Parallel.of(&study(60), Focus::default())?;
    let svg = chart.svg();
    for name in ["wide", "plain"] {
        let (before, _) = svg.rsplit_once(&format!(">{name}</text>")).expect("a label");
        let plate = before.rsplit('<').nth(1).expect("a plate");
        assert!(plate.starts_with("rect ") && plate.contains("#616c7a"), "{name}: {plate}");
    }
    assert!(svg.rfind("<polyline") < svg.find("#616c7a"), "a line is above a plate");
    let numbers = chart.panels[0].layers.iter().filter_map(|layer| match &layer.marks {
        Marks::Labels(points) => Some(points),
        _ => None,
    });
    assert!(numbers.flatten().all(|point| point.y < -0.04 || point.y > 1.04));
    Ok(())
}

#[test]
fn pictures_are_as_wide_as_the_page_allows() {
    for plot in Plot::all_of(&study(20)) {
        let svg = plot.svg();
        let root = svg.split('>').next().unwrap_or_default();
        assert!(root.contains("viewBox=\"0 0 ") && root.contains("max-width:100%;height:auto"), "{root}");
        assert!(!root.contains(" height=\""), "{root}");
        let options = &plot.vega()["usermeta"]["embedOptions"];
        assert_eq!(options["renderer"], "svg");
        assert_eq!(options["patch"][1]["value"][0]["name"] == "width", plot.panels.len() == 1, "{}", plot.title);
    }
}
