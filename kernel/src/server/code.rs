//! Requests about code that does not run: `is_complete_request`, `complete_request` and `inspect_request`. A parser answers
//! `is_complete_request`; the engine answers the others while cells run.

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::exchange::Exchange;
use super::kernel::Kernel;
use super::wire::WireError;
use crate::completeness;
use crate::execution::{Completeness, Completion, Completions, Question};

pub(super) async fn is_complete(exchange: &Exchange) -> Result<Value, WireError> {
    #[derive(Deserialize)]
    struct IsCompleteRequest {
        code: String,
    }
    let IsCompleteRequest { code } = exchange.request.fields()?;
    let checked = tokio::task::spawn_blocking(move || completeness::check(&code)).await;
    Ok(match checked {
        Ok(Completeness::Complete) => json!({"status": "complete"}),
        Ok(Completeness::Incomplete { indent }) => json!({"status": "incomplete", "indent": indent}),
        Ok(Completeness::Invalid) => json!({"status": "invalid"}),
        Err(error) => {
            tracing::error!(%error, "the completeness of a cell is not known");
            json!({"status": "unknown"})
        }
    })
}

#[derive(Deserialize)]
struct AtCursor {
    code: String,
    /// The cursor in code points; the end of the code if no position is given.
    #[serde(default)]
    cursor_pos: Option<usize>,
}

impl AtCursor {
    fn cursor_bytes(&self) -> usize {
        self.cursor_pos.map_or(self.code.len(), |points| bytes_of(&self.code, points))
    }
}

pub(super) async fn complete(kernel: &Kernel, exchange: &Exchange) -> Result<Value, WireError> {
    let at: AtCursor = exchange.request.fields()?;
    let cursor = at.cursor_bytes();
    let code = at.code.clone();
    let question = |reply| Question::Complete { code, cursor, reply };
    let found = ask(kernel, question).await.filter(|found| !found.matches.is_empty());
    let found = found.unwrap_or_else(|| Completions::none(cursor));
    let start = points_of(&at.code, found.start);
    let end = points_of(&at.code, found.end);
    let texts: Vec<&str> = found.matches.iter().map(|completion| completion.text.as_str()).collect();
    let types: Vec<Value> = found
        .matches
        .iter()
        .map(|completion| {
            let Completion { text, kind, signature } = completion;
            json!({"start": start, "end": end, "text": text, "type": kind, "signature": signature})
        })
        .collect();
    Ok(json!({
        "status": "ok",
        "matches": texts,
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": types},
    }))
}

pub(super) async fn inspect(kernel: &Kernel, exchange: &Exchange) -> Result<Value, WireError> {
    let at: AtCursor = exchange.request.fields()?;
    let cursor = at.cursor_bytes();
    let data = ask(kernel, |reply| Question::Inspect { code: at.code, cursor, reply }).await.unwrap_or_default();
    Ok(json!({"status": "ok", "found": !data.is_empty(), "data": data, "metadata": {}}))
}

/// The engine's answer; none if there is no engine or no answer.
async fn ask<T>(kernel: &Kernel, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
    let engine = kernel.engine().await?;
    let (reply, answer) = oneshot::channel();
    (engine.ask)(question(reply));
    answer.await.ok()
}

/// The byte offset of an offset in code points, in which Jupyter counts.
fn bytes_of(code: &str, points: usize) -> usize {
    code.char_indices().nth(points).map_or(code.len(), |(at, _)| at)
}

/// The offset in code points of a byte offset; a byte offset within a character counts as the character's start.
fn points_of(code: &str, bytes: usize) -> usize {
    code.char_indices().take_while(|(at, c)| at + c.len_utf8() <= bytes).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_counted_in_code_points() {
        let code = "aü😀b";
        for (points, bytes) in [(0, 0), (1, 1), (2, 3), (3, 7), (4, 8)] {
            assert_eq!(bytes_of(code, points), bytes);
            assert_eq!(points_of(code, bytes), points);
        }
        assert_eq!(bytes_of(code, 99), 8);
        assert_eq!(points_of(code, 99), 4);
        assert_eq!(points_of(code, 2), 1);
    }
}
