"""What targets are told about machines: a file for each kind of target."""
