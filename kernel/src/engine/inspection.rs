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
        }
        if let Some(knowledge) = &known {
            waiting = waiting.into_iter().filter_map(|question| answer(knowledge, question)).collect();
        }
    }
}

/// Answers a question, or returns a question that has to wait. A panic of rust-analyzer leaves only this question without an answer.
fn answer(known: &Knowledge, question: Question) -> Option<Question> {
    let answered = panic::catch_unwind(AssertUnwindSafe(|| match question {
        Question::Complete { code, cursor, reply } => match known.complete(&code, cursor) {
            Some(completions) => say(reply, completions),
            None => Some(Question::Complete { code, cursor, reply }),
        },
        Question::Inspect { code, cursor, reply } => match known.inspect(&code, cursor) {
            Some(documentation) => say(reply, documentation),
            None => Some(Question::Inspect { code, cursor, reply }),
        },
        Question::Look { code, outputs } => {
            read_only::run(&code, &known.current_studies, &outputs);
            None
        }
    }));
    answered.unwrap_or_default()
}

fn say<T>(reply: oneshot::Sender<T>, answer: T) -> Option<Question> {
    if reply.send(answer).is_err() {
        tracing::debug!("nobody waits for the answer");
    }
    None
}

/// Whether a character may be in a name of Rust.
fn is_of_name(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}
