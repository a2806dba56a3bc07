//! Tests of files for other programs. tests/test_results.py checks that those programs can read them.

use crate::study::study;
use expect_test::expect;
use ferrotune_results::ResultsError;
use ferrotune_results::export::Format;
use ferrotune_results::tensorboard::files;

#[test]
fn csv_has_a_row_for_each_trial_with_all_digits() -> Result<(), ResultsError> {
    let csv = String::from_utf8(Format::Csv.bytes(&study(8))?).expect("text");
    let lines: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(lines.len(), 8 + 2);
    expect![[r#"
        number,state,values_accuracy,params_drop,params_kind,params_lr,params_units,last_accuracy,last_loss,datetime_start,datetime_complete,seconds,peak_bytes,epochs,ending,checkpoint
        0,finished,0.8922282934978967,0.3,wide,0.0017483995543463185,32,0.8922282934978967,0.10777170650210333,2023-11-14T22:13:20.000000Z,2023-11-14T22:13:26.532000Z,6.5329983228431985,52428800,5,finished,checkpoint-000004.safetensors
        7,failed,,0,wide,0.0008732236651198187,128,0.9127778345376627,0.0872221654623373,2023-11-14T22:14:23.000000Z,2023-11-14T22:14:31.263000Z,8.263986582745588,59768832,5,panicked: boom <b>,
    "#]].assert_eq(&format!("{}\n{}\n{}\n", lines[0], lines[1], lines[8]));
    Ok(())
}

#[test]
fn json_has_every_metric_of_every_step() -> Result<(), ResultsError> {
    let json: serde_json::Value = serde_json::from_slice(&Format::Json.bytes(&study(5))?).expect("JSON");
    assert_eq!(json["study"]["objectives"], serde_json::json!([{"metric": "accuracy", "direction": "max"}]));
    assert_eq!(json["trials"].as_array().map(Vec::len), Some(5));
    assert_eq!(json["trials"][4]["state"], "pruned");
    assert_eq!(json["trials"][4]["values"]["accuracy"], serde_json::Value::Null);
    assert_eq!(json["trials"][0]["metrics"]["4"]["accuracy"], json["trials"][0]["values"]["accuracy"]);
    Ok(())
}

#[test]
fn page_needs_no_network_and_escapes_what_trials_said() -> Result<(), ResultsError> {
    let mut study = study(20);
    study.spec.oracle = "<i>auto".to_owned();
    let page = String::from_utf8(Format::Html.bytes(&study)?).expect("text");
    assert!(page.contains("&lt;i&gt;auto") && !page.contains("<i>"));
    assert_eq!(page.matches("<svg ").count(), 9);
    assert!(page.contains("boom &lt;b&gt;") && !page.contains("boom <b>"));
    let addresses: Vec<&str> = page.match_indices("http").map(|(at, _)| &page[at..at + 26]).collect();
    assert!(addresses.iter().all(|address| *address == "http://www.w3.org/2000/svg"), "{addresses:?}");
    Ok(())
}

#[test]
fn event_files_of_a_trial_grow_at_their_end() {
    let mut study = study(2);
    let whole = files(&study);
    assert_eq!(
        whole.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(),
        [
            "events.out.tfevents.1700000000.ferrotune",
            "trial-0000/events.out.tfevents.1700000000.ferrotune",
            "trial-0001/events.out.tfevents.1700000009.ferrotune",
        ]
    );
    let trial = &mut study.trials[1];
    trial.ending = None;
    trial.values.clear();
    trial.metrics.retain(|step, _| *step < 3);
    study.times[1].ended = None;
    let earlier = files(&study);
    assert_eq!(earlier[1], whole[1]);
    assert!(whole[2].bytes.starts_with(&earlier[2].bytes) && whole[2].bytes.len() > earlier[2].bytes.len());
}
