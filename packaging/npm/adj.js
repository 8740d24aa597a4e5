#!/usr/bin/env node
// Starts the program of the package for this platform. Nothing is downloaded, and no install script is run.
"use strict";
const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `adjutant-cli-${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`${platform}/bin/adj`);
} catch {
  console.error(`error: the package ${platform} is not installed\n  hint: install without --omit=optional, on a supported platform`);
  process.exit(1);
}
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`error: ${program} cannot be started: ${error.message}`);
  process.exit(1);
});
// The terminal sends SIGINT and SIGQUIT to both processes, and the program decides what they mean.
for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
