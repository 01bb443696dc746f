// The inbox: everything that is waiting for the user, from all agents and projects.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { Ago } from "./ago.js";
import { act, call, questions, rights, work } from "./connection.js";
import { Boundary } from "./boundary.js";
import { MAX_OPEN, Question, optionOf, sendAnswer } from "./question.js";
import { stateWords } from "./session.js";
import { clip, oneLine, printed, shortPath } from "./text.js";

export function waiting() {
  return [...questions.value.values()].sort((one, two) => one.askedAt - two.askedAt);
}

export function unseen() {
  return [...work.value.values()]
    .filter((item) => item.job?.state === "ended" && item.job.unseen)
    .sort((one, two) => two.job.endedAt - one.job.endedAt);
}

// Answer several questions together: only for the same kind of action, and only once.
function Bulk({ chosen, clear }) {
  const kinds = new Set(chosen.map((question) => question.toolKind));
  const can = (kind) => kinds.size === 1 && chosen.every((question) => optionOf(question, kind));
  const send = (kind) => act(async () => {
    const ends = await Promise.allSettled(chosen.map((question) => sendAnswer(question, { option: optionOf(question, kind).id })));
    const failed = ends.filter((each) => each.status === "rejected");
    if (failed.length < ends.length) clear();
    if (failed.length) throw new Error(`${ends.length - failed.length} of ${ends.length} answered: ${failed[0].reason.message}`);
  }, `${chosen.length} answered.`);
  if (!chosen.length) return null;
  return html`<div class="bulk card" role="group" aria-label="Selected questions">
    <span>${chosen.length} selected</span>${" "}
    ${kinds.size > 1 && html`<span>Select one kind of action at a time.</span>`}
    <span class="buttons">
      <button type="button" class="primary" disabled=${!can("allow_once") || rights.value !== "act"} onClick=${() => send("allow_once")}>Allow all</button>
      <button type="button" disabled=${!can("reject_once") || rights.value !== "act"} onClick=${() => send("reject_once")}>Refuse all</button>
      <button type="button" onClick=${clear}>Clear</button>
    </span>
  </div>`;
}

function Ended({ item }) {
  const { job } = item;
  const seen = () => act(() => call(`jobs/${encodeURIComponent(job.id)}/seen`, {}));
  const begin = item.state === "parked" ? `P${stateWords(item).slice(1)}` : "Failed";
  const words = item.state === "done" ? "Done" : `${begin}: ${oneLine(printed(job.failure ?? job.outcome), 200)}`;
  const title = oneLine(item.title || item.name || job.prompt, 120) || "Work";
  const prompt = oneLine(job.prompt, 120);
  return html`<article class="card ended ${item.state}" aria-label="${words}: ${oneLine(job.prompt, 80)}">
    <header>
      <h3 class="title">${title}${prompt && prompt !== title ? html` <small>${prompt}</small>` : null}</h3>
      <p class="about"><span class="chip">${clip(item.peer, 60)}</span>${" "}<span class="state ${item.state}">${words}</span>${" · "}${shortPath(item.root)}${" · "}<${Ago} at=${job.endedAt} /></p>
    </header>
    <div class="buttons">
      ${item.session && html`<a class="button" href="#/session/${encodeURIComponent(item.session)}">Open</a><a class="button" href="#/review/${encodeURIComponent(item.session)}">Review</a>`}
      <button type="button" disabled=${rights.value !== "act"} onClick=${seen}>Mark as seen</button>
    </div>
  </article>`;
}

// The first questions of each session, and the number of the others: a session with thousands of them
// must not push those of other sessions off the page.
function shownOf(open) {
  const counts = new Map();
  const shown = open.filter((question) => {
    const count = (counts.get(question.session) ?? 0) + 1;
    counts.set(question.session, count);
    return count <= MAX_OPEN;
  });
  return [shown, open.length - shown.length];
}

export function Inbox() {
  const [selected, setSelected] = useState(new Set());
  const open = waiting();
  const [shown, more] = shownOf(open);
  const ended = unseen();
  const permissions = shown.filter((question) => question.type === "permission");
  const chosen = permissions.filter((question) => selected.has(question.id));
  const toggle = (id) => {
    const next = new Set([...selected].filter((each) => questions.value.has(each)));
    if (!next.delete(id)) next.add(id);
    setSelected(next);
  };
  return html`
    <h1>Inbox</h1>
    <section aria-labelledby="open-title">
      <h2 id="open-title" tabindex="-1">Waiting for you (${open.length})</h2>
      ${!open.length && html`<p class="empty">Nothing is waiting for you. Questions and permission requests from agents appear here immediately.</p>`}
      <${Bulk} chosen=${chosen} clear=${() => setSelected(new Set())} />
      ${shown.map((question, at) => html`<${Boundary} key=${question.id}><${Question} question=${question} place=${`${at} ${chosen.length > 0}`}
        select=${question.type === "permission" && permissions.length > 1 ? { checked: selected.has(question.id), change: () => toggle(question.id) } : null} /><//>`)}
      ${more > 0 && html`<p class="notice">${more} more: at most ${MAX_OPEN} questions of one session are shown at the same time.</p>`}
    </section>
    <section aria-labelledby="ended-title">
      <h2 id="ended-title">Finished, not seen yet (${ended.length})</h2>
      ${!ended.length && html`<p class="empty">Nothing new. <a href="#/work">Work</a> lists all work and starts more.</p>`}
      ${ended.map((item) => html`<${Ended} key=${item.id} item=${item} />`)}
    </section>`;
}
