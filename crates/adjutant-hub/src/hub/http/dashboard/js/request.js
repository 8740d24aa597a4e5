// A request: what is asked, and its answer in place. The card of a closed request stays while somebody writes in it.
import { announced, answer, decide, later, undo } from "./actions.js";
import { draft, kept, release, releaseUnused, textOf } from "./drafts.js";
import { isRisky } from "./guard.js";
import { html, useEffect, useState } from "./lib.js";
import { focusNext } from "./keys.js";
import { Age, Button, RunLink, focusOpened, openField } from "./parts.js";
import { busy, now } from "./state.js";
import { Said, clean, duration, words } from "./text.js";
import { Kept } from "./unsent.js";

const KINDS = { question: ["?", "asks"], approval: ["!", "asks for approval"], delegation: ["»", "wants to delegate"] };

/** How a request was closed. @param {import("./drafts.js").Request | "removed" | null} closed */
function ending(closed) {
    if (closed === null) return "is not open any more";
    if (closed === "removed") return "was removed with its run";
    if (closed.answered_by) return `was answered by ${closed.answered_by} meanwhile`;
    return closed.status === "pending" ? "does not wait for you any more" : `${closed.status === "withdrawn" ? "was withdrawn" : "has expired"} meanwhile`;
}

/** @param {{request: import("./contract.js").Request, wide?: boolean}} props */
export function Request({ request, wide }) {
    const [symbol, what] = KINDS[/** @type {keyof typeof KINDS} */ (request.kind)] ?? ["·", request.kind];
    const waiting = later.value.find((entry) => entry.about === request.message_id);
    const isBusy = busy.value.has(request.message_id);
    const entry = isBusy ? undefined : kept.value.get(request.message_id);
    const end = entry && `${request.number} ${ending(entry.closed)}`;
    useEffect(() => {
        if (end && entry?.closed) announced.value = end;
    }, [end]);
    const leave = () => setTimeout(() => releaseUnused(request.message_id));
    const id = `request-${request.number}${wide ? "-wide" : ""}`;
    return html`<article class=${`card request ${request.kind} ${entry ? "closed" : ""}`} data-item="" data-needs=${entry ? undefined : ""} data-request=${request.number} data-message=${request.message_id} tabindex="-1" aria-labelledby=${id} onFocusOut=${leave}>
        <header id=${id}>
            <span class="symbol" aria-hidden="true">${symbol}</span>
            <span class="number">${request.number}</span>
            <${RunLink} run=${request.run_id} name=${request.run_name} open />
            <span class="what">${what}${request.blocking ? "" : ", and continues meanwhile"}</span>
            <${Age} at=${request.asked_at} class="age" />
        </header>
        <p class="question"><${Said} text=${request.question} /></p>
        <${Details} request=${request} />
        ${waiting
            ? html`<p class="pending"><span>${waiting.label} in ${duration(waiting.due - now.value)}</span> <${Button} label="Undo" onClick=${() => undo(waiting.id)} /></p>`
            : isBusy
              ? html`<p class="pending">Sending …</p>`
              : request.kind === "question"
                ? html`<${Answer} request=${request} isClosed=${end !== undefined} />`
                : html`<${Decision} request=${request} isClosed=${end !== undefined} />`}
        ${end && html`<${Kept} about=${end} text=${textOf(draft(request.message_id).value)} run=${request.run_id} answer=${entry?.closed} onDone=${() => drop(request.message_id)} />`}
    </article>`;
}

/** @param {{request: import("./contract.js").Request}} props */
function Details({ request }) {
    const { operation, delegation, clarification } = request;
    /** @type {[string, any][]} */
    const rows = [];
    const add = (/** @type {string} */ label, /** @type {any} */ value) => {
        if (value !== undefined && value !== null && value !== "") rows.push([label, value]);
    };
    add("Why", clarification?.reason);
    add("Blocked at", clarification?.blocked_at);
    add("Done so far", clarification?.current_state);
    add("Command", operation?.command);
    for (const path of operation?.paths ?? []) add("Path", path.real && path.real !== path.path ? `${path.path} → ${path.real}` : path.path);
    for (const url of operation?.urls ?? []) add("Address", url);
    add("In", operation?.directory?.path);
    add("Risk", request.risk);
    add("Agent", delegation?.agent);
    add("Directory", delegation?.cwd);
    add("Priority", delegation?.priority);
    add("Independence", delegation && words(delegation.independence));
    add("Reason", delegation?.reason);
    add("Needs to know", delegation?.context_required);
    add("Coordination", delegation?.coordination);
    add("Budget", delegation?.budget);
    add("Context", request.context);
    if (request.default) add(`If no answer in ${duration(Date.parse(request.expires_at) - now.value)}`, request.default);
    return html`${rows.length > 0 && html`<dl class="facts">${rows.map(([label, value]) => html`<dt>${label}</dt><dd><${Said} text=${String(value)} /></dd>`)}</dl>`}
        ${request.preview && html`<pre class="preview" tabindex="0" aria-label="What is to be approved, exactly">${clean(request.preview)}</pre>`}`;
}

/** Lets a closed request go. @param {string} message */
function drop(message) {
    focusNext(document.querySelector(`[data-message="${message}"]`));
    release(message);
}

/** @param {{request: import("./contract.js").Request, isClosed: boolean}} props */
function Answer({ request, isClosed }) {
    const { options = [] } = request;
    const field = draft(request.message_id);
    const { answer: text } = field.value;
    const send = (/** @type {string} */ value, /** @type {Element} */ from) => {
        if (!value.trim() || isClosed) return;
        focusNext(from);
        void answer(request, value);
    };
    return html`<form class="answer" onSubmit=${(/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        send(text, /** @type {Element} */ (event.target));
    }}>
        ${options.length > 0 &&
        !isClosed &&
        html`<div class="options" role="group" aria-label="Options">
            ${options.map(
                (/** @type {string} */ option, /** @type {number} */ at) =>
                    html`<button type="button" data-key=${at < 9 ? String(at + 1) : undefined} data-focus="" onClick=${(/** @type {any} */ event) => send(option, event.currentTarget)}>
                        ${at < 9 && html`<kbd aria-hidden="true">${at + 1}</kbd> `}${clean(option)}
                    </button>`,
            )}
        </div>`}
        <div class="line">
            <input data-key=${isClosed ? undefined : "r"} aria-label=${`Answer ${request.number}`} placeholder="Type an answer (r)" value=${text} onInput=${(/** @type {any} */ event) => (field.value = { ...field.value, answer: event.target.value })} autocomplete="off" />
            <button type="submit" disabled=${!text.trim() || isClosed}>Send</button>
        </div>
    </form>`;
}

/** @param {{request: import("./contract.js").Request, isClosed: boolean}} props */
function Decision({ request, isClosed }) {
    const field = draft(request.message_id);
    const { mode } = field.value;
    const setMode = (/** @type {"" | "deny" | "change"} */ next) => {
        openField(request.message_id);
        field.value = { ...field.value, mode: next };
    };
    const approve = (/** @type {Element} */ from, /** @type {object} */ more = {}) => {
        if (isClosed) return;
        focusNext(from);
        decide(request, "approve", more);
    };
    if (mode === "deny") return html`<${Deny} request=${request} isClosed=${isClosed} onBack=${() => setMode("")} />`;
    if (mode === "change") return html`<${Change} request=${request} isClosed=${isClosed} onBack=${() => setMode("")} onApprove=${approve} />`;
    return isClosed ? null : html`<${Decide} request=${request} onApprove=${approve} onMode=${setMode} />`;
}

/** @param {{request: import("./contract.js").Request, isClosed: boolean, onBack: () => void}} props */
function Deny({ request, isClosed, onBack }) {
    const field = draft(request.message_id);
    const { reason } = field.value;
    return html`<form class="answer" onSubmit=${(/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        if (!reason.trim() || isClosed) return;
        focusNext(/** @type {Element} */ (event.target));
        decide(request, "deny", { reason });
    }}>
        <div class="line">
            <input ref=${focusOpened(request.message_id)} aria-label=${`Why ${request.number} is denied`} placeholder="Why?" value=${reason} onInput=${(/** @type {any} */ event) => (field.value = { ...field.value, reason: event.target.value })} autocomplete="off" />
            <button type="submit" class="bad" disabled=${!reason.trim() || isClosed}>Deny</button>
            <button type="button" disabled=${isClosed} onClick=${onBack}>Back</button>
        </div>
    </form>`;
}

/** Changes a delegation, then approves it. @param {{request: import("./contract.js").Request, isClosed: boolean, onBack: () => void, onApprove: (from: Element, more: object) => void}} props */
function Change({ request, isClosed, onBack, onApprove }) {
    const asked = { prompt: request.question, agent: request.delegation?.agent ?? "", cwd: request.delegation?.cwd ?? "", priority: request.delegation?.priority ?? "P1" };
    const draftOf = draft(request.message_id);
    const changes = draftOf.value.changes ?? asked;
    const field = (/** @type {"prompt" | "agent" | "cwd" | "priority"} */ name) => ({ value: changes[name], onInput: (/** @type {any} */ event) => (draftOf.value = { ...draftOf.value, changes: { ...changes, [name]: event.target.value } }) });
    return html`<form class="answer change" onSubmit=${(/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        /** @type {Record<string, string>} */
        const changed = {};
        if (changes.prompt !== asked.prompt) changed.prompt = changes.prompt;
        for (const name of /** @type {const} */ (["agent", "cwd", "priority"])) if (changes[name] && changes[name] !== request.delegation?.[name]) changed[name] = changes[name];
        onApprove(/** @type {Element} */ (event.target), Object.keys(changed).length ? { changes: changed } : {});
    }}>
        <label>Task <textarea ref=${focusOpened(request.message_id)} rows="4" ...${field("prompt")}></textarea></label>
        <label>Agent <input ...${field("agent")} placeholder="the same agent" /></label>
        <label>Directory <input ...${field("cwd")} placeholder="the same directory" /></label>
        <label>Priority <select ...${field("priority")}><option>P0</option><option>P1</option><option>P2</option></select></label>
        <div class="line"><button type="submit" class="good" disabled=${isClosed}>Approve with changes</button><button type="button" disabled=${isClosed} onClick=${onBack}>Back</button></div>
    </form>`;
}

/** @param {{request: import("./contract.js").Request, onApprove: (from: Element, more: object) => void, onMode: (mode: "deny" | "change") => void}} props */
function Decide({ request, onApprove, onMode }) {
    const [same, setSame] = useState(false);
    const { options = [] } = request;
    const isDelegation = request.kind === "delegation";
    const isHigh = isRisky(request.risk);
    const more = same ? { same: true } : {};
    // The options of a high risk have no key: a click, or the button's own focus.
    const keyOf = (/** @type {number} */ at) => (at < 9 && !isHigh ? String(at + 1) : undefined);
    return html`<div class="answer">
        ${options.length > 0 && html`<div class="options" role="group" aria-label="Options">${options.map((/** @type {string} */ option, /** @type {number} */ at) => html`<button type="button" data-key=${keyOf(at)} data-focus="" onClick=${(/** @type {any} */ event) => onApprove(event.currentTarget, { ...more, reason: option })}>Approve: ${clean(option)}</button>`)}</div>`}
        <div class="line">
            <button type="button" class="good" data-key=${isHigh ? "A" : "a"} aria-keyshortcuts=${isHigh ? "Shift+A" : "a"} onClick=${(/** @type {any} */ event) => onApprove(event.currentTarget, more)}>Approve <kbd aria-hidden="true">${isHigh ? "Shift+A" : "a"}</kbd></button>
            <${Button} label="Deny …" k="d" tone="bad" onClick=${() => onMode("deny")} />
            ${isDelegation && html`<${Button} label="Change …" k="e" onClick=${() => onMode("change")} />`}
            ${!isDelegation && html`<label class="check"><input type="checkbox" checked=${same} onChange=${(/** @type {any} */ event) => setSame(event.target.checked)} /> the same operation of this tree, too</label>`}
        </div>
    </div>`;
}
