//! Asks the user for the lines that a cell reads: `input_request` goes to the client that runs the cell, and its
//! `input_reply` to the cell. Cells run one after the other, so at most one cell waits for a line.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use zeromq::{RouterRecvHalf, RouterSendHalf, RouterSocket, SocketRecv, SocketSend};

use super::wire::{Codec, Parent, Request};

/// A question for one line of input. If `reply` is dropped, the cell learns that there is no answer.
pub(super) struct Question {
    pub(super) identities: Vec<Vec<u8>>,
    pub(super) parent: Parent,
    pub(super) prompt: String,
    pub(super) password: bool,
    pub(super) reply: oneshot::Sender<String>,
}

enum Order {
    Ask(Question),
    Cancel,
}

/// The sender of orders to the task of the stdin socket.
#[derive(Clone)]
pub(super) struct Stdin {
    orders: mpsc::UnboundedSender<Order>,
}

impl Stdin {
    pub(super) fn ask(&self, question: Question) {
        self.order(Order::Ask(question));
    }

    /// Ends the wait for a line; a later answer is dropped.
    pub(super) fn cancel(&self) {
        self.order(Order::Cancel);
    }

    fn order(&self, order: Order) {
        if self.orders.send(order).is_err() {
            tracing::debug!("stdin is closed: the kernel is stopping");
        }
    }
}

pub(super) fn channel(codec: Arc<Codec>) -> (Stdin, Task) {
    let (orders, queue) = mpsc::unbounded_channel();
    (Stdin { orders }, Task { codec, queue, waiting: None })
}

pub(super) struct Task {
    codec: Arc<Codec>,
    queue: mpsc::UnboundedReceiver<Order>,
    waiting: Option<oneshot::Sender<String>>,
}

impl Task {
    /// Serves the stdin socket as long as the kernel runs.
    pub(super) async fn run(mut self, socket: RouterSocket) {
        let (mut questions, mut answers) = socket.split();
        loop {
            tokio::select! {
                order = self.queue.recv() => match order {
                    Some(Order::Ask(question)) => self.ask(&mut questions, question).await,
                    Some(Order::Cancel) => self.waiting = None,
                    None => return,
                },
                answer = receive(&mut answers, &self.codec) => self.answer(&answer),
            }
        }
    }

    async fn ask(&mut self, socket: &mut RouterSendHalf, question: Question) {
        let Question { identities, parent, prompt, password, reply } = question;
        let content = json!({"prompt": prompt, "password": password});
        let message = self.codec.encode(&identities, "input_request", &parent, &json!({}), &content);
        match socket.send(message).await {
            Ok(()) => self.waiting = Some(reply),
            Err(error) => tracing::warn!(%error, "cannot ask for a line: the client does not listen on stdin"),
        }
    }

    fn answer(&mut self, request: &Request) {
        #[derive(Deserialize)]
        struct InputReply {
            value: String,
        }
        if request.msg_type != "input_reply" {
            tracing::warn!(msg_type = request.msg_type, "stdin takes only input_reply");
            return;
        }
        match (self.waiting.take(), request.fields::<InputReply>()) {
            (Some(reply), Ok(InputReply { value })) => {
                if reply.send(value).is_err() {
                    tracing::debug!("the cell no longer waits for its line");
                }
            }
            (None, _) => tracing::debug!("input_reply that no cell waits for"),
            (Some(_), Err(error)) => tracing::warn!(%error, "input_reply skipped; its cell gets no line"),
        }
    }
}

/// The next message that this kernel can read.
async fn receive(socket: &mut RouterRecvHalf, codec: &Codec) -> Request {
    loop {
        match socket.recv().await {
            Ok(message) => match codec.decode(&message.into_vec()) {
                Ok(request) => return request,
                Err(error) => tracing::warn!(%error, "message on stdin skipped"),
            },
            Err(error) => {
                tracing::warn!(%error, "stdin socket gave an error");
                tokio::task::yield_now().await;
            }
        }
    }
}
