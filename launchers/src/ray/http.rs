//! Requests to Ray's dashboard. Each has a time limit; a request that changes nothing is repeated if the connection fails.

use crate::LauncherError;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::http::{Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};

/// The time limit of a request. Ray waits some 10 s for one of its agents to submit a job.
const LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The pauses before a request is repeated.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// The size limit of an answer, in bytes: Ray's logs of a command should be smaller.
const ANSWER_BYTES: u64 = 256 << 20;

/// Ray's dashboard.
#[derive(Debug)]
pub(super) struct Dashboard {
    address: String,
    agent: Agent,
}

/// An answer of the dashboard.
#[derive(Debug)]
pub(super) struct Answer {
    address: String,
    pub(super) status: u16,
    text: String,
}

impl Dashboard {
    pub(super) fn new(address: &str) -> Result<Self, LauncherError> {
        let wrong = || LauncherError::Address { address: address.into() };
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        if !["http", "https"].map(Some).contains(&uri.scheme_str())
            || uri.host().is_none_or(str::is_empty)
            || uri.query().is_some()
        {
            return Err(wrong());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls =
            TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).unversioned_rustls_crypto_provider(provider);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_global(Some(LIMIT))
            .tls_config(tls.build());
        Ok(Self { address: address.trim_end_matches('/').into(), agent: config.build().into() })
    }

    pub(super) fn get(&self, path: &str) -> Result<Answer, LauncherError> {
        let request = || self.agent.get(format!("{}{path}", self.address)).call();
        for pause in PAUSES {
            match self.answer(request()) {
                Err(LauncherError::Connection { source, .. }) => {
                    tracing::debug!(path, "asks Ray again: {source}");
                    std::thread::sleep(pause);
                }
                other => return other,
            }
        }
        self.answer(request())
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Answer, LauncherError> {
        tracing::debug!(path, "sends a request to Ray");
        let request = self.agent.post(format!("{}{path}", self.address)).header("content-type", "application/json");
        self.answer(request.send(body.to_string()))
    }

    fn answer(&self, answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Answer, LauncherError> {
        let read = |mut response: Response<ureq::Body>| {
            let status = response.status().as_u16();
            let text = response.body_mut().with_config().limit(ANSWER_BYTES).lossy_utf8(true).read_to_string()?;
            Ok(Answer { address: self.address.clone(), status, text })
        };
        answer
            .and_then(read)
            .map_err(|source| LauncherError::Connection { address: self.address.clone(), source: Box::new(source) })
    }
}

impl Answer {
    /// The text of a successful answer to a request for `what`.
    pub(super) fn text_of(self, what: &str) -> Result<String, LauncherError> {
        if (200..300).contains(&self.status) {
            return Ok(self.text);
        }
        let reason = super::last_line(&self.text);
        Err(LauncherError::Refused { address: self.address, what: what.into(), status: self.status, reason })
    }
}
