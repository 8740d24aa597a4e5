// An open request: what is asked, and its answer in place.
import { answer, busy, decide, later, undo } from "./actions.js";
import { html, useState } from "./lib.js";
import { focusNext } from "./keys.js";
import { Age, Button, RunLink, focusOnce } from "./parts.js";
import { now } from "./state.js";
import { Said, clean, duration, words } from "./text.js";

const KINDS = { question: ["?", "asks"], approval: ["!", "asks for approval"], delegation: ["»", "wants to delegate"] };
// Unsent texts, so that they survive a change of the page.
/** @type {Map<string, string>} */
const drafts = new Map();

/** @param {{request: import("./contract.js").Request, wide?: boolean}} props */
export function Request({ request, wide }) {
    const [symbol, what] = KINDS[/** @type {keyof typeof KINDS} */ (request.kind)] ?? ["·", request.kind];
    const waiting = later.value.find((entry) => entry.about === request.message_id);
    const isBusy = busy.value.has(request.message_id);
    const id = `request-${request.number}${wide ? "-wide" : ""}`;
    return html`<article class=${`card request ${request.kind}`} data-item="" data-needs="" data-request=${request.number} tabindex="-1" aria-labelledby=${id}>
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
                ? html`<${Answer} request=${request} />`
                : html`<${Decision} request=${request} />`}
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

/** @param {{request: import("./contract.js").Request}} props */
function Answer({ request }) {
    const { options = [] } = request;
    const [text, setText] = useState(drafts.get(request.message_id) ?? "");
    const change = (/** @type {string} */ value) => {
        drafts.set(request.message_id, value);
        setText(value);
    };
    const send = (/** @type {string} */ value, /** @type {Element} */ from) => {
        if (!value.trim()) return;
        drafts.delete(request.message_id);
        focusNext(from);
        void answer(request, value);
    };
    return html`<form class="answer" onSubmit=${(/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        send(text, /** @type {Element} */ (event.target));
    }}>
        ${options.length > 0 &&
        html`<div class="options" role="group" aria-label="Options">
            ${options.map(
                (/** @type {string} */ option, /** @type {number} */ at) =>
                    html`<button type="button" data-key=${at < 9 ? String(at + 1) : undefined} data-focus="" onClick=${(/** @type {any} */ event) => send(option, event.currentTarget)}>
                        ${at < 9 && html`<kbd aria-hidden="true">${at + 1}</kbd> `}${clean(option)}
                    </button>`,
            )}
        </div>`}
        <div class="line">
            <input data-key="r" aria-label=${`Answer ${request.number}`} placeholder="Type an answer (r)" value=${text} onInput=${(/** @type {any} */ event) => change(event.target.value)} autocomplete="off" />
            <button type="submit" disabled=${!text.trim()}>Send</button>
        </div>
    </form>`;
}

/** @param {{request: import("./contract.js").Request}} props */
function Decision({ request }) {
    const [mode, setMode] = useState(/** @type {"" | "deny" | "change"} */ (""));
    const [reason, setReason] = useState("");
    const [same, setSame] = useState(false);
    const { options = [] } = request;
    const isDelegation = request.kind === "delegation";
    const [changes, setChanges] = useState({ prompt: request.question, agent: request.delegation?.agent ?? "", cwd: request.delegation?.cwd ?? "", priority: request.delegation?.priority ?? "P1" });
    const approve = (/** @type {Element} */ from, /** @type {object} */ more = {}) => {
        focusNext(from);
        decide(request, "approve", { ...(same ? { same: true } : {}), ...more });
    };
    if (mode === "deny") {
        return html`<form class="answer" onSubmit=${(/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            if (!reason.trim()) return;
            focusNext(/** @type {Element} */ (event.target));
            decide(request, "deny", { reason });
        }}>
            <div class="line">
                <input ref=${focusOnce} aria-label=${`Why ${request.number} is denied`} placeholder="Why?" value=${reason} onInput=${(/** @type {any} */ event) => setReason(event.target.value)} autocomplete="off" />
                <button type="submit" class="bad" disabled=${!reason.trim()}>Deny</button>
                <button type="button" onClick=${() => setMode("")}>Back</button>
            </div>
        </form>`;
    }
    if (mode === "change") {
        const field = (/** @type {"prompt" | "agent" | "cwd" | "priority"} */ name) => ({ value: changes[name], onInput: (/** @type {any} */ event) => setChanges({ ...changes, [name]: event.target.value }) });
        return html`<form class="answer change" onSubmit=${(/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            /** @type {Record<string, string>} */
            const changed = {};
            if (changes.prompt !== request.question) changed.prompt = changes.prompt;
            for (const name of /** @type {const} */ (["agent", "cwd", "priority"])) if (changes[name] && changes[name] !== request.delegation?.[name]) changed[name] = changes[name];
            approve(/** @type {Element} */ (event.target), Object.keys(changed).length ? { changes: changed } : {});
        }}>
            <label>Task <textarea ref=${focusOnce} rows="4" ...${field("prompt")}></textarea></label>
            <label>Agent <input ...${field("agent")} placeholder="the same agent" /></label>
            <label>Directory <input ...${field("cwd")} placeholder="the same directory" /></label>
            <label>Priority <select ...${field("priority")}><option>P0</option><option>P1</option><option>P2</option></select></label>
            <div class="line"><button type="submit" class="good">Approve with changes</button><button type="button" onClick=${() => setMode("")}>Back</button></div>
        </form>`;
    }
    return html`<div class="answer">
        ${options.length > 0 && html`<div class="options" role="group" aria-label="Options">${options.map((/** @type {string} */ option, /** @type {number} */ at) => html`<button type="button" data-key=${at < 9 ? String(at + 1) : undefined} data-focus="" onClick=${(/** @type {any} */ event) => approve(event.currentTarget, { reason: option })}>Approve: ${clean(option)}</button>`)}</div>`}
        <div class="line">
            <button type="button" class="good" data-key="a" aria-keyshortcuts="a" onClick=${(/** @type {any} */ event) => approve(event.currentTarget)}>Approve <kbd aria-hidden="true">a</kbd></button>
            <${Button} label="Deny …" k="d" tone="bad" onClick=${() => setMode("deny")} />
            ${isDelegation && html`<${Button} label="Change …" k="e" onClick=${() => setMode("change")} />`}
            ${!isDelegation && html`<label class="check"><input type="checkbox" checked=${same} onChange=${(/** @type {any} */ event) => setSame(event.target.checked)} /> the same operation of this tree, too</label>`}
        </div>
    </div>`;
}
