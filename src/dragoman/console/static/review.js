// The review screen: the changed lines of a session, comments that are sent as one prompt, the check,
// and the patch of isolated work.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { Ago } from "./ago.js";
import { act, call, reviewed, rights, work } from "./connection.js";
import { counts, rowsOf } from "./diff_rows.js";
import { Comment, CommentForm, Lines } from "./review_lines.js";
import { stateWords } from "./session.js";
import { clip, oneLine, own, printed, shortPath } from "./text.js";

const SOURCES = { patch: "patch of the isolated work", reported: "reported by the agent", workspace: "all changes since the last commit" };
const OPS = { add: "new", delete: "deleted", modify: "changed", move: "moved", copy: "copied", unknown: "changed" };
const FOLDED = 400; // a file with more rows starts collapsed
const NARROW = matchMedia("(max-width: 48rem)");

function useNarrow() {
  const [narrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const look = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", look);
    return () => NARROW.removeEventListener("change", look);
  }, []);
  return narrow;
}

function Check({ review, may, base }) {
  const { check } = review;
  const run = () => act(() => call(`${base}/check`, {}), "Check started.");
  return html`<section class="card" aria-labelledby="check-title">
    <h2 id="check-title">Check</h2>
    ${check === null && !review.checking && html`<p class="empty">${review.checkCommand ? html`The check has not run for this session yet: <code>${clip(review.checkCommand, 400)}</code>` : html`No check is configured. Add <code>check = "make test"</code> to the settings, or delegate with <code>--check</code>.`}</p>`}
    ${check !== null && html`<p><span class="state ${check.ok ? "done" : "failed"}">${check.ok ? "passed" : "failed"}</span> ${check.where === "worktree" ? "in the worktree of the isolated work" : "in the workspace"}, <${Ago} at=${check.at} /></p>
      <p><code>${clip(check.command, 400)}</code>${check.problem ? `: ${printed(check.problem, 400)}` : check.ok ? "" : `: exit code ${check.exitCode ?? "unknown"}`}</p>
      ${check.tail && html`<details open=${!check.ok}><summary>Output</summary><pre class="terminal" tabindex="0" aria-label="Output of the check">${printed(check.tail)}</pre></details>`}`}
    ${review.checkProblem && html`<p class="problem" role="alert">${clip(review.checkProblem, 1000)}</p>`}
    ${review.checking && html`<p role="status">The check is running …</p>`}
    ${review.checkCommand && html`<div class="buttons"><button type="button" disabled=${!may || review.checking} onClick=${run}>Run in the workspace</button></div>`}
  </section>`;
}

function Patch({ review, may, base }) {
  const [told, setTold] = useState(null);
  const [busy, setBusy] = useState(false);
  const { patch } = review;
  if (patch === null) return null;
  const apply = async () => {
    setBusy(true);
    const done = await act(() => call(`${base}/apply`, { digest: patch.digest }));
    setBusy(false);
    setTold(done);
  };
  return html`<section class="card" aria-labelledby="patch-title">
    <h2 id="patch-title">Patch</h2>
    ${patch.state === "applied" && html`<p><span class="state done">applied</span> to ${clip(patch.top, 400)}</p>`}
    ${patch.state === "gone" && html`<p class="empty">The patch file is gone: <code>${clip(patch.file, 400)}</code></p>`}
    ${patch.state === "kept" && html`
      <p>The work was done in a separate worktree. It is not in <code>${clip(patch.top, 400)}</code> yet.</p>
      ${patch.obstacle && html`<p class="problem">The patch cannot be applied here: ${clip(patch.obstacle, 1000)}</p><p class="empty">To apply it anyway: <code>${clip(patch.command, 1000)}</code></p>`}
      ${told !== null && !told.applied && html`<div role="alert"><p class="problem">The patch does not apply. Nothing was changed.</p><ul>${told.conflicts.map((each) => html`<li><code>${clip(each.path, 400)}</code>: ${clip(each.why, 400)}</li>`)}</ul></div>`}
      <div class="buttons"><button type="button" class="primary" disabled=${!may || busy || patch.obstacle !== ""} onClick=${apply}>${busy ? "Applying …" : "Apply to the workspace"}</button></div>`}
  </section>`;
}

function File({ file, split, comments, may, add, remove, open }) {
  const [commenting, setCommenting] = useState(false);
  const changes = file.changes.map((change) => ({ change, rows: rowsOf(change) }));
  const total = counts(changes.flatMap(({ rows }) => rows));
  const [shown, setShown] = useState(open);
  const about = comments.filter((comment) => comment.line === null && comment.quote === "");
  return html`<details class="card file" open=${shown} onToggle=${(event) => setShown(event.target.open)} id="file-${file.path}">
    <summary><span class="path">${clip(file.path, 400)}</span> <span class="chip">${own(OPS, file.op) ?? clip(file.op, 20)}</span> <span class="counts"><span class="plus">+${total.added}</span> <span class="minus">−${total.removed}</span></span>${comments.length > 0 && html` <span class="chip">${comments.length} ${comments.length === 1 ? "comment" : "comments"}</span>`}</summary>
    ${shown && html`
      ${file.oldPath && html`<p class="about">old path: ${clip(file.oldPath, 400)}</p>`}
      ${file.binary && html`<p class="empty">Binary file: the changes cannot be shown.</p>`}
      ${file.leftOut && html`<p class="empty">The review is too large: the changes to this file are omitted.</p>`}
      ${!file.binary && !file.leftOut && !file.changes.length && html`<p class="empty">The changed lines are unknown.</p>`}
      ${changes.map(({ change, rows }, at) => html`<div key=${at}>
        ${change.tool && html`<p class="about">${oneLine(change.tool, 160)}</p>`}
        <${Lines} path=${file.path} rows=${rows} split=${split} comments=${comments} canComment=${may} add=${add} remove=${remove} />
        ${change.cut && html`<p class="empty">Only the beginning of this change is shown.</p>`}
      </div>`)}
      ${about.map((comment) => html`<${Comment} key=${comment.id} comment=${comment} remove=${may ? remove : null} />`)}
      ${may && (commenting
        ? html`<${CommentForm} label="Comment on the file" save=${(text) => add({ path: file.path, text })} close=${() => setCommenting(false)} />`
        : html`<div class="buttons"><button type="button" onClick=${() => setCommenting(true)}>Comment on the file</button></div>`)}`}
  </details>`;
}

function place(comment) {
  if (comment.path === null) return "In general";
  const before = comment.side === "old" ? " before the change" : "";
  return `${clip(comment.path, 400)}${comment.line === null ? "" : `, line ${comment.line}${before}`}`;
}

function Send({ review, may, base, add, remove }) {
  const [general, setGeneral] = useState(false);
  const [peers, setPeers] = useState(null);
  const [busy, setBusy] = useState(false);
  const many = review.comments.length;
  useEffect(() => {
    if (may && many && peers === null) act(() => call("peers")).then((told) => told && setPeers(told.peers));
  }, [may, many > 0]);
  const send = async (event) => {
    event.preventDefault();
    const to = event.target.elements.to.value;
    setBusy(true);
    const body = { comments: review.comments.map((each) => each.id), ...(to === "session" ? { to } : { to: "new", peer: to.slice(4) }) };
    const told = await act(() => call(`${base}/review/send`, body), "Sent as one prompt.");
    setBusy(false);
    if (told !== null) location.hash = `#/session/${encodeURIComponent(told.session)}`;
  };
  return html`<section class="card send" aria-labelledby="send-title">
    <h2 id="send-title">Comments (${many})</h2>
    ${!many && html`<p class="empty">${may ? "Press the sign before a line to comment on it. All comments are sent together as one prompt." : "There are no comments."}</p>`}
    <ol class="comments">${review.comments.map((each) => html`<li key=${each.id}><span class="about">${place(each)}</span><${Comment} comment=${each} remove=${may ? remove : null} /></li>`)}</ol>
    ${may && (general
      ? html`<${CommentForm} label="General comment" save=${(text) => add({ text })} close=${() => setGeneral(false)} />`
      : html`<div class="buttons"><button type="button" onClick=${() => setGeneral(true)}>Add a general comment</button></div>`)}
    ${may && many > 0 && html`<form onSubmit=${send}>
      <div class="field"><label for="send-to">Send to</label><select id="send-to" name="to"><option value="session">this session</option>${(peers ?? []).map((name) => html`<option value="new:${name}">a new session with ${clip(name, 60)}</option>`)}</select></div>
      <div class="buttons"><button class="primary" disabled=${busy}>${busy ? "Sending …" : `Send ${many} ${many === 1 ? "comment" : "comments"} as one prompt`}</button></div>
    </form>`}
  </section>`;
}

function Choose() {
  const all = [...work.value.values()].filter((item) => item.session).sort((one, two) => two.updatedAt - one.updatedAt).slice(0, 50);
  return html`<h1>Review</h1>
    ${!all.length && html`<p class="empty">There is no session to review yet. Start one in <a href="#/work">Work</a>.</p>`}
    ${all.length > 0 && html`<p>Choose a session to review.</p>
    <ul class="rows">${all.map((item) => html`<li class="row" key=${item.id}>
      <span class="state ${item.state}">${stateWords(item)}</span>
      <span class="title"><a href="#/review/${encodeURIComponent(item.session)}">${oneLine(item.title || item.name || item.job?.prompt, 140) || "Session"}</a></span>
      <span class="chip">${clip(item.peer, 60)}</span>
      <span class="numbers">${shortPath(item.root)} · <${Ago} at=${item.updatedAt} /></span>
    </li>`)}</ul>`}`;
}

export function Review({ id }) {
  const [review, setReview] = useState(null);
  const [problem, setProblem] = useState("");
  const [wanted, setWanted] = useState({ source: "", job: "" });
  const [side, setSide] = useState(false);
  const narrow = useNarrow();
  const item = work.value.get(id);
  const base = `sessions/${encodeURIComponent(id)}`;
  const version = `${reviewed.value["*"]}:${reviewed.value[id] ?? 0}`;
  useEffect(() => {
    if (!id) return undefined;
    let over = false;
    const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
    call(`${base}/review?${query}`).then(
      (told) => { if (!over) { setReview(told); setProblem(""); } },
      (error) => { if (!over) setProblem(error.message); },
    );
    return () => { over = true; };
  }, [id, version, wanted.source, wanted.job, item?.job?.id, item?.job?.state]);
  if (!id) return html`<${Choose} />`;
  if (problem) return html`<h1>Review</h1><p class="problem" role="alert">${clip(problem, 1000)}</p><p><a href="#/review">Choose another session</a></p>`;
  if (review === null) return html`<h1>Review</h1><p class="empty">Loading …</p>`;
  const may = rights.value === "act";
  const add = (comment) => act(() => call(`${base}/review/comments`, comment), "");
  const remove = (comment) => act(() => call(`${base}/review/comments/${encodeURIComponent(comment)}/delete`, {}), "");
  const choose = (name) => (event) => setWanted({ ...wanted, [name]: event.target.value });
  const few = review.files.length <= 20;
  const size = (file) => file.changes.reduce((sum, each) => sum + (each.diff ?? each.newText ?? "").split("\n").length, 0);
  return html`<header class="review-head">
      <h1>Review: ${oneLine(item?.title || item?.name || item?.job?.prompt, 100) || "session"}</h1>
      <p class="about"><span class="chip">${clip(review.peer, 60)}</span>${" "}${item && html`<span class="state ${item.state}">${stateWords(item)}</span>`}${" · "}${clip(review.workspace, 200)}${" · "}<a href="#/session/${encodeURIComponent(id)}">session</a></p>
      <form class="filters" onSubmit=${(event) => event.preventDefault()}>
        <label>Changes <select value=${review.source} onChange=${choose("source")}>${review.sources.map((name) => html`<option value=${name}>${SOURCES[name]}</option>`)}</select></label>
        ${review.source === "reported" && html`<label>Turn <select value=${wanted.job} onChange=${choose("job")}><option value="">all turns</option>${review.turns.map((turn, at) => html`<option value=${turn.job}>${at + 1}: ${oneLine(turn.prompt, 60)}</option>`)}</select></label>`}
        ${!narrow && html`<label>View <select value=${side ? "split" : "unified"} onChange=${(event) => setSide(event.target.value === "split")}><option value="unified">unified</option><option value="split">side by side</option></select></label>`}
      </form>
    </header>
    <div class="review">
      <div class="review-facts">
        <${Patch} review=${review} may=${may} base=${base} />
        <${Check} review=${review} may=${may} base=${base} />
      </div>
      <section class="review-files" aria-label="Changed files">
        <h2>${review.files.length === 1 ? "1 changed file" : `${review.files.length} changed files`}</h2>
        ${review.problem && html`<p class="problem">${clip(review.problem, 1000)}</p>`}
        ${!review.files.length && !review.problem && html`<p class="empty">${review.source === "workspace" ? "Nothing differs from the last commit." : "The tool calls of these turns reported no changed files."}${review.source === "reported" && review.sources.includes("workspace") ? " A command may still have changed files: choose “all changes since the last commit” above." : ""}</p>`}
        ${review.files.map((file) => html`<${File} key=${`${review.source}:${file.path}`} file=${file} split=${side && !narrow} may=${may} add=${add} remove=${remove} open=${few && size(file) <= FOLDED} comments=${review.comments.filter((comment) => comment.path === file.path)} />`)}
      </section>
      <${Send} review=${review} may=${may} base=${base} add=${add} remove=${remove} />
    </div>`;
}
