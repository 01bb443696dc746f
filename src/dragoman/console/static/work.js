// The work screen: the sessions and jobs of all projects with their state, filters, and new work.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { Ago, Since } from "./ago.js";
import { act, call, fleetProblem, fleets, rights, work } from "./connection.js";
import { stateWords } from "./session.js";
import { clip, oneLine, printed } from "./text.js";

const LISTED = 300; // maximum number of sessions that the server lists
const STATES = ["waiting", "working", "queued", "parked", "failed", "done", "idle"];

function NewWork() {
  const [known, setKnown] = useState(null);
  const [busy, setBusy] = useState(false);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (open && known === null) act(() => call("peers")).then((told) => told && setKnown(told));
  }, [open]);
  const start = async (event) => {
    event.preventDefault();
    const form = event.target.elements;
    setBusy(true);
    const [way, name] = [form.who.value.slice(0, 4), form.who.value.slice(5)];
    const given = { workspace: form.workspace.value.trim(), prompt: form.prompt.value };
    const told = way === "peer"
      ? await act(() => call("runs", { peer: name, ...given }), "Started.")
      : await act(() => call("delegations", { role: name, isolate: form.isolate.checked, ...given }), "Delegated.");
    setBusy(false);
    if (told === null) return;
    if (told.session) location.hash = `#/session/${encodeURIComponent(told.session)}`;
    else event.target.reset();
  };
  return html`<details class="card new-work" onToggle=${(event) => setOpen(event.target.open)}>
    <summary>New work</summary>
    ${known !== null && html`<form onSubmit=${start}>
      <div class="field"><label for="new-who">Who</label><select id="new-who" name="who" required>
        <optgroup label="One peer">${known.peers.map((name) => html`<option value="peer:${name}">${clip(name, 60)}</option>`)}</optgroup>
        <optgroup label="Delegate by role">${known.roles.map((name) => html`<option value="role:${name}">${clip(name, 60)}</option>`)}</optgroup>
      </select></div>
      <div class="field"><label for="new-workspace">Workspace</label><input id="new-workspace" name="workspace" required list="workspaces" defaultValue=${known.workspaces[0] ?? ""} placeholder="/home/me/project" /><datalist id="workspaces">${known.workspaces.map((path) => html`<option value=${path}></option>`)}</datalist></div>
      <div class="field isolate"><label><input type="checkbox" name="isolate" aria-describedby="new-isolate-help" /> In isolation (delegated work only)</label><small id="new-isolate-help">Works in a git worktree and produces a patch for you to review and apply.</small></div>
      <div class="field"><label for="new-prompt">Prompt</label><textarea id="new-prompt" name="prompt" rows="4" required></textarea></div>
      <div class="buttons"><button class="primary" disabled=${busy}>${busy ? "Starting …" : "Start"}</button></div>
    </form>`}
  </details>`;
}

function Row({ item }) {
  const { job } = item;
  const title = oneLine(item.title || item.name || job?.prompt, 140) || "Session";
  const prompt = oneLine(job?.prompt, 140);
  const running = job?.state === "running" && job.startedAt;
  return html`<li class="row ${item.state}">
    <span class="state ${item.state}">${stateWords(item)}</span>
    <span class="title">${item.session ? html`<a href="#/session/${encodeURIComponent(item.session)}">${title}</a>` : title}${prompt && prompt !== title ? html` <small>${prompt}</small>` : null}</span>
    <span class="chip">${clip(item.peer, 60)}</span>
    <span class="numbers">${running ? html`running for <${Since} at=${job.startedAt} />, last event <${Ago} at=${item.updatedAt} />` : html`<${Ago} at=${item.updatedAt} />`}${item.cost ? ` · ${item.cost.amount} ${clip(item.cost.unit, 10)}` : ""}</span>
    ${["failed", "parked"].includes(item.state) && job?.failure && html`<span class="problem">${oneLine(printed(job.failure), 200)}</span>`}
  </li>`;
}

export function Work() {
  const [filter, setFilter] = useState({ state: "", peer: "", text: "" });
  const set = (name) => (event) => setFilter({ ...filter, [name]: event.target.value });
  const all = [...work.value.values()];
  const peers = [...new Set(all.map((item) => item.peer))].sort();
  const wanted = filter.text.toLowerCase();
  const shown = all.filter((item) => (!filter.state || item.state === filter.state)
    && (!filter.peer || item.peer === filter.peer)
    && (!wanted || [item.title, item.name, item.job?.prompt, item.root].some((text) => String(text ?? "").toLowerCase().includes(wanted))));
  shown.sort((one, two) => STATES.indexOf(one.state) - STATES.indexOf(two.state) || two.updatedAt - one.updatedAt);
  const projects = new Map();
  for (const item of shown) projects.set(item.root, [...(projects.get(item.root) ?? []), item]);
  return html`
    <h1>Work</h1>
    ${(fleets.value.length > 0 || fleetProblem.value) && html`<p class="about"><a href="#/fleet">Fleet</a>: workers and jobs on other machines</p>`}
    ${rights.value === "act" && html`<${NewWork} />`}
    <form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>State <select value=${filter.state} onChange=${set("state")}><option value="">all</option>${STATES.map((state) => html`<option value=${state}>${stateWords({ state })}</option>`)}</select></label>
      <label>Peer <select value=${filter.peer} onChange=${set("peer")}><option value="">all</option>${peers.map((peer) => html`<option value=${peer}>${clip(peer, 60)}</option>`)}</select></label>
      <label>Search <input type="search" value=${filter.text} onInput=${set("text")} /></label>
    </form>
    ${!all.length && html`<p class="empty">No work yet. Start some above, or in a terminal: <code>dragoman run scout "where is main defined?"</code></p>`}
    ${all.length >= LISTED && html`<p class="empty">Older sessions are not listed here. <code>dragoman sessions list</code> lists them, and <code>#/session/KEY</code> opens one.</p>`}
    ${all.length > 0 && !shown.length && html`<p class="empty">Nothing matches these filters.</p>`}
    ${[...projects].map(([root, items]) => html`<section key=${root} class="project" aria-label=${clip(root, 400)}>
      <h2>${clip(root, 400)}</h2>
      <ul class="rows">${items.map((item) => html`<${Row} key=${item.id} item=${item} />`)}</ul>
    </section>`)}`;
}
