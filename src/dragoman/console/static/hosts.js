// The other machines in the settings, with the results of their last check and a button to check again.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { act, call, clock, peersVersion, rights } from "./connection.js";
import { age, clip, own } from "./text.js";

const STATES = { ok: "done", warning: "waiting", missing: "failed" };

function stateOf(host) {
  if (host.checking) return ["working", "checking …"];
  if (host.problem) return ["failed", "could not be checked"];
  if (host.check === null) return ["idle", "never checked"];
  return host.check.ok ? ["done", "ready"] : ["failed", "something is missing"];
}

function Findings({ host }) {
  return html`<div class="table-box" tabindex="0" role="region" aria-label="Findings on ${clip(host.name, 60)}"><table class="facts">
    <thead><tr><th scope="col">Item</th><th scope="col">Result</th><th scope="col">Details</th></tr></thead>
    <tbody>${host.check.findings.map((each) => html`<tr key=${each.name}>
      <th scope="row">${clip(each.name, 40)}</th>
      <td><span class="state ${own(STATES, each.state) ?? "idle"}">${clip(each.state, 20)}</span></td>
      <td>${clip(each.text, 400)}${each.remedy ? html`<br /><span class="remedy">What to do: ${clip(each.remedy, 400)}</span>` : null}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Host({ host }) {
  const [state, words] = stateOf(host);
  const check = () => act(() => call(`hosts/${encodeURIComponent(host.name)}/check`, {}), "Checking.");
  return html`<details class="card peer" aria-label=${clip(host.name, 60)}>
    <summary><strong>${clip(host.name, 60)}</strong> <span class="chip">${clip(host.destination, 100)}</span> <span class="state ${state}">${words}</span> <span class="about">${host.check === null ? "" : `checked ${age(clock.value - host.check.checkedAt)} ago`}</span></summary>
    ${rights.value === "act" && html`<div class="buttons"><button type="button" disabled=${host.checking} onClick=${check}>Check</button></div>`}
    ${host.problem && html`<p class="problem">${clip(host.problem, 1000)}</p>`}
    ${host.check === null && !host.problem && html`<p class="empty">A check shows what is installed there. It changes nothing.</p>`}
    ${host.check !== null && html`<${Findings} host=${host} />
      ${host.check.agents.length > 0 && html`<p class="about">Installed agents: ${host.check.agents.map((each) => `${clip(each.name, 60)}${each.version ? ` ${clip(each.version, 40)}` : ""}${each.enabled ? "" : " (not enabled)"}`).join(", ")}</p>`}`}
  </details>`;
}

export function Hosts() {
  const [told, setTold] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let over = false;
    call("hosts").then((found) => { if (!over) { setTold(found.hosts); setProblem(""); } }, (error) => { if (!over) setProblem(error.message); });
    return () => { over = true; };
  }, [peersVersion.value]);
  return html`<section aria-label="Other machines">
    <h2>Other machines${told === null ? "" : ` (${told.length})`}</h2>
    ${problem && html`<p class="problem" role="alert">${clip(problem, 1000)}</p>`}
    ${told !== null && !told.length && html`<p class="empty">No other machine is set up. Add one that you can reach with SSH: <code>dragoman hosts add BOX</code>. Then <code>dragoman run --host BOX</code> works there.</p>`}
    ${(told ?? []).map((host) => html`<${Host} key=${host.name} host=${host} />`)}
  </section>`;
}
