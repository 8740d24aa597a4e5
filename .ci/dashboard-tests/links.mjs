// Pages behind answer links, in a real browser.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { LOOKS, Site, assertAccessible, context } from "./site.mjs";

const PERSON = "anna";

/** A hub whose messages to a person are received here. */
export class Linked {
    constructor(adj) {
        this.adj = adj;
        this.links = [];
    }

    async open() {
        this.server = createServer(async (request, reply) => {
            let body = "";
            for await (const part of request) body += part;
            reply.end("{}");
            this.links.push(JSON.parse(body).click);
            this.server.emit("link");
        });
        await once(this.server.listen(0, "127.0.0.1"), "listening");
        // A port that nothing else is using.
        const free = createServer();
        await once(free.listen(0, "127.0.0.1"), "listening");
        const { port } = free.address();
        free.close();
        this.base = `http://127.0.0.1:${port}`;
        const webhook = `[[webhooks]]\ntemplate = "ntfy"\nurl = "http://127.0.0.1:${this.server.address().port}/topic"\nallow_private = true\nperson = "${PERSON}"\n`;
        this.site = new Site(this.adj, `listen = "127.0.0.1:${port}"\npublic_url = "${this.base}"\n`, webhook);
    }

    /** Starts a run, and returns the link of its request. */
    async ask(name, script) {
        const before = this.links.length;
        this.site.start(name, script);
        while (this.links.length === before) await once(this.server, "link");
        return this.links.at(-1);
    }

    /** Returns a link with another payload and a valid signature. */
    changed(link, change) {
        const code = Buffer.from(link.slice(`${this.base}/a/`.length), "base64url");
        const parts = code.subarray(32).toString().split("\n");
        change(parts);
        const payload = parts.join("\n");
        const hmac = createHmac("sha256", readFileSync(join(this.site.env.ADJ_HOME, "link.key"))).update("adjutant answer link 1\n");
        return `${this.base}/a/${Buffer.concat([hmac.update(payload).digest(), Buffer.from(payload)]).toString("base64url")}`;
    }

    close() {
        this.site.close();
        this.server.close();
    }
}

/** Opens, answers and refuses with links of each kind, and scans each page that they show. */
export async function testLinks(adj, browser, shots) {
    const linked = new Linked(adj);
    await linked.open();
    const opened = await context(browser, linked.base);
    const page = await opened.newPage();
    const scan = async (what) => {
        for (const [look, media, viewport] of LOOKS) {
            await page.emulateMedia(media);
            await page.setViewportSize(viewport);
            if (shots) await page.screenshot({ path: join(shots, `link-${what.replaceAll(" ", "-")}-${look}.png`), fullPage: true });
            await assertAccessible(page, `${look} link, ${what}`);
        }
    };
    const shown = async (what, text) => {
        await page.locator("main", { hasText: text }).waitFor();
        await scan(what);
    };
    try {
        const question = { question: "Should the limit of /v1/upload be per user or per API key?", context: "src/limits.rs knows both.", options: ["per user", "per API key"], default: "per user" };
        const asked = await linked.ask("limiter", `tool ask_parent ${JSON.stringify(question)}\nsay end`);
        await page.goto(asked);
        await shown("open question", "per user or per API key?");
        await page.getByLabel("Answer in words").focus();
        await page.keyboard.type("per organisation");
        await page.keyboard.press("Tab");
        await page.keyboard.press("Enter");
        await shown("answered", `Answered by link ${PERSON}`);
        assert.equal(page.url(), asked);
        assert.match(await linked.site.ended("limiter"), /per organisation/);

        const approval = await linked.ask("cleaner", 'approve "rm -rf target" [preview: rm -rf target] [risk: low]\nsay end');
        await page.goto(approval);
        await shown("open approval", "rm -rf target");
        linked.site.run("approve", "cleaner");
        await page.getByRole("button", { name: "Deny" }).click();
        await shown("answered elsewhere", "Your answer was not recorded: already answered by person");
        assert.doesNotMatch(await linked.site.ended("cleaner"), /denied/i);

        const delegation = await linked.ask("chief", 'delegate "port the docs" [agent: reviewer]');
        await page.goto(delegation);
        await shown("open delegation", "port the docs");
        for (const [what, change, text] of [
            ["expired", (parts) => (parts[1] = "1"), "has expired"],
            ["other text", (parts) => (parts[2] = "0".repeat(32)), "has changed"],
            ["removed", (parts) => (parts[0] = "0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11"), "was removed"],
        ]) {
            await page.goto(linked.changed(delegation, change));
            await shown(what, text);
        }
        await page.goto(`${linked.base}/a/unknown`);
        await shown("unknown", "not valid");
    } finally {
        await opened.close();
        linked.close();
    }
}
