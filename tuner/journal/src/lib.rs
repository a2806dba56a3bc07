//! The journal of a study, on disk or in a database, and the names in a study's folder.
//!
//! A [`Journal`] stores the facts of a search, and derives the records of its trials from these facts alone. It decides
//! nothing: other crates decide which trial is next and when a trial ends.

pub mod folder;
mod journal;
pub mod study_folder;

pub use journal::{
    Content, DatabaseError, Dead, End, Holder, Journal, JournalError, Look, StorageUrl, StorageUrlError, Study,
    StudyLock, Times, Usage, holder_of, host, is_lock, refuse_links,
};
