//! Tests of the server over real ZeroMQ sockets, with an engine that plays a script.

mod client;
mod widgets;

use std::sync::{Mutex, mpsc as work};

use ferrotune_link::{Answer, CommAction, CommAnswer, CommMessage};
use serde_json::json;
use tokio::time::timeout;

use crate::execution::{Completion, Completions, Output, Question, Stream};
use crate::failure::{ErrorName, Failure};
use crate::server::EngineHandle;
use client::{Client, Outputs, PATIENCE, display, engine, play, result, text};

#[tokio::test]
async fn outputs_are_published_in_order_before_reply_and_idle() {
    let mut client = Client::start(|| {
        engine(|_, outputs| {
            let script = [
                text(Stream::Stdout, "a"),
                text(Stream::Stdout, ""),
                text(Stream::Stdout, "b"),
                text(Stream::Stderr, "c"),
                display(1, None, false),
                text(Stream::Stdout, "d"),
                display(2, Some("x"), false),
                Output::Clear { wait: true },
                text(Stream::Stdout, "e"),
                result("5"),
                text(Stream::Stdout, "f"),
                Output::Done(Ok(())),
            ];
            play(&outputs, script);
        })
    })
    .await;
    let cell = client.execute("code").await;
    let stream = |name: &str, text: &str| ("stream".to_owned(), json!({"name": name, "text": text}));
    assert_eq!(
        client.conversation(&cell).await,
        [
            ("execute_input".into(), json!({"code": "code", "execution_count": 1})),
            stream("stdout", "ab"),
            stream("stderr", "c"),
            ("display_data".into(), json!({"data": {"text/plain": "1"}, "metadata": {}, "transient": {}})),
            stream("stdout", "d"),
            (
                "display_data".into(),
                json!({"data": {"text/plain": "2"}, "metadata": {}, "transient": {"display_id": "x"}})
            ),
            ("clear_output".into(), json!({"wait": true})),
            stream("stdout", "e"),
            ("execute_result".into(), json!({"execution_count": 1, "data": {"text/plain": "5"}, "metadata": {}})),
            stream("stdout", "f"),
        ]
    );
    let reply = client.reply().await;
    assert_eq!((reply.msg_type.as_str(), &reply.parent), ("execute_reply", &cell));
    assert_eq!(reply.content, json!({"status": "ok", "execution_count": 1, "payload": [], "user_expressions": {}}));
}

#[tokio::test]
async fn comm_actions_that_publish_nothing_leave_the_text_in_one_piece() {
    let act = |outputs: &Outputs, action: CommAction| {
        let (reply, answer) = tokio::sync::oneshot::channel();
        play(outputs, [text(Stream::Stdout, "x"), Output::Comm { action, reply }]);
        answer.blocking_recv().unwrap()
    };
    let mut client = Client::start(move || {
        engine(move |_, outputs| {
            let message = CommMessage::default();
            let Answer::Comm { learned: CommAnswer::Opened { id } } =
                act(&outputs, CommAction::Open { target: "mine".into(), message })
            else {
                panic!("the comm is not open")
            };
            act(&outputs, CommAction::Accept { target: "other".into() });
            act(&outputs, CommAction::Take { comm: id.clone() });
            act(&outputs, CommAction::State { comm: id });
            play(&outputs, [Output::Done(Ok(()))]);
        })
    })
    .await;
    let cell = client.execute("code").await;
    let published = client.conversation(&cell).await;
    let types: Vec<&str> = published.iter().map(|(msg_type, _)| msg_type.as_str()).collect();
    assert_eq!(types, ["execute_input", "stream", "comm_open", "stream"]);
    assert_eq!((&published[1].1["text"], &published[3].1["text"]), (&json!("x"), &json!("xxx")));
}

#[tokio::test]
async fn text_of_a_cell_that_goes_on_is_published_soon() {
    let (go_on, wait) = work::channel::<()>();
    let mut client = Client::start(move || {
        engine(move |_, outputs| {
            play(&outputs, [text(Stream::Stdout, "now")]);
            wait.recv().unwrap_or_default();
            play(&outputs, [Output::Done(Ok(()))]);
        })
    })
    .await;
    client.execute("code").await;
    let types = [client.published().await, client.published().await, client.published().await].map(|m| m.msg_type);
    assert_eq!(types, ["status", "execute_input", "stream"]);
    go_on.send(()).unwrap();
    assert_eq!(client.reply().await.content["status"], "ok");
}

#[tokio::test]
async fn updates_of_a_display_are_thinned_out_and_the_last_one_is_kept() {
    let mut client = Client::start(|| {
        engine(|_, outputs| {
            play(&outputs, [display(0, Some("x"), false)]);
            play(&outputs, (1..=1000).map(|number| display(number, Some("x"), true)));
            play(&outputs, [text(Stream::Stdout, "text"), Output::Done(Ok(()))]);
        })
    })
    .await;
    let cell = client.execute("code").await;
    let messages = client.conversation(&cell).await;
    let updates: Vec<u32> = messages
        .iter()
        .filter(|(msg_type, _)| msg_type == "update_display_data")
        .map(|(_, content)| {
            assert_eq!(content["transient"], json!({"display_id": "x"}));
            content["data"]["text/plain"].as_str().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!((updates.first(), updates.last()), (Some(&1), Some(&1000)));
    assert!(updates.is_sorted() && updates.len() < 20, "{updates:?}");
}

#[tokio::test]
async fn late_output_belongs_to_the_cell_that_started_it() {
    let kept: Mutex<Option<Outputs>> = Mutex::new(None);
    let mut client = Client::start(|| {
        engine(move |cell, outputs| {
            if cell.code == "first" {
                play(&outputs, [Output::Done(Ok(()))]);
                *kept.lock().unwrap() = Some(outputs);
            } else {
                play(kept.lock().unwrap().as_ref().unwrap(), [text(Stream::Stdout, "late")]);
                drop(kept.lock().unwrap().take());
                play(&outputs, [Output::Done(Ok(()))]);
            }
        })
    })
    .await;
    let first = client.execute("first").await;
    client.conversation(&first).await;
    client.execute("second").await;
    loop {
        let message = client.published().await;
        if message.msg_type == "stream" {
            assert_eq!((message.parent, message.content["text"].clone()), (first, json!("late")));
            return;
        }
    }
}

#[tokio::test]
async fn cell_asks_its_client_for_a_line_and_no_one_else() {
    let ask = |outputs: &Outputs| {
        let (reply, line) = tokio::sync::oneshot::channel();
        play(outputs, [Output::Input { prompt: "name?".into(), password: true, reply }]);
        let answer = line.blocking_recv().unwrap_or_else(|_| "no one".into());
        play(outputs, [text(Stream::Stdout, &answer), Output::Done(Ok(()))]);
    };
    let mut client = Client::start(move || engine(move |_, outputs| ask(&outputs))).await;
    let cell = client.execute("code").await;
    let question = client.question().await;
    assert_eq!((question.msg_type.as_str(), &question.parent), ("input_request", &cell));
    assert_eq!(question.content, json!({"prompt": "name?", "password": true}));
    client.answer_question("Ada").await;
    assert_eq!(client.conversation(&cell).await[1].1["text"], "Ada");
    client.reply().await;

    let cell = client.send("execute_request", json!({"code": "code", "allow_stdin": false})).await;
    assert_eq!(client.conversation(&cell).await[1].1["text"], "no one");
}

#[tokio::test]
async fn failure_aborts_what_is_queued_and_nothing_later() {
    let (go_on, wait) = work::channel::<()>();
    let mut client = Client::start(move || {
        engine(move |cell, outputs| {
            let failure = Failure { name: ErrorName::Panic, text: "v".into(), traceback: vec!["t".into()] };
            if cell.code == "fails" {
                wait.recv().unwrap_or_default();
                play(&outputs, [Output::Done(Err(failure))]);
            } else {
                play(&outputs, [Output::Done(Ok(()))]);
            }
        })
    })
    .await;
    let failing = client.execute("fails").await;
    let queued = client.execute("queued").await;
    go_on.send(()).unwrap();
    let messages = client.conversation(&failing).await;
    let error = json!({"ename": "Panic", "evalue": "v", "traceback": ["t"]});
    assert_eq!(messages[1..], [("error".into(), error)]);
    assert_eq!(client.conversation(&queued).await, []);
    let content = client.reply().await.content;
    assert_eq!((&content["status"], &content["ename"]), (&json!("error"), &json!("Panic")));
    assert_eq!(client.reply().await.content, json!({"status": "aborted"}));
    client.execute("later").await;
    assert_eq!(client.reply().await.content["execution_count"], 2);
}

#[tokio::test]
async fn user_expressions_keep_values_and_drop_all_else() {
    let mut client = Client::start(|| {
        engine(|cell, outputs| match cell.code.as_str() {
            "value" => play(&outputs, [text(Stream::Stdout, "dropped"), result("7"), Output::Done(Ok(()))]),
            _ => play(&outputs, [Output::Done(Ok(()))]),
        })
    })
    .await;
    let expressions = json!({"a": "value", "b": "no value"});
    let cell = client.send("execute_request", json!({"code": "x", "user_expressions": expressions})).await;
    assert_eq!(client.conversation(&cell).await.len(), 1);
    assert_eq!(
        client.reply().await.content["user_expressions"],
        json!({
            "a": {"status": "ok", "data": {"text/plain": "7"}, "metadata": {}},
            "b": {"status": "ok", "data": {"text/plain": "()"}, "metadata": {}},
        })
    );
}

#[tokio::test]
async fn engine_that_is_gone_is_an_error_of_the_cell_and_not_a_wait() {
    let mut client = Client::start(|| engine(|_, outputs| play(&outputs, [text(Stream::Stdout, "last words")]))).await;
    let cell = client.execute("code").await;
    let messages = client.conversation(&cell).await;
    assert_eq!(messages[1].1["text"], "last words");
    assert_eq!(messages[2].1["ename"], "EngineStopped");
    assert_eq!(client.reply().await.content["ename"], "EngineStopped");

    let mut client = Client::start(|| panic!("a start that fails, on purpose")).await;
    client.execute("code").await;
    let evalue = client.reply().await.content["evalue"].to_string();
    assert!(evalue.contains("it did not start"), "{evalue}");
}

#[tokio::test]
async fn cell_that_waits_for_the_engine_can_be_interrupted_and_the_kernel_shut_down() {
    let (go_on, wait) = work::channel::<()>();
    let mut client = Client::start(move || {
        wait.recv().unwrap_or_default();
        engine(|_, _| {})
    })
    .await;
    let cell = client.execute("code").await;
    assert_eq!(client.published().await.content["execution_state"], "busy");
    assert_eq!(client.published().await.msg_type, "execute_input");
    for (msg_type, content) in [("interrupt", json!({})), ("shutdown", json!({"restart": true}))] {
        let answer = client.control(&format!("{msg_type}_request"), content).await;
        assert_eq!((answer.msg_type, &answer.content["status"]), (format!("{msg_type}_reply"), &json!("ok")));
        if msg_type == "interrupt" {
            let reply = client.reply().await;
            assert_eq!((reply.parent, reply.content["ename"].clone()), (cell.clone(), json!("Interrupted")));
        }
    }
    timeout(PATIENCE, client.server).await.unwrap().unwrap().unwrap();
    drop(go_on);
}

#[tokio::test]
async fn questions_are_answered_while_a_cell_runs_and_count_in_code_points() {
    let (go_on, wait) = work::channel::<()>();
    let mut client = Client::start(move || EngineHandle {
        ask: Box::new(|question| match question {
            Question::Complete { code, cursor, reply } => {
                assert_eq!((code.as_str(), cursor), ("\u{1f980}; a\u{e4}b", 9), "the engine counts in bytes");
                let found = Completion { text: "a\u{e4}bc".into(), kind: "instance".into(), signature: "u8".into() };
                reply.send(Completions { start: 6, end: cursor, matches: vec![found] }).unwrap();
            }
            // An engine that has no answer drops the question.
            other => drop(other),
        }),
        ..engine(move |_, outputs| {
            wait.recv().unwrap_or_default();
            play(&outputs, [Output::Done(Ok(()))]);
        })
    })
    .await;
    let cell = client.execute("code").await;
    let at_cursor = json!({"code": "\u{1f980}; a\u{e4}b", "cursor_pos": 5});
    client.send("complete_request", at_cursor.clone()).await;
    let found = client.reply().await;
    let kind = json!({"start": 3, "end": 5, "text": "a\u{e4}bc", "type": "instance", "signature": "u8"});
    let expected = json!({
        "status": "ok", "matches": ["a\u{e4}bc"], "cursor_start": 3, "cursor_end": 5,
        "metadata": {"_jupyter_types_experimental": [kind]},
    });
    assert_eq!((found.msg_type.as_str(), found.content), ("complete_reply", expected));
    client.send("inspect_request", at_cursor).await;
    let nothing = json!({"status": "ok", "found": false, "data": {}, "metadata": {}});
    assert_eq!(client.reply().await.content, nothing);
    go_on.send(()).unwrap();
    assert_eq!(client.reply().await.parent, cell);
}

#[tokio::test]
async fn a_request_that_is_wrong_is_refused_and_the_next_one_is_served() {
    let mut client = Client::start(|| engine(|_, outputs| play(&outputs, [Output::Done(Ok(()))]))).await;
    for (msg_type, content, ename) in [
        ("execute_request", json!({"code": 3}), "InvalidRequest"),
        ("complete_request", json!({}), "InvalidRequest"),
        ("teleport_request", json!({}), "UnknownRequest"),
        ("delete_subshell_request", json!({"subshell_id": "none"}), "UnknownSubshell"),
    ] {
        let request = client.send(msg_type, content).await;
        let reply = client.reply().await;
        assert_eq!(reply.parent, request, "{msg_type}");
        assert_eq!((&reply.content["status"], &reply.content["ename"]), (&json!("error"), &json!(ename)), "{msg_type}");
    }
    client.execute("code").await;
    assert_eq!(client.reply().await.content["status"], "ok");
}
