"""A Temporal worker that runs coding agents with `adj`. The page "Durable workflow engines" describes it.

    pip install temporalio
    python temporal_worker.py TASK_QUEUE

The server is TEMPORAL_ADDRESS (default: localhost:7233). `adj` must be on PATH.
"""

import asyncio
import hashlib
import json
import os
import re
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

ADJ = "adj"
# The activity sends a heartbeat after each wait, so this must be much less than HEARTBEAT_TIMEOUT_S.
WAIT_S = 10
HEARTBEAT_TIMEOUT_S = 60
RUN_TIMEOUT_H = 48

# Exit codes of `adj` for calls that fail again in the same way: invalid, not allowed, no such run or request, the state
# has changed, and an agent that is missing or cannot be started.
EXIT_NOT_RETRYABLE = {2, 4, 5, 7, 125, 126, 127}
EXIT_NEEDS_INPUT = 3
EXIT_NOT_FOUND = 5
EXIT_CONFLICT = 7


@dataclass
class Task:
    prompt: str
    directory: str
    agent: str
    permissions: str = "edit"
    isolation: str = "none"


@dataclass
class Result:
    """The end of a run that succeeded. `text` has at most 16 KiB; `adj show --result RUN` prints all of it."""

    run_id: str
    name: str
    text: str
    report: dict[str, Any] | None


@dataclass
class Answer:
    question: str
    text: str


@dataclass
class Reply:
    """The exit code of a command, its data, and its error."""

    code: int
    data: Any
    error: dict[str, Any]

    def failure(self) -> ApplicationError:
        message = self.error.get("message") or f"adj ended with exit code {self.code}"
        kind = self.error.get("code") or f"exit_{self.code}"
        return ApplicationError(message, self.error, type=f"adj.{kind}", non_retryable=self.code in EXIT_NOT_RETRYABLE)


async def adj(*arguments: str, text: str = "") -> Reply:
    """Runs `adj` without a shell, with this text on its standard input."""
    try:
        process = await asyncio.create_subprocess_exec(
            ADJ,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        # Retryable: the task continues when `adj` is installed on this worker.
        raise ApplicationError(f"cannot start {ADJ}: {error}", type="adj.not_installed") from error
    try:
        out, err = await process.communicate(text.encode())
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return Reply(process.returncode, parsed(out, "data"), parsed(err, "error") or {})


def parsed(output: bytes, field: str) -> Any:
    """Returns a field of the last line of JSON. Other lines on standard error are warnings."""
    for line in reversed(output.decode(errors="replace").splitlines()):
        try:
            return json.loads(line)[field]
        except (ValueError, KeyError, TypeError):
            continue
    return None


def run_name(info: activity.Info) -> str:
    """Returns the name of the activity's run: the same for every attempt, and different for every other activity."""
    # A standalone activity has a run id of its own, instead of a workflow's.
    key = [info.namespace, info.workflow_id, info.workflow_run_id or info.activity_run_id, info.activity_id]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
    readable = re.sub("[^a-z0-9]+", "-", (info.workflow_id or "").lower())[:24].strip("-")
    return "-".join(part for part in ["wf", readable, digest] if part)


async def start(task: Task, name: str) -> None:
    """Starts the run, unless an earlier attempt has started it."""
    started = await adj(
        "run",
        "--json",
        "--detach",
        f"--name={name}",
        f"--agent={task.agent}",
        f"--cwd={task.directory}",
        f"--permissions={task.permissions}",
        f"--isolation={task.isolation}",
        "-",
        text=task.prompt,
    )
    if started.code != 0:
        # A name belongs to one run, so the call of a later attempt is refused.
        found = await adj("show", "--json=name", name)
        if found.code != 0 or found.data["name"] != name:
            raise started.failure()


async def follow(name: str) -> Result:
    """Waits for the end of the run, and sends a heartbeat after each wait."""
    while True:
        waited = await adj("wait", "--json", "--until=all", f"--timeout={WAIT_S}s", name)
        if waited.data is None:
            raise waited.failure()
        for run in waited.data["ended"]:
            if run["state"] == "finished":
                return result(run)
        needs = [{key: need[key] for key in ("number", "kind", "question")} for need in waited.data["needs"]]
        activity.heartbeat({"run": name, "status": waited.error.get("message"), "needs": needs})
        if waited.code == EXIT_NEEDS_INPUT:
            # `adj wait` returns at once as long as the run asks something or is stopped.
            await asyncio.sleep(WAIT_S)


def result(run: dict[str, Any]) -> Result:
    if run["outcome"] == "succeeded":
        return Result(run["run_id"], run["name"], run.get("result", ""), run.get("report"))
    # Not retryable: another attempt has the same name, and would find the same end.
    message = f"{run['name']}: {run['outcome']}: {run.get('reason', '')}"
    raise ApplicationError(message, {"run_id": run["run_id"]}, type=f"run.{run['outcome']}", non_retryable=True)


@activity.defn
async def run_agent(task: Task) -> Result:
    name = run_name(activity.info())
    starting = asyncio.create_task(start(task, name))
    try:
        # Shielded, so that a run that is being started is known before it is cancelled.
        await asyncio.shield(starting)
        return await follow(name)
    except asyncio.CancelledError:
        details = activity.cancellation_details()
        if details and details.cancel_requested:
            await asyncio.wait([starting])
            cancelled = await adj("cancel", "--json", "--reason=the workflow was cancelled", name)
            # It has not started, or it has already ended.
            if cancelled.code not in (0, EXIT_NOT_FOUND, EXIT_CONFLICT):
                raise cancelled.failure() from None
            # Its processes have a grace period.
            await adj("wait", "--json", "--until=all", f"--timeout={WAIT_S}s", name)
        elif details and details.worker_shutdown:
            raise ApplicationError(f"the worker ended; {name} continues", type="worker_shutdown") from None
        # Otherwise the attempt has timed out, was paused or reset, or its workflow has ended. The run continues.
        raise


@activity.defn
async def answer_question(answer: Answer) -> None:
    answered = await adj("reply", "--json", "--", answer.question, "-", text=answer.text)
    if answered.code != 0:
        raise answered.failure()


@workflow.defn
class RunAgent:
    @workflow.run
    async def run(self, task: Task) -> Result:
        try:
            ended = await workflow.execute_activity(
                run_agent,
                task,
                start_to_close_timeout=timedelta(hours=RUN_TIMEOUT_H),
                heartbeat_timeout=timedelta(seconds=HEARTBEAT_TIMEOUT_S),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                retry_policy=RetryPolicy(maximum_interval=timedelta(minutes=1)),
            )
        except Exception:
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise
        await workflow.wait_condition(workflow.all_handlers_finished)
        return ended

    @workflow.update
    async def answer(self, answer: Answer) -> None:
        """Answers a question. Fails if it is not open, with the reason."""
        await workflow.execute_activity(
            answer_question,
            answer,
            start_to_close_timeout=timedelta(minutes=1),
            schedule_to_close_timeout=timedelta(minutes=5),
        )


def make_worker(client: Client, task_queue: str) -> Worker:
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[RunAgent],
        activities=[run_agent, answer_question],
        # A cancellation arrives with the reply to a heartbeat.
        max_heartbeat_throttle_interval=timedelta(seconds=WAIT_S),
    )


async def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: temporal_worker.py TASK_QUEUE")
    client = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    await make_worker(client, sys.argv[1]).run()


if __name__ == "__main__":
    asyncio.run(main())
