"""Models in JAX: pure functions of (params, tokens), each weight declared once as a Param."""
