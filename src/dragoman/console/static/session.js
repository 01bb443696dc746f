// The session screen: the live conversation, its open questions, and the next prompt.
import { memo } from "./memo.js";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Since } from "./ago.js";
import { act, call, drawn, follow, followed, online, questions, rights, work } from "./connection.js";
import { Boundary } from "./boundary.js";
import { Diffs } from "./diff.js";
import { markdown } from "./markdown.js";
import { MAX_OPEN, Question } from "./question.js";
import { clip, oneLine, own, printed, until } from "./text.js";

const WINDOW = 200; // number of rendered items
const STEP = 100; // number of items by which the window moves
const EDGE = 200; // distance from an edge, in pixels, at which the window moves
const TOP = 120; // distance from the top, in pixels, of the item that was jumped to
const FIRST_RETRY = 250; // milliseconds until a session that could not be loaded is requested again
const LAST_RETRY = 5000; // the same, after many failures
const NAMES = { user: "You", agent: "Agent", thought: "Thought" };

function Blocks({ blocks }) {
  return blocks.map((block) => html`<p class="block">[${clip(block.type, 20)}] ${clip(block.name ?? block.uri ?? block.mime_type ?? "", 400)}</p>${block.text ? html`<pre tabindex="0">${clip(block.text)}</pre>` : null}`);
}

const Message = memo(({ item }) => {
  if (item.role === "thought") {
    return html`<details class="item thought"><summary>Thought: ${oneLine(item.text, 100)}</summary><div class="text">${markdown(item.text)}</div></details>`;
  }
  return html`<section class="item message ${item.role === "user" ? "user" : "agent"}" aria-label=${own(NAMES, item.role) ?? "Message"}>
    <h3 class="who">${own(NAMES, item.role) ?? clip(item.role, 20)}</h3>
    <div class="text">${item.role === "user" ? html`<p class="plain">${clip(item.text)}</p>` : markdown(item.text)}</div>
    <${Blocks} blocks=${item.blocks} />
  </section>`;
});

// The output of a command is not Markdown, unless the agent put it in a code fence.
function isPrinted(item, text) {
  return item.kind === "execute" && !String(text ?? "").includes("```");
}

function ToolBody({ item }) {
  const input = item.input === null ? "" : typeof item.input === "string" ? item.input : JSON.stringify(item.input, null, 2);
  return html`${item.locations.length > 0 && html`<ul class="paths">${item.locations.slice(0, 100).map((each) => html`<li>${clip(each.path, 400)}${each.line ? `:${clip(each.line, 20)}` : ""}</li>`)}</ul>`}
    ${input && html`<pre class="said" tabindex="0" aria-label="Input">${clip(input, 20000)}</pre>`}
    <${Diffs} changes=${item.changes.map((each) => ({ path: each.path, oldText: each.old_text, newText: each.new_text, diff: each.diff }))} />
    ${item.content.map((each) => each.type === "text" ? (isPrinted(item, each.text) ? html`<pre class="terminal" tabindex="0" aria-label="Output">${printed(each.text)}</pre>` : html`<div class="text">${markdown(each.text)}</div>`) : html`<${Blocks} blocks=${[each]} />`)}
    ${item.printed && html`<pre class="terminal" tabindex="0" aria-label="Output">${printed(item.printed)}</pre>`}
    ${!item.printed && !item.content.length && item.output !== null && html`<pre class="terminal" tabindex="0" aria-label="Output">${printed(typeof item.output === "string" ? item.output : JSON.stringify(item.output, null, 2), 20000)}</pre>`}
    ${item.exit_code !== null && html`<p>Exit code ${clip(item.exit_code, 20)}</p>`}
    ${item.error && html`<p class="problem">${printed(item.error, 2000)}</p>`}`;
}

const Tool = memo(({ item }) => {
  // Many tool calls have long diffs and outputs, and few of them are opened.
  const [opened, setOpened] = useState(false);
  const title = oneLine(item.title || item.name || item.kind, 160);
  return html`<details class="item tool ${clip(item.status, 20)}" onToggle=${() => setOpened(true)}>
    <summary><span class="state ${clip(item.status, 20)}">${clip(item.status, 20)}</span> <span class="chip kind">${clip(item.kind, 20)}</span> ${title}${item.changes.length ? ` (${item.changes.length} ${item.changes.length === 1 ? "file" : "files"} ${clip(item.stage, 20)})` : ""}</summary>
    ${opened && html`<${ToolBody} item=${item} />`}
  </details>`;
});

const TurnEnd = memo(({ item }) => html`<p class="item turn ${item.outcome === "ok" ? "done" : "failed"}">Turn ended: ${clip(item.outcome, 40)}${item.failure ? ` – ${printed(item.failure.message, 2000)}` : ""}</p>`);

const Notice = memo(({ item }) => html`<p class="item notice ${item.severity === "info" ? "calm" : ""}">${item.severity === "info" ? "" : `${clip(item.severity, 20)}: `}${clip(item.title, 2000)}</p>`);

const KINDS = { message: Message, tool: Tool, turn: TurnEnd, notice: Notice };

function Plans({ plans }) {
  return [...plans].map(([id, plan]) => html`<section class="card plan" aria-label="Plan" key=${id}>
    <h2>Plan</h2>
    ${plan.entries.length > 0 && html`<ol>${plan.entries.map((entry) => html`<li class=${clip(entry.status, 20)}><span class="state ${clip(entry.status, 20)}">${clip(entry.status, 20).replace("_", " ")}</span> ${clip(entry.text, 1000)}</li>`)}</ol>`}
    ${plan.text && html`<div class="text">${markdown(plan.text)}</div>`}
  </section>`);
}

// Only a window of items is rendered: the latest ones, or those around the reading position. Scrolling
// to an edge moves the window; the item at that edge stays where it is on screen.
export function Conversation({ now, empty = "Nothing has happened in this session yet." }) {
  const version = drawn.value; // render again when events have arrived
  const [first, setFirst] = useState(null); // null: follow the end
  const list = useRef(null);
  const atEnd = useRef(true);
  const anchor = useRef(null);
  const lastY = useRef(0); // where the last scroll event, or our own scrolling, left the page
  const { order } = now.view;
  const last = Math.max(0, order.length - WINDOW);
  const begin = first === null ? last : Math.min(first, last);
  const end = first === null ? order.length : Math.min(order.length, begin + WINDOW);
  const shown = useRef(null);
  shown.current = { begin, end, length: order.length };
  // A scroll event may fire before the next render, and must see the new window.
  const open = (to) => {
    const { length } = shown.current;
    const last_ = Math.max(0, length - WINDOW);
    const at = to === null ? last_ : Math.min(Math.max(0, to), last_);
    shown.current = { begin: at, end: Math.min(length, at + WINDOW), length };
    setFirst(to);
  };
  const move = (to) => {
    const here = [...list.current.children].find((each) => each.getBoundingClientRect().bottom > 0);
    anchor.current = here ? [here.dataset.at, here.getBoundingClientRect().top] : null;
    atEnd.current = false;
    open(to >= shown.current.length - WINDOW ? null : Math.max(0, to));
  };
  const jump = (to) => {
    anchor.current = to === null ? null : [to, TOP];
    atEnd.current = to === null;
    open(to);
  };
  useEffect(() => {
    const look = () => {
      // Effects are cleaned up only after the next paint, and a scroll event may come before that.
      if (list.current === null) return;
      const now_ = shown.current;
      const below = document.documentElement.scrollHeight - window.innerHeight - window.scrollY;
      // The event of our own scrolling can arrive after the user opened a tool call, and must not undo
      // that. Scrolling up never starts following the end.
      if (window.scrollY !== lastY.current) {
        const follows = atEnd.current || window.scrollY > lastY.current;
        atEnd.current = follows && now_.end === now_.length && below <= 120;
        lastY.current = window.scrollY;
      }
      if (window.scrollY < EDGE && now_.begin > 0) move(now_.begin - STEP);
      else if (below < EDGE && now_.end < now_.length) move(now_.begin + STEP);
    };
    window.addEventListener("scroll", look, { passive: true });
    return () => window.removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => {
    if (atEnd.current) {
      window.scrollTo(0, document.documentElement.scrollHeight);
      lastY.current = window.scrollY;
    } else if (anchor.current !== null) {
      const [at, top] = anchor.current;
      const here = list.current.querySelector(`[data-at="${at}"]`);
      anchor.current = null;
      if (here) window.scrollBy(0, here.getBoundingClientRect().top - top);
      lastY.current = window.scrollY;
    }
  }, [version, begin, end]);
  // A user who opens a tool call wants to read it: stop following the end.
  const opened = () => {
    atEnd.current = false;
    lastY.current = window.scrollY;
  };
  return html`
    ${!now.caughtUp && html`<p class="empty">Loading …</p>`}
    ${now.caughtUp && !order.length && html`<p class="empty">${empty}</p>`}
    ${begin > 0 && html`<p class="earlier"><button type="button" onClick=${() => move(begin - STEP)}>Show earlier (${begin})</button> <button type="button" onClick=${() => jump(0)}>Go to the beginning</button></p>`}
    <div class="conversation" role="log" aria-live="off" aria-label="Conversation" ref=${list} onToggleCapture=${opened}>
      ${order.slice(begin, end).map((entry, at) => { const Kind = KINDS[entry.kind]; return html`<div key=${entry.id} data-at=${begin + at}><${Boundary}><${Kind} item=${entry.item} version=${entry.item.version} /><//></div>`; })}
    </div>
    ${end < order.length && html`<p class="earlier"><button type="button" onClick=${() => move(begin + STEP)}>Show later (${order.length - end})</button> <button type="button" onClick=${() => jump(null)}>Go to the end</button></p>`}
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
    const told = await act(() => call(`sessions/${encodeURIComponent(item.session)}/prompt`, { text }), running ? "Queued behind the running turn." : "Sent.");
    setBusy(false);
    if (told === null) return;
    // Keep what the user has typed meanwhile.
    setText((now) => now === text ? "" : now);
    // A peer that cannot reopen the session continues in a new one, with a summary.
    if (told.session !== item.session) location.hash = `#/session/${encodeURIComponent(told.session)}`;
  };
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send(event);
  };
  if (rights.value !== "act") return html`<p class="empty">This browser can view but not act.</p>`;
  return html`<form class="composer" onSubmit=${send}>
    <label for="prompt">${running ? "Next prompt" : "Prompt"} <small>(Ctrl+Enter sends)</small></label>
    <textarea id="prompt" rows="3" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${key}></textarea>
    <div class="buttons"><button class="primary" disabled=${busy || !text.trim()}>${busy ? "Sending …" : running ? "Queue" : "Send"}</button></div>
  </form>`;
}

// Another peer continues in a new session, with a summary of this one.
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
    ${peers !== null && !peers.length && html`<p class="empty">No other peer is enabled. Enable one: <code>dragoman peers enable NAME</code></p>`}
    ${peers !== null && peers.length > 0 && html`<form onSubmit=${send}>
      <p class="empty">The peer starts a new session in this directory, with a summary of the conversation.</p>
      <div class="field"><label for="handover-peer">Peer</label><select id="handover-peer" name="peer" required>${peers.map((name) => html`<option value=${name}>${clip(name, 60)}</option>`)}</select></div>
      <div class="field"><label for="handover-words">What to do next</label><textarea id="handover-words" name="words" rows="2" required></textarea></div>
      <div class="buttons"><button class="primary" disabled=${busy}>${busy ? "Handing over …" : "Hand over"}</button></div>
    </form>`}
  </details>`;
}

export function stateWords(item) {
  if (item.state === "parked") return item.parked ? `parked until ${until(item.parked.until)}` : "parked";
  const words = { working: "working", waiting: "waiting for you", queued: "queued", idle: "idle", done: "done", failed: "failed" };
  return (own(words, item.state) ?? clip(item.state, 40)) + (item.queued && item.state !== "queued" ? `, ${item.queued} queued` : "");
}

// The item of a session, and why it could not be loaded. The item is undefined while it is loading, and
// null if there is no such session. A session that is not listed may be too old for the list, or brand new.
function useItem(id) {
  const listed = work.value.get(id);
  const [stored, setStored] = useState({ item: undefined, problem: "" });
  const asks = listed === undefined && online.value;
  useEffect(() => {
    if (!asks) return undefined;
    let over = false, timer = 0, delay = FIRST_RETRY;
    const load = () => call(`sessions/${encodeURIComponent(id)}`).then(
      (item) => { if (!over) setStored({ item, problem: "" }); },
      (error) => {
        if (over) return;
        if (error.status === 404) {
          setStored({ item: null, problem: "" });
          return;
        }
        setStored((before) => ({ ...before, problem: error.message }));
        timer = setTimeout(load, delay);
        delay = Math.min(2 * delay, LAST_RETRY);
      },
    );
    load();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [id, asks]);
  return listed === undefined ? stored : { item: listed, problem: "" };
}

export function Session({ id }) {
  useEffect(() => follow(id), [id]);
  const { item, problem } = useItem(id);
  const now = followed.value;
  const job = item?.job;
  useEffect(() => {
    if (job?.state !== "ended" || !job.unseen || rights.value !== "act") return undefined;
    // In a tab in the background, the user has not seen it yet.
    const saw = () => {
      if (document.visibilityState === "visible") call(`jobs/${encodeURIComponent(job.id)}/seen`, {}).catch(() => {});
    };
    saw();
    document.addEventListener("visibilitychange", saw);
    return () => document.removeEventListener("visibilitychange", saw);
  }, [job?.id, job?.state, job?.unseen]);
  if (item === undefined) return html`<h1>Session</h1>${problem ? html`<p class="problem" role="alert">${clip(problem, 1000)} Trying again …</p>` : html`<p class="empty">Loading …</p>`}`;
  if (item === null) return html`<h1>Session</h1><p class="empty">There is no session ${clip(id, 60)}. <a href="#/work">Work</a> lists all sessions.</p>`;
  const open = [...questions.value.values()].filter((question) => question.session === id);
  const stop = () => act(async () => {
    const told = await call(`jobs/${encodeURIComponent(job.delegation ?? job.id)}/cancel`, {});
    if (!told.cancelled) throw new Error("The job has already ended.");
  }, "Stopping.");
  const running = job !== null && job.state !== "ended";
  return html`
    <header class="session">
      <h1>${oneLine(item.title || item.name || job?.prompt, 120) || "Session"}</h1>
      <p class="about"><span class="chip">${clip(item.peer, 60)}</span>${" "}<span class="state ${item.state}">${stateWords(item)}</span>${item.model ? ` · ${clip(item.model, 60)}` : ""}${" · "}<span title=${clip(item.cwd, 400)}>${clip(item.cwd, 120)}</span>${running && job.startedAt && html`${" · "}<${Since} at=${job.startedAt} />`}${item.cost ? ` · ${item.cost.amount} ${clip(item.cost.unit, 10)}` : ""}${" · "}<a href="#/review/${encodeURIComponent(item.session)}">review changes</a></p>
      ${running && html`<div class="buttons"><button type="button" class="stop" disabled=${rights.value !== "act"} onClick=${stop}>Stop</button></div>`}
    </header>
    ${now !== null && now.key === id && html`<${Conversation} now=${now} />`}
    ${open.slice(0, MAX_OPEN).map((question, at) => html`<${Boundary} key=${question.id}><${Question} question=${question} place=${at} inSession=${true} /><//>`)}
    ${open.length > MAX_OPEN && html`<p class="notice">${open.length - MAX_OPEN} more questions follow.</p>`}
    ${rights.value === "act" && html`<${Handover} item=${item} />`}
    <${Composer} item=${item} />`;
}
