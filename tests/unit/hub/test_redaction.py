"""What strangers may not see is taken out, wherever it stands."""

from __future__ import annotations

from dragoman.hub.redaction import Redaction, shown_variables


def test_the_home_folder_becomes_a_tilde_and_only_it() -> None:
    redact = Redaction({"HOME": "/home/anna"})
    assert redact("/home/anna/x:/home/anna") == "~/x:~"
    assert redact("/home/annabel/x") == "/home/annabel/x"


def test_values_of_secrets_are_cut_out_wherever_they_stand() -> None:
    redact = Redaction(
        {"MY_TOKEN": "hunter2hunter2", "PLAIN": "visible", "X": "oddly-named", "A_KEY": "no"},
        secret_names=("X",),
    )
    assert redact("a hunter2hunter2 b visible oddly-named no") == (
        "a [redacted] b visible [redacted] no"
    )


def test_a_secret_that_holds_another_leaves_nothing_behind() -> None:
    redact = Redaction({"A_TOKEN": "abcdef", "B_TOKEN": "abcdefghij"})
    assert redact("abcdefghij") == "[redacted]"


def test_keys_of_known_makers_are_cut_out_though_no_variable_holds_them() -> None:
    key = "sk-" + "a1" * 12
    assert key not in Redaction({})(f"it said: bad key {key}!")


def test_a_password_in_an_address_is_cut_out() -> None:
    assert Redaction({})("http://me:pass@proxy:80/x") == "http://[redacted]@proxy:80/x"


def test_folders_of_the_user_elsewhere_lose_the_name() -> None:
    redact = Redaction({"USER": "anna", "HOME": "/Users/anna"})
    assert redact("/mnt/anna/x") == "/mnt/USER/x"
    assert Redaction({"USER": "root"})("/root/x") == "/root/x"


def test_variables_are_shown_by_an_allow_list() -> None:
    environ = {"PATH": "/bin", "SECRET_THING": "x", "LANG": "C", "HOME": "/h", "EDITOR": "vi"}
    assert shown_variables(environ) == {"PATH": "/bin", "LANG": "C"}
