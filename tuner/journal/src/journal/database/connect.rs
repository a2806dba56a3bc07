//! Opens connections: to PostgreSQL, with libpq's variables, password file and encryption, and to SQLite.

use super::connection::{Connection, Server};
use super::error::DatabaseError;
use super::url::{Server as Address, SslMode, StorageUrl, Target};
use super::waiting::Waiting;
use rusqlite::OpenFlags;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt as _;
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode as Encryption;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The time for which SQLite waits for another program that writes.
const BUSY: Duration = Duration::from_secs(60);
/// The longest attempt to reach a server (`CONNECT`), and the longest time without an answer (`SILENCE`).
const CONNECT: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(20);
/// A setting for each session: a supervisor that is cut off during a transaction holds the study's lock no longer than
/// this.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '30s'";

const PORT: u16 = 5432;
/// The folder in which Debian's server has its socket.
const SOCKETS: &str = "/var/run/postgresql";

/// The action for a SQLite file that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    Make,
    Refuse,
}

/// Opens a connection to the database.
pub(super) fn connect(url: &StorageUrl, absent: Absent, waiting: &Waiting) -> Result<Connection, DatabaseError> {
    match &url.target {
        Target::Sqlite(path) => {
            let flags = match absent {
                Absent::Make => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
                Absent::Refuse => OpenFlags::SQLITE_OPEN_READ_WRITE,
            };
            let connection = rusqlite::Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(BUSY)?;
            Ok(Connection::Sqlite(connection))
        }
        Target::Postgres(server) => {
            let (config, mode) = config(server);
            let server = Server::connect(&config, encryption(server, mode)?, SESSION, waiting)?;
            Ok(Connection::Postgres(Box::new(server)))
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The connection settings of the address, or else of the variables that libpq reads
/// (<https://www.postgresql.org/docs/current/libpq-envars.html>).
fn config(server: &Address) -> (Config, SslMode) {
    let port = server.port.or_else(|| variable("PGPORT")?.parse().ok()).unwrap_or(PORT);
    let host = server.host.clone().or_else(|| variable("PGHOST")).unwrap_or_else(|| {
        let socket = Path::new(SOCKETS).join(format!(".s.PGSQL.{port}"));
        if socket.exists() { SOCKETS.to_owned() } else { "localhost".to_owned() }
    });
    let user = server.user.clone().or_else(|| variable("PGUSER")).or_else(|| variable("USER"));
    let user = user.unwrap_or_else(|| "postgres".to_owned());
    let database = server.database.clone().or_else(|| variable("PGDATABASE")).unwrap_or_else(|| user.clone());
    let mode = server.ssl_mode.or_else(|| SslMode::of(&variable("PGSSLMODE")?)).unwrap_or_default();
    let mut config = Config::new();
    config.host(&host).port(port).user(&user).dbname(&database);
    config.application_name(server.application.as_deref().unwrap_or("ferrotune"));
    config.connect_timeout(server.connect_timeout_s.map_or(CONNECT, Duration::from_secs));
    config.keepalives_idle(SILENCE / 2).keepalives_interval(SILENCE / 4).tcp_user_timeout(SILENCE);
    config.ssl_mode(match mode {
        SslMode::Disable => Encryption::Disable,
        SslMode::Prefer => Encryption::Prefer,
        SslMode::Require | SslMode::Verify => Encryption::Require,
    });
    // The password variable is meant for one host, which it does not name.
    let is_meant = !server.is_found || server.host.is_none() || variable("PGHOST") == server.host;
    let password = server.password.clone().or_else(|| variable("PGPASSWORD").filter(|_| is_meant));
    if let Some(password) = password.or_else(|| password_in_file(&host, port, &database, &user)) {
        config.password(password);
    }
    (config, mode)
}

/// The password in `~/.pgpass` (<https://www.postgresql.org/docs/current/libpq-pgpass.html>).
fn password_in_file(host: &str, port: u16, database: &str, user: &str) -> Option<String> {
    let home = || Some(PathBuf::from(variable("HOME")?).join(".pgpass"));
    let path = variable("PGPASSFILE").map(PathBuf::from).or_else(home)?;
    let mode = fs::metadata(&path).ok()?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others can read this file of passwords, so it is not used; run chmod 600");
        return None;
    }
    // The password file names a Unix socket as localhost.
    let host = if host.starts_with('/') { "localhost" } else { host };
    password_in(&fs::read_to_string(path).ok()?, &[host, &port.to_string(), database, user])
}

fn password_in(text: &str, wanted: &[&str; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let fields = fields(line);
        let (password, rest) = fields.split_last()?;
        let is_it = rest.len() == wanted.len()
            && rest.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
        is_it.then(|| password.clone())
    })
}

/// The five fields of a line, which colons separate; a backslash escapes the next character.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let last = fields.len() - 1;
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields[last].extend(characters.next()),
            other => fields[last].push(other),
        }
    }
    fields
}

fn encryption(server: &Address, mode: SslMode) -> Result<MakeRustlsConnect, DatabaseError> {
    let failed = |reason: String| DatabaseError::Encryption { reason };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?;
    let file = server.root_certificate.clone().or_else(|| variable("PGSSLROOTCERT").map(PathBuf::from));
    let config = match (file.filter(|file| file.as_os_str() != "system"), mode) {
        (Some(file), _) => builder.with_root_certificates(roots(&file).map_err(failed)?).with_no_client_auth(),
        (None, SslMode::Verify) => {
            builder.with_platform_verifier().map_err(|error| failed(error.to_string()))?.with_no_client_auth()
        }
        // As in libpq, the connection is encrypted, but the server is not authenticated.
        (None, SslMode::Disable | SslMode::Prefer | SslMode::Require) => {
            let unchecked = Arc::new(Unchecked(provider));
            builder.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth()
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| in_file(&error))? {
        let certificate = certificate.map_err(|error| in_file(&error))?;
        roots.add(certificate).map_err(|error| in_file(&error))?;
    }
    Ok(roots)
}

/// A verifier that accepts any certificate, but no signature that does not match the certificate.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::password_in;

    #[test]
    fn passwords_come_from_the_first_line_that_fits() {
        let file = "# mine\ndb:5432:studies:ann:first\n*:*:*:ann:a\\:b\\\\c:d\n*:*:*:*:last\n";
        let of = |host, user| password_in(file, &[host, "5432", "studies", user]);
        assert_eq!(of("db", "ann").as_deref(), Some("first"));
        assert_eq!(of("other", "ann").as_deref(), Some("a:b\\c:d"));
        assert_eq!(of("other", "bob").as_deref(), Some("last"));
        assert_eq!(password_in("db:5432:studies:ann:x", &["db", "5432", "others", "ann"]), None);
    }
}
