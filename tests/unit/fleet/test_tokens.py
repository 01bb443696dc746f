"""The JWTs of operators, accounts and users."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.fleet.nkeys import new_key
from dragoman.fleet.tokens import (
    AccountLimits,
    Rights,
    Shared,
    account_token,
    operator_token,
    read_token,
    user_token,
)


def test_a_user_token_has_its_rights_and_its_expiry() -> None:
    account, user = new_key("account"), new_key("user")
    rights = Rights(publish=("a.b",), subscribe=("c.>",))
    token = user_token(account, user.public, name="w1", now=100, rights=rights, expires_at=200)
    claims = read_token(token)
    assert (claims["iss"], claims["sub"], claims["name"]) == (account.public, user.public, "w1")
    assert (claims["iat"], claims["exp"]) == (100, 200)
    assert claims["nats"]["pub"] == {"allow": ["a.b"]}
    assert claims["nats"]["sub"] == {"allow": ["c.>"]}


def test_an_account_token_names_the_revoked_users_and_its_limits() -> None:
    operator, account = new_key("operator"), new_key("account")
    token = account_token(
        operator,
        account.public,
        name="team",
        now=100,
        limits=AccountLimits(disk_size=5),
        revoked={"UX": 99},
    )
    claims = read_token(token)["nats"]
    assert claims["revocations"] == {"UX": 99}
    assert claims["limits"]["disk_storage"] == 5
    bare = read_token(account_token(operator, account.public, name="SYS", now=100))["nats"]
    assert bare["limits"]["disk_storage"] == 0 and "revocations" not in bare


def test_an_account_imports_what_another_one_exports() -> None:
    operator, store, members = new_key("operator"), new_key("account"), new_key("account")
    shared = Shared(services=("ask.*",), streams=("told",))
    token = account_token(operator, store.public, name="store", now=1, exports=shared)
    kinds = [(one["type"], one["subject"]) for one in read_token(token)["nats"]["exports"]]
    assert kinds == [("service", "ask.*"), ("stream", "told")]
    token = account_token(
        operator, members.public, name="t", now=1, imports=shared, imported_from=store.public
    )
    imports = read_token(token)["nats"]["imports"]
    assert [(one["type"], one["subject"]) for one in imports] == kinds
    assert {one["account"] for one in imports} == {store.public}


def test_an_operator_token_names_the_system_account() -> None:
    operator = new_key("operator")
    claims = read_token(operator_token(operator, name="dragoman", system="AX", now=1))
    assert claims["iss"] == claims["sub"] == operator.public
    assert claims["nats"]["system_account"] == "AX"


@pytest.mark.parametrize("text", ["", "a", "a.b.c", "a.e30x.c", "a.MQ.c"])
def test_invalid_tokens_are_rejected(text: str) -> None:
    with pytest.raises(UsageError):
        read_token(text)
