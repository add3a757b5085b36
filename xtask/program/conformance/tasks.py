"""A modern server with the tasks extension, for the suite's `tasks-*` scenarios: the reference servers do not have it.

    tasks.py [PORT]    over stdio, or over HTTP on a loopback port
"""
import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

EXTENSION = "io.modelcontextprotocol/tasks"
META = "io.modelcontextprotocol/"
TOOLS = ["greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input",
         "test_tool_with_task"]
# The only tool that cannot be called without a task.
REQUIRES_TASK = "failing_job"
NAME_AT = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
STATUS = {-32601: 404, -32602: 400, -32020: 400, -32021: 400}

tasks = {}
lock = threading.Lock()


class Refused(Exception):
    def __init__(self, code, message, data=None):
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


def text(words, is_error=False):
    return {"content": [{"type": "text", "text": words}], "isError": is_error}


def elicitation(message):
    schema = {"type": "object", "properties": {"confirm": {"type": "boolean"}, "name": {"type": "string"}}}
    return {"method": "elicitation/create",
            "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def create(after, **becomes):
    """A task that changes after some seconds."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    task = {"taskId": str(uuid.uuid4()), "status": "working", "createdAt": now, "lastUpdatedAt": now,
            "ttlMs": 60000, "pollIntervalMs": 100}
    created = {"resultType": "task", **task}

    def change():
        with lock:
            if task["status"] == "working":
                task.update(becomes)

    with lock:
        tasks[task["taskId"]] = task
    timer = threading.Timer(after, change)
    timer.daemon = True
    timer.start()
    return created


def call(params, has_extension):
    name, arguments = params["name"], params.get("arguments", {})
    if name not in TOOLS:
        raise Refused(-32602, f"unknown tool: {name}")
    if name == "greet":
        return text(f"Hello, {arguments.get('name')}!")
    if not has_extension:
        if name == REQUIRES_TASK:
            raise missing_extension()
        return text("done")
    if name == "slow_compute":
        return create(float(arguments.get("seconds", 1)), status="completed", result=text("computed"))
    if name == "failing_job":
        return create(0.1, status="completed", result=text("it failed", True))
    if name == "protocol_error_job":
        return create(0.1, status="failed", error={"code": -32603, "message": "it broke"})
    if name == "confirm_delete":
        return create(0.1, status="input_required", inputRequests={"confirm": elicitation("Delete it?")})
    if name == "multi_input":
        asked = {"first": elicitation("First?"), "second": elicitation("Second?")}
        return create(0.1, status="input_required", inputRequests=asked)
    answer = params.get("inputResponses", {}).get("user_name")
    if answer is None:
        asked = {"user_name": elicitation("What is your name?")}
        return {"resultType": "input_required", "inputRequests": asked}
    return create(0.1, status="completed", result=text(f"Hello, {answer['content']['name']}!"))


def missing_extension():
    required = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    return Refused(-32021, "Missing required client capability", required)


def about_task(method, params):
    with lock:
        task = tasks.get(params.get("taskId"))
        if task is None:
            raise Refused(-32602, "unknown task")
        if method == "tasks/get":
            return dict(task)
        if method == "tasks/cancel" and task["status"] in ("working", "input_required"):
            task.pop("inputRequests", None)
            task["status"] = "cancelled"
        if method == "tasks/update" and task["status"] == "input_required":
            for key in params.get("inputResponses", {}):
                task["inputRequests"].pop(key, None)
            if not task["inputRequests"]:
                del task["inputRequests"]
                task.update(status="completed", result=text("confirmed"))
        return {}


def result(method, params):
    declared = params.get("_meta", {}).get(META + "clientCapabilities", {})
    has_extension = EXTENSION in declared.get("extensions", {})
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "ttlMs": 1000, "cacheScope": "private",
                "capabilities": {"tools": {}, "extensions": {EXTENSION: {}}},
                "_meta": {META + "serverInfo": {"name": "tasks", "version": "1"}}}
    if method == "tools/list":
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]
        return {"tools": tools, "ttlMs": 1000, "cacheScope": "private"}
    if method == "tools/call":
        return call(params, has_extension)
    if method in ("tasks/get", "tasks/update", "tasks/cancel"):
        if not has_extension:
            raise missing_extension()
        return about_task(method, params)
    raise Refused(-32601, f"unknown method: {method}")


def answer(message, headers=None):
    params = message.get("params", {})
    try:
        if headers is not None:
            name_at = NAME_AT.get(message["method"])
            is_named = name_at is None or headers["Mcp-Name"] == params.get(name_at)
            if headers["Mcp-Method"] != message["method"] or not is_named:
                raise Refused(-32020, "the headers do not match the message")
        found = {"result": {"resultType": "complete", **result(message["method"], params)}}
    except Refused as refused:
        found = {"error": refused.error}
    return {"jsonrpc": "2.0", "id": message["id"], **found}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def respond(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.respond(405)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.respond(202)
        response = answer(message, self.headers)
        status = STATUS.get(response.get("error", {}).get("code"), 200)
        self.respond(status, json.dumps(response).encode())


if sys.argv[1:]:
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request and "method" in request:
        print(json.dumps(answer(request)), flush=True)
