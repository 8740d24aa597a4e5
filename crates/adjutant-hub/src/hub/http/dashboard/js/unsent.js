// What was typed for something that has closed meanwhile, and what can still be done with it.
import { notify, send } from "./actions.js";
import { html, useRef } from "./lib.js";
import { findRun } from "./state.js";
import { Said, clean, words } from "./text.js";

/** Copies a text, also where the browser has no clipboard for pages (plain HTTP to another machine). @param {string} text @param {HTMLElement} beside */
async function copy(text, beside) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        const area = document.createElement("textarea");
        area.value = text;
        beside.append(area);
        area.select();
        const isCopied = document.execCommand("copy");
        area.remove();
        if (!isCopied) return notify("The browser does not let the page copy: select the text, and copy it", "bad");
    }
    notify("Copied", "good");
}

/**
 * Says how something has closed, with the text that was not sent.
 * @param {{about: string, text: string, run?: string, answer?: import("./drafts.js").Request | "removed" | null, onDone: () => void}} props
 */
export function Kept({ about, text, run, answer, onDone }) {
    const box = useRef(/** @type {HTMLElement | null} */ (null));
    const live = run === undefined ? undefined : findRun(run);
    const isLive = live !== undefined && live.state !== "finished";
    const sendText = async () => {
        const reply = await send({ name: "send", body: { run: run ?? "", text }, about: `send-${run}`, run, done: (sent) => `Message to ${live?.name}: ${words(sent.delivery)}` });
        if (reply) onDone();
    };
    return html`<div class="kept" role="status" ref=${box}>
        <p><strong>${clean(about)}</strong>${answer && answer !== "removed" && answer.answer && html`: <${Said} text=${answer.answer} />`}</p>
        ${text && html`<p class="dim">Your text was not sent. It is kept until you discard it.</p>
            <div class="line">
                <button type="button" onClick=${() => copy(text, /** @type {HTMLElement} */ (box.current))}>Copy text</button>
                ${isLive && html`<button type="button" onClick=${sendText}>Send as a message to ${clean(live.name)}</button>`}
                <button type="button" onClick=${onDone}>Discard text</button>
            </div>`}
    </div>`;
}
