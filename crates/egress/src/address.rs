//! Which addresses are nobody's to reach unless a policy names them: those of this host, of networks around it,
//! of clouds' metadata, and every form that leads to one of these in the end.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an internal address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Unspecified,
    Loopback,
    Private,
    /// Shared by a provider's customers.
    Shared,
    LinkLocal,
    /// Gives credentials to whoever asks from a machine in a cloud.
    Metadata,
    Multicast,
    Broadcast,
    Documentation,
    Benchmarking,
    Reserved,
    /// Of an interface of this host.
    Own,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Unspecified => "no address of anything",
            Kind::Loopback => "an address of this host itself",
            Kind::Private => "an address of a private network",
            Kind::Shared => "an address of a provider's own network",
            Kind::LinkLocal => "an address of the nearest network only",
            Kind::Metadata => "an address at which clouds give out credentials",
            Kind::Multicast => "an address of many hosts at once",
            Kind::Broadcast => "an address of a whole network",
            Kind::Documentation => "an address for documentation",
            Kind::Benchmarking => "an address for measurements",
            Kind::Reserved => "a reserved address",
            Kind::Own => "an address of this host",
        })
    }
}

/// What is internal about an address; nothing if it is public. Judged by what the address reaches in the
/// end, so that one which stands for another (mapped, translated, tunnelled) is that other one.
pub fn internal(address: IpAddr) -> Option<Kind> {
    match address {
        IpAddr::V4(address) => internal_v4(address),
        IpAddr::V6(address) => internal_v6(address),
    }
}

/// The one address at which Azure, Alibaba, Oracle and others answer their machines; those at
/// 169.254.169.254 have it in common.
const METADATA: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Networks: address, length of the prefix, kind. From the registries of special-purpose addresses.
const NETWORKS: &[([u8; 4], u32, Kind)] = &[
    ([0, 0, 0, 0], 8, Kind::Unspecified),
    ([10, 0, 0, 0], 8, Kind::Private),
    ([100, 64, 0, 0], 10, Kind::Shared),
    ([127, 0, 0, 0], 8, Kind::Loopback),
    ([169, 254, 0, 0], 16, Kind::LinkLocal),
    ([172, 16, 0, 0], 12, Kind::Private),
    ([192, 0, 0, 0], 24, Kind::Reserved),
    ([192, 0, 2, 0], 24, Kind::Documentation),
    ([192, 88, 99, 0], 24, Kind::Reserved),
    ([192, 168, 0, 0], 16, Kind::Private),
    ([198, 18, 0, 0], 15, Kind::Benchmarking),
    ([198, 51, 100, 0], 24, Kind::Documentation),
    ([203, 0, 113, 0], 24, Kind::Documentation),
    ([224, 0, 0, 0], 4, Kind::Multicast),
    ([255, 255, 255, 255], 32, Kind::Broadcast),
    ([240, 0, 0, 0], 4, Kind::Reserved),
];

/// The first segments of networks within 2000::/3 that are not for everybody. What is outside of 2000::/3
/// is not for everybody either, but for what `stands_for` knows.
const NETWORKS_V6: &[([u16; 3], u32, Kind)] = &[
    ([0x2001, 0xdb8, 0], 32, Kind::Documentation),
    ([0x2001, 2, 0], 48, Kind::Benchmarking),
    ([0x2001, 0, 0], 23, Kind::Reserved),
    ([0x3fff, 0, 0], 20, Kind::Documentation),
];

fn internal_v4(address: Ipv4Addr) -> Option<Kind> {
    if METADATA.contains(&address) {
        return Some(Kind::Metadata);
    }
    let bits = address.to_bits();
    let network = NETWORKS
        .iter()
        .find(|(start, length, _)| (bits ^ u32::from_be_bytes(*start)) >> (32 - length) == 0);
    network.map(|(_, _, kind)| *kind)
}

fn internal_v6(address: Ipv6Addr) -> Option<Kind> {
    if METADATA_V6.contains(&address) {
        return Some(Kind::Metadata);
    }
    match stands_for(address) {
        Stands::For(addresses) => addresses.into_iter().flatten().find_map(internal_v4),
        Stands::Itself => own_kind(address).or_else(|| within(address)),
    }
}

/// Everything that is reached by an address: itself, and the addresses that it stands for.
pub(crate) fn reached_by(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let others = match address {
        IpAddr::V4(_) => [None, None],
        IpAddr::V6(address) => match stands_for(address) {
            Stands::Itself => [None, None],
            Stands::For(addresses) => addresses,
        },
    };
    std::iter::once(address).chain(others.into_iter().flatten().map(IpAddr::from))
}

enum Stands {
    Itself,
    /// For IPv4 addresses, which packets reach at the other end of a translator or tunnel.
    For([Option<Ipv4Addr>; 2]),
}

fn stands_for(address: Ipv6Addr) -> Stands {
    let v4 = |high: u16, low: u16| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low));
    let one = |high, low| Stands::For([Some(v4(high, low)), None]);
    match address.segments() {
        // Mapped, and the form that translators have used for it.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => one(high, low),
        // NAT64.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => one(high, low),
        // 6to4.
        [0x2002, high, low, ..] => one(high, low),
        // Teredo: its server, and its client with all bits turned.
        [0x2001, 0, high, low, _, _, client_high, client_low] => {
            Stands::For([Some(v4(high, low)), Some(v4(!client_high, !client_low))])
        }
        // ISATAP, in a network that is public otherwise.
        [first, .., 0 | 0x200, 0x5efe, high, low] if first >> 13 == 1 => one(high, low),
        _ => Stands::Itself,
    }
}

fn own_kind(address: Ipv6Addr) -> Option<Kind> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some(Kind::Unspecified),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Kind::Loopback),
        [first, ..] if first >> 9 == 0xfc00 >> 9 => Some(Kind::Private),
        [first, ..] if first >> 6 == 0xfe80 >> 6 => Some(Kind::LinkLocal),
        [first, ..] if first >> 6 == 0xfec0 >> 6 => Some(Kind::Private),
        [first, ..] if first >> 8 == 0xff => Some(Kind::Multicast),
        [first, ..] if first >> 13 != 1 => Some(Kind::Reserved),
        _ => None,
    }
}

fn within(address: Ipv6Addr) -> Option<Kind> {
    let bits = address.to_bits();
    let start = |[a, b, c]: [u16; 3]| Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).to_bits();
    let network =
        NETWORKS_V6.iter().find(|(first, length, _)| (bits ^ start(*first)) >> (128 - length) == 0);
    network.map(|(_, _, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(address: &str) -> Option<Kind> {
        internal(address.parse().unwrap())
    }

    #[test]
    fn net_13_internal_addresses_are_known() {
        for (address, expected) in [
            ("0.0.0.0", Kind::Unspecified),
            ("0.1.2.3", Kind::Unspecified),
            ("10.0.0.1", Kind::Private),
            ("10.255.255.255", Kind::Private),
            ("100.64.0.1", Kind::Shared),
            ("100.127.255.255", Kind::Shared),
            ("100.100.100.200", Kind::Metadata),
            ("127.0.0.1", Kind::Loopback),
            ("127.255.255.254", Kind::Loopback),
            ("168.63.129.16", Kind::Metadata),
            ("169.254.0.1", Kind::LinkLocal),
            ("169.254.169.254", Kind::Metadata),
            ("172.16.0.1", Kind::Private),
            ("172.31.255.255", Kind::Private),
            ("192.0.0.1", Kind::Reserved),
            ("192.0.0.192", Kind::Metadata),
            ("192.0.2.1", Kind::Documentation),
            ("192.88.99.1", Kind::Reserved),
            ("192.168.1.1", Kind::Private),
            ("198.18.0.1", Kind::Benchmarking),
            ("198.19.255.255", Kind::Benchmarking),
            ("198.51.100.1", Kind::Documentation),
            ("203.0.113.1", Kind::Documentation),
            ("224.0.0.1", Kind::Multicast),
            ("239.255.255.255", Kind::Multicast),
            ("240.0.0.1", Kind::Reserved),
            ("255.255.255.254", Kind::Reserved),
            ("255.255.255.255", Kind::Broadcast),
            ("::", Kind::Unspecified),
            ("::1", Kind::Loopback),
            ("::2", Kind::Reserved),
            ("::127.0.0.1", Kind::Reserved),
            ("::8.8.8.8", Kind::Reserved),
            ("64:ff9b:1::8.8.8.8", Kind::Reserved),
            ("100::1", Kind::Reserved),
            ("2001:db8::1", Kind::Documentation),
            ("2001:2::1", Kind::Benchmarking),
            ("2001:10::1", Kind::Reserved),
            ("2001:20::1", Kind::Reserved),
            ("2001:1::1", Kind::Reserved),
            ("3fff::1", Kind::Documentation),
            ("3fff:fff::1", Kind::Documentation),
            ("4000::1", Kind::Reserved),
            ("5f00::1", Kind::Reserved),
            ("fc00::1", Kind::Private),
            ("fd12:3456::1", Kind::Private),
            ("fd00:ec2::254", Kind::Metadata),
            ("fd20:ce::254", Kind::Metadata),
            ("fe80::1", Kind::LinkLocal),
            ("febf::1", Kind::LinkLocal),
            ("fec0::1", Kind::Private),
            ("ff02::1", Kind::Multicast),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn net_14_what_stands_for_an_internal_address_is_internal() {
        for (address, expected) in [
            ("::ffff:127.0.0.1", Kind::Loopback),
            ("::ffff:a9fe:a9fe", Kind::Metadata),
            ("::ffff:10.0.0.1", Kind::Private),
            ("::ffff:0:10.0.0.1", Kind::Private),
            ("64:ff9b::127.0.0.1", Kind::Loopback),
            ("64:ff9b::169.254.169.254", Kind::Metadata),
            ("2002:7f00:1::", Kind::Loopback),
            ("2002:a9fe:a9fe::1", Kind::Metadata),
            ("2002:c0a8:101::1", Kind::Private),
            // Teredo: an internal server, and an internal client.
            ("2001:0:a00:1::f7f7:f7f7", Kind::Private),
            ("2001:0:808:808::80ff:fffe", Kind::Loopback),
            ("2600::5efe:10.0.0.1", Kind::Private),
            ("2600::200:5efe:127.0.0.1", Kind::Loopback),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.1",
            "168.63.129.17",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2400:cb00::1",
            "2600::5eff:10.0.0.1",
            "3ffe::1",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
            "2001:0:808:808::f7f7:f7f7",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    proptest! {
        /// Against what the standard library knows of IPv4.
        #[test]
        fn nothing_is_missed_that_the_standard_library_knows(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            let known = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation()
                || address.is_unspecified();
            prop_assert!(!known || internal(address.into()).is_some(), "{}", address);
        }

        #[test]
        fn net_14_each_form_of_an_address_is_judged_as_the_address(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            let expected = internal(address.into());
            let [a, b] = [(bits >> 16) as u16, bits as u16];
            for form in [
                address.to_ipv6_mapped(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, a, b),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b),
                Ipv6Addr::new(0x2002, a, b, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0x808, 0x808, 0, 0, !a, !b),
                Ipv6Addr::new(0x2001, 0, a, b, 0, 0, !0x808, !0x808),
            ] {
                prop_assert_eq!(internal(form.into()), expected, "{}", form);
            }
        }

        /// Outside of 2000::/3 there is nothing for everybody but what translates.
        #[test]
        fn only_global_unicast_is_public(bits in any::<u128>()) {
            let address = Ipv6Addr::from_bits(bits);
            let [first, ..] = address.segments();
            let translates = matches!(stands_for(address), Stands::For(_));
            prop_assert!(translates || first >> 13 == 1 || internal(address.into()).is_some());
        }
    }
}
