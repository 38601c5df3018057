"""The Chinese form of each remedy that `podwright diagnose` gives, by the name of its rule. Words in capitals are values of the line.

A name in braces is a field of recipe/advice.py, as in the remedies themselves.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from podwright.recipe.advice import RecipeAdvice, of_kind
from podwright.report.maxtext.chinese_causes import pattern_of, translated
from podwright.watch.rules import RULES

_RESUME = "然后输入 podwright resume RUN"
_QUEUED = (
    "删除处于 suspended 与 failed 状态、占用配额的 queued resource（gcloud compute tpus queued-resources list 可列出）"
)

ADVICE = RecipeAdvice(
    device_memory="输入更小的 arguments.per_device_batch_size，或 arguments.remat_policy=full；podwright plan 可告知哪些设置能容纳",
    host_memory="使用内存更大的机器，或主机更多的 slice",
    not_finite="更小的 arguments.learning_rate",
    fewer_steps="更小的 arguments.steps",
    resumes="重新开始：从最近的 checkpoint，若没有保存过则从 step 0",
    compiler="在该处安装 g++",
    packages="将它构建进镜像，或在 launch.setup 中加入 pip install PACKAGE",
    libtpu="将版本相互匹配的 jax、jaxlib 与 libtpu 一起构建进镜像",
)
"""for recipes of MaxText"""

REMEDIES: Mapping[str, str] = {
    "ssh-refused": "在该主机上启动 sshd，或在 target 文件的 hosts 中写明端口（hosts: [user@host:port]）；podwright target check TARGET 会尝试连接",
    "ssh-unreachable": f"确认主机可用，{_RESUME}",
    "ssh-name": "修正 target 文件中的 hosts，或在 ~/.ssh/config 中为该名称添加条目",
    "ssh-key": "输入 ssh-copy-id 与主机名；带口令的密钥须先用 ssh-add 加载",
    "ssh-host-key-changed": "若你知道原因，输入 ssh-keygen -R 与主机名",
    "ssh-host-key": "手动登录一次并核对所显示的密钥，它会被记录下来",
    "ssh-agent": "输入 ssh-add 与该行所示密钥的路径",
    "ssh-cut": f"查看其状态（被抢占、正在维护），{_RESUME}",
    "ssh-255": f"之前的行会说明是哪一种；确认 slice 为 READY，{_RESUME}",
    "bucket-rate": f"等待一分钟，{_RESUME}；让每个对象只由一个进程写入，并减少保存次数",
    "bucket-server": f"等待几分钟，{_RESUME}",
    "bucket-forbidden": f"为其授予该 bucket 的 Storage Object Admin 角色（对于 slice：其机器的服务账号），{_RESUME}",
    "bucket-missing": "修正地址（gcloud storage ls 显示你的 bucket）；对象可能已被 bucket 的生命周期规则删除",
    "bucket-conflict": f"结束另一个进程，或为此 run 指定自己的目录，{_RESUME}",
    "request-rate": f"等待一分钟，{_RESUME}；换 zone 没有帮助",
    "quota-zone": f"换一个 zone 或更小的 slice，或{_QUEUED}",
    "quota-region": f"换另一个 region 的 zone 或更小的 slice，或{_QUEUED}",
    "quota-other": f"在 Cloud console 的 Quotas 页面申请更多配额，或{_QUEUED}",
    "reservation-full": "使用另一个预留，或等待使用此预留的作业结束；在 GKE 上请删除该节点池，它之后才会填满",
    "reservation-degraded": "使用另一个预留，或等待其状态变为 READY",
    "reservation-wrong": "输入 gcloud compute reservations list，并使用该预留的 zone 与机器类型",
    "no-capacity": "换一个 zone，或稍后输入 podwright resume RUN",
    "taken-while-created": f"删除残留的部分，{_RESUME}",
    "accelerator-unknown": "输入 gcloud compute tpus accelerator-types list，从中选择 zone 与类型",
    "runtime-version": "输入 gcloud compute tpus tpu-vm versions list，选择适合你这一代 TPU 的版本（v6e：v2-alpha-tpuv6e）",
    "api-off": "在该行所示地址的页面启用此 API，几分钟后重试",
    "login-expired": f"输入 gcloud auth login 与 gcloud auth application-default login，{_RESUME}",
    "no-project": "输入 gcloud config set project 与项目名称",
    "cloud-permission": "查看 gcloud config list（账号与项目）；请项目所有者授予 TPU Admin 角色",
    "tpu-preempted": "输入 podwright resume RUN，它会在其他机器上{resumes}",
    "tpu-maintenance": "待 slice 再次 READY 且 HEALTHY 时输入 podwright resume RUN，或使用另一个 slice",
    "tpu-state": f"输入 gcloud compute tpus tpu-vm describe 与其名称以查看状态，{_RESUME}",
    "tpu-gone": "输入 podwright resume RUN",
    "delete-active": "输入 gcloud compute tpus queued-resources delete 与其名称及 --force",
    "name-taken": "若它属于你且未被使用，请删除它；否则换一个名称",
    "creation-unfinished": "在创建或删除任何资源之前，先用 gcloud 的 list 或 describe 查看",
    "cloud-internal": f"查看所请求的资源是否存在，{_RESUME}",
    "workload-validation": "用 kubectl edit configmap 将该类型加入此 ConfigMap，或请求更少的 slice",
    "kueue-quota-small": "提高其 flavor 的配额（kubectl edit clusterqueue），或请求更小的 slice",
    "kueue-waiting": "无需操作：它会自动开始；kubectl get workloads.kueue.x-k8s.io 显示队列",
    "kueue-flavor": "将 kubectl get resourceflavor 与 kubectl get clusterqueue 同 pod 要求的标签比较，并创建缺少的部分",
    "kueue-queue": "用 kubectl get localqueue 与 kubectl get clusterqueue 查看",
    "workload-preempted": "输入 podwright resume RUN；它会在队列中等待",
    "pod-unschedulable": "用 kubectl get nodes 与 kubectl get jobsets 查看；删除旧的 JobSet，或创建节点池",
    "image-pull": "将名称与镜像仓库核对，并为节点的账号授予 Artifact Registry Reader 角色",
    "node-pool-busy": "等待该操作结束（gcloud container operations list 可显示），然后重试",
    "machine-type": "输入 gcloud compute machine-types list，选择匹配的名称与 policy（tpu7x：workload policy）",
    "xpk-memory-limit": "用 gcloud container node-pools create 创建节点池，或安装更新的 xpk",
    "prompt": "用自动回答 yes 的选项启动它（gcloud 为 --quiet，xpk 为 --force）",
    "jobset-failed": f"原因在该 pod 的日志中，{_RESUME}",
    "vmem-out-of-memory": "带 --compile 的 podwright plan 会指出是哪个 kernel；减小它的 block size，或{device_memory}",
    "hbm-out-of-memory": "{device_memory}",
    "tpu-in-use": f"在该 worker 上输入 kill PID（ps -p PID 显示它是什么），{_RESUME}",
    "tpu-busy": f"在该 worker 上结束占用它的进程（sudo lsof -w /dev/vfio/* 可显示），{_RESUME}",
    "tpu-lockfile": f"在该 worker 上按该行所述删除此文件，{_RESUME}",
    "tpu-topology": "核对 gcloud compute tpus tpu-vm describe 中的 runtimeVersion：v6e 需要 v2-alpha-tpuv6e；若正确，请删除 slice 并重新创建",
    "libtpu-mismatch": "{libtpu}",
    "tpu-mesh-build": "删除该 slice，然后输入 podwright resume RUN，它会创建另一个",
    "mesh-assignment": "输入 podwright plan、recipe 与 --on 加 slice，它会列出可行的 mesh",
    "not-divisible": "输入 podwright plan，它会列出能整除的 mesh；使用更小的 mesh axis 或另一个 batch 大小",
    "non-addressable": "在程序中先将其收集（jax multihost utilities 的 process allgather），或只读取可寻址的 shard",
    "slice-network": "查看所有 slice 是否都在运行，以及集群创建时是否带有多个网络：之后无法再添加",
    "tpu-peer": f"查看该 worker 的日志；在所有 worker 上启动程序，{_RESUME}",
    "tpu-initialization": f"先查看其他 worker 的日志；若这是第一个失败，请删除该 slice，{_RESUME}",
    "cuda-out-of-memory": "{device_memory}",
    "slurm-memory": "申请更多内存（target 文件中的 mem），或{host_memory}",
    "cgroup-out-of-memory": "提高该上限，申请更多内存（target 文件中的 mem），或使用内存更大的机器",
    "shared-memory": "将其增大（在容器中：--shm-size=8g）",
    "host-out-of-memory": "{host_memory}，或使用内存更大的机器",
    "disk-full": f"释放一些空间（旧 run 的 checkpoint），{_RESUME}",
    "read-only": f"以可写方式挂载，或指定另一个 --runs，{_RESUME}",
    "mount-gone": f"在该节点上重新挂载，{_RESUME}",
    "no-permission": f"为该用户授权（chown、chmod，或另一个 --runs），{_RESUME}",
    "old-driver": "安装适用于较旧 CUDA 的 PyTorch，或更新驱动",
    "no-cuda": "查看 nvidia-smi 与 CUDA_VISIBLE_DEVICES；仅支持 CPU 的 PyTorch 可从 CUDA 的 index 用 pip install torch 替换",
    "gpu-broken": f"排除其节点（target 文件中 sbatch: [--exclude=NODE]；使用 ssh 时从 hosts 中移除），{_RESUME}",
    "name-resolution": "用地址代替名称，或修正 DNS 或 /etc/hosts",
    "address-in-use": "结束该进程（ss -ltnp 可显示），或使用另一个端口",
    "rendezvous-connect": "查看第一个进程的日志；podwright target check TARGET 会检查节点之间的端口",
    "rendezvous-timeout": "查找日志缺失或较短的节点，以及进程数不同的节点",
    "nccl-connect": "指定正确的网络（NCCL_SOCKET_IFNAME=eth0），开放节点之间的端口，并用 NCCL_DEBUG=INFO 查看",
    "nccl-timeout": f"在日志中找出最后一个 step 落后的进程，{_RESUME}",
    "stalled": f"查看日志旁的 stacks-K.txt，其中说明它挂起的位置，{_RESUME}",
    "gloo-timeout": f"在日志中找出最后一个 step 落后的进程，{_RESUME}",
    "peer-gone": f"原因在该进程的日志中（podwright logs RUN），{_RESUME}",
    "coordination-lost": f"原因在该进程的日志中（podwright logs RUN），{_RESUME}",
    "loader-worker-killed": "{host_memory}，或为作业分配更多内存",
    "worker-killed": "在 dmesg 中查找 oom-kill；若有，{host_memory}",
    "missing-keys": "提供与这些维度匹配的 checkpoint，或使用该 checkpoint 的维度",
    "no-module": "{packages}",
    "no-compiler": "{compiler}",
    "not-finite": "以{not_finite}重新开始",
    "out-of-data": "提供更多数据，或{fewer_steps}；podwright data count 可告知一个来源有多少数据",
    "optimizer-option": "安装程序所指定版本的 optax，或使用该程序对此选项的名称",
    "slurm-time": "输入 podwright resume RUN，它会{resumes}；或在 target 文件中申请更多时间",
    "slurm-preempted": "输入 podwright resume RUN，除非 SLURM 已将其重新排队",
    "slurm-node": "输入 podwright resume RUN；若再次失败，请排除该节点（target 文件中 sbatch: [--exclude=NODE]）",
    "slurm-launch": "在所有节点共享的文件系统上创建该目录（podwright 自己的 run 会自动创建）",
    "slurm-partition": "sinfo -s 与 sacctmgr show assoc user=$USER 显示你可用的；修正 target 文件",
    "slurm-limit": "减少申请（target 文件中的节点或时间）；sinfo -o '%P %l %D' 显示各 partition 的上限",
    "slurm-impossible": "与 sinfo -N -o '%N %c %m %G %f' 比较，并修正 target 文件",
    "slurm-pending": "无需操作：它会自动开始；squeue --start 显示 SLURM 预计的时间",
    "slurm-task-killed": "在该节点上输入 dmesg；若有 oom-kill，请申请更多内存（target 文件中的 mem），否则输入 podwright resume RUN",
    "slurm-cancelled": "输入 podwright resume RUN",
}


def remedy(text: str) -> str:
    """The Chinese form of a remedy that a rule gave for a run of MaxText; any other text as it is."""
    return translated(text, _remedies())


@functools.cache
def _remedies() -> tuple[tuple[re.Pattern[str], str], ...]:
    english = of_kind("maxtext")
    return tuple((pattern_of(rule, english.filled(rule.remedy)), ADVICE.filled(REMEDIES[rule.name])) for rule in RULES)
