// What a browser writes to disk of the dashboard, and what another process can do with it.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync, statSync, watch } from "node:fs";
import { join } from "node:path";
import { launchWithProfile } from "./site.mjs";

/** Chromium writes its session storage within this time, in milliseconds. */
const WRITTEN_MS_MAX = 60_000;

/** Whether a file of the profile has a text, as UTF-8 or as UTF-16. @param {string} profile @param {string} text */
function holds(profile, text) {
    const needles = [Buffer.from(text), Buffer.from(text, "utf16le")];
    return readdirSync(profile, { recursive: true }).some((name) => {
        try {
            const path = join(profile, String(name));
            if (!statSync(path).isFile()) return false;
            const bytes = readFileSync(path);
            return needles.some((needle) => bytes.includes(needle));
        } catch (error) {
            // The browser removes files at any time.
            if (/** @type {any} */ (error).code === "ENOENT") return false;
            throw error;
        }
    });
}

/** Waits until the browser has written a text. @param {string} profile @param {string} text */
async function written(profile, text) {
    const signal = AbortSignal.timeout(WRITTEN_MS_MAX);
    const watcher = watch(profile, { recursive: true });
    try {
        while (!holds(profile, text)) await once(watcher, "change", { signal });
    } finally {
        watcher.close();
    }
}

/** Makes a call from another process. Returns its status and its body. */
function curl(url, token, body) {
    const auth = token ? ["-H", `authorization: Bearer ${token}`] : [];
    const out = execFileSync("curl", ["-s", "-w", "\n%{http_code}", "-H", "content-type: application/json", "-H", `origin: ${new URL(url).origin}`, ...auth, "-d", JSON.stringify(body), url], { encoding: "utf8" });
    const at = out.lastIndexOf("\n");
    return { status: Number(out.slice(at + 1)), body: out.slice(0, at) };
}

/** @param {any} site @param {string} base @param {string | undefined} files */
export async function testProfile(site, base, files) {
    const profile = join(site.dir, "profile");
    let browser = await launchWithProfile(profile);
    /** @type {{token: string, resume: string}[]} */
    const signIns = [];
    const open = async (address) => {
        const page = browser.pages()[0] ?? (await browser.newPage());
        if (files) await page.route(/\/(app\.css|js\/.*|vendor\/.*)$/, (route) => route.fulfill({ path: join(files, new URL(route.request().url()).pathname) }));
        page.on("response", async (response) => {
            if (response.url().endsWith("/sign-in") && response.ok()) signIns.push(await response.json());
        });
        await page.goto(address);
        return page;
    };
    try {
        const address = site.json("ui").page;
        const page = await open(address);
        await page.locator(".connection.live").waitFor();
        // Another sign-in than the first, so that an old and a new one are on disk.
        await page.reload();
        await page.locator(".connection.live").waitFor();
        assert.equal(signIns.length, 2);
        const last = signIns[1];
        await written(profile, last.resume);
        const refused = (when) => {
            for (const { token } of signIns) assert.ok(!holds(profile, token), `${when}: a token is on disk`);
            for (const { token, resume } of signIns) {
                assert.equal(curl(`${base}/sign-in`, null, { resume }).status, 403, `${when}: a resume code`);
                for (const path of ["/api/v1/runs", "/sign-in/tab", "/sign-out"]) assert.equal(curl(base + path, token, {}).status, 401, `${when}: a token, at ${path}`);
            }
            const code = new URL(address).hash.replace("#code=", "");
            assert.equal(curl(`${base}/sign-in`, null, { code }).status, 403, `${when}: the code of the address`);
        };
        refused("in use");
        // What was refused elsewhere still works here.
        await page.reload();
        await page.locator(".connection.live").waitFor();
        assert.equal(signIns.length, 3);
        await browser.close();
        refused("closed");
        // The next browser with this profile is another process.
        browser = await launchWithProfile(profile);
        const next = await open(base);
        await next.locator(".banner", { hasText: "adj ui" }).waitFor();
        assert.deepEqual(await next.evaluate(() => Object.keys(sessionStorage).filter((name) => name !== "adj-resume")), []);
    } finally {
        await browser.close();
    }
}
