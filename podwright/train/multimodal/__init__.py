"""Multimodal training: soft tokens of pictures and sounds before a language model's prompt. The only part that uses PyTorch."""
