"""A Python for simulated TPU VMs: what looks at their devices tells what the lab says of these, what trains is the stand-in."""

from pathlib import Path

from lab.sshd import stand_in

# What libtpu prints (jax 0.10, libtpu 0.0.42; the first two from issues of users).
DEVICES = """
attribute() { curl -s -H 'Metadata-Flavor: Google' "http://metadata.google.internal/computeMetadata/v1/instance/attributes/$1"; }
tell() { printf '{"stage": "%s"%s}\\n' "$1" "$2"; }
worker=$(attribute agent-worker-number)
tell started
if [ "$(attribute lab-device)" = busy ]; then
  echo "RuntimeError: Unable to initialize backend 'tpu': UNKNOWN: TPU initialization failed: open(/dev/vfio/0): Device or resource busy:" \
    "Device or resource busy; Couldn't open iommu group /dev/vfio/0"
  exit 1
fi
case "$(attribute lab-image)" in
  tpu-ubuntu*) echo "RuntimeError: Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology."; exit 1 ;;
esac
if rm "{folder}/hang-$worker" 2> /dev/null; then sleep 600; fi
tell joined ", \\"time\\": $(date +%s)"
tell devices ", \\"process\\": $worker, \\"expected_process\\": $RANK, \\"platform\\": \\"tpu\\", \\"kind\\": \\"TPU v6 lite\\", \\"local\\": 4,\
 \\"all\\": 16, \\"versions\\": {\\"jax\\": \\"0.10.2\\"}, \\"free_bytes\\": 90000000000"
tell storage "${LAB_FAULT:+, \\"fault\\": \\"$LAB_FAULT\\", \\"fix\\": \\"mend it\\"}"
"""


def write(folder: Path, standin: Path) -> Path:
    """Below `folder`, which all hosts see; a file hang-K there makes the check of worker K hang, once. The variable LAB_FAULT is a fault of the storage."""
    trainer = stand_in(folder / "trainer-python", standin)
    path = folder / "python"
    devices = DEVICES.replace("{folder}", str(folder))
    path.write_text(
        f'#!/bin/bash\nif [ "$1 $2 $3" = "-m podwright.train devices" ]; then{devices}exit\nfi\nexec {trainer} "$@"\n'
    )
    path.chmod(0o755)
    return path
