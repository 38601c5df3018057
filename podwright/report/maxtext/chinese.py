"""The Chinese form of sentences that other parts of a report write in English: what differs from the recipe, what a curve shows."""

from __future__ import annotations

import re

_SENTENCES = (
    (
        r"a step has (\S+) tokens in the log and (\S+) in the recipe, (\S+) sequences of ([\d,]+)",
        r"日志中每步 \1 tokens，recipe 为 \2（\3 条序列，每条 \4）",
    ),
    (r"step (\d+) is in the log, and the recipe has (\d+) steps?", r"日志中有 step \1，而 recipe 只有 \2 步"),
    (r"(\d+) devices in the log, (\d+) in ([^,:]+)", r"日志为 \1 devices，\3 为 \2"),
    (r"(\w+) is ([^,]+?) in the log and ([^,]+?) in the recipe", r"\1 在日志中为 \2，在 recipe 中为 \3"),
    (r": probably another recipe", "：可能是另一个 recipe"),
    (r"(\S+), forward and backward, causal attention over (\d+) tokens", r"\1，前向与反向，\2 tokens 的因果注意力"),
    (
        r"The training loss fell from (\S+) to (\S+) nats in (\d+) steps\. No model learns that fast: .*",
        r"训练 loss 在 \3 步内由 \1 降至 \2 nats。没有模型学得这么快：数据被记住了（数据太少或行重复），或者目标泄漏到了输入中。",
    ),
    (
        r"The training loss \((\S+) nats\) is far below the held-out loss \((\S+)\): .*",
        r"训练 loss（\1 nats）远低于留出集 loss（\2）：模型记住了训练数据。",
    ),
    (
        r"The held-out loss rises \(from (\S+) nats at step (\d+) to (\S+)\) while .*",
        r"留出集 loss 上升（step \2 为 \1 nats，之后为 \3），而训练 loss 仍在下降：模型自此过拟合。请使用更多数据或更少步数。",
    ),
    (r", (?=\S)", "，"),
)
"""patterns of checks.py, facts.py and overfitting.py, with what stands in their place"""


def sentence(text: str) -> str:
    """`text` with the Chinese form of each sentence that is known."""
    for pattern, chinese in _SENTENCES:
        text = re.sub(pattern, chinese, text)
    return text
