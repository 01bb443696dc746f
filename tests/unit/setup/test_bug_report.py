"""A bug report helps, and holds no secret."""

from __future__ import annotations

from pathlib import Path

from dragoman.config.secrets import report_redactor
from dragoman.setup.bug_report import compose, shown_variables
from dragoman.setup.doctor import CheckState, Diagnosis
from tests.unit.runs.contexts import place_in, program


def test_a_report_has_what_helps_and_nothing_that_is_secret(tmp_path: Path) -> None:
    program(tmp_path, "gemini")
    environ = {
        "HOME": str(tmp_path),
        "GEMINI_API_KEY": "a-very-secret-value",
        "GOOGLE_CLOUD_PROJECT": "private-project",
        "EDITOR": "unlisted",
        "LANG": "C.UTF-8",
        "DRAGOMAN_FORMAT": "json",
    }
    place = place_in(tmp_path, environ)
    finding = Diagnosis("config", CheckState.BAD, "the key a-very-secret-value was refused", "cure")
    text = compose(place, [finding], versions="dragoman 1\nCPython 3\n")
    assert text.startswith("dragoman 1\nCPython 3\n")
    assert "bad   config       the key [redacted] was refused" in text
    assert (
        "gemini unknown: not enabled, card none, credential variables set: GEMINI_API_KEY" in text
    )
    assert "format = 'json'  (DRAGOMAN_FORMAT)" in text
    assert "LANG=C.UTF-8" in text
    assert "PATH=~/bin" in text
    for hidden in ("a-very-secret-value", "private-project", "unlisted", str(tmp_path)):
        assert hidden not in text


def test_variables_are_shown_by_an_allow_list() -> None:
    environ = {"PATH": "/bin", "SECRET_THING": "x", "LANG": "C", "HOME": "/h", "EDITOR": "vi"}
    assert shown_variables(environ) == {"PATH": "/bin", "LANG": "C"}


def test_values_are_told_by_the_names_of_their_variables() -> None:
    environ = {"MY_TOKEN": "hunter2hunter2", "X": "oddly-named", "PLAIN": "visible", "A_KEY": "no"}
    redact = report_redactor(environ, names=("X",))
    assert redact("a hunter2hunter2 b visible oddly-named no") == (
        "a [redacted] b visible [redacted] no"
    )
