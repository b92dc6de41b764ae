"""Each range that is refused: its ends, and the neighbours outside."""

import ipaddress

import pytest

from mlxcel.media.addresses import is_public

RANGES = {
    "0.0.0.0/8": ("", "1.0.0.0"),
    "10.0.0.0/8": ("9.255.255.255", "11.0.0.0"),
    "172.16.0.0/12": ("172.15.255.255", "172.32.0.0"),
    "192.168.0.0/16": ("192.167.255.255", "192.169.0.0"),
    "100.64.0.0/10": ("100.63.255.255", "100.128.0.0"),
    "127.0.0.0/8": ("126.255.255.255", "128.0.0.0"),
    "169.254.0.0/16": ("169.253.255.255", "169.255.0.0"),
    "192.0.0.0/24": ("191.255.255.255", "192.0.1.0"),
    "192.0.2.0/24": ("192.0.1.255", "192.0.3.0"),
    "198.51.100.0/24": ("198.51.99.255", "198.51.101.0"),
    "203.0.113.0/24": ("203.0.112.255", "203.0.114.0"),
    "198.18.0.0/15": ("198.17.255.255", "198.20.0.0"),
    "224.0.0.0/4": ("223.255.255.255", ""),
    "240.0.0.0/4": ("", ""),
    "::/96": ("", "::1:0:0"),
    "ff00::/8": ("feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    "fc00::/7": ("fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe00::"),
    "fe80::/10": ("fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::"),
    "2001:db8::/32": ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db9::"),
}


@pytest.mark.parametrize(("network", "neighbours"), RANGES.items())
def test_range_is_refused_and_its_neighbours_are_not(
    network: str, neighbours: tuple[str, str]
) -> None:
    known = ipaddress.ip_network(network)
    assert not is_public(str(known[0]))
    assert not is_public(str(known[-1]))
    assert all(is_public(address) for address in neighbours if address)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        pytest.param("::1", False, id="loopback"),
        pytest.param("::", False, id="unspecified"),
        pytest.param("::8.8.8.8", False, id="compatible-with-a-public-one"),
        pytest.param("::ffff:127.0.0.1", False, id="mapped-loopback"),
        pytest.param("::ffff:169.254.169.254", False, id="mapped-metadata"),
        pytest.param("::ffff:8.8.8.8", True, id="mapped-public"),
        pytest.param("64:ff9b::10.0.0.1", False, id="nat64-private"),
        pytest.param("64:ff9b::8.8.8.8", True, id="nat64-public"),
        pytest.param("2002:7f00:1::", False, id="6to4-loopback"),
        pytest.param("2002:808:808::1", True, id="6to4-public"),
        pytest.param("[::1]", False, id="brackets"),
        pytest.param("fe80::1%eth0", False, id="zone"),
        pytest.param("8.8.8.8", True, id="public"),
        pytest.param("2606:4700::1111", True, id="public-6"),
        pytest.param("255.255.255.255", False, id="broadcast"),
        pytest.param("localhost", False, id="name"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_address(address: str, public: bool) -> None:
    assert is_public(address) is public
