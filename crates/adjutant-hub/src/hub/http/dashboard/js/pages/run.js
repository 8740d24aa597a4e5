// One run: its state, requests and actions, and its log, changes, conversation, report and raw events.
import { nowOnRun, onRun, send } from "../actions.js";
import { call } from "../api.js";
import { merging } from "../dialogs.js";
import { sent as removeSent, text as draftText } from "../drafts.js";
import { selectPage, wasOpenedByKey } from "../keys.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { NotFound } from "../not-found.js";
import { Age, Budget, Button, Failure, Guard, RunLink, State, useRead } from "../parts.js";
import { Request } from "../request.js";
import { EVENTS_KEPT, attention, connection, findRun, generation, history, lastEvent, requests as cards, whenLive } from "../state.js";
import { Said, clean, clock, count, duration, money, plain, size, words } from "../text.js";
import { Stopped } from "./board.js";
import { Kept } from "../unsent.js";
import { Changes } from "./changes.js";
import { Bar } from "./timeline.js";

const TABS = [
    ["log", "Log", "l"],
    ["changes", "Changes", "c"],
    ["conversation", "Conversation", "v"],
    ["report", "Report", "o"],
    ["raw", "Raw", "w"],
];
/** Most of a log that the page keeps, in characters. */
const LOG_CHARS_MAX = 1_000_000;
/** Events of the raw page that are shown first, and then at once. */
const EVENTS_PAGE = 500;
const LOG_PAGE_BYTES = 128 * 1024;
/** How long one read of the log waits, in milliseconds. */
const LOG_WAIT_MS = 20_000;

/** A run, by its id or its name. Another run is another page, so what was read is of this one. @param {{id: string, tab: string}} props */
export function RunPage({ id, tab }) {
    const known = findRun(id);
    const event = lastEvent.value;
    const runId = useRef(id);
    // Read again with each event of the run.
    const seq = useRef(0);
    if (event?.run_id === runId.current) seq.current = event?.seq ?? 0;
    const { data, error } = useRead(() => call("run", { run: runId.current }), [runId.current, seq.current, generation.value]);
    const run = data ?? known;
    runId.current = run?.run_id ?? id;
    const isShown = run !== undefined;
    useEffect(() => {
        if (isShown && wasOpenedByKey()) selectPage();
    }, [isShown]);
    const status = /** @type {any} */ (error)?.status;
    if (!run && status === 404) return html`<${NotFound} title="Run not found" what=${`There is no run ${id}. It may have been removed.`} />`;
    if (!run) return html`<h1>Run</h1><${Failure} error=${error} />${error && status !== 0 ? html`<p><a href="#/board">Board</a></p>` : html`<p class="empty">Reading …</p>`}`;
    if (!TABS.some(([word]) => word === tab)) return html`<${NotFound} title="Page not found" what=${`A run has no page ${tab}.`} run=${run.run_id} name=${run.name} />`;
    const requests = cards.value.filter((request) => request.run_id === run.run_id);
    const needy = attention.value.runs.find((other) => other.run_id === run.run_id);
    const isLive = run.state !== "finished";
    const children = run.children ?? [];
    const changed = run.changed_files?.length ?? 0;
    const hasWork = run.workspace && run.workspace.state !== "discarded" && run.workspace.state !== "merged";
    return html`<div class="bar run-bar" data-item="" data-page="" tabindex="-1" role="group" aria-label=${`Run ${run.name}`}>
            <h1>${clean(run.name)}</h1>
            <${State} run=${run} />
            <p class="totals">${clean(run.agent)} · ${isLive ? html`for <${Age} at=${run.started_at ?? run.created_at} />` : html`ended <${Age} at=${run.ended_at ?? run.updated_at} /> ago`}${run.attempt > 1 && ` · attempt ${run.attempt}`}${run.usage?.cost_usd && ` · ${money(run.usage.cost_usd)}`}${run.active_ms > 0 && ` · ${duration(run.active_ms)} active`}</p>
            <span class="grow"></span>
            <div class="line">
                ${isLive && run.state !== "stopped" && run.state !== "queued" && html`<${Button} label="Pause" k="p" onClick=${() => nowOnRun(run, "pause", "Paused")} />`}
                ${run.state === "stopped" && html`<${Button} label="Resume" k="p" tone="good" onClick=${() => onRun(run, "resume", "Resume", "Resumed")} />`}
                ${hasWork && html`<${Button} label="Merge …" k="m" tone="good" onClick=${() => (merging.value = run)} /><${Button} label="Discard" onClick=${() => onRun(run, "discard", "Discard the workspace of", "Discarded the workspace of")} />`}
                ${isLive && html`<${Button} label="Cancel" k="x" tone="bad" onClick=${() => onRun(run, "cancel", "Cancel", "Cancelled")} />`}
                ${!isLive && html`<${Button} label="Retry" onClick=${() => onRun(run, "retry", "Retry", "Started a retry of")} />`}
            </div>
        </div>
        <p class="task-line"><${Said} text=${run.task} /></p>
        <p class="dim facts-line">
            ${run.parent && html`parent <${RunLink} run=${run.parent} name=${run.parent_name} /> · `}${children.length > 0 && html`children ${children.map((name) => html`<${RunLink} run=${findRun(name)?.run_id ?? name} name=${name} /> `)}· `}
            ${run.retry_of && html`retry of <${RunLink} run=${run.retry_of} /> · `}<code>${clean(run.cwd)}</code>${run.workspace && ` · ${run.workspace.isolation}, ${run.workspace.state}`}${run.permissions && ` · may ${run.permissions}`}${run.fence?.enforced && ` · fence ${words(run.fence.enforced)}`} · pool ${run.pool}
        </p>
        ${run.snapshot_problem && html`<p class="warn">Not all files are kept, so adj undo cannot restore them: ${clean(run.snapshot_problem)}</p>`}
        ${run.reason && !needy && html`<p class="warn">${clean(run.reason)}</p>`}
        ${run.queue && html`<p class="warn">${clean(run.queue.why)}</p>`}
        <${Bar} run=${run} />
        ${requests.length > 0 && html`<section aria-label="Open requests" class="inbox">${requests.map((request) => html`<${Request} key=${request.message_id} request=${request} wide />`)}</section>`}
        ${needy && html`<section aria-label="Needs you" class="inbox"><${Stopped} run=${needy} /></section>`}
        <nav class="tabs" aria-label="Parts of the run">${TABS.map(([word, label, key]) => html`<a href=${`#/run/${run.run_id}/${word}`} data-key=${key} aria-keyshortcuts=${key} aria-current=${word === tab ? "page" : undefined}>${label}${word === "changes" && changed > 0 && ` ${changed}`}</a>`)}</nav>
        <${Guard} key=${tab}>${tab === "log" && html`<${Log} key=${run.run_id} run=${run} />`}${tab === "changes" && html`<${Changes} key=${run.run_id} run=${run} />`}${tab === "conversation" && html`<${Conversation} run=${run} seq=${seq.current} />`}${tab === "report" && html`<${Report} run=${run} />`}${tab === "raw" && html`<${Raw} key=${run.run_id} run=${run} seq=${seq.current} />`}<//>`;
}

/** The output of the agent, or what its CLI wrote. @param {{run: import("../contract.js").Run, raw?: boolean}} props */
function Log({ run, raw = false }) {
    const box = useRef(/** @type {HTMLElement | null} */ (null));
    const [follows, setFollows] = useState(true);
    const [grep, setGrep] = useState("");
    const [state, setState] = useState(/** @type {{parts: string[], from: number, ended: boolean, missing: number, error: any}} */ ({ parts: [], from: 0, ended: false, missing: 0, error: null }));
    useEffect(() => {
        const stop = new AbortController();
        /** @type {string[]} */
        let parts = [];
        let chars = 0;
        const read = async () => {
            /** @type {number | undefined} */
            let after;
            let from = 0;
            /** @type {any} */
            let problem = null;
            while (!stop.signal.aborted) {
                try {
                    const page = await call("logs", { run: run.run_id, after, max_bytes: LOG_PAGE_BYTES, grep: grep || undefined, raw: raw || undefined, wait_ms: after === undefined && problem === null ? 0 : LOG_WAIT_MS }, { signal: stop.signal });
                    if (after === undefined) from = page.from;
                    after = page.next;
                    if (page.text) {
                        const text = plain(page.text) + (page.omitted ? `\n[${size(page.omitted)} omitted]\n` : "");
                        parts = [...parts, text];
                        chars += text.length;
                        while (chars > LOG_CHARS_MAX && parts.length > 1) {
                            chars -= parts[0].length;
                            parts = parts.slice(1);
                        }
                    }
                    setState({ parts, from, ended: page.ended, missing: page.missing?.length ?? 0, error: null });
                    if (page.ended && page.next >= page.total) return;
                } catch (error) {
                    if (stop.signal.aborted) return;
                    problem = error;
                    const status = /** @type {any} */ (error).status;
                    // A runner that has the log can return.
                    if (status !== 0) setState({ parts, from, ended: false, missing: 0, error });
                    if (status !== 0 && status !== 503) return;
                    await new Promise((again) => setTimeout(again, 500));
                    await whenLive();
                }
            }
        };
        void read();
        return () => stop.abort();
    }, [run.run_id, grep, raw, run.attempt]);
    useEffect(() => {
        if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
    }, [state.parts, follows]);
    return html`<section aria-label=${raw ? "Protocol" : "Log"} class="log-page">
        <div class="line">
            <label class="check"><input type="checkbox" checked=${follows} onChange=${(/** @type {any} */ event) => setFollows(event.target.checked)} /> Follow</label>
            <input type="search" data-key="/" aria-label="Only lines with" placeholder="Only lines with … ( / )" value=${grep} onChange=${(/** @type {any} */ event) => setGrep(event.target.value)} />
            <span class="dim">${state.from > 0 && `from byte ${state.from}; `}${state.missing > 0 && `without the output of ${state.missing} earlier ${state.missing === 1 ? "attempt" : "attempts"}, which is on a runner; `}${state.error ? "interrupted" : state.ended ? "complete" : connection.value === "live" ? "live" : "waiting for the hub"}</span>
        </div>
        <${Failure} error=${state.error} />
        <pre class="log" ref=${box} tabindex="0" aria-label=${raw ? "Output of the agent's CLI" : "Output of the agent"}>${state.parts.map((part) => html`<span>${part}</span>`)}${state.parts.length === 0 && html`<span class="dim">No output${state.ended ? "." : " yet."}</span>`}</pre>
    </section>`;
}

/** @param {{run: import("../contract.js").Run, seq: number}} props */
function Conversation({ run, seq }) {
    const { data, error } = useRead(() => call("requests", { run: run.run_id, all: true, limit: 200 }), [run.run_id, seq]);
    const field = draftText(`send ${run.run_id}`);
    const text = field.value;
    const [hasFocus, setFocus] = useState(false);
    const isOver = run.state === "finished";
    const requests = data?.requests ?? [];
    return html`<section aria-label="Conversation">
        <${Failure} error=${error} />
        <ol class="talk">
            <li class="said-by"><span class="dim">task · ${clock(run.created_at)}</span><p><${Said} text=${run.task} /></p></li>
            ${requests.map((/** @type {import("../contract.js").Request} */ request) => html`<li class="said-by" key=${request.message_id}>
                <span class="dim">${request.number} · ${request.kind} · ${clock(request.asked_at)}</span><p><${Said} text=${request.question} /></p>
                ${request.answer ? html`<p class="reply"><span class="dim">${clean(request.answered_by ?? "")} ${request.answered_at && clock(request.answered_at)}</span><br /><${Said} text=${request.answer} /></p>` : html`<p class="reply dim">${words(request.status)}</p>`}
            </li>`)}
        </ol>
        ${(!isOver || hasFocus || text) && html`<form class="line" onFocusIn=${() => setFocus(true)} onFocusOut=${() => setFocus(false)} onSubmit=${async (/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            if (!text.trim() || isOver) return;
            const sent = await send({ name: "send", body: { run: run.run_id, text }, about: `send-${run.run_id}`, run: run.run_id, done: (reply) => `Message to ${run.name}: ${words(reply.delivery)}` });
            if (sent) removeSent(`send ${run.run_id}`, text);
        }}><input aria-label="Message to the run" placeholder="Message to the run" value=${text} onInput=${(/** @type {any} */ event) => (field.value = event.target.value)} autocomplete="off" /><button type="submit" disabled=${!text.trim() || isOver}>Send</button></form>`}
        ${isOver && (hasFocus || text) && html`<${Kept} about=${`${run.name} has ended meanwhile`} text=${text} onDone=${() => (field.value = "")} />`}
    </section>`;
}

/** @param {{run: import("../contract.js").Run}} props */
function Report({ run }) {
    const { data } = useRead(() => (run.state === "finished" ? call("result", { run: run.run_id }) : Promise.resolve(null)), [run.run_id, run.state]);
    const report = run.report;
    const { checkpoint, commits = [] } = run;
    return html`<section aria-label="Report" class="report">
        ${report && html`<h2>Report <span class=${`verdict ${report.verdict}`}>${report.verdict}</span></h2><p><${Said} text=${report.summary} /></p>
            <table><caption class="unseen">What was checked</caption><tbody>${[...report.checked.map((found) => ({ what: found.field, ...found })), ...report.files.map((file) => ({ what: file.path, ...file }))].map(({ what, ...found }) => html`<tr><th scope="row">${clean(what)}</th><td><span class=${`verdict ${found.verdict}`}>${found.verdict}</span></td><td>${clean(found.reason)}</td></tr>`)}</tbody></table>
            ${[["Issues", report.issues_encountered], ["Recommendations", report.recommendations], ["Metrics", report.metrics_achieved]].map(([label, text]) => text && html`<h3>${label}</h3><p><${Said} text=${text} /></p>`)}`}
        ${run.acceptance && html`<h2>Acceptance command</h2><p><code>${clean(run.acceptance.command.join(" "))}</code>: ${run.acceptance.passed === true ? "passed" : run.acceptance.passed === false ? "failed" : "not run"} ${run.acceptance.reason && clean(run.acceptance.reason)}</p><pre class="preview" tabindex="0" aria-label="Output of the acceptance command">${plain(run.acceptance.output)}</pre>`}
        ${checkpoint && html`<h2>Checkpoint</h2><dl class="facts">${Object.entries(checkpoint).filter(([, value]) => typeof value === "string").map(([label, value]) => html`<dt>${words(label)}</dt><dd><${Said} text=${/** @type {string} */ (value)} /></dd>`)}</dl>`}
        ${commits.length > 0 && html`<h2>Commits</h2><ul>${commits.map((commit) => html`<li><code>${clean(commit)}</code></li>`)}</ul>`}
        <h2>Result ${data?.reconstructed && html`<span class="dim">(reconstructed)</span>`}</h2>
        ${data ? html`<pre class="preview" tabindex="0" aria-label="Result">${plain(data.result) || "(empty)"}</pre>` : html`<p class="empty">${run.state === "finished" ? "Reading …" : "The run has not ended."}</p>`}
        <${Budgets} run=${run} />
    </section>`;
}

/** @param {{run: import("../contract.js").Run}} props */
function Budgets({ run }) {
    const { budgets = [], resources: used } = run;
    return html`${budgets.length > 0 && html`<h2>Budgets</h2><ul class="list">${budgets.map((budget) => html`<li><${Budget} run=${run} budget=${budget} /></li>`)}</ul>`}
        ${used && html`<p class="dim">${count(used.processes_peak, "process", "processes")} at most, ${size(used.memory_peak_bytes)} of memory at most, ${duration(used.cpu_ms)} of CPU time</p>`}`;
}

/** @param {{run: import("../contract.js").Run, seq: number}} props */
function Raw({ run, seq }) {
    const { data, error } = useRead(() => history(run.run_id), [run.run_id, seq]);
    const [shown, setShown] = useState(EVENTS_PAGE);
    const events = data ?? [];
    const earlier = Math.max(0, events.length - shown);
    return html`<section aria-label="Raw"><${Failure} error=${error} />
        <h2>Protocol</h2><p class="dim">What the agent's CLI wrote. Agents whose output is text have none.</p><${Log} key=${run.run_id} run=${run} raw />
        <h2>Events</h2>
        ${earlier > 0 && html`<p class="line"><span class="dim">The newest ${shown} of ${events.length} events.</span> <${Button} label=${`Show ${Math.min(earlier, EVENTS_PAGE)} earlier events`} onClick=${() => setShown(shown + EVENTS_PAGE)} /></p>`}
        ${earlier === 0 && events.length >= EVENTS_KEPT && html`<p class="dim">The newest ${events.length} events. All: <code>adj events ${clean(run.name)}</code></p>`}
        <table class="events"><caption class="unseen">Events</caption><thead><tr><th scope="col">#</th><th scope="col">Time</th><th scope="col">Event</th><th scope="col">By</th><th scope="col">Text</th></tr></thead>
            <tbody>${events.slice(-shown).map((/** @type {any} */ event) => html`<tr key=${event.seq}><td>${event.seq}</td><td>${clock(event.at)}</td><td>${event.kind}</td><td>${clean(event.by)}</td><td>${clean(event.text)}</td></tr>`)}</tbody></table>
        <h2>Data</h2><pre class="preview" tabindex="0" aria-label="The run as JSON">${clean(JSON.stringify(run, null, 2))}</pre>
    </section>`;
}
