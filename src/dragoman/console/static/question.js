// One question of an agent: what would be done, and the answers.
import { useState } from "preact/hooks";
import { html } from "./html.js";
import { act, call, clock, rights } from "./connection.js";
import { Diff } from "./diff.js";
import { age, clean, clip, oneLine, shortPath } from "./text.js";

const MEANINGS = {
  allow_once: "Allow", allow_always: "Allow always", reject_once: "Refuse", reject_always: "Refuse always",
};

export function optionOf(question, kind) {
  return question.options.find((option) => option.kind === kind);
}

// The agent may call its options what it likes; a name that adds nothing is left out.
function ownName(option) {
  const name = oneLine(option.name, 60);
  return name.toLowerCase() === (MEANINGS[option.kind] ?? "").toLowerCase() ? "" : name;
}

export function answer(question, reply, done) {
  return act(() => call(`questions/${encodeURIComponent(question.id)}/answer`, { digest: question.digest, ...reply }), done);
}

function Permission({ question, busy, send }) {
  const shown = question.command !== null || question.diffs.length || question.text;
  return html`
    ${question.command !== null && html`<pre class="command" tabindex="0" aria-label="Command">${clip(question.command)}</pre>`}
    ${question.diffs.map((each) => html`<${Diff} path=${each.path} oldText=${each.oldText} newText=${each.newText} />`)}
    ${!question.diffs.length && question.paths.length > 0 && html`<ul class="paths" aria-label="Paths">${question.paths.map((path) => html`<li>${clip(path, 400)}</li>`)}</ul>`}
    ${question.text && html`<pre class="said" tabindex="0">${clip(question.text)}</pre>`}
    ${!shown && question.input !== null && html`<pre class="said" tabindex="0">${clip(JSON.stringify(question.input, null, 2))}</pre>`}
    <div class="buttons">
      ${question.options.map((option) => html`
        <button type="button" disabled=${busy || rights.value !== "act"}
          class=${option.kind.startsWith("allow") ? "primary" : ""}
          onClick=${() => send({ option: option.id })}>
          ${MEANINGS[option.kind] ?? "Answer"}${ownName(option) && html` <small>${ownName(option)}</small>`}
        </button>`)}
    </div>`;
}

function fieldsOf(schema) {
  const known = schema && typeof schema === "object" ? schema.properties : null;
  return known && typeof known === "object" ? Object.entries(known) : [];
}

function choicesOf(field) {
  if (Array.isArray(field.enum)) return field.enum.map((value, at) => [value, field.enumNames?.[at] ?? value]);
  const listed = field.oneOf ?? field.anyOf;
  return Array.isArray(listed) && listed.every((each) => "const" in each) ? listed.map((each) => [each.const, each.title ?? each.const]) : null;
}

function Field({ id, name, field, required }) {
  const label = clip(field.title ?? name, 200);
  const help = field.description ? html`<small id="${id}-help">${clip(field.description, 1000)}</small>` : null;
  const choices = choicesOf(field);
  const about = help ? `${id}-help` : undefined;
  if (field.type === "boolean") {
    return html`<div class="field"><label><input type="checkbox" name=${name} checked=${field.default === true} aria-describedby=${about} /> ${label}</label>${help}</div>`;
  }
  const input = choices
    ? html`<select id=${id} name=${name} required=${required} aria-describedby=${about}>${!required && html`<option value=""></option>`}${choices.map(([value, title]) => html`<option value=${String(value)} selected=${field.default === value}>${clip(title, 200)}</option>`)}</select>`
    : html`<input id=${id} name=${name} required=${required} aria-describedby=${about} type=${field.type === "integer" || field.type === "number" ? "number" : "text"} step=${field.type === "integer" ? "1" : "any"} value=${field.default ?? ""} />`;
  return html`<div class="field"><label for=${id}>${label}${required ? " (required)" : ""}</label>${input}${help}</div>`;
}

function contentOf(form, schema) {
  const content = {};
  for (const [name, field] of fieldsOf(schema)) {
    const input = form.elements.namedItem(name);
    if (!input) continue;
    if (field.type === "boolean") content[name] = input.checked;
    else if (input.value !== "") content[name] = field.type === "integer" || field.type === "number" ? Number(input.value) : input.value;
  }
  return content;
}

function Form({ question, busy, send }) {
  const required = new Set(question.schema?.required ?? []);
  const disabled = busy || rights.value !== "act";
  const submit = (event) => {
    event.preventDefault();
    send({ action: "accept", content: contentOf(event.target, question.schema) });
  };
  return html`<form onSubmit=${submit}>
    ${question.url !== null && html`<p>The agent wants you to open this page, if you trust it: <code>${clip(question.url, 2000)}</code></p>`}
    ${fieldsOf(question.schema).map(([name, field]) => html`<${Field} id="q-${question.id}-${name}" name=${name} field=${field} required=${required.has(name)} />`)}
    <div class="buttons">
      <button class="primary" disabled=${disabled}>${question.url === null ? "Answer" : "Done"}</button>
      <button type="button" disabled=${disabled} onClick=${() => send({ action: "decline" })}>Decline</button>
    </div>
  </form>`;
}

export function Question({ question, inSession = false, select = null }) {
  const [busy, setBusy] = useState(false);
  const send = async (reply) => {
    setBusy(true);
    await answer(question, reply, "Answered.");
    setBusy(false);
  };
  const title = question.type === "permission" ? oneLine(question.title, 200) || "Permission" : clean(oneLine(question.message, 200)) || "Question";
  const heading = `q-${question.id}`;
  return html`<article class="card question" aria-labelledby=${heading} data-question=${question.id}>
    <header>
      ${select && html`<input type="checkbox" aria-label="Select: ${title}" checked=${select.checked} onChange=${select.change} />`}
      <h3 id=${heading}>${title}</h3>
      <p class="about">
        <span class="chip">${clip(question.peer, 60)}</span>${" "}
        ${question.type === "permission" && html`<span class="chip kind">${clip(question.toolKind, 40)}</span>`}${" "}
        <span title=${clip(question.workspace, 400)}>${shortPath(question.workspace)}</span>${" · "}
        <span>${age(clock.value - question.askedAt)} ago</span>
        ${!inSession && html`${" · "}<a href="#/session/${encodeURIComponent(question.session)}">session</a>`}
      </p>
    </header>
    ${question.type === "permission"
      ? html`<${Permission} question=${question} busy=${busy} send=${send} />`
      : html`${question.message.length > 200 && html`<p class="said">${clip(question.message)}</p>`}<${Form} question=${question} busy=${busy} send=${send} />`}
  </article>`;
}
