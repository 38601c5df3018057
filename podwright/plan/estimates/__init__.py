"""Memory and step time in closed form: no compiler, no jax."""
