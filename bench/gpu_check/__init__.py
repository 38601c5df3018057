"""`make gpu-check`: the product on one GPU within eight minutes. README.md says what is checked and how to bring it to a machine."""
