// Drives the dashboard in headless Chromium: test.mjs ADJ [--files DIR] [--shots DIR] [--only WORDS] [--except WORDS]. WORDS are parts of names, separated by |.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { testAddresses } from "./addresses.mjs";
import { testLinks } from "./links.mjs";
import { needs } from "./needs.mjs";
import { payloads } from "./payloads.mjs";
import { testProfile } from "./profile.mjs";
import { typing } from "./typing.mjs";
import { LOOKS, Site, assertAccessible, context, launch, violations } from "./site.mjs";

const [adj, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : undefined);
const files = option("--files");
const shots = option("--shots");
const only = option("--only")?.split("|");
const except = option("--except")?.split("|");
if (shots) mkdirSync(shots, { recursive: true });

const PAGES = ["board", "inbox", "chats", "timeline", "tree", "pools", "agents"];
const RUNS = 1000;
const PAYLOADS = 500;
const PAINT_MS_MAX = 300;
const TYPING_MS_MAX = 50;
const ANSWER_MS_MAX = 300;

const site = new Site(adj);
const browser = await launch();
const opened = site.json("ui", "--listen", "127.0.0.1:0");
const base = opened.url;
const main = await context(browser, base, {}, files);
let page = await main.newPage();
const failures = [];
/** Opens a page. It may take the focus from a field, after which keys wait. */
const go = async (hash) => {
    await page.evaluate(
        (to) =>
            new Promise((done) => {
                location.hash = to;
                requestAnimationFrame(() => setTimeout(done));
            }),
        `#/${hash}`,
    );
    await live();
};
const item = (text) => page.locator("main [data-item]", { hasText: text }).first();
const request = (text) => page.locator("main .request", { hasText: text }).first();
const notice = (text) => page.locator(".notices", { hasText: text }).waitFor({ timeout: 15_000 });
const press = async (...keys) => {
    for (const key of keys) await page.keyboard.press(key);
};
/** Waits until keys act: what was just selected or opened must be seen first. */
const live = () => page.locator("html[data-keys=live]").waitFor();
/** Selects the next item, and presses a key on it. */
const onNext = async (key) => {
    await press("j");
    await live();
    await press(key);
};
/** Calls the hub from the page, as the page does. */
const call = (name, body) => page.evaluate(async ([name, body]) => (await import("/js/api.js")).call(name, body), [name, body]);

async function check(name, test) {
    const isOneOf = (parts) => parts.some((part) => name.includes(part));
    // All others need a browser that is signed in.
    if (name !== "a code signs one browser in" && ((only && !isOneOf(only)) || (except && isOneOf(except)))) return;
    const start = Date.now();
    try {
        await test();
        assert.deepEqual(violations.splice(0), []);
        console.log(`ok   ${name} (${Date.now() - start} ms)`);
    } catch (error) {
        failures.push(name);
        console.log(`FAIL ${name}\n${error.stack}`);
        await page.screenshot({ path: join(shots ?? site.dir, `fail-${failures.length}.png`) }).catch(() => {});
        violations.splice(0);
        // Its runs and their requests would count in the tests that follow.
        site.cancelAll();
    }
}

await check("a code signs one browser in", async () => {
    await page.goto(opened.page);
    await page.locator(".connection.live").waitFor();
    assert.equal(await page.evaluate(() => location.href.includes("code") || document.cookie !== "" || localStorage.length > 0), false);
    // A reload continues with a code; the token is nowhere.
    assert.deepEqual(await page.evaluate(() => Object.keys(sessionStorage)), ["adj-resume"]);
    assert.doesNotMatch(await page.evaluate(() => JSON.stringify(sessionStorage)), /adj_/);
    const other = await context(browser, base, {}, files);
    const stranger = await other.newPage();
    await stranger.goto(opened.page);
    await stranger.locator(".banner", { hasText: "adj ui" }).waitFor();
    assert.equal(await stranger.evaluate(() => sessionStorage.length), 0);
    await other.close();
    // A second tab of the same browser receives a code, and has a sign-in of its own; each survives the end of the other and a reload.
    const tab = await main.newPage();
    await tab.goto(base);
    await tab.locator(".connection.live").waitFor();
    const third = await main.newPage();
    await third.goto(`${base}/#/inbox`);
    await third.locator(".connection.live").waitFor();
    await tab.close();
    for (const one of [third, page]) {
        for (let n = 0; n < 2; n += 1) {
            await one.reload();
            await one.locator(".connection.live").waitFor();
        }
    }
    await third.goto("about:blank");
    await third.goBack();
    await third.locator(".connection.live").waitFor();
    await third.close();
});

await check("a browser's profile holds nothing that another process can use", () => testProfile(site, base, files));

await check("a question appears and its answer reaches the agent", async () => {
    site.start("asker", 'ask "Which colour?" [options: red|green]');
    const card = request("Which colour?");
    await card.waitFor();
    await card.getByRole("button", { name: "red" }).click();
    assert.match(await site.ended("asker"), /red/);
    await page.locator("section[aria-labelledby=done] [data-item]", { hasText: "asker" }).waitFor();
});

await check("answers reach the agent in time", async () => {
    const times = [];
    for (let n = 0; n < 20; n += 1) {
        site.start(`quick-${n}`, `ask "Quick ${n} ?"`);
        const card = request(`Quick ${n} ?`);
        await card.waitFor();
        const { message_id } = (await call("requests", { run: `quick-${n}` })).requests[0];
        await card.getByRole("textbox").fill("yes");
        const clicked = Date.now();
        await card.getByRole("button", { name: "Send" }).click();
        await site.ended(`quick-${n}`);
        // The next click must not hit a page that is still moving this run.
        await request(`Quick ${n} ?`).waitFor({ state: "hidden" });
        await page.locator("section[aria-labelledby=done] [data-item]", { hasText: `quick-${n}` }).first().waitFor();
        const answered = await call("request", { message_id });
        times.push(Date.parse(answered.retrieved_at) - clicked);
    }
    times.sort((a, b) => a - b);
    const p95 = times[Math.floor(times.length * 0.95) - 1];
    console.log(`     click to the agent's call: p50 ${times[10]} ms, p95 ${p95} ms`);
    assert.ok(p95 <= ANSWER_MS_MAX, `${times}`);
});

await check("approvals by keyboard, with undo", async () => {
    site.start("careful", 'approve "rm -rf target" [preview: rm -rf target] [risk: low]');
    await go("inbox");
    await request("rm -rf target").waitFor();
    await onNext("a");
    await page.locator(".notice.later", { hasText: "Approve" }).waitFor();
    await press("z");
    await notice("Undone");
    assert.equal((await call("requests", { run: "careful" })).requests.length, 1, "nothing was sent");
    await onNext("a");
    await notice("Approved");
    assert.match(await site.ended("careful"), /approve/i);

    site.start("risky", 'approve "drop the table"');
    await request("drop the table").waitFor();
    await onNext("d");
    await page.keyboard.type("not on a Friday");
    await press("Enter");
    await notice("Denied");
    assert.match(await site.ended("risky"), /not on a Friday/);
});

await check("a delegation is changed before it is approved", async () => {
    site.start("chief", 'delegate "port the docs" [agent: reviewer]');
    await request("port the docs").waitFor();
    await onNext("e");
    await page.keyboard.press("Control+A");
    await page.keyboard.type("say changed task");
    await page.getByRole("button", { name: "Approve with changes" }).press("Enter");
    await page.locator(".notice.good", { hasText: "of chief" }).waitFor({ timeout: 15_000 });
    await site.ended("chief");
    const child = site.show("chief").children[0];
    assert.match(await site.ended(child), /changed task/);
});

await check("pause, resume and cancel by keyboard", async () => {
    site.start("sleeper", "say awake\nsleep 300s");
    await go("board");
    await item("sleeper").waitFor();
    await press("/");
    await page.keyboard.type("sleeper");
    await press("Escape");
    await item("sleeper").focus();
    await press("Enter");
    await page.locator("h1", { hasText: "sleeper" }).waitFor();
    await page.locator(".log", { hasText: "awake" }).waitFor();
    await live();
    await press("p");
    await notice("Paused");
    await page.locator(".run-bar .state", { hasText: "stopped" }).waitFor();
    await page.locator(".run-bar").getByRole("button", { name: "Resume" }).press("Enter");
    await notice("Resumed");
    await page.locator(".run-bar .state", { hasText: "working" }).waitFor();
    await live();
    await press("x");
    await notice("Cancelled");
    // Its processes may still be ending.
    await page.locator(".run-bar .state", { hasText: "cancelled" }).waitFor();
    assert.equal(site.show("sleeper").outcome, "cancelled");
    await go("board");
    await page.getByRole("searchbox").fill("");
});

for (const [name, test] of typing({ site, page, main, base, go, item, request, notice, live, press, call })) await check(name, test);

for (const [name, test] of needs({ site, page, go, item, notice, live, press })) await check(name, test);

await check("changes are shown, commented, merged and discarded", async () => {
    site.start("writer", "write notes.txt Hello", "--clone");
    site.start("waste", "write waste.txt Bye", "--clone");
    await site.ended("writer");
    await site.ended("waste");
    const { run_id } = site.show("writer");
    await go(`run/${run_id}`);
    await page.locator("h1", { hasText: "writer" }).waitFor();
    await press("c");
    await page.locator(".diff-line.added", { hasText: "Hello" }).waitFor();
    await page.getByRole("button", { name: "Comment on line 1" }).first().click();
    await page.keyboard.type("say it louder");
    await press("Enter");
    await page.locator("p.comment", { hasText: "louder" }).waitFor();
    if (shots) await page.screenshot({ path: join(shots, "changes.png") });
    await page.locator(".run-bar").focus();
    await press("m");
    await page.getByRole("dialog", { name: "Merge writer" }).waitFor();
    await live();
    await press("Enter");
    await notice("Merged writer");
    assert.match(readFileSync(join(site.work, "notes.txt"), "utf8"), /Hello/);
    await go(`run/${site.show("waste").run_id}`);
    await page.locator("h1", { hasText: "waste" }).waitFor();
    await page.getByRole("button", { name: "Discard" }).press("Enter");
    await notice("Discarded");
    assert.equal(site.show("waste").workspace.state, "discarded");
});

await check("each address leads somewhere and back", () => testAddresses({ site, page, main, base, go }));

await check("each tab of a run", async () => {
    site.start("reporter", 'say line one\nask "Report what?"\nreport success All is done');
    await go(`run/${site.show("reporter").run_id}`);
    await page.locator(".request", { hasText: "Report what?" }).focus();
    await press("r");
    await page.keyboard.type("everything");
    await press("Enter");
    await site.ended("reporter");
    await press("v");
    await page.locator(".talk", { hasText: "everything" }).waitFor();
    await press("o");
    await page.locator(".report").waitFor();
    await press("w");
    await page.locator(".events", { hasText: "request.answered" }).waitFor();
    await press("l");
    await page.locator(".log", { hasText: "line one" }).waitFor();
    site.start("chatty", Array.from({ length: 600 }, (_, n) => `progress ${n % 100} "step ${n}"`).join("\n"));
    await site.ended("chatty");
    await go(`run/${site.show("chatty").run_id}/raw`);
    const rows = page.locator(".events tbody tr");
    await page.getByText("The newest 500 of").waitFor();
    assert.equal(await rows.count(), 500);
    const all = Number(/of (\d+) events/.exec(await page.getByText("The newest 500 of").textContent())[1]);
    await page.getByRole("button", { name: "earlier events" }).press("Enter");
    await page.getByText("The newest 500 of").waitFor({ state: "detached" });
    assert.equal(await rows.count(), Math.min(all, 1000));
    site.run("run", "-d", "-a", "talker", "-n", "talker", "say it");
    await site.ended("talker");
    await go(`run/${site.show("talker").run_id}/raw`);
    await page.getByRole("region", { name: "Protocol" }).locator(".log", { hasText: '{"type":"say","text":"good morning"}' }).waitFor();
});

await check("chats, pools, tree, timeline and agents", async () => {
    const { chat_id } = site.json("chat", "start", "Parser tests");
    await go(`chats/${chat_id}`);
    await page.locator("h2", { hasText: "Parser tests" }).waitFor();
    await press("r");
    await page.keyboard.type("Keep their names");
    await press("Enter");
    await page.locator(".talk", { hasText: "Keep their names" }).waitFor();
    site.run("chat", "post", "--detach", `${chat_id}`, "From the shell");
    await page.locator(".talk", { hasText: "From the shell" }).waitFor();

    await go("pools");
    const heavy = page.locator("[aria-label='Pool heavy']");
    await heavy.waitFor();
    await heavy.focus();
    await press("p");
    await heavy.getByText("paused").waitFor();
    site.start("held", "say hi", "--pool", "heavy");
    await heavy.locator(".queue", { hasText: "held" }).waitFor();
    await heavy.focus();
    await press("p");
    await site.ended("held");
    await heavy.getByRole("button", { name: "One slot more in heavy" }).click();
    await heavy.getByText("of 2 slots").waitFor();

    await go("tree");
    await page.locator(".tree ul .tree-row").first().waitFor();
    await go("timeline");
    await page.locator(".timeline rect.person").first().waitFor({ state: "attached" });
    for (const colorScheme of ["dark", "light"]) {
        await page.emulateMedia({ colorScheme });
        const fills = await page.evaluate(() => {
            const person = document.querySelector(".timeline rect.person");
            return ["queued", "working", "stopped", "person"].map((phase) => {
                const rect = /** @type {Element} */ (person.cloneNode());
                rect.setAttribute("class", phase);
                person.after(rect);
                const { fill } = getComputedStyle(rect);
                rect.remove();
                return fill;
            });
        });
        assert.equal(new Set(fills).size, 4, `each phase has a colour of its own: ${fills}`);
    }
    await go("agents");
    await page.locator("main table", { hasText: "reviewer" }).waitFor();
});

await check("help and navigation by keyboard", async () => {
    await press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    await press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    for (const [key, title] of [["i", "Inbox"], ["c", "Chats"], ["t", "Timeline"], ["r", "Tree"], ["p", "Pools and budgets"], ["a", "Agents"], ["b", "Board"]]) {
        await press("g", key);
        await page.locator("h1", { hasText: title }).waitFor();
    }
});

await check("no findings of axe, in the light, in the dark, on a phone", async () => {
    site.start("axe-question", 'ask "Which colour should the logo have?" [options: red|green]');
    site.start("axe-approval", 'approve "rm -rf target" [preview: rm -rf target]');
    site.start("axe-delegation", 'delegate "port the docs" [agent: reviewer]');
    site.start("axe-live", 'say working\nprogress 40 "running tests"\nsleep 600s');
    site.start("axe-failed", 'say broken\nfail "no such file"');
    const { run_id } = site.show("axe-live");
    site.start("axe-work", "write work.txt Hello\nreport success All is done", "--clone");
    await site.ended("axe-work");
    const { chat_id } = site.json("chat", "start", "Names of colours");
    site.run("chat", "post", "--detach", `${chat_id}`, "Keep them short");
    const work = `run/${site.show("axe-work").run_id}`;
    const dialogs = [["board", "?", "Keys"], [work, "m", "Merge axe-work"]];
    for (const [look, media, viewport] of LOOKS) {
        await page.emulateMedia(media);
        await page.setViewportSize(viewport);
        for (const name of [...PAGES, `chats/${chat_id}`, `run/${run_id}`, `${work}/changes`, `${work}/report`, `${work}/raw`, `run/${site.show("axe-question").run_id}/conversation`]) {
            await go(name);
            await page.locator("main h1").waitFor();
            await page.waitForFunction(() => !document.querySelector("main")?.textContent?.includes("Reading …"));
            if (shots) await page.screenshot({ path: join(shots, `${name.replace(/[0-9a-f-]{36}/, "x").replaceAll("/", "-")}-${look}.png`) });
            await assertAccessible(page, `${look} ${name}`);
            assert.deepEqual(await page.evaluate(() => [...document.querySelectorAll("nav")].filter((nav) => nav.scrollWidth > nav.clientWidth).map((nav) => nav.ariaLabel)), [], `${look} ${name}: menus that are cut off`);
        }
        for (const [name, key, title] of dialogs) {
            await go(name);
            await page.locator("main h1").waitFor();
            await page.waitForFunction(() => !document.querySelector("main")?.textContent?.includes("Reading …"));
            if (key === "m") await page.locator(".run-bar").focus();
            await press(key);
            await page.getByRole("dialog", { name: title }).waitFor();
            if (shots) await page.screenshot({ path: join(shots, `dialog-${title.split(" ")[0]}-${look}.png`) });
            await assertAccessible(page, `${look} dialog ${title}`);
            assert.equal(await page.evaluate(() => document.querySelector("dialog")?.scrollTop), 0, `${look} dialog ${title} shows its beginning`);
            await press("Escape");
            await page.getByRole("dialog").waitFor({ state: "detached" });
        }
    }
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize({ width: 1280, height: 800 });
    for (const name of ["axe-question", "axe-approval", "axe-delegation", "axe-live"]) site.run("cancel", name);
});

await check("links that answer, scanned with axe", () => testLinks(adj, browser, shots));

await check(`${PAYLOADS} hostile texts run nothing and load nothing`, async () => {
    const texts = payloads(PAYLOADS);
    // Not more runs than may be live.
    const each = 42;
    for (let at = 0; at < texts.length; at += each) {
        const lines = texts.slice(at, at + each).flatMap((text) => [
            `tool ask_parent ${JSON.stringify({ question: text, context: text, options: [text, "b"], blocking: false, wait_s: 0 })}`,
            `say ${text.replaceAll("\n", " ")}`,
        ]);
        site.start(`hostile-${at}`, `${lines.join("\n")}\nsleep 600s`);
    }
    site.start("hostile-approval", `tool request_approval ${JSON.stringify({ action: texts[0], preview: texts[1], risk: texts[2], context: texts[3] })}`);
    const names = [...Array(Math.ceil(texts.length / each)).keys()].map((n) => `hostile-${n * each}`).concat("hostile-approval");
    for (const text of texts.slice(0, 50)) await call("say", { chat_id: 1, message: text, cwd: site.work });
    const total = async () => (await call("requests", { limit: 1000 })).requests.filter((one) => one.run_name.startsWith("hostile-")).length;
    const deadline = Date.now() + 90_000;
    while ((await total()) < PAYLOADS + 1 && Date.now() < deadline) await call("wait", { wait_ms: 1000, runs: ["hostile-0"], until: "any" });
    const asked = await total();
    assert.equal(asked, PAYLOADS + 1);
    await go("inbox");
    for (;;) {
        const more = page.locator("button.more");
        if (!(await more.count())) break;
        await more.first().click();
    }
    const seen = await page.locator(".request", { has: page.locator("header", { hasText: "hostile-" }) }).count();
    // The page reads at most 500 requests.
    assert.equal(seen, PAYLOADS);
    const inspect = async () => {
        const found = await page.evaluate(() => ({
            hit: globalThis.hit,
            foreign: document.querySelectorAll("script:not([src^='/js/']), iframe, img, object, embed, base, meta[http-equiv], video, main style, main link, form[action]").length,
            links: [...document.querySelectorAll("main a")].map((link) => [link.protocol, link.rel, link.host]).filter(([protocol, rel, host]) => !/^https?:$/.test(protocol) || (host !== location.host && !rel.includes("noopener"))),
            handlers: [...document.querySelectorAll("*")].filter((element) => [...element.attributes].some((one) => one.name.startsWith("on"))).length,
        }));
        assert.deepEqual(found, { hit: undefined, foreign: 0, links: [], handlers: 0 });
    };
    await inspect();
    for (const name of ["board", "tree", "timeline", "chats/1", "pools", `run/${site.show("hostile-0").run_id}`, `run/${site.show("hostile-0").run_id}/conversation`, `run/${site.show("hostile-0").run_id}/raw`]) {
        await go(name);
        await page.locator("main h1").waitFor();
        await inspect();
    }
    await go(`run/${site.show("hostile-0").run_id}`);
    await page.locator(".log", { hasText: "window.hit" }).waitFor();
    await inspect();
    for (const name of names) site.run("cancel", name);
});

await check("a hub that is killed and restarted", async () => {
    site.start("survivor", 'ask "Still there?"');
    await go("inbox");
    const card = request("Still there?");
    await card.waitFor();
    await card.getByRole("textbox").fill("half an ans");
    site.killHub();
    await page.locator(".banner", { hasText: "Reconnecting" }).waitFor();
    assert.ok(await card.isVisible(), "the last state stays");
    assert.equal(await card.getByRole("textbox").inputValue(), "half an ans");
    await card.getByRole("textbox").fill("yes, here");
    // Answered while the hub is away: sent when it is back.
    await press("Enter");
    site.run("ps");
    await page.locator(".connection.live").waitFor();
    assert.match(await site.ended("survivor"), /yes, here/);
    await page.locator(".banner").waitFor({ state: "detached" });
    site.start("after", "say hi");
    await go("board");
    await item("after").waitFor();
});

await check("each page stays through a restart of the hub", async () => {
    site.start("steady", 'say line one\nask "Go on?"\ndone');
    site.run("chat", "start", "Restarts");
    const run = `run/${site.show("steady").run_id}`;
    for (const name of [...PAGES, "chats/1", ...["log", "changes", "conversation", "report", "raw"].map((tab) => `${run}/${tab}`)]) {
        await go(name);
        await page.locator("main h1").waitFor();
        await page.waitForFunction(() => !document.querySelector("main")?.textContent?.includes("Reading …"));
        const title = await page.locator("main h1").textContent();
        const length = await page.evaluate(() => document.querySelector("main").textContent.length);
        const isWhole = async (when) => {
            assert.equal(await page.locator("main h1").textContent(), title, `${name} ${when}`);
            const now = await page.evaluate(() => document.querySelector("main").textContent.length);
            // Ages in the text change their length.
            assert.ok(now >= length * 0.8, `${name} ${when}: ${now} of ${length} characters`);
        };
        site.killHub();
        await page.locator(".banner", { hasText: "Reconnecting" }).waitFor();
        await isWhole("without a hub");
        site.run("ps");
        await page.locator(".connection.live").waitFor();
        await page.locator(".banner").waitFor({ state: "detached" });
        await isWhole("with the next hub");
    }
    site.run("cancel", "steady");
});

await check(`a board of ${RUNS} runs`, async () => {
    // Real runs of the hub, queued in a paused pool, so that no process of theirs takes part.
    await call("pool-change", { pool: "heavy", paused: true });
    await page.evaluate(
        async ([count, cwd]) => {
            const { call } = await import("/js/api.js");
            let next = 0;
            const dispatch = async () => {
                for (let n = next++; n < count; n = next++) {
                    await call("dispatch", { agent: "echo", name: `many-${n}`, prompt: `say task ${n} of many`, cwd, pool: "heavy" });
                }
            };
            await Promise.all(Array.from({ length: 8 }, dispatch));
        },
        [RUNS, site.work],
    );
    const many = await context(browser, base, {}, files);
    const other = await many.newPage();
    await other.addInitScript(() => {
        // The slowest event of each key, by the interaction to which the browser assigns it.
        globalThis.delays = new Map();
        new PerformanceObserver((list) => {
            for (const { name, interactionId, duration } of list.getEntries()) {
                if (name.startsWith("key") && interactionId) globalThis.delays.set(interactionId, Math.max(duration, globalThis.delays.get(interactionId) ?? 0));
            }
        }).observe({ type: "event", durationThreshold: 16, buffered: true });
        // Resolves when what was drawn last is on the screen.
        globalThis.drawn = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
        // From the reply with the runs to the frame that shows them.
        const original = globalThis.fetch;
        globalThis.fetch = async (...args) => {
            const reply = await original(...args);
            if (String(args[0]).endsWith("/runs")) {
                const text = await reply.text();
                globalThis.arrived = performance.now();
                return new Response(text, { status: reply.status, headers: reply.headers });
            }
            return reply;
        };
        new MutationObserver(() => {
            if (globalThis.painted === undefined && document.querySelectorAll("main .card").length >= 50) {
                globalThis.painted = 0;
                requestAnimationFrame(() => setTimeout(() => (globalThis.painted = performance.now())));
            }
        }).observe(document, { childList: true, subtree: true });
    });
    await other.goto(site.json("ui").page);
    await other.waitForFunction(() => globalThis.painted > 0);
    const took = await other.evaluate(() => globalThis.painted - globalThis.arrived);
    assert.match(await other.locator(".totals").textContent(), /1,?000 working/);
    const typed = "say task 99 of many";
    const rounds = 5;
    for (let n = 0; n < rounds; n += 1) {
        await other.locator("input.filter").fill("");
        await other.waitForFunction(() => document.querySelectorAll("main .card").length >= 50);
        await other.locator("input.filter").focus();
        // A key is pressed when the one before it is on the screen. Otherwise, all keys of a word would wait for the same frame.
        for (const letter of typed) {
            await other.evaluate(() => globalThis.drawn());
            await other.keyboard.press(letter === " " ? "Space" : letter);
        }
        await other.waitForFunction(() => document.querySelectorAll("main .card").length < 50);
    }
    // The browser lists the slow keys only; the others took less than 16 ms.
    const keys = typed.length * rounds;
    await other.evaluate(() => globalThis.drawn());
    const slow = (await other.evaluate(() => [...globalThis.delays.values()])).sort((a, b) => b - a);
    const p95 = slow[Math.floor(keys * 0.05)] ?? 0;
    console.log(`     painted in ${took.toFixed(0)} ms, key p95 ${p95} ms of ${keys}, slowest ${slow[0] ?? 0} ms`);
    assert.ok(took <= PAINT_MS_MAX, `painted in ${took} ms`);
    assert.ok(p95 <= TYPING_MS_MAX, `keys took ${slow} ms`);
    await many.close();
});

await check("a revoked browser is signed out", async () => {
    for (const { name } of site.json("token", "list").tokens) site.run("token", "revoke", name);
    await page.locator(".banner", { hasText: "No access" }).waitFor();
});

await browser.close();
site.close();
if (failures.length) {
    console.log(`${failures.length} failed: ${failures.join("; ")}`);
    process.exit(1);
}
