//! The errors of objects, in one line with their cure.

use super::place::Place;
use anyhow::{Error, anyhow};

/// The access to an object that failed.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Read,
    Write,
}

impl Access {
    fn word(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Write => "write",
        }
    }
}

/// The reason why an object cannot be read or written, or a store cannot be listed.
pub(super) fn reason(place: &Place, access: Access, error: &object_store::Error) -> Error {
    use object_store::Error::{NotFound, PermissionDenied, Precondition, Unauthenticated};
    let (name, said, verb) = (&place.name, said(error), access.word());
    match error {
        NotFound { .. } if said.contains("NoSuchBucket") => anyhow!("cannot {verb} {name}: there is no such bucket"),
        NotFound { .. } => absent(place),
        Precondition { .. } => changed(place),
        PermissionDenied { .. } | Unauthenticated { .. } => {
            anyhow!("cannot {verb} {name}: access is denied; {} ({said})", credentials(name, verb))
        }
        _ => anyhow!("cannot {verb} {name}: {said}"),
    }
}

pub(super) fn absent(place: &Place) -> Error {
    anyhow!("there is no {}", place.name)
}

pub(super) fn changed(place: &Place) -> Error {
    anyhow!("{} has changed while it was read; make the dataset again", place.name)
}

/// The source of a store's credentials, as advice in a message.
fn credentials(name: &str, verb: &str) -> String {
    let them = match name.split_once("://").map_or("", |(scheme, _)| scheme) {
        "s3" | "s3a" => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, of",
        "gs" => "GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login` as",
        "http" | "https" => return "give an address that is signed, or public".to_owned(),
        _ => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY of",
    };
    format!("give {them} somebody who may {verb} it")
}

/// An error and its causes in one line, with only the message of a server's XML, and without the queries
/// of addresses, which may contain a signature.
fn said(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    if let Some(begin) = text.find('<') {
        let within = |tag: &str| {
            let (_, rest) = text.split_once(&format!("<{tag}>"))?;
            rest.split_once("</").map(|(inner, _)| inner.to_owned())
        };
        let said = [within("Code"), within("Message")].into_iter().flatten().collect::<Vec<_>>().join(": ");
        text = format!("{} {said}", text[..begin].trim_end());
    }
    let without_query = |word: &'_ str| match word.split_once('?') {
        Some((address, _)) if address.contains("://") => format!("{address}?…"),
        _ => word.to_owned(),
    };
    text.split_whitespace().map(without_query).collect::<Vec<_>>().join(" ").trim_end_matches([':', ' ']).to_owned()
}
