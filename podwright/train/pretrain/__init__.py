"""Pretraining: next-token prediction on packed documents, one program a step."""
