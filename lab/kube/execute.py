"""`kubectl exec` over a websocket: a process in place of the container."""

import asyncio
import contextlib
import json
import os
import time
from typing import Any

from aiohttp import WSMsgType, web

from lab.kube.call import Call
from lab.kube.errors import ApiError, bad_request
from lab.kube.faults import Rule
from lab.kube.store import Object, Store
from lab.kube.streams import Limit, container_of, status_of

STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")


async def execute(
    request: web.Request, call: Call, store: Store, kubelet: Any, rules: list[Rule]
) -> web.StreamResponse:
    """`kubectl exec`: a process in place of the container, its streams as channels of a websocket."""
    pod = store.get("pods", call.name, call.namespace)
    container = container_of(pod, call)
    if not pod["spec"].get("nodeName"):
        raise bad_request(f"pod {call.name} does not have a host assigned")
    if "running" not in status_of(pod, container).get("state", {}):
        phase = pod.get("status", {}).get("phase", "")
        if phase in ("Succeeded", "Failed"):
            raise bad_request(f"cannot exec into a container in a completed pod; current phase is {phase}")
        text = f'unable to upgrade connection: container not found ("{container}")'
        raise ApiError(500, "InternalError", text)
    command = request.query.getall("command", [])
    end = time.monotonic() + 10
    while kubelet and not kubelet.has_process(pod, container):
        if time.monotonic() > end:
            raise ApiError(500, "InternalError", f'unable to upgrade connection: container not found ("{container}")')
        await asyncio.sleep(0.02)
    argv, environment = kubelet.exec_argv(pod, container, command) if kubelet else (command, dict(os.environ))
    socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=0)
    await socket.prepare(request)
    wants = {name for name in ("stdin", "stdout", "stderr", "tty") if call.query.get(name) in ("true", "1")}
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd="/", start_new_session=True
        )
    except OSError as error:
        await send_status(socket, failure(f"error executing command in container: {error}"))
        await socket.close()
        return socket
    reading = asyncio.create_task(receive(socket, process, "stdin" in wants))
    limit = Limit(rules)
    sending = [
        asyncio.create_task(forward(socket, channel, stream, limit, request))
        for channel, stream in ((STDOUT, process.stdout), (STDERR, process.stderr))
    ]
    try:
        await asyncio.gather(*sending)
        await send_status(socket, exit_status(await process.wait()))
        await socket.close()
    finally:
        reading.cancel()
        if process.returncode is None:
            process.kill()
    return socket


async def forward(socket: web.WebSocketResponse, channel: int, stream: Any, limit: Limit, request: web.Request) -> None:
    while text := await stream.read(1 << 15):
        await socket.send_bytes(bytes([channel]) + (limit.take(text) if limit.rule else text))
        limit.close(request)


async def receive(socket: web.WebSocketResponse, process: asyncio.subprocess.Process, stdin: bool) -> None:
    """Channel 0 is the standard input; 255 with a channel's number closes it (v5)."""
    assert process.stdin
    if not stdin:
        process.stdin.close()
    async for message in socket:
        if message.type != WSMsgType.BINARY or not message.data:
            continue
        channel, text = message.data[0], message.data[1:]
        with contextlib.suppress(ConnectionError):
            if channel == STDIN and stdin:
                process.stdin.write(text)
                await process.stdin.drain()
            elif channel == CLOSE and text == bytes([STDIN]):
                process.stdin.close()
    if process.returncode is None:
        process.kill()


async def send_status(socket: web.WebSocketResponse, status: Object) -> None:
    await socket.send_bytes(bytes([ERROR]) + json.dumps(status).encode())


def exit_status(code: int) -> Object:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    code = 128 - code if code < 0 else code
    details = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
    return failure(f"command terminated with non-zero exit code: exit status {code}") | {
        "reason": "NonZeroExitCode",
        "details": details,
    }


def failure(message: str) -> Object:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
