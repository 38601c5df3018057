"""What can be said about a recipe on a target without a compiler: findings, each with what to type."""
