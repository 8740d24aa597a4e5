// The inbox: all that waits for you, in full, longest first.
import { html } from "../lib.js";
import { Long, PolicyChange } from "../parts.js";
import { Request } from "../request.js";
import { attention, requests } from "../state.js";
import { Filter, Mention, Stopped, matches } from "./board.js";

export function Inbox() {
    const { runs, mentions, requests_more, runs_more } = attention.value;
    const rest = [...runs.filter(matches), ...mentions];
    const all = [...requests.value.filter(matches), ...rest];
    const waiting = attention.value.requests.filter(matches).length + rest.length + requests_more + runs_more;
    return html`<div class="bar"><h1>Inbox</h1><p class="totals">${waiting} waiting, longest first</p><${Filter} /></div>
        <${PolicyChange} change=${attention.value.policy_change} />
        <div class="inbox">
            <${Long} of=${all} empty="Nothing needs you." each=${(/** @type {any} */ item) => html`<li key=${item.message_id ?? item.run_id ?? item.chat_id}>${item.number ? html`<${Request} request=${item} wide />` : item.run_id ? html`<${Stopped} run=${item} />` : html`<${Mention} mention=${item} />`}</li>`} />
        </div>`;
}
