"""The documented Temporal worker, with the real SDK, the real development server and the real `adj`.

    temporal.py ADJ TEMPORAL WORK

WORK is an empty directory, in which the script makes a home. Ends with 0, or with what went wrong.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

from temporalio.activity import ActivityCancellationDetails
from temporalio.client import WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment, WorkflowEnvironment

sys.path.insert(0, str(Path(__file__).parents[4] / "docs/engines"))
import temporal_worker as documented  # noqa: E402

DEADLINE_S = 60
QUEUE = "agents"


def check(fine, what):
    if not fine:
        raise AssertionError(what)


def adj(*arguments):
    done = subprocess.run([documented.ADJ, *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    check(done.returncode == 0, f"adj {arguments}: {done.stderr}")
    return done.stdout


def runs():
    """Returns all runs, by their tasks."""
    found = {}
    for run in json.loads(adj("ps", "-a", "--json=name,task,state,outcome"))["data"]:
        found.setdefault(run["task"], []).append(run)
    return found


def only_run(task):
    found = runs().get(task, [])
    check(len(found) == 1, f"{task} has {len(found)} runs")
    return found[0]


async def until(found, what):
    """Waits until `found` returns something. Each call asks `adj` or the server, which takes a while."""
    async with asyncio.timeout(DEADLINE_S):
        while not (value := await asyncio.to_thread(found)):
            pass
    print(f"  {what}")
    return value


def is_in_state(task, state):
    return any(run["state"] == state for run in runs().get(task, []))


def hub_pid():
    return int(re.search(r"\(pid (\d+)", adj("doctor", "--json"))[1])


async def failing(awaitable):
    try:
        await awaitable
    except (ApplicationError, asyncio.CancelledError) as error:
        return error
    raise AssertionError("did not fail")


class Attempt(ActivityEnvironment):
    """An attempt of an activity without a server."""

    def __init__(self, activity_id):
        super().__init__()
        self.info = dataclasses.replace(self.info, activity_id=activity_id)
        self.heartbeats = []
        self.on_heartbeat = lambda *details: self.heartbeats.extend(details)


async def activity_alone(task):
    """What the activity returns, raises and starts, in the SDK's environment for activities."""
    print("a success, and another attempt with the same ids")
    first = await Attempt("success").run(documented.run_agent, task("say hello\ndone well"))
    check(first.text == "hello\nwell" and first.report["summary"] == "well", first)
    again = await Attempt("success").run(documented.run_agent, task("say hello\ndone well"))
    check(again == first and only_run("say hello"), again)
    another = await Attempt("another").run(documented.run_agent, task("say hello\ndone well"))
    check(another.run_id != first.run_id and len(runs()["say hello"]) == 2, another)

    print("a task and an agent that look like options")
    odd = await Attempt("odd").run(documented.run_agent, task("--help"))
    check(odd.text == "--help", odd)
    error = await failing(Attempt("option").run(documented.run_agent, dataclasses.replace(task("say no"), agent="--clone")))
    check(error.type == "adj.agent_not_found" and error.non_retryable, error)

    print("a question that is answered while the activity sends heartbeats")
    attempt = Attempt("question")
    running = asyncio.create_task(attempt.run(documented.run_agent, task('ask "Which?" options: a|b')))
    await until(lambda: any(beat["needs"] for beat in list(attempt.heartbeats)), "a heartbeat names it")
    need = next(beat["needs"][0] for beat in attempt.heartbeats if beat["needs"])
    check(need["question"] == "Which?" and need["kind"] == "question", need)
    adj("reply", need["number"], "b")
    check((await running).text == "answer: b", running)

    print("a paused run continues after adj resume")
    attempt = Attempt("paused")
    running = asyncio.create_task(attempt.run(documented.run_agent, task("# paused\nhang\nresume-here\ndone resumed")))
    await until(lambda: is_in_state("# paused", "running"), "it runs")
    adj("pause", only_run("# paused")["name"])
    await until(lambda: any("stopped" in (beat["status"] or "") for beat in list(attempt.heartbeats)), "a heartbeat says so")
    adj("resume", only_run("# paused")["name"])
    check((await running).text.endswith("resumed"), running)

    print("failures")
    error = await failing(Attempt("failed").run(documented.run_agent, task("fail 7")))
    check(error.type == "run.failed" and error.non_retryable and "exit 7" in error.message, error)
    error = await failing(Attempt("failed").run(documented.run_agent, task("fail 7")))
    check(error.type == "run.failed" and only_run("fail 7"), error)
    error = await failing(Attempt("directory").run(documented.run_agent, dataclasses.replace(task("say no"), directory="/no/such")))
    check(error.type == "adj.invalid" and error.non_retryable and "/no/such" in error.message, error)
    program, documented.ADJ = documented.ADJ, "/no/such/adj"
    error = await failing(Attempt("missing").run(documented.run_agent, task("say no")))
    check(error.type == "adj.not_installed" and not error.non_retryable, error)
    documented.ADJ = program
    check("say no" not in runs(), runs())

    print("cancellations: by request, before the run is known, and for other reasons")
    for name, details, expected in [
        ("cancel", {"cancel_requested": True}, "finished"),
        ("early", {"cancel_requested": True}, "finished"),
        ("shutdown", {"worker_shutdown": True}, "running"),
        ("timeout", {"timed_out": True}, "running"),
    ]:
        script = f"# {name}\nhang"
        attempt = Attempt(name)
        running = asyncio.create_task(attempt.run(documented.run_agent, task(script)))
        if name == "early":
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        else:
            await until(lambda: attempt.heartbeats, f"{name}: a heartbeat")
        attempt.cancel(ActivityCancellationDetails(**details))
        error = await failing(running)
        check(isinstance(error, ApplicationError if name == "shutdown" else asyncio.CancelledError), error)
        run = only_run(f"# {name}")
        check(run["state"] == expected and (run.get("outcome") == "cancelled") == (expected == "finished"), run)
        if expected == "running":
            adj("cancel", run["name"])

    print("a hub that is killed")
    attempt = Attempt("hub")
    running = asyncio.create_task(attempt.run(documented.run_agent, task("# hub\nask \"Continue?\"\ndone well")))
    await until(lambda: any(beat["needs"] for beat in list(attempt.heartbeats)), "it asks")
    killed = hub_pid()
    os.kill(killed, signal.SIGKILL)
    await until(lambda: hub_pid() != killed, "another hub has started")
    adj("reply", only_run("# hub")["name"], "yes")
    check((await running).text.endswith("well"), running)
    check(only_run("# hub")["outcome"] == "succeeded", runs())


async def workflows(client, task):
    """The documented workflow, with the server."""

    async def begin(script):
        return await client.start_workflow(documented.RunAgent.run, task(script), id=f"Test {uuid.uuid4()}", task_queue=QUEUE)

    async def failure(handle):
        try:
            await asyncio.wait_for(handle.result(), DEADLINE_S)
        except WorkflowFailureError as error:
            return error.cause
        raise AssertionError("the workflow did not fail")

    def worker():
        return documented.make_worker(client, QUEUE)

    async with worker():
        print("a workflow, with a question that an update answers")
        handle = await begin('ask "Which colour?"\ndone painted')
        await until(lambda: is_in_state('ask "Which colour?"', "running") and "Which colour?" in adj("inbox", "--json"), "it asks")
        question = next(found["number"] for found in json.loads(adj("inbox", "--json"))["data"] if found.get("question") == "Which colour?")
        await handle.execute_update(documented.RunAgent.answer, documented.Answer(question, "blue"))
        ended = await asyncio.wait_for(handle.result(), DEADLINE_S)
        check(ended.text == "answer: blue\npainted" and ended.report["status"] == "success", ended)

        print("a failed run is not retried")
        cause = await failure(await begin("fail 8"))
        check(isinstance(cause, ActivityError) and cause.cause.type == "run.failed", cause)
        check("exit 8" in cause.cause.message and only_run("fail 8"), cause)

        print("an answer to a question that is not open fails with the reason")
        handle = await begin("# cancelled\nhang")
        try:
            await handle.execute_update(documented.RunAgent.answer, documented.Answer(question, "red"))
            raise AssertionError("the answer was accepted")
        except WorkflowUpdateFailedError as error:
            check("already answered" in str(error.cause.cause), error.cause.cause)

        print("a cancelled workflow cancels its run")
        await until(lambda: is_in_state("# cancelled", "running"), "it runs")
        await handle.cancel()
        check(isinstance(await failure(handle), CancelledError), "the workflow is cancelled")
        check(only_run("# cancelled")["outcome"] == "cancelled", runs())

        print("a terminated workflow does not")
        handle = await begin("# terminated\nhang")
        await until(lambda: is_in_state("# terminated", "running"), "it runs")
        await handle.terminate()

        print("a worker that ends: the next one attaches to the run")
        handle = await begin("# worker\nask \"Continue?\"\ndone well")
        await until(lambda: is_in_state("# worker", "running") and "Continue?" in adj("inbox", "--json"), "it asks")
    check(is_in_state("# terminated", "running"), runs())
    adj("cancel", only_run("# terminated")["name"])
    name = only_run("# worker")["name"]
    adj("reply", name, "yes")
    async with worker():
        ended = await asyncio.wait_for(handle.result(), DEADLINE_S)
        check(ended.name == name and ended.text.endswith("well") and only_run("# worker"), ended)

    print("a worker without adj: the task is retried, and continues when adj is there")
    program, documented.ADJ = documented.ADJ, "/no/such/adj"
    async with worker():
        handle = await begin("say later")
        while not (pending := (await handle.describe()).raw_description.pending_activities) or not pending[0].last_failure.message:
            pass
        check("cannot start" in pending[0].last_failure.message, pending)
        documented.ADJ = program
        check((await asyncio.wait_for(handle.result(), DEADLINE_S)).text == "later", "it continues")


async def main(program, temporal, work):
    home, project = Path(work, "home"), Path(work, "project")
    home.mkdir(mode=0o700)
    project.mkdir()
    os.environ["ADJ_HOME"] = str(home)
    documented.ADJ = program
    documented.WAIT_S = 1

    def task(prompt):
        return documented.Task(prompt, str(project), "echo")

    try:
        await activity_alone(task)
        async with await WorkflowEnvironment.start_local(dev_server_existing_path=temporal, ip="127.0.0.1") as server:
            await workflows(server.client, task)
    finally:
        with contextlib.suppress(AssertionError):
            adj("cancel", "--all", "--yes")
            adj("stop")
    print("the documented worker works")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
