"""The processes of a PyTorch run and what they agree on."""
