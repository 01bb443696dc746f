// Renders Markdown as elements. Raw HTML, images, and links to anything but web pages stay text.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { clip } from "./text.js";

// Any text must render in roughly linear time and with a limited number of elements. What is left is
// shown as it is. A page may have hundreds of such texts, so they start with fewer elements.
const MAX_ELEMENTS = 5000;
const FIRST_ELEMENTS = 400;
const MAX_DEPTH = 8; // of nested quotes

const INLINE = /(?<!`)(`+)(?!`)([\s\S]{0,2000}?[^`])\1(?!`)|\*\*(\S(?:[^*]*\S)?)\*\*|(?<![\w*])\*(\S(?:[^*\n]*\S)?)\*(?![\w*])|(?<!!)\[([^[\]\n]{1,500})\]\((https?:\/\/[^\s)<>"]{1,2000})\)/g;

function inline(text, budget) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (budget.left <= 0) break;
    budget.left -= 1;
    if (match.index > at) found.push(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (match[1] !== undefined) found.push(html`<code>${match[2]}</code>`);
    else if (match[3] !== undefined) found.push(html`<strong>${inline(match[3], budget)}</strong>`);
    else if (match[4] !== undefined) found.push(html`<em>${inline(match[4], budget)}</em>`);
    else found.push(link(match[5], match[6]));
  }
  if (at < text.length) found.push(text.slice(at));
  return found;
}

// Show the address as well: the text of a link may be misleading. And show it as the browser understands
// it: letters of other scripts in a host name may look like Latin ones.
function link(words, address) {
  const url = URL.canParse(address) ? new URL(address).href : null;
  if (url === null) return `[${words}](${address})`;
  return html`<a href=${url} rel="noopener noreferrer" target="_blank">${words}</a>${" "}<span class="address">(${clip(url, 120)})</span>`;
}

const FENCE = /^ {0,3}(`{3,}(?!`)|~{3,}(?!~))[^`]*$/;
const ITEM = /^(\s*)(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;

// The text of a heading without its closing # signs.
function words(heading) {
  let end = heading.length;
  while (end > 0 && heading[end - 1] === "#") end -= 1;
  return heading.slice(0, end).trimEnd();
}

function blocks(lines, budget, depth = 0) {
  const found = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (budget.left <= 0) {
      found.push(html`<pre tabindex="0">${lines.slice(at).join("\n")}</pre>`);
      break;
    }
    budget.left -= 1;
    if (!line.trim()) {
      at += 1;
    } else if ((match = FENCE.exec(line))) {
      const [, fence] = match;
      const code = [];
      at += 1;
      while (at < lines.length && !(lines[at].trim().startsWith(fence) && !lines[at].trim().replaceAll(fence[0], ""))) {
        code.push(lines[at]);
        at += 1;
      }
      at += 1;
      found.push(html`<pre tabindex="0"><code>${code.join("\n")}</code></pre>`);
    } else if ((match = HEADING.exec(line))) {
      // Not a heading element: an agent's headings are not part of the outline of the page.
      found.push(html`<p class="heading level-${match[1].length}">${inline(words(match[2].trimEnd()), budget)}</p>`);
      at += 1;
    } else if (/^ {0,3}(?:-{3,}|\*{3,}|_{3,})\s*$/.test(line)) {
      found.push(html`<hr />`);
      at += 1;
    } else if (/^ {0,3}>/.test(line)) {
      const quoted = [];
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) {
        quoted.push(lines[at].replace(/^ {0,3}> ?/, ""));
        at += 1;
      }
      found.push(html`<blockquote>${depth >= MAX_DEPTH ? quoted.join("\n") : blocks(quoted, budget, depth + 1)}</blockquote>`);
    } else if ((match = ITEM.exec(line))) {
      const numbered = match[2] !== undefined;
      const items = [];
      while (at < lines.length && budget.left > 0 && (match = ITEM.exec(lines[at]))) {
        const said = [match[3]];
        const level = Math.min(4, Math.floor(match[1].length / 2));
        at += 1;
        while (at < lines.length && lines[at].trim() && /^\s{2,}/.test(lines[at]) && !ITEM.test(lines[at])) {
          said.push(lines[at].trim());
          at += 1;
        }
        budget.left -= 1;
        items.push(html`<li class="depth-${level}">${inline(said.join("\n"), budget)}</li>`);
      }
      found.push(numbered ? html`<ol>${items}</ol>` : html`<ul>${items}</ul>`);
    } else if (/^\s*\|.*\|\s*$/.test(line)) {
      const table = [];
      while (at < lines.length && /^\s*\|.*\|\s*$/.test(lines[at])) {
        table.push(lines[at]);
        at += 1;
      }
      found.push(html`<pre tabindex="0" class="table">${table.join("\n")}</pre>`);
    } else {
      const said = [];
      while (at < lines.length && lines[at].trim() && !FENCE.test(lines[at]) && !HEADING.test(lines[at]) && !ITEM.test(lines[at]) && !/^ {0,3}>/.test(lines[at])) {
        said.push(lines[at]);
        at += 1;
      }
      if (!said.length) {
        said.push(lines[at]);
        at += 1;
      }
      found.push(html`<p>${inline(said.join("\n"), budget)}</p>`);
    }
  }
  return found;
}

function Markdown({ text }) {
  const [most, setMost] = useState(FIRST_ELEMENTS);
  const budget = { left: most };
  const found = blocks(clip(text).split("\n"), budget);
  return html`${found}${budget.left <= 0 && most < MAX_ELEMENTS && html`<button type="button" class="small" onClick=${() => setMost(MAX_ELEMENTS)}>Format the rest</button>`}`;
}

export function markdown(text) {
  return html`<${Markdown} text=${text} />`;
}
