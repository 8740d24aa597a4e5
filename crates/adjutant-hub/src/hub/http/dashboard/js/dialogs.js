// The help, and the question for the way of a merge.
import { onRun } from "./actions.js";
import { html, signal, useState } from "./lib.js";
import { KEYS } from "./guard.js";
import { helpOpen } from "./keys.js";
import { Dialog } from "./parts.js";
import { clean } from "./text.js";

/** The run to merge. */
export const merging = signal(/** @type {import("./contract.js").Run | null} */ (null));

export function Help() {
    return html`<${Dialog} title="Keys" onClose=${() => (helpOpen.value = false)}>
        <table class="keys"><tbody>${KEYS.map(({ keys, shown, what }) => html`<tr><th scope="row"><kbd>${shown ?? keys[0]}</kbd></th><td>${what}</td></tr>`)}</tbody></table>
        <form method="dialog"><button autofocus>Close</button></form>
    <//>`;
}

/** @type {[NonNullable<import("./contract.js").Body<"merge">["mode"]>, string][]} */
const MODES = [
    ["merge", "Merge its commits"],
    ["squash", "Squash into one commit"],
    ["rebase", "Rebase its commits"],
    ["stage", "Stage the changes, without a commit"],
    ["branch", "Put them on a new branch"],
];

/** @param {{run: import("./contract.js").Run}} props */
export function Merge({ run }) {
    const [mode, setMode] = useState(/** @type {typeof MODES[0][0]} */ ("merge"));
    const [branch, setBranch] = useState(run.name);
    const close = () => (merging.value = null);
    const merged = (/** @type {import("./contract.js").Reply<"merge">} */ reply) =>
        reply.outcome === "conflicts"
            ? `${run.name} was not merged: it conflicts in ${(reply.conflicts ?? []).map((conflict) => conflict.path).join(", ")}`
            : `${reply.outcome === "nothing" ? "Nothing to merge from" : "Merged"} ${run.name}${reply.branch ? ` into ${reply.branch}` : ""}`;
    return html`<${Dialog} title=${`Merge ${run.name}`} onClose=${close}>
        <form onSubmit=${(/** @type {SubmitEvent} */ event) => {
            event.preventDefault();
            close();
            onRun(run, "merge", "Merge", "", { mode, ...(mode === "branch" ? { branch } : {}) }, merged);
        }}>
            <p>Into <code>${clean(run.workspace?.repository ?? run.cwd)}</code>, completely or not at all.</p>
            <fieldset><legend>How</legend>
                ${MODES.map(([word, label], at) => html`<label class="check"><input type="radio" name="mode" autofocus=${at === 0} checked=${mode === word} onChange=${() => setMode(word)} /> ${label}</label>`)}
            </fieldset>
            ${mode === "branch" && html`<label>Branch <input value=${branch} onInput=${(/** @type {any} */ event) => setBranch(event.target.value)} /></label>`}
            <div class="line"><button type="submit" class="good">Merge</button><button type="button" onClick=${close}>Cancel</button></div>
        </form>
    <//>`;
}
