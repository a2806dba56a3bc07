//! One request and its answer: `busy`, the reply, and `idle`. This module knows no request types.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use zeromq::{RouterSendHalf, SocketSend, ZmqMessage};

use super::wire::{Codec, Parent, Request};
use crate::failure::ErrorName;

/// The sender of messages to the task of the IOPub socket.
#[derive(Clone)]
pub(super) struct Iopub {
    pub(super) codec: Arc<Codec>,
    pub(super) sender: mpsc::UnboundedSender<ZmqMessage>,
}

impl Iopub {
    pub(super) fn publish(&self, parent: &Parent, msg_type: &str, content: Value) {
        self.publish_with(parent, msg_type, &json!({}), content, &[]);
    }

    /// Publishes a message with metadata, and with binary frames behind the content.
    pub(super) fn publish_with(
        &self,
        parent: &Parent,
        msg_type: &str,
        metadata: &Value,
        content: Value,
        buffers: &[Vec<u8>],
    ) {
        let topic = [msg_type.as_bytes().to_vec()];
        let mut message = self.codec.encode(&topic, msg_type, parent, metadata, &content);
        buffers.iter().for_each(|buffer| message.push_back(buffer.clone().into()));
        if self.sender.send(message).is_err() {
            tracing::debug!(msg_type, "not published: the kernel is stopping");
        }
    }
}

/// A request and the socket to answer it on.
pub(super) struct Received {
    pub(super) request: Request,
    pub(super) socket: RouterSendHalf,
    /// When the request arrived.
    pub(super) at: Instant,
}

/// A request that is being answered. Dropping it publishes `idle`, on every path.
pub(super) struct Exchange {
    pub(super) iopub: Iopub,
    pub(super) request: Request,
    /// When the request arrived.
    pub(super) at: Instant,
    socket: RouterSendHalf,
}

impl Exchange {
    /// Begins to answer a request, and publishes `busy`.
    pub(super) fn begin(iopub: Iopub, Received { request, socket, at }: Received) -> Self {
        let exchange = Self { iopub, request, at, socket };
        exchange.publish("status", json!({"execution_state": "busy"}));
        exchange
    }

    pub(super) fn publish(&self, msg_type: &str, content: Value) {
        self.iopub.publish(&self.request.parent, msg_type, content);
    }

    pub(super) async fn reply(&mut self, content: Value) {
        self.reply_with_metadata(json!({}), content).await;
    }

    pub(super) async fn reply_with_metadata(&mut self, metadata: Value, content: Value) {
        let stem = self.request.msg_type.strip_suffix("_request").unwrap_or(&self.request.msg_type);
        let msg_type = format!("{stem}_reply");
        let Request { identities, parent, .. } = &self.request;
        let message = self.iopub.codec.encode(identities, &msg_type, parent, &metadata, &content);
        if let Err(error) = self.socket.send(message).await {
            tracing::debug!(msg_type, %error, "reply not sent: its client has gone");
        }
    }

    /// Replies that the request could not be served.
    pub(super) async fn refuse(&mut self, name: ErrorName, text: &str) {
        tracing::warn!(msg_type = self.request.msg_type, %name, text, "request refused");
        self.reply(json!({"status": "error", "ename": name, "evalue": text, "traceback": []})).await;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.publish("status", json!({"execution_state": "idle"}));
    }
}
