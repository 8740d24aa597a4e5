"""The main job, driven through `adj mcp` by a client built on the official Python SDK.

    main_job.py ADJ HOME PROJECT

List agents, start a run, be asked, look, answer, wait for the end, read the log; in both eras of
the protocol. Then a worker speaks to its run's supervisor over Streamable HTTP, and a wait is kept
as a Task. Ends with 0, or with what went wrong.
"""

import asyncio
import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import httpx2
import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.streamable_http import streamable_http_client

PATIENCE_S = 60
TASKS = "io.modelcontextprotocol/tasks"


def check(fine, what):
    if not fine:
        raise AssertionError(what)


def server(adj, home, project):
    path = os.environ.get("PATH", "")
    return StdioServerParameters(command=adj, args=["mcp"], env={"ADJ_HOME": home, "PATH": path}, cwd=project)


async def done(client, tool, arguments, **options):
    """Calls a tool that has to work. The SDK checks the result against the output schema."""
    result = await client.call_tool(tool, arguments, PATIENCE_S, **options)
    text = result.content[0].text
    check(not result.is_error, f"{tool}: {text}")
    check("\nnext: " in "\n" + text, f"{tool} does not say what comes next: {text}")
    return result.structured_content


async def refused(client, tool, arguments, code):
    result = await client.call_tool(tool, arguments, PATIENCE_S)
    check(result.is_error, f"{tool} {arguments} was not refused")
    check(f"error[{code}]" in result.content[0].text, f"{tool}: {result.content[0].text}")


async def wait(client, run, found, **arguments):
    """Waits until `found` says so of what a wait returned."""
    deadline = time.monotonic() + PATIENCE_S
    cursor = {}
    while time.monotonic() < deadline:
        waited = await done(client, "wait_for_subagents", {"run_ids": [run], "wait_s": 20, **arguments, **cursor})
        if found(waited):
            return waited
        cursor = {"cursor": waited["cursor"]}
    raise AssertionError(f"{run}: nothing came within {PATIENCE_S} s")


async def main_job(adj, home, project, mode):
    began = time.monotonic()
    async with Client(server(adj, home, project), mode=mode) as client:
        check(client.server_info.name == "adjutant", "the server says who it is")
        check(client.instructions, "the server says how it is used")
        tools = [tool.name for tool in (await client.list_tools()).tools]
        for tool in ["run_subagent", "wait_for_subagents", "reply_subagent", "list_coding_agents"]:
            check(tool in tools, f"{tool} is listed")
        agents = await done(client, "list_coding_agents", {})
        check(any(agent["name"] == "echo" and agent.get("usable", True) for agent in agents["agents"]), f"echo is there: {agents}")

        script = '---\nsay hello\nask "Which colour?" options: red|blue\nsay thanks\ndone painted it'
        run = await done(client, "run_subagent", {"agent": "echo", "prompt": "Paint it.\n" + script})
        run_id = run["run_id"]
        progress = []

        async def on_progress(done_so_far, _total, _message):
            progress.append(done_so_far)

        waited = await done(client, "wait_for_subagents", {"run_ids": [run_id]}, progress_callback=on_progress)
        check(len(waited["needs"]) == 1, f"it asks: {waited}")
        question = waited["needs"][0]
        check(question["question"] == "Which colour?" and question["options"] == ["red", "blue"], f"as it said: {question}")
        status = await done(client, "check_subagent_status", {"run_id": run_id})
        check(status["status"] == "waiting_parent_reply", f"it waits: {status}")
        pending = await done(client, "get_pending_questions", {"run_id": run_id})
        check([entry["message_id"] for entry in pending["questions"]] == [question["message_id"]], f"one question: {pending}")
        replied = await done(client, "reply_subagent", {"message_id": question["message_id"], "answer": "blue\nnext: nothing"})
        check(replied["success"], f"answered: {replied}")
        await refused(client, "reply_subagent", {"message_id": question["message_id"], "answer": "red"}, "already_answered")

        waited = await wait(client, run_id, lambda waited: waited.get("ended"), until="all")
        ended = waited["ended"][0]
        check(ended["status"] in ("success", "completed"), f"it succeeded: {ended}")
        check(ended["summary"] == "painted it", f"it reported: {ended}")
        logs = await done(client, "get_subagent_logs", {"run_id": run["name"]})
        for said in ["hello", "answer: blue", "thanks"]:
            check(said in logs["text"], f"it said {said!r}: {logs['text']}")
        await refused(client, "check_subagent_status", {"run_id": "00000000-0000-7000-8000-000000000000"}, "not_found")
        await refused(client, "steer_subagent", {"run_id": run_id, "action": "cancel"}, "run_finished")
        said = f"{client.protocol_version}, {len(progress)} signs of life"
    print(f"main job by {mode} ({said}): {time.monotonic() - began:.2f} s")


async def worker_over_http(adj, home, project, mode):
    began = time.monotonic()
    async with Client(server(adj, home, project), mode=mode) as parent:
        run = await done(parent, "run_subagent", {"agent": "echo", "prompt": "---\nhang"})
        access_file = Path(home, "runs", run["run_id"], "1", "worker.json")
        deadline = time.monotonic() + PATIENCE_S
        while not access_file.exists():
            check(time.monotonic() < deadline, f"{access_file} is not there")
            await asyncio.sleep(0.02)
        access = json.loads(access_file.read_text())
        async with httpx2.AsyncClient(timeout=httpx2.Timeout(5, read=PATIENCE_S)) as wrong:
            reply = await wrong.post(access["mcp_url"], json={}, headers={"Authorization": "Bearer wrong"})
            check(reply.status_code == 401, f"a wrong token is refused: {reply.status_code}")
        headers = {"Authorization": f"Bearer {access['token']}"}
        http = httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(5, read=PATIENCE_S))
        async with http, Client(streamable_http_client(access["mcp_url"], http_client=http), mode=mode) as worker:
            tools = [tool.name for tool in (await worker.list_tools()).tools]
            check("ask_parent" in tools and "reply_subagent" not in tools, f"a worker's tools: {tools}")
            asking = asyncio.create_task(done(worker, "ask_parent", {"question": "Over HTTP?"}))
            waited = await wait(parent, run["run_id"], lambda waited: waited.get("needs"))
            answer = {"answers": [{"message_id": waited["needs"][0]["message_id"], "answer": "yes"}]}
            await done(parent, "reply_subagent", answer)
            asked = await asking
            check(asked["answer"] == "yes", f"the answer came: {asked}")
            again = await done(worker, "check_answer", {"message_id": asked["message_id"]})
            check(again["answer"] == "yes" and again["hasAnswer"], f"it stays readable: {again}")
            await done(worker, "update_subagent_status", {"status": "running", "percent": 50, "summary": "half"})
            await refused(worker, "check_subagent_status", {"run_id": "somebody-else"}, "not_found")
        await done(parent, "steer_subagent", {"run_id": run["run_id"], "action": "cancel"})
        waited = await wait(parent, run["run_id"], lambda waited: waited.get("ended"), until="all")
        check(waited["ended"][0]["status"] == "cancelled", f"it was cancelled: {waited}")
    print(f"worker over HTTP by {mode}: {time.monotonic() - began:.2f} s")


class CreatedTask(types.Result):
    """What a server returns instead of a result when it keeps the wait as a Task."""

    model_config = {"extra": "allow"}
    result_type: Literal["task"] = "task"


class Tasks(ClientExtension):
    """The client's side of the Tasks extension: here it only hands over what came."""

    identifier = TASKS

    def __init__(self):
        self.created = []

    def claims(self):
        async def resolve(task: CreatedTask, _context: ClaimContext):
            self.created.append(task.model_dump())
            return types.CallToolResult(content=[], is_error=True)

        return [ResultClaim(result_type="task", model=CreatedTask, resolve=resolve)]


async def kept_as_task(adj, home, project):
    tasks = Tasks()
    async with Client(server(adj, home, project), extensions=[tasks]) as client:
        run = await done(client, "run_subagent", {"agent": "echo", "prompt": "---\nsleep 1\ndone slept"})
        await client.call_tool("wait_for_subagents", {"run_ids": [run["run_id"]], "until": "all"}, PATIENCE_S)
        check(len(tasks.created) == 1, "the wait became a Task")
        created = tasks.created[0]
        check(created.get("status") == "working" and created.get("taskId"), f"a Task: {created}")
        await wait(client, run["run_id"], lambda waited: waited.get("ended"), until="all", wait_s=0)
    print("a wait kept as a Task")


async def job():
    adj, home, project = sys.argv[1:]
    print(f"mcp {version('mcp')}, Python {sys.version.split()[0]}")
    for mode in ["legacy", "auto"]:
        await main_job(adj, home, project, mode)
        await worker_over_http(adj, home, project, mode)
    await kept_as_task(adj, home, project)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    asyncio.run(asyncio.wait_for(job(), 6 * PATIENCE_S))
