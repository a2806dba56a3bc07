//! The errors of datasets and of their elements.

use std::any::Any;
use std::error::Error;

/// The reason why a dataset, or an element of it, cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// An argument of a verb is wrong.
    #[error("Dataset::{verb}: {reason}")]
    Argument {
        /// The verb's name.
        verb: &'static str,
        /// The fault and its cure.
        reason: String,
    },
    /// A function that was given to a verb failed.
    #[error("element {index} of {verb}: {source}")]
    Element {
        /// The verb's name.
        verb: &'static str,
        /// The element's index in the verb's input, counted from 0 in each pass.
        index: u64,
        /// The function's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A function that was given to a verb, or an iterator of elements, panicked.
    #[error("element {index} of {verb}: panicked: {message}")]
    Panic {
        /// The verb's name.
        verb: &'static str,
        /// The element's index in the verb's input, counted from 0 in each pass.
        index: u64,
        /// The panic's message.
        message: String,
    },
    /// Elements do not fit into one batch.
    #[error("batch {index}: {source}; elements of one batch need equal shapes and dtypes: see Dataset::padded_batch")]
    Batch {
        /// The batch's index, counted from 0 in each pass.
        index: u64,
        /// candle's error.
        source: candle_core::Error,
    },
    /// candle cannot take a row out of a tensor.
    #[error("row {index}: {source}")]
    Row {
        /// The row's number.
        index: usize,
        /// candle's error.
        source: candle_core::Error,
    },
    /// A file, or a part of it, cannot be read.
    #[error("{reason}")]
    Unread {
        /// The text of the error: the unreadable file or part, and the reason.
        reason: String,
    },
    /// A column of a table does not have the values that are needed.
    #[error("column `{}`: {reason}", column.escape_debug())]
    Column {
        /// The column's name.
        column: String,
        /// The fault and its cure.
        reason: String,
    },
    /// A table does not fit, or a [`Prep`](crate::Prep) cannot be fitted, saved or loaded.
    #[error("{what}: {reason}")]
    Table {
        /// The table, or the file of the `Prep`.
        what: String,
        /// The fault and its cure.
        reason: String,
    },
    /// The process that reads files cannot be started.
    #[error(
        "cannot start `ferrotune reader`, which reads files: {source}; put ferrotune on the PATH, or its path into FERROTUNE_READER"
    )]
    NoReader {
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread cannot be started.
    #[error("cannot start a thread of Dataset::{verb}: {source}")]
    Thread {
        /// The verb's name.
        verb: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Lets `?` convert the error of a batch in a function that returns candle's result.
impl From<DataError> for candle_core::Error {
    fn from(error: DataError) -> candle_core::Error {
        candle_core::Error::wrap(error)
    }
}

impl DataError {
    pub(crate) fn column(column: &str, reason: impl Into<String>) -> DataError {
        DataError::Column { column: column.to_owned(), reason: reason.into() }
    }

    pub(crate) fn table(what: impl Into<String>, reason: impl Into<String>) -> DataError {
        DataError::Table { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn argument(verb: &'static str, reason: impl Into<String>) -> DataError {
        DataError::Argument { verb, reason: reason.into() }
    }

    pub(crate) fn panic(verb: &'static str, index: u64, payload: &(dyn Any + Send)) -> DataError {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        DataError::Panic { verb, index, message: message.unwrap_or_else(|| "without a message".to_owned()) }
    }
}
