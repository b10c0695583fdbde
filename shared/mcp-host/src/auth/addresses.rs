//! Where a request may go whose address a server chose: not into this machine or its network, unless the pack itself names the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Variables that name a proxy: our own choice, not a server's.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Resolves names; of a host that nobody named, only public addresses.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// Hosts that were named literally, in lower case.
    named: Vec<String>,
}

impl Addresses {
    /// The hosts of these addresses may be anywhere, and so may the proxies of this process.
    pub(super) fn naming<'a>(urls: impl Iterator<Item = &'a str>) -> Self {
        let proxies: Vec<String> = PROXIES.iter().filter_map(|name| std::env::var(name).ok()).collect();
        let host = |url: &str| reqwest::Url::parse(url).ok().and_then(|url| host_of(&url));
        Self { named: urls.filter_map(host).chain(proxies.iter().filter_map(|url| host(url))).collect() }
    }

    /// May a request go to this address, as far as its text tells?
    pub(super) fn allow(&self, url: &reqwest::Url) -> bool {
        let Some(host) = host_of(url) else { return false };
        self.is_named(&host) || host.parse::<IpAddr>().map_or(true, |address| !is_internal(address))
    }

    fn is_named(&self, host: &str) -> bool {
        self.named.iter().any(|named| named == host)
    }
}

/// The host without the brackets of IPv6.
fn host_of(url: &reqwest::Url) -> Option<String> {
    url.host_str().map(|host| host.trim_matches(['[', ']']).to_ascii_lowercase())
}

impl Resolve for Addresses {
    fn resolve(&self, name: Name) -> Resolving {
        let named = self.is_named(&name.as_str().to_ascii_lowercase());
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let allowed: Vec<SocketAddr> =
                found.into_iter().filter(|address| named || !is_internal(address.ip())).collect();
            if allowed.is_empty() {
                let why = "it is in a private network, and the pack does not name it; set `issuer` in its `auth`";
                return Err(format!("{}: {why}", name.as_str()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

/// Not of the public internet.
fn is_internal(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_internal_v4(v4),
        IpAddr::V6(v6) => embedded(v6).map_or_else(|| is_internal_v6(v6), is_internal_v4),
    }
}

fn is_internal_v4(v4: Ipv4Addr) -> bool {
    let [a, b, ..] = v4.octets();
    v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || a == 0
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (b == 18 || b == 19))
}

fn is_internal_v6(v6: Ipv6Addr) -> bool {
    let [first, second, ..] = v6.segments();
    v6.is_loopback()
        || v6.is_unspecified()
        || v6.is_multicast()
        || first & 0xffc0 == 0xfe80
        || first & 0xfe00 == 0xfc00
        || (first == 0x2001 && second == 0)
}

/// The IPv4 address that an IPv6 address stands for: mapped, compatible, NAT64, 6to4.
fn embedded(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] => Some(of(g, h)),
        [0, 0, 0, 0, 0, 0] if !v6.is_loopback() && !v6.is_unspecified() => Some(of(g, h)),
        [0x2002, ..] => Some(of(b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_internal_address_needs_a_name_in_the_pack() {
        let addresses = Addresses::naming(["https://mcp.corp/mcp", "http://127.0.0.1:8080/mcp"].into_iter());
        for (url, allowed) in [
            ("https://sso.example/token", true),
            ("https://mcp.corp/token", true),
            ("http://127.0.0.1:9/x", true),
            ("http://127.0.0.2/x", false),
            ("http://169.254.169.254/latest", false),
            ("http://10.1.2.3/", false),
            ("http://100.64.0.1/", false),
            ("http://[::1]/", false),
            ("http://[fd00::1]/", false),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://[64:ff9b::a00:1]/", false),
            ("http://[2606:4700::1]/", true),
            ("http://93.184.216.34/", true),
        ] {
            assert_eq!(addresses.allow(&reqwest::Url::parse(url).unwrap()), allowed, "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_inside_is_not_followed() {
        let resolve = async |addresses: &Addresses| {
            addresses.resolve("localhost".parse().unwrap()).await.map(Iterator::count).map_err(|e| e.to_string())
        };
        let stranger = resolve(&Addresses::naming(["https://mcp.example"].into_iter())).await.unwrap_err();
        assert!(stranger.contains("private network"), "{stranger}");
        assert!(resolve(&Addresses::naming(["http://localhost:1/mcp"].into_iter())).await.unwrap() > 0);
    }
}
