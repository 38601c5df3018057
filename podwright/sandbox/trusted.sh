# Behind the prelude where bash runs a script that is trusted, without a sandbox: no other program comes onto its PATH, and one that is not
# there is no reason to go on with an empty answer.
readonly PATH
command_not_found_handle() {
  printf '%s\n' "$1" > /podwright/calls/missing
  kill -KILL 0
}
