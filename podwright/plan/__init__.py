"""WILL IT WORK: findings about a recipe on a target, before anything is started."""
