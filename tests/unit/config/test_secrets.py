"""Which values of an environment are secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dragoman.config.secrets import handed_values, redactor, secret_values

SECRET = "correct-horse-battery-staple"


def test_secrets_are_known_by_name_or_by_their_look() -> None:
    environ = {"ACME": "first secret", "X_API_KEY": "second secret", "Y_TOKEN": "ab", "Z": "plain"}
    assert secret_values(environ, ["ACME"]) == ("first secret", "second secret")


@pytest.mark.parametrize(
    "name",
    [
        *("PGPASSWORD", "MYSQL_PWD", "DB_PASS", "SSHPASS", "GITHUB_PAT", "API_KEY_PROD"),
        *("SECRET_ONE", "AUTH_TOKEN_2", "PASSWD_OF_MINE", "MYAPIKEY", "AWS_ACCESS_KEY_ID"),
    ],
)
def test_the_usual_names_of_credentials_are_known(name: str) -> None:
    assert secret_values({name: "something"}, ()) == ("something",)


@pytest.mark.parametrize(
    "name", ["PWD", "OLDPWD", "PATH", "TOKENIZERS_PARALLELISM", "KEYBOARD", "COMPASS", "BYPASS"]
)
def test_other_variables_are_not_credentials(name: str) -> None:
    assert secret_values({name: "something"}, ()) == ()


def test_what_a_user_hands_over_is_a_secret_if_it_is_long_enough_and_no_place(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder-of-mine").mkdir()
    environ = {
        "COLOUR": "eight888",
        "SHORT": "seven77",
        "HERE": str(tmp_path),
        "BELOW": "folder-of-mine",
        "PLACES": os.pathsep.join([str(tmp_path), "/usr", str(tmp_path / "folder-of-mine")]),
        "HALF": os.pathsep.join([str(tmp_path), "no-folder-at-all"]),
        "GONE": str(tmp_path / "is-not-there"),
        "ACME_ONE": "first of a kind",
        "ACME_TWO": "second of a kind",
        "UNNAMED": "nobody named it",
        "BLANK": " " * 20,
        "NUL": "\0 and more than eight",
    }
    names = ["COLOUR", "SHORT", "HERE", "BELOW", "PLACES", "HALF", "GONE", "ACME_*", "NUL", "BLANK"]
    assert set(handed_values(environ, names, tmp_path)) == {
        environ[name] for name in ("COLOUR", "HALF", "GONE", "ACME_ONE", "ACME_TWO", "NUL")
    }
    assert handed_values(environ, ["*"], tmp_path) == ()


def test_a_value_that_a_user_hands_over_is_redacted_whatever_the_name_of_its_variable(
    tmp_path: Path,
) -> None:
    environ = {"COLOUR": SECRET, "OTHER": SECRET[::-1]}
    redact = redactor((), environ, handed=["COLOUR"], workspace=tmp_path)
    text = redact.text(f"it is {SECRET} or {SECRET[::-1]}")
    assert SECRET not in text
    assert SECRET[::-1] in text, "it was not handed over"
