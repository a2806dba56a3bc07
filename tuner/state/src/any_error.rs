//! The error of the user's functions, such as an objective: any error, with the place of the first `?` that returned it.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::panic::Location;

/// The result of the user's functions: of an objective and of everything that it calls, and of the functions of a dataset's verbs. `?`
/// converts errors of candle, of Ferrotune and all others, and keeps the place.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Any error, as the library's own functions return it. The caller's `?` adds the place.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// Any error, or a text, with the place at which it entered a function whose result is a [`Result`].
///
/// `?` and `into()` convert errors of candle, of Ferrotune and of all others, and texts. `{}` shows the error;
/// `{:#}` and `{:?}` also show its place. It dereferences to the error itself, for `source()` and `downcast_ref()`.
///
/// ```
/// # use ferrotune_state::Result;
/// fn rows(text: &str) -> Result<usize> {
///     let rows: usize = text.trim().parse()?;
///     if rows == 0 { Err("there are no rows")? }
///     Ok(rows)
/// }
/// let error = rows("many").unwrap_err();
/// assert_eq!(error.to_string(), "invalid digit found in string");
/// assert!(error.downcast_ref::<std::num::ParseIntError>().is_some() && error.place().line() > 0);
/// assert_eq!(rows("0").unwrap_err().to_string(), "there are no rows");
/// ```
pub struct Error {
    source: BoxError,
    place: &'static Location<'static>,
}

impl Error {
    /// The place at which the error first became this type: the file, line and column of a `?` or an `into()`.
    pub fn place(&self) -> &'static Location<'static> {
        self.place
    }

    /// The error without its place.
    pub fn into_source(self) -> BoxError {
        self.source
    }
}

/// Adds the place of the caller to the error of a result. For functions of the library.
#[doc(hidden)]
#[track_caller]
pub fn located<T, E: Into<BoxError>>(result: Result<T, E>) -> Result<T, Error> {
    match result {
        Ok(value) => Ok(value),
        Err(error) => Err(Error::from(error)),
    }
}

// `?` needs this conversion for texts. It would conflict with an implementation of the standard library's `Error` for this type.
impl<E: Into<BoxError>> From<E> for Error {
    #[track_caller]
    fn from(source: E) -> Error {
        Error { source: source.into(), place: Location::caller() }
    }
}

impl From<Error> for Box<dyn StdError> {
    fn from(error: Error) -> Box<dyn StdError> {
        error.source
    }
}

impl Deref for Error {
    type Target = dyn StdError + Send + Sync;

    fn deref(&self) -> &Self::Target {
        &*self.source
    }
}

impl AsRef<dyn StdError + Send + Sync> for Error {
    fn as_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, formatter)?;
        if formatter.alternate() { write!(formatter, "{PLACE}{}", self.place) } else { Ok(()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{PLACE}{}", self.source, self.place)
    }
}

/// The text before the place of an error.
const PLACE: &str = "\n    at ";

/// The place in the `{:#}` text of an error whose type has this name; `None` where it is another type than [`Error`].
#[doc(hidden)]
pub fn place_in(type_name: &str, shown: &str) -> Option<String> {
    let is_ours = type_name == std::any::type_name::<Error>();
    shown.rsplit_once(PLACE).filter(|_| is_ours).map(|(_, place)| place.to_owned())
}
