//! Completion and documentation, on a thread of their own: a running cell does not delay them. After each cell the engine sends this
//! thread its knowledge of the notebook.

mod analysed;
mod callee;
mod crates;
mod hover;
mod knowledge;
mod rust;
mod values;

pub(super) use knowledge::Knowledge;

use super::handlers::current_studies::CurrentStudies;
use super::handlers::read_only;
use crate::execution::Question;
use serde_json::Map;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use tokio::sync::oneshot;

/// The stack size of threads that run rust-analyzer, which recurses over the user's code.
pub(super) const STACK_BYTES: usize = 64 << 20;

/// The sender to the thread that answers questions.
#[derive(Clone)]
pub(crate) struct Inspector(Sender<Message>);

enum Message {
    Ask(Question),
    Prepare,
    Learn(Box<Knowledge>),
    CurrentStudies(CurrentStudies),
}

impl Inspector {
    /// Starts the thread. The thread ends when the last copy of its `Inspector` is dropped.
    pub(crate) fn start() -> Self {
        let (sender, messages) = mpsc::channel();
        let thread = thread::Builder::new().name("inspector".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || answer_all(&messages)) {
            tracing::error!("there are no completions: {error}");
        }
        Self(sender)
    }

    /// Answers a question as soon as the thread has enough knowledge of the notebook.
    pub(crate) fn ask(&self, question: Question) {
        self.send(Message::Ask(question));
    }

    /// Makes rust-analyzer read its sources before there is a question. If this fails, the next question tries it again.
    pub(super) fn prepare(&self) {
        self.send(Message::Prepare);
    }

    /// Replaces the thread's knowledge of the notebook.
    pub(super) fn learn(&self, knowledge: Knowledge) {
        self.send(Message::Learn(Box::new(knowledge)));
    }

    /// Replaces the thread's current studies, which magics without a study's name use.
    pub(super) fn set_current_studies(&self, current_studies: CurrentStudies) {
        self.send(Message::CurrentStudies(current_studies));
    }

    fn send(&self, message: Message) {
        if self.0.send(message).is_err() {
            tracing::debug!("the thread that completes code has ended");
        }
    }
}

fn answer_all(messages: &Receiver<Message>) {
    let (mut known, mut waiting) = (None::<Box<Knowledge>>, Vec::new());
    for message in messages {
        match message {
            Message::Learn(knowledge) => known = Some(knowledge),
            Message::CurrentStudies(current_studies) => {
                if let Some(known) = &mut known {
                    known.current_studies = current_studies;
                }
            }
            Message::Ask(question) => waiting.push(question),
            Message::Prepare => {
                if let Some(known) = &known {
                    prepare(known);
                }
            }
        }
        if let Some(known) = &known {
            waiting.drain(..).for_each(|question| answer(known, question));
        }
    }
}

fn prepare(known: &Knowledge) {
    match panic::catch_unwind(AssertUnwindSafe(|| known.prepare())) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("rust-analyzer is not ready: {error:#}"),
        Err(_) => tracing::warn!("rust-analyzer is not ready: it panicked"),
    }
}

/// Answers a question. A panic of rust-analyzer leaves only this question without an answer.
fn answer(known: &Knowledge, question: Question) {
    let answered = panic::catch_unwind(AssertUnwindSafe(|| match question {
        Question::Complete { code, cursor, reply } => say(reply, known.complete(&code, cursor)),
        Question::Inspect { code, cursor, reply } => {
            let documentation = known.inspect(&code, cursor).unwrap_or_else(|error| {
                tracing::debug!("nothing to inspect: {error}");
                Map::new()
            });
            say(reply, documentation);
        }
        Question::Look { code, outputs } => read_only::run(&code, &known.current_studies, &outputs),
    }));
    if answered.is_err() {
        tracing::debug!("a question has no answer: rust-analyzer panicked");
    }
}

fn say<T>(reply: oneshot::Sender<T>, answer: T) {
    if reply.send(answer).is_err() {
        tracing::debug!("nobody waits for the answer");
    }
}

/// Whether a character may be in a name of Rust.
fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
