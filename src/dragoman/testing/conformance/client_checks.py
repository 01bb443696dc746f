"""The checks of a client, and the record of their findings.

Lists the client checks and defines the `Record` that a probe fills while it runs. `probe` and
`probe_services` implement the checks. A check that is never tried stays skipped, with the reason
given here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dragoman.testing.conformance.checks import Check
from dragoman.testing.conformance.conversation import Violation
from dragoman.testing.conformance.report import Finding, Report, Verdict

NO_HANDSHAKE: Final = "the client did not complete the handshake"
NO_SESSION: Final = "the client did not open a session"
NO_PROMPT: Final = "the client did not send a prompt"
NO_CANCEL: Final = 'the client did not send a prompt with the word "cancel" and cancel it'
NOT_LEFT: Final = "the client had disconnected by then"


def _check(name: str, why: str, *ids: str, says: str, advisory: bool = False) -> tuple[Check, str]:
    return Check(name, "client", ids, says, advisory), why


ALL: Final[tuple[tuple[Check, str], ...]] = (
    _check(
        "handshake_comes_first", NO_HANDSHAKE, "ACP1-INIT-01", "ACP1-PRM-01", "ACP1-TRN-07",
        says="Over stdio, the first message is `initialize`, and prompts follow a session.",
    ),
    _check(
        "version_is_a_whole_number", NO_HANDSHAKE, "ACP1-INIT-02",
        says="`protocolVersion` is a whole number.",
    ),
    _check(
        "capabilities_are_told", NO_HANDSHAKE, "ACP1-INIT-03", "ACP1-CAP-03", "ACP1-CAP-04",
        says="`clientCapabilities` has switches that are booleans and markers that are objects.",
    ),
    _check(
        "client_names_itself", NO_HANDSHAKE, "ACP1-INIT-08",
        says="`clientInfo` has a name and a version.",
    ),
    _check(
        "unknown_version_ends_it", NO_HANDSHAKE, "ACP1-INIT-05", "ACP1-INIT-06",
        says="A client that does not speak the agreed version opens no session.", advisory=True,
    ),
    _check(
        "session_folder_is_absolute", NO_SESSION, "ACP1-SES-01", "ACP1-RPC-08",
        says="The `cwd` of a session is absolute.",
    ),
    _check(
        "servers_are_always_listed", NO_SESSION, "ACP1-SES-02",
        says="`session/new` has a list `mcpServers`, which may be empty.",
    ),
    _check(
        "only_advertised_methods_are_called", NO_HANDSHAKE,
        "ACP1-CAP-01", "ACP1-LOAD-01", "ACP1-RES-01", "ACP1-LIST-01", "ACP1-DEL-01",
        "ACP1-CLOSE-01", "ACP1-AUTH-05", "ACP1-AUTH-08", "ACP1-AUTH-11",
        says="An agent that advertises nothing gets only session and prompt requests.",
    ),
    _check(
        "only_advertised_content_is_sent", NO_SESSION,
        "ACP1-PRM-02", "ACP1-DIR-01", "ACP1-DIR-02", "ACP1-MCP-02",
        says="Prompts contain text and links; no additional directories and no servers on the "
        "network are sent.",
    ),
    _check(
        "bare_agent_is_enough", NO_PROMPT, "ACP1-CAP-02", "ACP1-CAP-09",
        says="An agent without capabilities, or with malformed ones, gets its prompt.",
    ),
    _check(
        "early_updates_are_survived", NO_PROMPT, "ACP1-SES-09",
        says="An update for a session whose id is not known yet is tolerated.",
    ),
    _check(
        "unknown_extension_is_refused", NO_PROMPT, "ACP1-EXT-04",
        says="A request with an unknown extension method is refused with -32601.",
    ),
    _check(
        "unknown_method_is_refused", NO_PROMPT, "ACP1-RPC-10", "ACP1-ERR-01",
        says="A request with an unknown method is refused with -32601.", advisory=True,
    ),
    _check(
        "ids_are_echoed_as_they_came", NO_PROMPT, "ACP1-RPC-02", "ACP1-RPC-07",
        says="A response has the id of its request, with the same type, "
        "whatever ids the client uses.",
    ),
    _check(
        "unknown_notification_is_ignored", NO_PROMPT,
        "ACP1-RPC-03", "ACP1-EXT-05", "ACP1-RCAN-04", "ACP1-RCAN-07",
        says="Unknown notifications and `$/cancel_request` without a request get no response.",
    ),
    _check(
        "unknown_updates_are_survived", NO_PROMPT, "ACP1-FWD-03", "ACP1-FWD-04", "ACP1-TOOL-10",
        says="Updates of unknown kinds and with unknown values are tolerated.",
    ),
    _check(
        "malformed_updates_are_survived", NO_PROMPT, "ACP1-FWD-01", "ACP1-FWD-02",
        says="Optional members of the wrong type and invalid list items are tolerated.",
    ),
    _check(
        "noise_is_survived", NO_PROMPT, "ACP1-TRN-11",
        says="Lines that are not JSON are tolerated.",
    ),
    _check(
        "odd_json_is_survived", NO_PROMPT, "ACP1-TRN-09", "ACP1-TRN-11",
        says="JSON lines that are not messages, such as batches, are tolerated.",
    ),
    _check(
        "stray_answer_is_survived", NO_PROMPT, "ACP1-RPC-11",
        says="Responses to requests that were never sent are tolerated.",
    ),
    _check(
        "large_update_is_taken", NO_PROMPT, "ACP1-TRN-10",
        says="An update of two megabytes is accepted.",
    ),
    _check(
        "permission_gets_an_offered_option", NO_PROMPT,
        "ACP1-CAP-07", "ACP1-PERM-02", "ACP1-PERM-05",
        says="The response to a permission request is one of its options, or cancelled.",
    ),
    _check(
        "unknown_kinds_are_not_chosen", NO_PROMPT, "ACP1-PERM-06",
        says="An option of an unknown kind is never chosen.",
    ),
    _check(
        "called_off_permission_is_answered", NO_PROMPT, "ACP1-RCAN-02", "ACP1-RCAN-06",
        says="A cancelled permission request still gets a response.",
    ),
    _check(
        "missing_params_are_refused", NO_PROMPT, "ACP1-FWD-05",
        says="A permission request with missing members is refused with -32602.",
    ),
    _check(
        "services_not_offered_are_refused", NO_PROMPT, "ACP1-CAP-01", "ACP1-ELI-01", advisory=True,
        says="Requests for files, terminals and elicitation that the client did not offer "
            "are refused.",
    ),
    _check(
        "files_are_written_and_read", NO_PROMPT, "ACP1-FS-02", "ACP1-FS-03", "ACP1-RPC-09",
        says="Writing creates a file, which can be read completely and by lines.",
    ),
    _check(
        "wrong_paths_are_refused", NO_PROMPT, "ACP1-FS-04",
        says="A missing file gets -32002, a relative path -32602.",
    ),
    _check(
        "terminals_run_and_are_released", NO_PROMPT,
        "ACP1-TERM-02", "ACP1-TERM-04", "ACP1-TERM-05", "ACP1-TERM-08",
        says="A command runs, its output and exit status can be read, and it is gone after its "
        "release.",
    ),
    _check(
        "terminal_output_loses_its_beginning", NO_PROMPT, "ACP1-TERM-03",
        says="Output over the limit loses its beginning, at a character boundary.",
    ),
    _check(
        "killed_terminal_can_be_read", NO_PROMPT, "ACP1-TERM-06",
        says="After `terminal/kill` the output and the exit status can still be read.",
    ),
    _check(
        "form_is_accepted_declined_or_cancelled", NO_PROMPT, "ACP1-ELI-10",
        says="A form is answered with accept, decline or cancel.",
    ),
    _check(
        "unknown_way_of_asking_is_refused", NO_PROMPT, "ACP1-ELI-20", advisory=True,
        says="An elicitation in an unknown mode is refused, or at least not accepted.",
    ),
    _check(
        "unknown_question_done_is_ignored", NO_PROMPT, "ACP1-ELI-15",
        says="The completion of an unknown elicitation is ignored.",
    ),
    _check(
        "one_prompt_at_a_time", NO_PROMPT, "ACP1-PRM-07",
        says="No second prompt is sent to a session while one is running.",
    ),
    _check(
        "late_updates_are_survived", NO_PROMPT, "ACP1-PRM-09",
        says="Updates after the response to a prompt are tolerated.",
    ),
    _check(
        "cancel_is_a_notification", NO_CANCEL, "ACP1-CAN-01",
        says="`session/cancel` is a notification and has the session id.", advisory=True,
    ),
    _check(
        "open_questions_are_cancelled", NO_CANCEL, "ACP1-CAN-03", "ACP1-PERM-04",
        says="A permission request that is open when the turn is cancelled gets the response "
        "cancelled.",
    ),
    _check(
        "questions_after_a_cancel_are_cancelled", NO_CANCEL, "ACP1-PERM-04", advisory=True,
        says="A permission request that crosses the cancel gets the response cancelled too.",
    ),
    _check(
        "updates_after_a_cancel_are_taken", NO_CANCEL, "ACP1-CAN-08",
        says="Updates after a cancel are tolerated.",
    ),
    _check(
        "input_is_only_messages", NO_HANDSHAKE,
        "ACP1-TRN-01", "ACP1-TRN-02", "ACP1-TRN-04", "ACP1-TRN-09",
        says="Every line that the client sends is one message in UTF-8.",
    ),
    _check(
        "messages_are_well_formed", NO_HANDSHAKE, "ACP1-RPC-01", "ACP1-RPC-04",
        says='Every message has `"jsonrpc": "2.0"`, and every response has exactly one of result '
            "and error.",
    ),
    _check(
        "custom_fields_stay_in_meta", NO_HANDSHAKE, "ACP1-EXT-01",
        says="Objects of the protocol have no unknown members, except in `_meta`.",
    ),
    _check(
        "end_of_input_ends_the_agent", "the agent ended in another way", "ACP1-TRN-06",
        says="The client ends the agent by closing its input.",
    ),
)  # fmt: skip

CHECKS: Final[dict[str, Check]] = {check.name: check for check, _ in ALL}


class Record:
    """The findings so far. A failure is never replaced by a pass."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._found = {check.name: check.finding(Verdict.SKIPPED, reason=why) for check, why in ALL}

    def passed(self, name: str) -> None:
        if self._found[name].verdict is Verdict.SKIPPED:
            self._set(CHECKS[name].finding(Verdict.PASSED))

    def failed(self, name: str, violation: Violation) -> None:
        self._set(
            CHECKS[name].finding(
                Verdict.FAILED, reason=violation.reason, evidence=violation.evidence
            )
        )

    def skipped(self, name: str, reason: str) -> None:
        if self._found[name].verdict is Verdict.SKIPPED:
            self._set(CHECKS[name].finding(Verdict.SKIPPED, reason=reason))

    def findings(self) -> tuple[Finding, ...]:
        return tuple(self._found.values())

    def _set(self, finding: Finding) -> None:
        if self._found[finding.check] != finding:
            self._found[finding.check] = finding
            self._on_change()


_RANK: Final = {Verdict.SKIPPED: 0, Verdict.PASSED: 1, Verdict.WARNED: 2, Verdict.FAILED: 3}


def merged(reports: list[Report]) -> Report:
    """Merge the reports of several runs of the same client: keep the worst finding of each check,
    and prefer any other verdict to skipped."""
    best = {finding.check: finding for finding in reports[0].findings}
    for report in reports[1:]:
        for finding in report.findings:
            if _RANK[finding.verdict] > _RANK[best[finding.check].verdict]:
                best[finding.check] = finding
    return Report("client", reports[0].subject, tuple(best.values()), reports[0].peer)
