// One session: the conversation as it streams, its open questions, and the next prompt.
import { memo } from "./memo.js";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { act, call, clock, drawn, follow, followed, questions, rights, unfollow, work } from "./connection.js";
import { Diff } from "./diff.js";
import { markdown } from "./markdown.js";
import { Question } from "./question.js";
import { age, clip, oneLine } from "./text.js";

const WINDOW = 150; // items that are drawn at once; older ones on demand
const NAMES = { user: "You", agent: "Agent", thought: "Thought" };

function Blocks({ blocks }) {
  return blocks.map((block) => html`<p class="block">[${clip(block.type, 20)}] ${clip(block.name ?? block.uri ?? block.mime_type ?? "", 400)}</p>${block.text ? html`<pre tabindex="0">${clip(block.text)}</pre>` : null}`);
}

const Message = memo(({ item }) => {
  if (item.role === "thought") {
    return html`<details class="item thought"><summary>Thought: ${oneLine(item.text, 100)}</summary><div class="text">${markdown(item.text)}</div></details>`;
  }
  return html`<section class="item message ${item.role === "user" ? "user" : "agent"}" aria-label=${NAMES[item.role] ?? "Message"}>
    <h3 class="who">${NAMES[item.role] ?? clip(item.role, 20)}</h3>
    <div class="text">${item.role === "user" ? html`<p class="plain">${clip(item.text)}</p>` : markdown(item.text)}</div>
    <${Blocks} blocks=${item.blocks} />
  </section>`;
});

const Tool = memo(({ item }) => {
  const title = oneLine(item.title || item.name || item.kind, 160);
  const input = item.input === null ? "" : typeof item.input === "string" ? item.input : JSON.stringify(item.input, null, 2);
  return html`<details class="item tool ${clip(item.status, 20)}">
    <summary><span class="state ${clip(item.status, 20)}">${clip(item.status, 20)}</span> <span class="chip kind">${clip(item.kind, 20)}</span> ${title}${item.changes.length ? ` (${item.changes.length} ${item.changes.length === 1 ? "file" : "files"} ${item.stage})` : ""}</summary>
    ${item.locations.length > 0 && html`<ul class="paths">${item.locations.slice(0, 100).map((each) => html`<li>${clip(each.path, 400)}${each.line ? `:${each.line}` : ""}</li>`)}</ul>`}
    ${input && html`<pre class="said" tabindex="0" aria-label="Input">${clip(input, 20000)}</pre>`}
    ${item.changes.map((each) => html`<${Diff} path=${each.path} oldText=${each.old_text} newText=${each.new_text} diff=${each.diff} />`)}
    ${item.content.map((each) => each.type === "text" ? html`<div class="text">${markdown(each.text)}</div>` : html`<${Blocks} blocks=${[each]} />`)}
    ${item.printed && html`<pre class="terminal" tabindex="0" aria-label="Output">${clip(item.printed)}</pre>`}
    ${item.exit_code !== null && html`<p>Exit code ${item.exit_code}</p>`}
    ${item.error && html`<p class="problem">${clip(item.error, 2000)}</p>`}
  </details>`;
});

const TurnEnd = memo(({ item }) => html`<p class="item turn ${item.outcome === "ok" ? "done" : "failed"}">Turn ended: ${clip(item.outcome, 40)}${item.failure ? ` – ${clip(item.failure.message, 2000)}` : ""}</p>`);

const Notice = memo(({ item }) => html`<p class="item notice">${clip(item.severity, 20)}: ${clip(item.title, 2000)}</p>`);

const KINDS = { message: Message, tool: Tool, turn: TurnEnd, notice: Notice };

function Plans({ plans }) {
  return [...plans].map(([id, plan]) => html`<section class="card plan" aria-label="Plan" key=${id}>
    <h2>Plan</h2>
    ${plan.entries.length > 0 && html`<ol>${plan.entries.map((entry) => html`<li class=${clip(entry.status, 20)}><span class="state ${clip(entry.status, 20)}">${clip(entry.status, 20).replace("_", " ")}</span> ${clip(entry.text, 1000)}</li>`)}</ol>`}
    ${plan.text && html`<div class="text">${markdown(plan.text)}</div>`}
  </section>`);
}

function Conversation({ now }) {
  drawn.value; // it is drawn again when events have come
  const [shown, setShown] = useState(WINDOW);
  const atEnd = useRef(true);
  const { order } = now.view;
  const hidden = Math.max(0, order.length - shown);
  useEffect(() => {
    const look = () => { atEnd.current = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 120; };
    window.addEventListener("scroll", look, { passive: true });
    return () => window.removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (atEnd.current) window.scrollTo(0, document.documentElement.scrollHeight);
  });
  return html`
    ${!now.caughtUp && html`<p class="empty">Loading …</p>`}
    ${now.caughtUp && !order.length && html`<p class="empty">Nothing has happened in this session yet.</p>`}
    ${hidden > 0 && html`<p class="earlier"><button type="button" onClick=${() => { atEnd.current = false; setShown(shown + WINDOW); }}>Show ${Math.min(WINDOW, hidden)} earlier of ${hidden}</button></p>`}
    <div class="conversation" role="log" aria-live="off" aria-label="Conversation">
      ${order.slice(hidden).map((entry) => { const Kind = KINDS[entry.kind]; return html`<${Kind} key=${entry.id} item=${entry.item} version=${entry.item.version} />`; })}
    </div>
    <${Plans} plans=${now.view.plans} />`;
}

function Composer({ item }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const running = item.job !== null && item.job.state !== "ended";
  const send = async (event) => {
    event?.preventDefault();
    if (!text.trim() || busy) return;
    setBusy(true);
    const told = await act(() => call(`sessions/${encodeURIComponent(item.session)}/prompt`, { text }), running ? "Queued behind the turn that runs." : "Sent.");
    setBusy(false);
    if (told !== null) setText("");
  };
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
  };
  if (rights.value !== "act") return html`<p class="empty">This browser may only read.</p>`;
  return html`<form class="composer" onSubmit=${send}>
    <label for="prompt">${running ? "Next prompt" : "Prompt"} <small>(Ctrl+Enter sends)</small></label>
    <textarea id="prompt" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key}></textarea>
    <div class="buttons"><button class="primary" disabled=${busy || !text.trim()}>${busy ? "Sending …" : running ? "Queue" : "Send"}</button></div>
  </form>`;
}

// Another peer goes on in a session of its own, and is told what was said.
function Handover({ item }) {
  const [peers, setPeers] = useState(null);
  const [busy, setBusy] = useState(false);
  const load = (event) => {
    if (event.target.open && peers === null) act(() => call("peers")).then((told) => told && setPeers(told.peers.filter((name) => name !== item.peer)));
  };
  const send = async (event) => {
    event.preventDefault();
    const form = event.target.elements;
    setBusy(true);
    const told = await act(() => call(`sessions/${encodeURIComponent(item.session)}/handover`, { peer: form.peer.value, text: form.words.value }), "Handed over.");
    setBusy(false);
    if (told !== null) location.hash = `#/session/${encodeURIComponent(told.session)}`;
  };
  return html`<details class="card" onToggle=${load}>
    <summary>Hand over to another peer</summary>
    ${peers !== null && !peers.length && html`<p class="empty">No other peer is enabled. <code>dragoman peers enable NAME</code> enables one.</p>`}
    ${peers !== null && peers.length > 0 && html`<form onSubmit=${send}>
      <p class="empty">It begins a new session here and is told in short what was said.</p>
      <div class="field"><label for="handover-peer">Peer</label><select id="handover-peer" name="peer" required>${peers.map((name) => html`<option value=${name}>${clip(name, 60)}</option>`)}</select></div>
      <div class="field"><label for="handover-words">What to do next</label><textarea id="handover-words" name="words" rows="2" required></textarea></div>
      <div class="buttons"><button class="primary" disabled=${busy}>${busy ? "Handing over …" : "Hand over"}</button></div>
    </form>`}
  </details>`;
}

export function stateWords(item) {
  const words = { working: "working", waiting: "waiting for you", queued: "queued", idle: "idle", done: "done", failed: "failed" };
  return (words[item.state] ?? item.state) + (item.queued && item.state !== "queued" ? `, ${item.queued} queued` : "");
}

export function Session({ id }) {
  useEffect(() => {
    follow(id);
    return unfollow;
  }, [id]);
  const item = work.value.get(id);
  const now = followed.value;
  const job = item?.job;
  useEffect(() => {
    if (job?.state === "ended" && job.unseen && rights.value === "act") call(`jobs/${encodeURIComponent(job.id)}/seen`, {}).catch(() => {});
  }, [job?.id, job?.state]);
  if (item === undefined) return html`<h1>Session</h1><p class="empty">There is no session ${clip(id, 60)} here. <a href="#/work">Work</a> lists those there are.</p>`;
  const own = [...questions.value.values()].filter((question) => question.session === id);
  const stop = () => act(() => call(`jobs/${encodeURIComponent(job.id)}/cancel`, {}), "Stopping.");
  const running = job !== null && job.state !== "ended";
  return html`
    <header class="session">
      <h1>${oneLine(item.title || item.name || job?.prompt, 120) || "Session"}</h1>
      <p class="about"><span class="chip">${clip(item.peer, 60)}</span>${" "}<span class="state ${item.state}">${stateWords(item)}</span>${item.model ? ` · ${clip(item.model, 60)}` : ""}${" · "}<span title=${clip(item.cwd, 400)}>${clip(item.cwd, 120)}</span>${running && job.startedAt ? ` · ${age(clock.value - job.startedAt)}` : ""}${item.cost ? ` · ${item.cost.amount} ${clip(item.cost.unit, 10)}` : ""}</p>
      ${running && html`<div class="buttons"><button type="button" class="stop" disabled=${rights.value !== "act"} onClick=${stop}>Stop</button></div>`}
    </header>
    ${now !== null && now.key === id && html`<${Conversation} now=${now} />`}
    ${own.map((question) => html`<${Question} key=${question.id} question=${question} inSession=${true} />`)}
    ${rights.value === "act" && html`<${Handover} item=${item} />`}
    <${Composer} item=${item} />`;
}
