"""The Chinese form of each cause that `podwright diagnose` knows, by the name of its rule. Words in capitals are values of the line."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from podwright.watch.rules import RULES, Rule

CAUSES: Mapping[str, str] = {
    "ssh-refused": "主机不接受 ssh 连接：sshd 未运行，或监听其他端口",
    "ssh-unreachable": "主机对 ssh 没有应答：已关机，或网络不通",
    "ssh-name": "本机无法解析该主机名",
    "ssh-key": "主机不接受你的任何密钥",
    "ssh-host-key-changed": "主机的密钥与以前不同：它被重新安装，或应答的是另一台机器",
    "ssh-host-key": "本机不认识该主机的密钥",
    "ssh-agent": "gcloud 连接多个 worker 时，密钥必须在 SSH agent 中",
    "ssh-cut": "主机断开了 ssh 连接：正在关机、正在启动，或不再接受连接",
    "ssh-255": "worker 上的 ssh 以 255 退出：没有连接，或 worker 拒绝了密钥",
    "bucket-rate": "bucket 拒绝请求：短时间内请求过多，通常是对同一对象的写入",
    "bucket-server": "bucket 的服务器出错，在程序等待期间没有恢复",
    "bucket-forbidden": "该行所示的账号在此 bucket 中没有权限",
    "bucket-missing": "没有该名称的 bucket 或对象",
    "bucket-conflict": "另一个进程同时写入了同一对象：两个 run 使用同一目录，或先前的进程仍在运行",
    "request-rate": "云暂时不再接受该项目的请求：一分钟内请求过多",
    "quota-zone": "项目在 ZONE 的配额 QUOTA 为 LIMIT，请求超出配额",
    "quota-region": "项目在 REGION 的配额 QUOTA 为 LIMIT，请求超出配额；该 region 的其他 zone 共用此配额",
    "quota-other": "项目的一项配额已用尽",
    "reservation-full": "预留中空闲的机器不足",
    "reservation-degraded": "预留处于降级状态：机器正在维护，空闲的机器也无法使用",
    "reservation-wrong": "预留的 zone 或机器类型与请求不同，或名称有误",
    "no-capacity": "该 zone 没有此类空闲机器",
    "taken-while-created": "机器在创建过程中被抢占",
    "accelerator-unknown": "该 zone 不提供此类 slice，或不支持这种 provisioning 方式",
    "runtime-version": "该 zone 没有此名称的 TPU 镜像",
    "api-off": "项目没有启用所调用的 API",
    "login-expired": "没有有效的 Google Cloud 登录",
    "no-project": "gcloud 不知道使用哪个项目",
    "cloud-permission": "该行所示的账号在项目中没有权限，或项目或 zone 的名称有误",
    "tpu-preempted": "云收回了 spot 机器",
    "tpu-maintenance": "云正在维护 slice 的一台主机，其上的程序被终止",
    "tpu-state": "slice 已停止或正在被删除",
    "tpu-gone": "没有此名称的 slice：已被抢占并移除、已被删除，或仍在创建",
    "delete-active": "拥有机器的 queued resource 不能停止，也不能只删除它而保留机器",
    "name-taken": "此名称已被占用，通常是先前尝试留下的，状态为 ERROR、FAILED 或 SUSPENDED",
    "creation-unfinished": "gcloud 在 SECONDS s 后停止等待，而操作仍在继续：它可能成功，并产生费用",
    "cloud-internal": "云自身的服务出错",
    "workload-validation": "xpk 的集群 slice 列表（ConfigMap resources-configmap）没有此类型，或数量少于 workload 的请求",
    "kueue-quota-small": "workload 请求的 chips 多于 ClusterQueue 的上限，将永远等待",
    "kueue-waiting": "其他 workload 占用了 ClusterQueue 的配额",
    "kueue-flavor": "Kueue 没有此类 slice 的 flavor：缺少 ResourceFlavor，或 ClusterQueue 中没有相应条目",
    "kueue-queue": "workload 的队列不存在或不接受 workload，或集群中没有运行 Kueue",
    "workload-preempted": "优先级更高的 workload 占用了 slice",
    "pod-unschedulable": "没有节点可容纳该 pod：此 topology 的节点池缺失或已满，或旧的 JobSet 仍占用节点",
    "image-pull": "节点无法拉取容器镜像：名称有误，或节点的账号没有读取权限",
    "node-pool-busy": "集群正在执行另一项操作，而正在创建的节点池无法取消",
    "machine-type": "该 zone 没有此名称的机器类型，或它需要 workload policy 而不是 placement policy",
    "xpk-memory-limit": "此版本的 xpk 有缺陷：它不知道该机器类型的内存",
    "prompt": "程序等待输入，而没有人回答",
    "jobset-failed": "workload 的一个 pod 失败，因此全部失败",
    "vmem-out-of-memory": "kernel 所需的片上内存（VMEM、SMEM）超过 TPU core 的容量；HBM 未满",
    "hbm-out-of-memory": "device 的内存容纳不下该程序",
    "tpu-in-use": "此 worker 的进程 PID 仍在使用 TPU，通常是先前的 run 留下的",
    "tpu-busy": "此 worker 的另一个进程占用 TPU 的设备文件，或刚刚结束而驱动尚未释放",
    "tpu-lockfile": "另一用户的进程留下的锁阻止了 libtpu",
    "tpu-topology": "libtpu 看不到 slice：TPU 镜像属于另一代，worker 在维护后重启，或 libtpu 与 jax 版本不匹配",
    "libtpu-mismatch": "此 worker 上 jax、jaxlib 与 libtpu 的版本不匹配",
    "tpu-mesh-build": "slice 的芯片无法连成 mesh：一条链路或一个芯片损坏",
    "mesh-assignment": "mesh 的大小无法映射到此 slice 的芯片互连",
    "not-divisible": "模型或 batch 的某个维度不能被切分它的 device 数整除",
    "non-addressable": "程序在一台主机上读取分布于多台主机 device 上的值",
    "slice-network": "slice 之间无法通过数据中心网络通信",
    "tpu-peer": "PEER 处的 worker 没有应答：其进程未启动或已结束；TPU slice 须在所有 worker 上同时启动",
    "tpu-initialization": "libtpu 无法使用此 worker 的 TPU",
    "cuda-out-of-memory": "GPU 显存已满",
    "slurm-memory": "作业使用的节点内存超过向 SLURM 申请的数量",
    "cgroup-out-of-memory": "内核终止了 run 的一个进程：其 cgroup（容器、服务或作业）或机器的内存耗尽",
    "shared-memory": "/dev/shm 已满，worker 之间通过它传递数据",
    "host-out-of-memory": "机器自身的内存已满",
    "disk-full": "磁盘已满，或你的磁盘配额已用尽",
    "read-only": "文件系统不可写；网络文件系统在其服务器出错后会变为只读",
    "mount-gone": "共享文件系统在使用中断开",
    "no-permission": "运行此程序的用户无权读写该文件",
    "old-driver": "节点的 NVIDIA 驱动早于此 PyTorch 所需的版本",
    "no-cuda": "PyTorch 在此找不到 GPU",
    "gpu-broken": "一块 GPU 出现故障",
    "name-resolution": "此节点无法解析另一个节点的名称",
    "address-in-use": "另一个进程占用了此 run 各进程会合的端口，通常是先前的 run 留下的",
    "rendezvous-connect": "第一个进程在约定的地址没有应答：它尚未启动，或被防火墙阻隔",
    "rendezvous-timeout": "并非所有进程都按时到达会合点",
    "nccl-connect": "NCCL 找不到从一个节点到另一个节点的路径",
    "nccl-timeout": "各进程等待一个没有到达 collective 的进程：它已结束、挂起，或得到了不同的数据",
    "stalled": "一个 step 没有结束：该行指出了与其他进程所处位置不同的进程，其他进程在等待它",
    "gloo-timeout": "进程等待的另一个进程没有按时应答：它已结束、挂起，或远远落后",
    "peer-gone": "run 的另一个进程已结束",
    "coordination-lost": "run 的另一个进程已结束或断开连接，随后 jax 终止了此进程",
    "loader-worker-killed": "加载数据的 worker 被终止，通常是因为内存",
    "worker-killed": "进程被外部终止：内核因内存、调度器，或人为",
    "missing-keys": "checkpoint 属于与 recipe 不同的模型",
    "no-module": "运行环境缺少一个 Python 包",
    "no-compiler": "torch.compile 在运行环境中找不到编译器",
    "not-finite": "loss 或其梯度为 NaN 或无穷大",
    "out-of-data": "训练数据在最后一步之前耗尽",
    "optimizer-option": "优化器不认识所给的选项：安装的 optax 是另一版本，或 Muon 的 weight decay 在此程序中另有名称",
    "slurm-time": "作业达到时间上限",
    "slurm-preempted": "优先级更高的作业占用了节点",
    "slurm-node": "作业的一个节点宕机",
    "slurm-launch": "SLURM 无法在节点上启动作业；通常是 --output 的目录在那里不存在，因此没有日志",
    "slurm-partition": "集群没有此 partition、account 或 qos，或你无权使用",
    "slurm-limit": "作业请求的时间或节点超过 partition、qos 或 account 的上限，将永远等待",
    "slurm-impossible": "partition 中没有满足作业请求的节点",
    "slurm-pending": "作业在等待被占用的节点",
    "slurm-task-killed": "信号终止了作业在该行所示节点上的进程：EXIT_CODE 137 为 128 + 9（SIGKILL），来自内核（内存）、调度器，或人为",
    "slurm-cancelled": "作业被人取消",
}


def cause(text: str) -> str:
    """The Chinese form of a cause that a rule gave; any other text as it is."""
    return translated(text, _causes())


def translated(text: str, forms: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """The Chinese form beside the first pattern that matches all of `text`, with its values; `text` where none does."""
    matches = ((pattern.fullmatch(text), chinese) for pattern, chinese in forms)
    match, chinese = next(((match, chinese) for match, chinese in matches if match), (None, text))
    values = match.groupdict() if match else {}
    return re.sub(r"\b[A-Z]+\b", lambda word: values.get(word[0], word[0]), chinese)


def pattern_of(rule: Rule, english: str) -> re.Pattern[str]:
    """Matches a text of a rule with any value in place of the words in capitals."""
    expression = re.escape(english)
    for group in rule.pattern.groupindex:
        expression = re.sub(rf"\b{group.upper()}\b", f"(?P<{group.upper()}>.+?)", expression, count=1)
        expression = re.sub(rf"(?<!<)\b{group.upper()}\b(?!>)", ".+?", expression)
    return re.compile(expression)


@functools.cache
def _causes() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((pattern_of(rule, rule.cause), CAUSES[rule.name]) for rule in RULES)
