//! Tests of when the widgets of cells are closed. The engine's cells open widgets and report which widgets variables hold, as
//! the cell process does.

use std::sync::{Arc, Mutex};

use ferrotune_display::Bundle;
use ferrotune_display::comm::HOLDER;
use ferrotune_display::widget::model;
use ferrotune_link::{Answer, CommAction, CommAnswer, CommMessage};
use serde_json::{Value, json};

use super::client::{Client, Outputs, engine, play};
use crate::execution::{LiveDisplay, Output};

/// A client of an engine whose cells consist of words: `open` makes a widget and holds it, `drop` holds only the last of the
/// widgets, `none` holds none, `all` holds all, `read` reads the state of the first widget, and `lasting` shows a display of
/// three stages.
async fn start() -> (Client, Arc<Mutex<Vec<[String; 2]>>>) {
    let made: Arc<Mutex<Vec<[String; 2]>>> = Arc::default();
    let all = made.clone();
    let client = Client::start(move || {
        engine(move |cell, outputs| {
            let mut made = made.lock().unwrap();
            for word in cell.code.split(' ') {
                match word {
                    "open" => made.push(open_widget(&outputs)),
                    "drop" => hold(&outputs, &made[made.len() - 1..]),
                    "none" => hold(&outputs, &[]),
                    "all" => hold(&outputs, &made),
                    "read" => {
                        let Answer::Comm { learned: CommAnswer::State { values } } =
                            act(&outputs, CommAction::State { comm: made[0][1].clone() })
                        else {
                            panic!("the widget has no state")
                        };
                        assert_eq!(values["value"], 1);
                    }
                    "lasting" => {
                        let shown = |number| {
                            Bundle::text(format!("{number} trials")).with("text/html", format!("<b>{number}</b>"))
                        };
                        let mut display = LiveDisplay::lasting("search".to_owned());
                        play(&outputs, [display.show(shown(0)), display.show(shown(1)), display.end(shown(2))]);
                    }
                    word => panic!("unknown word {word}"),
                }
            }
            play(&outputs, [Output::Done(Ok(()))]);
        })
    })
    .await;
    (client, all)
}

fn act(outputs: &Outputs, action: CommAction) -> Answer {
    let (reply, answer) = tokio::sync::oneshot::channel();
    play(outputs, [Output::Comm { action, reply }]);
    answer.blocking_recv().unwrap()
}

/// The ids of the layout and of the control of a new widget.
fn open_widget(outputs: &Outputs) -> [String; 2] {
    let open = |state: Value| {
        let message = CommMessage { data: json!({"state": state}), ..CommMessage::default() };
        let action = CommAction::Open { target: model::TARGET.into(), message };
        let Answer::Comm { learned: CommAnswer::Opened { id } } = act(outputs, action) else {
            panic!("the comm is not open")
        };
        id
    };
    let layout = open(json!({}));
    let control = open(json!({"value": 1, "layout": format!("IPY_MODEL_{layout}")}));
    [layout, control]
}

fn hold(outputs: &Outputs, widgets: &[[String; 2]]) {
    let message = CommMessage { data: json!({"held": widgets.concat()}), ..CommMessage::default() };
    assert_eq!(act(outputs, CommAction::Send { comm: HOLDER.into(), message }), Answer::Done);
}

/// Runs a cell; returns the comms that it has opened and closed.
async fn run(client: &mut Client, metadata: Value, code: &str) -> Vec<(String, String)> {
    let cell = client.send_with_metadata("execute_request", metadata, json!({"code": code})).await;
    let published = client.conversation(&cell).await;
    assert_eq!(client.reply().await.content["status"], "ok");
    let comms = published.into_iter().filter(|(msg_type, _)| msg_type.starts_with("comm_"));
    comms.map(|(msg_type, content)| (msg_type, content["comm_id"].as_str().unwrap().to_owned())).collect()
}

/// The ids of the comms that a front end finds.
async fn listed(client: &mut Client) -> Vec<String> {
    let request = client.send("comm_info_request", json!({})).await;
    client.conversation(&request).await;
    client.reply().await.content["comms"].as_object().unwrap().keys().cloned().collect()
}

fn sorted(ids: &[[String; 2]]) -> Vec<String> {
    let mut ids = ids.concat();
    ids.sort();
    ids
}

fn each(msg_type: &str, ids: &[&String]) -> Vec<(String, String)> {
    ids.iter().map(|id| (msg_type.to_owned(), (*id).clone())).collect()
}

#[tokio::test]
async fn ten_runs_of_a_cell_leave_the_widgets_of_the_last_one() {
    let (mut client, made) = start().await;
    for metadata in [json!({"cellId": "a"}), json!({})] {
        for _ in 0..10 {
            // The variable holds the widget of the last run until this run has made another widget.
            run(&mut client, metadata.clone(), "open drop").await;
        }
    }
    let made = made.lock().unwrap().clone();
    // To the kernel, a cell with an id and one without are two cells.
    assert_eq!(listed(&mut client).await, sorted(&[made[9].clone(), made[19].clone()]));
}

#[tokio::test]
async fn widget_without_a_variable_stays_until_its_cell_runs_again() {
    let (mut client, made) = start().await;
    run(&mut client, json!({"cellId": "a"}), "open none").await;
    run(&mut client, json!({"cellId": "b"}), "open none").await;
    let [first, second] = made.lock().unwrap().clone().try_into().unwrap();
    assert_eq!(listed(&mut client).await, sorted(&[first.clone(), second.clone()]), "the user sees both");
    let closed = run(&mut client, json!({"cellId": "a"}), "none").await;
    assert_eq!(closed, each("comm_close", &[&first[1], &first[0]]), "a control is closed before its layout");
    assert_eq!(listed(&mut client).await, sorted(std::slice::from_ref(&second)));
    let closed = run(&mut client, json!({"cellId": "c", "deletedCells": ["b"]}), "none").await;
    assert_eq!(closed, each("comm_close", &[&second[1], &second[0]]));
    assert_eq!(listed(&mut client).await, Vec::<String>::new());
}

#[tokio::test]
async fn widget_that_a_variable_holds_outlives_the_next_run_of_its_cell() {
    let (mut client, made) = start().await;
    let cell = json!({"cellId": "a"});
    run(&mut client, cell.clone(), "open all").await;
    assert_eq!(run(&mut client, cell, "all").await, []);
    let [layout, control] = made.lock().unwrap()[0].clone();
    assert_eq!(run(&mut client, json!({"cellId": "b"}), "read").await, []);
    let closed = run(&mut client, json!({"cellId": "b"}), "none").await;
    assert_eq!(closed, each("comm_close", &[&control, &layout]), "it is closed as soon as the variable is dropped");
}

#[tokio::test]
async fn widget_is_opened_again_when_undo_brings_its_variable_back() {
    let (mut client, made) = start().await;
    let cell = json!({"cellId": "a"});
    run(&mut client, cell.clone(), "open drop").await;
    run(&mut client, cell.clone(), "open drop").await;
    let [layout, control] = made.lock().unwrap()[0].clone();
    let opened = each("comm_open", &[&layout, &control]);
    assert_eq!(run(&mut client, json!({"cellId": "b"}), "read").await, opened);
    run(&mut client, json!({"cellId": "b"}), "drop").await;
    assert!(!listed(&mut client).await.contains(&control));
    assert_eq!(run(&mut client, json!({"cellId": "b"}), "all").await, opened);
    let made = made.lock().unwrap().clone();
    assert_eq!(listed(&mut client).await, sorted(&made));
}

/// The messages that a cell with a lasting display publishes: their types, and what they show.
async fn lasting(client: &mut Client, metadata: Value) -> Vec<(String, Value)> {
    let cell = client.send_with_metadata("execute_request", metadata, json!({"code": "lasting"})).await;
    let published = client.conversation(&cell).await;
    assert_eq!(client.reply().await.content["status"], "ok");
    let shown = |(msg_type, content): (String, Value)| match msg_type.as_str() {
        "comm_open" => (msg_type, content["data"]["state"]["_model_name"].clone()),
        "comm_msg" => (msg_type, content["data"]["state"]["value"].clone()),
        "display_data" | "update_display_data" => {
            let kinds: Vec<&String> = content["data"].as_object().unwrap().keys().collect();
            (msg_type, json!([content["data"]["text/plain"], kinds.len()]))
        }
        _ => (msg_type, content["comm_id"].clone()),
    };
    let others = ["status", "execute_input"];
    published.into_iter().filter(|(msg_type, _)| !others.contains(&msg_type.as_str())).map(shown).collect()
}

#[tokio::test]
async fn lasting_display_is_a_widget_where_a_front_end_has_asked_for_widgets() {
    let (mut client, _) = start().await;
    let entry = |msg_type: &str, shown: Value| (msg_type.to_owned(), shown);
    let plain = [
        entry("display_data", json!(["0 trials", 2])),
        entry("update_display_data", json!(["1 trials", 2])),
        entry("update_display_data", json!(["2 trials", 2])),
    ];
    assert_eq!(lasting(&mut client, json!({"cellId": "a"})).await, plain);
    let asked = client.send("comm_info_request", json!({"target_name": model::TARGET})).await;
    client.conversation(&asked).await;
    client.reply().await;
    let html = |number: u32| json!(format!("<div style=\"line-height: normal\"><b>{number}</b></div>"));
    let widget = [
        entry("comm_open", json!("LayoutModel")),
        entry("comm_open", json!("HTMLStyleModel")),
        entry("comm_open", json!("HTMLModel")),
        entry("display_data", json!(["0 trials", 3])),
        entry("comm_msg", html(1)),
        entry("comm_msg", html(2)),
        entry("update_display_data", json!(["2 trials", 2])),
    ];
    assert_eq!(lasting(&mut client, json!({"cellId": "a"})).await, widget);
    assert_eq!(listed(&mut client).await.len(), 3, "a page that was loaded anew goes on showing it");
    let again = lasting(&mut client, json!({"cellId": "a"})).await;
    assert_eq!(again.iter().filter(|(msg_type, _)| msg_type == "comm_close").count(), 3);
    assert_eq!(listed(&mut client).await.len(), 3);
}
