// Who started whom, as an indented list.
import { html, useState } from "../lib.js";
import { Age, RunLink, State } from "../parts.js";
import { runs } from "../state.js";
import { clean, count } from "../text.js";
import { Filter, matches } from "./board.js";

const ROOTS = 50;

export function Tree() {
    const [shown, setShown] = useState(ROOTS);
    /** @type {Map<string, import("../contract.js").Run[]>} */
    const children = new Map();
    const roots = [];
    for (const run of runs.value.values()) {
        if (run.parent && runs.value.has(run.parent)) children.set(run.parent, [...(children.get(run.parent) ?? []), run]);
        else roots.push(run);
    }
    const has = (/** @type {import("../contract.js").Run} */ run) => matches(run) || (children.get(run.run_id) ?? []).some(has);
    const found = roots.filter(has);
    /** @param {import("../contract.js").Run} run @returns {any} */
    const branch = (run) => {
        const below = (children.get(run.run_id) ?? []).filter(has).sort((a, b) => a.created_at.localeCompare(b.created_at));
        return html`<li key=${run.run_id}><div class="row tree-row" data-item="" tabindex="-1"><${RunLink} run=${run.run_id} name=${run.name} open /><span class="agent">${clean(run.agent)}</span><${State} run=${run} /><span class="task dim">${clean(run.task)}</span><${Age} at=${run.created_at} class="age" /></div>${below.length > 0 && html`<ul>${below.map(branch)}</ul>`}</li>`;
    };
    return html`<div class="bar"><h1>Tree</h1><p class="totals">${count(found.length, "root", "roots")}</p><${Filter} /></div>
        ${found.length === 0 && html`<p class="empty">No runs.</p>`}
        <ul class="tree">${found.slice(0, shown).map(branch)}</ul>
        ${found.length > shown && html`<button type="button" class="more" onClick=${() => setShown(shown * 4)}>Show more (${found.length - shown} left)</button>`}`;
}
