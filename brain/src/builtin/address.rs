//! Which addresses `http_fetch` may reach, and the resolver that gives it no others: what was checked is what is connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

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

/// True for addresses of the open internet.
pub(super) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let reserved = match ip.octets() {
        [0 | 10 | 127, ..] => true,
        [100, 64..=127, ..] => true, // carrier-grade NAT, and Alibaba's metadata service
        [169, 254, ..] => true,      // link-local, and most metadata services
        [172, 16..=31, ..] => true,
        [192, 0, 0 | 2, _] => true,
        [192, 88, 99, _] => true,
        [192, 168, ..] => true,
        [198, 18 | 19, ..] => true,
        [198, 51, 100, _] => true,
        [203, 0, 113, _] => true,
        [168, 63, 129, 16] => true, // Azure's host service
        [224..=255, ..] => true,
        _ => false,
    };
    !reserved
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    if let Some(v4) = ip.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    match ip.segments() {
        // Addresses that carry one of version 4 count as that one.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Teredo and other special uses; documentation.
        [0x2001, 0..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => false,
        // All that is given out so far.
        [first, ..] => (0x2000..=0x3fff).contains(&first),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_open_internet_is_public() {
        for (address, want) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("172.15.0.1", true),
            ("172.32.0.1", true),
            ("100.63.0.1", true),
            ("100.128.0.1", true),
            ("2606:4700::1111", true),
            ("2a00:1450::1", true),
            ("::ffff:8.8.8.8", true),
            ("64:ff9b::8.8.8.8", true),
            ("0.0.0.0", false),
            ("127.0.0.1", false),
            ("127.255.0.1", false),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.100.100.200", false),
            ("168.63.129.16", false),
            ("192.0.0.192", false),
            ("198.19.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("::127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::10.0.0.1", false),
            ("64:ff9b:1::8.8.8.8", false),
            ("2002:7f00:1::", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("fd00:ec2::254", false),
            ("fc00::1", false),
            ("ff02::1", false),
            ("2001:db8::1", false),
            ("2001::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), want, "{address}");
        }
    }

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
