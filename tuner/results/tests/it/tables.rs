//! Tests of the tables of trials, parameters and studies as text.

use crate::study::{study, two_objectives};
use expect_test::{Expect, expect};
use ferrotune_display::Bundle;
use ferrotune_results::listing::Listing;
use ferrotune_results::overview::{Entry, overview};
use ferrotune_results::{ResultsError, best, space};
use ferrotune_space::{Distribution, Parameter, Scale, Value};
use std::path::PathBuf;

fn text(bundle: &Bundle) -> String {
    format!("{}\n", bundle.data["text/plain"].as_str().expect("text"))
}

fn check(listing: Listing<'_>, expected: Expect) -> Result<(), ResultsError> {
    expected.assert_eq(&text(&listing.table(&study(20))?));
    Ok(())
}

#[test]
fn trials_are_chosen_sorted_and_cut() -> Result<(), ResultsError> {
    let listing = Listing {
        sort: Some("accuracy:desc"),
        filter: Some("state=finished and lr < 0.01"),
        limit: Some(3),
        columns: Some("trial, accuracy, loss, drop, epochs, started"),
    };
    check(
        listing,
        expect![[r#"
            trial  accuracy       loss  drop  epochs  started
               10  0.931511   0.068489             5  2023-11-14 22:14:50
               15  0.926883  0.0731171   0.1       5  2023-11-14 22:15:35
                5  0.924999  0.0750005             5  2023-11-14 22:14:05

            3 of 10 trials that fit the condition are shown; --limit 10 shows all, --sort and --where choose
        "#]],
    )
}

#[test]
fn what_has_nothing_comes_last_in_both_orders() -> Result<(), ResultsError> {
    let columns = Some("trial,drop");
    check(
        Listing { sort: Some("drop"), columns, limit: Some(12), ..Listing::default() },
        expect![[r#"
            trial  drop
                7     0
                4   0.1
               15   0.1
               18   0.1
               12   0.2
                0   0.3
                3   0.3
                8   0.4
               11   0.4
               14   0.4
               19   0.5
                1

            12 of 20 trials are shown; --limit 20 shows all, --sort and --where choose
        "#]],
    )?;
    check(
        Listing { sort: Some("drop:desc"), columns, limit: Some(12), ..Listing::default() },
        expect![[r#"
            trial  drop
               19   0.5
                8   0.4
               11   0.4
               14   0.4
                0   0.3
                3   0.3
               12   0.2
                4   0.1
               15   0.1
               18   0.1
                7     0
                1

            12 of 20 trials are shown; --limit 20 shows all, --sort and --where choose
        "#]],
    )
}

#[test]
fn conditions_compare_numbers_texts_and_sizes() -> Result<(), ResultsError> {
    let study = study(20);
    let count = |filter| -> Result<usize, ResultsError> {
        let listing = Listing { filter: Some(filter), ..Listing::default() };
        Ok(text(&listing.table(&study)?).lines().take_while(|line| !line.is_empty()).count() - 1)
    };
    for (filter, expected) in [
        ("state=failed", 2),
        ("state!=failed", 18),
        ("ending ~ boom", 2),
        ("kind == 'wide'", 11),
        ("trial<=3", 4),
        ("trial>=3 and trial<5", 2),
        ("peak memory > 60MiB", 9),
        ("drop=0.5", 1),
        ("drop!=0.5", 10),
    ] {
        assert_eq!(count(filter)?, expected, "{filter}");
    }
    Ok(())
}

#[test]
fn epochs_are_a_column_where_trials_train_for_different_lengths() -> Result<(), ResultsError> {
    let header = |lengths: [u64; 3]| {
        let mut study = study(3);
        for (trial, length) in study.trials.iter_mut().zip(lengths) {
            let reports = (0..length).map(|step| (step, [("accuracy".to_owned(), Some(0.5))].into()));
            trial.metrics = reports.collect();
        }
        let table = text(&Listing::default().table(&study)?);
        Ok::<_, ResultsError>(table.lines().next().unwrap_or_default().to_owned())
    };
    assert!(header([1, 3, 9])?.contains("epochs  seconds"));
    assert!(!header([9, 9, 9])?.contains("epochs"));
    Ok(())
}

#[test]
fn mistakes_name_the_cure() {
    let study = study(3);
    let error = |listing: Listing<'_>| listing.table(&study).expect_err("a mistake").to_string();
    let errors = [
        error(Listing { sort: Some("accurcy"), ..Listing::default() }),
        error(Listing { sort: Some("lr:down"), ..Listing::default() }),
        error(Listing { filter: Some("accuracy"), ..Listing::default() }),
        error(Listing { filter: Some("kind<wide"), ..Listing::default() }),
        error(Listing { filter: Some("lr>"), ..Listing::default() }),
        error(Listing { columns: Some("trial,"), ..Listing::default() }),
        best::best(&crate::study::study(0), None, |_| None).expect_err("no trial").to_string(),
        space::space(&crate::study::study(0)).expect_err("no trial").to_string(),
    ];
    expect![[r#"
        there is no column accurcy; choose from accuracy, drop, kind, lr, units, trial, state, seconds, peak memory, epochs, started, ended, ending, device
        the order down is neither asc nor desc; write COLUMN:asc or COLUMN:desc
        accuracy is no condition; write COLUMN, a comparison and VALUE, as in val_accuracy>0.9 or state=failed
        kind can be compared by < and > with numbers only, and wide is none; use = or !=
        lr> is no condition; write COLUMN, a comparison and VALUE, as in val_accuracy>0.9 or state=failed
        there is no column ; choose from accuracy, drop, kind, lr, units, trial, state, seconds, peak memory, epochs, started, ended, ending, device
        study digits has no finished trial yet; %trials shows what became of the others
        study digits has no trial yet; its search space shows with the first one
    "#]].assert_eq(&(errors.join("\n") + "\n"));
}

#[test]
fn markup_in_a_trial_is_text_in_the_table() -> Result<(), ResultsError> {
    let table = Listing::default().table(&study(10))?;
    let html = table.data["text/html"].as_str().expect("HTML");
    assert!(html.contains("boom &lt;b&gt;") && !html.contains("<b>"), "{html}");
    Ok(())
}

#[test]
fn best_shows_weights_and_rust() -> Result<(), ResultsError> {
    let weights = |trial: &ferrotune_space::record::TrialRecord| {
        let path = PathBuf::from(format!("trials/{}/{}", trial.number, trial.checkpoint.as_ref()?));
        Some(best::Weights { path, note: Some("of step 5".to_owned()) })
    };
    expect![[r#"
        trial  accuracy  drop  kind         lr  units  seconds  peak memory  ending
           10  0.931511        plain  0.004667     80     7.86     60.0 MiB  finished
           15  0.926883   0.1  wide   0.007625    112     4.53     65.0 MiB  finished
            5  0.924999        plain  0.002857     64     11.2     55.0 MiB  finished

        weights of trial 15: trials/15/checkpoint-000004.safetensors (of step 5)

        // trial 10 of digits
        let kind = String::from("plain");
        let lr: f64 = 0.004667104856094644;
        let units: usize = 80;
        // the same as a trial, for the function that builds the objective's model: `model(&best)?`
        let best = ferrotune::Trial::of([("kind", "plain".into()), ("lr", 0.004667104856094644.into()), ("units", 80.into())]);

        # trial 10 of digits, in Python
        parameters = {"kind": "plain", "lr": 0.004667104856094644, "units": 80}
    "#]]
    .assert_eq(&text(&best::best(&study(20), Some(3), weights)?));
    Ok(())
}

#[test]
fn best_of_several_objectives_are_the_trade_offs() -> Result<(), ResultsError> {
    expect![[r#"
        trial  accuracy  size  drop  kind         lr  units  seconds  peak memory  ending
            0  0.892228    32   0.3  wide   0.001748     32     6.53     50.0 MiB  finished
            5  0.924999    64        plain  0.002857     64     11.2     55.0 MiB  finished
           10  0.931511    80        plain  0.004667     80     7.86     60.0 MiB  finished
           29  0.870237    16   0.2  wide   0.001902     16     7.99     79.0 MiB  finished

        no other trial beats the first 4 of these

        // trial 0 of digits
        let drop: f64 = 0.3;
        let kind = String::from("wide");
        let lr: f64 = 0.0017483995543463185;
        let units: usize = 32;
        // the same as a trial, for the function that builds the objective's model: `model(&best)?`
        let best = ferrotune::Trial::of([("drop", 0.3.into()), ("kind", "wide".into()), ("lr", 0.0017483995543463185.into()), ("units", 32.into())]);

        # trial 0 of digits, in Python
        parameters = {"drop": 0.3, "kind": "wide", "lr": 0.0017483995543463185, "units": 32}
    "#]]
    .assert_eq(&text(&best::best(&two_objectives(40), None, |_| None)?));
    Ok(())
}

#[test]
fn trials_with_the_same_parameters_are_averaged() -> Result<(), ResultsError> {
    let mut study = study(20);
    let parameters = study.trials[10].parameters.clone();
    for (number, accuracy) in [(0, 0.91), (5, 0.85)] {
        study.trials[number].parameters.clone_from(&parameters);
        study.trials[number].values = vec![accuracy];
    }
    let shown = text(&best::best(&study, Some(2), |_| None)?);
    let note = "trial 10 is one of 3 with its parameters; their mean accuracy is 0.89717 (0.85 to 0.931511)";
    assert!(shown.contains(note), "{shown}");
    assert_eq!(shown.matches("with its parameters").count(), 1, "{shown}");
    Ok(())
}

#[test]
fn space_tells_ranges_scales_and_conditions() -> Result<(), ResultsError> {
    expect![[r#"
        parameter  kind    range         scale     default  asked for        tried                     trials
        drop       float   0..=0.5       step 0.1           if kind is wide  0 to 0.5                      11
        kind       choice  plain, wide                      always           wide, plain                   20
        lr         float   0.0001..=0.1  log                always           0.000133319 to 0.0815996      20
        units      int     16..=128      step 16        64  always           16 to 128                     20
    "#]]
    .assert_eq(&text(&space::space(&study(20))?));
    Ok(())
}

#[test]
fn studies_are_rows_of_one_table() {
    let entry = |name: &str, study, runner: Option<&str>| Entry {
        name: name.to_owned(),
        study,
        runner: runner.map(str::to_owned),
        changed: None,
    };
    let entries = [
        entry("digits", study(20), Some("process 7 on here")),
        entry("sizes", two_objectives(40), None),
        entry("new", study(0), None),
    ];
    expect![[r#"
        study   objective               oracle  trials  finished  pruned  failed  running  best          search             last change
        digits  accuracy:max            auto    20/40         16       2       2        0  0.931511      process 7 on here
        sizes   accuracy:max, size:min  auto    40/40         32       4       4        0  4 trade-offs  none
        new     accuracy:max            auto    0/40           0       0       0        0                none
    "#]].assert_eq(&text(&overview(&entries)));
}

#[test]
fn parameter_with_other_values_in_another_branch_has_a_row_for_each() -> Result<(), ResultsError> {
    let mut study = study(20);
    for trial in &mut study.trials {
        let (is_wide, number) = (trial.parameters.contains_key("drop"), trial.number as i64);
        let (low, high) = if is_wide { (10, 40) } else { (1, 4) };
        let distribution = Distribution::Int { low, high, step: 1, scale: Scale::Linear };
        trial.parameters.retain(|name, _| name == "kind");
        trial.parameters.insert("n".to_owned(), Parameter { distribution, value: Value::Int(low + number % 3) });
    }
    let shown = text(&space::space(&study)?);
    let rows: Vec<String> = shown
        .lines()
        .filter(|line| line.split_whitespace().next() == Some("n"))
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let of = |range: &str, kind: &str| {
        rows.iter().any(|row| row.contains(range) && row.contains(&format!("if kind is {kind}")))
    };
    assert!(rows.len() == 2 && of("1..=4", "plain") && of("10..=40", "wide"), "{shown}");
    Ok(())
}

#[test]
fn parameter_that_is_named_as_a_column_of_all_studies_hides_neither() -> Result<(), ResultsError> {
    let mut study = study(20);
    for trial in &mut study.trials {
        let values = ["on", "off"].map(Value::from).to_vec();
        let value = values[usize::from(trial.number > 2)].clone();
        let distribution = Distribution::Choice { values, is_ordered: false };
        trial.parameters.insert("state".to_owned(), Parameter { distribution, value });
    }
    let of = |filter| {
        Listing { filter: Some(filter), columns: Some("trial"), ..Listing::default() }
            .table(&study)
            .map(|table| text(&table))
    };
    let error = of("state=on").expect_err("two columns").to_string();
    assert_eq!(error, "state is the name of several columns; write param.state or trial.state");
    let rows = |text: String| {
        text.split("\n\n")
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .filter(|word| word.parse::<u64>().is_ok())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(rows(of("param.state=on")?), ["0", "1", "2"]);
    assert_eq!(rows(of("trial.state=pruned")?), ["4", "14"]);
    Ok(())
}
