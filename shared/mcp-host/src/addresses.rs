//! Where a request may go whose address a server chose: not into this machine or its network, unless the pack itself names the host.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use vance_shared::address::is_public;

/// Variables that name a proxy: our own choice, not a server's.
const PROXIES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// Resolves names; of a host that nobody named, only public addresses.
#[derive(Debug, Clone)]
pub(crate) struct Addresses {
    /// Hosts that were named literally, in lower case.
    named: Vec<String>,
    anywhere: bool,
}

impl Addresses {
    /// The hosts of these addresses may be anywhere, and so may the proxies of this process.
    pub(crate) fn naming<'a>(urls: impl Iterator<Item = &'a str>) -> Self {
        let proxies: Vec<String> = PROXIES.iter().filter_map(|name| std::env::var(name).ok()).collect();
        let host = |url: &str| reqwest::Url::parse(url).ok().and_then(|url| host_of(&url));
        Self {
            named: urls.filter_map(host).chain(proxies.iter().filter_map(|url| host(url))).collect(),
            anywhere: false,
        }
    }

    /// The pack is the user's own, and may lead into their network.
    pub(crate) fn anywhere() -> Self {
        Self { named: Vec::new(), anywhere: true }
    }

    /// May a request go to this address, as far as its text tells?
    pub(crate) fn allow(&self, url: &reqwest::Url) -> bool {
        let Some(host) = host_of(url) else { return false };
        self.is_named(&host) || host.parse::<IpAddr>().map_or(true, is_public)
    }

    fn is_named(&self, host: &str) -> bool {
        self.anywhere || self.named.iter().any(|named| named == host)
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
                found.into_iter().filter(|address| named || is_public(address.ip())).collect();
            if allowed.is_empty() {
                let why = "it is in a private network, and the pack does not name it";
                return Err(format!("{}: {why}", name.as_str()).into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
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
