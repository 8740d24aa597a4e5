// What a run has changed, as a difference. Comments on lines go to the run.
import { send } from "../actions.js";
import { call } from "../api.js";
import { html, signal, useRef, useState } from "../lib.js";
import { Failure, focusOpened, openField, useRead } from "../parts.js";
import { clean, count } from "../text.js";

/** Lines that are shown at first. */
const LINES = 2000;

/** @typedef {{path: string, lines: {tone: string, text: string, line: number | null}[], added: number, removed: number}} FileDiff */

/** The path in the first line of a file's part. Both names are equal, or those of a rename follow. @param {string} row */
function pathOf(row) {
    const names = row.slice("diff --git ".length);
    return names.slice((names.length + 1) / 2).replace(/^"?b\//, "").replace(/"$/, "");
}

/** Splits the output of `git diff`. @param {string} text @returns {FileDiff[]} */
export function parse(text) {
    /** @type {FileDiff[]} */
    const files = [];
    /** @type {FileDiff | null} */
    let file = null;
    let line = 0;
    let isInHunk = false;
    for (const row of text.split("\n")) {
        if (row.startsWith("diff --git ")) {
            file = { path: pathOf(row), lines: [], added: 0, removed: 0 };
            files.push(file);
            isInHunk = false;
            continue;
        }
        if (!file) continue;
        const hunk = /^@@+ .*\+(\d+)/.exec(row);
        if (hunk) {
            line = Number(hunk[1]);
            isInHunk = true;
            file.lines.push({ tone: "hunk", text: row, line: null });
        } else if (!isInHunk) {
            const renamed = /^rename to "?(.*?)"?$/.exec(row);
            if (renamed) file.path = renamed[1] ?? file.path;
            if (row && !/^(index|---|\+\+\+) /.test(row)) file.lines.push({ tone: "hunk", text: row, line: null });
        } else if (row.startsWith("+")) {
            file.added += 1;
            file.lines.push({ tone: "added", text: row, line: line++ });
        } else if (row.startsWith("-")) {
            file.removed += 1;
            file.lines.push({ tone: "removed", text: row, line: null });
        } else if (row.startsWith(" ")) file.lines.push({ tone: "", text: row, line: line++ });
        else if (row) file.lines.push({ tone: "hunk", text: row, line: null });
    }
    return files;
}

/** @typedef {{path: string, line: number, text: string}} Comment */
/** Comments on a run that were not sent, and the one that is being written. @typedef {{comments: Comment[], open: Comment | null}} Unsent */
/** @type {Map<string, import("../../vendor/signals.mjs").Signal<Unsent>>} */
const unsent = new Map();

/** Runs whose entries are kept; those without comments make room. */
const UNSENT_MAX = 200;

/** @param {string} run */
function unsentOf(run) {
    if (unsent.size >= UNSENT_MAX) for (const [other, { value }] of unsent) if (other !== run && !value.open && value.comments.length === 0) unsent.delete(other);
    const found = unsent.get(run) ?? signal(/** @type {Unsent} */ ({ comments: [], open: null }));
    unsent.set(run, found);
    return found;
}

/** @param {{run: import("../contract.js").Run}} props */
export function Changes({ run }) {
    const read = useRead(() => call("diff", { run: run.run_id }), [run.run_id, run.updated_at]);
    const [shown, setShown] = useState(LINES);
    const written = unsentOf(run.run_id);
    const { comments, open } = written.value;
    const setOpen = (/** @type {Comment | null} */ next) => (written.value = { ...written.value, open: next });
    // While a comment is written, the lines stay where they are.
    const frozen = useRef(read.data);
    if (!open || !frozen.current) frozen.current = read.data;
    const { error } = read;
    const data = frozen.current;
    if (!data) return html`<${Failure} error=${error} />${!error && html`<p class="empty">Reading …</p>`}`;
    const files = parse(data.text);
    const copies = data.committed_copies ?? [];
    let left = shown;
    const submit = async () => {
        const sent = await send({ name: "comment", body: { run: run.run_id, comments }, about: `comment-${run.run_id}`, run: run.run_id, done: (reply) => (reply.follow_up ? `${reply.follow_up} follows ${run.name} with the comments` : `Sent ${count(comments.length, "comment", "comments")} to ${run.name}`) });
        if (sent) written.value = { ...written.value, comments: written.value.comments.filter((comment) => !comments.includes(comment)) };
    };
    const field = () => html`<form class="line comment" onSubmit=${(/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        const { open: done, comments: before } = written.value;
        const text = done?.text.trim();
        written.value = { comments: done && text ? [...before, { ...done, text }] : before, open: null };
    }}><input ref=${focusOpened(`comment ${run.run_id}`)} aria-label=${`Comment on line ${open?.line}`} value=${open?.text} onInput=${(/** @type {any} */ event) => open && setOpen({ ...open, text: event.target.value })} autocomplete="off" /><button type="submit">Add</button></form>`;
    const isOpen = (/** @type {string} */ path, /** @type {number | null} */ line) => open !== null && open.path === path && open.line === line;
    const isPlaced = open === null || files.some((file) => file.lines.some((line) => isOpen(file.path, line.line)));
    return html`<section aria-label="Changes">
        ${run.conflicts?.map((conflict) => html`<p class="warn">Conflicts with ${clean(conflict.run_name)} in ${clean(conflict.files.map((file) => file.path).join(", "))}</p>`)}
        ${copies.length > 0 && html`<p class="warn">Its commits are kept and merged without copied files, which can be secrets: ${clean(copies.join(", "))}</p>`}
        ${files.length === 0 && html`<p class="empty">No changes.</p>`}
        ${comments.length > 0 && html`<div class="pending"><span>${count(comments.length, "comment", "comments")} not sent yet</span> <button type="button" class="good" onClick=${submit}>Send to ${clean(run.name)}</button></div>`}
        ${!isPlaced && html`<p class="warn">The line of your comment is not among the changes any more: ${clean(open.path)}:${open.line}</p>${field()}`}
        ${files.map((file) => {
            const lines = file.lines.slice(0, Math.max(0, left));
            left -= file.lines.length;
            return html`<details class="file" open key=${file.path} data-item="" tabindex="-1">
                <summary><code>${clean(file.path)}</code> <span class="plus">+${file.added}</span> <span class="minus">−${file.removed}</span></summary>
                <div class="diff" role="group" aria-label=${`Changes of ${file.path}`} tabindex="0">${lines.map((line) => {
                    const own = comments.filter((comment) => comment.path === file.path && comment.line === line.line);
                    const start = () => {
                        openField(`comment ${run.run_id}`);
                        setOpen(isOpen(file.path, line.line) ? null : { path: file.path, line: line.line ?? 0, text: "" });
                    };
                    return html`<div class=${`diff-line ${line.tone}`}>
                            ${line.line === null ? html`<span class="no"></span>` : html`<button type="button" class="no" aria-label=${`Comment on line ${line.line}`} onClick=${start}>${line.line}</button>`}<code>${clean(line.text)}</code>
                        </div>
                        ${own.map((comment) => html`<p class="comment">${clean(comment.text)}</p>`)}
                        ${isOpen(file.path, line.line) && field()}`;
                })}</div>
            </details>`;
        })}
        ${left < 0 && html`<button type="button" class="more" onClick=${() => setShown(shown * 4)}>Show more (${-left} lines left)</button>`}
        ${data.is_cut && html`<p class="warn">The difference is cut at 8 MiB; adj diff ${clean(run.name)} --stat lists all files.</p>`}
    </section>`;
}
