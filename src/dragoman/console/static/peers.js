// The peers screen: whether each peer can be used, for which roles and why not, its health and its
// card; verify, enable, disable, unpark.
import { useEffect, useState } from "preact/hooks";
import { Hosts } from "./hosts.js";
import { html } from "./html.js";
import { act, call, clock, peersVersion, rights, verifications } from "./connection.js";
import { age, clip, oneLine, own, printed, until } from "./text.js";

const VERDICTS = { pass: "ok", warn: "warning", fail: "failed", skipped: "not tried" };
const STATES = { pass: "done", warn: "waiting", fail: "failed", skipped: "idle" };

function Rungs({ rungs, label }) {
  return html`<div class="table-box" tabindex="0" role="region" aria-label=${label}><table class="facts">
    <thead><tr><th scope="col">Step</th><th scope="col">Result</th><th scope="col">Details</th><th scope="col" class="amount">Time</th></tr></thead>
    <tbody>${rungs.map((each) => html`<tr key=${each.rung}>
      <th scope="row">${clip(each.rung, 40)}</th>
      <td><span class="state ${own(STATES, each.verdict) ?? "idle"}">${own(VERDICTS, each.verdict) ?? clip(each.verdict, 20)}</span></td>
      <td>${printed(each.evidence, 400)}${each.remedy && each.verdict !== "pass" ? html`<br /><span class="remedy">What to do: ${clip(each.remedy, 400)}</span>` : null}</td>
      <td class="amount">${each.seconds >= 0.05 ? `${each.seconds.toFixed(1)} s` : ""}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

function Verification({ shown, stop, may }) {
  const running = shown.state === "running";
  return html`<section class="verification" aria-label="Verification">
    <p role="status">${running ? `Verifying … ${shown.rungs.length} steps done` : shown.problem ? "" : clip(shown.summary, 1000)}</p>
    ${shown.problem && html`<p class="problem">${printed(shown.problem, 1000)}</p>`}
    ${shown.rungs.length > 0 && html`<${Rungs} rungs=${shown.rungs} label="Steps of the verification" />`}
    ${running && html`<div class="buttons"><button type="button" class="stop" disabled=${!may} onClick=${stop}>Stop verifying</button></div>`}
  </section>`;
}

function Standings({ peer }) {
  if (!peer.standings.length) return html`<p class="empty">It has no roles, so it is used only when you name it.</p>`;
  return html`<div class="table-box" tabindex="0" role="region" aria-label="Roles of ${clip(peer.name, 60)}"><table class="facts">
    <thead><tr><th scope="col">Role</th><th scope="col">Position</th><th scope="col">Reason</th></tr></thead>
    <tbody>${peer.standings.map((each) => html`<tr key=${each.role}>
      <th scope="row">${clip(each.role, 60)}</th>
      <td>${each.position === null ? html`<span class="state failed">not used</span>` : html`<span class="state done">${each.position}.</span>`}</td>
      <td>${each.until !== null ? `until ${until(each.until)}: ` : ""}${clip(each.why, 600)}${each.measured ? html`<br /><span class="remedy">${clip(each.measured, 300)}</span>` : null}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

const BREAKERS = { open: "failed too often: not used for now", half_open: "failed too often: the next use is a trial" };

function Health({ peer }) {
  const { health } = peer;
  const facts = [];
  if (peer.parked) facts.push(["Parked", `until ${until(peer.parked.until)}${peer.parked.why ? `: ${printed(peer.parked.why, 400)}` : ""}`]);
  if (health === null) facts.push(["Health", "nothing was delegated to it yet"]);
  else {
    if (health.breaker !== "closed") facts.push(["Health", own(BREAKERS, health.breaker) ?? clip(health.breaker, 40)]);
    facts.push(["Failures in a row", String(health.failures)]);
    if (health.lastOkAt !== null) facts.push(["Last success", `${age(clock.value - health.lastOkAt)} ago`]);
    if (health.lastFailedAt !== null) facts.push(["Last failure", `${age(clock.value - health.lastFailedAt)} ago${health.lastError ? `: ${printed(health.lastError, 400)}` : ""}`]);
    if (health.handshakeSeconds !== null) facts.push(["First response", `${health.handshakeSeconds.toFixed(1)} s`]);
  }
  return html`<dl class="pairs">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

function Facts({ peer }) {
  const facts = [
    ["Command", peer.launch],
    ["Missing", peer.installed ? "" : peer.missing],
    ["Install", peer.installed ? "" : peer.install],
    ["Version", peer.installed ? peer.version ?? "unknown" : ""],
    ["Protocol", peer.protocol],
    ["Login", peer.login],
    ["Notes", peer.notes.join("; ")],
    ["About", peer.about],
  ].filter(([, value]) => value);
  return html`<dl class="pairs">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${clip(value, 600)}</dd></div>`)}</dl>`;
}

function stateOf(peer) {
  if (!peer.installed) return ["idle", "not installed"];
  if (!peer.enabled) return ["idle", "not enabled"];
  if (peer.parked) return ["waiting", `parked until ${until(peer.parked.until)}`];
  if (peer.health?.breaker === "open") return ["failed", "failed too often"];
  return ["done", peer.standings.some((each) => each.position !== null) ? "used" : "enabled, not used"];
}

// Why a peer is not used for any of its roles: the reason of the first one.
function whyNot(peer) {
  const against = peer.standings.filter((each) => each.position === null);
  if (!against.length || against.length < peer.standings.length) return "";
  return against[0].why;
}

function Peer({ peer }) {
  const [open, setOpen] = useState(false);
  const [turns, setTurns] = useState(false);
  const may = rights.value === "act";
  const shown = verifications.value.get(peer.name);
  const base = `peers/${encodeURIComponent(peer.name)}`;
  const send = (word, body, done) => act(() => call(`${base}/${word}`, body ?? {}), done);
  const change = async (word, done) => {
    const told = await act(() => call(`${base}/${word}`, {}), done);
    if (told?.notes?.length) await act(async () => told, told.notes.join(" "));
  };
  const [state, words] = stateOf(peer);
  const stuck = peer.parked || (peer.health !== null && (peer.health.failures > 0 || peer.health.breaker !== "closed"));
  const running = shown?.state === "running";
  return html`<details class="card peer" open=${open || running} onToggle=${(event) => setOpen(event.target.open)}>
    <summary><strong>${clip(peer.title || peer.name, 60)}</strong> <span class="chip">${clip(peer.name, 60)}</span> <span class="state ${state}">${words}</span> <span class="about">${peer.card === null ? "not verified" : `card: ${clip(peer.cardState, 80)}`}</span>${peer.installed && whyNot(peer) && html`<span class="notice">Not used: ${clip(whyNot(peer), 600)}</span>`}</summary>
    ${may && html`<div class="buttons">
      ${!peer.always && (peer.enabled
        ? html`<button type="button" onClick=${() => change("disable", "Disabled.")}>Disable</button>`
        : html`<button type="button" class="primary" onClick=${() => change("enable", "Enabled.")}>Enable</button>`)}
      ${stuck && html`<button type="button" onClick=${() => send("unpark", {}, "Unparked.")}>Unpark</button>`}
      <button type="button" disabled=${running || !peer.installed} onClick=${() => send("verify", { turns }, "Verifying.")}>Verify</button>
      <label class="check"><input type="checkbox" checked=${turns} disabled=${running || !peer.installed} onChange=${(event) => setTurns(event.target.checked)} /> with turns: calls its model and may cost money</label>
    </div>`}
    ${(open || running) && html`
      ${shown && html`<${Verification} shown=${shown} may=${may} stop=${() => send("verify/stop", {}, "Stopping.")} />`}
      <h3>Roles</h3><${Standings} peer=${peer} />
      <h3>Health</h3><${Health} peer=${peer} />
      <h3>Card</h3>
      ${peer.card === null
        ? html`<p class="empty">Not verified yet. Verify it to see what it can do; this changes nothing.</p>`
        : html`<p class="about">Version ${clip(peer.card.version ?? "unknown", 60)}, measured on ${clip(peer.card.measuredAt, 10)}: ${clip(peer.card.proved, 300)}</p>${!shown && html`<${Rungs} rungs=${peer.card.rungs} label="Steps of the last verification" />`}`}
      <h3>Facts</h3><${Facts} peer=${peer} />`}
  </details>`;
}

export function Peers() {
  const [told, setTold] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let over = false;
    call("peers/status").then((found) => { if (!over) { setTold(found); setProblem(""); } }, (error) => { if (!over) setProblem(error.message); });
    return () => { over = true; };
  }, [peersVersion.value]);
  if (problem) return html`<h1>Peers</h1><p class="problem" role="alert">${clip(problem, 1000)}</p>`;
  if (told === null) return html`<h1>Peers</h1><p class="empty">Loading …</p>`;
  const groups = [
    ["Enabled", told.peers.filter((peer) => peer.installed && peer.enabled), "No peer is enabled. Delegation uses only enabled peers: enable one below."],
    ["Installed, not enabled", told.peers.filter((peer) => peer.installed && !peer.enabled), "Every installed peer is enabled."],
    ["Not installed", told.peers.filter((peer) => !peer.installed), "Every known peer is installed."],
  ];
  return html`<div class="wide"><h1>Peers</h1>
    <p class="empty">As seen from your home directory. A project may have its own settings.</p>
    ${told.problems.map((each) => html`<p class="problem">${oneLine(each, 400)}</p>`)}
    ${groups.map(([title, peers, empty]) => html`<section key=${title} aria-label=${title}>
      <h2>${title} (${peers.length})</h2>
      ${!peers.length && html`<p class="empty">${empty}</p>`}
      ${peers.map((peer) => html`<${Peer} key=${peer.name} peer=${peer} />`)}
    </section>`)}
    <${Hosts} /></div>`;
}
