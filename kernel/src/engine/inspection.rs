//! Completion and documentation, on a thread of their own: a cell that runs does not keep them waiting. The engine says what is
//! known after each cell.

mod analysed;
mod hover;
mod knowledge;
mod rust;
mod values;

pub(super) use knowledge::Knowledge;

use super::startup::STACK_BYTES;
use crate::execution::Question;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

/// The way to the thread that answers questions.
#[derive(Clone)]
pub(crate) struct Inspector(Sender<Message>);

enum Message {
    Ask(Question),
    Learn(Box<Knowledge>),
}

impl Inspector {
    /// Starts the thread. It ends with the last copy of this.
    pub(crate) fn start() -> Self {
        let (sender, messages) = mpsc::channel();
        let thread = thread::Builder::new().name("inspector".into()).stack_size(STACK_BYTES);
        if let Err(error) = thread.spawn(move || answer_all(&messages)) {
            tracing::error!("there are no completions: {error}");
        }
        Self(sender)
    }

    /// Answers a question as soon as something is known.
    pub(crate) fn ask(&self, question: Question) {
        self.send(Message::Ask(question));
    }

    /// What is known from now on.
    pub(super) fn learn(&self, knowledge: Knowledge) {
        self.send(Message::Learn(Box::new(knowledge)));
    }

    fn send(&self, message: Message) {
        if self.0.send(message).is_err() {
            tracing::debug!("the thread that completes code has ended");
        }
    }
}

fn answer_all(messages: &Receiver<Message>) {
    let (mut known, mut waiting) = (None, Vec::new());
    for message in messages {
        match (message, &known) {
            (Message::Learn(knowledge), _) => {
                waiting.drain(..).for_each(|question| answer(&knowledge, question));
                known = Some(knowledge);
            }
            (Message::Ask(question), Some(knowledge)) => answer(knowledge, question),
            (Message::Ask(question), None) => waiting.push(question),
        }
    }
}

/// A panic of rust-analyzer leaves only this question without an answer.
fn answer(known: &Knowledge, question: Question) {
    let is_heard = panic::catch_unwind(AssertUnwindSafe(|| match question {
        Question::Complete { code, cursor, reply } => reply.send(known.complete(&code, cursor)).is_ok(),
        Question::Inspect { code, cursor, reply } => reply.send(known.inspect(&code, cursor)).is_ok(),
    }));
    if is_heard.is_ok_and(|is_heard| !is_heard) {
        tracing::debug!("nobody waits for the answer");
    }
}
