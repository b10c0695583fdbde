//! Whose page may make a browser speak to us: checks of `Host` and `Origin`, before anything else of a request is looked at.
//!
//! A page of another site that resolves its own name to 127.0.0.1 (DNS rebinding) sends its name as `Host`; a page that
//! posts across origins sends its own as `Origin`. Programs send no `Origin`. Addresses are compared as parsed addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that is looked at: a DNS name of 253 bytes, scheme and port.
const MAX_HEADER_BYTES: usize = 300;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No `Host`, or not one of ours.
    #[error("the host {0} is not allowed: add it to allowed_hosts in brain.yaml")]
    Host(String),
    /// A page that is not ours.
    #[error("the origin {0} is not allowed")]
    Origin(String),
}

/// The hosts that we answer to.
#[derive(Debug, Clone)]
pub struct Guardrails {
    /// The port that we listen on.
    port: u16,
    /// The address that we listen on, if it is one and not all of them.
    address: Option<IpAddr>,
    allowed: Vec<Authority>,
    /// The port that is left out of `Host`.
    usual_port: u16,
}

/// A host with the port that was named with it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Name(String),
    Address(IpAddr),
}

impl Guardrails {
    /// For a listener, with the extra hosts of the configuration (`name` allows any port, `name:port` that one). The second
    /// value lists the entries that are no hosts.
    pub fn new(listen: SocketAddr, allowed_hosts: &[String]) -> (Self, Vec<String>) {
        let mut allowed = Vec::new();
        let mut bad = Vec::new();
        for entry in allowed_hosts {
            match authority(entry) {
                Some(authority) => allowed.push(authority),
                None => bad.push(entry.clone()),
            }
        }
        let address = Some(unmapped(listen.ip())).filter(|ip| !ip.is_unspecified());
        (Self { port: listen.port(), address, allowed, usual_port: 80 }, bad)
    }

    /// The same for a door with TLS, whose own port is 443.
    pub fn encrypted(self) -> Self {
        Self { usual_port: 443, ..self }
    }

    /// Checks a request by its `Host` and `Origin` headers. A header that comes twice is the caller's to refuse.
    pub fn check(&self, host: Option<&str>, origin: Option<&str>) -> Result<(), Refused> {
        let shown = |text: &str| vance_shared::show::quoted(text, 80);
        let given = host.unwrap_or_default();
        // Any port of ours: behind a tunnel (`ssh -L`) it is another than the one we listen on, and rebinding betrays itself by the
        // name. The protocol's own port is left out of the header.
        if !authority(given)
            .is_some_and(|authority| self.is_ours(&authority.host) || self.is_listed(&authority, self.usual_port))
        {
            return Err(Refused::Host(shown(given)));
        }
        match origin {
            Some(origin) if !self.allows_origin(origin) => Err(Refused::Origin(shown(origin))),
            Some(_) | None => Ok(()),
        }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        // Also refuses `null`: sandboxed frames and files.
        let Some((scheme, rest)) = origin.split_once("://") else { return false };
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "http" => 80,
            "https" => 443,
            _ => return false,
        };
        // A page of another local server is another page: here the port counts.
        authority(rest).is_some_and(|authority| {
            let same_port = authority.port.unwrap_or(default_port) == self.port;
            (self.is_ours(&authority.host) && same_port) || self.is_listed(&authority, default_port)
        })
    }

    fn is_ours(&self, host: &Host) -> bool {
        match host {
            Host::Name(name) => name == "localhost",
            Host::Address(ip) => ip.is_loopback() || self.address == Some(*ip),
        }
    }

    fn is_listed(&self, given: &Authority, default_port: u16) -> bool {
        let port = given.port.unwrap_or(default_port);
        self.allowed.iter().any(|entry| entry.host == given.host && entry.port.is_none_or(|wanted| wanted == port))
    }
}

/// Parses `host`, `host:port`, `[v6]`, `[v6]:port`. Anything beside that (userinfo, path, blanks, a number that only looks
/// like an address) is none.
fn authority(text: &str) -> Option<Authority> {
    if text.len() > MAX_HEADER_BYTES {
        return None;
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, rest) = rest.split_once(']')?;
            let address = inside.parse::<Ipv6Addr>().ok()?;
            let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) };
            (Host::Address(unmapped(IpAddr::V6(address))), port)
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (name_or_v4(host)?, port)
        }
    };
    let port = match port {
        Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Some(digits.parse().ok()?),
        Some(_) => return None,
        None => None,
    };
    Some(Authority { host, port })
}

fn name_or_v4(text: &str) -> Option<Host> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(Host::Address(address.into()));
    }
    // One trailing dot says "absolute" and is the same name.
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A last label of digits only, or in hexadecimal, is an address in an odd spelling (127.1, 0x7f000001).
    let last = name.rsplit('.').next().unwrap_or_default();
    let number = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    (name.split('.').all(label) && !number).then_some(Host::Name(name))
}

fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn rails(listen: &str, allowed: &[&str]) -> Guardrails {
        let allowed: Vec<String> = allowed.iter().map(|host| (*host).to_owned()).collect();
        let (rails, bad) = Guardrails::new(listen.parse().unwrap(), &allowed);
        assert_eq!(bad, Vec::<String>::new());
        rails
    }

    #[test]
    fn a_host_is_ours_by_its_address_whatever_the_port() {
        let rails = rails("127.0.0.1:9990", &[]);
        for (host, ok) in [
            ("127.0.0.1:9990", true),
            ("127.0.0.2:9990", true),
            ("localhost:9990", true),
            ("LocalHost:9990", true),
            ("localhost.:9990", true),
            ("[::1]:9990", true),
            ("[0:0:0:0:0:0:0:1]:9990", true),
            ("[::ffff:127.0.0.1]:9990", true),
            ("127.0.0.1", true),
            ("127.0.0.1:80", true),
            ("127.0.0.1:9991", true),
            ("127.0.0.1:", false),
            ("127.0.0.1:+9990", false),
            ("127.0.0.1:09990x", false),
            ("127.0.0.1:999900", false),
            ("127.evil.com:9990", false),
            ("127.0.0.1.evil.com:9990", false),
            ("127.0.0.1.:9990", false),
            ("localhost..:9990", false),
            ("localhost.evil.com:9990", false),
            ("evil.localhost:9990", false),
            ("127.1:9990", false),
            ("2130706433:9990", false),
            ("0x7f000001:9990", false),
            ("0177.0.0.1:9990", false),
            ("0.0.0.0:9990", false),
            ("[::]:9990", false),
            ("::1:9990", false),
            ("[::1:9990", false),
            ("[::1]9990", false),
            ("[::1%lo]:9990", false),
            ("user@localhost:9990", false),
            ("localhost:9990@evil.com", false),
            ("user:pass@localhost:9990", false),
            ("localhost:9990/", false),
            (" localhost:9990", false),
            ("localhost :9990", false),
            ("evil.com", false),
            ("192.168.1.5:9990", false),
            ("", false),
        ] {
            assert_eq!(rails.check(Some(host), None).is_ok(), ok, "{host:?}");
        }
        assert!(rails.check(None, None).is_err());
        assert!(rails.check(Some(&"a".repeat(1000)), None).is_err());
    }

    #[test]
    fn a_configured_host_is_allowed_with_its_port_or_any() {
        let rails = rails("0.0.0.0:9990", &["Brain.Example.com", "10.0.0.5:9990", "[fd00::5]"]);
        for (host, ok) in [
            ("brain.example.com", true),
            ("BRAIN.example.com.:443", true),
            ("brain.example.com:9990", true),
            ("10.0.0.5:9990", true),
            ("10.0.0.5", false),
            ("[fd00::5]:1", true),
            ("localhost:9990", true),
            ("xbrain.example.com", false),
            ("brain.example.com.evil.com", false),
            ("0.0.0.0:9990", false),
        ] {
            assert_eq!(rails.check(Some(host), None).is_ok(), ok, "{host:?}");
        }
        let (_, bad) =
            Guardrails::new("127.0.0.1:1".parse().unwrap(), &["https://x.com".into(), "ok.com".into(), "*".into()]);
        assert_eq!(bad, ["https://x.com", "*"]);
    }

    #[test]
    fn the_address_that_we_listen_on_is_ours_and_port_80_goes_unsaid() {
        let at_home = rails("192.168.1.5:80", &[]);
        for (host, ok) in [("192.168.1.5", true), ("192.168.1.5:80", true), ("localhost", true), ("192.168.1.6", false)]
        {
            assert_eq!(at_home.check(Some(host), None).is_ok(), ok, "{host:?}");
        }
    }

    #[test]
    fn an_origin_is_absent_or_ours() {
        let rails = rails("127.0.0.1:9990", &["brain.example.com"]);
        for (origin, ok) in [
            ("http://127.0.0.1:9990", true),
            ("http://localhost:9990", true),
            ("HTTP://LOCALHOST:9990", true),
            ("http://[::1]:9990", true),
            ("https://brain.example.com", true),
            ("http://localhost:3000", false),
            ("http://localhost", false),
            ("null", false),
            ("", false),
            ("https://evil.com", false),
            ("http://127.evil.com:9990", false),
            ("http://localhost:9990.evil.com", false),
            ("http://localhost:9990@evil.com", false),
            ("http://brain.example.com@evil.com", false),
            ("http://localhost:9990/", false),
            ("file://localhost:9990", false),
            ("chrome-extension://abcdef", false),
            ("localhost:9990", false),
        ] {
            assert_eq!(rails.check(Some("localhost:9990"), Some(origin)).is_ok(), ok, "{origin:?}");
        }
        let both = rails.check(Some("evil.com"), Some("http://localhost:9990"));
        assert_eq!(both, Err(Refused::Host("'evil.com'".into())));
    }

    #[test]
    fn the_port_that_is_left_out_is_the_protocols_own() {
        let rails = rails("0.0.0.0:443", &["brain.example.com:443"]);
        assert!(rails.check(Some("brain.example.com"), None).is_err(), "80 is meant");
        assert!(rails.encrypted().check(Some("brain.example.com"), None).is_ok());
    }
}
