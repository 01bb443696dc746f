"""Hosts in the settings: which names, destinations and paths are rejected."""

from __future__ import annotations

import pytest

from dragoman.config.hosts import check_host, destination_of, destination_problem, name_problem
from dragoman.config.schema import HostSettings
from dragoman.errors import ConfigInvalid


@pytest.mark.parametrize("name", ["box", "Box-2", "_x", "9"])
def test_names_of_letters_digits_and_hyphens_are_allowed(name: str) -> None:
    assert name_problem(name) == ""


@pytest.mark.parametrize("name", ["", "-box", "a.b", "a b", "a/b", "a\n", "x" * 65])
def test_names_that_are_unsafe_in_a_command_line_or_key_are_rejected(name: str) -> None:
    assert "is not a valid host name" in name_problem(name)


@pytest.mark.parametrize(
    "text", ["box", "me@box.example.org", "ssh://me@[::1]:2222", "10.0.0.7", "DOMAIN\\me@büro"]
)
def test_valid_ssh_destinations_are_allowed(text: str) -> None:
    assert destination_problem(text) == ""


@pytest.mark.parametrize(
    "text",
    ["", "-oProxyCommand=x", "me@-oProxyCommand=x", "ssh://-x", "a b", "a\nb", "me@", "a\0"],
)
def test_destinations_that_ssh_could_treat_as_options_are_rejected(text: str) -> None:
    assert destination_problem(text)


@pytest.mark.parametrize("text", ["a;b", "me@$(x)", "`x`", "me@a'b", 'a"b', "a|b", "a&b", "a>b"])
def test_a_destination_that_a_shell_would_interpret_is_refused(text: str) -> None:
    assert "a shell would interpret" in destination_problem(text)


@pytest.mark.parametrize(
    ("host", "key"),
    [
        (HostSettings(destination="-x"), "hosts.box.destination"),
        (HostSettings(dragoman="bin/dragoman"), "hosts.box.dragoman"),
        (HostSettings(dragoman="/bin/x\ny"), "hosts.box.dragoman"),
        (HostSettings(workspace="~/src"), "hosts.box.workspace"),
        (HostSettings(ssh_options=("-p", "2\0")), "hosts.box.ssh_options"),
    ],
)
def test_an_invalid_value_names_its_key(host: HostSettings, key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        check_host("box", host, origin="config.toml")
    assert caught.value.key == key


def test_the_destination_is_the_name_unless_it_is_set() -> None:
    assert destination_of("box", HostSettings()) == "box"
    assert destination_of("box", HostSettings(destination="me@lab")) == "me@lab"
