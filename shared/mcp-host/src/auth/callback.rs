//! The browser's way back: one page on 127.0.0.1, for one login.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{AuthFault, shown};

/// The path that the browser comes back to.
const PATH: &str = "/callback";
/// A browser's request: a code and a state, and its cookies for this host.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
/// Whoever connects says what it wants within this time.
const REQUEST_WAIT: Duration = Duration::from_secs(5);

/// Connections to the page that may be silent at once: browsers open some before they need them. One more, and the oldest goes.
const MAX_SILENT: usize = 64;

/// Waits for one answer.
pub(super) struct Callback {
    listener: TcpListener,
    port: u16,
}

/// What the authorization server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: String,
    pub(super) issuer: Option<String>,
}

impl Callback {
    /// Listens, on a free port unless the client is registered with one.
    pub(super) async fn open(port: Option<u16>) -> Result<Self, AuthFault> {
        let failed = |error: std::io::Error| match port {
            Some(port) => AuthFault::Pack(format!("its callbackPort {port} cannot be used: {error}")),
            None => AuthFault::Server(format!("no port on 127.0.0.1: {error}")),
        };
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, port })
    }

    /// The address to come back to.
    pub(super) fn uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// The first answer that carries our state, and the page that waits to hear how it ends. Others, wherever they come from, change
    /// nothing. Waits for ever.
    pub(super) async fn answer(self, state: &str) -> Result<(Answer, Page), AuthFault> {
        let (mut visits, mut order) = (JoinSet::new(), VecDeque::new());
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((browser, _)) => {
                        order.retain(|visit: &tokio::task::AbortHandle| !visit.is_finished());
                        if order.len() >= MAX_SILENT && let Some(oldest) = order.pop_front() {
                            oldest.abort();
                        }
                        order.push_back(visits.spawn(visit(browser, self.port, state.to_owned())));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a connection to the login's page failed");
                        tokio::time::sleep(REQUEST_WAIT).await;
                    }
                },
                Some(visited) = visits.join_next() => match visited {
                    Ok(Some((Ok(answer), page))) => return Ok((answer, page)),
                    Ok(Some((Err(fault), page))) => {
                        page.say("200 OK", "The login was refused. You can close this page.").await;
                        return Err(fault);
                    }
                    // Nothing for us, or pushed out.
                    Ok(None) | Err(_) => {}
                },
            }
        }
    }
}

/// One connection: what it says to our state, if it does.
async fn visit(mut browser: TcpStream, port: u16, state: String) -> Option<(Result<Answer, AuthFault>, Page)> {
    let target = tokio::time::timeout(REQUEST_WAIT, target(&mut browser, port)).await.ok()??;
    let page = Page(browser);
    let (status, words) = match judge(&target, &state) {
        Verdict::Answered(answer) => return Some((answer, page)),
        Verdict::NotOurs => ("400 Bad Request", "This is not the answer to a login that is under way."),
        Verdict::Elsewhere => ("404 Not Found", "There is nothing here."),
    };
    page.say(status, words).await;
    None
}

/// A browser that waits for its page.
pub(super) struct Page(TcpStream);

impl Page {
    /// How the login ended.
    pub(super) async fn ended(self, well: bool) {
        let words = match well {
            true => "You are logged in. You can close this page.",
            false => "The login did not work; the terminal says why. You can close this page.",
        };
        self.say("200 OK", words).await;
    }

    async fn say(mut self, status: &str, words: &str) {
        let page = format!("<!doctype html><meta charset=utf-8><title>Vancetope</title><p>{words}\n");
        let response = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n{page}",
            page.len()
        );
        match tokio::time::timeout(REQUEST_WAIT, self.0.write_all(response.as_bytes())).await {
            Ok(Ok(())) => drop(self.0.shutdown().await),
            Ok(Err(_)) | Err(_) => tracing::debug!("the browser did not wait for the login's page"),
        }
    }
}

/// The target of a GET to this very host; none for anything else.
async fn target(browser: &mut TcpStream, port: u16) -> Option<String> {
    let mut request = Vec::new();
    let end = loop {
        if let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if request.len() > MAX_REQUEST_BYTES || browser.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    };
    let head = std::str::from_utf8(request.get(..end)?).ok()?;
    let mut lines = head.split("\r\n");
    let target = lines.next()?.strip_prefix("GET ")?.split(' ').next()?.to_owned();
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim().to_ascii_lowercase())
    })?;
    // A page elsewhere that resolves its own name to 127.0.0.1 is not our browser's.
    [format!("127.0.0.1:{port}"), format!("localhost:{port}")].contains(&host).then_some(target)
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Answered(Result<Answer, AuthFault>),
    NotOurs,
    Elsewhere,
}

/// What a request to our page means. Pure.
fn judge(target: &str, state: &str) -> Verdict {
    let Ok(url) = reqwest::Url::parse("http://127.0.0.1").and_then(|base| base.join(target)) else {
        return Verdict::Elsewhere;
    };
    if url.path() != PATH {
        return Verdict::Elsewhere;
    }
    let get = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    if get("state").as_deref() != Some(state) {
        return Verdict::NotOurs;
    }
    match (get("error"), get("code")) {
        (Some(error), _) => {
            let words = get("error_description").map_or(error.clone(), |why| format!("{why} ({error})"));
            Verdict::Answered(Err(AuthFault::Refused(shown(&words))))
        }
        (None, Some(code)) => Verdict::Answered(Ok(Answer { code, issuer: get("iss") })),
        (None, None) => Verdict::NotOurs,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_answer_with_our_state_counts() {
        let answered = |code: &str, issuer: Option<&str>| {
            Verdict::Answered(Ok(Answer { code: code.into(), issuer: issuer.map(str::to_owned) }))
        };
        for (target, want) in [
            ("/callback?code=a%20b&state=s", answered("a b", None)),
            ("/callback?state=s&iss=https%3A%2F%2Fi&code=c", answered("c", Some("https://i"))),
            ("/callback?code=c&state=other", Verdict::NotOurs),
            ("/callback?code=c", Verdict::NotOurs),
            ("/callback?state=s", Verdict::NotOurs),
            ("/callback?error=access_denied&state=other", Verdict::NotOurs),
            ("/favicon.ico", Verdict::Elsewhere),
            ("http://[", Verdict::Elsewhere),
            (
                "/callback?error=access_denied&error_description=no%0Athanks&state=s",
                Verdict::Answered(Err(AuthFault::Refused("no\\nthanks (access_denied)".into()))),
            ),
        ] {
            assert_eq!(judge(target, "s"), want, "{target}");
        }
    }

    #[tokio::test]
    async fn a_stranger_cannot_end_a_login() {
        let callback = Callback::open(None).await.unwrap();
        let (uri, port) = (callback.uri(), callback.port);
        let answer = tokio::spawn(async move { callback.answer("s").await });
        let ask = async |text: String| {
            let mut browser = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            browser.write_all(text.as_bytes()).await.unwrap();
            let mut page = String::new();
            browser.read_to_string(&mut page).await.unwrap();
            page
        };
        assert_eq!(ask("nonsense\r\n\r\n".into()).await, "");
        let forged = format!("GET /callback?code=c&state=s HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n");
        assert_eq!(ask(forged).await, "");
        let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n");
        assert!(ask(get("/callback?code=c&state=x")).await.starts_with("HTTP/1.1 400"));
        // Nor hold it up: these say nothing, and are more than may.
        let mut silent = Vec::new();
        for _ in 0..MAX_SILENT + 6 {
            silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
        let ours = get(&format!("{}?code=c&state=s", uri.rsplit_once(&port.to_string()).unwrap().1));
        let (page, said) = tokio::join!(ask(ours), async {
            let (said, page) = answer.await.unwrap().unwrap();
            page.ended(false).await;
            said
        });
        assert_eq!(said.code, "c");
        assert!(page.contains("did not work") && !page.contains("logged in"), "the page waits for the end: {page}");
    }
}
