"""An attempt on hosts that are reached one by one: shipped, started, watched and gathered, whatever the transport."""
