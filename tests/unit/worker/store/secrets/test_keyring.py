"""Keys and sealing: what opens, what does not, where keys come from, and that one of many processes makes the first."""

import base64
import multiprocessing
import stat
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import SecretStr

from hopnode.worker.errors import ConfigurationError, SecretUnreadable
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.secrets.keyring import Keyring, open_keyring

_ABOUT = ("acme", "source", "s1", "/token")


def _key(byte: int) -> str:
    return base64.b64encode(bytes([byte]) * 32).decode()


def _given(*keys: str) -> Keyring:
    return Keyring(Path("unused"), SecretStr(",".join(keys)))


def test_a_sealed_text_opens_for_the_same_owner_and_field() -> None:
    ring = _given(_key(1))
    sealed = ring.seal("pässword", _ABOUT)
    assert ring.unseal(sealed, _ABOUT) == "pässword"
    assert "pässword" not in sealed
    assert ring.seal("pässword", _ABOUT) != sealed


@pytest.mark.parametrize("place", range(4))
def test_a_sealed_text_that_was_moved_does_not_open(place: int) -> None:
    ring = _given(_key(1))
    sealed = ring.seal("x", _ABOUT)
    elsewhere = [*_ABOUT]
    elsewhere[place] += "2"
    with pytest.raises(SecretUnreadable, match="anew"):
        ring.unseal(sealed, elsewhere)


def test_words_that_run_together_alike_are_told_apart() -> None:
    ring = _given(_key(1))
    with pytest.raises(SecretUnreadable):
        ring.unseal(ring.seal("x", ("ab", "c")), ("a", "bc"))


@pytest.mark.parametrize("damaged", ["", "plain", "v1:k", "v1:k:?", "v2:k:AAAA", "v1::AAAA"])
def test_what_no_keyring_sealed_is_called_damaged(damaged: str) -> None:
    with pytest.raises(SecretUnreadable, match="damaged"):
        _given(_key(1)).unseal(damaged, _ABOUT)


def test_a_changed_byte_is_noticed() -> None:
    ring = _given(_key(1))
    head, _, box = ring.seal("secret", _ABOUT).rpartition(":")
    raw = bytearray(base64.b64decode(box))
    raw[-1] ^= 1
    with pytest.raises(SecretUnreadable):
        ring.unseal(f"{head}:{base64.b64encode(raw).decode()}", _ABOUT)


def test_all_keys_open_and_the_first_one_seals() -> None:
    old, both = _given(_key(1)), _given(_key(2), _key(1))
    assert both.unseal(old.seal("x", _ABOUT), _ABOUT) == "x"
    assert both.seal("x", _ABOUT).split(":")[1] == both.keys()[0].id
    with pytest.raises(SecretUnreadable, match="HOPNODE_SECRET_KEY") as caught:
        old.unseal(both.seal("x", _ABOUT), _ABOUT)
    assert both.keys()[0].id in str(caught.value)


@pytest.mark.parametrize("text", ["", ",", "short", "A" * 44, _key(1)[:-2]])
def test_a_setting_that_holds_no_key_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ConfigurationError, match="openssl rand -base64 32") as caught:
        _given(text)
    assert not text or len(text) < 5 or text not in str(caught.value)


def test_the_first_key_is_made_once_by_processes_that_start_together(tmp_path: Path) -> None:
    file = tmp_path / "secret_key"
    with ProcessPoolExecutor(4, multiprocessing.get_context("spawn")) as pool:
        assert len(set(pool.map(_make, [file] * 8))) == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret_key"]


def _make(file: Path) -> str:
    ring = Keyring(file)
    ring.make_first()
    return ring.newest().id


def test_a_running_keyring_knows_a_new_key_at_once(tmp_path: Path) -> None:
    running, other = Keyring(tmp_path / "secret_key"), Keyring(tmp_path / "secret_key")
    running.make_first()
    sealed = running.seal("x", _ABOUT)
    newest = other.add_newest()
    assert running.newest() == newest
    assert running.unseal(sealed, _ABOUT) == "x"
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: running.unseal(sealed, _ABOUT), range(20))) == {"x"}


def test_a_key_is_not_shown_by_its_repr(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "secret_key")
    ring.make_first()
    assert (tmp_path / "secret_key").read_text().strip() not in repr(ring.keys())
    assert str(ring.newest().value) not in repr(ring.newest())


def test_the_settings_name_the_place_of_the_keys(tmp_path: Path) -> None:
    assert open_keyring(WorkerSettings(data_dir=tmp_path)).place == str(tmp_path.resolve() / "secret_key")
    given = open_keyring(WorkerSettings(data_dir=tmp_path, secret_key=SecretStr(_key(1))))
    assert (given.place, given.own) == ("HOPNODE_SECRET_KEY", False)
    with pytest.raises(ValueError, match="both set"):
        WorkerSettings(secret_key=SecretStr(_key(1)), secret_key_file=tmp_path / "keys")


def test_a_file_of_the_operator_is_read_and_never_written(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    ring = open_keyring(WorkerSettings(data_dir=tmp_path, secret_key_file=file))
    with pytest.raises(ConfigurationError, match="HOPNODE_SECRET_KEY_FILE"):
        ring.make_first()
    file.write_text(f"{_key(2)}\n\n{_key(1)}\n")
    file.chmod(0o444)
    assert len(ring.keys()) == 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o444
