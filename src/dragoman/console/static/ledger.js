// The ledger screen: cost, outcome and time of delegations, by day, role, peer or machine.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { call, peersVersion } from "./connection.js";
import { Chart } from "./chart.js";
import { age, clip, own } from "./text.js";

const NAMES = { day: "Day", role: "Role", peer: "Peer", machine: "Machine" };
const OUTCOMES = [{ name: "done", title: "done" }, { name: "failed", title: "not done" }, { name: "unfinished", title: "running or lost" }];
const SPANS = [[7200, "hours", 3600], [120, "minutes", 60], [0, "seconds", 1]];
const MAX_ROWS = 20;
const MAX_UNITS = 4; // of the charts; a peer may report any unit

// A sum may be too large for a number. Then it is null in the JSON.
function number(value) {
  if (value === null) return "too large to show";
  const digits = value >= 100 ? 0 : value >= 1 ? 2 : 4;
  return String(Number(value.toFixed(digits)));
}

function money(costs, estimated) {
  const told = Object.entries(costs).sort().map(([unit, amount]) => `${estimated ? "~" : ""}${number(amount)} ${clip(unit, 12)}`.trim());
  return told.join(" + ");
}

const labelOf = (row, by) => row.key ?? (by === "machine" ? "this machine" : "unknown");

function costNote(rows) {
  const unknown = rows.reduce((total, row) => total + row.costUnknown, 0);
  const estimated = rows.reduce((total, row) => total + row.costEstimated, 0);
  return [
    unknown ? `? The cost of ${unknown} ${unknown === 1 ? "attempt is" : "attempts is"} unknown because the peer did not report it. It is not included in the totals.` : "",
    estimated ? `~ The cost of ${estimated} ${estimated === 1 ? "attempt" : "attempts"} is estimated.` : "",
  ].filter(Boolean).join(" ");
}

function Spend({ rows, by }) {
  const units = [...new Set(rows.flatMap((row) => Object.keys(row.costs)))].sort();
  const left = units.length > MAX_UNITS ? `${units.length - MAX_UNITS} other units are in the table only.` : "";
  const note = [costNote(rows), left].filter(Boolean).join(" ");
  if (!units.length) return html`<section class="card chart" aria-label="Spend"><h2>Spend</h2><p class="empty">${note || "Nothing was spent."}</p></section>`;
  return units.slice(0, MAX_UNITS).map((unit) => html`<${Chart} key=${unit} title=${`Spend${units.length > 1 ? ` in ${clip(unit, 12)}` : ""}`} days=${by === "day"} unit=${clip(unit, 12) || "amount"} format=${number} note=${note}
    parts=${[{ name: "plain", title: "spend" }]} rows=${rows.map((row) => ({ label: labelOf(row, by), values: { plain: own(row.costs, unit) ?? 0 }, unknown: row.costUnknown }))} />`);
}

function Time({ rows, by }) {
  const most = Math.max(...rows.map((row) => row.totalSeconds));
  const [, unit, size] = SPANS.find(([from]) => most >= from);
  return html`<${Chart} title="Time" days=${by === "day"} unit=${unit} format=${number} parts=${[{ name: "plain", title: "time" }]}
    rows=${rows.map((row) => ({ label: labelOf(row, by), values: { plain: row.totalSeconds / size }, unknown: 0 }))} note="Total time of all attempts that have ended." />`;
}

function Table({ rows, by }) {
  const shown = by === "day" ? rows.filter((row) => row.attempts > 0).reverse() : rows;
  return html`<section class="card" aria-labelledby="numbers-title"><h2 id="numbers-title">Numbers</h2>
    <div class="table-box" tabindex="0" role="region" aria-label="Numbers by ${NAMES[by].toLowerCase()}"><table class="facts">
      <thead><tr><th scope="col">${NAMES[by]}</th><th scope="col" class="amount">Attempts</th><th scope="col" class="amount">Done</th><th scope="col" class="amount">Not done</th><th scope="col" class="amount">Running or lost</th><th scope="col" class="amount">Spend</th><th scope="col" class="amount">Unknown cost</th><th scope="col" class="amount">Time</th><th scope="col" class="amount">Average time</th></tr></thead>
      <tbody>${shown.map((row) => html`<tr key=${row.key}>
        <th scope="row">${clip(labelOf(row, by), 60)}</th><td class="amount">${row.attempts}</td><td class="amount">${row.done}</td><td class="amount">${row.failed}</td><td class="amount">${row.unfinished}</td>
        <td class="amount">${money(row.costs, row.costEstimated) || (row.costUnknown ? "unknown" : "none")}</td><td class="amount">${row.costUnknown ? `${row.costUnknown} of ${row.attempts - row.unfinished}` : "none"}</td>
        <td class="amount">${age(row.totalSeconds)}</td><td class="amount">${row.seconds === null ? "" : row.seconds < 10 ? `${row.seconds.toFixed(1)} s` : age(row.seconds)}</td>
      </tr>`)}</tbody>
    </table></div></section>`;
}

export function Ledger() {
  const [days, setDays] = useState(30);
  const [by, setBy] = useState("day");
  const [told, setTold] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let over = false;
    call(`ledger?days=${days}`).then((found) => { if (!over) { setTold(found); setProblem(""); } }, (error) => { if (!over) setProblem(error.message); });
    return () => { over = true; };
  }, [days, peersVersion.value]);
  if (problem) return html`<h1>Ledger</h1><p class="problem" role="alert">${clip(problem, 1000)}</p>`;
  if (told === null) return html`<h1>Ledger</h1><p class="empty">Loading …</p>`;
  const all = told[by];
  const rows = by === "day" ? all : all.slice(0, MAX_ROWS);
  const empty = !told.peer.length;
  return html`<div class="wide"><h1>Ledger</h1>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>By <select value=${by} onChange=${(event) => setBy(event.target.value)}>${Object.entries(NAMES).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label>
      <label>Period <select value=${String(days)} onChange=${(event) => setDays(Number(event.target.value))}><option value="7">7 days</option><option value="30">30 days</option><option value="90">90 days</option><option value="365">365 days</option></select></label>
    </form>
    ${empty
      ? html`<p class="empty">Nothing was delegated in this period. Delegate by role in <a href="#/work">Work</a> or in a terminal: <code>dragoman delegate review "look at the last commit"</code>. The ledger does not record prompts to a peer that you chose yourself.</p>`
      : html`<div class="charts">
          <${Spend} rows=${rows} by=${by} />
          <${Chart} title="Outcomes" days=${by === "day"} unit="attempts" whole=${true} format=${number} parts=${OUTCOMES} rows=${rows.map((row) => ({ label: labelOf(row, by), values: row, unknown: 0 }))} />
          <${Time} rows=${rows} by=${by} />
        </div>
        ${rows.length < all.length && html`<p class="empty">The charts show only the ${MAX_ROWS} with the most attempts. The table shows all of them.</p>`}
        <${Table} rows=${all} by=${by} />`}
  </div>`;
}
