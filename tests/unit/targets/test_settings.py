"""The user's file of targets: what is read, what is refused in one line, what is added."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from podwright import targets
from podwright.cli.app import main
from podwright.errors import UserError
from podwright.report import readme
from podwright.run import journal
from podwright.rundir import RunDir, replace_file, write_json
from podwright.targets import entries
from podwright.targets.settings.slurm import seconds as slurm_seconds
from podwright.targets.slurm import Slurm


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config" / "targets.yaml"
    monkeypatch.setenv("PODWRIGHT_TARGETS", str(path))
    return path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_a_target_is_what_its_entry_says(file: Path) -> None:
    write(
        file,
        "a:\n  kind: slurm\n  nodes: 2\n  gpus_per_node: 8\n  accelerator: H100-80GB\n"
        "  time: 24:00:00\n  mem: 0\n  setup: [module load x]\n",
    )
    found = entries.require("a")
    assert (found.nodes, found.time, found.mem, found.setup, found.warn_s) == (
        2,
        "24:00:00",
        "0",
        ("module load x",),
        120,
    )
    where = targets.resolve("a").slice
    assert where and where.name == "16xH100-80GB" and entries.names() == ["a"]


def test_a_file_that_cannot_be_read_is_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.parent.mkdir()
    file.write_bytes(b"\x89PNG")
    with pytest.raises(UserError, match=r"targets\.yaml is not text; name another file in PODWRIGHT_TARGETS"):
        entries.names()
    for place, said in (
        (file.parent, "config is no regular file"),
        ("/proc/self/mem", "/proc/self/mem cannot be read: "),
    ):
        monkeypatch.setenv("PODWRIGHT_TARGETS", str(place))
        with pytest.raises(UserError, match=said):
            targets.resolve("elsewhere")


def test_without_gpus_the_devices_are_cpus_and_without_a_name_they_are_not_known(file: Path) -> None:
    write(file, "a: {kind: slurm, nodes: 2, tasks_per_node: 2}\nb: {kind: slurm, gpus_per_node: 8}\n")
    where = targets.resolve("a").slice
    assert where and where.name == "cpu-4" and targets.resolve("b").slice is None


@pytest.mark.parametrize(
    ("text", "what", "fix"),
    [
        (
            "a: {kind: slurm\nb",
            "line 1 is not YAML: at column 4, ",
            "fix it there",
        ),
        ("- a", "holds no mapping of names", "write NAME:"),
        ("a: {nodes: 2}", "target 'a' has no kind", "known: kind=slurm"),
        ("a: {kind: pbs}", "has kind=pbs", "known: kind=slurm"),
        (
            "a: {kind: slurm}\nb: @x",
            "line 2 is not YAML: at column 4, ",
            "fix it there",
        ),
        ("a: 3", "has no kind", "known: kind=slurm"),
        ("a: {kind: slurm, partion: x}", "target 'a' has no key 'partion'", "did you mean partition"),
        (
            "a: {kind: slurm, nodes: 1, nodes: 2}",
            "line 1 is not YAML: at column 28, the key nodes is there twice",
            "fix it there",
        ),
        (
            "a: {kind: slurm}\na: {kind: ssh}",
            "line 2 is not YAML: at column 1, the key a is there twice",
            "fix it there",
        ),
        ("a: {kind: slurm, zzzzzz: x}", "has no key 'zzzzzz'", "leave it out"),
        ("a: {kind: gke, submit: xpk}", "target 'a' has no key 'submit'", "leave it out"),
        ("a: {kind: slurm, nodes: 0}", "nodes=0 must be at least 1", "fix it in"),
        ("a: {kind: slurm, nodes: two}", "nodes=two must be a whole number", "fix it in"),
        ("a: {kind: slurm, time: tomorrow}", "time=tomorrow is no time of SLURM's; write it like", "fix it in"),
        ("a: {kind: slurm, time: 2}", "time=2 is not longer than warn_s=120", "fix it in"),
        ("a: {kind: slurm, runs: here}", "runs=here must be an absolute path", "fix it in"),
        ("a: {kind: slurm, time: 1:2:3:4}", "time=1:2:3:4 is no time of SLURM's; write it like", "fix it in"),
        ("a: {kind: slurm, mem: lots}", "mem=lots is no size of memory; write it like 200G, or 0", "fix it in"),
        ("a: {kind: slurm, mem: -5G}", "mem=-5G is no size of memory", "fix it in"),
        ("a: {kind: slurm, partition: a b}", "partition=a b has a space or a line break in it", "fix it in"),
        ("a: {kind: slurm, partition: 'a,'}", "partition=a, has a comma with no partition on one side", "fix it in"),
        ("a: {kind: slurm, partition: 'a,b,a'}", "partition=a,b,a has a twice", "fix it in"),
        ("a: {kind: slurm, partition: 'a, b'}", "partition=a, b has a space or a line break in it", "fix it in"),
        ("a: {kind: slurm, nodes: 2, sbatch: [--nodes=3]}", "has '--nodes=3', which is set for each job", "fix it in"),
        ("a: {kind: slurm, sbatch: [-N3]}", "has '-N3', which is set for each job", "fix it in"),
        ("a: {kind: slurm, sbatch: [--error=x]}", "has '--error=x', which is set for each job", "fix it in"),
        (
            "a: {kind: slurm, mem: 2G, sbatch: [--mem-per-gpu=1G]}",
            "--mem=2G and --mem-per-gpu=1G exclude each",
            "fix it in",
        ),
        (
            "a: {kind: slurm, sbatch: [--mem=2G, --mem-per-cpu=1G]}",
            "--mem=2G and --mem-per-cpu=1G exclude",
            "fix it in",
        ),
        ("a: {kind: slurm, sbatch: [-t soon]}", "has '-t soon', which is set for each job", "fix it in"),
        (
            "a: {kind: slurm, sbatch: [--output=x]}",
            "has '--output=x', which is set for each job",
            "fix it in",
        ),
        ("a: {kind: slurm, sbatch: [--nodes 3]}", "has '--nodes 3', which is no option", "fix it in"),
        (
            "a: {kind: slurm, sbatch: [--mem-per-cpu=2G --mem-per-gpu=3G]}",
            "has '--mem-per-cpu=2G --mem-per-gpu=3G', which is no option",
            "fix it in",
        ),
        ("a: {kind: slurm, sbatch: [-x a --exclusive]}", "has '-x a --exclusive', which is no option", "fix it in"),
        ("a: {kind: slurm, sbatch: [exclusive]}", "has 'exclusive', which is no option", "fix it in"),
        (
            "a: {kind: slurm, gpus_per_node: 8, tasks_per_node: 3}",
            "tasks_per_node=3: write 1, or one for each GPU",
            "fix it in",
        ),
        ("a: {kind: slurm, gpus_per_node: 8, accelerator: H1000}", "accelerator=H1000: ", "fix it in"),
        ("a: {kind: ssh}", "hosts is missing", "set it in"),
        ("a: {kind: ssh, hosts: []}", r"hosts=\[\] must have at least 1", "fix it in"),
        ("a: {kind: ssh, hosts: [-oProxyCommand=x]}", "hosts: has '-oProxyCommand=x', which is no host", "fix it in"),
        (
            "a: {kind: slurm, accelerator: H1000}",
            "accelerator=H1000: no such GPU is known; did you mean H100-80GB",
            "fix it in",
        ),
        (
            "a: {kind: ssh, hosts: [h], accelerator: H100-80GB}",
            "accelerator=H100-80GB, and gpus_per_node is 0; set gpus_per_node",
            "fix it in",
        ),
        (
            "a: {kind: slurm, accelerator: h100-80gb}",
            "accelerator=h100-80gb, and gpus_per_node is 0",
            "fix it in",
        ),
        ("a: {kind: ssh, hosts: [h, g:99999]}", "hosts: has 'g:99999', which is no host", "fix it in"),
        ("a: {kind: ssh, hosts: [g:0]}", "hosts: has 'g:0', which is no host", "fix it in"),
        ("a: {kind: ssh, hosts: gpu-1}", "hosts is no list", "write hosts=[FIRST, SECOND]"),
        ("a: {kind: slurm, sbatch: --exclusive}", "sbatch is no list", "write sbatch=[FIRST, SECOND]"),
        ("a: {kind: ssh, hosts: [h, h]}", "hosts: has h twice; write tasks_per_node", "fix it in"),
        (
            "a: {kind: ssh, hosts: [h], env: [HF_TOKEN=x]}",
            "env: has 'HF_TOKEN': it takes names of variables",
            "fix it in",
        ),
        ("a: {kind: ssh, hosts: [h], folder: here}", "folder=here must be an absolute path", "fix it in"),
        (
            "a: {kind: ssh, hosts: [h], storage: runs}",
            "storage=runs is neither a bucket nor a folder; write",
            "fix it in",
        ),
        (
            "a: {kind: slurm, storage: s3://b/runs}",
            "storage=s3://b/runs is neither a bucket nor a folder",
            "fix it in",
        ),
        ("a: {kind: slurm, storage: gs://B}", "storage=gs://B is neither a bucket nor a folder", "fix it in"),
        ("a: {kind: ssh, hosts: [h], zzzzzz: x}", "has no key 'zzzzzz'", "leave it out"),
    ],
)
def test_what_is_wrong_with_an_entry_is_one_line(file: Path, text: str, what: str, fix: str) -> None:
    write(file, text)
    with pytest.raises(UserError, match=what) as found:
        entries.require("a")
    assert fix in found.value.fix and "\n" not in str(found.value), found.value


@pytest.mark.parametrize("name", ["local", "cpu-8", "v6e-8", "8xH100-80GB"])
def test_an_entry_named_like_something_that_is_there_is_refused(file: Path, name: str, capsys: Any) -> None:
    write(file, f"{name}: {{kind: slurm}}")
    verbs = [["target", "show", name], ["target", "check", name]]
    verbs.append(["plan", "almodel-tiny", "--on", name])
    for argv in verbs:
        assert main(argv) == 2
        assert f"has a target {name!r}: it is the name of " in capsys.readouterr().err
    assert main(["target", "list"]) == 0 and f"has a target {name!r}" in capsys.readouterr().out


@pytest.mark.parametrize("storage", ["gs://my-bucket", "gs://my-bucket/runs", "/shared/runs", ""])
@pytest.mark.parametrize("entry", ["kind: slurm", "kind: ssh, hosts: [h]"])
def test_a_storage_is_a_bucket_or_a_folder_of_any_kind_of_target(file: Path, entry: str, storage: str) -> None:
    write(file, f"a: {{{entry}, storage: '{storage}'}}")
    assert targets.resolve("a").traits.storage == storage


def test_a_kind_that_does_not_use_the_storage_of_a_target_is_a_warning(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slurm, "check", lambda _: [])
    write(file, "a: {kind: slurm, storage: /shared/runs}\nb: {kind: slurm}")
    (remark,) = targets.resolve("a").check("multimodal")
    assert remark.level == "warning" and remark.what == (
        "kind=multimodal does not use storage=/shared/runs: checkpoints and records stay in the directory of the run"
    )
    assert (
        targets.resolve("a").check("grpo")
        == targets.resolve("a").check()
        == targets.resolve("b").check("multimodal")
        == []
    )


def test_hosts_over_ssh_are_as_many_nodes(file: Path) -> None:
    write(
        file,
        "a:\n  kind: ssh\n  hosts: [me@h1, h2:2222]\n  gpus_per_node: 8\n  accelerator: H100-80GB\nb: {kind: ssh, hosts: [h1, h2]}\n",
    )
    found = entries.require("a")
    assert found.hosts == ("me@h1", "h2:2222") and found.env == ("HF_TOKEN",) and found.folder == "~/.podwright"
    devices = [targets.resolve(name).slice for name in ("a", "b")]
    assert [each.name for each in devices if each] == ["16xH100-80GB", "cpu-2"]


def test_a_name_that_nobody_knows_is_refused_with_the_nearest(file: Path) -> None:
    with pytest.raises(UserError, match="there is no target 'a'") as found:
        entries.require("a")
    assert "podwright target list" in found.value.fix
    write(file, "cluster: {kind: slurm}\n")
    with pytest.raises(UserError, match="there is no target 'clutser'; did you mean cluster"):
        targets.resolve("clutser")
    with pytest.raises(UserError, match="did you mean cluster"):
        entries.require("clustr")
    with pytest.raises(UserError, match="v6e-16 is a slice, not a target"):
        targets.resolve("v6e-16").open()


@pytest.mark.parametrize(
    ("text", "name", "fix"),
    [
        ("ok: {kind: slurm}\nbox: {kind: slurm}\n", "OK", "did you mean ok"),
        ("ok: {kind: slurm}\nbox: {kind: slurm}\n", "nope", "type --on local, cpu-8, .*; `podwright target list`"),
        ("ok: {kind: slurm}\nbox: {kind: slurm}\n", "", "type --on local, cpu-8, .*; `podwright target list`"),
        ("", "nope", "type --on local, cpu-8, .*; `podwright target list`"),
    ],
)
def test_an_unknown_target_is_refused_with_the_targets_there_are(file: Path, text: str, name: str, fix: str) -> None:
    write(file, text)
    with pytest.raises(UserError, match=fix):
        targets.resolve(name)


def test_add_keeps_what_stands_in_the_file(file: Path) -> None:
    write(file, "# mine\nb: {kind: slurm} # b")
    entries.add("a", ["kind=slurm", "time=24:00:00", "setup=[module load x, 'export A=1']", "nodes=2"])
    text = file.read_text()
    assert text.startswith("# mine\nb: {kind: slurm} # b\na:\n") and entries.names() == ["b", "a"]
    found = entries.require("a")
    assert (found.time, found.setup, found.nodes) == ("24:00:00", ("module load x", "export A=1"), 2)


@pytest.mark.parametrize(
    ("name", "pairs", "what"),
    [
        ("local", ["kind=slurm"], "'local' cannot be the name of a target"),
        ("v6e-16", ["kind=slurm"], "'v6e-16' cannot be"),
        ("cpu-8", ["kind=slurm"], "'cpu-8' cannot be"),
        ("a b", ["kind=slurm"], "'a b' cannot be"),
        ("123", ["kind=slurm"], "'123' cannot be the name of a target: a name begins with a letter"),
        ("there", ["kind=slurm"], "there is a target 'there' already"),
        ("a", ["slurm"], "'slurm' sets nothing"),
        ("a", ["kind=slurm", "nodes=2", "nodes=3"], "'nodes=3' sets nothing, or a key again"),
        ("a", ["nodes=2"], "target 'a' has no kind"),
        ("a", ["kind=ssh", "hosts=[b"], r"hosts is no list of plain words; write hosts="),
        ("a", ["kind=ssh", "hosts=[::1]"], "hosts is no list of plain words"),
        ("a", ["kind=ssh", 'hosts=["[::1]:22"]'], r"'\[::1\]:22', which is no host"),
        ("a", ["kind=ssh", "hosts="], r"hosts is no list of plain words"),
        ("a", ["kind=ssh", "hosts={b: 1}"], r"hosts is no list of plain words"),
        ("a", ["kind=ssh", "hosts=[b]", "env={A: 3}"], "env is no list of plain words"),
        ("a", ["kind=ssh", "hosts=[[b], [c]]"], "hosts is no list of plain words"),
        ("a", ["kind=ssh", "hosts=[b]", "env=[1A]"], "env: has '1A': it takes names of variables"),
        ("a", ["kind=ssh", "hosts=[b]", "env=[A=secret]"], "env: has 'A': it takes names of variables"),
        ("a", ["kind=ssh", "hosts=[b]", "address=x y"], "address=x y is no name and no IPv4 address; write it like"),
        ("a", ["kind=ssh", "hosts=[b]", "address=b:22"], "address=b:22 is no name and no IPv4 address"),
        ("a", ["kind=ssh", "hosts=[b]", "python=/usr/bin/python3 -u"], "python=/usr/bin/python3 -u has an argument"),
    ],
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(
    file: Path, name: str, pairs: list[str], what: str
) -> None:
    write(file, "there: {kind: slurm}\n")
    with pytest.raises(UserError, match=what):
        entries.add(name, pairs)
    assert file.read_text() == "there: {kind: slurm}\n"


PLACES = {
    "ssh": ["hosts=[b]"],
    "tpu-vm": ["project=my-project", "zones=[us-east5-b]", "accelerator_type=v6e-16"],
    "gke": ["project=my-project", "zones=[us-east5-b]", "cluster=c"],
}


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "LD_PRELOAD", "PYTHONPATH", "PROCESS_ID", "JAX_PROCESS_ID", "TPU_WORKER_ID", "MASTER_ADDR"),
        "PODWRIGHT_GPUS_PER_NODE",
    ],
)
def test_variables_that_would_break_the_processes_of_a_target_are_refused(file: Path, kind: str, name: str) -> None:
    with pytest.raises(UserError) as refused:
        entries.add("a", [f"kind={kind}", *PLACES[kind], f"env=[HF_TOKEN, {name}]"])
    assert f"env: has {name}, which " in refused.value.what and "leave it out" in refused.value.what
    entries.add("a", [f"kind={kind}", *PLACES[kind], "env=[HF_TOKEN, WANDB_API_KEY, NCCL_DEBUG, XLA_FLAGS]"])


@pytest.mark.parametrize("kind", PLACES)
def test_a_target_may_name_a_folder_for_compiled_programs(file: Path, kind: str) -> None:
    entries.add("a", [f"kind={kind}", *PLACES[kind], "env=[PODWRIGHT_CACHE, JAX_COMPILATION_CACHE_DIR]"])


def test_variables_that_are_carried_are_named_once_and_in_ascii(file: Path) -> None:
    for value, what in (("[A, A]", "env: has A twice"), ("[É]", "env: has 'É': it takes names of variables")):
        with pytest.raises(UserError, match=what):
            entries.add("a", ["kind=ssh", "hosts=[b]", f"env={value}"])


def test_targets_are_listed_with_values_as_they_are_typed(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries.add("a", ["kind=ssh", "hosts=[b, c]", "setup=['echo 1, 2']", "gpus_per_node=8"])
    entries.add("b", ["kind=gke", *PLACES["gke"], "price=3.5"])
    write(file, file.read_text() + "c: {kind: [ssh, gke]}\n")
    capsys.readouterr()
    assert main(["target", "list"]) == 0
    a, b, c = capsys.readouterr().out.splitlines()
    assert a == "a  kind=ssh  hosts=[b, c]  gpus_per_node=8  setup=['echo 1, 2']"
    assert b == "b  kind=gke  project=my-project  cluster=c  zones=[us-east5-b]  price=3.5"
    assert "has kind=[ssh, gke]" in c


@pytest.mark.parametrize("kind", ["pipe", *(["device"] if os.geteuid() == 0 else [])])
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(file: Path, kind: str) -> None:
    file.parent.mkdir()
    os.mkfifo(file) if kind == "pipe" else os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    with pytest.raises(UserError, match=r"targets\.yaml is no regular file; name a file"):
        entries.add("a", ["kind=slurm"])
    with pytest.raises(UserError, match=r"targets\.yaml is no regular file"):
        readme.put(file, "r", "text", "title")
    with pytest.raises(UserError, match=r"targets\.yaml is no regular file"):
        replace_file(file, b"text")
    assert [path.name for path in file.parent.iterdir()] == ["targets.yaml"] and not file.is_file()


def test_a_link_to_the_file_of_targets_stays_a_link(file: Path) -> None:
    real = file.parent / "real.yaml"
    write(real, "a: {kind: slurm}  # mine\n")
    file.symlink_to("real.yaml")
    entries.add("b", ["kind=slurm"])
    assert file.is_symlink() and real.read_text().startswith("a: {kind: slurm}  # mine\nb:\n")


def test_the_place_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PODWRIGHT_TARGETS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    entries.add("a", ["kind=slurm"])
    assert (tmp_path / "podwright" / "targets.yaml").is_file()


def test_the_home_of_a_user_that_is_not_here_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"^~no-user/runs: ~no-user is no user of this machine; give the path from / on"
    ):
        entries.add("a", ["kind=slurm", "runs=~no-user/runs"])
    monkeypatch.setenv("PODWRIGHT_TARGETS", "~no-user/targets.yaml")
    with pytest.raises(UserError, match="~no-user is no user of this machine"):
        entries.names()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-12:30", 131400),
        ("1-12:30:10", 131410),
        ("infinite", float("inf")),
    ],
)
def test_times_of_slurm(text: str, seconds: float) -> None:
    assert slurm_seconds(text) == seconds


def test_nothing_is_added_to_a_file_that_would_not_be_readable_afterwards(file: Path) -> None:
    write(file, "{x: {kind: slurm}}\n")
    with pytest.raises(UserError, match=r"'z' cannot be added at the end of .*; change the file by hand"):
        entries.add("z", ["kind=slurm"])
    assert file.read_text() == "{x: {kind: slurm}}\n"


@pytest.mark.parametrize("name", ["v6e", "tpu7x", "H100-80GB"])
def test_the_name_of_an_accelerator_is_no_name_of_a_target(file: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a target"):
        entries.add(name, ["kind=slurm"])


def test_a_size_that_is_not_sold_is_no_name_of_a_target(file: Path) -> None:
    entries.add("v6e-cluster", ["kind=slurm"])
    with pytest.raises(UserError, match=r"no v6e slice is sold as v6e-12 .*; type --on v6e-8 or v6e-16"):
        targets.resolve("v6e-12")
    with pytest.raises(UserError, match="did you mean v6e-cluster"):
        targets.resolve("v6ecluster")


@pytest.mark.parametrize(
    ("pairs", "what", "fix"),
    [
        (["kind=slurm", "sbatch=[--exclusive"], "sbatch is no list of plain words", "write sbatch=["),
        (["kind=ssh", "hosts=[a]", "ssh=-J gate"], "ssh is no list of plain words", "write ssh=["),
        (["kind=ssh"], "hosts is missing", "add hosts=... to the command"),
        (["kind=slurm", "nodes=two"], "nodes=two must be a whole number", "correct it"),
        (["kind=slurm", "gpus_per_node=8", "accelerator=H100"], "did you mean H100-80GB", "correct it"),
        (["kind=slurm", "gpus_per_node=8", "accelerator=A100"], "did you mean A100-40GB or A100-80GB", "correct it"),
        (["kind=slurm", "gpus_per_node=8", "accelerator=L4-40GB"], "did you mean L4?", "correct it"),
        (
            ["kind=slurm", "gpus_per_node=12", "accelerator=H100-80GB"],
            "gpus_per_node=12: 12 H100-80GB are no whole machines of 8; change gpus_per_node",
            "correct it",
        ),
    ],
)
def test_what_was_typed_is_corrected_by_typing(pairs: list[str], what: str, fix: str) -> None:
    with pytest.raises(UserError) as e:
        entries.add("a", pairs)
    assert what in e.value.what and e.value.fix.startswith(fix)


@pytest.mark.parametrize("name", ["local", "v6e-8"])
def test_a_name_that_needs_no_entry_is_no_target_of_the_file(name: str) -> None:
    with pytest.raises(UserError, match=f"there is no target '{name}' in "):
        entries.require(name)


MIXED = """# all of mine
a: {kind: slurm}  # the first

# of b
b:
  kind: ssh
  hosts: [h]  # its host

# of c
c:
  kind: slurm
"""


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("a", MIXED.replace("a: {kind: slurm}  # the first\n", "")),
        ("b", MIXED.replace("b:\n  kind: ssh\n  hosts: [h]  # its host\n", "")),
        ("c", MIXED.replace("c:\n  kind: slurm\n", "")),
    ],
)
def test_a_removed_target_leaves_the_others_and_the_comments(file: Path, name: str, after: str) -> None:
    write(file, MIXED)
    entries.remove(name)
    assert file.read_text() == after and name not in entries.names() and len(entries.names()) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "{a: {kind: slurm}, b: {kind: slurm}}\n",
            "the lines of 'a' in .* hold more than this target; change the file by hand",
        ),
        ("a: &x {kind: slurm}\nb: *x\n", "the lines of 'a' in .* hold more than this target; change the file by hand"),
        ("b: {kind: slurm}\n", "there is no target 'a'"),
    ],
)
def test_what_cannot_be_removed_alone_is_left(file: Path, text: str, says: str) -> None:
    write(file, text)
    with pytest.raises(UserError, match=says):
        entries.remove("a")
    assert file.read_text() == text


def test_a_target_of_a_run_that_has_not_ended_is_not_removed(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(file, "a: {kind: slurm}\nb: {kind: ssh}\n")  # the second one is wrong
    run = RunDir(tmp_path / "runs" / "r")
    run.path.mkdir(parents=True)
    write_json(run.recipe, {"kind": "grpo", "name": "r", "training": {"max_steps": 1}})
    journal.append(run, "created", recipe="r", target="a", cwd=str(tmp_path))
    runs = ["--runs", str(tmp_path / "runs")]
    assert main(["target", "remove", "a", *runs]) == 2
    assert f"; type podwright stop {run.typed}, then remove the target" in capsys.readouterr().err
    assert main(["target", "remove", "b", *runs]) == 0 and entries.names() == ["a"]
    entries.add("c", ["kind=ssh", "hosts=[h]", f"runs={file}"])  # which is no folder
    assert main(["target", "remove", "c", *runs]) == 0


def test_names_that_are_no_target_are_refused_with_what_to_type(file: Path) -> None:
    write(file, '"a b": {kind: slurm}\nboxes: {kind: slurm}\nboxes2: {kind: slurm}\n')
    for name, says in (
        ("a b", "has a target 'a b': a name begins with a letter, .*; give it another name there"),
        ("boxes,boxes2", "there is no target 'boxes,boxes2'; did you mean boxes2?"),
        ("2x2xv6e-16", "there is no target and no slice '2x2xv6e-16'"),
    ):
        with pytest.raises(UserError, match=says):
            targets.resolve(name)
    with pytest.raises(UserError, match="has no key 'partition'"):
        entries.add("g", ["kind=ssh", "hosts=[a]", "partition=x"])


@pytest.mark.parametrize(
    "typed",
    ["HF_TOKEN=s3cret", "[HF_TOKEN=s3cret", "[HF_TOKEN=s3cret]", "HF_TOKEN: s3cret", "{HF_TOKEN: s3cret}", "[HF_TOKEN: s3cret]", "[HF_TOKEN:s3cret]", "[A, {HF_TOKEN: s3cret}]", "A, HF_TOKEN=s3cret"],
)  # fmt: skip
def test_a_value_that_was_typed_with_a_variable_is_not_repeated(typed: str) -> None:
    with pytest.raises(UserError) as e:
        entries.add("a", ["kind=ssh", "hosts=[b]", f"env={typed}"])
    assert "s3cret" not in str(e.value) and "env" in e.value.what
    is_named = typed in ("[HF_TOKEN=s3cret]", "[HF_TOKEN:s3cret]")
    assert ("'HF_TOKEN'" if is_named else "env is no list of plain words; write env=[FIRST, SECOND]") in str(e.value)
    assert not is_named or "never their values; write it like [HF_TOKEN]" in str(e.value)
