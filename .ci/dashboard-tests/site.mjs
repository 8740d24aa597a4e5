// A hub with a home of its own, and a browser that watches what its pages load.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const tools = createRequire(join(process.env.ADJ_CI_CACHE ?? "", "dashboard/"));
const { chromium } = tools("playwright-core");
const axe = readFileSync(tools.resolve("axe-core/axe.min.js"), "utf8");
const ARGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const CONFIG = `default_agent = "echo"
[pools.heavy]
slots = 1
budget = "time=2h"
[agents.reviewer]
harness = "echo"
[agents.lingers]
harness = "echo"
report_grace = "1s"
[presets.talker]
title = "Talker"
driver = "jsonl"
command = ["/bin/sh", "-c", "echo '{\\"type\\":\\"say\\",\\"text\\":\\"good morning\\"}'; echo '{\\"type\\":\\"end\\"}'"]
can = {}
about = { vendor = "nobody", install = "none", sign_in = "none" }
[presets.talker.permissions.full]
about = "everything"
[presets.talker.stream]
end_is_stated = true
rules = [{ when = { type = "say" }, text = "text" }, { when = { type = "end" }, end = "success" }]
[agents.talker]
harness = "talker"
permissions = "full"
`;

/** How pages are looked at: a name, the media features, and the size of the window. */
export const LOOKS = [
    ["light", { colorScheme: "light", reducedMotion: "reduce" }, { width: 1280, height: 800 }],
    ["dark", { colorScheme: "dark", reducedMotion: "reduce" }, { width: 1280, height: 800 }],
    ["phone", { colorScheme: "light", reducedMotion: "reduce" }, { width: 360, height: 740 }],
    ["small-phone-dark", { colorScheme: "dark", reducedMotion: "reduce" }, { width: 320, height: 640 }],
];

export class Site {
    /** `top` and `end` are added to the configuration. */
    constructor(adj, top = "", end = "") {
        this.adj = adj;
        this.dir = mkdtempSync(join(tmpdir(), "adj-dashboard-"));
        this.work = join(this.dir, "work");
        this.env = { PATH: process.env.PATH, HOME: this.dir, ADJ_HOME: join(this.dir, "home") };
        mkdirSync(this.env.ADJ_HOME, { mode: 0o700 });
        mkdirSync(this.work);
        writeFileSync(join(this.env.ADJ_HOME, "config.toml"), top + CONFIG + end);
        const git = (...args) => execFileSync("git", ["-C", this.work, "-c", "user.name=t", "-c", "user.email=t@example.org", ...args], { env: this.env });
        git("init", "-q", "-b", "main");
        git("config", "user.name", "t");
        git("config", "user.email", "t@example.org");
        writeFileSync(join(this.work, "a.txt"), "one\n");
        git("add", ".");
        git("commit", "-qm", "first");
    }

    /** Runs a command, and returns its output. */
    run(...args) {
        return execFileSync(this.adj, args, { env: this.env, cwd: this.work, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
    }

    json(...args) {
        return JSON.parse(this.run(...args, "--json")).data;
    }

    /** Starts a run of the echo agent. */
    start(name, script, ...args) {
        this.run("run", "-d", "-a", "echo", "-n", name, ...args, script);
    }

    show(run) {
        return this.json("show", run);
    }

    /** Waits until a run has ended, and returns its log. A wait also ends when a request is open, which a browser may just be answering. */
    async ended(run) {
        const end = Date.now() + 120_000;
        let view;
        do {
            await new Promise((done) => execFile(this.adj, ["wait", "--until", "all", "--timeout", "30s", run], { env: this.env, cwd: this.work }, done));
            view = this.show(run);
        } while (view.state !== "finished" && Date.now() < end);
        assert.equal(view.state, "finished", `${run}: ${JSON.stringify(view)}`);
        return this.run("logs", run);
    }

    /** Kills the hub, and waits for its death. */
    killHub() {
        process.kill(Number(readFileSync(join(this.env.ADJ_HOME, "hub.lock"), "utf8").trim()), "SIGKILL");
    }

    /** Cancels the runs of the tests. Those of the paused pool have no process. */
    cancelAll() {
        for (const { name, state, pool } of JSON.parse(this.run("ps", "--json")).data) if (state !== "finished" && pool !== "heavy") spawnSync(this.adj, ["cancel", name], { env: this.env });
    }

    close() {
        this.cancelAll();
        spawnSync(this.adj, ["stop"], { env: this.env });
        rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
    }
}

/** What pages did that they must not do. */
export const violations = [];

export function launch() {
    return chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ARGS });
}

/** Opens a browser with a profile on disk. @param {string} profile */
export function launchWithProfile(profile) {
    return chromium.launchPersistentContext(profile, { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ARGS });
}

/** Opens a context whose requests, dialogs and errors are watched. `files`: serves the dashboard from this directory. */
export async function context(browser, base, options = {}, files = undefined) {
    const made = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    made.on("request", (request) => {
        if (!request.url().startsWith(`${base}/`)) violations.push(`request to ${request.url()}`);
    });
    made.on("dialog", (dialog) => {
        violations.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
    });
    made.on("weberror", (error) => violations.push(`error: ${error.error().stack}`));
    made.on("console", (message) => {
        // A hub that is away, and refusals that tests provoke.
        if (message.type() === "error" && !/Failed to load resource/.test(message.text())) violations.push(`console: ${message.text()}`);
    });
    if (files) {
        await made.route(/\/(app\.css|js\/.*|vendor\/.*)$/, (route) => route.fulfill({ path: join(files, new URL(route.request().url()).pathname) }));
    }
    return made;
}

/** Asserts that axe finds nothing, and that the page is not wider than its window. */
export async function assertAccessible(page, what) {
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(found.violations.map((one) => `${what}: ${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`), []);
    const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(width <= 0, `${what} is ${width} px wider than the window`);
}
