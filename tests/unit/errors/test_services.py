"""What errors of files and terminals say."""

from __future__ import annotations

from dragoman.errors import (
    BrokerUnavailable,
    FileMissing,
    NotPermitted,
    PathRefused,
    ServiceError,
    StoreBusy,
    StoreConflict,
    StoreCorrupt,
    StoreTooNew,
    TooLarge,
)


def test_each_names_what_it_is_about() -> None:
    assert str(PathRefused("/x", "outside")) == "'/x' is refused: outside"
    assert "does not exist" in str(FileMissing("/x"))
    assert "10 bytes" in str(TooLarge("/x", 10, "12 bytes"))
    assert str(NotPermitted("rm")) == "'rm' is not permitted"


def test_errors_of_services_are_the_peers_fault_unless_they_say_otherwise() -> None:
    assert ServiceError("x").blame == "peer"


def test_an_error_of_the_store_names_its_file_and_the_remedy() -> None:
    error = StoreTooNew("/s/sessions.db", "a newer dragoman wrote it", remedy="upgrade")
    assert str(error) == "/s/sessions.db: a newer dragoman wrote it; upgrade"


def test_only_a_busy_store_is_worth_another_try_and_a_conflict_is_ours() -> None:
    assert StoreBusy("f", "x").retryable and not StoreTooNew("f", "x").retryable
    assert (StoreBusy("f", "x").blame, StoreConflict("f", "x").blame) == ("world", "us")


def test_a_damaged_store_is_worth_another_try_if_it_was_replaced() -> None:
    assert StoreCorrupt("f", "x", damaged=True, replaced=True).retryable
    assert not StoreCorrupt("f", "x", damaged=True).retryable


def test_an_unavailable_broker_is_not_the_peers_fault() -> None:
    assert not BrokerUnavailable("no").may_have_run
