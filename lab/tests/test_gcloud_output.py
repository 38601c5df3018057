"""What the simulated gcloud prints is what the real one prints when the same API answers it."""

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from lab.gcloud import command, lifecycle, pools, store
from lab.gcloud.api import ApiError
from lab.gcloud.services import handle

REAL = shutil.which("gcloud")
PLACE = ("--project=p", "--zone=us-east5-b", "--format=json", "--quiet")
QUEUED, VM = ("compute", "tpus", "queued-resources"), ("compute", "tpus", "tpu-vm")
REQUEST = ("--accelerator-type=v6e-16", "--runtime-version=v2-alpha-tpuv6e", "--labels=a=b", "--metadata=k=v")
NODE = ("--accelerator-type=v6e-16", "--version=v2-alpha-tpuv6e")
FLEX = ("--provisioning-model=flex-start", "--max-run-duration=6h", "--valid-until-duration=90m")
CALLS = [
    (*QUEUED, "create", "q", "--node-id=q", *REQUEST, "--spot", "--async", *PLACE),
    (*QUEUED, "create", "q", "--node-id=q", *REQUEST, *PLACE),
    ("alpha", *QUEUED, "create", "f", "--node-id=f", *REQUEST, *FLEX, "--async", *PLACE[:2], "--quiet"),
    (*QUEUED, "create", "r", "--node-count=2", *REQUEST, "--reserved", "--valid-until-duration=1h30m", *PLACE),
    (*QUEUED, "create", "v", "--node-id=v", "--accelerator-type=v4-8", "--runtime-version=x", *PLACE),
    (*QUEUED, "create", "o", "--node-id=o", *REQUEST, "--max-run-duration=1h", *PLACE),
    (*QUEUED, "describe", "q", *PLACE),
    (*QUEUED, "describe", "absent", *PLACE),
    (*QUEUED, "describe", "q", "--project=p", "--format=json"),
    (*QUEUED, "list", "--project=p", "--zone=-", "--format=json", "--filter=tpu.nodeSpec[0].node.labels.a:*"),
    (*QUEUED, "list", *PLACE, "--bogus"),
    (*QUEUED, "create", "o", "--node-id=o", *REQUEST, "--labels=ab", *PLACE),
    (*QUEUED, "create", "o", "--node-id=o", "--node-count=2", *REQUEST, *PLACE),
    (*QUEUED, "create", "o", "--node-id=o", "--accelerator-type=v6e-8", *PLACE),
    (*QUEUED, "describe", *PLACE),
    (*QUEUED, "delete", "q", *PLACE),
    (*QUEUED, "delete", "r", "--force", "--async", *PLACE),
    (*QUEUED, "delete", "q", "--project=p", "--zone=us-east5-b"),
    (*VM, "describe", "absent", *PLACE),
    (*VM, "list", "--project=p", "--format=json"),
    (*VM, "create", "scarce", *NODE, "--spot", *PLACE),
    (*VM, "create", "n", *NODE, "--async", *PLACE),
    (*VM, "update", "n", "--update-labels=c=d", *PLACE),
    (*VM, "update", "n", "--update-labels=c=d", *PLACE),
    (*VM, "get-guest-attributes", "n", "--query-path=hostkeys/", *PLACE),
    (*VM, "delete", "n", "--async", *PLACE),
    (*VM, "accelerator-types", "describe", "v6e-16", *PLACE),
    (*VM, "versions", "list", *PLACE),
    ("compute", "tpus", "locations", "list", "--project=p", "--format=json"),
    (*VM, "list", "--project=p", "--zone=mars-1a", "--format=json"),
    ("beta", *QUEUED, "list", "--zone=-"),
    ("compute", "tpus", "operations", "list"),
]


class Server:
    """The simulated API over HTTP, and time that passes for it, without hosts: those of a node are said to be there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        store.prepare(root)
        with store.opened(root) as state:
            state["knobs"]["capacity"] = {"us-east5-b/spot": [[0.0, 0]]}
        server, self.ended = self, False

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                url = urlsplit(self.path)
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                status = 200
                try:
                    with store.opened(server.root) as state:
                        reply = handle(state, self.command, url.path, dict(parse_qsl(url.query)), body)
                except ApiError as error:
                    status, reply = error.status, error.body()
                text = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = answer

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        threading.Thread(target=self.tick, daemon=True).start()

    def tick(self) -> None:
        while not self.ended:
            with store.opened(self.root) as state:
                lifecycle.advance(state)
                pools.advance(state)
                for node in state["nodes"].values():
                    if node["boot"] == "wanted":
                        node["boot"] = "on"
                        host = {"name": "w", "address": "192.0.2.1", "internal": "10.0.0.1", "host_key": "AAAA"}
                        node["hosts"] = [host] * node["num_hosts"]
            time.sleep(0.02)

    def close(self) -> None:
        self.ended = True
        self.http.shutdown()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    both = [Server(tmp_path / name) for name in ("real", "simulated")]
    yield both
    for server in both:
        server.close()


def plain(text: str) -> str:
    """Without names, times and numbers that differ from call to call, and without the account, which the real one has none of here."""
    text = re.sub(r"operation-[\w-]+", "OPERATION", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    text = re.sub(r'("creationTimestamp": )"[\d:.T-]+"', r"\1TIME", text)
    text = re.sub(r"(gke[a-z-]*)-[0-9a-f]{8}(-[0-9a-f]{4})?\b", r"\1-HEX", text)
    text = text.replace("https://container.googleapis.com", "URL")
    text = re.sub(r"http://127.0.0.1:\d+", "URL", text)
    text = re.sub(r'("id": )"\d+"', r"\1ID", re.sub(r"EID: 0x\w+", "EID", text))
    text = re.sub(r"This command is (un)?authenticated.* property( is True)?", "ACCOUNT", text)
    text = re.sub(r"\.+(done|failed)\.", r"\1.", text)
    text = re.sub(r"Maybe you meant:\n(  .*\n)+", "", text)  # neither these nor the usage are read by programs
    text = re.sub(r"(?s)Usage: .*", "", text)
    text = re.sub(r" \(did you mean.*\)", "", text)
    text = re.sub(r'"\w+Data": {},\s+"state": "[A-Z_]+"', '"state": "STATE"', text)  # time passes between the calls
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def differences(servers: list[Server], calls: list[tuple[str, ...]], folder: Path) -> str:
    """Where what the real gcloud prints of the first server's answers and the simulated one of the second's differs; "" if nowhere."""
    sdk = Path(os.path.realpath(str(REAL))).parents[1]
    url = f"http://127.0.0.1:{servers[0].http.server_port}/"
    variables = {
        "CLOUDSDK_CONFIG": str(folder / "config"),
        "KUBECONFIG": str(folder / "kubeconfig"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": url,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER": url,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}compute/v1/",
    }
    script = Path(__file__).with_name("real_gcloud.py")
    with subprocess.Popen(
        [sys.executable, "-S", str(script), str(sdk)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **variables},
        text=True,
    ) as process:
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(calls))
        process.stdin.close()
        answers = []
        for argv in calls:
            answers.append(command.answer(servers[1].root, list(argv)))
            if {"create", "delete"} & set(argv) and (not answers[-1][0] or "--timeout=0" in argv):
                time.sleep(0.7)  # until the states have come to rest
        results = json.loads(process.stdout.read())
    wrong = []
    for argv, real, (status, out, err) in zip(calls, results, answers, strict=True):
        expected = f"{real['rc']}\n{plain(real['out'])}\n{plain(real['err'])}".splitlines()
        simulated = f"{status}\n{plain(out)}\n{plain(err)}".splitlines()
        if simulated != expected:
            wrong += [" ".join(argv), *difflib.unified_diff(expected, simulated, "real", "simulated", lineterm="")]
    return "\n".join(wrong)


@pytest.mark.long
@pytest.mark.skipif(not REAL, reason="gcloud is not installed")
def test_the_simulated_gcloud_prints_what_the_real_one_prints(servers: list[Server], tmp_path: Path) -> None:
    assert not (wrong := differences(servers, CALLS, tmp_path)), wrong
