"""`python -m tests.lab.kube.server FOLDER`: the API server over HTTP, with its controllers in a thread of the same process.

Two listeners: http://127.0.0.1:PORT for clients, whose calls meet the faults; FOLDER/control.sock for tests and the simulated cloud, whose calls
meet none, and which also has /lab/ for faults, knobs and the record of calls.
"""

import asyncio
import base64
import contextlib
import importlib.util
import json
import logging
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.lab.kube import discovery, patches, streams
from tests.lab.kube.call import Call, parsed
from tests.lab.kube.errors import ApiError, bad_request, conflict, expired
from tests.lab.kube.faults import Faults, Rule, forbidden, http_error
from tests.lab.kube.store import Object, Store

TICK_S = 0.05
GARBAGE_S = 0.3
MOST_BYTES = 3 << 20
USER = "lab@example.com"
KEEPS_STATUS = ("nodes", "namespaces")


class Server:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store, self.faults = Store(), Faults()
        self.controllers: list[Any] = []
        self.calls: list[Object] = []
        self.errors: list[str] = []
        self.ended = threading.Event()
        self.site: web.TCPSite | None = None
        self.port = 0
        self.back: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.wakeup = streams.Wakeup(self.loop, self.store)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, stop.set)
        self.runner, control = await self.runner_of(self.serve), await self.runner_of(self.serve_control)
        await self.listen()
        await web.UnixSite(control, str(self.folder / "control.sock")).start()
        ticking = threading.Thread(target=self.tick, daemon=True)
        ticking.start()
        (self.folder / "url.part").write_text(f"http://127.0.0.1:{self.port}")
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
        self.site = web.TCPSite(self.runner, "127.0.0.1", self.port, reuse_address=True, backlog=1024)
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
            try:
                for controller in self.controllers:
                    controller.step(self.store, now)
                if now > collected + GARBAGE_S:
                    collected = now
                    self.store.collect_garbage()
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
            response = await self.answer(request, row, self.faults)
            row["status"] = response.status
            if row.pop("lost", False) and request.transport:
                request.transport.abort()
            return response
        finally:
            row["seconds"] = time.monotonic() - started

    async def answer(self, request: web.Request, row: Object, faults: Faults) -> web.StreamResponse:
        try:
            call = parsed(request.method, request.path, dict(request.query))
            verb, resource, name = (call.verb, call.full_resource, call.name) if call else ("get", "", "")
            row |= {"verb": verb, "resource": resource, "name": name, "namespace": call.namespace if call else ""}
            rules = faults.of(verb, resource, name)
            await self.suffer(rules, request, call, row)
            if call is None:
                return self.discover(request.path)
            row["status"] = 200  # of a stream, until it ends
            return await self.act(request, call, rules)
        except ApiError as error:
            headers = {}
            if "retryAfterSeconds" in error.details:
                headers["Retry-After"] = str(error.details["retryAfterSeconds"])
            return web.json_response(error.status(), status=error.code, headers=headers)
        except web.HTTPRequestEntityTooLarge:
            text = f"Request entity too large: limit is {MOST_BYTES}"
            return web.json_response(ApiError(413, "RequestEntityTooLarge", text).status(), status=413)

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
        rows = discovery.installed(frozenset(self.store.knobs.get("absent_groups", ())))
        parts = path.strip("/").split("/")
        answer: Object | None = None
        if path in ("/healthz", "/livez", "/readyz"):
            return web.Response(text="ok")
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
        absent = self.store.knobs.get("absent_groups", ())
        if call.row.group in absent or (
            call.verb not in (*call.row.verbs, "deletecollection") and not call.subresource
        ):
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        if call.verb == "watch":
            return await streams.watch(request, call, self.store, self.wakeup, rules)
        if call.subresource == "log":
            return await streams.log(request, call, self.store, self.folder, rules)
        if call.subresource == "exec":
            starter = next((c for c in self.controllers if hasattr(c, "exec_argv")), None)
            return await streams.execute(request, call, self.store, starter, rules)
        if call.verb == "list":
            return web.Response(body=self.listed(call), content_type="application/json")
        if call.verb == "get":
            entry = self.store.stored(call.row.plural, call.name, call.namespace)
            return web.Response(body=entry.text, content_type="application/json")
        body = await request.read()
        if call.verb == "create":
            return web.json_response(self.created(call, decoded(body)), status=201)
        if call.verb == "update":
            return web.json_response(self.updated(call, decoded(body)))
        if call.verb == "patch":
            return web.json_response(self.patched(call, request.content_type, body))
        return web.json_response(self.deleted(call, decoded(body) if body else {}))

    def listed(self, call: Call) -> bytes:
        """A page of a list, with `metadata.continue` where there are more; the token names the last object of the page."""
        limit, token = int(call.query.get("limit", "0") or 0), call.query.get("continue", "")
        selectors = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
        with self.store.lock:
            entries, version = self.store.select(call.row.plural, call.namespace, *selectors), self.store.version
        if token:
            version, *last = json.loads(base64.b64decode(token))
            if version < self.store.oldest:
                raise expired("The provided continue parameter is too old to display a consistent list result.")
            entries = [
                e for e in entries if [e.body["metadata"].get("namespace", ""), e.body["metadata"]["name"]] > last
            ]
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(entries) > limit:
            metadata["remainingItemCount"] = len(entries) - limit
            entries = entries[:limit]
            last = entries[-1].body["metadata"]
            position = json.dumps([version, last.get("namespace", ""), last["name"]])
            metadata["continue"] = base64.b64encode(position.encode()).decode()
        head = {"kind": f"{call.row.kind}List", "apiVersion": call.row.api_version, "metadata": metadata}
        return json.dumps(head)[:-1].encode() + b',"items":[' + b",".join(entry.text for entry in entries) + b"]}"

    def created(self, call: Call, body: Object) -> Object:
        if call.row.group == "authorization.k8s.io":
            return self.reviewed(call, body)
        require_kind(call, body)
        if call.row.status and call.row.plural not in KEEPS_STATUS:
            body.pop("status", None)
        if call.row.plural == "pods":
            body["status"] = {"phase": "Pending"}
        if call.row.plural == "secrets":
            plain = body.pop("stringData", None) or {}
            encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
            body |= {"type": body.get("type", "Opaque"), "data": {**(body.get("data") or {}), **encoded}}
        return self.store.create(call.row.plural, body, call.namespace, dry_run="dryRun" in call.query)

    def updated(self, call: Call, body: Object) -> Object:
        require_kind(call, body)
        metadata = body.setdefault("metadata", {})
        if metadata.setdefault("name", call.name) != call.name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
            )
        if call.row.namespaced:
            metadata.setdefault("namespace", call.namespace)
        if call.subresource == "status":
            status = body.get("status", {})
            return self.changed(call, lambda copy: copy.update(status=status))
        return self.store.update(call.row.plural, body, keep_status=call.row.status)

    def patched(self, call: Call, kind: str, text: bytes) -> Object:
        def apply(copy: Object) -> None:
            result = patches.apply(call.row, kind, copy, text)
            if result["metadata"].get("resourceVersion") != copy["metadata"]["resourceVersion"]:
                raise conflict(call.row.qualified, call.name)
            if call.subresource == "status":
                result = copy | {"status": result.get("status", {})}
            elif call.row.status:
                result = {key: value for key, value in result.items() if key != "status"}
                result |= {"status": copy["status"]} if "status" in copy else {}
            copy.clear()
            copy.update(result)

        return self.changed(call, apply)

    def changed(self, call: Call, function: Any) -> Object:
        return self.store.change(call.row.plural, call.name, call.namespace, function)

    def deleted(self, call: Call, options: Object) -> Object:
        store, plural = self.store, call.row.plural
        propagation = options.get("propagationPolicy") or call.query.get("propagationPolicy") or "Background"
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        ways = (propagation, None if grace is None else float(grace))
        if call.verb == "deletecollection":
            selectors = call.query.get("labelSelector", ""), call.query.get("fieldSelector", "")
            chosen = store.list(plural, call.namespace, *selectors)
            for body in chosen:
                with contextlib.suppress(ApiError):
                    store.delete(plural, body["metadata"]["name"], body["metadata"].get("namespace", ""), *ways)
            return {"kind": f"{call.row.kind}List", "apiVersion": call.row.api_version, "metadata": {}, "items": chosen}
        body = store.get(plural, call.name, call.namespace)
        if (uid := (options.get("preconditions") or {}).get("uid", "")) not in ("", body["metadata"]["uid"]):
            text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {body['metadata']['uid']}"
            raise ApiError(409, "Conflict", text)
        if not (options.get("dryRun") or "dryRun" in call.query):
            store.delete(plural, call.name, call.namespace, *ways)
        if left := store.find(plural, call.name, call.namespace):
            return left
        details = {"name": call.name, "group": call.row.group, "kind": plural, "uid": body["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def reviewed(self, call: Call, body: Object) -> Object:
        """`kubectl auth can-i`: allowed unless a forbidden fault denies it."""
        if call.row.plural == "selfsubjectrulesreviews":
            rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            return body | {"status": {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}}
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = asked.get("resource", "") + (f"/{asked['subresource']}" if asked.get("subresource") else "")
        denied = self.faults.denies(asked.get("verb", ""), resource)
        return body | {"status": {"allowed": False, "reason": "lab"} if denied else {"allowed": True}}

    # control

    async def serve_control(self, request: web.Request) -> web.StreamResponse:
        """A call of a test or of the simulated cloud."""
        if not request.path.startswith("/lab/"):
            return await self.answer(request, {}, Faults())
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
        elif verb == "expire":
            self.store.expire_history()
        elif verb == "controllers":
            self.start_controllers()
        answers: Object = {"calls": self.calls, "errors": self.errors}
        return web.json_response(answers.get(verb, {}))

    def start_controllers(self) -> None:
        if not self.controllers and importlib.util.find_spec("tests.lab.kube.controllers"):
            module = importlib.import_module("tests.lab.kube.controllers")
            self.controllers = module.start(self.store, self.folder)


def decoded(text: bytes) -> Object:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise bad_request(f"the object provided is unrecognized (must be of type JSON): {error}") from error
    if not isinstance(body, dict):
        raise bad_request("the object provided is unrecognized")
    return body


def require_kind(call: Call, body: Object) -> None:
    row = call.row
    given = body.get("apiVersion", row.api_version), body.get("kind", row.kind)
    if given != (row.api_version, row.kind):
        expected = f"{row.group or ''}/{row.version}, Kind={row.kind}"
        text = f'{given[1]} in version "{given[0]}" cannot be handled as a {row.kind}: expected {expected}'
        raise bad_request(text)


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(Server(Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
