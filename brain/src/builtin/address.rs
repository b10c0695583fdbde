//! Which addresses `http_fetch` may reach, and the resolver that gives it no others: what was checked is what is connected to.

use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use vance_shared::address::is_public;

/// An address that is not the open internet's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{host} is a loopback, private, link-local or otherwise reserved address: http_fetch reaches public ones only")]
pub(super) struct Refused {
    pub(super) host: String,
}

/// Checks a host that is written as an address: no resolver is asked for it.
pub(super) fn check_literal(url: &Url) -> Result<(), Refused> {
    // In brackets for version 6; other spellings (127.1, 0x7f.1) were already made plain by the parser.
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(ip) if !is_public(ip) => Err(Refused { host: host.to_owned() }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The system's resolver without the addresses that are refused.
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(public(name.as_str(), found)?)
        })
    }
}

fn public(host: &str, found: Vec<SocketAddr>) -> Result<Addrs, Refused> {
    let allowed: Vec<SocketAddr> = found.into_iter().filter(|address| is_public(address.ip())).collect();
    if allowed.is_empty() {
        return Err(Refused { host: host.to_owned() });
    }
    Ok(Box::new(allowed.into_iter()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_in_any_spelling_is_checked() {
        for (url, want) in [
            ("http://127.0.0.1/", false),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://0x7f000001/", false),
            ("http://0177.0.0.1/", false),
            ("http://[::1]/", false),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://8.8.8.8/", true),
            ("http://127.evil.com/", true), // a name: its resolved addresses are checked
        ] {
            assert_eq!(check_literal(&url.parse().unwrap()).is_ok(), want, "{url}");
        }
    }

    #[test]
    fn a_name_keeps_its_public_addresses_only() {
        let addresses = |list: &[&str]| list.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect::<Vec<_>>();
        let kept: Vec<_> = public("x", addresses(&["127.0.0.1", "8.8.8.8"])).unwrap().collect();
        assert_eq!(kept, addresses(&["8.8.8.8"]));
        assert!(public("x", addresses(&["127.0.0.1", "10.0.0.1"])).is_err());
    }
}
