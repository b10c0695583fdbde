//! Which addresses are the open internet's, and which lead into this machine or its network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for addresses of the open internet.
pub fn is_public(ip: IpAddr) -> bool {
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
}
