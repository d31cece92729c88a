"""The node's secret keys: where they come from, which one seals, and sealing itself (AES-256-GCM). It knows no table."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from hopnode.worker.errors import ConfigurationError, SecretUnreadable
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.private_file import read_private_lines, write_private, write_private_once

KEY_SETTING = "HOPNODE_SECRET_KEY"
KEY_FILE_SETTING = "HOPNODE_SECRET_KEY_FILE"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_FORMAT = "v1"


@dataclass(frozen=True)
class SecretKey:
    """One AES-256 key. `id` is derived from the key, so that a sealed value can name it and reveals nothing of it."""

    id: str
    value: bytes = field(repr=False)


class Keyring:
    """The keys of one node, newest first: the first one seals, all of them open. Safe to share between threads.

    Keys that the operator gives (`given`, or a file that is not the node's `own`) are never written. A file holds one key
    a line. It is read at each use, so that a running node knows a new key as soon as the file has it.
    """

    def __init__(self, file: Path, given: SecretStr | None = None, *, own: bool = True) -> None:
        """Raises ConfigurationError for a setting that holds something other than keys."""
        self._file = file
        self._given = None if given is None else _parse(given.get_secret_value().split(","), KEY_SETTING)
        self.own = own and given is None

    @property
    def place(self) -> str:
        """Where the keys come from, for messages."""
        return str(self._file) if self._given is None else KEY_SETTING

    def keys(self) -> Sequence[SecretKey]:
        """All keys, newest first; empty before the first one was made. Raises ConfigurationError for a damaged file."""
        if self._given is not None:
            return self._given
        lines = read_private_lines(self._file, close=self.own)
        return () if lines is None else _parse(lines, str(self._file))

    def newest(self) -> SecretKey:
        """The key that seals; raises ConfigurationError without any."""
        if not (keys := self.keys()):
            raise ConfigurationError(f"There is no secret key at {self.place}.")
        return keys[0]

    def make_first(self) -> None:
        """Makes the file with one new key, unless another process was faster; either way there is a key afterwards.

        Raises ConfigurationError when the operator names a file of keys, and it is not there.
        """
        if not self.own:
            raise ConfigurationError(
                f"{KEY_FILE_SETTING} names {self._file}, which does not exist: put a key there, as `openssl rand -base64 32` "
                "prints it, or unset it to let the node make its own."
            )
        write_private_once(self._file, _new_line())

    def add_newest(self) -> SecretKey:
        """Puts a new key before the others. Two processes must not do this at once; the caller holds a lease."""
        lines = read_private_lines(self._file) or []
        write_private(self._file, "\n".join([_new_line(), *lines]))
        return self.newest()

    def seal(self, text: str, about: Sequence[str]) -> str:
        """Encrypts under the newest key. `about` says whose secret it is: the value opens with the same words only.

        The form is `v1:<key id>:<base64 of nonce and ciphertext>`. Raises ConfigurationError without any key.
        """
        key, nonce = self.newest(), os.urandom(_NONCE_BYTES)
        box = AESGCM(key.value).encrypt(nonce, text.encode(), _associated(key.id, about))
        return f"{sealed_by(key)}{base64.b64encode(nonce + box).decode()}"

    def unseal(self, sealed: str, about: Sequence[str]) -> str:
        """Raises SecretUnreadable when the key is not at hand, or the value was changed or moved to another owner."""
        key_id, box = _parts(sealed)
        key = next((key for key in self.keys() if key.id == key_id), None)
        if key is None:
            raise SecretUnreadable(
                f"The key {key_id} that opens this secret is not at {self.place}. Put it back there "
                f"(from a backup, or in {KEY_SETTING}), or set the secret anew."
            )
        try:
            return (
                AESGCM(key.value).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], _associated(key_id, about)).decode()
            )
        except InvalidTag as error:
            raise SecretUnreadable(
                f"The secret was changed outside of the node, or belongs to something else: the key {key_id} does not "
                "open it here. Set the secret anew."
            ) from error

    def stamp(self, words: Sequence[str]) -> str:
        """A token of 43 characters that fits into a URL, which only this node can make for these words."""
        return _stamp(self.newest(), words)

    def stamped(self, token: str, words: Sequence[str]) -> bool:
        """Whether one of the keys made this token for these words."""
        return any(hmac.compare_digest(_stamp(key, words).encode(), token.encode()) for key in self.keys())


def key_id_of(sealed: str) -> str:
    """The id of the key that sealed a value; raises SecretUnreadable for something that no keyring sealed."""
    return _parts(sealed)[0]


def sealed_by(key: SecretKey) -> str:
    """How every value that this key sealed begins."""
    return f"{_FORMAT}:{key.id}:"


def _stamp(key: SecretKey, words: Sequence[str]) -> str:
    """HMAC-SHA256 under a key of its own, derived from the sealing key."""
    own = hmac.digest(key.value, b"hopnode capability", "sha256")
    return base64.urlsafe_b64encode(hmac.digest(own, _associated(key.id, words), "sha256")).decode().rstrip("=")


def _parts(sealed: str) -> tuple[str, bytes]:
    form, _, rest = sealed.partition(":")
    key_id, _, text = rest.partition(":")
    try:
        box = base64.b64decode(text, validate=True)
    except binascii.Error:
        box = b""
    if form != _FORMAT or len(box) <= _NONCE_BYTES:
        raise SecretUnreadable("The stored secret is damaged. Set the secret anew.")
    return key_id, box


def open_keyring(settings: WorkerSettings) -> Keyring:
    """The keyring that the settings name; by default the file `secret_key` of the data folder."""
    file = settings.secret_key_file
    return Keyring(file or settings.root / "secret_key", settings.secret_key, own=file is None)


def _associated(key_id: str, about: Sequence[str]) -> bytes:
    """Each word with its length before it, so that no two lists of words give the same bytes."""
    words = [word.encode() for word in (_FORMAT, key_id, *about)]
    return b"".join(len(word).to_bytes(4, "big") + word for word in words)


def _new_line() -> str:
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def _parse(lines: Sequence[str], place: str) -> tuple[SecretKey, ...]:
    keys: list[SecretKey] = []
    for text in (line.strip() for line in lines):
        if not text:
            continue
        try:
            value = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            value = b""
        if len(value) != _KEY_BYTES:
            raise ConfigurationError(
                f"{place} holds something that is no secret key: a key is 32 random bytes in base64, as "
                "`openssl rand -base64 32` prints them."
            )
        keys.append(SecretKey(hashlib.sha256(b"hopnode secret key" + value).hexdigest()[:16], value))
    if not keys:
        raise ConfigurationError(f"{place} holds no secret key: put one there, as `openssl rand -base64 32` prints it.")
    return tuple(keys)
