//! The journal of a study, on disk or in a database, and the names in a study's folder.
//!
//! A [`Journal`] keeps the facts of a search, and from these alone the records of its trials. It decides nothing: what is tried
//! next and when a trial ends is for others to say.

pub mod folder;
mod journal;
pub mod study_folder;

pub use journal::{
    Content, DatabaseError, Dead, End, Holder, Journal, JournalError, Look, StorageUrl, StorageUrlError, Study,
    StudyLock, Times, Usage, holder_of, host, is_lock, refuse_links,
};
