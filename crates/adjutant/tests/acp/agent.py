"""An ACP agent on the official Python SDK: asks, edits, keeps its sessions, and says what it is told.

Each line of its prompt that begins with `do: ` is one thing to do, as JSON: ["say", TEXT], ["ask", TITLE, INPUT],
["elicit", MESSAGE, SCHEMA], ["edit", FILE, TEXT], ["who"], ["hang"]. Those with `then: ` are for the next prompt in the same session. With the argument
`--follow` it does what `adj agents test` tells it.
"""

import asyncio
import json
import os
import re
import sys
import uuid
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import acp
from acp import schema

SESSIONS = Path(os.environ.get("HOME", "/tmp")) / ".py-agent"
OPTIONS = [
    schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Agent:
    def __init__(self):
        self.client = None
        self.cancelled = asyncio.Event()

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        capabilities = schema.AgentCapabilities(load_session=True, mcp_capabilities=schema.McpCapabilities(http=False, sse=False))
        info = schema.Implementation(name="py-agent", version="0.1")
        return schema.InitializeResponse(protocol_version=1, agent_capabilities=capabilities, agent_info=info)

    async def new_session(self, cwd, mcp_servers=None, **_):
        session = f"p-{uuid.uuid4()}"
        self.keep(session, {"cwd": cwd, "turns": 0, "then": []})
        self.servers = mcp_servers or []
        modes = schema.SessionModeState(
            current_mode_id="auto",
            available_modes=[schema.SessionMode(id="auto", name="Auto"), schema.SessionMode(id="ask", name="Ask")],
        )
        return schema.NewSessionResponse(session_id=session, modes=modes)

    async def load_session(self, cwd, session_id, mcp_servers=None, **_):
        self.state(session_id)
        self.servers = mcp_servers or []
        await self.say(session_id, "words of yesterday")
        return schema.LoadSessionResponse()

    async def set_session_mode(self, mode_id, session_id, **_):
        self.mode = mode_id
        return schema.SetSessionModeResponse()

    async def prompt(self, prompt, session_id, **_):
        state = self.state(session_id)
        text = "\n".join(block.text for block in prompt if hasattr(block, "text"))
        if "--follow" in sys.argv:
            await self.follow(session_id, state, text)
            return schema.PromptResponse(stop_reason="cancelled" if self.cancelled.is_set() else "end_turn")
        now, then = ([json.loads(line[len(word) + 2 :]) for line in text.split("\n") if line.startswith(word + ": [")] for word in ("do", "then"))
        todo = now or state["then"]
        state = {**state, "turns": state["turns"] + 1, "then": then}
        self.keep(session_id, state)
        for what, *rest in todo:
            if what == "say":
                await self.say(session_id, rest[0])
            elif what == "who":
                await self.say(session_id, f"session {session_id}, turn {state['turns']}, mode {getattr(self, 'mode', None)}")
            elif what == "ask":
                call = schema.ToolCallUpdate(tool_call_id="c1", title=rest[0], kind="execute", raw_input=rest[1])
                await self.say(session_id, f"decided: {await self.ask(session_id, call)}")
            elif what == "elicit":
                schema_of_form = schema.ElicitationSchema.model_validate(rest[1])
                mode = schema.ElicitationFormSessionMode(session_id=session_id, requested_schema=schema_of_form)
                reply = await self.client.create_elicitation(rest[0], mode)
                await self.say(session_id, f"elicited: {reply.action} {getattr(reply, 'content', None)}")
            elif what == "edit":
                path = os.path.join(state["cwd"], rest[0])
                content = [acp.tool_diff_content(path, rest[1])]
                call = schema.ToolCallUpdate(tool_call_id="e1", title=f"Write {rest[0]}", kind="edit", content=content)
                decided = await self.ask(session_id, call)
                if decided == "yes":
                    Path(path).write_text(rest[1])
                await self.say(session_id, f"edit: {decided}")
            elif what == "hang":
                await self.cancelled.wait()
                return schema.PromptResponse(stop_reason="cancelled")
        return schema.PromptResponse(stop_reason="end_turn")

    async def cancel(self, session_id, **_):
        self.cancelled.set()

    async def follow(self, session, state, text):
        """Does what `adj agents test` tells it, as a model would."""
        word = lambda kind, text: next(iter(re.findall(kind + "-[0-9a-f]{8}", text)), None)
        if "Ready?" in text:
            command = next(line for line in text.split("\n") if line.startswith("setsid "))
            call = schema.ToolCallUpdate(tool_call_id="left", title=command, kind="execute", raw_input={"command": command})
            if await self.ask(session, call) == "yes":
                await asyncio.create_subprocess_exec("sleep", "3600", start_new_session=True, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
            await self.tool("ask_parent", {"question": "Ready?"})
        elif "first" in state:
            summary = f"{state['first']} {word('birch', text)}"
            await self.tool("update_subagent_status", {"status": "success", "summary": summary})
            await self.say(session, summary)
        else:
            await self.tool("update_subagent_status", {"status": "running", "percent": 10, "summary": "adjutant-test"})
            first = word("amber", await self.tool("ask_parent", {"question": "Which word?"}))
            self.keep(session, {**state, "first": first})
            snapshot = f"the first word is {first}"
            await self.tool("stop_work", {"stop_reason": "blocker", "details": "waits for the second word", "state_snapshot": snapshot})

    async def tool(self, name, arguments):
        """Calls a tool of the MCP server `adj` over stdio, and returns its text."""
        server = next(server for server in self.servers if server.name == "adj")
        env = {**os.environ, **{variable.name: variable.value for variable in server.env}}
        child = await asyncio.create_subprocess_exec(server.command, *server.args, env=env, stdin=PIPE, stdout=PIPE)
        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "py-agent", "version": "1"}}
        for message in [
            {"id": 1, "method": "initialize", "params": info},
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
        ]:
            child.stdin.write((json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())
            reply = {}
            while "id" in message and reply.get("id") != message["id"]:
                reply = json.loads(await child.stdout.readline())
        child.stdin.close()
        await child.wait()
        return "\n".join(part["text"] for part in reply["result"]["content"])

    async def ask(self, session, call):
        reply = await self.client.request_permission(session_id=session, tool_call=call, options=OPTIONS)
        return getattr(reply.outcome, "option_id", None) or "cancelled"

    async def say(self, session, text):
        await self.client.session_update(session_id=session, update=acp.update_agent_message_text(text + "\n"))

    def keep(self, session, state):
        SESSIONS.mkdir(parents=True, exist_ok=True)
        (SESSIONS / session).write_text(json.dumps(state))

    def state(self, session):
        try:
            return json.loads((SESSIONS / session).read_text())
        except OSError:
            raise acp.RequestError.resource_not_found(session) from None


asyncio.run(acp.run_agent(Agent()))
