# Read by every bash of the sandbox before its script. A file that is not there, such as bin/activate of an environment, is sourced as an empty one.
RANDOM=$((1 + @VARIANT@))
SECONDS=$((1000 * @VARIANT@)) # more than a script may take
HOSTNAME=podwright-@VARIANT@
source() {
  if [[ -e ${1-} ]] || type -P "${1-}" > /dev/null; then
    builtin source "$@"
  else
    /podwright/bin/source "$@"
  fi
}
.() { source "$@"; }
# A directory of the machine or image that the script is for is not here.
cd() { builtin cd "$@" 2> /dev/null || /podwright/bin/cd "$@"; }
deactivate() { :; }
# What the user types counts: before each command of the script, and of what it sources or calls, its variables have these values again.
set -T
trap -- "$(< /podwright/bin/values)" DEBUG
