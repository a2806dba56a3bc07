//! Tests that data from earlier versions can be read.

use ferrotune_space::spec::StudySpec;
use ferrotune_space::wire::Request;

#[test]
fn workers_of_earlier_studies_are_understood() {
    let finish = |text: &str| serde_json::from_str::<Request>(text).expect("a request");
    assert_eq!(finish(r#"{"op":"finish","value":0.5}"#), Request::Finish { values: vec![Some(0.5)] });
    assert_eq!(finish(r#"{"op":"finish","value":null}"#), Request::Finish { values: vec![None] });
    assert_eq!(finish(r#"{"op":"finish","values":[null,2.0]}"#), Request::Finish { values: vec![None, Some(2.0)] });
    let infinite = Request::Finish { values: vec![Some(f64::NEG_INFINITY), None, Some(0.1)] };
    let text = serde_json::to_string(&infinite).expect("JSON");
    assert_eq!((text.as_str(), finish(&text)), (r#"{"op":"finish","values":["-inf",null,0.1]}"#, infinite));
    assert!(serde_json::from_str::<Request>(r#"{"op":"finish","values":["much"]}"#).is_err());
}

#[test]
fn a_search_without_objectives_is_not_read() {
    let none = serde_json::to_value(StudySpec::new("digits", Vec::new())).expect("JSON");
    assert!(serde_json::from_value::<StudySpec>(none).is_err());
}
