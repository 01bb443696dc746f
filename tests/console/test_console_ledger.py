"""The ledger screen in a real browser: charts and numbers of delegations."""

from __future__ import annotations

import time
from typing import Any

from dragoman.store.ledger import AttemptRecord, Ending, Ledger, ledger_path
from dragoman.store.values import Charge, Provenance
from tests.console.conftest import Served, Shot, Tabs, expect

DAY = 86_400.0


def delegate(console: Served, *words: str) -> int:
    return console.cli.child("delegate", "review", "--no-fallback", *words).code


def fill(console: Served) -> None:
    """Store attempts of the last three weeks, as delegations do."""
    now = time.time()
    with Ledger.open(ledger_path(console.cli.home / "state_home")) as ledger:
        for number in range(40):
            at = now - (number % 20 + 1) * DAY
            peer = ("codex", "gemini", "page")[number % 3]
            id = ledger.begin(
                f"d-{number}",
                {},
                AttemptRecord(
                    job=f"j-{number}",
                    decision_id=f"d-{number}",
                    number=1,
                    peer=peer,
                    machine="build-1" if number % 4 == 0 else None,
                    role=("review", "research", "execute")[number % 7 % 3],
                    started_at=at,
                ),
            )
            cost = Charge(
                amount=0.05 * (number % 8), currency="USD", provenance=Provenance.REPORTED
            )
            outcome = "ok" if number % 5 else "timed_out"
            end = at + 30 + 40 * (number % 6)
            ledger.finish(
                id,
                Ending(ended_at=end, outcome=outcome)
                if peer == "gemini"
                else Ending(ended_at=end, outcome=outcome, cost=cost),
            )


def test_the_ledger_shows_spend_outcomes_and_time_and_never_zero_for_unknown_cost(
    console: Served, tabs: Tabs
) -> None:
    page = tabs.open("#/ledger")
    page.get_by_text("Nothing was delegated in this period.").wait_for()
    assert delegate(console, "hello") == 0
    # It appears without a reload. Its cost is unknown.
    page.get_by_text("The cost of 1 attempt is unknown").wait_for()
    numbers = page.get_by_role("region", name="Numbers by day").get_by_role("row").nth(1)
    assert "unknown" in numbers.inner_text() and "0 USD" not in numbers.inner_text()
    assert delegate(console, "spend 0.25") == 0
    assert delegate(console, "quota") != 0
    page.get_by_role("img", name="Outcomes").wait_for()
    page.get_by_role("combobox", name="By").select_option("peer")
    row = page.get_by_role("row", name="page")
    row.get_by_text("2 of 3").wait_for()
    cells = row.get_by_role("cell").all_inner_texts()
    # Attempts, done, not done, running or lost, spend, unknown cost.
    assert cells[:6] == ["3", "2", "1", "0", "0.25 USD", "2 of 3"]
    spend = page.get_by_role("img", name="Spend").get_attribute("aria-label")
    assert spend == "Spend. page: 0.25, unknown for 2"
    expect(page.get_by_role("region", name="Spend").locator(".question")).to_have_count(1)
    page.get_by_role("combobox", name="By").select_option("role")
    page.get_by_role("row", name="review").wait_for()


def test_no_text_of_a_chart_is_cut_off(console: Served, tabs: Tabs, shot: Shot) -> None:
    fill(console)
    page = tabs.open("#/ledger", viewport={"width": 1280, "height": 1000})
    page.get_by_role("img", name="Spend").wait_for()
    expect(page.locator(".chart svg[role=img]")).to_have_count(3)
    shot(page, "ledger")
    for by in ("role", "peer"):
        page.get_by_role("combobox", name="By").select_option(by)
        page.get_by_role("region", name=f"Numbers by {by}").wait_for()
        inside(page)
    shot(page, "ledger-peers")
    page.get_by_role("combobox", name="By").select_option("machine")
    machines = page.get_by_role("region", name="Numbers by machine")
    machines.get_by_role("row", name="this machine 30").wait_for()
    machines.get_by_role("row", name="build-1 10").wait_for()
    page.get_by_role("combobox", name="Period").select_option("7")
    page.get_by_role("combobox", name="By").select_option("day")
    page.get_by_role("region", name="Numbers by day").wait_for()
    inside(page)


def inside(page: Any) -> None:
    """Assert that no text of a chart is cut off at its edge."""
    cut = page.evaluate("""() => [...document.querySelectorAll("svg[role=img]")].flatMap((svg) => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll("text")].filter((each) => {
            const at = each.getBoundingClientRect();
            return at.left < box.left - 1 || at.right > box.right + 1 || at.bottom > box.bottom + 1;
        }).map((each) => each.textContent);
    })""")
    assert cut == []


def test_the_ledger_fits_a_phone_and_works_with_the_keyboard_alone(
    console: Served, tabs: Tabs, shot: Shot
) -> None:
    fill(console)
    page = tabs.open("#/ledger", viewport={"width": 390, "height": 844})
    page.get_by_role("img", name="Spend").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside(page)
    shot(page, "phone-ledger")
    page.get_by_role("combobox", name="By").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.get_by_role("region", name="Numbers by peer").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    inside(page)
