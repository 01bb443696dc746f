"""What a name announces as a secret is taken out, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dragoman.redaction.names import REDACTED, SECRET_VARIABLE
from dragoman.redaction.redactor import Redactor

redact = Redactor().value

SECRET = "hunter2-hunter2"

MASKED: list[Any] = [
    {"apiKey": SECRET},
    {"api_key": SECRET},
    {"Authorization": f"Basic {SECRET}"},
    {"access_token": SECRET, "client-secret": SECRET, "PASSWORD": SECRET},
    {"env": {"ANTHROPIC_API_KEY": SECRET}},
    {"env": [{"name": "OPENAI_API_KEY", "value": SECRET}]},
    {"headers": [{"value": SECRET, "name": "Cookie"}]},
    {"credentials": {"user": "me", "code": SECRET}},
    {"tokens": [SECRET, [SECRET]]},
    {"command": "docker", "args": ["-e", f"GITHUB_TOKEN={SECRET}"]},
    {"url": f"https://me:{SECRET}@example.org/x"},
    {"rawInput": json.dumps({"apiKey": SECRET, "x": 1})},
    {"rawInput": json.dumps([{"name": "MY_TOKEN", "value": SECRET}])},
    {"passphrase": SECRET},
    {"file": f"A=1\nMY_API_KEY='{SECRET} {SECRET}'\nMY_TOKEN=\"{SECRET} {SECRET}\"\n"},
    {"quoted file": json.dumps(f"MY_API_KEY='{SECRET}'\nMY_TOKEN=\"{SECRET}\"\n")},
    {"lower": f"export my_api_key={SECRET}; run --password={SECRET} --auth-token '{SECRET}'"},
    {"query": f"https://example.org/x?access_token={SECRET}&api_key={SECRET}"},
    {"login": f"https://{SECRET}-{SECRET}@example.org/x"},
    {"argv": ["run", "--api-key", SECRET, "-password", SECRET]},
    {"basic": f"curl -H 'Authorization: Basic {SECRET}' -H 'X-Api-Key: {SECRET}' -b x"},
    {"cookie in a text": f"Set-Cookie: a={SECRET}; b={SECRET}\nDate: today"},
    {"told": f"the password: {SECRET}"},
]


@pytest.mark.parametrize("value", MASKED, ids=lambda value: "/".join(value))
def test_what_is_named_a_secret_is_masked(value: Any) -> None:
    masked = redact(value)
    assert SECRET not in json.dumps(masked)
    assert REDACTED in json.dumps(masked)
    assert set(masked) == set(value)


def test_a_bearer_in_the_middle_of_text_is_masked() -> None:
    assert redact("curl -H 'Authorization: Bearer abcdefgh12345'") == (
        f"curl -H 'Authorization: Bearer {REDACTED}'"
    )


def test_a_private_key_is_masked_whole() -> None:
    text = "-----BEGIN RSA PRIVATE KEY-----\nabc\ndef\n-----END RSA PRIVATE KEY-----"
    assert redact(f"key: {text} end") == f"key: {REDACTED} end"


@pytest.mark.parametrize(
    "value",
    [
        {"inputTokens": 12, "tokenUsage": {"total": 5, "ratio": 0.5}, "tokens": None},
        {"text": "the token is a word, and task-12345678 is no key"},
        {"name": "PATH", "value": "/usr/bin"},
        {"sessionId": "0193-abc", "token": ""},
        {"name": 5, "value": "x"},
        {"url": "https://example.org/a@b"},
        {"text": "if (token == other) { return password_is_set; }"},
        {"text": "max_tokens=4096 and --max-tokens 4096, token: string, a key: value"},
        {"args": ["--max-tokens", "4096", "-v", "x"]},
        {"args": ["run", 5, "--token=", None]},
        {"url": "ssh://git@example.org/x"},
    ],
    ids=lambda value: "/".join(value),
)
def test_what_is_not_a_secret_stays(value: Any) -> None:
    assert redact(value) == value


@pytest.mark.parametrize("name", ["API_KEY", "GITHUB_TOKEN", "PGPASS", "MY_PAT", "DB_PASSWORD"])
def test_variables_of_credentials_are_recognised_by_their_names(name: str) -> None:
    assert SECRET_VARIABLE.search(name)
    assert not SECRET_VARIABLE.search("MAX_TOKENIZERS")
