"""Where the node may connect to: rules over resolved addresses. It knows no names service, no sockets and no HTTP."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from hopnode.connectors.errors import EgressBlocked

Address: TypeAlias = IPv4Address | IPv6Address

HOSTS_SETTING = "HOPNODE_EGRESS_ALLOW_HOSTS"
CIDRS_SETTING = "HOPNODE_EGRESS_ALLOW_CIDRS"
WEBHOOK_SETTINGS = ("HOPNODE_WEBHOOK_ALLOW_HOSTS", "HOPNODE_WEBHOOK_ALLOW_CIDRS")

# IANA special-purpose registries, plus multicast and the ranges reserved for later use.
_PRIVATE_V4 = tuple(
    ip_network(text)
    for text in [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    ]
)
# Public IPv6 is 2000::/3 only; these lie inside it and are not public (protocol assignments with Teredo, examples, 6to4).
_PUBLIC_V6 = IPv6Network("2000::/3")
_PRIVATE_V6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))

_NAT64 = IPv6Network("64:ff9b::/96")
_CARRY_V4 = (_NAT64, IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))

# Link-local, and the metadata services of clouds that live elsewhere: AWS, Google, Scaleway, Oracle, Alibaba, Azure.
_NEVER = tuple(
    ip_network(text)
    for text in [
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "fd00:42::42/128",
        "fd00:c1::a9fe:a9fe/128",
        "192.0.0.192/32",
        "100.100.100.200/32",
        "168.63.129.16/32",
    ]
)


def parse_address(text: str) -> Address:
    """The address that a connection to `text` reaches: no scope id, IPv4 when mapped into IPv6. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _held(address: Address) -> tuple[Address, ...]:
    """IPv4 addresses that a translator or tunnel on the way may read out of an IPv6 address."""
    if isinstance(address, IPv4Address):
        return ()
    if any(address in network for network in _CARRY_V4):
        return (IPv4Address(int(address) & 0xFFFFFFFF),)
    if address.sixtofour:
        return (address.sixtofour,)
    return address.teredo or ()


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _PRIVATE_V4)
    if address in _NAT64:
        return all(_is_public(held) for held in _held(address))
    return address in _PUBLIC_V6 and not any(address in network for network in _PRIVATE_V6)


def _is_forbidden(address: Address) -> bool:
    forms = (address, *_held(address))
    return any(form in network for form in forms for network in _NEVER if network.version == form.version)


class EgressPolicy:
    """The operator's allow-lists, on top of "public addresses only".

    `allow_hosts` are exact `host:port` names, `allow_cidrs` networks. Link-local and cloud metadata addresses are refused
    whatever the lists say. `settings` are the names of the two settings, for messages. Raises ValueError with the name of the
    setting when an entry cannot be read.
    """

    def __init__(
        self,
        allow_hosts: Iterable[str] = (),
        allow_cidrs: Iterable[str] = (),
        settings: tuple[str, str] = (HOSTS_SETTING, CIDRS_SETTING),
    ) -> None:
        self._hosts_setting, self._cidrs_setting = settings
        self._hosts = frozenset(_host_and_port(entry, self._hosts_setting) for entry in allow_hosts)
        self._networks = tuple(_network(entry, self._cidrs_setting) for entry in allow_cidrs)

    def admit(self, host: str, port: int, addresses: Sequence[str]) -> list[Address]:
        """Checks all addresses of a name and returns them in order; one bad address refuses the whole name.

        Raises EgressBlocked. The message leaves the addresses out: it may be shown to a user who must not learn the
        names of a private network; the operator finds them in the details.
        """
        parsed = [parse_address(text) for text in addresses]
        trusted = (_plain(host), port) in self._hosts
        for address in parsed:
            if _is_forbidden(address):
                raise EgressBlocked(
                    f"{host}:{port} leads to a link-local or cloud metadata address, which is never allowed.",
                    address=str(address),
                )
            if not (trusted or _is_public(address) or self._in_allowed_network(address)):
                raise EgressBlocked(
                    f"{host}:{port} is not on the public internet. If the node may connect to it, its operator adds "
                    f"{host}:{port} to {self._hosts_setting}, or its network to {self._cidrs_setting}.",
                    address=str(address),
                )
        return parsed

    def _in_allowed_network(self, address: Address) -> bool:
        return any(address in network for network in self._networks if network.version == address.version)


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


def _host_and_port(entry: str, setting: str) -> tuple[str, int]:
    host, _, port = entry.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{setting}: {entry!r} is not of the form host:port")
    return _plain(host), int(port)


def _network(entry: str, setting: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(entry.strip())
    except ValueError as error:
        raise ValueError(f"{setting}: {error}") from error
