// When runs worked, waited in the queue, and waited for a person, which has a colour of its own.
import { html, useRef, useState } from "../lib.js";
import { Failure, RunLink, useRead } from "../parts.js";
import { generation, history, lastEvent, now, runs } from "../state.js";
import { age, count, duration } from "../text.js";
import { Filter, matches } from "./board.js";

const SPANS = [["10m", 600e3], ["1h", 3600e3], ["6h", 6 * 3600e3], ["1d", 86400e3], ["7d", 7 * 86400e3]];
const ROWS = 100;
const PHASES = { queued: "in the queue", working: "working", person: "waiting for a person", stopped: "stopped" };

/** @typedef {{phase: keyof typeof PHASES, from: number, to: number}} Span */

/**
 * Computes the phases of a run from its events.
 * @param {import("../contract.js").Run} run @param {import("../contract.js").Event[]} events @param {number} end @returns {Span[]}
 */
export function phases(run, events, end) {
    /** @type {Span[]} */
    const spans = [];
    /** @type {keyof typeof PHASES | null} */
    let base = "queued";
    let from = Date.parse(run.created_at);
    const open = new Set();
    const phase = () => (base && open.size > 0 && base !== "queued" ? "person" : base);
    const change = (/** @type {number} */ at, /** @type {() => void} */ apply) => {
        const before = phase();
        apply();
        if (phase() === before) return;
        if (before && at > from) spans.push({ phase: before, from, to: at });
        from = at;
    };
    for (const { kind, at: time, request_id } of events) {
        const at = Date.parse(time);
        change(at, () => {
            if (kind === "run.starting" || kind === "run.started") base = "working";
            else if (kind === "run.queued" || kind === "run.requeued") base = "queued";
            else if (kind === "run.stopped") base = "stopped";
            else if (kind === "run.finished") (base = null), open.clear();
            else if (kind === "request.asked") open.add(request_id);
            else if (["request.answered", "request.expired", "request.withdrawn"].includes(kind)) open.delete(request_id);
        });
    }
    const last = run.ended_at ? Date.parse(run.ended_at) : end;
    const current = phase();
    if (current && last > from) spans.push({ phase: current, from, to: last });
    return spans;
}

/** @param {{spans: Span[], from: number, to: number}} props */
function Spans({ spans, from, to }) {
    const at = (/** @type {number} */ time) => ((Math.max(from, Math.min(to, time)) - from) / Math.max(1, to - from)) * 1000;
    return html`<svg class="spans" viewBox="0 0 1000 16" preserveAspectRatio="none" aria-hidden="true">${spans.map((span) => html`<rect class=${span.phase} x=${at(span.from).toFixed(1)} width=${Math.max(2, at(span.to) - at(span.from)).toFixed(1)} y="2" height="12"><title>${PHASES[span.phase]} for ${duration(span.to - span.from)}</title></rect>`)}</svg>`;
}

/** The sum of each phase, in words. @param {Span[]} spans */
function sums(spans) {
    return Object.entries(PHASES)
        .map(([phase, label]) => [label, spans.filter((span) => span.phase === phase).reduce((sum, span) => sum + span.to - span.from, 0)])
        .filter(([, ms]) => Number(ms) >= 1000)
        .map(([label, ms]) => `${label} ${duration(Number(ms))}`)
        .join(", ");
}

/** The bar of one run. @param {{run: import("../contract.js").Run}} props */
export function Bar({ run }) {
    const seq = useRef(0);
    if (lastEvent.value?.run_id === run.run_id) seq.current = lastEvent.value?.seq ?? 0;
    const { data } = useRead(() => history(run.run_id), [run.run_id, seq.current, generation.value]);
    if (!data) return html`<div class="bar-line"></div>`;
    const end = run.ended_at ? Date.parse(run.ended_at) : Math.max(now.value, Date.parse(run.updated_at));
    const spans = phases(run, data, end);
    return html`<div class="bar-line"><${Spans} spans=${spans} from=${Date.parse(run.created_at)} to=${end} /><p class="dim">${sums(spans) || "less than a second"}</p></div>`;
}

export function Legend() {
    return html`<p class="legend">${Object.entries(PHASES).map(([phase, label]) => html`<span><svg viewBox="0 0 12 12" aria-hidden="true"><rect class=${phase} width="12" height="12" /></svg> ${label}</span>`)}</p>`;
}

/** The shortest period that has all runs, at most an hour: older ones are a choice. @param {number} at */
function firstSpan(at) {
    const oldest = Math.min(...[...runs.peek().values()].map((run) => Date.parse(run.created_at)));
    return at - oldest < 600e3 ? 600e3 : 3600e3;
}

export function Timeline() {
    const [span, setSpan] = useState(() => firstSpan(now.peek()));
    const seq = lastEvent.value?.seq ?? 0;
    const { data, error } = useRead(() => history(), [seq, generation.value]);
    const to = now.value;
    const from = to - span;
    /** @type {Map<string, import("../contract.js").Event[]>} */
    const byRun = new Map();
    for (const event of data ?? []) {
        if (!event.run_id) continue;
        const own = byRun.get(event.run_id);
        if (own) own.push(event);
        else byRun.set(event.run_id, [event]);
    }
    const shown = [...runs.value.values()].filter((run) => matches(run) && (!run.ended_at || Date.parse(run.ended_at) >= from)).sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
    if (!data) return html`<h1>Timeline</h1><${Failure} error=${error} />${!error && html`<p class="empty">Reading …</p>`}`;
    const rows = shown.slice(0, ROWS).map((run) => ({ run, spans: phases(run, byRun.get(run.run_id) ?? [], to) }));
    const waited = rows.flatMap((row) => row.spans).filter((part) => part.phase === "person" && part.to > from).reduce((sum, part) => sum + part.to - Math.max(from, part.from), 0);
    return html`<div class="bar"><h1>Timeline</h1><p class="totals">${count(shown.length, "run", "runs")} · waited for a person: ${duration(waited)}</p>
            <div class="line" role="group" aria-label="Period">${SPANS.map(([label, ms]) => html`<button type="button" aria-pressed=${span === ms} onClick=${() => setSpan(Number(ms))}>${label}</button>`)}</div><${Filter} /></div>
        <${Legend} /><${Failure} error=${error} />
        <table class="timeline"><caption class="unseen">Phases of the runs</caption><thead><tr><th scope="col">Run</th><th scope="col"><span class="ticks"><span>${age(span)} ago</span><span>${duration(span / 2)} ago</span><span>now</span></span></th><th scope="col">Total</th></tr></thead>
            <tbody>${rows.map(({ run, spans }) => html`<tr key=${run.run_id} data-item="" tabindex="-1"><th scope="row"><${RunLink} run=${run.run_id} name=${run.name} open /></th><td><${Spans} spans=${spans.filter((part) => part.to > from)} from=${from} to=${to} /></td><td class="dim">${sums(spans)}</td></tr>`)}</tbody></table>
        ${rows.length === 0 && html`<p class="empty">No runs in this period.</p>`}
        ${shown.length > ROWS && html`<p class="dim">The newest ${ROWS} of ${shown.length}; filter for others.</p>`}`;
}
