//! Getting a pack's document: from its own file, from beside it, or from where it is published.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use reqwest::Url;
use vance_rest::attempt::{self, Redirect};
use vance_rest::document::{Document, MAX_BYTES};
use vance_shared::gate::Digest;
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::launch::{Origin, Tls, TrustedLaunch};

use super::local;
use super::send::{Incoming, Limits, Lost, Outgoing, Sender};
use crate::addresses::Addresses;
use crate::files::NOT_AS_ALLOWED;
use crate::handle::HostEnv;

/// A document is published by somebody's web server: it is there soon, or not now.
const FETCH: Duration = Duration::from_secs(30);
/// JSON first, as it is quicker to read.
const ACCEPT: &str = "application/json, application/yaml;q=0.9, text/yaml;q=0.9, */*;q=0.5";

/// A document, and what a person should know about it.
pub(super) struct Read {
    pub(super) document: Document,
    pub(super) warning: Option<String>,
}

/// Why there is none.
pub(super) struct Failed {
    pub(super) why: String,
    /// Another try alone cannot help.
    pub(super) hopeless: bool,
}

impl Failed {
    fn for_good(why: impl Into<String>) -> Self {
        Self { why: why.into(), hopeless: true }
    }
}

/// Gets the document. A launch says what its files have to be.
pub(super) async fn read(plan: &RestPlan, launch: Option<&TrustedLaunch>, host: &HostEnv) -> Result<Read, Failed> {
    match &plan.spec {
        Spec::Inline(value) => {
            let document = local::inline(value).map_err(Failed::for_good)?;
            Ok(Read { document, warning: None })
        }
        Spec::File(file) => {
            let folder = local::folder(plan.origin, host.project_dir.as_deref(), &host.packs_dir);
            let (plan, launch, file) = (plan.clone(), launch.cloned(), file.clone());
            blocking(move || from_file(&plan, launch.as_ref(), &folder, &file)).await
        }
        Spec::Url(url) => fetched(plan, url, host).await,
    }
}

/// Runs what takes milliseconds beside the thread of the actors.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failed> + Send + 'static) -> Result<T, Failed> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Failed::for_good(format!("its document could not be read: {error}"))))
}

fn from_file(plan: &RestPlan, launch: Option<&TrustedLaunch>, folder: &Path, file: &str) -> Result<Read, Failed> {
    let folder = match plan.origin {
        // Consent names real paths.
        Origin::Project => folder.canonicalize().unwrap_or_else(|_| folder.to_owned()),
        Origin::Global | Origin::Server => folder.to_owned(),
    };
    let read = local::read(&folder, file, plan.origin).map_err(Failed::for_good)?;
    if let Some(launch) = launch.filter(|launch| launch.digest().is_some())
        && let Some(other) = read.hashes.iter().find(|hash| !launch.files().contains(hash))
    {
        let path = vance_shared::show::plain(&other.path.to_string_lossy());
        return Err(Failed::for_good(format!("{path} {NOT_AS_ALLOWED}: it changed since; /tools reload asks again")));
    }
    let wanted = plan.spec_sha256.as_deref().zip(read.hashes.first());
    if let Some((wanted, first)) = wanted {
        check_pin(wanted, first.sha256)?;
    }
    let warning = read.missing.first().map(|first| {
        let count = read.missing.len();
        format!("{count} file(s) that its document refers to are not used, and what needs them is left out or stays open; the first: {first}")
    });
    Ok(Read { document: read.document, warning })
}

fn check_pin(wanted: &str, is: Digest) -> Result<(), Failed> {
    let is = is.to_string();
    let is = is.strip_prefix("sha256:").unwrap_or(&is);
    match is.eq_ignore_ascii_case(wanted) {
        true => Ok(()),
        false => Err(Failed::for_good(format!(
            "its document has another hash than `specSha256`: it is {is}; look at what changed, then write that"
        ))),
    }
}

async fn fetched(plan: &RestPlan, address: &str, host: &HostEnv) -> Result<Read, Failed> {
    let url = Url::parse(address).map_err(|error| Failed::for_good(format!("`specUrl`: {error}")))?;
    let copy = copy_of(&host.state_dir, plan, address);
    let pin = plan.spec_sha256.clone();
    let fetched = fetch(plan, url.clone(), host).await;
    blocking(move || {
        let fetched = fetched.map_err(|why| Failed { why, hopeless: false });
        let failed = match fetched.and_then(|body| Ok((usable(&body, &url, pin.as_deref())?, body))) {
            Ok((document, body)) => {
                if let Err(error) = keep(&copy, &body) {
                    tracing::warn!("a copy of the document for times without a network was not kept: {error}");
                }
                return Ok(Read { document, warning: None });
            }
            Err(failed) => failed,
        };
        // A page of a network that wants a login is no document either.
        match kept(&copy).ok().and_then(|body| usable(&body, &url, pin.as_deref()).ok()) {
            Some(document) => {
                let warning = Some(format!("{}; the copy of the last time is used", failed.why));
                Ok(Read { document, warning })
            }
            None => Err(failed),
        }
    })
    .await
}

/// A document that is what the pack pins, and that describes something.
fn usable(body: &[u8], url: &Url, pin: Option<&str>) -> Result<Document, Failed> {
    if let Some(pin) = pin {
        check_pin(pin, Digest::of(body))?;
    }
    let later = |why: String| Failed { why, hopeless: false };
    let document = Document::parse(body, Some(url.clone())).map_err(|error| later(error.to_string()))?;
    let paths = document.root().get("paths").and_then(serde_json::Value::as_object);
    match paths.is_some_and(|paths| paths.values().any(serde_json::Value::is_object)) {
        true => Ok(document),
        false => Err(later("its document has no operations".to_owned())),
    }
}

/// Without credentials, and never to another origin.
async fn fetch(plan: &RestPlan, url: Url, host: &HostEnv) -> Result<Vec<u8>, String> {
    let addresses = match (plan.allow_private_network, plan.origin) {
        (true, Origin::Global | Origin::Server) => Addresses::anywhere(),
        (true | false, _) => Addresses::naming([url.as_str()].into_iter()),
    };
    // Its server's certificates, not ours: the document is public.
    let tls = Tls { client_cert_file: None, client_key_file: None, ..plan.tls.clone() };
    let limits = Limits { connect: plan.connect_timeout, exchange: FETCH, body: MAX_BYTES };
    let sender = Sender::new(&tls, host.project_dir.as_deref(), addresses, limits)?;
    let mut headers = HeaderMap::new();
    headers.insert(http::header::ACCEPT, HeaderValue::from_static(ACCEPT));
    let (mut url, mut hops) = (url, 0);
    loop {
        let out = Outgoing { method: Method::GET, url: url.clone(), headers: headers.clone(), body: None };
        let answer: Incoming = sender.send(out).await.map_err(why)?;
        match attempt::redirect("GET", &url, answer.status, answer.header("location"), hops) {
            Redirect::Follow(to) => {
                url = to;
                hops += 1;
            }
            Redirect::Refused(fault) => return Err(format!("its document is not fetched: {}", fault.message)),
            Redirect::Stop if answer.status == 200 => return Ok(answer.body),
            Redirect::Stop => return Err(format!("its document is not there: HTTP {}", answer.status)),
        }
    }
}

fn why(lost: Lost) -> String {
    match lost {
        Lost::Connect(why) | Lost::Tls(why) | Lost::Broken(why) | Lost::Forbidden(why) => {
            format!("its document cannot be fetched: {why}")
        }
        Lost::Timeout => format!("its document was not fetched within {} s", FETCH.as_secs()),
        Lost::TooLarge(_) => format!("its document has more than {MAX_BYTES} bytes"),
    }
}

fn copy_of(state: &Path, plan: &RestPlan, address: &str) -> PathBuf {
    let hash = Digest::of(address.as_bytes()).to_string();
    let short = hash.strip_prefix("sha256:").and_then(|hex| hex.get(..16)).unwrap_or("document").to_owned();
    state.join("specs").join(format!("{}-{short}", plan.pack))
}

fn keep(copy: &Path, body: &[u8]) -> std::io::Result<()> {
    if kept(copy).is_ok_and(|before| before == body) {
        return Ok(());
    }
    let folder = copy.parent().ok_or(std::io::ErrorKind::NotFound)?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let fresh = copy.with_extension(format!("{}.tmp", std::process::id()));
    let written = (|| {
        let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(body)?;
        file.sync_data()?;
        std::fs::rename(&fresh, copy)
    })();
    if written.is_err() {
        // A half-written one is of no use to anybody.
        drop(std::fs::remove_file(&fresh));
    }
    written
}

fn kept(copy: &Path) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    std::fs::File::open(copy)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut body)?;
    Ok(body)
}
