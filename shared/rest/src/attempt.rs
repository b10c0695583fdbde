//! What happens after an attempt: once more, elsewhere, or not at all.

use std::time::Duration;

use url::Url;
use vance_shared::call::Fault;
use vance_shared::launch::rest::Retry;
use vance_shared::show::quoted;

use crate::api::is_idempotent;
use crate::error::Code;

/// Redirects of one call.
pub const MAX_REDIRECTS: u32 = 5;
/// The first wait where the server says nothing; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// An answer, with what its `Retry-After` says (see [`retry_after`]).
    Status(u16, Option<Duration>),
    /// No connection: not a byte was sent.
    NotConnected,
    /// No answer in time.
    TimedOut,
    /// The connection broke after something was sent.
    Broken,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Take the answer, or the fault that there was.
    Stop,
    /// Try again after this wait.
    Again(Duration),
    /// The server wants us to wait for longer than we may.
    Refused(Fault),
}

/// Decides after an attempt. `done`: attempts so far, this one included. `harmless`: a repetition changes nothing more although
/// the method does not say so (an idempotency key). `share`: a random number from 0 to 1, so that many clients do not come back at once.
pub fn next(method: &str, harmless: bool, ended: Ended, done: u32, retry: Retry, share: f64) -> Next {
    let repeatable = harmless || is_idempotent(method);
    let said = match ended {
        Ended::Status(_, said) => said,
        Ended::NotConnected | Ended::TimedOut | Ended::Broken => None,
    };
    let worth = match ended {
        Ended::NotConnected => true,
        Ended::Status(429, Some(_)) => true,
        Ended::Status(502..=504, _) | Ended::TimedOut | Ended::Broken => repeatable,
        Ended::Status(..) => false,
    };
    if !worth {
        return Next::Stop;
    }
    if let (Ended::Status(429, _), Some(wait)) = (ended, said)
        && (wait > retry.max_wait || done > retry.max)
    {
        let seconds = wait.as_secs();
        return Next::Refused(
            Code::RateLimited.fault(format!("the server has had enough requests and asks to wait for {seconds} s")),
        );
    }
    if done > retry.max || said.is_some_and(|wait| wait > retry.max_wait) {
        return Next::Stop;
    }
    Next::Again(said.unwrap_or_else(|| backoff(done, share).min(retry.max_wait)))
}

/// Half of the wait is certain, half is chance.
fn backoff(done: u32, share: f64) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << done.saturating_sub(1).min(10));
    full.mul_f64(0.5 + 0.5 * share.clamp(0.0, 1.0))
}

/// `Retry-After`: seconds, or a date (`now` in seconds since 1970).
pub fn retry_after(text: &str, now: u64) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    let at = at.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs();
    Some(Duration::from_secs(at.saturating_sub(now)))
}

/// Where a redirect leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    /// It is none, or none that may be followed: the answer itself is the result.
    Stop,
    /// The same request, there.
    Follow(Url),
    /// It leads where requests must not go.
    Refused(Fault),
}

/// Decides on an answer of 3xx. `hops`: redirects followed so far.
pub fn redirect(method: &str, from: &Url, status: u16, location: Option<&str>, hops: u32) -> Redirect {
    let (301 | 302 | 303 | 307 | 308, Some(location), "GET" | "HEAD") = (status, location, method) else {
        return Redirect::Stop;
    };
    let refused = |why: String| Redirect::Refused(Code::RedirectRefused.fault(why));
    match from.join(location) {
        Ok(to) if to.origin() != from.origin() || !to.username().is_empty() || to.password().is_some() => {
            let shown = quoted(&to.origin().ascii_serialization(), 200);
            refused(format!("the server sends this to {shown}: redirects to another host are not followed"))
        }
        Ok(_) if hops >= MAX_REDIRECTS => refused(format!("more than {MAX_REDIRECTS} redirects")),
        Ok(to) => Redirect::Follow(to),
        Err(error) => refused(format!("the server sends this to an address that is none: {error}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_harmless_is_tried_again() {
        let again = |seconds| Next::Again(Duration::from_secs(seconds));
        let wait = |seconds| Some(Duration::from_secs(seconds));
        let half = Next::Again(Duration::from_millis(500));
        for (method, harmless, ended, done, want) in [
            ("GET", false, Ended::Status(200, None), 1, Next::Stop),
            ("GET", false, Ended::Status(500, None), 1, Next::Stop),
            ("GET", false, Ended::Status(503, None), 1, half.clone()),
            ("GET", false, Ended::Status(503, None), 2, again(1)),
            ("GET", false, Ended::Status(503, None), 3, Next::Stop),
            ("GET", false, Ended::Status(503, wait(3)), 1, again(3)),
            ("GET", false, Ended::Status(503, wait(99)), 1, Next::Stop),
            ("POST", false, Ended::Status(503, None), 1, Next::Stop),
            ("POST", true, Ended::Status(503, None), 1, half.clone()),
            ("PUT", false, Ended::TimedOut, 1, half.clone()),
            ("POST", false, Ended::TimedOut, 1, Next::Stop),
            ("POST", false, Ended::Broken, 1, Next::Stop),
            ("POST", false, Ended::NotConnected, 1, half),
            ("POST", false, Ended::Status(429, wait(2)), 1, again(2)),
            ("GET", false, Ended::Status(429, None), 1, Next::Stop),
        ] {
            assert_eq!(next(method, harmless, ended, done, Retry::default(), 1.0), want, "{method} {ended:?} {done}");
        }
        for (seconds, done) in [(99, 1), (1, 3)] {
            let next = next("GET", false, Ended::Status(429, wait(seconds)), done, Retry::default(), 1.0);
            assert!(matches!(next, Next::Refused(fault) if fault.code == "rate_limited"));
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after(" 7 ", 0), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40), Some(Duration::from_secs(60)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:00:10 GMT", 40), Some(Duration::ZERO));
        assert_eq!(retry_after("soon", 0), None);
    }

    #[test]
    fn redirects_stay_on_their_origin() {
        let from = Url::parse("https://a.example/x/y").unwrap();
        let to = |text: &str| Redirect::Follow(Url::parse(text).unwrap());
        for (method, status, location, hops, want) in [
            ("GET", 302, Some("/z?a=1"), 0, Some(to("https://a.example/z?a=1"))),
            ("HEAD", 308, Some("z"), 4, Some(to("https://a.example/x/z"))),
            ("GET", 302, Some("https://a.example:443/z"), 0, Some(to("https://a.example/z"))),
            ("GET", 302, None, 0, Some(Redirect::Stop)),
            ("GET", 304, Some("/z"), 0, Some(Redirect::Stop)),
            ("POST", 302, Some("/z"), 0, Some(Redirect::Stop)),
            ("GET", 302, Some("/z"), 5, None),
            ("GET", 302, Some("https://b.example/z"), 0, None),
            ("GET", 302, Some("//b.example/z"), 0, None),
            ("GET", 302, Some("http://a.example/z"), 0, None),
            ("GET", 302, Some("https://u:p@a.example/z"), 0, None),
            ("GET", 302, Some("https://["), 0, None),
        ] {
            let got = redirect(method, &from, status, location, hops);
            match want {
                Some(want) => assert_eq!(got, want, "{location:?}"),
                None => assert!(
                    matches!(&got, Redirect::Refused(f) if f.code == "redirect_refused"),
                    "{location:?}: {got:?}"
                ),
            }
        }
    }
}
