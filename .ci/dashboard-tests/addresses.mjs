// Addresses of pages: each leads somewhere, and back.
import assert from "node:assert/strict";

/** @param {{site: any, page: any, main: any, base: string, go: any}} t */
export async function testAddresses({ site, page, main, base, go }) {
    const title = (text) => page.locator("main h1", { hasText: text }).waitFor();
    const back = async () => {
        await page.locator("main").getByRole("link", { name: "Board", exact: true }).click();
        await title("Board");
    };
    // The page lists no run by this name: it reads it, and finds it by its id.
    site.start("named", "say hello by name");
    await site.ended("named");
    const tab = await main.newPage();
    await tab.addInitScript(() => {
        const original = globalThis.fetch;
        globalThis.fetch = async (...args) => {
            const reply = await original(...args);
            if (!String(args[0]).endsWith("/runs") || !reply.ok) return reply;
            const list = await reply.json();
            return new Response(JSON.stringify({ ...list, runs: list.runs.filter((run) => run.name !== "named") }), { status: reply.status });
        };
    });
    for (const hash of ["run/named", "run/named/log", "run/%6eamed/log", "run/named/", `run/${site.show("named").run_id}`]) {
        await tab.goto("about:blank");
        await tab.goto(`${base}/#/${hash}`);
        await tab.locator("main h1", { hasText: "named" }).waitFor();
        await tab.locator(".log", { hasText: "hello by name" }).waitFor();
    }
    // Its parts too.
    await tab.goto(`${base}/#/run/named/report`);
    await tab.locator("section[aria-label=Report]").waitFor();
    await tab.close();
    for (const [hash, found] of [
        ["run/nobody", "Run not found"],
        ["run/nobody/changes", "Run not found"],
        ["run/0192f0c1-7c3e-7a52-9f1e-3f6f0a7f2b11", "Run not found"],
        ["run/named/zzz", "Page not found"],
        ["run/%E0%A4%A/log", "Page not found"],
        ["%", "Page not found"],
        ["zzz", "Page not found"],
        ["run", "Page not found"],
        ["constructor", "Page not found"],
        ["__proto__", "Page not found"],
        ["board%2Fzzz", "Page not found"],
    ]) {
        await go(hash);
        await title(found);
        await back();
    }
    // The way back from an unknown part of a run leads to the run.
    await go("run/named/zzz");
    await page.locator("main").getByRole("link", { name: "named" }).click();
    await title("named");
    await go("");
    await title("Board");
    assert.equal(await page.title().then((text) => /Board – Adjutant$/.test(text)), true);
}
