// One question from an agent: the requested action and the possible answers.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { html } from "./html.js";
import { Ago } from "./ago.js";
import { act, call, rights } from "./connection.js";
import { Diffs } from "./diff.js";
import { ScrollBox } from "./scroll_box.js";
import { clip, oneLine, own, shortPath, textOf } from "./text.js";

const MEANINGS = {
  allow_once: "Allow", allow_always: "Allow always", reject_once: "Refuse", reject_always: "Refuse always",
};

const MAX_TITLE = 200; // of the heading
export const MAX_OPEN = 20; // number of questions of one session that are shown at the same time
const SETTLE_TIME = 500; // milliseconds, longer than a double click

export function optionOf(question, kind) {
  return question.options.find((option) => option.kind === kind);
}

// dragoman stores an answer for the whole session. The agent still asks, and the policy still applies.
function isAlways(option) {
  return option.kind === "allow_always" || option.kind === "reject_always";
}

function inOrder(options) {
  return [...options.filter((option) => !isAlways(option)), ...options.filter(isAlways)];
}

const FILLERS = ["for", "in", "this", "the", "session"];
const SAME = {
  allow: ["allow", "approve", "accept", "yes"],
  reject: ["reject", "refuse", "deny", "decline", "no"],
};

// The agent chooses the names of its options. A name that adds no information is omitted.
function ownName(option) {
  const name = oneLine(option.name, 60);
  const [way, often] = String(option.kind).split("_");
  const words = name.toLowerCase().split(" ");
  return words.every((word) => word === often || FILLERS.includes(word) || own(SAME, way)?.includes(word)) ? "" : name;
}

export function sendAnswer(question, reply) {
  return call(`questions/${encodeURIComponent(question.id)}/answer`, { digest: question.digest, ...reply });
}

function answer(question, reply, done) {
  return act(() => sendAnswer(question, reply), done);
}

// Whether a question has been in its place for a moment. If one has just appeared there, or moved up
// because the one above it was answered or withdrawn, or has changed, a click may have been meant for another question.
function useSettled(place) {
  const [settled, setSettled] = useState(null);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(place), SETTLE_TIME);
    return () => clearTimeout(timer);
  }, [place]);
  return settled === place;
}

// A button that answers a question. Not `disabled` while it has to wait: that would take the focus away.
// A key is pressed for the button that has the focus, wherever that is now.
function Answer({ ready, act: act_, children, ...given }) {
  const click = (event) => {
    if (ready.busy || (!ready.settled && event.detail > 0)) event.preventDefault();
    else if (act_) act_();
  };
  return html`<button type="button" ...${given} disabled=${rights.value !== "act"} aria-disabled=${ready.busy || !ready.settled ? "true" : undefined} onClick=${click}>${children}</button>`;
}

function Said({ text, name, kind = "said" }) {
  return html`<${ScrollBox} kind=${kind} name=${name} lines=${text.split("\n").length}>${text}<//>`;
}

function Permission({ question, ready, send }) {
  const changed = new Set(question.diffs.map((each) => each.path));
  const paths = question.paths.filter((path) => !changed.has(path));
  const input = question.input === null ? null : html`<${Said} name="Input" text=${clip(JSON.stringify(question.input, null, 2))} />`;
  // Some agents write the command only as the title.
  const titled = question.toolKind === "execute" && question.command === null && question.title.trim() !== "";
  const known = titled || question.command !== null || question.diffs.length > 0 || paths.length > 0 || input !== null;
  return html`
    ${titled && html`<${Said} kind="command" name="Title" text=${clip(question.title)} />`}
    ${!titled && question.title.length > MAX_TITLE && html`<${Said} name="Title" text=${clip(question.title)} />`}
    ${question.command !== null && html`<${Said} kind="command" name="Command" text=${clip(question.command)} />`}
    ${question.cwd !== null && html`<p class="about">in <code>${clip(question.cwd, 400)}</code></p>`}
    ${question.notes.map((note) => html`<p class="notice">${clip(note, 400)}</p>`)}
    <${Diffs} changes=${question.diffs} />
    ${question.moreDiffs > 0 && html`<p class="notice">${question.moreDiffs} more changed ${question.moreDiffs === 1 ? "file is" : "files are"} not shown.</p>`}
    ${paths.length > 0 && html`<ul class="paths" aria-label="Paths">${paths.map((path) => html`<li>${clip(path, 4096)}</li>`)}</ul>`}
    ${question.morePaths > 0 && html`<p class="notice">${question.morePaths} more ${question.morePaths === 1 ? "path is" : "paths are"} not shown.</p>`}
    ${question.text && html`<${Said} name="Text" text=${clip(question.text)} />`}
    ${input !== null && (question.inputIsShown ? html`<details><summary>Full input</summary>${input}</details>` : input)}
    ${!known && html`<p class="notice">The agent does not say what it wants to do.</p>`}
    <div class="buttons">
      ${inOrder(question.options).map((option) => html`
        <${Answer} ready=${ready} data-kind=${option.kind}
          class=${option.kind === "allow_once" ? "primary" : ""}
          act=${() => send({ option: option.id })}>
          ${own(MEANINGS, option.kind) ?? "Answer"}${isAlways(option) && html` <small>in this session</small>`}${ownName(option) && html` <small>${ownName(option)}</small>`}
        <//>`)}
    </div>`;
}

// The schema comes from the agent and may be any JSON.
function isObject(value) {
  return typeof value === "object" && value !== null;
}

const INPUTS = { string: "text", number: "number", integer: "number" };
const FORMATS = { email: "email", uri: "url", date: "date" };

// The fields of a form, or null if the page does not support one of them.
function fieldsOf(schema) {
  const known = isObject(schema) ? schema.properties ?? {} : null;
  if (!isObject(known)) return null;
  const fields = Object.entries(known);
  return fields.every(([, field]) => isObject(field) && canAsk(field)) ? fields : null;
}

function canAsk(field) {
  const type = field.type ?? "string";
  if (type === "array") return isObject(field.items) && choicesOf(field.items) !== null;
  return type === "boolean" || own(INPUTS, type) !== undefined;
}

function choicesOf(field) {
  if (Array.isArray(field.enum)) return field.enum.map((value, at) => [value, field.enumNames?.[at] ?? value]);
  const listed = field.oneOf ?? field.anyOf;
  return Array.isArray(listed) && listed.every((each) => isObject(each) && "const" in each) ? listed.map((each) => [each.const, each.title ?? each.const]) : null;
}

function numberOr(value) {
  return typeof value === "number" ? value : undefined;
}

// Prefix of input names: an input named `elements` would hide that property of the form.
const INPUT = "field:";

// Set only default values: `value` would be set again at every render and overwrite the user's input.
function Field({ id, name, field, required }) {
  const label = clip(field.title ?? name, 200);
  const help = field.description ? html`<small id="${id}-help">${clip(field.description, 1000)}</small>` : null;
  const about = help ? `${id}-help` : undefined;
  if (field.type === "boolean") {
    return html`<div class="field"><label><input type="checkbox" name=${INPUT + name} defaultChecked=${field.default === true} aria-describedby=${about} /> ${label}</label>${help}</div>`;
  }
  if (field.type === "array") {
    const chosen = Array.isArray(field.default) ? field.default : [];
    return html`<fieldset class="field" aria-describedby=${about}><legend>${label}${required ? " (required)" : ""}</legend>
      ${choicesOf(field.items).map(([value, title]) => html`<label class="choice"><input type="checkbox" name=${INPUT + name} value=${textOf(value)} defaultChecked=${chosen.includes(value)} /> ${clip(title, 200)}</label>`)}${help}</fieldset>`;
  }
  const choices = choicesOf(field);
  const type = own(INPUTS, field.type ?? "string");
  const input = choices
    ? html`<select id=${id} name=${INPUT + name} required=${required} aria-describedby=${about}>${!required && html`<option value=""></option>`}${choices.map(([value, title]) => html`<option value=${textOf(value)} selected=${field.default === value}>${clip(title, 200)}</option>`)}</select>`
    : html`<input id=${id} name=${INPUT + name} required=${required} aria-describedby=${about} type=${type === "text" ? own(FORMATS, field.format) ?? type : type} step=${field.type === "integer" ? "1" : "any"}
        min=${numberOr(field.minimum)} max=${numberOr(field.maximum)} minlength=${numberOr(field.minLength)} maxlength=${numberOr(field.maxLength)} defaultValue=${clip(field.default ?? "", 10000)} />`;
  return html`<div class="field"><label for=${id}>${label}${required ? " (required)" : ""}</label>${input}${help}</div>`;
}

function valueOf(inputs, field) {
  if (field.type === "boolean") return inputs[0].checked;
  if (field.type === "array") return inputs.filter((input) => input.checked).map((input) => input.value);
  const { value } = inputs[0];
  if (value === "") return undefined;
  return field.type === "integer" || field.type === "number" ? Number(value) : value;
}

function contentOf(form, fields) {
  const inputs = [...form.elements];
  const values = fields.map(([name, field]) => [name, valueOf(inputs.filter((input) => input.name === INPUT + name), field)]);
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}

// The checks that a browser does not do by itself.
function wrongIn(fields, content, required) {
  for (const [name, field] of fields.filter(([, each]) => each.type === "array")) {
    const many = content[name].length;
    const least = Math.max(numberOr(field.minItems) ?? 0, required.has(name) ? 1 : 0);
    const label = clip(field.title ?? name, 60);
    if (many < least) return `${label}: choose at least ${least}`;
    if (many > (numberOr(field.maxItems) ?? Infinity)) return `${label}: choose at most ${field.maxItems}`;
  }
  return "";
}

function Form({ question, ready, send }) {
  const [wrong, setWrong] = useState("");
  const required = new Set(Array.isArray(question.schema?.required) ? question.schema.required : []);
  const fields = question.url === null ? fieldsOf(question.schema) : [];
  const submit = (event) => {
    event.preventDefault();
    const content = contentOf(event.target, fields);
    const problem = wrongIn(fields, content, required);
    setWrong(problem);
    if (!problem) send({ action: "accept", content });
  };
  return html`<form onSubmit=${submit}>
    ${question.url !== null && html`<p>The agent asks you to open this page. Open it only if you trust it: <code>${clip(question.url, 2000)}</code></p>`}
    ${(fields ?? []).map(([name, field]) => html`<${Field} id="q-${question.id}-${name}" name=${name} field=${field} required=${required.has(name)} />`)}
    ${fields === null && html`<p class="problem">This form has a field that cannot be filled in here. Answer it where it was asked, or decline it.</p>`}
    ${wrong && html`<p class="problem" role="alert">${wrong}</p>`}
    <div class="buttons">
      ${fields !== null && html`<${Answer} ready=${ready} type="submit" class="primary">${question.url === null ? "Answer" : "Done"}<//>`}
      <${Answer} ready=${ready} act=${() => send({ action: "decline" })}>Decline<//>
    </div>
  </form>`;
}

// `place` is where the question is in its list.
export function Question({ question, place, inSession = false, select = null }) {
  const [busy, setBusy] = useState(false);
  const ready = { busy, settled: useSettled(`${place} ${question.digest}`) };
  const card = useRef(null);
  const send = async (reply) => {
    setBusy(true);
    // An answered question disappears when the server says so.
    if (await answer(question, reply, "Answered.") === null) setBusy(false);
  };
  // The focus must not be lost with the question.
  useLayoutEffect(() => () => {
    if (!card.current?.contains(document.activeElement)) return;
    (document.getElementById("open-title") ?? document.getElementById("main"))?.focus({ preventScroll: true });
  }, []);
  const title = question.type === "permission" ? oneLine(question.title, MAX_TITLE) || "Permission" : oneLine(question.message, 200) || "Question";
  const heading = `q-${question.id}`;
  return html`<article class="card question" ref=${card} aria-labelledby=${heading} data-question=${question.id}>
    <header>
      ${select && html`<input type="checkbox" aria-label="Select: ${title}" checked=${select.checked} onChange=${select.change} />`}
      <h3 id=${heading}>${title}</h3>
      <p class="about">
        <span class="chip">${clip(question.peer, 60)}</span>${" "}
        ${question.type === "permission" && html`<span class="chip kind">${clip(question.toolKind, 40)}</span>`}${" "}
        <span title=${clip(question.workspace, 400)}>${shortPath(question.workspace)}</span>${" · "}
        <span><${Ago} at=${question.askedAt} /></span>
        ${!inSession && html`${" · "}<a href="#/session/${encodeURIComponent(question.session)}">session</a>`}
      </p>
    </header>
    ${question.type === "permission"
      ? html`<${Permission} question=${question} ready=${ready} send=${send} />`
      : html`${question.message.length > 200 && html`<p class="said">${clip(question.message)}</p>`}<${Form} question=${question} ready=${ready} send=${send} />`}
  </article>`;
}
