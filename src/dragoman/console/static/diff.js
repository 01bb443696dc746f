// A line-based unified diff of two texts.
import { useMemo, useState } from "preact/hooks";
import { html } from "./html.js";
import { ScrollBox } from "./scroll_box.js";
import { clip } from "./text.js";

export const CONTEXT = 3;
export const MAX_LINES = 4000;
const FIRST_LINES = 200; // shown before the user asks for more
const FIRST_DIFFS = 10; // further ones start collapsed: an agent may send thousands of lines in each of many

export function lines(text) {
  return text === null || text === "" ? [] : clip(text).replace(/\n$/, "").split("\n");
}

// Skip the lines that both texts begin and end with, and diff what is between, unless it is too long.
export function compare(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (tail < before.length - head && tail < after.length - head && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail += 1;
  const removed = before.slice(head, before.length - tail);
  const added = after.slice(head, after.length - tail);
  const rows = before.slice(0, head).map((text) => [" ", text]);
  if (removed.length * added.length <= 1000000) rows.push(...longest(removed, added));
  else rows.push(...removed.map((text) => ["-", text]), ...added.map((text) => ["+", text]));
  rows.push(...before.slice(before.length - tail).map((text) => [" ", text]));
  return rows;
}

function longest(before, after) {
  const width = after.length + 1;
  const sizes = new Uint32Array((before.length + 1) * width);
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      sizes[i * width + j] = before[i] === after[j]
        ? sizes[(i + 1) * width + j + 1] + 1
        : Math.max(sizes[(i + 1) * width + j], sizes[i * width + j + 1]);
    }
  }
  const rows = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      rows.push([" ", before[i]]);
      i += 1;
      j += 1;
    } else if (i < before.length && (j >= after.length || sizes[(i + 1) * width + j] >= sizes[i * width + j + 1])) {
      rows.push(["-", before[i]]);
      i += 1;
    } else {
      rows.push(["+", after[j]]);
      j += 1;
    }
  }
  return rows;
}

const skippedRow = (count) => ["@", `${count} unchanged ${count === 1 ? "line" : "lines"}`];

function folded(rows) {
  const near = rows.map(() => false);
  rows.forEach(([sign], at) => {
    if (sign === " ") return;
    for (let each = Math.max(0, at - CONTEXT); each <= Math.min(rows.length - 1, at + CONTEXT); each++) near[each] = true;
  });
  const shown = [];
  let skipped = 0;
  rows.forEach((row, at) => {
    if (near[at]) {
      if (skipped) shown.push(skippedRow(skipped));
      skipped = 0;
      shown.push(row);
    } else {
      skipped += 1;
    }
  });
  if (skipped) shown.push(skippedRow(skipped));
  return shown;
}

const CLASSES = { "+": "added", "-": "removed", "@": "skipped", " ": "same" };

function table(rows, limit) {
  const shown = rows.slice(0, limit);
  return html`<${ScrollBox} kind="diff">${shown.map(([sign, text]) => html`<span class=${CLASSES[sign]}>${sign === "@" ? " " : sign} ${text}${"\n"}</span>`)}${rows.length > MAX_LINES && limit === MAX_LINES ? `\u2026 ${rows.length - MAX_LINES} more lines` : ""}<//>`;
}

function rowsOf(oldText, newText, diff) {
  if (!diff) return folded(compare(lines(oldText ?? null), lines(newText ?? "")));
  return lines(diff).map((line) => [line.startsWith("@@") ? "@" : "+-".includes(line[0]) ? line[0] : " ", line.startsWith("@@") ? line : line.slice(1)]);
}

// Comparing and rendering can take long, so do it once per change and not whenever the page renders.
export function Diff({ path, oldText, newText, diff }) {
  const [limit, setLimit] = useState(FIRST_LINES);
  const rows = useMemo(() => rowsOf(oldText, newText, diff), [oldText, newText, diff]);
  return useMemo(() => html`<figure class="change"><figcaption>${clip(path, 400)}${(oldText ?? null) === null && !diff ? " (the whole file)" : ""}</figcaption>${table(rows, limit)}
    ${rows.length > limit && limit < MAX_LINES && html`<button type="button" class="small" onClick=${() => setLimit(MAX_LINES)}>Show ${rows.length - limit} more lines</button>`}</figure>`, [path, rows, limit]);
}

function CollapsedDiff(change) {
  const [open, setOpen] = useState(false);
  return html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>${clip(change.path, 400)}</summary>${open && html`<${Diff} ...${change} />`}</details>`;
}

export function Diffs({ changes }) {
  return changes.map((change, at) => at < FIRST_DIFFS ? html`<${Diff} key=${at} ...${change} />` : html`<${CollapsedDiff} key=${at} ...${change} />`);
}
