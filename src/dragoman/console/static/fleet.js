// The fleet screen: workers and jobs of the fleets that the user submits to, and one job with its
// events, its result and a cancel button.
import { useEffect, useState } from "preact/hooks";
import { html } from "./html.js";
import { act, call, clock, fleetVersion, follow, followed, rights } from "./connection.js";
import { Conversation } from "./session.js";
import { age, clip, oneLine, printed } from "./text.js";

// The response to a request, repeated when a fleet has changed. The old response stays until then.
function useFleet(path) {
  const [told, setTold] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let over = false;
    call(path).then((found) => { if (!over) { setTold(found); setProblem(""); } }, (error) => { if (!over) setProblem(error.message); });
    return () => { over = true; };
  }, [path, fleetVersion.value]);
  return [told, problem];
}

const stateOf = (job) => job.state === "done" ? (job.outcome === "ok" ? "done" : job.outcome === "cancelled" ? "idle" : "failed") : job.state === "running" ? "working" : "queued";
const jobLink = (team, id) => `#/fleet/${encodeURIComponent(team)}/${encodeURIComponent(id)}`;

function Worker({ worker, team }) {
  const peers = Object.entries(worker.peers);
  return html`<tr>
    <th scope="row">${clip(worker.name, 60)}</th>
    <td><span class="state ${worker.draining ? "waiting" : "done"}">${worker.draining ? "draining" : "ready"}</span></td>
    <td>${worker.running.length} of ${worker.slots}${worker.running.map((id) => html` <a href=${jobLink(team, id)}>${clip(id, 20)}</a>`)}</td>
    <td>${worker.labels.map((label) => html`<span class="chip">${clip(label, 40)}</span> `)}</td>
    <td>${peers.map(([name, state]) => `${clip(name, 60)}${["ready", "enabled"].includes(state) ? "" : ` (${oneLine(state, 60)})`}`).join(", ") || "none"}</td>
    <td>${clip(worker.machine, 60)}</td>
  </tr>`;
}

function Job({ job, team }) {
  const words = job.state === "done" ? clip(job.outcome, 40) : job.state;
  return html`<li class="row ${stateOf(job)}">
    <span class="state ${stateOf(job)}">${words}</span>
    <span class="title"><a href=${jobLink(team.id, job.id)}>${oneLine(job.prompt, 140) || clip(job.id, 20)}</a></span>
    <span class="chip">${clip(job.role, 60)}</span>
    <span class="numbers">${age(clock.value - job.createdAt)} ago</span>
    <span class="where">${job.worker ? `${clip(job.worker, 60)}, attempt ${job.attempts}` : job.waiting ? `waiting: ${oneLine(job.waiting, 200)}` : ""}${job.submitter === team.name ? "" : ` · submitted by ${clip(job.submitter, 60)}`}</span>
  </li>`;
}

function Team({ team }) {
  return html`<section class="project" aria-label="Fleet ${clip(team.team, 60)}">
    <h2>${clip(team.team, 60)}</h2>
    <p class="about"><span class="state ${team.connected ? "done" : "failed"}">${team.connected ? "connected" : "not connected"}</span> as ${clip(team.name, 60)}</p>
    ${team.problem && html`<p class="problem">${oneLine(team.problem, 400)}</p>`}
    <h3>Workers (${team.workers.length})</h3>
    ${!team.workers.length && html`<p class="empty">No worker is connected. Start one on a machine that has joined as a worker: <code>dragoman fleet worker</code></p>`}
    ${team.workers.length > 0 && html`<div class="table-box" tabindex="0" role="region" aria-label="Workers of ${clip(team.team, 60)}"><table class="facts">
      <thead><tr><th scope="col">Worker</th><th scope="col">State</th><th scope="col">Jobs</th><th scope="col">Labels</th><th scope="col">Peers</th><th scope="col">Machine</th></tr></thead>
      <tbody>${team.workers.map((worker) => html`<${Worker} key=${worker.name} worker=${worker} team=${team.id} />`)}</tbody>
    </table></div>`}
    <h3>Jobs (${team.jobs.length + team.more})</h3>
    ${!team.jobs.length && html`<p class="empty">The fleet has no jobs. Submit one in a repository: <code>dragoman fleet submit review "look at the last commit"</code></p>`}
    ${team.jobs.length > 0 && html`<ul class="rows">${team.jobs.map((job) => html`<${Job} key=${job.id} job=${job} team=${team} />`)}</ul>`}
    ${team.more > 0 && html`<p class="empty">${team.more} older ${team.more === 1 ? "job is" : "jobs are"} not shown.</p>`}
  </section>`;
}

export function Fleet() {
  const [told, problem] = useFleet("fleet");
  return html`<h1>Fleet</h1>
    ${problem && html`<p class="problem" role="alert">${clip(problem, 1000)}</p>`}
    ${told === null && !problem && html`<p class="empty">Loading …</p>`}
    ${told?.problem && html`<p class="problem" role="alert">Fleet credentials that cannot be used: ${oneLine(told.problem, 400)}</p>`}
    ${told !== null && !told.teams.length && !told.problem && html`<p class="empty">You are not a submitter of any fleet. To join one, run <code>dragoman fleet invite submitter NAME</code> where its server runs. Then, on this machine, run the command that it prints.</p>`}
    ${(told?.teams ?? []).map((team) => html`<${Team} key=${team.id} team=${team} />`)}`;
}

function Attempts({ job }) {
  return html`<div class="table-box" tabindex="0" role="region" aria-label="Attempts"><table class="facts">
    <thead><tr><th scope="col">Attempt</th><th scope="col">Worker</th><th scope="col">Result</th><th scope="col" class="amount">Time</th></tr></thead>
    <tbody>${job.attempts.map((each) => html`<tr key=${each.number}>
      <th scope="row">${each.number}</th><td>${clip(each.worker, 60)}</td>
      <td>${each.end ? clip(each.end, 40) : "running"}${each.why ? `: ${oneLine(printed(each.why), 300)}` : ""}</td>
      <td class="amount">${age((each.endedAt ?? clock.value) - each.assignedAt)}</td>
    </tr>`)}</tbody>
  </table></div>`;
}

export function FleetJob({ team, id }) {
  const key = `fleet/${team}/${id}`;
  const at = `fleet/${encodeURIComponent(team)}/jobs/${encodeURIComponent(id)}`;
  const [job, problem] = useFleet(at);
  useEffect(() => follow(key), [key]);
  const now = followed.value;
  const cancel = () => act(async () => {
    const told = await call(`${at}/cancel`, {});
    if (!told.cancelled) throw new Error("The job has already ended.");
  }, "Cancelling.");
  if (job === null) return html`<h1>Job</h1>${problem ? html`<p class="problem" role="alert">${clip(problem, 1000)}</p><p><a href="#/fleet">Fleet</a> lists all jobs.</p>` : html`<p class="empty">Loading …</p>`}`;
  const { result } = job;
  const shown = stateOf({ ...job, outcome: result?.outcome });
  const words = result ? clip(result.outcome, 40) : job.cancelled ? "cancelling" : job.state;
  return html`
    <header class="session">
      <h1>${oneLine(job.prompt, 120) || "Job"}</h1>
      <p class="about"><span class="chip">${clip(job.role, 60)}</span> <span class="state ${shown}">${words}</span>${" · "}<a href="#/fleet">${clip(team, 100)}</a>${" · "}${clip(job.id, 20)}${job.mine ? "" : ` · submitted by ${clip(job.submitter, 60)}`}</p>
      ${job.state !== "done" && job.mine && html`<div class="buttons"><button type="button" class="stop" disabled=${rights.value !== "act" || job.cancelled} onClick=${cancel}>Cancel</button></div>`}
      ${problem && html`<p class="problem" role="alert">${clip(problem, 1000)}</p>`}
    </header>
    ${job.attempts.length > 0 && html`<${Attempts} job=${job} />`}
    ${now !== null && now.key === key && html`<${Conversation} now=${now} empty="No worker has started this job yet." />`}
    ${result && html`<section class="card ended ${result.ok ? "done" : "failed"}" aria-label="Result">
      <h2>Result: ${clip(result.outcome, 40)}</h2>
      <p class="about">${result.peer ? `by ${clip(result.peer, 60)} ` : ""}${result.worker ? `on ${clip(result.worker, 60)}` : ""}${result.seconds ? `, ${age(result.seconds)}` : ""}</p>
      ${result.why && html`<p class="problem">${printed(result.why, 2000)}</p>`}
      ${result.text && html`<details><summary>Text</summary><pre tabindex="0">${printed(result.text)}</pre></details>`}
      ${result.patch && html`<p>The job changed files. Apply the patch in the repository: <code>dragoman fleet apply ${clip(job.id, 20)}</code></p>`}
    </section>`}`;
}
