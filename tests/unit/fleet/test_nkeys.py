"""NKeys: the text form that the server reads, and rejected input."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.fleet.nkeys import KeyPair, is_public_key, new_key, read_seed


@pytest.mark.parametrize(
    ("kind", "public", "seed"),
    [("operator", "O", "SO"), ("account", "A", "SA"), ("user", "U", "SU")],
)
def test_the_first_letters_of_a_key_show_its_kind(kind: str, public: str, seed: str) -> None:
    key = new_key(kind)  # type: ignore[arg-type]
    assert key.public.startswith(public) and len(key.public) == 56
    assert key.seed.startswith(seed) and len(key.seed) == 58


def test_reading_a_seed_restores_the_key() -> None:
    key = new_key("user")
    again = read_seed(key.seed)
    assert (again.kind, again.public) == ("user", key.public)
    assert again.sign(b"nonce") == key.sign(b"nonce")


def test_a_known_key_has_the_text_form_of_nats() -> None:
    assert KeyPair("user", bytes(32)).seed.startswith("SUAAAAAAAAAA")
    assert KeyPair("user", bytes(32)).public == KeyPair("user", bytes(32)).public


def test_the_private_key_is_not_in_the_representation() -> None:
    key = new_key("user")
    assert key.seed not in repr(key)


@pytest.mark.parametrize("text", ["", "SU", "nonsense!", "SUAAAAAA", "é"])
def test_invalid_seeds_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        read_seed(text)


def test_a_changed_letter_fails_the_checksum() -> None:
    seed = new_key("user").seed
    changed = seed[:10] + ("A" if seed[10] != "A" else "B") + seed[11:]
    with pytest.raises(UsageError, match="checksum"):
        read_seed(changed)


def test_a_public_key_is_not_a_seed_and_has_one_kind() -> None:
    key = new_key("user")
    with pytest.raises(UsageError):
        read_seed(key.public)
    assert is_public_key(key.public, "user")
    assert not is_public_key(key.public, "account")
    assert not is_public_key("nothing", "user")
    assert not is_public_key("é", "user")
