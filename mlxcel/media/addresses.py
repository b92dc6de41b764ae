"""Which addresses are public, so that a URL in a request may lead there."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address

REFUSED = (
    "0.0.0.0/8",  # this host, this network
    "10.0.0.0/8",  # private
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",  # shared by the customers of a carrier
    "127.0.0.0/8",  # loopback
    "169.254.0.0/16",  # link-local: metadata of clouds
    "192.0.0.0/24",  # protocol assignments
    "192.0.2.0/24",  # documentation
    "198.51.100.0/24",
    "203.0.113.0/24",
    "198.18.0.0/15",  # benchmarks
    "224.0.0.0/4",  # multicast
    "240.0.0.0/4",  # reserved, broadcast
    "::/96",  # loopback, unspecified, IPv4-compatible
    "ff00::/8",  # multicast
    "fc00::/7",  # unique local
    "fe80::/10",  # link-local
    "2001:db8::/32",  # documentation
)
_NETWORKS = tuple(ipaddress.ip_network(text) for text in REFUSED)
_CARRIES_IPV4 = (
    # prefix, and the bits behind the IPv4 address in it
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a host is written as, in brackets or not; None for a name."""
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """False also for what is no address. An IPv6 address that carries one of IPv4 is judged by
    that one."""
    found = literal(address)
    if found is None:
        return False
    inner = _carried(found) or found
    return not any(inner.version == net.version and inner in net for net in _NETWORKS)


def _carried(address: IPv4Address | IPv6Address) -> IPv4Address | None:
    if isinstance(address, IPv4Address):
        return None
    for network, shift in _CARRIES_IPV4:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return None
