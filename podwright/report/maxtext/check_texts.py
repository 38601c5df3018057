"""The sentences of the checks of a log, in English and in Chinese."""

from __future__ import annotations

from collections.abc import Mapping

# key: (English, Chinese)
CHECK_TEXTS: Mapping[str, tuple[str, str]] = {
    "tokens_ok": (
        "Tokens/s/{per} = total_weights / step time / {per}s holds: {expected} against {logged} in the log (median of {n} steps).",
        "Tokens/s/{per} = total_weights / step time / {per}s 成立：{expected}，日志为 {logged}（{n} 步的中位数）。",
    ),
    "tokens_padding": (
        "Tokens/s/{per} = total_weights / step time / {per}s does not hold: {expected} by the weights, {logged} in the log "
        "(ratio {ratio}). The log counts positions without a weight too, such as padding.",
        "Tokens/s/{per} = total_weights / step time / {per}s 不成立：按 total_weights 为 {expected}，日志为 {logged}（比值 {ratio}）。日志计入了没有权重的位置，例如 padding。",
    ),
    "tokens_devices": (
        "Tokens/s/{per} = total_weights / step time / {per}s does not hold: {expected} by the weights, {logged} in the log "
        "(ratio {ratio}). One of them counts another number of devices or chips.",
        "Tokens/s/{per} = total_weights / step time / {per}s 不成立：按 total_weights 为 {expected}，日志为 {logged}（比值 {ratio}）。两者的 device 或 chip 数不同。",
    ),
    "tokens_unknown_devices": (
        "Tokens/s per chip could not be checked: the number of devices is not known. Name --recipe or --on SLICE.",
        "无法校验 Tokens/s/chip：device 数未知，请用 --recipe 或 --on 指明。",
    ),
    "tokens_unknown_weights": (
        "Tokens/s could not be checked: the log has no {what}.",
        "无法校验 Tokens/s：日志没有 {what}。",
    ),
    "tokens_unknown_zero": (
        "Tokens/s could not be checked: {what} is not above 0 in the log.",
        "无法校验 Tokens/s：日志中的 {what} 不大于 0。",
    ),
    "times_all": (
        "Impossible: the times of {n} steps are 0 s, below 0 s or no number. There is no median.",
        "不可能：{n} 个 step 的耗时为 0 s、负数或不是数字，因此没有中位数。",
    ),
    "times_some": (
        "Impossible: the times of {n} steps are 0 s, below 0 s or no number. They do not count.",
        "不可能：{n} 个 step 的耗时为 0 s、负数或不是数字，不计入。",
    ),
    "missing": (
        "Steps that are missing in the log: {n} ({what}).",
        "日志中缺少 {n} 个 step（{what}）。",
    ),
    "peak_ok": (
        "{logged} TFLOP/s/device in the log are {share} of the {precision} peak of {peak}.",
        "日志的 {logged} TFLOP/s/device 为 {precision} 峰值 {peak} 的 {share}。",
    ),
    "peak_fastest": (
        "{logged} TFLOP/s/device in the log are {share} of {peak}, the peak of the fastest precision: that of the run is not known without --recipe.",
        "日志的 {logged} TFLOP/s/device 为最快精度峰值 {peak} 的 {share}：没有 --recipe 无法得知本次运行的精度。",
    ),
    "peak_warning": (
        "Impossible: {logged} TFLOP/s/device in the log, and the peak is {peak}. The formula or the time is wrong.",
        "不可能：日志为 {logged} TFLOP/s/device，而峰值为 {peak}。公式或计时有误。",
    ),
    "peak_of_any": (
        "Impossible: {logged} TFLOP/s/device in the log, and no device that is known does more than {fastest}. The formula or the time is wrong.",
        "不可能：日志为 {logged} TFLOP/s/device，而已知设备的最高峰值为 {fastest}。公式或计时有误。",
    ),
    "peak_unknown_hardware": (
        "TFLOP/s could not be compared with a peak: the kind of chip is not known. Name --recipe or --on SLICE.",
        "无法与峰值比较：芯片型号未知，请用 --recipe 或 --on 指明。",
    ),
    "tokens_unknown_steps": (
        "Tokens/s could not be checked: no step counts.",
        "无法校验 Tokens/s：没有计入统计的 step。",
    ),
    "peak_unknown_steps": (
        "TFLOP/s against the peak could not be checked: no step counts.",
        "无法与峰值比较：没有计入统计的 step。",
    ),
    "flops_unknown_steps": (
        "The log's FLOP formula could not be checked: no step counts.",
        "无法校验日志的 FLOP 公式：没有计入统计的 step。",
    ),
    "peak_unknown_tflops": ("The log has no TFLOP/s to compare with the peak.", "日志没有 TFLOP/s，无法与峰值比较。"),
    "flops_ok": (
        "The log's FLOP formula agrees with the architecture: {logged_gflop} against {true_gflop} GFLOP a token.",
        "日志的 FLOP 公式与模型结构一致：每 token {logged_gflop} 与 {true_gflop} GFLOP。",
    ),
    "flops_warning": (
        "Wrong FLOP formula: the log's {logged} TFLOP/s/device take {logged_gflop} GFLOP a token, the architecture has {true_gflop} "
        "({ratio} times). True: {true} TFLOP/s/device{mfu}.",
        "FLOP 公式有误：日志的 {logged} TFLOP/s/device 相当于每 token {logged_gflop} GFLOP，而模型结构为 {true_gflop}（{ratio} 倍）。实际为 {true} TFLOP/s/device{mfu}。",
    ),
    "flops_doubtful": (
        "Wrong FLOP formula: the log's {logged} TFLOP/s/device take {logged_gflop} GFLOP a token, the architecture has {true_gflop} "
        "({ratio} times). By the log's Tokens/s, which do not hold: {true} TFLOP/s/device{mfu}.",
        "FLOP 公式有误：日志的 {logged} TFLOP/s/device 相当于每 token {logged_gflop} GFLOP，而模型结构为 {true_gflop}（{ratio} 倍）。"
        "按日志中不成立的 Tokens/s 计算为 {true} TFLOP/s/device{mfu}。",
    ),
    "flops_unknown_log": (
        "The log has no TFLOP/s, so its FLOP formula could not be checked.",
        "日志没有 TFLOP/s，无法校验 FLOP 公式。",
    ),
    "flops_unknown_architecture": (
        "The log's FLOP formula could not be checked: the architecture of {what} is not known here. "
        "Type --recipe with a recipe of that model, such as almodel-8b-source for ALModel.",
        "无法校验日志的 FLOP 公式：{what} 的模型结构未知。请用 --recipe 指定该模型的 recipe，例如 ALModel 用 almodel-8b-source。",
    ),
    "flops_unknown_another": (
        "The log's FLOP formula could not be checked: the log is probably of another recipe, as below. "
        "Type --recipe with the recipe that it is of, or with none for the log's own figures.",
        "无法校验日志的 FLOP 公式：日志可能来自另一个 recipe（见下）。请用 --recipe 指定该日志的 recipe，或不指定，只看日志自身的数据。",
    ),
    "mfu_text": (", {share} of the peak", "，为峰值的 {share}"),
    "conflict": ("Log and recipe differ: {what}.", "日志与 recipe 不一致：{what}。"),
    "damaged": (
        "Step lines that cannot be read and do not count: {n}, the first: {what}",
        "{n} 行 step 日志无法解析，不计入，第一行：{what}",
    ),
    "cut": ("The last line is cut and does not count: {what}", "最后一行被截断，不计入：{what}"),
    "repeated": (
        "Lines that repeat the step before them with the same loss: {n} (several processes of a host); they count once.",
        "{n} 行重复了前一步（同一主机的多个进程），只计一次。",
    ),
    "hosts": (
        "The log has lines of other hosts too ({n}); those of the first one count.",
        "日志含另外 {n} 台主机的输出；以第一台为准。",
    ),
    "hosts_named": (
        "The log has lines of other hosts too ({n}); those of {what} count, which reported the first step.",
        "日志含另外 {n} 台主机的输出；以最先报告 step 的 {what} 为准。",
    ),
    "loss_nan": ("The loss is not finite from step {step} on.", "loss 自 step {step} 起为 NaN 或无穷大。"),
    "loss_recovered": ("The loss was not finite at step {step}.", "loss 在 step {step} 为 NaN 或无穷大。"),
}
