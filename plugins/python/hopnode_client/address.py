"""The address of a node and the key to it, checked before anything is sent; knows nothing of what is sent."""

import httpx

from hopnode_client.errors import Misuse


def node_address(given: str) -> str:
    """The root of the node without a slash at its end; `/v1` at the end is taken away, a path before it stays.

    Raises Misuse for what is no address, with how to write it.
    """
    text = given.strip()
    if "://" not in text:
        raise Misuse(f"The address {given!r} has no scheme.", "Write http://… or https://… before it.")
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise Misuse(f"{given!r} is no address: {error}.", "Write it like http://127.0.0.1:8700.") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise Misuse(f"{given!r} is no address of a node.", "Write it like http://127.0.0.1:8700.")
    if url.userinfo:
        raise Misuse("The address holds a user name or password.", "Leave them out: the key is a parameter of its own.")
    if url.query or url.fragment:
        raise Misuse(f"The address {given!r} has a query or fragment.", "Give the root of the node only.")
    return str(url).rstrip("/").removesuffix("/v1").rstrip("/")


def bearer(key: str) -> str:
    """The header value for a key; white space around it, as files have it, does not matter. Raises Misuse."""
    token = key.strip()
    if not token:
        raise Misuse("The key is empty.", "A node writes its first key into `api_key` in its data folder (~/.hopnode).")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Misuse("The key holds characters that no key has.", "Keys look like hn_1f0a2b3c_….")
    return f"Bearer {token}"
