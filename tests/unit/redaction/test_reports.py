"""What strangers may not see is taken out, wherever it stands."""

from __future__ import annotations

from dragoman.redaction.reports import ReportRedactor


def test_the_home_folder_becomes_a_tilde_and_only_it() -> None:
    redact = ReportRedactor(homes=["/home/anna/"])
    assert redact("/home/anna/x:/home/anna") == "~/x:~"
    assert redact("/home/annabel/x") == "/home/annabel/x"


def test_values_of_secrets_are_cut_out_wherever_they_stand() -> None:
    redact = ReportRedactor(["hunter2hunter2", "oddly-named", "no"])
    assert redact("a hunter2hunter2 b visible oddly-named no") == (
        "a [redacted] b visible [redacted] no"
    )


def test_keys_of_known_makers_are_cut_out_though_no_variable_holds_them() -> None:
    key = "sk-" + "a1" * 12
    assert key not in ReportRedactor()(f"it said: bad key {key}!")


def test_folders_of_the_user_elsewhere_lose_the_name() -> None:
    redact = ReportRedactor(homes=["/Users/anna"], user="anna")
    assert redact("/mnt/anna/x") == "/mnt/USER/x"
    assert ReportRedactor(user="root")("/root/x") == "/root/x"
