//! The address of a study's database, in the forms of Optuna and libpq. A password in the address is never shown: see
//! [`StorageUrl`]'s `Display`. Connects to nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use url::Url;

/// The reason why an address cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StorageUrlError {
    /// The text is not a URL.
    #[error("the storage is no URL ({reason}); write postgresql://USER@HOST/DATABASE or sqlite:///FILE")]
    NoUrl {
        /// The reason.
        reason: String,
    },
    /// The URL names an unsupported database.
    #[error("a storage {scheme}: is not supported; use postgresql://USER@HOST/DATABASE or sqlite:///FILE")]
    OtherDatabase {
        /// The scheme of the URL.
        scheme: String,
    },
    /// The URL names no file.
    #[error("the storage sqlite: names no file; write sqlite:///FILE, or sqlite:////FILE for a path from the root")]
    NoFile,
    /// The URL has an unknown option.
    #[error(
        "the storage has the option {name}, which is unknown here; known are application_name, connect_timeout, dbname, host, password, port, sslmode, sslrootcert and user"
    )]
    UnknownOption {
        /// The name of the option.
        name: String,
    },
    /// An option has an invalid value.
    #[error("the storage's {name} cannot be {value}; {cure}")]
    Option {
        /// The name of the option.
        name: String,
        /// The invalid value.
        value: String,
        /// The valid values.
        cure: &'static str,
    },
}

/// The encryption of a connection, as in libpq's `sslmode` (<https://www.postgresql.org/docs/current/libpq-ssl.html>).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SslMode {
    Disable,
    /// The connection is encrypted if the server supports it; its certificate is checked only if a certificate file is
    /// given.
    #[default]
    Prefer,
    Require,
    /// The server's certificate must be valid for its host name.
    Verify,
}

/// The address parts of a PostgreSQL server. A missing part comes from libpq's variables.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<String>,
    pub(super) ssl_mode: Option<SslMode>,
    pub(super) root_certificate: Option<PathBuf>,
    pub(super) connect_timeout_s: Option<u64>,
    pub(super) application: Option<String>,
    /// Whether a stranger may have written the address. The stranger's server must not get the user's password.
    pub(super) is_found: bool,
}

/// The database with the tables.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Target {
    Postgres(Server),
    Sqlite(PathBuf),
}

/// The address of a database with Optuna's tables: `postgresql://USER@HOST:PORT/DATABASE`, `sqlite:///FILE`, or Optuna's
/// own forms of them, such as `postgresql+psycopg2://…`.
///
/// ```
/// use ferrotune_journal::StorageUrl;
///
/// let url = StorageUrl::parse("postgresql+psycopg2://ann:secret@db/studies?sslmode=require").unwrap();
/// assert_eq!(url.to_string(), "postgresql://ann@db/studies?sslmode=require");
/// assert!(StorageUrl::parse("mysql://db/studies").is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct StorageUrl {
    /// The address without a password.
    shown: String,
    pub(super) target: Target,
}

impl StorageUrl {
    /// Parses an address. No error message contains its password.
    pub fn parse(text: &str) -> Result<StorageUrl, StorageUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            let reason = "it has no ://".to_owned();
            StorageUrlError::NoUrl { reason }
        })?;
        match scheme.split('+').next().unwrap_or_default() {
            "sqlite" => sqlite(rest),
            "postgresql" | "postgres" => postgres(rest),
            _ => Err(StorageUrlError::OtherDatabase { scheme: scheme.to_owned() }),
        }
    }

    /// Parses an address from a file that a stranger may have written. It gets no password of the user's that is meant for
    /// another host.
    pub(super) fn found(text: &str) -> Result<StorageUrl, StorageUrlError> {
        let mut url = StorageUrl::parse(text)?;
        if let Target::Postgres(server) = &mut url.target {
            server.is_found = true;
            if server.password.is_none() {
                server.password = PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner).get(&url.shown).cloned();
            }
        }
        Ok(url)
    }

    /// The address for another process of this user: with the password that this process has remembered.
    pub(super) fn with_password(&self) -> String {
        let (Target::Postgres(Server { password: Some(password), .. }), Ok(mut url)) =
            (&self.target, Url::parse(&self.shown))
        else {
            return self.shown.clone();
        };
        url.query_pairs_mut().append_pair("password", password);
        url.into()
    }

    /// The password in the address.
    pub fn password(&self) -> Option<&str> {
        match &self.target {
            Target::Postgres(server) => server.password.as_deref(),
            Target::Sqlite(_) => None,
        }
    }

    /// Keeps the address's password in this process's memory, for addresses that name the same database without a password.
    pub fn remember_password(&self) {
        if let Target::Postgres(Server { password: Some(password), .. }) = &self.target {
            PASSWORDS.lock().unwrap_or_else(PoisonError::into_inner).insert(self.shown.clone(), password.clone());
        }
    }
}

/// The remembered passwords, by the address without the password.
static PASSWORDS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

impl fmt::Display for StorageUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.shown)
    }
}

impl fmt::Debug for StorageUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Parses the path of a SQLite file. As in SQLAlchemy, three slashes come before a path from the current folder, and four
/// before a path from the root.
fn sqlite(rest: &str) -> Result<StorageUrl, StorageUrlError> {
    let path = rest.split('?').next().unwrap_or_default().strip_prefix('/').unwrap_or_default();
    if path.is_empty() || path == ":memory:" {
        return Err(StorageUrlError::NoFile);
    }
    let path = std::path::absolute(path).map_err(|error| StorageUrlError::NoUrl { reason: error.to_string() })?;
    Ok(StorageUrl { shown: format!("sqlite:///{}", path.display()), target: Target::Sqlite(path) })
}

fn postgres(rest: &str) -> Result<StorageUrl, StorageUrlError> {
    // The user's text may contain a password, so the error contains only the reason.
    let mut url = Url::parse(&format!("postgresql://{rest}"))
        .map_err(|error| StorageUrlError::NoUrl { reason: error.to_string() })?;
    let decoded = |text: &str| {
        let pairs = format!("x={}", text.replace('+', "%2B"));
        url::form_urlencoded::parse(pairs.as_bytes()).next().map(|(_, text)| text.into_owned()).unwrap_or_default()
    };
    let some = |text: String| Some(text).filter(|text| !text.is_empty());
    let mut server = Server {
        host: url.host_str().map(|host| decoded(host.trim_matches(['[', ']']))).and_then(some),
        port: url.port(),
        user: some(decoded(url.username())),
        password: url.password().map(decoded),
        database: some(decoded(url.path().trim_start_matches('/'))),
        ..Server::default()
    };
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    for (name, value) in &pairs {
        server.set(name, value)?;
    }
    let options: Vec<&(String, String)> = pairs.iter().filter(|(name, _)| name != "password").collect();
    url.set_query(None);
    if !options.is_empty() {
        url.query_pairs_mut().extend_pairs(options);
    }
    // This call fails for an address without a host, which has no password either.
    let removed = url.set_password(None);
    debug_assert!(removed.is_ok() || url.password().is_none());
    Ok(StorageUrl { shown: url.to_string(), target: Target::Postgres(server) })
}

impl Server {
    fn set(&mut self, name: &str, value: &str) -> Result<(), StorageUrlError> {
        let wrong = |cure| StorageUrlError::Option { name: name.to_owned(), value: value.to_owned(), cure };
        let text = || Some(value.to_owned());
        match name {
            "host" => self.host = text(),
            "port" => self.port = Some(value.parse().map_err(|_| wrong("give a number up to 65535"))?),
            "user" => self.user = text(),
            "password" => self.password = text(),
            "dbname" => self.database = text(),
            "sslmode" => self.ssl_mode = Some(SslMode::of(value).ok_or_else(|| wrong(SslMode::KNOWN))?),
            "sslrootcert" => self.root_certificate = Some(value.into()),
            "connect_timeout" => {
                self.connect_timeout_s = Some(value.parse().map_err(|_| wrong("give whole seconds"))?);
            }
            "application_name" => self.application = text(),
            _ => return Err(StorageUrlError::UnknownOption { name: name.to_owned() }),
        }
        Ok(())
    }
}

impl SslMode {
    const KNOWN: &'static str = "give disable, allow, prefer, require, verify-ca or verify-full";

    pub(super) fn of(text: &str) -> Option<SslMode> {
        Some(match text {
            "disable" => SslMode::Disable,
            "allow" | "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" | "verify-full" => SslMode::Verify,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Server {
        match StorageUrl::parse(text).unwrap().target {
            Target::Postgres(server) => server,
            Target::Sqlite(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn an_address_never_shows_its_password() {
        for text in [
            "postgresql://ann:s3cret@db:5433/studies",
            "postgres://ann@db:5433/studies?password=s3cret",
            "postgresql+psycopg2://ann:s3cret@db:5433/studies",
        ] {
            let url = StorageUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), "postgresql://ann@db:5433/studies", "{text}");
            assert_eq!(format!("{url:?}"), url.to_string());
            assert_eq!(server(text).password.as_deref(), Some("s3cret"));
        }
        for text in ["postgresql://ann:s3cret@db:port/x", "postgresql://ann:s3cret@db/x?sslmode=s", "ann:s3cret@db"] {
            let error = StorageUrl::parse(text).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn parts_of_an_address_are_decoded_and_options_count() {
        let found =
            server("postgresql://an%40n:p%2Fw+x@db/st%20x?connect_timeout=3&sslmode=verify-full&sslrootcert=/c.pem");
        assert_eq!(found.user.as_deref(), Some("an@n"));
        assert_eq!(found.password.as_deref(), Some("p/w+x"));
        assert_eq!(found.database.as_deref(), Some("st x"));
        assert_eq!((found.ssl_mode, found.connect_timeout_s), (Some(SslMode::Verify), Some(3)));
        assert_eq!(server("postgresql:///x?host=/run/pg&port=5499").host.as_deref(), Some("/run/pg"));
        assert_eq!(server("postgresql://%2Frun%2Fpg/x").host.as_deref(), Some("/run/pg"));
        assert!(server("postgresql://") == Server::default());
        let unknown = StorageUrl::parse("postgresql://db/x?nonsense=1").unwrap_err();
        assert_eq!(unknown, StorageUrlError::UnknownOption { name: "nonsense".to_owned() });
    }

    #[test]
    fn files_of_sqlite_are_named_as_optuna_names_them() {
        let of = |text| StorageUrl::parse(text).map(|url| url.to_string());
        assert_eq!(of("sqlite:////tmp/x.db").as_deref(), Ok("sqlite:////tmp/x.db"));
        let here = std::env::current_dir().unwrap().join("x.db");
        assert_eq!(of("sqlite:///x.db"), Ok(format!("sqlite:///{}", here.display())));
        assert_eq!(of("sqlite://"), Err(StorageUrlError::NoFile));
        assert_eq!(of("sqlite:///:memory:"), Err(StorageUrlError::NoFile));
        assert!(matches!(of("mysql://db/x"), Err(StorageUrlError::OtherDatabase { .. })));
    }
}
