// The changed lines of one file. The user can comment on each of them.
import { useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { MAX_LINES } from "./diff.js";
import { pairs } from "./diff_rows.js";
import { clip, oneLine } from "./text.js";

const CLASSES = { "+": "added", "-": "removed", "@": "skipped", " ": "same" };
const NAMES = { "+": "added", "-": "removed", " ": "unchanged" };
const MAX_LINE = 2000;
const MAX_QUOTE = 400;

export const sideOf = (row) => (row.sign === "-" ? "old" : "new");
export const numberOf = (row) => (row.sign === "-" ? row.old : row.now);
const quoteOf = (row) => clip(row.text, MAX_LINE).slice(0, MAX_QUOTE);

function isAt(comment, row) {
  return row !== null && row.sign !== "@" && comment.side === sideOf(row) && comment.line === numberOf(row) && comment.quote === quoteOf(row);
}

export function CommentForm({ label, save, close }) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async (event) => {
    event?.preventDefault();
    if (!text.trim() || busy) return;
    setBusy(true);
    const told = await save(text);
    setBusy(false);
    if (told !== null) close();
  };
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
    if (event.key === "Escape") close();
  };
  return html`<form class="comment-form" onSubmit=${send} onKeyDown=${key}>
    <label>${label}<textarea rows="3" value=${text} ref=${(at) => at?.focus()} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="buttons"><button class="primary" disabled=${busy || !text.trim()}>Add comment</button><button type="button" onClick=${close}>Cancel</button></div>
  </form>`;
}

export function Comment({ comment, remove }) {
  return html`<div class="comment" role="note" aria-label="Comment">
    <p>${clip(comment.text, 10000)}</p>
    ${remove && html`<button type="button" class="small" onClick=${() => remove(comment.id)}>Delete</button>`}
  </div>`;
}

function Sign({ row, first, open, canComment }) {
  const where = numberOf(row) === null ? NAMES[row.sign] : `${NAMES[row.sign]} line ${numberOf(row)}`;
  return html`<td class="sign ${CLASSES[row.sign]}">${canComment
    ? html`<button type="button" class="add" tabindex=${first ? 0 : -1} aria-label="Comment on ${where}: ${oneLine(row.text, 80)}" onClick=${open}>${row.sign === " " ? "\u00a0" : row.sign}</button>`
    : html`<span aria-label=${NAMES[row.sign]}>${row.sign === " " ? "\u00a0" : row.sign}</span>`}</td>`;
}

function Half({ row, number, first, open, canComment }) {
  if (row === null) return html`<td class="number none"></td><td class="sign none"></td><td class="code none"></td>`;
  const kind = CLASSES[row.sign];
  return html`<td class="number ${kind}">${number ?? ""}</td><${Sign} row=${row} first=${first} open=${open} canComment=${canComment} /><td class="code ${kind}">${clip(row.text, MAX_LINE)}</td>`;
}

// The table is a single Tab stop; the arrow keys move from line to line.
function move(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined || !event.target.classList.contains("add")) return;
  const all = [...event.currentTarget.querySelectorAll("button.add")];
  const next = all[all.indexOf(event.target) + step];
  if (next === undefined) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

export function Lines({ path, rows, split, comments, canComment, add, remove }) {
  const [open, setOpen] = useState(null);
  const [shown, setShown] = useState(500);
  const opener = useRef(null);
  const all = split ? pairs(rows) : rows.map((row) => [row, row]);
  const limit = Math.min(shown, MAX_LINES);
  const first = rows.find((row) => row.sign !== "@");
  const width = split ? 6 : 4;
  // The rows are new objects after each reload of the review, which must not close an open form.
  const isOpen = (row) => open !== null && row !== null && row === rows[open.at] && row.text === open.text;
  const start = (row) => (event) => {
    opener.current = event.currentTarget;
    setOpen({ at: rows.indexOf(row), text: row.text });
  };
  const close = () => {
    setOpen(null);
    opener.current?.focus();
  };
  const save = (row) => (text) => add({ path, line: numberOf(row), side: sideOf(row), quote: quoteOf(row), text });
  const below = (one, two) => {
    const own = comments.filter((comment) => isAt(comment, one) || (two !== one && isAt(comment, two)));
    const asked = isOpen(one) ? one : isOpen(two) ? two : null;
    if (!own.length && asked === null) return null;
    return html`<tr class="below"><td colspan=${width}>
      ${own.map((comment) => html`<${Comment} key=${comment.id} comment=${comment} remove=${canComment ? remove : null} />`)}
      ${asked !== null && html`<${CommentForm} label="Comment on ${numberOf(asked) === null ? `the ${NAMES[asked.sign]} line` : `line ${numberOf(asked)}`}" save=${save(asked)} close=${close} />`}
    </td></tr>`;
  };
  const line = ([one, two], at) => {
    if (one?.sign === "@") return html`<tr key=${at} class="skipped"><td colspan=${width}>${clip(one.text, 200)}</td></tr>`;
    const row = split
      ? html`<tr key=${at}><${Half} row=${one} number=${one?.old ?? null} first=${one === first} open=${one && start(one)} canComment=${canComment && one?.sign === "-"} /><${Half} row=${two} number=${two?.now ?? null} first=${two === first} open=${two && start(two)} canComment=${canComment} /></tr>`
      : html`<tr key=${at} class=${CLASSES[one.sign]}><td class="number">${one.old ?? ""}</td><td class="number">${one.now ?? ""}</td><${Sign} row=${one} first=${one === first} open=${start(one)} canComment=${canComment} /><td class="code">${clip(one.text, MAX_LINE)}</td></tr>`;
    return [row, below(one, two)];
  };
  return html`<div class="lines-box"><table class="lines ${split ? "split" : "unified"}" aria-label="Changed lines of ${clip(path, 400)}" onKeyDown=${move}>
    ${split && html`<colgroup><col class="number" /><col class="sign" /><col /><col class="number" /><col class="sign" /><col /></colgroup>`}
    <thead class="unseen"><tr>${split
      ? html`<th scope="col">Line before</th><th scope="col">Comment</th><th scope="col">Before</th><th scope="col">Line after</th><th scope="col">Comment</th><th scope="col">After</th>`
      : html`<th scope="col">Line before</th><th scope="col">Line after</th><th scope="col">Comment</th><th scope="col">Text</th>`}</tr></thead>
    <tbody>${all.slice(0, limit).map(line)}</tbody>
  </table></div>
  ${all.length > limit && html`<p class="earlier">${limit < MAX_LINES
    ? html`<button type="button" onClick=${() => setShown(shown + 1000)}>Show more (${all.length - limit} lines left)</button>`
    : `${all.length - limit} more lines are not shown.`}</p>`}`;
}
