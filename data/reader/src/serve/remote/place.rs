//! The place of an object: its store, opened with credentials as its cloud defines them, and its key there.

use super::runtime;
use anyhow::{Context as _, Result, bail};
use configparser::ini::Ini;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, resolve_bucket_region};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as Key;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;
use url::{Position, Url};

/// The place of an object, or the prefix of the names of several objects.
#[derive(Clone)]
pub(super) struct Place {
    /// The address that the user gave.
    pub(super) address: String,
    /// The name in messages: the address without the query of a web address, which may be a secret.
    pub(super) name: String,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) key: Key,
}

/// The open stores, which keep their connections, by the part of an address before the key.
static STORES: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>> = Mutex::new(BTreeMap::new());

impl Place {
    pub(super) fn of(address: &str) -> Result<Place> {
        let Some((scheme, rest)) = address.split_once("://") else { bail!("`{address}` is no address") };
        if matches!(scheme, "http" | "https") {
            return Place::of_web(address);
        }
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            bail!("`{address}` names no bucket; write {scheme}://BUCKET/FILE");
        }
        let key = Key::parse(key).with_context(|| format!("`{address}` is no address of an object"))?;
        let root = format!("{scheme}://{bucket}");
        let store = store(&root, || match scheme {
            "s3" | "s3a" => s3(bucket),
            "gs" => google(bucket),
            _ => azure(&root),
        })?;
        Ok(Place { address: address.to_owned(), name: address.to_owned(), store, key })
    }

    fn of_web(address: &str) -> Result<Place> {
        let mut url = Url::parse(address).with_context(|| format!("`{address}` is no address"))?;
        url.set_fragment(None);
        let name = url[..Position::AfterPath].to_owned();
        let key = Key::from_url_path(url.path()).with_context(|| format!("`{name}` is no address of a file"))?;
        // The query is a part of each request.
        url.set_path("");
        let options = options(url.scheme() == "http");
        let build =
            || HttpBuilder::new().with_url(url.as_str()).with_client_options(options).with_retry(retry()).build();
        let store = store(url.as_str(), || Ok(Arc::new(build()?)))?;
        Ok(Place { address: address.to_owned(), name, store, key })
    }

    /// The address of the object of the same store with this key.
    pub(super) fn sibling(&self, key: &Key) -> String {
        let root: Vec<&str> = self.address.splitn(4, '/').take(3).collect();
        format!("{}/{key}", root.join("/"))
    }
}

fn store(root: &str, open: impl FnOnce() -> Result<Arc<dyn ObjectStore>>) -> Result<Arc<dyn ObjectStore>> {
    static PROVIDER: Once = Once::new();
    // The call fails only if a provider is already installed.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(store) = stores.get(root) {
        return Ok(Arc::clone(store));
    }
    let store = open()?;
    stores.insert(root.to_owned(), Arc::clone(&store));
    Ok(store)
}

/// The options of connections. A slow connection is not an error as long as bytes arrive.
fn options(allow_http: bool) -> ClientOptions {
    let seconds = Duration::from_secs;
    let options = ClientOptions::new().with_timeout_disabled().with_read_timeout(seconds(30));
    options.with_connect_timeout(seconds(10)).with_allow_http(allow_http)
}

/// The repetition of failed requests, for about half a minute.
fn retry() -> RetryConfig {
    RetryConfig { max_retries: 8, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() }
}

fn is_set(variables: &[&str]) -> bool {
    variables.iter().any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

/// Whether this machine is rented from the cloud with this name, and so has its own credentials.
fn is_machine_of(cloud: &str) -> bool {
    ["sys_vendor", "bios_vendor", "bios_version"].iter().any(|file| {
        let text = fs::read_to_string(PathBuf::from("/sys/class/dmi/id").join(file));
        text.is_ok_and(|text| text.to_lowercase().contains(cloud))
    })
}

/// A bucket of S3, with the variables and files of the AWS command line. Without any of them, requests are not signed, as for public data.
///
/// Source: <https://docs.aws.amazon.com/sdkref/latest/guide/creds-config-files.html>.
fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry());
    let is_in_environment = is_set(&[
        "AWS_ACCESS_KEY_ID",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ]);
    let profile = profile()?;
    let own = |name: &str| profile.get(name).cloned().flatten().filter(|value| !value.is_empty());
    let mut is_signed = is_in_environment || is_machine_of("amazon");
    if !is_in_environment {
        if let (Some(id), Some(secret)) = (own("aws_access_key_id"), own("aws_secret_access_key")) {
            builder = builder.with_access_key_id(id).with_secret_access_key(secret);
            if let Some(token) = own("aws_session_token") {
                builder = builder.with_token(token);
            }
            is_signed = true;
        } else if ["credential_process", "role_arn", "sso_session", "sso_start_url"]
            .iter()
            .any(|key| own(key).is_some())
        {
            bail!(
                "the credentials of the AWS profile are made by a program; run `eval \"$(aws configure \
                 export-credentials --format env)\"` before the notebook starts"
            );
        }
    }
    if !is_signed {
        builder = builder.with_skip_signature(true);
    }
    let given = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    if given(&builder, AmazonS3ConfigKey::S3Endpoint).or_else(|| given(&builder, AmazonS3ConfigKey::Endpoint)).is_none()
        && let Some(endpoint) = own("endpoint_url")
    {
        builder = builder.with_endpoint(endpoint);
    }
    let endpoint =
        given(&builder, AmazonS3ConfigKey::S3Endpoint).or_else(|| given(&builder, AmazonS3ConfigKey::Endpoint));
    let options = options(endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")));
    if !is_set(&["AWS_REGION", "AWS_DEFAULT_REGION"]) {
        builder = match (own("region"), endpoint) {
            (Some(region), _) => builder.with_region(region),
            (None, Some(_)) => builder,
            (None, None) => builder.with_region(
                runtime()?
                    .block_on(resolve_bucket_region(bucket, &options))
                    .with_context(|| format!("cannot find the region of s3://{bucket}; name it in AWS_REGION"))?,
            ),
        };
    }
    Ok(Arc::new(builder.with_client_options(options).build()?))
}

/// The settings of the chosen profile in the files of the AWS command line.
fn profile() -> Result<BTreeMap<String, Option<String>>> {
    let chosen = env::var("AWS_PROFILE").or_else(|_| env::var("AWS_DEFAULT_PROFILE")).ok();
    let name = chosen.as_deref().unwrap_or("default");
    let file = |variable, usual| {
        let given = env::var_os(variable).map(PathBuf::from);
        given.or_else(|| env::home_dir().map(|home| home.join(".aws").join(usual)))
    };
    let files = [
        (
            file("AWS_CONFIG_FILE", "config"),
            if name == "default" { name.to_owned() } else { format!("profile {name}") },
        ),
        (file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), name.to_owned()),
    ];
    let mut found = None;
    for (file, section) in files {
        let Some(file) = file.filter(|file| file.exists()) else { continue };
        let mut ini = Ini::new_cs();
        ini.set_comment_symbols(&['#', ';']);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let sections = ini.read(text).map_err(|reason| anyhow::anyhow!("{}: {reason}", file.display()))?;
        if let Some(entries) = sections.get(&section) {
            let found = found.get_or_insert_with(BTreeMap::new);
            found.extend(entries.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    match (found, chosen) {
        (None, Some(chosen)) => bail!("AWS_PROFILE is `{chosen}`, and ~/.aws has no such profile; unset it or add one"),
        (found, _) => Ok(found.unwrap_or_default()),
    }
}

/// A bucket of Google, opened with the sources of Google's libraries:
/// <https://cloud.google.com/docs/authentication/application-default-credentials>.
fn google(bucket: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry());
    let emulator = env::var("STORAGE_EMULATOR_HOST").ok().filter(|host| !host.is_empty());
    if let Some(host) = &emulator {
        let host = if host.contains("://") { host.clone() } else { format!("http://{host}") };
        builder = builder.with_base_url(&host).with_skip_signature(true);
    } else if !is_set(&[
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_SERVICE_ACCOUNT",
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        "GOOGLE_SERVICE_ACCOUNT_PATH",
    ]) {
        let folder = env::var_os("CLOUDSDK_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| env::home_dir().map(|home| home.join(".config/gcloud")));
        let file = folder.map(|folder| folder.join("application_default_credentials.json"));
        if let Some(file) = file.filter(|file| file.exists()) {
            builder = builder.with_application_credentials(file.to_string_lossy());
        } else if !is_machine_of("google") {
            builder = builder.with_skip_signature(true);
        }
    }
    Ok(Arc::new(builder.with_client_options(options(emulator.is_some())).build()?))
}

/// A container of Azure, with the variables of Azure's command line and libraries.
fn azure(root: &str) -> Result<Arc<dyn ObjectStore>> {
    if !root.contains('@') && !is_set(&["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_USE_EMULATOR"]) {
        bail!("{root} does not say whose container it is; name the account in AZURE_STORAGE_ACCOUNT_NAME");
    }
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(root).with_retry(retry());
    if !is_set(&[
        "AZURE_CLIENT_ID",
        "AZURE_FEDERATED_TOKEN_FILE",
        "AZURE_STORAGE_ACCESS_KEY",
        "AZURE_STORAGE_ACCOUNT_KEY",
        "AZURE_STORAGE_SAS_KEY",
        "AZURE_STORAGE_SAS_TOKEN",
        "AZURE_STORAGE_TOKEN",
        "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_USE_AZURE_CLI",
        "IDENTITY_ENDPOINT",
        "MSI_ENDPOINT",
    ]) {
        builder = builder.with_skip_signature(true);
    }
    let is_local = is_set(&["AZURE_STORAGE_USE_EMULATOR"])
        || env::var("AZURE_STORAGE_ENDPOINT").is_ok_and(|endpoint| endpoint.starts_with("http://"));
    Ok(Arc::new(builder.with_client_options(options(is_local)).build()?))
}
