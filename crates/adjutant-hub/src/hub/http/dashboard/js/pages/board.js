// The board: what needs you, what works, what is done.
import { onRun, send } from "../actions.js";
import { html, signal } from "../lib.js";
import { Age, Button, Long, PolicyChange, RunLink, State, kindOf } from "../parts.js";
import { Request } from "../request.js";
import { attention, requests as cards, runs, runsMore } from "../state.js";
import { Said, clean, count, money } from "../text.js";

export const filter = signal("");

/** Whether a run or a request has all words of the filter. @param {import("../contract.js").Run | import("../contract.js").Request} item */
export function matches(item) {
    const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length) return true;
    const text = ("question" in item ? `${item.run_name} ${item.question} ${item.number}` : `${item.name} ${item.agent} ${item.task} ${item.state} ${item.outcome ?? ""} ${item.pool}`).toLowerCase();
    return wanted.every((word) => text.includes(word));
}

/** How long the list waits for the next letter, in milliseconds. */
const TYPING_MS = 200;
let typing = 0;

export function Filter() {
    // The list follows when the typing pauses, so that no key waits for it.
    const change = (/** @type {any} */ event) => {
        const { value } = event.target;
        clearTimeout(typing);
        typing = setTimeout(() => (filter.value = value), TYPING_MS);
    };
    return html`<input type="search" class="filter" data-key="/" aria-label="Filter" placeholder="Filter ( / )" defaultValue=${filter.peek()} onInput=${change} />`;
}

/** @param {string} a @param {string} b */
function newer(a, b) {
    return a < b ? 1 : a > b ? -1 : 0;
}

export function Board() {
    const needs = attention.value;
    const stopped = needs.runs.filter(matches);
    const needy = new Set(needs.runs.map((run) => run.run_id));
    // Runs that cannot continue without you are not listed twice.
    const asking = new Set(needs.requests.filter((request) => request.blocking).map((request) => request.run_id));
    const all = [...runs.value.values()].filter(matches);
    const working = all.filter((run) => run.state !== "finished" && !needy.has(run.run_id) && !asking.has(run.run_id)).sort((a, b) => newer(a.created_at, b.created_at));
    const done = all.filter((run) => run.state === "finished" && !needy.has(run.run_id)).sort((a, b) => newer(a.ended_at ?? a.updated_at, b.ended_at ?? b.updated_at));
    const cost = all.reduce((sum, run) => sum + (run.usage?.cost_usd ?? 0), 0);
    const rest = [...stopped, ...needs.mentions];
    const needed = needs.requests.filter(matches).length + rest.length;
    return html`<div class="bar">
            <h1>Board</h1>
            <p class="totals">${count(needed, "needs", "need")} you · ${working.length} working · ${done.length} done${cost > 0 && ` · ${money(cost)}`}</p>
            <${Filter} />
        </div>
        <${PolicyChange} change=${needs.policy_change} />
        <div class="columns">
            <section aria-labelledby="needs"><h2 id="needs">Needs you <span class="count">${needed}</span></h2>
                <${Long} of=${[...cards.value.filter(matches), ...rest]} step=${20} empty="Nothing needs you." each=${(/** @type {any} */ item) => html`<li key=${item.message_id ?? item.run_id ?? item.chat_id}>${item.number ? html`<${Request} request=${item} />` : item.run_id ? html`<${Stopped} run=${item} />` : html`<${Mention} mention=${item} />`}</li>`} />
            </section>
            <section aria-labelledby="working"><h2 id="working">Working <span class="count">${working.length}</span></h2>
                <${Long} of=${working} empty="No live runs." each=${(/** @type {import("../contract.js").Run} */ run) => html`<li key=${run.run_id}><${Card} run=${run} /></li>`} />
            </section>
            <section aria-labelledby="done"><h2 id="done">Done <span class="count">${done.length}${runsMore.value > 0 && "+"}</span></h2>
                <${Long} of=${done} empty="No finished runs yet." each=${(/** @type {import("../contract.js").Run} */ run) => html`<li key=${run.run_id}><${Card} run=${run} /></li>`} />
            </section>
        </div>`;
}

/** A run that works or has ended. @param {{run: import("../contract.js").Run}} props */
function Card({ run }) {
    const isLive = run.state !== "finished";
    const changed = run.changed_files?.length;
    return html`<article class=${`card small ${kindOf(run)}`} data-item="" tabindex="-1" aria-label=${run.name}>
        <div class="row"><${RunLink} run=${run.run_id} name=${run.name} open /><span class="agent">${clean(run.agent)}</span><span class="grow"></span><${State} run=${run} /><${Age} at=${isLive ? (run.started_at ?? run.created_at) : (run.ended_at ?? run.updated_at)} class="age" /></div>
        <div class="row dim"><span class="task">${clean(run.progress ?? run.task)}</span>${run.percent !== undefined && html`<progress max="100" value=${run.percent} aria-label="progress">${run.percent} %</progress>`}</div>
        ${run.queue && html`<div class="row dim">${run.queue_place ? `${run.queue_place} in ${run.pool}: ` : run.queue_ahead_min ? `after ${run.queue_ahead_min}+ in ${run.pool}: ` : ""}${clean(run.queue.why)}</div>`}
        ${run.silent_since && html`<div class="row warn">no output for <${Age} at=${run.silent_since} /></div>`}
        ${!isLive && (changed || run.usage?.cost_usd || run.report) && html`<div class="row dim">${changed ? html`<a href=${`#/run/${run.run_id}/changes`}>${count(changed, "file", "files")} changed</a>` : null}${run.report && html`<span class=${`verdict ${run.report.verdict}`}>report ${run.report.verdict}</span>`}${run.workspace?.state === "merged" && html`<span>merged</span>`}${run.usage?.cost_usd && html`<span>${money(run.usage.cost_usd)}</span>`}</div>`}
    </article>`;
}

/** A run that is stopped, or has ended badly. @param {{run: import("../contract.js").Run}} props */
export function Stopped({ run }) {
    const { kind, why, details, needs } = run.attention ?? {};
    const isStop = kind === "stopped";
    const isAlive = kind === "alive";
    return html`<article class=${`card ${isStop || isAlive ? "stopped" : "failed"}`} data-item="" data-needs="" tabindex="-1" aria-label=${run.name}>
        <header><span class="symbol" aria-hidden="true">${isStop ? "◐" : isAlive ? "◌" : "✗"}</span><${RunLink} run=${run.run_id} name=${run.name} open /><span class="what">${isStop ? "is stopped" : isAlive ? "has reported and is still alive" : String(why ?? run.outcome).replaceAll("_", " ")}</span><${Age} at=${run.ended_at ?? run.updated_at} class="age" /></header>
        <p class="question"><${Said} text=${details ?? run.reason} /></p>
        ${run.undo_interrupted && html`<p class="dim">An undo of it was interrupted. To complete it: <code>${clean(run.undo_interrupted.complete_with)}</code></p>`}
        ${needs && html`<p class="dim">It needs: <${Said} text=${needs} /></p>`}
        <div class="line">
            ${isStop && html`<${Button} label="Resume" k="p" tone="good" onClick=${() => onRun(run, "resume", "Resume", "Resumed")} /><${Button} label="Cancel" k="x" tone="bad" onClick=${() => onRun(run, "cancel", "Cancel", "Cancelled")} />`}
            ${isAlive && html`<${Button} label="Cancel" k="x" tone="bad" onClick=${() => onRun(run, "cancel", "Cancel", "Cancelled")} />`}
            ${!isStop && !isAlive && html`<${Button} label="Retry" k="p" onClick=${() => onRun(run, "retry", "Retry", "Started a retry of")} />`}
            ${!isStop && run.attention?.is_new && html`<${Button} label="Seen" k="y" onClick=${() => seen(run)} />`}
            <a href=${`#/run/${run.run_id}/log`}>Log</a>
        </div>
    </article>`;
}

/** @param {import("../contract.js").Run} run */
async function seen(run) {
    await send({ name: "notified", body: { runs: [{ run_id: run.run_id, cursor: run.cursor }] }, about: run.run_id, run: run.run_id, done: `Marked ${run.name} as seen` });
}

/** @param {{mention: import("../contract.js").Mention}} props */
export function Mention({ mention }) {
    return html`<article class="card" data-item="" data-needs="" tabindex="-1" aria-label=${mention.title}>
        <header><span class="symbol" aria-hidden="true">@</span><a class="run-name" data-open="" href=${`#/chats/${mention.chat_id}`}>${clean(mention.title || `chat ${mention.chat_id}`)}</a><span class="what">${count(mention.unread, "unread message", "unread messages")}</span><${Age} at=${mention.message.at} class="age" /></header>
        <p class="question"><strong>${clean(mention.message.name)}</strong>: <${Said} text=${mention.message.text} /></p>
    </article>`;
}

