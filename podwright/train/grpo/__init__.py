"""Group Relative Policy Optimization: rollout, score and update programs, and the loop that runs them."""
