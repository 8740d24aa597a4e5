// Pools with their queues, budgets, and agents.
import { send } from "../actions.js";
import { call } from "../api.js";
import { html } from "../lib.js";
import { Budget, Failure, RunLink, State, useRead } from "../parts.js";
import { generation, lastEvent, runs } from "../state.js";
import { clean, clock, count, words } from "../text.js";

export function Pools() {
    const { data, error } = useRead(() => call("pools"), [lastEvent.value?.seq, generation.value]);
    const change = (/** @type {any} */ pool, /** @type {object} */ body, /** @type {string} */ done) => send({ name: "pool-change", body: { pool: pool.name, ...body }, about: `pool-${pool.name}`, done });
    const all = [...runs.value.values()];
    const budgeted = all.filter((run) => run.state !== "finished" && (run.budgets ?? []).length > 0);
    return html`<div class="bar"><h1>Pools and budgets</h1>${data && html`<p class="totals">${data.live_runs} of ${data.live_runs_max} places for live runs</p>`}</div>
        <${Failure} error=${error} />
        ${(data?.pools ?? []).map((pool) => {
            const queue = all.filter((run) => run.state === "queued" && run.pool === pool.name).sort((a, b) => (a.queue_place ?? 1e9) - (b.queue_place ?? 1e9));
            const waiting = pool.waiting ?? [];
            return html`<section class="card pool" key=${pool.name} data-item="" tabindex="-1" aria-label=${`Pool ${pool.name}`}>
                <div class="row"><h2>${clean(pool.name)}</h2>${pool.paused && html`<span class="state stopped">◐ paused</span>`}<label class="meter"><meter min="0" max=${pool.slots || 1} value=${pool.live}></meter> ${pool.live} of ${count(pool.slots, "slot", "slots")}${(pool.lent ?? 0) > 0 && `, ${pool.lent} lent`}</label><span>${pool.queued} queued</span><span class="grow"></span>
                    <div class="line"><button type="button" aria-label=${`One slot fewer in ${pool.name}`} disabled=${pool.slots <= 1} onClick=${() => change(pool, { slots: pool.slots - 1 }, `${pool.name} has ${count(pool.slots - 1, "slot", "slots")}`)}>−</button><button type="button" aria-label=${`One slot more in ${pool.name}`} onClick=${() => change(pool, { slots: pool.slots + 1 }, `${pool.name} has ${count(pool.slots + 1, "slot", "slots")}`)}>+</button>
                    <button type="button" data-key="p" aria-keyshortcuts="p" onClick=${() => change(pool, { paused: !pool.paused }, pool.paused ? `${pool.name} starts runs again` : `${pool.name} starts no more runs`)}>${pool.paused ? "Resume" : "Pause"} <kbd aria-hidden="true">p</kbd></button></div></div>
                ${pool.budget && html`<p class="dim">each run may use ${clean(pool.budget)}</p>`}
                ${waiting.length > 0 && html`<p class="dim">${waiting.map((group) => `${count(group.runs, "run waits", "runs wait")} for: ${words(group.for)}`).join("; ")}</p>`}
                ${queue.length > 0 && html`<ol class="queue">${queue.slice(0, 50).map((run) => html`<li key=${run.run_id}><${RunLink} run=${run.run_id} name=${run.name} /> <span class="dim">${run.priority ?? "optional"} · ${clean(run.queue?.why ?? "")}</span></li>`)}</ol>`}
            </section>`;
        })}
        <h2>Budgets in use</h2>
        <p class="dim">To raise one and continue the runs that it stopped: <code>adj budget RUN --add cost=5</code></p>
        ${budgeted.length === 0 ? html`<p class="empty">No live run draws on a budget.</p>` : html`<table class="budgets"><thead><tr><th scope="col">Run</th><th scope="col">State</th><th scope="col">Budget</th><th scope="col">Used</th></tr></thead><tbody>${budgeted.slice(0, 200).flatMap((run) => (run.budgets ?? []).map((budget) => html`<tr key=${run.run_id + budget.kind + budget.of}><th scope="row"><${RunLink} run=${run.run_id} name=${run.name} /></th><td><${State} run=${run} /></td><td>${budget.kind}</td><td><${Budget} run=${run} budget=${budget} /></td></tr>`))}</tbody></table>`}`;
}

export function Agents() {
    const { data, error } = useRead(() => call("agents", { versions: true }), [generation.value]);
    const yes = (/** @type {boolean | undefined} */ value) => (value ? "✓" : "–");
    return html`<div class="bar"><h1>Agents</h1><p class="totals">${count(data?.agents.length ?? 0, "agent", "agents")} found; the search path is the hub's</p></div>
        <${Failure} error=${error} />
        ${(data?.warnings ?? []).map((warning) => html`<p class="warn">${clean(warning)}</p>`)}
        <p class="dim">Tools: it gets Adjutant's tools. Resumes: it continues its own session. Approvals: it asks before what it may not do. Usage: it reports tokens.</p>
        <div class="scroll" tabindex="0" role="region" aria-label="Agents"><table><thead><tr><th scope="col">Agent</th><th scope="col">Harness</th><th scope="col">Version</th><th scope="col">Tools</th><th scope="col">Resumes</th><th scope="col">Approvals</th><th scope="col">Usage</th><th scope="col">Permissions</th><th scope="col">Pool</th><th scope="col">Note</th></tr></thead>
            <tbody>${(data?.agents ?? []).map((agent) => html`<tr key=${agent.name} data-item="" tabindex="-1"><th scope="row">${clean(agent.name)}</th><td>${agent.harness}</td><td>${clean(agent.version ?? "")}</td><td>${yes(agent.can?.tools)}</td><td>${yes(agent.can?.resume)}</td><td>${yes(agent.can?.approvals)}</td><td>${yes(agent.can?.usage)}</td><td>${agent.permissions}${agent.permissions_not_enforced && " (not enforced)"}</td><td>${clean(agent.pool)}</td><td>${agent.problem ? html`<span class="warn">${clean(agent.problem)}</span>` : clean(agent.description)}${agent.limited_until && html` <span class="warn">limited until ${clock(agent.limited_until)}</span>`}${agent.quota_windows?.map((quota) => html` <span class="dim">quota ${quota.used_percent} %</span>`)}</td></tr>`)}</tbody></table></div>`;
}
