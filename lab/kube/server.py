"""`python -m lab.kube.server FOLDER`: the API server over HTTP, with its controllers in a thread of the same process.

Two listeners: http://127.0.0.1:PORT for clients, whose calls meet the faults; FOLDER/control.sock for tests and the simulated cloud, whose calls
meet none, and which also has /lab/ for faults, knobs and the record of calls.
"""

import asyncio
import importlib.util
import json
import logging
import signal
import ssl
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web

from lab.kube import discovery, protobuf, streams, versions
from lab.kube.call import Call, parsed
from lab.kube.control_socket import short_path
from lab.kube.errors import ApiError, bad_request
from lab.kube.execute import execute
from lab.kube.faults import Faults, Rule, forbidden, http_error
from lab.kube.rest import Rest
from lab.kube.store import Object, Store

TICK_S = 0.05
GARBAGE_S = 0.3
MOST_BYTES = 3 << 20
USER = "lab@example.com"
Login = Callable[[web.Request], None]


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.faults = Store(), Faults()
        self.rest = Rest(self.store, self.faults)
        self.controllers: list[Any] = []
        self.calls: list[Object] = []
        self.errors: list[str] = []
        self.ended = threading.Event()
        self.tls: ssl.SSLContext | None = None
        if (folder / "certificate.pem").exists():
            self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self.tls.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
        self.site: web.TCPSite | None = None
        self.port = 0
        self.back: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        self.define()
        self.loop = asyncio.get_running_loop()
        self.wakeup = streams.Wakeup(self.loop, self.store)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, stop.set)
        self.runner, control = await self.runner_of(self.serve), await self.runner_of(self.serve_control)
        await self.listen()
        with short_path(self.folder) as short:
            await web.UnixSite(control, f"{short}/control.sock").start()
        ticking = threading.Thread(target=self.tick, daemon=True)
        ticking.start()
        (self.folder / "url.part").write_text(f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}")
        (self.folder / "url.part").replace(self.folder / "url")
        await stop.wait()
        self.ended.set()
        await asyncio.to_thread(ticking.join)
        for controller in self.controllers:
            if hasattr(controller, "close"):
                controller.close()

    async def runner_of(self, handler: Any) -> web.AppRunner:
        application = web.Application(client_max_size=MOST_BYTES + 1)
        application.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
        await runner.setup()
        return runner

    # reachable or not

    async def listen(self) -> None:
        listening: Any = {"reuse_address": True, "backlog": 1024, "ssl_context": self.tls}
        self.site = web.TCPSite(self.runner, "127.0.0.1", self.port, **listening)
        await self.site.start()
        self.port = self.runner.addresses[0][1]

    async def unreachable(self, seconds: float) -> None:
        """Refuse connections, and break those that are."""
        if self.site:
            await self.site.stop()
            self.site = None
        server: Any = self.runner.server
        for connection in list(server.connections):
            if connection.transport:
                connection.transport.abort()
        if self.back:
            self.back.cancel()
        self.back = self.loop.call_later(seconds, lambda: self.loop.create_task(self.reachable()))

    async def reachable(self) -> None:
        if self.back:
            self.back.cancel()
            self.back = None
            await self.listen()

    # controllers

    def tick(self) -> None:
        """Let the controllers act until the end. What one of them raises is kept for `Kube.__exit__`."""
        collected = 0.0
        while not self.ended.wait(TICK_S):
            now = time.time()
            for controller in self.controllers:
                self.attempt(partial(controller.step, self.store, now))
            if now > collected + GARBAGE_S:
                collected = now
                self.attempt(self.store.collect_garbage)

    def attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            text = traceback.format_exc()
            if text not in self.errors:
                self.errors.append(text)
                print(text, file=sys.stderr, flush=True)

    # calls

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """A call of a client, with its faults and a row in the record."""
        row: Object = {
            "time": time.time(),
            "method": request.method,
            "path": request.path,
            "query": request.query_string,
        }
        row |= {"agent": request.headers.get("User-Agent", ""), "verb": "", "resource": "", "name": "", "status": None}
        self.calls.append(row)
        started = time.monotonic()
        try:
            response = await self.answer(request, row, self.faults, self.require_login)
            row["status"] = response.status
            if row.pop("lost", False) and request.transport:
                request.transport.abort()
            return response
        finally:
            row["seconds"] = time.monotonic() - started

    async def answer(self, request: web.Request, row: Object, faults: Faults, login: Login) -> web.StreamResponse:
        try:
            login(request)
            call = parsed(request.method, request.path, dict(request.query))
            verb, resource, name = (call.verb, call.full_resource, call.name) if call else ("get", "", "")
            row |= {"verb": verb, "resource": resource, "name": name, "namespace": call.namespace if call else ""}
            rules = faults.of(verb, resource, name)
            await self.suffer(rules, request, call, row)
            if call is None:
                return self.discover(request.path)
            row["status"] = 200  # of a stream, until it ends
            response = await self.act(request, call, rules)
            if call.version == "v1beta1" and not response.prepared:
                response.headers["Warning"] = f'299 - "{versions.WARNING}"'
            return response
        except ApiError as error:
            headers = {}
            if "retryAfterSeconds" in error.details:
                headers["Retry-After"] = str(error.details["retryAfterSeconds"])
            return web.json_response(error.status(), status=error.code, headers=headers)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {MOST_BYTES}"
            return web.json_response(ApiError(413, "RequestEntityTooLarge", text).status(), status=413)

    def require_login(self, request: web.Request) -> None:
        """401 without the bearer token of the knob `token`, if there is one."""
        token = self.store.knobs.get("token", "")
        if token and request.headers.get("Authorization") != f"Bearer {token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")

    async def suffer(self, rules: list[Rule], request: web.Request, call: Call | None, row: Object) -> None:
        for rule in rules:
            if rule.kind == "slow":
                await asyncio.sleep(rule.delay_s)
            elif rule.kind == "hang":
                await asyncio.sleep(3600)
            elif rule.kind == "reset":
                assert request.transport
                request.transport.abort()
                raise ConnectionResetError
            elif rule.kind == "lost":
                row["lost"] = True
            elif rule.kind == "http":
                raise http_error(rule)
            elif rule.kind == "forbidden" and call:
                raise forbidden(USER, call.verb, call.full_resource, call.row.group, call.namespace, call.name)

    def discover(self, path: str) -> web.Response:
        rows = discovery.installed(self.store.knobs)
        parts = path.strip("/").split("/")
        answer: Object | None = None
        if path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
        if parts == ["openapi", "v2"]:
            return web.Response(body=protobuf.EMPTY_OPENAPI, content_type=protobuf.OPENAPI_TYPE)
        if parts == ["version"]:
            answer = discovery.version()
        elif parts == ["api"]:
            answer = discovery.api_versions()
        elif parts == ["apis"]:
            answer = discovery.group_list(rows)
        elif parts[0] == "apis" and len(parts) == 2 and parts[1] in discovery.groups(rows):
            answer = discovery.group(parts[1], discovery.groups(rows)[parts[1]])
        elif parts[0] in ("api", "apis") and len(parts) in (2, 3):
            answer = discovery.resource_list("/".join(parts[1:]), rows)
        elif parts == ["openapi", "v3"]:
            answer = discovery.openapi_paths(rows)
        elif parts[:2] == ["openapi", "v3"]:
            answer = discovery.openapi("/".join(parts[3:]), rows)
        if answer is None:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return web.json_response(answer)

    async def act(self, request: web.Request, call: Call, rules: list[Rule]) -> web.StreamResponse:
        row, knobs = call.row, self.store.knobs
        known = call.subresource or call.verb in row.verbs
        if row.group in knobs.get("absent_groups", ()) or call.version not in discovery.served(row, knobs) or not known:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if call.verb == "watch":
            return await streams.watch(request, call, self.store, self.wakeup, rules)
        if call.subresource == "log":
            return await streams.log(request, call, self.store, self.folder, rules)
        if call.subresource == "exec":
            starter = next((c for c in self.controllers if hasattr(c, "exec_argv")), None)
            return await execute(request, call, self.store, starter, rules)
        if call.verb in ("list", "get"):
            text = self.rest.listed(call) if call.verb == "list" else self.rest.got(call)
            return web.Response(body=text, content_type="application/json")
        body = await request.read()
        if call.verb == "create":
            given = protobuf.decoded(body) if request.content_type == protobuf.CONTENT_TYPE else decoded(body)
            answer = self.rest.created(call, given)
        elif call.verb == "update":
            answer = self.rest.updated(call, decoded(body))
        elif call.verb == "patch":
            answer = self.rest.patched(call, request.content_type, body)
        else:
            answer = self.rest.deleted(call, decoded(body) if body else {})
        if answer.get("kind") == call.row.kind:
            answer = versions.shown(call.row, answer, call.version)
        return web.json_response(answer, status=201 if call.verb == "create" else 200)

    # control

    async def serve_control(self, request: web.Request) -> web.StreamResponse:
        """A call of a test or of the simulated cloud."""
        if not request.path.startswith("/lab/"):
            return await self.answer(request, {}, Faults(), lambda _: None)
        body = decoded(await request.read()) if request.can_read_body else {}
        verb = request.path.removeprefix("/lab/")
        if verb == "fault":
            self.faults.set(**body)
        elif verb == "unreachable":
            await self.unreachable(body["seconds"])
        elif verb == "clear":
            self.faults.rules.clear()
            await self.reachable()
        elif verb == "knobs":
            self.store.knobs.update(body)
            self.define()
        elif verb == "expire":
            self.store.expire_history()
        elif verb == "controllers":
            self.start_controllers()
        answers: Object = {"calls": self.calls, "errors": self.errors}
        return web.json_response(answers.get(verb, {}))

    def define(self) -> None:
        """Bring the CustomResourceDefinitions to what the knob `absent_groups` leaves."""
        absent = self.store.knobs.get("absent_groups", ())
        for row in discovery.ROWS:
            if row.group in discovery.CUSTOM_GROUPS:
                there = self.store.find("customresourcedefinitions", row.qualified)
                if there and row.group in absent:
                    self.store.delete("customresourcedefinitions", row.qualified)
                elif not there and row.group not in absent:
                    self.store.create("customresourcedefinitions", discovery.definition(row, self.store.knobs))

    def start_controllers(self) -> None:
        if not self.controllers and importlib.util.find_spec("lab.kube.controllers"):
            module = importlib.import_module("lab.kube.controllers")
            self.controllers = module.start(self.store, self.folder)


def decoded(text: bytes) -> Object:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized")
    return body


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(Server(Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
