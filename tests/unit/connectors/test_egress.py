import pytest

from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import EgressBlocked

REFUSED = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.127.255.254",
    "192.0.0.8",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "169.254.169.254",
    "169.254.1.1",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:a9fe:a9fe",
    "::10.0.0.1",
    "::8.8.8.8",
    "64:ff9b::127.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:10::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::",
    "2002:808:808::",
    "3fff::1",
    "fc00::1",
    "fd12:3456::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "5f00::1",
    "4000::1",
]

ADMITTED = [
    "8.8.8.8",
    "1.1.1.1",
    "100.63.255.255",
    "172.32.0.1",
    "192.0.1.1",
    "198.20.0.1",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450::1",
]

NEVER = [
    "169.254.169.254",
    "169.254.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "::169.254.169.254",
    "fe80::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "2001:0:a9fe:a9fe::",
]


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(EgressBlocked):
        EgressPolicy().admit("some.test", 80, [address])


@pytest.mark.parametrize("address", ADMITTED)
def test_a_public_address_is_admitted(address: str) -> None:
    assert [str(a) for a in EgressPolicy().admit("some.test", 80, [address])] == [address]


@pytest.mark.parametrize("address", NEVER)
def test_metadata_and_link_local_addresses_are_refused_even_when_they_are_allow_listed(address: str) -> None:
    policy = EgressPolicy(["metadata.test:80"], ["0.0.0.0/0", "::/0"])
    with pytest.raises(EgressBlocked, match="never"):
        policy.admit("metadata.test", 80, [address])


def test_a_public_address_inside_nat64_is_admitted_as_it_is() -> None:
    assert [str(a) for a in EgressPolicy().admit("some.test", 443, ["64:ff9b::808:808"])] == ["64:ff9b::808:808"]


def test_a_mapped_address_is_dialled_as_the_ipv4_address_it_is() -> None:
    assert [str(a) for a in EgressPolicy().admit("some.test", 443, ["::ffff:8.8.8.8"])] == ["8.8.8.8"]


def test_one_private_address_among_public_ones_refuses_the_whole_name() -> None:
    with pytest.raises(EgressBlocked):
        EgressPolicy().admit("mixed.test", 80, ["8.8.8.8", "10.0.0.1"])


@pytest.mark.parametrize(("host", "port"), [("n8n", 5678), ("N8N.", 5678)])
def test_an_allowed_host_and_port_may_be_private(host: str, port: int) -> None:
    assert EgressPolicy(["n8n:5678"]).admit(host, port, ["172.18.0.4"])


@pytest.mark.parametrize(("host", "port"), [("n8n", 80), ("n8n.evil.test", 5678), ("172.18.0.4", 5678)])
def test_the_same_address_by_another_name_or_port_stays_refused(host: str, port: int) -> None:
    with pytest.raises(EgressBlocked):
        EgressPolicy(["n8n:5678"]).admit(host, port, ["172.18.0.4"])


def test_an_ipv6_literal_can_be_allowed() -> None:
    assert EgressPolicy(["[fd12::7]:8080"]).admit("fd12::7", 8080, ["fd12::7"])


def test_an_allowed_network_admits_its_addresses_and_no_others() -> None:
    policy = EgressPolicy(allow_cidrs=["172.18.0.0/16"])
    assert policy.admit("a.test", 80, ["172.18.3.4", "::ffff:172.18.3.4"])
    with pytest.raises(EgressBlocked):
        policy.admit("a.test", 80, ["172.19.0.1"])


def test_the_refusal_names_both_settings_and_keeps_the_address_for_the_log() -> None:
    with pytest.raises(EgressBlocked) as caught:
        EgressPolicy().admit("wiki.corp.test", 8090, ["10.20.30.40"])
    message = str(caught.value)
    assert "wiki.corp.test:8090 to HOPNODE_EGRESS_ALLOW_HOSTS" in message
    assert "HOPNODE_EGRESS_ALLOW_CIDRS" in message
    assert "10.20.30.40" not in message
    assert caught.value.details == {"address": "10.20.30.40"}


@pytest.mark.parametrize("entry", ["n8n", "n8n:", ":80", "n8n:http", "n8n:0", "n8n:70000"])
def test_a_host_entry_without_a_port_is_a_mistake_that_names_the_setting(entry: str) -> None:
    with pytest.raises(ValueError, match="HOPNODE_EGRESS_ALLOW_HOSTS"):
        EgressPolicy([entry])


def test_a_network_entry_that_is_none_is_a_mistake_that_names_the_setting() -> None:
    with pytest.raises(ValueError, match="HOPNODE_EGRESS_ALLOW_CIDRS"):
        EgressPolicy(allow_cidrs=["172.18.0.1/16"])
