//! Tests of the program as Jupyter starts it, over real sockets. No cell runs, so these tests need no prelude; the tests of cells
//! are in `tests/`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod candle;
mod front_end;

use std::fs;

use front_end::{FrontEnd, Transport};
use serde_json::json;

#[tokio::test]
async fn kernel_answers_and_ends_over_tcp() {
    converse(FrontEnd::start(Transport::Tcp).await).await;
}

#[tokio::test]
async fn kernel_answers_and_ends_over_ipc() {
    converse(FrontEnd::start(Transport::Ipc).await).await;
}

async fn converse(mut front_end: FrontEnd) {
    let info = front_end.ask("kernel_info_request", json!({})).await;
    assert_eq!((&info["status"], &info["implementation"]), (&json!("ok"), &json!("ferrotune")));

    front_end.send_signed_by("not the key", "shutdown_request", json!({"restart": false})).await;
    let malformed: [&[&[u8]]; 5] = [
        &[b""],
        &[b"no", b"delimiter"],
        &[b"<IDS|MSG>", b"00", b"{}"],
        &[b"<IDS|MSG>", b"zz", b"{}", b"{}", b"{}", b"{}"],
        &[b"<IDS|MSG>", b"\xff", b"\xff", b"\xff", b"\xff", b"\xff"],
    ];
    for frames in malformed {
        front_end.send_frames(frames).await;
    }
    // Answers come in order, so the next answer shows that no message above got an answer or ended the kernel.
    let code = json!({"code": "fn f() {"});
    assert_eq!(front_end.ask("is_complete_request", code).await, json!({"status": "incomplete", "indent": "    "}));
    assert_eq!(front_end.ask("comm_info_request", json!({})).await, json!({"status": "ok", "comms": {}}));
    let refusal = front_end.ask("execute_request", json!({"code": 3})).await;
    assert_eq!((&refusal["status"], &refusal["ename"]), (&json!("error"), &json!("InvalidRequest")));

    let bye = front_end.ask("shutdown_request", json!({"restart": true})).await;
    assert_eq!(bye, json!({"status": "ok", "restart": true}));
    assert_eq!(front_end.exit_code().await, Some(0));
}

#[test]
fn connection_file_that_is_missing_or_broken_is_one_line_of_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.json");
    for content in [None, Some("{")] {
        if let Some(content) = content {
            fs::write(&path, content).unwrap();
        }
        let output = front_end::program().arg("--connection-file").arg(&path).output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(path.to_str().unwrap()), "{error}");
        assert!(!error.contains("panicked"), "{error}");
    }
}
