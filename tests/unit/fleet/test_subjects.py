"""Subjects and rights of members. tests/fleet tests that the server enforces them."""

from __future__ import annotations

import pytest

from dragoman.errors import UsageError
from dragoman.fleet import subjects


@pytest.mark.parametrize("name", ["w1", "build-1", "a_b", "A" * 40])
def test_valid_names_are_accepted(name: str) -> None:
    assert subjects.require_name(name) == name


@pytest.mark.parametrize("name", ["", "a.b", "*", ">", "a b", "-a", "A" * 41, "ä"])
def test_names_that_are_not_a_single_subject_token_are_rejected(name: str) -> None:
    with pytest.raises(UsageError):
        subjects.require_name(name)


def test_members_publish_only_to_subjects_with_their_name_or_for_reading() -> None:
    for kind in ("worker", "submitter"):
        rights = subjects.rights_of(kind, "NAME")
        for subject in rights.publish:
            assert ".NAME" in subject or subject.startswith("$JS.API.DIRECT.GET.")


def test_no_member_may_create_a_consumer_or_write_a_job_record() -> None:
    for kind in ("worker", "submitter"):
        told = " ".join(subjects.rights_of(kind, "NAME").publish)
        assert "CONSUMER" not in told and "STREAM" not in told
        assert not any(word.startswith("$KV") for word in told.split())


def test_no_message_of_a_member_reaches_the_records_or_the_administration_of_the_streams() -> None:
    for subject in subjects.SHARED.services:
        assert subject.startswith("$JS.API.DIRECT.GET.") or not subject.startswith("$"), subject
    assert subjects.DRAIN not in subjects.SHARED.services


def test_every_right_of_a_member_leads_to_what_is_shared() -> None:
    shared = subjects.SHARED
    for kind in ("worker", "submitter"):
        rights = subjects.rights_of(kind, "NAME")
        for subject in rights.publish:
            assert subject.replace("NAME", "*") in shared.services, subject
        for subject in rights.subscribe:
            if not subject.startswith("_INBOX"):
                wanted = subject.replace("NAME", "*")
                assert wanted in (*shared.streams, subjects.EVENT_SUBJECTS), subject


def test_a_join_code_has_one_right() -> None:
    assert subjects.join_rights("join-1").publish == ("join.join-1",)
