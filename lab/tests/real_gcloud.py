"""`python real_gcloud.py SDK_FOLDER < argvs.json`: run the real gcloud for each argv in a child of one warm process.

Prints a JSON list of {"rc", "out", "err"}. A start of gcloud takes a second of CPU; this takes one for all.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    sdk = sys.argv[1]
    sys.path[:0] = [f"{sdk}/lib", f"{sdk}/lib/third_party"]
    from googlecloudsdk import gcloud_main

    warm = gcloud_main.CreateCLI([])
    groups = ["compute tpus queued-resources list", "compute tpus tpu-vm list", "compute tpus locations list"]
    groups += ["container node-pools create", "container clusters describe", "compute resource-policies list"]
    for group in groups:
        node = warm._TopElement()
        for word in group.split():  # imports what all children need
            node = node.LoadSubElement(word)
    from googlecloudsdk.api_lib.util import apis

    apis.GetClientInstance("tpu", "v2", no_http=True)
    apis.GetClientInstance("tpu", "v2alpha1", no_http=True)
    apis.GetClientInstance("container", "v1", no_http=True)
    apis.GetClientInstance("compute", "v1", no_http=True)
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(min(seconds, 0.1))  # gcloud looks at an operation every 5 s

    argvs = json.load(sys.stdin)
    results = []
    for argv in argvs:
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            child = os.fork()
            if not child:
                for path, descriptor in ((out, 1), (err, 2)):
                    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                sys.argv = ["gcloud", *argv]
                status = 1
                try:
                    status = gcloud_main.main() or 0
                except SystemExit as end:
                    status = end.code or 0
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(int(status))
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if {"create", "delete"} & set(argv) and (not status or "--timeout=0" in argv):
                sleep(0.7)  # until the states have come to rest, as the test waits for those of the simulator
            results.append({"rc": status, "out": out.read_text(), "err": err.read_text()})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
