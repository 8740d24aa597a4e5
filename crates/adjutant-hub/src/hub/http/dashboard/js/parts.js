// Small parts that several pages use.
import { dialogCloses, dialogOpens } from "./keys.js";
import { Component, computed, html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { now, runs } from "./state.js";
import { age, clean, count, duration, money } from "./text.js";

/** How long ago a time is. @param {{at: string, class?: string}} props */
export function Age({ at, class: name }) {
    // A signal as a child: its text changes without rendering the component again.
    const shown = useMemo(() => computed(() => age(now.value - Date.parse(at))), [at]);
    return html`<time class=${name} datetime=${at} title=${at}>${shown}</time>`;
}

const STATES = {
    needs: ["?", "needs you"],
    working: ["●", "working"],
    queued: ["…", "queued"],
    stopped: ["◐", "stopped"],
    failed: ["✗", "failed"],
    done: ["✓", "done"],
    cancelled: ["–", "cancelled"],
};

/** The group of a run's state. @param {import("./contract.js").Run} run @returns {keyof typeof STATES} */
export function kindOf(run) {
    if (run.state === "finished") {
        // A run has not succeeded if its acceptance command has not passed.
        if (run.outcome === "succeeded") return run.acceptance && run.acceptance.passed !== true ? "failed" : "done";
        return run.outcome === "cancelled" ? "cancelled" : "failed";
    }
    if (run.pending_total > 0 || run.pending?.length > 0) return "needs";
    if (run.state === "stopped") return run.resumes_by_itself ? "stopped" : "needs";
    return run.state === "queued" ? "queued" : "working";
}

/** @param {import("./contract.js").Run} run */
export function stateWords(run) {
    if (run.state === "finished") {
        if (run.outcome !== "succeeded") return String(run.outcome).replace("_", " ");
        return kindOf(run) === "done" ? "done" : "not accepted";
    }
    if (run.pending?.length) return `asks ${run.pending.map((/** @type {import("./contract.js").Request} */ request) => request.number).join(", ")}`;
    if (run.reported) return `reports ${run.reported.status.replaceAll("_", " ")}${run.silent_since ? ", still alive" : ""}`;
    if (run.silent_since) return "silent";
    return run.state === "running" ? "working" : run.state;
}

/** Shape, colour and word of a run's state. @param {{run: import("./contract.js").Run}} props */
export function State({ run }) {
    const kind = kindOf(run);
    return html`<span class=${`state ${kind}`}><span aria-hidden="true">${kind === "working" && run.silent_since ? "◌" : STATES[kind][0]}</span> ${stateWords(run)}</span>`;
}

const AMOUNTS = { time: duration, tokens: (/** @type {number} */ amount) => new Intl.NumberFormat("en", { notation: "compact" }).format(amount), cost: (/** @type {number} */ amount) => money(amount / 1e6) };

/** How much of a budget is used. @param {{run: import("./contract.js").Run, budget: import("./contract.js").Budget}} props */
export function Budget({ run, budget }) {
    const show = AMOUNTS[/** @type {keyof typeof AMOUNTS} */ (budget.kind)] ?? String;
    const used = budget.used === undefined || budget.used === null ? "an unknown part" : show(budget.used);
    return html`<label class="budget"><meter min="0" max="100" high="80" value=${budget.used_percent}>${budget.used_percent} %</meter> ${used} of ${show(budget.amount)}${budget.kind === "tokens" ? " tokens" : ""}${(budget.reserved ?? 0) > 0 && `, ${show(budget.reserved ?? 0)} reserved`}${budget.hard && ", hard"}${budget.of !== run.name && `, of ${clean(budget.of)}`}</label>`;
}

/** A link to a run. @param {{run: string, name?: string, open?: boolean}} props */
export function RunLink({ run, name, open }) {
    return html`<a class="run-name" href=${`#/run/${run}`} data-open=${open ? "" : undefined}>${clean(name ?? runs.value.get(run)?.name ?? run.slice(0, 8))}</a>`;
}

/** @param {{label: string, key?: string, onClick: () => void, tone?: string, disabled?: boolean}} props */
export function Button({ label, onClick, tone, disabled, ...rest }) {
    const key = /** @type {any} */ (rest).k;
    return html`<button type="button" class=${tone ?? ""} disabled=${disabled} data-key=${key} aria-keyshortcuts=${key} onClick=${onClick}>
        ${label}${key && html` <kbd aria-hidden="true">${key}</kbd>`}
    </button>`;
}

/** A list that shows its beginning, and more on request. @param {{of: any[], step?: number, each: (item: any) => any, empty: string}} props */
export function Long({ of, step = 50, each, empty }) {
    const [shown, setShown] = useState(step);
    if (of.length === 0) return html`<p class="empty">${empty}</p>`;
    return html`<ul class="list">
        ${of.slice(0, shown).map(each)}
        ${of.length > shown && html`<li><button type="button" class="more" onClick=${() => setShown(shown + step * 4)}>Show more (${of.length - shown} left)</button></li>`}
    </ul>`;
}

/** A change of the policies that waits for the person. @param {{change: import("./contract.js").Attention["policy_change"]}} props */
export function PolicyChange({ change }) {
    if (!change) return null;
    const permits = change.policies.filter((changed) => changed.permits).length;
    return html`<p class="warn" role="status">The policies of <code>${clean(change.file)}</code> changed while runs were live (${permits} of ${count(change.policies.length, "change", "changes")} permit more), and count only when you trust them: <code>adj policy</code></p>`;
}

/** A page that fails shows its error, and the others still work. */
export class Guard extends Component {
    constructor() {
        super();
        this.state = { error: null };
    }
    static getDerivedStateFromError(/** @type {Error} */ error) {
        return { error };
    }
    render(/** @type {any} */ { children }, /** @type {any} */ { error }) {
        return error ? html`<p class="problem" role="alert">This page failed: ${clean(String(error.message))}. Reload it; the hub is not affected.</p>` : children;
    }
}

/** A dialog that closes with Escape and returns the focus. @param {{title: string, onClose: () => void, children?: any}} props */
export function Dialog({ title, onClose, children }) {
    const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
    useLayoutEffect(() => {
        const before = /** @type {HTMLElement | null} */ (document.activeElement);
        dialogOpens();
        dialog.current?.showModal();
        return () => {
            dialogCloses();
            // While it is open, nothing else can have the focus.
            dialog.current?.close();
            if (before?.isConnected) before.focus();
        };
    }, []);
    return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${onClose} onCancel=${onClose}>
        <h2 id="dialog-title">${title}</h2>
        ${children}
    </dialog>`;
}

/**
 * Reads something, and again when one of the values changes. The last reply stays until the next one is there.
 * @template T @param {() => Promise<T>} read @param {any[]} on @returns {{data: T | null, error: Error | null}}
 */
export function useRead(read, on) {
    const [state, setState] = useState(/** @type {{data: T | null, error: Error | null}} */ ({ data: null, error: null }));
    useEffect(() => {
        let isCurrent = true;
        read().then(
            (data) => isCurrent && setState({ data, error: null }),
            (error) => isCurrent && setState((before) => ({ data: before.data, error })),
        );
        return () => {
            isCurrent = false;
        };
    }, on);
    return state;
}

/** @param {{error: any}} props */
export function Failure({ error }) {
    return error && error.status !== 0 && html`<p class="problem" role="alert">${clean(error.message)}${error.hint && ` (${clean(error.hint)})`}</p>`;
}

let awaited = "";

/** Says which field is to have the focus when it appears. @param {string} field */
export function openField(field) {
    awaited = field;
}

/** Focuses a field that the person has just opened. One that appears by itself takes the focus from nothing. @param {string} field */
export function focusOpened(field) {
    return (/** @type {HTMLElement | null} */ element) => {
        if (!element || awaited !== field) return;
        awaited = "";
        element.focus();
    };
}
